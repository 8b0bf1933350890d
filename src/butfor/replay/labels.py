"""Labels: counterfactuals with noise on next states compared with noise on other labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_whole
from butfor.log.episodes import Episodes
from butfor.models.mdp import TabularMDP
from butfor.replay.outcomes import Counterfactuals, rank_flags
from butfor.replay.replay import Replay
from butfor.replay.steps import Steps
from butfor.types import Integers, Progress

BLOCK = 2048  # rows compared with all others at a time


def nature_variables(episodes: Episodes) -> tuple[str, ...]:
    """Names of the state variables that do not share their name with an action variable.

    A state variable with the name of an action variable records what was just decided: a treatment
    flag. The others are decided by nature.
    """
    decided = {variable.name for variable in episodes.action_variables}
    names = tuple(v.name for v in episodes.state_variables if v.name not in decided)
    if not names:
        raise ValueError(
            "every state variable has the name of an action variable "
            f"({', '.join(repr(v.name) for v in episodes.state_variables)}), which leaves nothing "
            "for nature to decide; name the variables whose noise carries over"
        )
    return names


def nature_labels(episodes: Episodes, *names: str) -> Integers:
    """Label each state by the levels of the variables that nature decides, [S], for `labels=`.

    Parameters
    ----------
    names
        State variables decided by chance, such as vital signs. By default those that do not share
        their name with an action variable: see `nature_variables`.
    """
    return episodes.state_labels(*(names or nature_variables(episodes)))


@dataclass(frozen=True, eq=False)
class Noise:
    """Counterfactuals of a log with noise on one kind of label."""

    labels: Integers  # [S + O]
    counterfactuals: Counterfactuals
    steps: Steps
    apart_of_all: float  # share of all pairs of different seen rows that have no label in common

    @property
    def apart_of_met(self) -> float:
        """The same share of the pairs of rows met, by probability: `Steps.share_apart`."""
        return self.steps.share_apart


@dataclass(frozen=True, eq=False)
class LabelComparison:
    """Counterfactuals of n episodes with noise on next states, and with noise on other labels."""

    states: Noise
    labels: Noise
    flagged: NDArray[np.bool_]  # [n] flagged with either noise

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Whether the most likely outcome of each episode depends on the labels, [n]."""
        return np.asarray(
            self.states.counterfactuals.most_likely != self.labels.counterfactuals.most_likely
        )

    def frame(self) -> pd.DataFrame:
        """Return one row per episode: what was observed, and the counterfactual with each noise.

        Columns end in `_states` and `_labels`; `difference` is the expected return with noise on
        labels less that with noise on states.
        """
        first = self.states.counterfactuals
        names = np.array(first.outcome_names, dtype=object)
        columns = {
            "id": first.episodes.id,
            "observed_outcome": names[first.episodes.outcome],
            "observed_return": first.observed_return,
            "usual_return": first.usual_return,
        }
        both = {"states": self.states, "labels": self.labels}
        for kind, noise in both.items():
            columns[f"expected_return_{kind}"] = noise.counterfactuals.expected_return
        for kind, noise in both.items():
            columns[f"most_likely_{kind}"] = names[noise.counterfactuals.most_likely]
        for kind, noise in both.items():
            columns[f"share_about_{kind}"] = noise.steps.share_about
        frame = pd.DataFrame(columns | {"flagged": self.flagged, "changed": self.changed})
        frame["difference"] = frame["expected_return_labels"] - frame["expected_return_states"]
        return frame

    def summary(self) -> pd.DataFrame:
        """Return one row per kind of noise.

        Columns: `noise`, `labels` (their number), `mean_return`, `apart_of_met`, `apart_of_all`,
        `share_about` (mean over episodes: see `Steps`).
        """
        return pd.DataFrame(
            [
                {
                    "noise": kind,
                    "labels": len(np.unique(noise.labels)),
                    "mean_return": noise.counterfactuals.expected_return.mean(),
                    "apart_of_met": noise.apart_of_met,
                    "apart_of_all": noise.apart_of_all,
                    "share_about": noise.steps.share_about.mean(),
                }
                for kind, noise in (("states", self.states), ("labels", self.labels))
            ]
        )


def compare_labels(
    replay: Replay,
    labels: ArrayLike,
    *,
    flags: int = 60,
    threads: int | None = None,
    progress: Progress | None = None,
) -> LabelComparison:
    """Compute the counterfactuals of a question twice: with noise on next states, and on labels.

    Parameters
    ----------
    labels : [S] or [S + O]
        See `TabularMDP.with_labels`; `nature_labels` makes some. The model's own are ignored.
    flags : int
        Maximum number of episodes to flag with each noise.

    Notes
    -----
    Both answers are compatible with everything that data can show: the rows of the model, and so
    averages over all episodes that it could produce, are the same. They differ in what is assumed
    to be shared by both worlds: the noise of reaching exactly this state, or that of the label.
    """
    check_whole(flags, "flags", 0, "a whole number")
    model, found = replay.mdp, []
    for labelled in (model.with_labels(None), model.with_labels(labels)):
        again = replay.ask(model=labelled).compute(threads=threads, progress=progress)
        share = share_of_disjoint_rows(labelled)
        found.append(Noise(labelled.labels, again.outcomes(), again.steps(), share))
    flagged = [rank_flags(noise.counterfactuals, flags) > 0 for noise in found]
    return LabelComparison(states=found[0], labels=found[1], flagged=flagged[0] | flagged[1])


def share_of_disjoint_rows(model: TabularMDP) -> float:
    """Share of the pairs of different seen rows without a common label; nan if there are none."""
    seen = np.flatnonzero(~model.unseen.ravel())
    if len(seen) < 2:
        return float("nan")
    holds = sparse.csr_array(
        (np.ones(len(model.probability), np.int32), (model.entry_row, model.entry_label)),
        shape=(len(model.start) - 1, int(model.labels.max()) + 1),
    )[seen]
    across = holds.T.tocsr()
    meeting = sum(
        (holds[first : first + BLOCK] @ across).nnz for first in range(0, len(seen), BLOCK)
    )
    return 1 - (meeting - len(seen)) / (len(seen) * (len(seen) - 1))

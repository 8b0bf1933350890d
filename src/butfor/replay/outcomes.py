"""Counterfactuals: outcomes and returns of each episode under the target policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.printed import Printed
from butfor.types import Floats

DRAWS = 200  # by default, where probabilities are shares of draws
LARGE = 0.1  # standard deviations of returns: a difference worth a flag of its own
TIE = 1e-12  # outcomes whose probabilities differ by no more are tied


class Found(NamedTuple):
    """What an engine finds about the outcomes of n episodes."""

    probability: Floats  # [n, O + 1]
    expected_return: Floats  # [n]
    unsupported: Floats | None  # [n]; None: it needs a separate pass
    return_error: Floats | None = None  # [n] standard error of the expected return


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactuals(Printed):
    """What would have happened to each of n episodes under the target policy."""

    episodes: Episodes  # cut at the horizon
    probability: Floats  # [n, O + 1] of each outcome; the last column is that of none
    expected_return: Floats  # [n]
    observed_return: Floats  # [n] as recorded
    horizon: int
    discount: float
    action_noise: str
    # what the counterfactual is compared with: what was observed; of a censored episode that
    # continues, what the model expects of the behavior policy from where the record stops
    usual_return: Floats  # [n]
    usual_outcome: NDArray[np.int64]  # [n] -1: none
    mechanism: Mechanism | None = None  # None: Gumbel-Max
    draws: int | None = None  # None: exact; otherwise probabilities are shares of this many draws
    return_error: Floats | None = None  # [n] Monte Carlo standard error; None: not estimated

    @property
    def difference(self) -> Floats:
        """Expected return under the target less the return it is compared with, [n]."""
        return self.expected_return - self.usual_return

    @property
    def probability_error(self) -> Floats:
        """Monte Carlo standard error of each probability, [n, O + 1]; 0 if it is exact.

        Where all of K draws agree it is 0 too, but another outcome may still have a probability of
        about 3 / K.
        """
        if self.draws is None:
            return np.zeros_like(self.probability)
        return np.sqrt(self.probability * (1 - self.probability) / self.draws)

    @property
    def most_likely(self) -> NDArray[np.int64]:
        """Most likely outcome of each episode, -1 for none, [n]; a tie goes to the earlier one."""
        return most_likely(self.probability)

    @property
    def outcome_names(self) -> list[str]:
        """Names of the outcomes in the order of the columns, none last."""
        return self.episodes.outcome_names

    def frame(self) -> pd.DataFrame:
        """Return one row per episode: the observed, the counterfactual, and the difference."""
        names = np.array(self.outcome_names, dtype=object)
        columns = {
            "id": self.episodes.id,
            "length": self.episodes.lengths,
            "observed_outcome": names[self.episodes.outcome],
            "usual_outcome": names[self.usual_outcome],
            "observed_return": self.observed_return,
            "usual_return": self.usual_return,
        }
        for column, name in enumerate(self.outcome_names[:-1]):
            columns[f"p_{name}"] = self.probability[:, column]
        columns["p_none"] = self.probability[:, -1]
        return pd.DataFrame(
            columns
            | {
                "expected_return": self.expected_return,
                "difference": self.difference,
                "most_likely": names[self.most_likely],
            }
        )

    def _title(self) -> str:
        return f"Counterfactuals of {len(self.episodes):,} episodes"

    def _facts(self) -> dict[str, Any]:
        return {
            "outcomes": self.outcome_names,
            "computed": "exactly" if self.draws is None else f"from {self.draws} draws each",
            "mechanism": self.mechanism,
            "action noise": self.action_noise,
            "horizon": self.horizon,
            "discount": self.discount,
            "more": ".table() by outcome, .frame() by episode",
        }

    def table(self, *, expected: bool = False) -> pd.DataFrame:
        """Count episodes by observed (rows) and counterfactual outcome (columns).

        By most likely outcome, or with `expected` by probability; none comes last.
        """
        size = len(self.outcome_names)
        counts = np.zeros((size, size), dtype=np.float64 if expected else np.int64)
        if expected:
            np.add.at(counts, self.episodes.outcome, self.probability)
        else:
            np.add.at(counts, (self.episodes.outcome, self.most_likely), 1)
        return pd.DataFrame(
            counts,
            index=pd.Index(self.outcome_names, name="observed"),
            columns=pd.Index(self.outcome_names, name="under the target"),
        )


def most_likely(probability: Floats) -> NDArray[np.int64]:
    """Most likely outcome of each row, -1 for none, which comes last, [n]."""
    best = probability.max(axis=1, keepdims=True)
    first = (probability >= best - TIE).argmax(axis=1)
    return np.where(first == probability.shape[1] - 1, -1, first)


def rank_flags(result: Counterfactuals, count: int) -> NDArray[np.int64]:
    """Rank of each flagged episode, starting from 1, and 0 for the others, [n].

    Flagged are `count` episodes: first those whose most likely outcome differs from the observed
    one, by size of their difference, then those without another outcome whose difference is large
    enough (see `find_flags`), so that logs without outcomes or with rare ones have flags, too. In a
    tie the earlier episode comes first.
    """
    found, differs, size = find_flags(
        result.most_likely != result.usual_outcome,
        result.difference,
        float(result.usual_return.std()),
    )
    order = found[np.lexsort([-size, ~differs])][:count]
    rank = np.zeros(len(result.episodes), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def find_flags(
    differs: NDArray[np.bool_], difference: Floats, spread: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_], Floats]:
    """Positions of the episodes that may be flagged, whether another outcome is the reason, sizes.

    Without another outcome a difference counts from a tenth of the standard deviation of returns
    (`spread`) on.
    """
    size = round_sizes(difference)
    found = np.flatnonzero(differs | (size > LARGE * spread))
    return found, differs[found], size[found]


def round_sizes(difference: Floats) -> Floats:
    """Sizes of differences, rounded so that those equal up to floating point tie."""
    return np.asarray(np.round(np.abs(difference), 9), dtype=np.float64)

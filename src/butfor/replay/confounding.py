"""Bounds under a sensitivity model: what hidden causes of a given strength could change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_room
from butfor.models.mdp import TabularMDP
from butfor.printed import Printed
from butfor.replay.bounds import ROUNDING
from butfor.replay.factored import divide_ends
from butfor.replay.observed import ObservedEngine
from butfor.replay.replay import Replay
from butfor.types import Floats, Progress

GAMMAS = (1.0, 1.5, 2.0, 3.0, 5.0)
CAVEAT = (
    "Each step has hidden causes of its own here. A hidden cause that persists, such as a chronic "
    "disease that nobody recorded, adds up over the steps: no finite gamma then holds, and the "
    "truth can lie outside."
)


@dataclass(frozen=True, eq=False, repr=False)
class ConfoundingBounds(Printed):
    """Lowest and highest value of the target, and of each of n episodes, for G values of gamma.

    The last axis is lowest, highest. See `confounding_bounds` for what gamma means, and for what
    the bounds do not cover.
    """

    gamma: Floats  # [G]
    value: Floats  # [G, 2] of the target, over the first states of the log
    expected_return: Floats  # [G, n, 2] of each episode, whatever the mechanism
    probability: Floats  # [G, n, O + 1, 2] of each outcome; the last is that of none
    observed_return: Floats  # [n]
    usual_return: Floats  # [n] that differences are taken from
    evidence: Floats  # [n] least median of similar past cases: see `Steps.evidence_min`
    unsupported: Floats  # [n] probability of ever using a pair never seen
    unsupported_value: float  # the same for new episodes: how much of `value` is a rule
    id: NDArray[Any]  # [n]
    outcome_names: list[str]  # none last
    sharp: bool  # False (stochastic target): actions are bounded separately, so conservative
    caveat: str = CAVEAT

    def frame(self) -> pd.DataFrame:
        """Return one row per gamma about the value.

        Columns: `gamma, low, high`; `observed`, the mean recorded return; `usual`, the mean return
        that differences are taken from; `decided`, the share of episodes whose difference from it
        keeps its sign; `unsupported`.
        """
        low, high = np.moveaxis(self.expected_return - self.usual_return[:, None], -1, 0)
        return pd.DataFrame(
            {
                "gamma": self.gamma,
                "low": self.value[:, 0],
                "high": self.value[:, 1],
                "observed": self.observed_return.mean(),
                "usual": self.usual_return.mean(),
                "decided": ((low > ROUNDING) | (high < -ROUNDING)).mean(axis=1),
                "unsupported": self.unsupported_value,
            }
        )

    def episodes(self) -> pd.DataFrame:
        """Return one row per gamma and episode.

        Columns: `gamma, id, observed_return, usual_return, low, high`, `p_<outcome>_low`, …, and
        what they rest on: `evidence_min` and `unsupported`.
        """
        count = len(self.id)
        columns = {
            "gamma": np.repeat(self.gamma, count),
            "id": np.tile(self.id, len(self.gamma)),
            "observed_return": np.tile(self.observed_return, len(self.gamma)),
            "usual_return": np.tile(self.usual_return, len(self.gamma)),
            "low": self.expected_return[:, :, 0].ravel(),
            "high": self.expected_return[:, :, 1].ravel(),
        }
        for o, name in enumerate([*self.outcome_names[:-1], "none"]):
            for end, word in enumerate(("low", "high")):
                columns[f"p_{name}_{word}"] = self.probability[:, :, o, end].ravel()
        columns["evidence_min"] = np.tile(self.evidence, len(self.gamma))
        columns["unsupported"] = np.tile(self.unsupported, len(self.gamma))
        return pd.DataFrame(columns)


def confounding_bounds(
    replay: Replay,
    gamma: Sequence[float] = GAMMAS,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ConfoundingBounds:
    """Bound the target's value, and each episode, if hidden causes decided on treatment too.

    Gamma says how strongly: among patients in the same state, the odds of any action against any
    other differ from the logged ones by a factor of at most gamma. With b the behavior's
    probability of an action, the row that would follow it for everyone is then the model's row
    times weights in [b + (1 - b) / gamma, b + (1 - b) gamma] of mean 1. The worst and the best of
    these rows are combined backwards, step by step. For an episode, nothing is assumed about the
    mechanism either: at gamma 1 its bounds are those of `Replay.bounds` over all mechanisms, and
    the value is that of the model.

    Parameters
    ----------
    replay
        A question whose states are observed and can be enumerated. Of a factored model the rows of
        `tabular()` are used, with noise on whole states: independence between variables would be
        an assumption about what is hidden. If the reward of an end depends on the state reached,
        hidden causes may decide on that too: each outcome counts as one for each such reward.
    gamma
        Numbers from 1 up; `inf` puts no limit on hidden causes.
    threads, progress
        Number of threads; a function called with (values of gamma done, total).

    Notes
    -----
    Each step is assumed to have hidden causes of its own. One that persists, such as a chronic
    disease that nobody recorded, adds up over the steps: no finite gamma then holds, and the truth
    can lie outside.

    The bounds take the model's rows for granted. A row seen once has nothing to tilt, so models
    counted with prior 0 are refused; read the evidence beside the bounds. Rows of pairs never seen
    follow the model's rule, which is not tilted where it is certain.

    For a deterministic target the bounds of a value are sharp: some hidden cause attains them. For
    a stochastic one, each action is bounded separately, which is conservative. The gamma at which
    a gain vanishes is not reported: it did not tell good policies from bad ones.
    """
    strengths = _check_gamma(gamma)
    question = _check_question(replay)
    engine = ObservedEngine(question)
    problem = engine.problem
    if replay.factors:
        problem = divide_ends(problem, replay.factored, question.log)
    count, ends = len(question.log), len(question.mdp.outcomes) + 1
    found = np.empty((len(strengths), count, 1 + ends, 2))
    value = np.empty((len(strengths), 2))
    for place, strength in enumerate(strengths.tolist()):
        value[place] = _bound(engine, problem, strength, found[place], threads)
        if progress is not None:
            progress(place + 1, len(strengths))
    return ConfoundingBounds(
        gamma=strengths,
        value=value,
        expected_return=found[:, :, 0],
        probability=found[:, :, 1:],
        observed_return=question.observed_return,
        usual_return=question.usual_return,
        evidence=replay.steps(threads=threads).evidence_min,
        unsupported=replay.support(threads=threads),
        unsupported_value=float(engine.unsupported_in_model().mean()),
        id=question.log.id,
        outcome_names=question.log.outcome_names,
        sharp=bool((question.target_table.max(axis=1) == 1).all()),
    )


def _check_gamma(gamma: Sequence[float]) -> Floats:
    strengths = np.atleast_1d(np.asarray(gamma, dtype=np.float64))
    if strengths.ndim != 1 or not len(strengths) or not (strengths >= 1).all():
        raise ValueError(
            f"gamma {gamma!r}: give one or more numbers of at least 1, such as 1.5 and 2; at 1 "
            "nothing is hidden"
        )
    return strengths


def _check_question(replay: Replay) -> Replay:
    """Return the same question with noise on states; refuse what has no such bounds."""
    if replay.hidden:
        raise ValueError(
            "confounding_bounds: a model with a hidden state already says what is hidden; give a "
            "TabularMDP or a FactoredModel of what was observed"
        )
    if replay.engine.drawn:
        raise ValueError(
            "confounding_bounds: the states of this model cannot be enumerated; use fewer "
            "variables or levels"
        )
    model: TabularMDP = replay.mdp
    if model.prior == 0:
        raise ValueError(
            "confounding_bounds: the model was counted with prior 0, so a row seen once is "
            "certain, and hidden causes of any strength would seem to change nothing; use "
            "fit_mdp(log, prior=1) or fit_factored(log)"
        )
    stochastic = (replay.target_table.max(axis=1) < 1).any()
    if stochastic and replay.action_noise == "shared":
        raise ValueError(
            "confounding_bounds: the target is stochastic and shares the noise of the logged "
            "actions, which hidden causes may have decided; use Replay(..., action_noise='fresh')"
        )
    return replay.ask(model=model)


def _bound(
    engine: ObservedEngine,
    problem: kernels.Problem,
    gamma: float,
    found: Floats,
    threads: int | None,
) -> Floats:
    """Write the bounds of each episode for one gamma, [n, 1 + O + 1, 2]; return the value's."""
    replay, columns = engine.replay, found[0].size
    tilt = tilt_of(replay.behavior_table, gamma)
    shape = (replay.horizon + 1, engine.model.n_states, columns)
    check_room(shape, f"bounds after up to {shape[0] - 1:,} steps from {shape[1]:,} states")
    values = np.zeros(shape)
    values[0, :, -2:] = 1.0  # with no step left there is no outcome
    kernels.confounded_values(problem, tilt, engine.discounts, values)
    bounds = found.reshape(len(found), columns)
    engine.run(
        lambda first, last, work: kernels.confounded_episodes(
            first, last, problem, work, tilt, engine.discounts, values, bounds
        ),
        problem=problem,
        threads=threads,
    )
    return np.asarray(values[-1, replay.log.first_state, :2].mean(axis=0))


def tilt_of(behavior: Floats, gamma: float) -> kernels.Tilt:
    """Return how far hidden causes may tilt each row of a model."""
    taken = behavior.ravel()
    other = 1.0 - taken
    # an action that is always taken leaves nothing to choose, at infinite gamma too
    most = taken + np.where(other > 0, other, 1.0) * gamma
    return kernels.Tilt(taken + other / gamma, np.where(other > 0, most, 1.0), gamma)

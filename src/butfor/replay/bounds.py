"""Bounds for whole episodes: what no choice of the mechanism can change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_discount
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy
from butfor.hidden.span import outcome_spans
from butfor.hidden.task import HiddenTask
from butfor.log.episodes import Episodes
from butfor.models.mdp import TabularMDP
from butfor.models.planning import value_tables
from butfor.replay.task import prepare
from butfor.types import Floats, Progress

CLASSES = ("any", "stable")
ROUNDING = 1e-9  # a difference closer to 0 than this is 0


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lowest and highest counterfactual of each of n episodes, over two classes of mechanisms.

    The first axis is the class: all mechanisms, then those that obey counterfactual stability. The
    last one is lowest, highest. They hold only if the model is right. Each step is bounded by
    itself, so that they are sharp if the mechanism may change with time (and stability is asked
    only between the observed row and each other one), and otherwise too wide, never too narrow.
    """

    expected_return: Floats  # [2, n, 2]
    probability: Floats  # [2, n, O + 1, 2] of each outcome; the last is that of none
    observed_return: Floats  # [n]
    outcome_names: list[str]  # none last
    sharp: bool = True  # False: only the widest that the model allows, as where a state is hidden

    def frame(self) -> pd.DataFrame:
        """Return a row an episode: `low_any`, `high_any`, …, `p_<outcome>_low_any`, …."""
        columns = {}
        names = [*(f"p_{name}_" for name in self.outcome_names[:-1]), "p_none_"]
        for c, kind in enumerate(CLASSES):
            for end, word in enumerate(("low", "high")):
                columns[f"{word}_{kind}"] = self.expected_return[c, :, end]
        for o, name in enumerate(names):
            for c, kind in enumerate(CLASSES):
                for end, word in enumerate(("low", "high")):
                    columns[f"{name}{word}_{kind}"] = self.probability[c, :, o, end]
        return pd.DataFrame(columns)

    @property
    def survives(self) -> NDArray[np.object_]:
        """Class over which the difference to what was observed keeps its sign, [n].

        "any", "stable", or "" where its sign hangs on the choice of the mechanism, or where there
        is no difference whatever the mechanism.
        """
        low, high = np.moveaxis(self.expected_return - self.observed_return[:, None], -1, 0)
        sure = (low > ROUNDING) | (high < -ROUNDING)  # [2, n]
        return np.where(sure[0], "any", np.where(sure[1], "stable", "")).astype(object)


def counterfactual_bounds(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    continuation: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Bounds:
    """Bound each episode's expected return and outcome probabilities over every mechanism.

    Counterfactuals are not identified: mechanisms that no data can tell apart disagree about them.
    At each step, given the observed transition, the next state can be distributed in any way that
    some coupling of the two rows allows; the worst and the best of these nest backwards into
    bounds for the episode. Where state and action are the observed ones there is no freedom, and
    past the observed end none either.

    Parameters
    ----------
    behavior, action_noise, horizon, discount, continuation, threads, progress
        See `counterfactual_outcomes`. Shared noise of actions is Gumbel-Max noise: it is chosen,
        not bounded.

    Notes
    -----
    The bounds are about the mechanism only. They take the model, and that its states hold all that
    mattered, for granted: a narrow bound on a wrong model is wrong.

    Where the state is hidden they are not worked out step by step: what is returned is the widest
    that the model allows at all (`sharp` is False), for both classes.
    """
    task = prepare(
        episodes,
        model,
        target,
        behavior=behavior,
        action_noise=action_noise,
        horizon=horizon,
        continuation=continuation,
    )
    names = [*(outcome.name for outcome in episodes.outcomes), episodes.none_name]
    observed = task.episodes.returns(check_discount(discount))
    if isinstance(task, HiddenTask):
        spans = np.stack([outcome_spans(task, discount)] * len(CLASSES))
        return Bounds(spans[:, :, 0], spans[:, :, 1:], observed, names, sharp=False)
    values, outcomes = value_tables(
        task.model, task.policy, horizon=task.horizon, discount=discount
    )
    count, quantities = len(task.episodes), outcomes.shape[2] + 1
    found = np.empty((count, 4 * quantities))
    task.run(
        lambda first, last, work: kernels.episode_bounds(
            first, last, task.problem, work, float(discount), values, outcomes, found
        ),
        threads=threads,
        progress=progress,
    )
    table = np.moveaxis(found.reshape(count, quantities, 2, 2), 2, 0)
    return Bounds(
        expected_return=table[:, :, 0],
        probability=table[:, :, 1:],
        observed_return=observed,
        outcome_names=names,
    )

"""Refitting: how MB, CF and MAGIC change when the model is learned again from other episodes.

One group of episodes at a time counts half, and the model is learned again. Half, not nothing, so
that no state-action pair is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.crossfit import Learned
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.doubly_robust import magic
from butfor.evaluate.estimators.table import CONTINUED
from butfor.evaluate.influence import LESS, Influence
from butfor.evaluate.sample import Sample, continued
from butfor.models.mdp import total_by
from butfor.models.planning import state_values
from butfor.models.policies import behavior_of
from butfor.models.reweight import reweighting
from butfor.random import episode_keys
from butfor.replay.replay import Replay
from butfor.types import Floats

THESE = "these"  # CF with the episodes held fixed
GROUPS = 50  # with so many, intervals are up to 7% wider than with any number of them
MOST_ENTRIES = 300_000  # transitions of a model, for MAGIC to be computed again in each


@dataclass(frozen=True, eq=False)
class Groups:
    """The episodes of a question in groups, and its model learned again with one counting less."""

    replay: Replay  # the question
    again: Callable[[int], Learned]  # the model, learned again with less weight on a group
    starts: NDArray[np.int64]  # [G, S] episodes by group and first state
    replayed: Floats  # [G] sums of the expected counterfactual returns
    # the behavior, learned again with less weight on a group (-1: on none); None: nothing to do
    behavior: Callable[[int], Floats] | None = None
    # MAGIC in a model with weights [G] on the groups, if that is possible
    blend: Callable[[Learned, Floats], float] | None = None

    def influences(self) -> dict[str, Influence]:
        """Compute the influence of each group on MB, CF, CF of these episodes, and MAGIC.

        The mean counterfactual return of a log, in the model learned from it, is the value of the
        policy in that model, apart from what the model does not fit: so a group that counts less
        changes CF by as much as MB, and the records, as the model continues them, by as much as
        the value of the behavior. Part of that is that its own counterfactual returns count less;
        what remains is its influence on the counterfactuals of all episodes as they are. Of a
        factored model there is no such number: which variables an action affects was chosen once,
        and with 100 episodes such intervals held the true value in 41% of logs.
        """
        count, episodes = len(self.starts), self.starts.sum(axis=1)
        base = self._evaluate(self.replay.learned, np.ones(count), -1)
        found = {name: np.empty(count) for name in base}
        for group in range(count):
            weights = np.ones(count)
            weights[group] -= LESS
            for name, value in self._evaluate(self.again(group), weights, group).items():
                found[name][group] = (base[name] - value) / LESS
        own = (self.replayed - episodes * self.replayed.sum() / episodes.sum()) / episodes.sum()
        found["CF"] = found["MB"]
        if not self.replay.factors:
            found[THESE] = found["MB"] - own
        return {name: Influence(values) for name, values in found.items()}

    def _evaluate(self, model: Learned, weights: Floats, less: int) -> dict[str, float]:
        replay = self.replay
        total = weights @ self.starts.sum(axis=1)
        policies = {"MB": replay.target_table}
        if self.behavior is not None:
            policies[CONTINUED] = self.behavior(less)
        found = {}
        for name, policy in policies.items():
            values = state_values(model, policy, horizon=replay.horizon, discount=replay.discount)
            found[name] = float(weights @ (self.starts @ values) / total)
        return found if self.blend is None else found | {"MAGIC": self.blend(model, weights)}


def group_episodes(sample: EpisodeColumns, *, blend: bool) -> Groups | None:
    """Divide the episodes of a log in memory into groups at random.

    None if the model was not learned from this log by counting. `blend`: whether to evaluate MAGIC.
    """
    replay, log = sample.replay, sample.replay.log
    again = None if replay.hidden else reweighting(replay.model, replay.episodes)
    if again is None:
        return None
    place, ids = pd.factorize(log.unit)
    rank = np.argsort(np.argsort(episode_keys(sample.seed, ids, "jackknife"), kind="stable"))
    count = min(GROUPS, len(ids))
    group = (rank % count)[place]
    starts = np.zeros((count, log.n_states), np.int64)
    np.add.at(starts, (group, log.first_state), 1)

    def learn(less: int) -> Learned:
        return again(1.0 - LESS * (group == less))

    def mix(model: Learned, weights: Floats) -> float:
        return float(magic(sample.in_model(model), weights[group][None])[0])

    blends = blend and len(replay.mdp.probability) <= MOST_ENTRIES
    replayed = total_by(group, sample.columns.counterfactual, count)
    whole = replay.episodes
    pair = whole.state.astype(np.int64) * whole.n_actions + whole.action
    owner = np.repeat(group, whole.lengths)
    behave = behavior_again(sample, pair, lambda less: 1.0 - LESS * (owner == less))
    return Groups(replay, learn, starts, replayed, behave, mix if blends else None)


def behavior_again(
    sample: Sample, pair: NDArray[np.int64], weigh: Callable[[int], Floats]
) -> Callable[[int], Floats] | None:
    """Return what learns the behavior again from decisions, if it is known how it was learned.

    `pair` [m] numbers their state and action; `weigh` gives their weights with less on a group.
    None if no record is continued.
    """
    if not continued(sample):
        return None
    known = sample.replay.behavior_table
    if not np.allclose(known, behavior_of(sample.replay.learned.counts)):
        return lambda less: known
    return lambda less: behavior_of(total_by(pair, weigh(less), known.size).reshape(known.shape))

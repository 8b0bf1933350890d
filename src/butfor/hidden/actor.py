"""Actor: a policy that acts in many episodes at once, with its memory of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.hidden.beliefs import first_beliefs, next_beliefs
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import BeliefPolicy, CheckedPolicy, FiniteController, LatentPolicy
from butfor.log.episodes import Episodes
from butfor.types import Floats


class Actor:
    """A checked policy acting in `count` episodes, with what it remembers of each."""

    def __init__(self, model: TabularPOMDP, policy: CheckedPolicy, count: int) -> None:
        self.model, self.policy = model, policy
        self.node = np.zeros(count, np.int64)
        believing = isinstance(policy, BeliefPolicy)
        self.beliefs = np.zeros((count if believing else 0, model.n_states))

    def observe(
        self, who: NDArray[np.int64], t: int, action: NDArray[Any], seen: NDArray[Any]
    ) -> None:
        """Remember the action before step t and the observation at it, in episodes `who` [m]."""
        policy = self.policy
        if isinstance(policy, FiniteController):
            following = policy.following[self.node[who], action, seen]
            self.node[who] = policy.first[seen] if t == 0 else following
        elif isinstance(policy, BeliefPolicy) and t == 0:
            self.beliefs[who] = first_beliefs(self.model, seen)
        elif isinstance(policy, BeliefPolicy):
            self.beliefs[who] = next_beliefs(self.model, self.beliefs[who], action, seen)

    def rows(self, who: NDArray[np.int64], latent: NDArray[Any], seen: NDArray[Any]) -> Floats:
        """Return the distribution of the next action in episodes `who` [m], [m, A]."""
        policy = self.policy
        if isinstance(policy, LatentPolicy):
            return policy.table[latent]
        if isinstance(policy, FiniteController):
            return policy.action[self.node[who]]
        if isinstance(policy, BeliefPolicy):
            return policy.rows(self.beliefs[who], self.model.n_actions)
        return policy[seen]


def history_rows(
    episodes: Episodes, model: TabularPOMDP, policy: FiniteController | BeliefPolicy
) -> Floats:
    """Return the policy's action distribution at each logged step given its history, [N, A]."""
    rows = np.empty((len(episodes.state), model.n_actions))
    actor = Actor(model, policy, len(episodes))
    for t in range(int(episodes.lengths.max())):
        going = np.flatnonzero(episodes.lengths > t)
        row = episodes.offsets[going] + t
        seen = episodes.state[row]
        actor.observe(going, t, episodes.action[row - 1], seen)
        if isinstance(policy, BeliefPolicy):
            impossible = np.isnan(actor.beliefs[going, 0])
            if impossible.any():
                raise ValueError(
                    f"{episodes.place(int(row[impossible.argmax()]))}: the model gives this "
                    "observation probability 0 given the steps before it; check that the model "
                    "and the log belong together"
                )
        rows[row] = actor.rows(going, seen, seen)
    return rows

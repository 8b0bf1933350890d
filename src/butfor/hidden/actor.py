"""Actor: a policy that acts in many episodes at once, with its memory of each; beliefs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

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


@lru_cache(maxsize=8)
def _transition_matrices(model: TabularPOMDP) -> list[sparse.csr_array]:
    """Return the transitions between hidden states, one [H, H] matrix per action."""
    dynamics = model.dynamics
    entries = dynamics.probability, dynamics.next_state, dynamics.start
    rows = sparse.csr_array(entries, shape=(len(dynamics.start) - 1, model.n_states))
    return [rows[a :: model.n_actions] for a in range(model.n_actions)]


def first_beliefs(model: TabularPOMDP, seen: NDArray[Any]) -> Floats:
    """Return the beliefs after the first observations [m], [m, H]."""
    return _update(model, model.initial, seen)


def next_beliefs(
    model: TabularPOMDP, beliefs: Floats, action: NDArray[Any], seen: NDArray[Any]
) -> Floats:
    """Return the beliefs after actions [m] and the next observations [m], [m, H].

    No episode may have ended: hidden states with an outcome are excluded.
    """
    moved = np.empty_like(beliefs)
    for a, matrix in enumerate(_transition_matrices(model)):
        mine = action == a
        if mine.any():
            moved[mine] = (matrix.T @ beliefs[mine].T).T
    moved[:, model.outcome >= 0] = 0.0
    return _update(model, moved, seen)


def _update(model: TabularPOMDP, prior: Floats, seen: NDArray[Any]) -> Floats:
    """Return the beliefs given observations, [m, H]; nan where these have probability 0."""
    weights = prior * np.asarray(model.emission.tocsc()[:, seen].T.toarray())
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)

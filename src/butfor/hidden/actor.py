"""Actor: a policy that acts in many episodes at once; its beliefs, and the logs it makes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.checks import check_horizon, check_whole
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import (
    BeliefPolicy,
    CheckedPolicy,
    FiniteController,
    LatentPolicy,
    Policy,
    check_hidden_policy,
)
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.models.simulate import SparseSampler, choose, running_shares
from butfor.random import numbered_keys
from butfor.types import Floats

NUMBERS = 3  # random numbers per step: the action, the next state, its observation


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


def simulate_pomdp(
    model: TabularPOMDP,
    policy: Policy,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
) -> Episodes:
    """Simulate a log from a model with a hidden state; its states are the observations.

    Episode i depends only on the seed and i. Hidden variables become side columns, which no model
    sees.
    """
    count = check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    actor = Actor(model, check_hidden_policy(policy, *model.sizes, "policy"), count)
    keys = numbered_keys(seed, count, "hidden state")
    dynamics, emission = model.dynamics, model.arrays.emission
    moves = SparseSampler(dynamics.start, dynamics.probability)
    shows = SparseSampler(emission.start, emission.probability)
    latent = np.full((count, horizon + 1), -1, np.int64)
    seen = np.full_like(latent, -1)
    action = np.full((count, horizon), -1, np.int64)
    reward = np.zeros((count, horizon))

    def show(who: NDArray[Any], states: NDArray[Any], counter: int) -> NDArray[Any]:
        entry = shows.draw(states, keys[who], counter)
        return np.where(entry < 0, -1, emission.label[entry])

    everyone = np.arange(count)
    first = running_shares(model.initial)
    latent[:, 0] = choose(np.broadcast_to(first, (count, len(first))), keys, 0)
    seen[:, 0] = show(everyone, latent[:, 0], 1)
    going = everyone
    for t in range(horizon):
        number = 2 + NUMBERS * t
        actor.observe(going, t, action[going, t - 1], seen[going, t])
        rows = actor.rows(going, latent[going, t], seen[going, t])
        done = choose(running_shares(rows), keys[going], number)
        entry = moves.draw(latent[going, t] * model.n_actions + done, keys[going], number + 1)
        reached = dynamics.next_state[entry]
        action[going, t], reward[going, t] = done, dynamics.reward[entry]
        latent[going, t + 1] = reached
        seen[going, t + 1] = show(going, reached, number + 2)
        going = going[model.outcome[reached] < 0]
        if len(going) == 0:
            break
    taken = action >= 0
    length = taken.sum(axis=1)
    final = latent[everyone, length]
    codes = unravel(model.state_variables, np.concatenate([latent[:, :-1][taken], final]))
    side = {
        v.name: pd.Categorical.from_codes(codes[v.name], list(v.levels), ordered=True)
        for v in model.hidden_variables
    }
    log = Episodes.from_arrays(
        seen[:, :-1][taken],
        action[taken],
        seen[:, 1:][taken],
        reward=reward[taken],
        offsets=np.append(0, np.cumsum(length)),
        outcome=model.outcome[final],
        outcomes=model.outcomes,
        states=model.observation_variables,
        actions=model.action_variables,
        horizon=horizon,
        side=pd.DataFrame(side) if side else None,
    )
    return replace(log, side_variables=model.hidden_variables)

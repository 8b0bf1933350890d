"""Seeded simulation of models with a hidden state, under policies of every kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_horizon, check_whole
from butfor.hidden.beliefs import first_beliefs, next_beliefs
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import (
    FiniteController,
    LatentPolicy,
    Policy,
    check_hidden_policy,
)
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.random import numbered_keys, uniforms
from butfor.types import Floats

NUMBERS = 3  # that a step draws: the action, the next state, what it shows


def simulate_pomdp(
    model: TabularPOMDP,
    policy: Policy,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
) -> Episodes:
    """Draw a log from a model with a hidden state; its states are what is seen.

    Episode i depends on the seed and i only. Variables that are hidden become side columns, which
    no model sees.
    """
    count = check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    actor = _Actor(model, policy)
    keys = numbered_keys(seed, count, "hidden state")
    dynamics, shows = model.dynamics, model.arrays.emission
    moves = _Rows(dynamics.start, dynamics.probability)
    signs = _Rows(shows.start, shows.probability)
    latent = np.full((count, horizon + 1), -1, np.int64)
    seen = np.full_like(latent, -1)
    action = np.full((count, horizon), -1, np.int64)
    reward = np.zeros((count, horizon))

    def show(who: NDArray[Any], states: NDArray[Any], counter: int) -> NDArray[Any]:
        entry = signs.draw(states, uniforms(keys[who], counter))
        return np.where(entry < 0, -1, shows.label[entry])

    everyone = np.arange(count)
    running = np.cumsum(model.initial)
    latent[:, 0] = _choose(np.broadcast_to(running, (count, len(running))), uniforms(keys, 0))
    seen[:, 0] = show(everyone, latent[:, 0], 1)
    going = everyone
    for t in range(horizon):
        first = 2 + NUMBERS * t
        rows = actor.rows(going, latent[going, t], seen[going, t], action[going, t - 1], t)
        done = _choose(np.cumsum(rows, axis=1), uniforms(keys[going], first))
        pair = latent[going, t] * model.n_actions + done
        entry = moves.draw(pair, uniforms(keys[going], first + 1))
        reached = dynamics.next_state[entry]
        action[going, t], reward[going, t] = done, dynamics.reward[entry]
        latent[going, t + 1] = reached
        seen[going, t + 1] = show(going, reached, first + 2)
        going = going[model.outcome[reached] < 0]
        if len(going) == 0:
            break
    taken = action >= 0
    length = taken.sum(axis=1)
    final = latent[everyone, length]
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
        side=_side(model, np.concatenate([latent[:, :-1][taken], final])),
    )
    return replace(log, side_variables=model.hidden_variables)


class _Actor:
    """A policy with what it remembers of each episode."""

    def __init__(self, model: TabularPOMDP, policy: Policy) -> None:
        self.model = model
        self.policy = check_hidden_policy(
            policy, model.n_states, model.n_observations, model.n_actions, "policy"
        )
        self.memory = np.empty(0)  # nodes [m] or beliefs [m, H] of the episodes `who` [m]
        self.who = np.empty(0, np.int64)

    def rows(
        self,
        who: NDArray[np.int64],
        latent: NDArray[Any],
        seen: NDArray[Any],
        action: NDArray[Any],
        t: int,
    ) -> Floats:
        """Return the distribution of the action in each of these episodes, [m, A]."""
        policy = self.policy
        if isinstance(policy, LatentPolicy):
            return policy.table[latent]
        if isinstance(policy, np.ndarray):
            return policy[seen]
        before = self.memory[np.isin(self.who, who)]
        self.who = who
        if isinstance(policy, FiniteController):
            self.memory = policy.first[seen] if t == 0 else policy.following[before, action, seen]
            return policy.action[self.memory]
        self.memory = (
            first_beliefs(self.model, seen)
            if t == 0
            else next_beliefs(self.model, before, action, seen)
        )
        return policy.rows(self.memory, self.model.n_actions)


class _Rows:
    """Sparse rows to draw from."""

    def __init__(self, start: NDArray[np.int64], probability: Floats) -> None:
        self.start = start
        self.before = np.append(0.0, np.cumsum(probability))

    def draw(self, row: NDArray[Any], u: Floats) -> NDArray[np.int64]:
        """Return an entry of each row; -1 for an empty one."""
        first, last = self.start[row], self.start[row + 1] - 1
        low, high = self.before[first], self.before[last + 1]
        entry = np.searchsorted(self.before[1:], low + u * (high - low), side="right")
        return np.where(last < first, -1, np.clip(entry, first, np.maximum(first, last)))


def _choose(running: Floats, u: Floats) -> NDArray[np.int64]:
    """Draw a column of each row of running sums."""
    return np.asarray((running <= (u * running[:, -1])[:, None]).sum(axis=1))


def _side(model: TabularPOMDP, latent: NDArray[np.int64]) -> pd.DataFrame | None:
    """Return the hidden variables of these states as columns; None if there are none."""
    codes = unravel(model.state_variables, latent)
    columns = {
        variable.name: pd.Categorical.from_codes(
            codes[variable.name], list(variable.levels), ordered=True
        )
        for variable in model.hidden_variables
    }
    return pd.DataFrame(columns) if columns else None

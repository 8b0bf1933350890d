"""Simulate logs from a model with a hidden state, under any kind of policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_horizon, check_whole
from butfor.hidden.actor import Actor
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy, check_hidden_policy
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.models.simulate import SparseSampler, choose, running_shares
from butfor.random import numbered_keys

NUMBERS = 3  # random numbers per step: the action, the next state, its observation


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

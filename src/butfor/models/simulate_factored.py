"""Simulate logs from a factored model under a policy, whatever the number of states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_horizon, check_whole
from butfor.hidden.policies import StatePolicy, policy_rows
from butfor.log.episodes import Episodes
from butfor.models.factored import NEXT, FactoredModel
from butfor.models.simulate import running_shares
from butfor.models.step_factored import Moved, Starts, model_walk
from butfor.random import numbered_keys, uniforms
from butfor.types import Floats


def simulate_factored(
    model: FactoredModel,
    policy: StatePolicy,
    episodes: int = 1000,
    *,
    horizon: int,
    seed: int = 0,
) -> Episodes:
    """Simulate a log from a factored model; it is wide if the model is.

    The policy is a function of level codes, [m, J] → [m, A]. An episode depends only on the seed
    and its number. First states are those of the log that the model was learned from.
    """
    check_whole(episodes, "episodes", 1, "a whole number")
    check_horizon(horizon)
    keys = numbered_keys(seed, episodes, "factored")
    first = np.searchsorted(running_shares(model.initial), uniforms(keys, 0), side="right")
    start = model.codes(first, np.zeros(episodes, np.int64))
    names = [variable.name for variable in model.state_variables]
    outcome, rows = np.full(episodes, -1), []

    def note(moved: Moved) -> None:
        before = np.stack([moved.codes[name] for name in names], axis=1)
        reached = np.stack([moved.codes[NEXT + name] for name in names], axis=1)
        time = np.full(len(before), moved.t)
        rows.append((moved.group, time, before, moved.action, reached, moved.reward))
        ended = moved.end < len(model.outcomes)
        outcome[moved.group[ended]] = moved.end[ended]

    def rows_of(codes: NDArray[np.int64]) -> Floats:
        return policy_rows(policy, codes, model.n_actions, "policy")

    # the first number of each stream was used for the first state
    starts = Starts.unlogged(
        {name: start[name] for name in names},
        np.full(episodes, horizon),
        keys + np.uint64(kernels.GOLDEN),
    )
    model_walk(model, rows_of).run(starts, 1, note)
    episode, time, state, chosen, following, earned = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    order = np.lexsort([time, episode])
    return Episodes.from_arrays(
        state[order],
        chosen[order],
        following[order],
        reward=earned[order],
        offsets=np.append(0, np.cumsum(np.bincount(episode))),
        outcome=outcome,
        outcomes=model.outcomes,
        states=model.state_variables,
        actions=model.action_variables,
        horizon=horizon,
        wide=model.combinations is not None,
    )

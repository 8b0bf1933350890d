"""Compiled, seeded simulation of the sepsis environment."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_horizon, check_whole
from butfor.log.episodes import Episodes
from butfor.random import numbered_keys
from butfor.sepsis.dynamics import (
    ACTIONS,
    OUTCOMES,
    STATES,
    check_version,
    full_policy,
    initial_distribution,
    outcome_of,
)
from butfor.threads import in_blocks
from butfor.types import Floats, Progress


def simulate(
    policy: ArrayLike,
    episodes: int = 1000,
    *,
    seed: int = 0,
    version: str = "corrected",
    horizon: int = 20,
    prevalence: float = 0.2,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Simulate episodes on the full states; use `hide` for what a log should not show.

    The policy is [1440, 8], or [720, 8] without diabetes, or [144, 8] without diabetes and glucose.
    Episode i depends only on the seed and i, not on the threads or the number of episodes.
    """
    corrected = check_version(version)
    check_horizon(horizon)
    count = check_whole(episodes, "episodes", 1, "a whole number")
    actions = _cumulative(full_policy(policy))
    first = _cumulative(initial_distribution(prevalence))
    keys = numbered_keys(seed, count, "sepsis")
    length = np.empty(count, np.int64)
    final, outcome = np.empty((2, count), np.int32)
    parts: dict[int, tuple[NDArray[np.int16], NDArray[np.int8]]] = {}

    def work(start: int, stop: int) -> None:
        state = np.empty((stop - start) * horizon, np.int16)
        action = np.empty((stop - start) * horizon, np.int8)
        total = kernels.simulate_sepsis(
            keys[start:stop],
            first,
            actions,
            outcome_of(),
            corrected,
            horizon,
            state,
            action,
            length[start:stop],
            final[start:stop],
            outcome[start:stop],
        )
        parts[start] = state[:total].copy(), action[:total].copy()

    in_blocks(work, count, threads=threads, progress=progress)
    offsets = np.concatenate([[0], np.cumsum(length)])
    state, action, next_state = np.empty((3, offsets[-1]), np.int32)
    for start in sorted(parts):
        states, taken = parts.pop(start)
        rows = slice(offsets[start], offsets[start] + len(states))
        state[rows], action[rows] = states, taken
    next_state[:-1] = state[1:]
    next_state[offsets[1:] - 1] = final
    reward = np.zeros(len(state))
    reward[offsets[1:] - 1] = np.array([end.reward for end in OUTCOMES] + [0.0])[outcome]
    return Episodes(
        state=state,
        action=action,
        next_state=next_state,
        reward=reward,
        offsets=offsets,
        outcome=outcome,
        id=np.arange(count),
        final_key=final.astype(np.int64),
        horizon=int(horizon),
        state_variables=STATES,
        action_variables=ACTIONS,
        outcomes=OUTCOMES,
        none_name="no change",
    )


def simulation_noise(seed: int, episode: int, *, horizon: int = 20) -> Floats:
    """Return the uniforms that `simulate` uses for an episode, [horizon, 13]; `step` takes them."""
    key = numbered_keys(seed, episode + 1, "sepsis")[episode]
    noise = np.empty((horizon, kernels.NOISE_SIZE))
    for t in range(horizon):
        kernels.sepsis_noise(key, t, noise[t])
    return noise


def _cumulative(rows: Floats) -> Floats:
    """Return cumulative sums along the last axis, exactly 1 from the last possible entry on."""
    sums = np.cumsum(rows, axis=-1)
    last = rows.shape[-1] - 1 - (rows[..., ::-1] > 0).argmax(axis=-1)
    sums[np.arange(rows.shape[-1]) >= last[..., None]] = 1.0
    return sums

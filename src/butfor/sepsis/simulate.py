"""Compiled, seeded simulation of the sepsis environment."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.episodes import Episodes, Floats
from butfor.planning import check_horizon
from butfor.sepsis.dynamics import (
    ACTIONS,
    OUTCOMES,
    STATES,
    check_version,
    full_policy,
    initial_distribution,
    outcome_of,
)
from butfor.streams import Progress, in_blocks, numbered_keys


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
    """Simulate episodes on the full states; hide what the log shall not show with `hide`.

    The policy is [1440, 8], or [720, 8] or [144, 8] if it sees neither diabetes nor, then,
    glucose. Episode i depends on the seed and i only: not on threads, nor on how many there are.
    """
    corrected = check_version(version)
    check_horizon(horizon)
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 1:
        raise ValueError(f"episodes {episodes!r}: give a whole number, at least 1")
    actions = _cumulative(full_policy(policy))
    first = _cumulative(initial_distribution(prevalence))
    keys = numbered_keys(seed, int(episodes), "sepsis")
    parts: dict[int, tuple[np.ndarray, ...]] = {}

    def work(start: int, stop: int) -> None:
        count = stop - start
        state = np.empty((count, horizon + 1), np.int16)
        action = np.empty((count, horizon), np.int8)
        outcome = np.empty(count, np.int32)
        length = kernels.simulate_sepsis(
            keys[start:stop], first, actions, outcome_of(), corrected, horizon, state, action, outcome
        )
        taken = np.arange(horizon) < length[:, None]
        parts[start] = (
            state[:, :-1][taken].astype(np.int32),
            action[taken].astype(np.int32),
            state[:, 1:][taken].astype(np.int32),
            length,
            outcome,
        )

    in_blocks(work, int(episodes), threads=threads, progress=progress)
    columns = zip(*(parts[start] for start in sorted(parts)), strict=True)
    state, action, next_state, length, outcome = map(np.concatenate, columns)
    offsets = np.concatenate([[0], np.cumsum(length)])
    reward = np.zeros(len(state))
    reward[offsets[1:] - 1] = np.array([end.reward for end in OUTCOMES] + [0.0])[outcome]
    return Episodes(
        state=state,
        action=action,
        next_state=next_state,
        reward=reward,
        offsets=offsets,
        outcome=outcome,
        id=np.arange(episodes),
        final_key=next_state[offsets[1:] - 1].astype(np.int64),
        horizon=int(horizon),
        state_variables=STATES,
        action_variables=ACTIONS,
        outcomes=OUTCOMES,
        none_name="no change",
    )


def simulation_noise(seed: int, episode: int, *, horizon: int = 20) -> Floats:
    """Return the uniforms that `simulate` uses for an episode, [horizon, 13]: `step` replays it."""
    key = numbered_keys(seed, episode + 1, "sepsis")[episode]
    noise = np.empty((horizon, kernels.NOISE_SIZE))
    for t in range(horizon):
        kernels.sepsis_noise(key, t, noise[t])
    return noise


def _cumulative(rows: Floats) -> Floats:
    """Running sums along the last axis, exactly 1 from the last possible entry on."""
    sums = np.cumsum(rows, axis=-1)
    last = rows.shape[-1] - 1 - (rows[..., ::-1] > 0).argmax(axis=-1)
    sums[np.arange(rows.shape[-1]) >= last[..., None]] = 1.0
    return sums

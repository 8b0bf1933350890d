"""Compiled, seeded simulation of the sepsis environment, and the simulator's own counterfactuals.

The one true counterfactual of a simulated patient comes from `simulate` with the same seed: noise
belongs to an episode and step, whatever the action. `own_counterfactuals` does not know the noise
but draws it given the observed transitions: what someone who knows the simulator's rules could
infer about a patient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_horizon, check_whole
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.random import check_seed, numbered_keys
from butfor.sepsis.dynamics import (
    ACTIONS,
    NOISE,
    OUTCOMES,
    STATES,
    VITAL_SIGNS,
    check_version,
    full_policy,
    initial_distribution,
    model,
    outcome_of,
    step,
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
        found = (part[start:stop] for part in (length, final, outcome))
        rules = (first, actions, outcome_of(), corrected, horizon)
        total = kernels.simulate_sepsis(keys[start:stop], *rules, state, action, *found)
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
        none_name="still in ICU",
    )


def simulation_noise(seed: int, episode: int, *, horizon: int = 20) -> Floats:
    """Return the uniforms that `simulate` uses for an episode, [horizon, 13]; `step` takes them."""
    key = numbered_keys(seed, episode + 1, "sepsis")[episode]
    noise = np.empty((horizon, kernels.NOISE_SIZE))
    for t in range(horizon):
        kernels.sepsis_noise(key, t, noise[t])
    return noise


def noise_given(
    state: ArrayLike,
    action: ArrayLike,
    reached: ArrayLike,
    generator: np.random.Generator,
    *,
    version: str = "corrected",
) -> Floats:
    """Draw the thirteen uniforms of m steps given the states they reached, [m, 13].

    Given state and action, each vital sign is decided by its own uniforms, so those of a sign that
    moved elsewhere are redrawn, separately, until it reaches its observed level.
    """
    states, actions, goals = (np.asarray(values) for values in (state, action, reached))
    truth = model(version, absorbing=False)
    for s, a, x in np.unique(np.column_stack([states, actions, goals]), axis=0).tolist():
        if x not in truth.row(s, a):
            raise ValueError(
                f"no noise leads from state {s} by action {a} to state {x} in version {version!r}; "
                "give the version that the log was simulated with"
            )
    wanted = unravel(STATES, goals)
    noise = generator.random((len(states), kernels.NOISE_SIZE))
    left = np.arange(len(states))
    while len(left):
        found = step(states[left], actions[left], noise[left], version=version)
        got = unravel(STATES, found)
        for name in VITAL_SIGNS:
            again = left[got[name] != wanted[name][left]]
            mine = [place for place, (sign, _) in enumerate(NOISE) if sign == name]
            noise[again[:, None], mine] = generator.random((len(again), len(mine)))
        left = left[found != goals[left]]
    return noise


def own_counterfactuals(
    episodes: Episodes,
    targets: Sequence[ArrayLike],
    *,
    draws: int = 25,
    seed: int = 0,
    version: str = "corrected",
) -> list[Floats]:
    """Estimate each episode's outcome probabilities under the simulator's own mechanism.

    The noise of observed steps is drawn given their transitions, that of later steps afresh, and
    replayed under each target, which must be deterministic.

    Parameters
    ----------
    episodes
        On full states, as returned by `simulate`, with nothing hidden.
    targets : each [1440, 8]
        The same draws are used for all of them.

    Returns
    -------
    list of [n, 3]
        Shares of the draws that died, were discharged, or neither.
    """
    check_whole(draws, "draws", 1, "a whole number")
    if episodes.n_states != len(outcome_of()):
        raise ValueError(
            f"the episodes have {episodes.n_states} states, expected the {len(outcome_of())} full "
            "ones; give the log that `simulate` returned, before hiding anything"
        )
    policies = [full_policy(target) for target in targets]
    for policy in policies:
        if (policy.max(axis=1) < 1).any():
            raise ValueError("a target is random; give one action per state")
    generator = np.random.default_rng(check_seed(seed))
    now = [np.repeat(episodes.first_state, draws) for _ in policies]
    for t in range(episodes.horizon):
        noise = _step_noise(episodes, t, draws, generator, version)
        for states, policy in zip(now, policies, strict=True):
            going = np.flatnonzero(outcome_of()[states] < 0)
            taken = policy[states[going]].argmax(axis=1)
            states[going] = step(states[going], taken, noise[going], version=version)
    ended = [outcome_of()[states].reshape(len(episodes), draws) for states in now]
    return [np.stack([(ends == o).mean(axis=1) for o in (0, 1, -1)], axis=1) for ends in ended]


def _step_noise(
    episodes: Episodes, t: int, draws: int, generator: np.random.Generator, version: str
) -> Floats:
    """Return the noise of step t of every draw, given any observed transition, [n draws, 13]."""
    noise = generator.random((len(episodes) * draws, kernels.NOISE_SIZE))
    seen = np.flatnonzero(episodes.lengths > t)
    row = np.repeat(episodes.offsets[seen] + t, draws)
    place = (seen[:, None] * draws + np.arange(draws)).ravel()
    steps = episodes.state[row], episodes.action[row], episodes.next_state[row]
    noise[place] = noise_given(*steps, generator, version=version)
    return noise


def _cumulative(rows: Floats) -> Floats:
    """Return cumulative sums along the last axis, exactly 1 from the last possible entry on."""
    sums = np.cumsum(rows, axis=-1)
    last = rows.shape[-1] - 1 - (rows[..., ::-1] > 0).argmax(axis=-1)
    sums[np.arange(rows.shape[-1]) >= last[..., None]] = 1.0
    return sums

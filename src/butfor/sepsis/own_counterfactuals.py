"""The simulator's own counterfactuals: its noise given the record, replayed under a policy.

The one true counterfactual of a simulated patient comes from `simulate` with the same seed: noise
belongs to an episode and step, whatever the action. Here the noise is not known but drawn given the
observed transitions: what someone who knows the simulator's rules could infer about a patient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_whole
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.random import check_seed
from butfor.sepsis.dynamics import NOISE, STATES, VITAL_SIGNS, full_policy, model, outcome_of, step
from butfor.types import Floats


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
    shape = len(episodes), draws
    return [_shares(outcome_of()[states].reshape(shape)) for states in now]


def _step_noise(
    episodes: Episodes, t: int, draws: int, generator: np.random.Generator, version: str
) -> Floats:
    """Return the noise of step t of every draw, given any observed transition, [n draws, 13]."""
    noise = generator.random((len(episodes) * draws, kernels.NOISE_SIZE))
    seen = np.flatnonzero(episodes.lengths > t)
    row = np.repeat(episodes.offsets[seen] + t, draws)
    place = (seen[:, None] * draws + np.arange(draws)).ravel()
    noise[place] = noise_given(
        episodes.state[row],
        episodes.action[row],
        episodes.next_state[row],
        generator,
        version=version,
    )
    return noise


def _shares(outcome: NDArray[np.int32]) -> Floats:
    """Return the shares of died, discharged and neither (-1) along the last axis, [n, 3]."""
    return np.stack([(outcome == end).mean(axis=1) for end in (0, 1, -1)], axis=1)

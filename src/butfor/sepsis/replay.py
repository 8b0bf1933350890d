"""The simulator's own counterfactuals: its noise given what was seen, replayed under a policy.

The one true counterfactual of a simulated patient needs no more than `simulate` with the same seed:
noise belongs to episode and step, whatever was done. Here the noise is not known but drawn given
the observed transitions: what someone who knew the simulator's rules could say of a patient.
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
    """Draw the thirteen uniforms of steps given where they led, [m, 13]: m of each given.

    Given state and action each vital sign is decided by uniforms of its own, so that those of one
    that went elsewhere are drawn again, alone, until it went where it did.
    """
    states, actions, goals = (np.asarray(values) for values in (state, action, reached))
    truth = model(version, absorbing=False)
    for s, a, x in np.unique(np.column_stack([states, actions, goals]), axis=0).tolist():
        if x not in truth.row(s, a):
            raise ValueError(
                f"no noise leads from state {s} by action {a} to state {x} in version {version!r}; "
                "was the log simulated with another one?"
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
    """Estimate each episode's outcome probabilities by the simulator's own mechanism.

    The noise of the observed steps is drawn given what was seen, that of later steps afresh, and
    replayed under each target, which must be deterministic.

    Parameters
    ----------
    episodes
        On full states, as `simulate` gives them, with nothing hidden.
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
            "ones: give what `simulate` returned, before anything is hidden"
        )
    policies = [full_policy(target) for target in targets]
    for policy in policies:
        if (policy.max(axis=1) < 1).any():
            raise ValueError("a target is random; give one action to each state")
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
    """Noise of step t of every draw, [n draws, 13]: given the transition where one was seen."""
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
    """Shares of died, discharged and neither (-1) along the last axis, [n, 3]."""
    return np.stack([(outcome == end).mean(axis=1) for end in (0, 1, -1)], axis=1)

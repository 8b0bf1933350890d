"""What counterfactuals are compared with: what was observed, or what would usually have followed.

An episode that stops before the horizon without an outcome is censored. Compared with the little
that was observed of it, every policy would look as if it changed something: its counterfactual goes
on, the record does not. So the record goes on, too, as the model expects of the behavior policy.
Then a target that equals the behavior differs from no episode, censored or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.models.behavior import fit_behavior
from butfor.replay.outcomes import DRAWS, most_likely
from butfor.types import Floats

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

CENSORED = ("continue", "cut")
MOST = 200  # episodes in a null check where a pass takes long
ROUNDING = 1e-9  # times the largest return
MOSTLY = 0.9  # share of the steps compared with that were recorded; if it is less it is told


class Usual(NamedTuple):
    """What each of n counterfactuals is compared with."""

    expected_return: Floats  # [n]
    outcome: NDArray[np.int64]  # [n] the observed one, or the most likely; -1: none
    probability: Floats  # [n, O + 1] of each outcome; 1 for an observed one
    continued: Replay | None  # how the behavior would go on after records that stop; None: none do


def usual_course(replay: Replay) -> Usual:
    """Return what was observed; of censored episodes, how the behavior policy would go on."""
    returns = replay.observed_return
    outcome = replay.log.outcome.astype(np.int64)
    probability = np.eye(len(replay.log.outcomes) + 1)[outcome]
    stopped, same = np.flatnonzero(replay.continues), None
    if len(stopped):
        # a counterfactual under the behavior itself repeats the record and then goes on
        same = replay.part(stopped).ask(target=usual_policy(replay), action_noise="shared")
        found = same.engine.outcomes(draws=DRAWS, seed=replay.seed, threads=None, progress=None)
        returns[stopped] = found.expected_return
        outcome[stopped] = most_likely(found.probability)
        probability[stopped] = found.probability
    return Usual(returns, outcome, probability, same)


def usual_steps(replay: Replay) -> Floats:
    """Return the expected number of steps of what each counterfactual is compared with, [n]."""
    steps, same = replay.log.lengths.astype(np.float64), replay.usual.continued
    if same is not None:
        steps[replay.continues] = np.maximum(same.steps().mass.sum(axis=1), same.log.lengths)
    return steps


def usual_policy(replay: Replay) -> Policy:
    """Return the behavior as a target: one that knows what to do in every state.

    A table of a wide log has rows for the states of the log only, so it is learned instead.
    """
    if replay.sampled and not callable(replay.behavior):
        return fit_behavior(replay.episodes)
    return replay.behavior


def null_changes(replay: Replay, *, threads: int | None = None) -> NDArray[np.bool_]:
    """Whether a policy equal to the behavior would change each episode that is checked."""
    if replay.terminal != "visits":  # outcomes come one step late: nothing is claimed
        return np.zeros(0, bool)
    slow = replay.sampled or replay.hidden
    some = replay.part(np.arange(MOST)) if slow and len(replay) > MOST else replay
    same = some.ask(target=usual_policy(replay), behavior=replay.behavior, action_noise="shared")
    found = same.share(replay.once_for_all("null", dict)).outcomes(threads=threads)
    limit = ROUNDING * max(1.0, float(np.abs(found.usual_return).max()))
    return (np.abs(found.difference) > limit) | (found.most_likely != found.usual_outcome)


def censoring_hazard(episodes: Episodes, *, horizon: int | None = None) -> Floats:
    """Estimate the probability of being lost in each state, [S].

    Of the episodes that come to a state without an outcome before the horizon, the share that
    stops there. 0 where no episode comes.
    """
    steps = episodes.horizon if horizon is None else horizon
    log = episodes.truncate(steps)
    stopped = (log.outcome < 0) & (log.lengths < steps)
    lost = np.bincount(log.next_state[log.offsets[1:] - 1][stopped], minlength=log.n_states)
    stayed = np.bincount(log.state[log.time > 0], minlength=log.n_states)
    return np.asarray(lost / np.maximum(lost + stayed, 1))


def check_hazard(hazard: ArrayLike, episodes: Episodes) -> Floats:
    """Return hazards that fit a log, whose states are numbered."""
    found = np.asarray(hazard, dtype=np.float64)
    if found.shape != (episodes.n_states,):
        raise ValueError(
            f"hazard has shape {found.shape}; give one number for each of the "
            f"{episodes.n_states} states"
        )
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError("hazard: give probabilities from 0 to 1")
    return found

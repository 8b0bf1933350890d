"""diagnose: every check in one call, with a light and a sentence each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.evaluate.crossfit import Learn
from butfor.evaluate.diagnostics.calibration import check_calibration
from butfor.evaluate.diagnostics.hidden import check_consistency, check_entropy, check_shared_rows
from butfor.evaluate.diagnostics.lights import Row, at_least, at_most, worst_light
from butfor.evaluate.diagnostics.overlap import check_overlap
from butfor.evaluate.hidden import refuse_given
from butfor.evaluate.problem import Problem, make_problem
from butfor.evaluate.support import unsupported_mass
from butfor.evaluate.warn import FEW, sizes
from butfor.evaluate.wording import percent
from butfor.hidden.chain import first_values
from butfor.hidden.latent import LatentPosterior, latent_posterior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import (
    FiniteController,
    LatentPolicy,
    Policy,
    as_array,
)
from butfor.hidden.task import prepare_hidden_task
from butfor.log.episodes import Episodes
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.policies import action_counts
from butfor.replay.outcomes import Counterfactuals, counterfactual_outcomes
from butfor.replay.steps import Steps, walk_through
from butfor.types import Floats

COLUMNS = ["check", "value", "light", "sentence"]
RARE = 10  # a probability found from fewer transitions is off by up to .16 (a standard error)

# Limits are (green, amber): a light is green up to the first, amber up to the second, else red.
# At least: a share found from 400 episodes has a 95 % interval of ± 5 points, from 50 of ± 14.
EPISODES = (400, FEW)
# At least: where an episode of ten (of a hundred) speaks for all of them, an error in what is known
# of the behaviour is multiplied as often.
EFFECTIVE = (0.10, 0.01)
RARE_ROWS = (0.05, 0.20)  # at most: one decision in twenty, one in five
# At most: by default pairs never seen lead to the worst outcome, so this is by how much its
# probability may be made up; one point is lost in the noise of any log, ten are not.
UNSUPPORTED = (0.01, 0.10)
ABOUT = (0.50, 0.20)  # at least: half of the steps, one in five


def diagnose(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    behavior_probability: ArrayLike | None = None,
    horizon: int | None = None,
    discount: float = 1.0,
    learn: Learn | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Check whether log and model can carry a conclusion about the target: a row a check.

    Parameters
    ----------
    behavior, horizon, discount
        See `counterfactual_outcomes`.
    behavior_probability : [N], optional
        With which each logged action was taken, where the log tells: enters importance weights.
    learn, seed
        See `calibration_table`.

    Returns
    -------
    DataFrame
        check, value, light ("green", "amber" or "red"), sentence. The checks, in this order:

        - *overlap*: share of the target's choices in logged states that were made there at least
          once;
        - *effective sample size*: (sum w)^2 / sum w^2 of the importance weights, over n;
        - *episodes left*: share of the episodes with any weight;
        - *rare rows*: share of the target's decisions, in the model from the log's first states
          on, that rest on fewer than 10 logged transitions;
        - *unsupported mass*: mean probability that a counterfactual uses a pair never seen;
        - *calibration*: mean gap between the predicted and the observed share of the bad outcome,
          held out, by decile of the prediction (nan where it cannot be told);
        - *influence*: median share of the counterfactual's steps that are still about the patient.

        Where the state is hidden:

        - *overlap* as above, by observation, for a target on the last observation;
        - *consistency*: standard errors between the mean counterfactual and what the model alone
          expects of the target;
        - *hidden state*: bits by which it is unknown given the record, mean over steps;
        - *rows in common*: share of the rows met that have a label of the observed one;
        - *influence* as above.

    Notes
    -----
    Green lights are necessary, not sufficient: no check sees a cause of both treatment and course
    that the log does not hold.
    """
    if isinstance(model, TabularPOMDP):
        refuse_given(behavior_probability=behavior_probability, learn=learn)
        task = prepare_hidden_task(episodes, model, target, behavior=behavior, horizon=horizon)
        options: dict[str, Any] = {"behavior": behavior, "horizon": horizon}
        return diagnose_hidden(
            counterfactual_outcomes(episodes, model, target, discount=discount, **options),
            first_values(task, discount),
            latent_posterior(task.episodes, model, behavior=behavior),
            walk_through(episodes, model, target, **options),
            target,
        )
    problem = make_problem(
        episodes,
        model,
        as_array(target),
        behavior=None if behavior is None else as_array(behavior),
        behavior_probability=behavior_probability,
        horizon=horizon,
        discount=discount,
        seed=seed,
    )
    followers, effective = sizes("WIS", problem, None)
    rows = [
        check_overlap(episodes, problem.target),
        effective_row(len(problem), effective),
        left_row(len(problem), followers),
        _check_rare(problem),
        _check_unsupported(problem),
        check_calibration(episodes, model, problem.horizon, learn, seed),
        _check_influence(problem),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def diagnose_hidden(
    result: Counterfactuals,
    expected: Floats,
    posterior: LatentPosterior,
    walked: Steps,
    target: Policy,
) -> pd.DataFrame:
    """Return the checks of `diagnose` where the state is hidden, from what is known already.

    `expected` [n] is what the model alone gives from what was seen first in each episode.
    """
    rows = [
        check_consistency(result, expected),
        check_entropy(posterior),
        check_shared_rows(walked),
        _influence_of(walked),
    ]
    if not isinstance(target, FiniteController | LatentPolicy):
        rows.insert(0, check_overlap(result.episodes, as_array(target)))
    return pd.DataFrame(rows, columns=COLUMNS)


def _check_rare(problem: Problem) -> Row:
    first = np.bincount(problem.episodes.first_state, minlength=problem.model.n_states)
    counts = action_counts(problem.episodes)
    return rare_row(problem.model, problem.target, first, problem.horizon, counts)


def _check_unsupported(problem: Problem) -> Row:
    mass = unsupported_mass(
        problem.episodes,
        problem.model,
        problem.target,
        behavior=problem.behavior,
        horizon=problem.horizon,
    )
    return unsupported_row(float(mass.mean()))


def _check_influence(problem: Problem) -> Row:
    found = walk_through(
        problem.episodes,
        problem.model,
        problem.target,
        behavior=problem.behavior,
        mechanism=problem.mechanism,
        horizon=problem.horizon,
    )
    return _influence_of(found)


def _influence_of(found: Steps) -> Row:
    return influence_row(float(np.median(found.share_about)), float(np.median(found.share_after)))


# the rows that follow from numbers


def effective_row(n: int, effective: float) -> Row:
    """Return the row on the effective sample size of n episodes."""
    light = worst_light([at_least(effective, EPISODES), at_least(effective / n, EFFECTIVE)])
    sentence = (
        f"Weighted by how likely the policy makes them, the {n} episodes say as much about it as "
        f"{effective:.1f} episodes of its own (effective sample size)."
    )
    return "effective sample size", effective / n, light, sentence


def left_row(n: int, followers: int) -> Row:
    """Return the row on those of n episodes that have any weight."""
    sentence = f"In all {n} episodes the policy might have done, to the end, what was done."
    if followers < n:
        sentence = (
            f"{followers} of {n} episodes follow the policy to their end; in the others something "
            "was done that it never does, and estimates by weighting leave them out."
        )
    return "episodes left", followers / n, at_least(followers, EPISODES), sentence


def rare_row(
    model: TabularMDP,
    target: Floats,
    first: NDArray[np.int64],
    horizon: int,
    counts: NDArray[np.int64],
) -> Row:
    """Return the row on decisions that rest on few transitions.

    `first` [S] are the episodes by first state, `counts` [S, A] the logged decisions.
    """
    occupancy = _occupancy(model, target, first, horizon)
    known = np.maximum(model.counts, counts)
    value = float(occupancy[known < RARE].sum() / occupancy.sum())
    sentence = (
        f"{percent(value).capitalize()} of the decisions that the policy would face, in the model, "
        f"rest on fewer than {RARE} logged transitions."
    )
    return "rare rows", value, at_most(value, RARE_ROWS), sentence


def _occupancy(model: TabularMDP, target: Floats, first: NDArray[np.int64], horizon: int) -> Floats:
    """Expected number of uses of each state and action by the target in the model, [S, A]."""
    here = first / first.sum()
    total = np.zeros_like(target)
    for _ in range(horizon):
        used = here[:, None] * target
        total += used
        moved = used.ravel()[model.entry_row] * model.probability
        reached = total_by(model.next_state, moved, model.n_states + len(model.outcomes))
        here = reached[: model.n_states]
    return total


def unsupported_row(value: float) -> Row:
    """Return the row on the mean probability of using a pair never seen."""
    sentence = (
        f"{percent(value).capitalize()} of the probability, on average over the episodes, runs "
        "through states and actions never seen together; what follows there is a rule, not data."
    )
    return "unsupported mass", value, at_most(value, UNSUPPORTED), sentence


def influence_row(about: float, after: float) -> Row:
    """Return the row on medians: the share of steps about the episode, and of what comes after."""
    sentence = (
        f"In the median episode {percent(about)} of the steps under the policy are still about "
        f"that very episode, and {percent(after)} of what is earned comes when none is any more: "
        "that is what the model expects of anyone."
    )
    return "influence", about, at_least(about, ABOUT), sentence

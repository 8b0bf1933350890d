"""The bootstrap in which model and target are learned anew on every resample."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.evaluate.bootstrap import weight_blocks
from butfor.evaluate.crossfit import Learn, cross_fitted, learn_from
from butfor.evaluate.estimators.importance import average
from butfor.evaluate.problem import Estimator, Problem, make_problem
from butfor.log.episodes import Episodes
from butfor.replay.outcomes import counterfactual_outcomes, sample_counterfactuals
from butfor.types import Floats, Progress

SPLITS = 1  # of cross-fitting inside a resample: its luck is part of the interval


def relearn_values(
    functions: Mapping[str, Estimator],
    problem: Problem,
    episodes: Episodes,
    learn: Learn,
    *,
    resamples: int,
    seed: int,
    behavior: ArrayLike | None = None,
    behavior_probability: ArrayLike | None = None,
    crossed: bool = False,
    progress: Progress | None = None,
) -> dict[str, Floats]:
    """Evaluate on each resample of the episodes what `learn` makes of that resample.

    `episodes` are those of the problem before they were cut to its horizon.
    Where no behaviour is given it is estimated anew, too. With `crossed` the result has "MB
    (cross-fitted)" and "CF (cross-fitted)", from one split of each resample.
    """
    names = [*functions, *(("MB (cross-fitted)", "CF (cross-fitted)") if crossed else ())]
    values = {name: np.full(resamples, np.nan) for name in names}
    n, number = len(problem), 0
    ones = np.ones((1, n))
    for block in weight_blocks(n, resamples, seed):
        for counts in block:
            index = np.repeat(np.arange(n), counts.astype(np.int64))
            log = episodes.select(index)
            probability = _select_rows(behavior_probability, episodes, index)
            again = _learn_again(log, problem, learn, behavior, probability)
            for name, function in functions.items():
                values[name][number] = function(again, ones)[0]
            if crossed and len(np.unique(index)) > 1:
                result = cross_fitted(
                    log,
                    learn,
                    splits=SPLITS,
                    seed=seed,
                    behavior=behavior,
                    mechanism=problem.mechanism,
                    action_noise=problem.action_noise,
                    horizon=problem.horizon,
                    discount=problem.discount,
                )
                values["MB (cross-fitted)"][number] = average(result.model_based, ones)[0]
                values["CF (cross-fitted)"][number] = average(result.counterfactual, ones)[0]
            number += 1
            if progress is not None:
                progress(number, resamples)
    return values


def _select_rows(
    values: ArrayLike | None, episodes: Episodes, index: NDArray[np.int64]
) -> Floats | None:
    """Pick the rows of the episodes at these positions, as `Episodes.select` does."""
    if values is None:
        return None
    parts = np.split(np.asarray(values, dtype=np.float64), episodes.offsets[1:-1])
    return np.concatenate([parts[position] for position in index])


def _learn_again(
    log: Episodes,
    problem: Problem,
    learn: Learn,
    behavior: ArrayLike | None,
    probability: Floats | None,
) -> Problem:
    """Return the problem of a resample, with a model and a target of its own."""
    model, target = learn_from(learn, log)
    draws = counterfactuals = None
    if problem.known is not None:
        counterfactuals = counterfactual_outcomes(
            log,
            model,
            target,
            behavior=behavior,
            mechanism=problem.mechanism,
            action_noise=problem.action_noise,
            horizon=problem.horizon,
            discount=problem.discount,
        )
    if problem.draws is not None:
        draws = sample_counterfactuals(
            log,
            model,
            target,
            draws=problem.draws.state.shape[1],
            seed=problem.seed,
            behavior=behavior,
            mechanism=problem.mechanism,
            action_noise=problem.action_noise,
            horizon=problem.horizon,
        )
    return make_problem(
        log,
        model,
        target,
        behavior=behavior,
        behavior_probability=probability,
        horizon=problem.horizon,
        discount=problem.discount,
        seed=problem.seed,
        draws=draws,
        counterfactuals=counterfactuals,
    )

"""The bootstrap in which model and target are learned again on every resample."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from butfor.evaluate.bootstrap import weight_blocks
from butfor.evaluate.crossfit import Learn, cross_fitted, learn_from
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.importance import average
from butfor.evaluate.estimators.table import Estimator
from butfor.types import Floats, Progress

SPLITS = 1  # of cross-fitting inside a resample: the interval covers the choice of split


def relearn_values(
    functions: Mapping[str, Estimator],
    sample: EpisodeColumns,
    learn: Learn,
    *,
    resamples: int,
    seed: int,
    crossed: bool = False,
    progress: Progress | None = None,
) -> dict[str, Floats]:
    """Learn model and target from each resample of the episodes and evaluate them on it.

    A behavior that was not given is estimated again, too. With `crossed` the result includes "MB
    (cross-fitted)" and "CF (cross-fitted)", from one split of each resample.
    """
    names = [*functions, *(("MB (cross-fitted)", "CF (cross-fitted)") if crossed else ())]
    values = {name: np.full(resamples, np.nan) for name in names}
    n, number = len(sample), 0
    ones = np.ones((1, n))
    for block in weight_blocks(n, resamples, seed):
        for counts in block:
            index = np.repeat(np.arange(n), counts.astype(np.int64))
            again = _learn_again(sample, index, learn)
            for name, function in functions.items():
                values[name][number] = function(again, ones)[0]
            if crossed and len(np.unique(index)) > 1:
                result = cross_fitted(again.replay, learn, splits=SPLITS, seed=seed)
                values["MB (cross-fitted)"][number] = average(result.model_based, ones)[0]
                values["CF (cross-fitted)"][number] = average(result.counterfactual, ones)[0]
            number += 1
            if progress is not None:
                progress(number, resamples)
    return values


def _learn_again(
    sample: EpisodeColumns, index: np.ndarray[tuple[int], np.dtype[np.int64]], learn: Learn
) -> EpisodeColumns:
    """Return what estimators sum over a resample, with the model and target learned from it."""
    replay = sample.replay
    log = replay.episodes.select(index)
    model, target = learn_from(learn, log)
    rows = replay.episodes.rows_of(index)
    again = replay.ask(
        episodes=log,
        model=model,
        target=target,
        behavior_probability=None if replay.probability is None else replay.probability[rows],
    )
    draws = None
    if sample.draws is not None:
        draws = again.draws(sample.draws.state.shape[1], seed=sample.seed)
    return EpisodeColumns(again, sample.seed, draws)

"""The bootstrap in which model and target are learned again on every resample."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from butfor.evaluate.bootstrap import weight_blocks
from butfor.evaluate.crossfit import Learn, learn_from
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import Estimator
from butfor.types import Floats, Progress


def relearn_values(
    functions: Mapping[str, Estimator],
    sample: EpisodeColumns,
    learn: Learn,
    *,
    resamples: int,
    seed: int,
    progress: Progress | None = None,
) -> dict[str, Floats]:
    """Learn model and target from each resample of the episodes and evaluate them on it.

    A behavior that was not given is estimated again, too.
    """
    values = {name: np.full(resamples, np.nan) for name in functions}
    n, number = len(sample), 0
    ones = np.ones((1, n))
    for block in weight_blocks(n, resamples, seed):
        for counts in block:
            index = np.repeat(np.arange(n), counts.astype(np.int64))
            again = _learn_again(sample, index, learn)
            for name, function in functions.items():
                values[name][number] = function(again, ones)[0]
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
    again = replay.ask(episodes=log, model=model, target=target)
    draws = None
    if sample.draws is not None:
        draws = again.draws(sample.draws.state.shape[1], seed=sample.seed)
    return EpisodeColumns(again, sample.seed, draws)

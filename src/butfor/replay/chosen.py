"""Chosen: credible intervals of some episodes, and the mean over all from a sample of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from butfor.replay.replay import Replay
from butfor.types import Floats

Positions = NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Chosen:
    """The episodes of a question whose credible intervals are computed."""

    replay: Replay  # the question about all episodes
    only: Positions  # None: all
    sample: Positions  # those that were drawn at random

    def ask(self, replay: Replay) -> Replay:
        """Return a question about all episodes as one about these."""
        return replay if self.only is None else replay.part(self.only)

    def spread(self, found: Floats) -> Floats:
        """Return what was found for these episodes, with nan for the others."""
        if self.only is None:
            return found
        table = np.full((len(self.replay), *found.shape[1:]), np.nan)
        table[self.only] = found
        return table

    def mean(self, returns: Floats, ends: list[float]) -> tuple[float, float, float]:
        """Return the mean over all episodes and its interval, from returns [m, B] in B models.

        With c the returns in the question's own model, known for all episodes, the mean in a drawn
        model is that of c plus the mean of r - c, which the sample tells.
        """
        if self.only is None:
            every = returns.mean(axis=0)
            low, high = central(every, ends)
            return float(every.mean()), float(low), float(high)
        if self.sample is None or len(self.sample) < 2:
            return np.nan, np.nan, np.nan
        known = self.replay.outcomes().expected_return
        gap = returns[np.searchsorted(self.only, self.sample)] - known[self.sample][:, None]
        center, low, high = mean_of_sample(gap, len(known), ends)
        return known.mean() + center, known.mean() + low, known.mean() + high


def check_positions(
    count: int, only: ArrayLike | None, sample: ArrayLike | None
) -> tuple[Positions, Positions]:
    """Return positions among `count` episodes in order; see `Chosen`."""
    if only is None:
        return None, None
    chosen = np.unique(np.asarray(only, dtype=np.int64))
    drawn = None if sample is None else np.unique(np.asarray(sample, dtype=np.int64))
    if not (len(chosen) and chosen[0] >= 0 and chosen[-1] < count):
        raise ValueError(f"only: give positions of episodes, from 0 to {count - 1}")
    if drawn is not None and not np.isin(drawn, chosen).all():
        raise ValueError("sample: give positions that are also among those of only")
    return chosen, drawn


def mean_of_sample(gap: Floats, count: int, ends: list[float]) -> tuple[float, float, float]:
    """Return the mean of `count` episodes and its interval, from a sample [m, B] in B models.

    The sample is the same in all models, so its error is, too, apart from what varies between
    models. That error, the standard error of the means over models, drawn without replacement,
    widens the interval between quantiles in quadrature.
    """
    every = gap.mean(axis=0)
    center, drawn = float(every.mean()), len(gap)
    error = gap.mean(axis=1).std(ddof=1) * np.sqrt((1 - drawn / count) / drawn)
    low, high = np.hypot(central(every, ends) - center, ndtri(ends[1]) * error)
    return center, center - float(low), center + float(high)


def central(draws: Floats, ends: list[float], axis: int = 0) -> Floats:
    """Return the ends of an interval that one more draw lies in with this probability.

    Between B draws there are B + 1 gaps, in each of which one more draw lies equally often.
    """
    return np.asarray(np.quantile(draws, ends, axis=axis, method="weibull"))

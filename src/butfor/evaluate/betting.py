"""Intervals that hold while a stratified sample grows, by betting without replacement.

Whoever believes that the mean of stratum h is μ_h expects its next value to be

    m_h = (N_h μ_h - sum of its values so far) / (N_h - number of its values so far).

A gambler who stakes λ on the next value x being larger, λ chosen before x is seen, multiplies their
capital by 1 + λ (x - m_h). If μ is right and the order within each stratum is random, the game is
fair, however strata alternate: the product over all values is a martingale, and the probability
that it ever reaches 1 / α is at most α (Ville's inequality). So after every value, a weighted mean
Σ W_h μ_h can be rejected if the capital is at least 1 / α under every μ with this weighted mean
(Waudby-Smith and Ramdas, 2020 and 2024; for strata Spertus, Sridhar and Stark, 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.types import Floats

GRID = 2000  # cells from the lowest to the highest possible weighted mean
LARGEST = 0.5  # share of the capital that a bet can lose
HEDGE = 0.05  # share of the capital in each stratum that bets on smaller values
EARLY = 0.25  # share of the values planned after which stakes are best: reviews are watched
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Drawn:
    """A stratum, and the values that were drawn from it so far."""

    size: int
    planned: int  # number of values to be drawn
    least: float  # possible value
    most: float
    rest: tuple[float, float]  # lowest and highest possible mean of values not drawn yet
    value: Floats  # [m] in the order drawn
    when: NDArray[np.int64]  # [m] place of each value in the order over all strata

    def mirrored(self) -> Drawn:
        """Return the stratum with all signs reversed."""
        low, high = self.rest
        ends = (-self.most, -self.least, (-high, -low))
        return Drawn(self.size, self.planned, *ends, -self.value, self.when)

    @property
    def possible(self) -> Floats:
        """The lowest and the highest mean that the values so far allow, [2]."""
        left = self.size - len(self.value)
        return (self.value.sum() + left * np.array(self.rest)) / self.size


def betting_interval(
    strata: Sequence[Drawn], confidence: float = 0.95, *, grid: int = GRID
) -> tuple[float, float]:
    """Return an interval of the weighted mean that is valid after every value.

    The probability that any of the intervals over time misses is at most 1 - confidence. A finer
    grid makes it narrower, by up to one cell per stratum.
    """
    threshold = float(np.log(2 / (1 - confidence)))
    low = _lowest(strata, threshold, grid)
    high = -_lowest([stratum.mirrored() for stratum in strata], threshold, grid)
    return low, high


def _lowest(strata: Sequence[Drawn], threshold: float, grid: int) -> float:
    """Return the lower end: the capital rejects all weighted means below it.

    The range of each W_h μ_h is cut into cells of one width. The least log capital of a sum of
    cells is found by adding one stratum after another.
    """
    total = sum(stratum.size for stratum in strata)
    weight = np.array([stratum.size / total for stratum in strata])
    ends = weight[:, None] * np.array([stratum.possible for stratum in strata])  # [H, 2]
    start, width = float(ends[:, 0].sum()), float((ends[:, 1] - ends[:, 0]).sum()) / grid
    if width < TINY:
        return start
    least = np.zeros(1)  # by the number of cells above the lowest possible weighted mean
    for stratum, share, (low, high), stakes in zip(
        strata, weight, ends, choose_stakes(strata, threshold), strict=True
    ):
        cells = max(1, int(np.ceil((high - low) / width - TINY)))
        edges = np.minimum(low + width * np.arange(cells + 1), high) / share
        least = _smallest_sums(least, _least_capital(stratum, stakes, edges))
    # a sum of cells that starts at k reaches from k widths upward, so that all below the first
    # one that is not rejected is
    return start + width * float(np.logical_and.accumulate(least >= threshold).sum())


def _least_capital(stratum: Drawn, stakes: Floats, edges: Floats) -> Floats:
    """Return a lower bound of the log capital between neighboring edges, [edges - 1].

    Bets on larger values win less the larger the mean is; those on smaller values win more. The
    latter keep strata with means far above their values from making up for others.
    """
    larger = log_capital(stratum, stakes, edges)
    smaller = log_capital(stratum.mirrored(), stakes, -edges)
    return np.logaddexp(np.log(1 - HEDGE) + larger[1:], np.log(HEDGE) + smaller[:-1])


def log_capital(stratum: Drawn, stakes: Floats, mean: Floats) -> Floats:
    """Return the log capital that bets on larger values have won if `mean` is right, [G]."""
    left = stratum.size - np.arange(len(stratum.value))
    expected = (stratum.size * mean[:, None] - _sums_before(stratum.value)) / left  # [G, m]
    stake = np.minimum(stakes, LARGEST / np.maximum(expected - stratum.least, TINY))
    return np.log1p(stake * (stratum.value - expected)).sum(axis=1)


def choose_stakes(strata: Sequence[Drawn], threshold: float) -> list[Floats]:
    """Return the stake on each value, [m] by stratum, from earlier values alone.

    √(2 log(1/α) / (σ² T)) is best after T values of variance σ²; T is a quarter of what is planned,
    and grows beyond that. A value counts by the number of episodes that it stands for, and the less
    the fewer are left, so that the capital depends on all means nearly as their weighted mean does.
    """
    sampled = [stratum for stratum in strata if stratum.planned < stratum.size] or list(strata)
    planned = max(1, sum(stratum.planned for stratum in sampled))
    represented = sum(stratum.size for stratum in sampled) / planned
    variance = _variance_before(strata)
    reached = np.arange(1, len(variance) + 1) / max(1, sum(s.planned for s in strata))
    time = EARLY * planned * np.maximum(1, reached)
    best = np.sqrt(2 * threshold / (variance * time))
    return [
        best[stratum.when]
        * (stratum.size / max(1, stratum.planned) / represented)
        * (1 - np.arange(len(stratum.value)) / stratum.size)
        for stratum in strata
    ]


def _variance_before(strata: Sequence[Drawn]) -> Floats:
    """Return the variance of the values before each value, in the order over all strata.

    It starts with one value in the middle of the range, a quarter of the range off.
    """
    value = np.concatenate([stratum.value for stratum in strata])
    ordered = np.empty(len(value))
    ordered[np.concatenate([stratum.when for stratum in strata])] = value
    least, most = min(s.least for s in strata), max(s.most for s in strata)
    number = np.arange(1, len(value) + 1)
    mean = ((least + most) / 2 + _sums_before(ordered)) / number
    return (((most - least) / 4) ** 2 + _sums_before((ordered - mean) ** 2)) / number


def _sums_before(values: Floats) -> Floats:
    return np.cumsum(values) - values


def _smallest_sums(first: Floats, second: Floats) -> Floats:
    """Return the least first[i] + second[k - i] over i, for each k."""
    if len(first) < len(second):
        first, second = second, first
    found = np.full(len(first) + len(second) - 1, np.inf)
    for k, value in enumerate(second.tolist()):
        part = found[k : k + len(first)]
        np.minimum(part, first + value, out=part)
    return found

"""Measures of agreement between any number of reviewers, who need not rate every stay.

Ratings are an array `[n, R]` of category codes, -1 where a reviewer did not rate a stay. A measure
is a function of the weight of each stay, weights `[B, n]` → values `[B]`, so that the bootstrap
over stays is one call; a value is nan where the measure is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from butfor.printed import Printed
from butfor.types import Floats

Ratings = NDArray[np.int64]
FEWEST = 20  # stays for an interval to be meaningful
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """A measure of agreement with its bootstrap interval; None where there is none, see `note`."""

    value: float | None
    low: float | None
    high: float | None
    stays: int  # rated by at least two reviewers
    note: str  # "", "too few: …" or "undefined: …"


@dataclass(frozen=True)
class PairKappa:
    """Cohen's kappa of two reviewers over the stays that both rated."""

    first: str
    second: str
    kappa: Measure


@dataclass(frozen=True, repr=False)
class Agreement(Printed):
    """All measures of agreement for one run."""

    stays: int  # rated by at least two reviewers
    reviewers: int
    percent: Measure  # share of agreeing pairs, averaged over stays
    alpha: Measure  # Krippendorff's, nominal
    ac1: Measure  # Gwet's
    kappas: tuple[PairKappa, ...]


def measure_agreement(
    given: Iterable[tuple[Hashable, str, int]],
    *,
    categories: Iterable[int] = (1, 2, 3, 4, 5),
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Measure how far reviewers agree.

    Parameters
    ----------
    given
        Stay, reviewer and verdict; at most one verdict per stay and reviewer.
    categories
        All verdicts that could have been chosen; Gwet's AC1 depends on their number.
    resamples, seed
        Of the bootstrap over stays.
    """
    ratings, names, codes = rating_table(given, categories)
    twice = ratings[(ratings >= 0).sum(axis=1) >= 2]
    measure = partial(_measure, categories=len(codes), resamples=resamples, seed=seed)
    kappas = []
    for first, second in combinations(range(len(names)), 2):
        both = ratings[:, [first, second]]
        both = both[(both >= 0).all(axis=1)]
        if len(both):
            kappas.append(PairKappa(names[first], names[second], measure(cohen_kappa, both)))
    return Agreement(
        stays=len(twice),
        reviewers=len(names),
        percent=measure(percent_agreement, twice),
        alpha=measure(krippendorff_alpha, twice),
        ac1=measure(gwet_ac1, ratings),
        kappas=tuple(kappas),
    )


def rating_table(
    given: Iterable[tuple[Hashable, str, int]], categories: Iterable[int]
) -> tuple[Ratings, list[str], dict[int, int]]:
    """Return ratings `[n, R]`, the reviewers and the code of each category."""
    codes = {category: code for code, category in enumerate(dict.fromkeys(categories))}
    stays: dict[Hashable, int] = {}
    raters: dict[str, int] = {}
    cells: dict[tuple[int, int], int] = {}
    for stay, rater, verdict in given:
        cell = (stays.setdefault(stay, len(stays)), raters.setdefault(rater, len(raters)))
        if verdict not in codes:
            raise ValueError(
                f"episode {stay}, {rater}: verdict {verdict!r} is not one of {list(codes)}"
            )
        if cell in cells:
            raise ValueError(f"episode {stay} has two verdicts by {rater}; give the one in force")
        cells[cell] = codes[verdict]
    ratings = np.full((len(stays), len(raters)), -1, dtype=np.int64)
    for cell, code in cells.items():
        ratings[cell] = code
    return ratings, list(raters), codes


def percent_agreement(ratings: Ratings, categories: int, weights: Floats) -> Floats:
    """Return the share of agreeing pairs, averaged over stays with two or more ratings, [B]."""
    counts = _counts(ratings, categories)
    total = counts.sum(axis=1)
    paired = total >= 2
    pairs = np.where(paired, total * (total - 1), 1)
    share = (counts * (counts - 1)).sum(axis=1) / pairs
    return _ratio(weights @ (share * paired), weights @ paired.astype(np.float64))


def krippendorff_alpha(ratings: Ratings, categories: int, weights: Floats) -> Floats:
    """Return Krippendorff's alpha for nominal data, 1 - D_o / D_e, [B].

    Each pair of ratings of a stay with m ratings adds 1 / (m - 1) to the coincidences.
    """
    counts = _counts(ratings, categories)
    total = counts.sum(axis=1)
    counts = np.where((total >= 2)[:, None], counts, 0)
    each = 1 / np.maximum(total - 1, 1)
    n_c = weights @ counts  # [B, categories]
    agreeing = weights @ ((counts * (counts - 1)).sum(axis=1) * each)
    n = n_c.sum(axis=1)
    observed = n - agreeing
    expected = _ratio(n**2 - (n_c**2).sum(axis=1), n - 1)
    return 1 - _ratio(observed, expected)


def gwet_ac1(ratings: Ratings, categories: int, weights: Floats) -> Floats:
    """Return Gwet's AC1, (p_a - p_e) / (1 - p_e) with p_e = Σ π_k (1 - π_k) / (q - 1), [B].

    `π_k` is the share of ratings k, averaged over all stays, including those rated only once.
    """
    if categories < 2:
        return np.full(len(weights), np.nan)
    counts = _counts(ratings, categories)
    total = counts.sum(axis=1)
    share = counts / np.maximum(total, 1)[:, None]
    rated = weights @ (total > 0).astype(np.float64)
    pi = _ratio(weights @ share, rated[:, None])
    chance = (pi * (1 - pi)).sum(axis=1) / (categories - 1)
    return _ratio(percent_agreement(ratings, categories, weights) - chance, 1 - chance)


def cohen_kappa(ratings: Ratings, categories: int, weights: Floats) -> Floats:
    """Return Cohen's kappa of two reviewers who both rated every stay, ratings [n, 2], [B]."""
    chosen = np.eye(categories)[ratings]  # [n, 2, categories]
    n = weights.sum(axis=1)
    agree = _ratio(weights @ (ratings[:, 0] == ratings[:, 1]).astype(np.float64), n)
    share = [_ratio(weights @ chosen[:, rater], n[:, None]) for rater in (0, 1)]
    chance = (share[0] * share[1]).sum(axis=1)
    return _ratio(agree - chance, 1 - chance)


def intraclass_correlation(
    given: Iterable[tuple[Hashable, float]],
) -> Measure:
    """Measure how far reviewers agree on a number, such as the chance of an outcome.

    ICC(1) of a one-way random effects model, with any number of reviewers for each stay:
    (MSB - MSW) / (MSB + (k - 1) MSW), k = (N - Σ k_i² / N) / (n - 1). The interval is a bootstrap
    over stays, since chances are far from normal, which intervals from F assume.

    Parameters
    ----------
    given
        Stay and number, once for each reviewer who gave one.
    """
    by_stay: dict[Hashable, list[float]] = {}
    for stay, number in given:
        by_stay.setdefault(stay, []).append(number)
    rows = [(len(row), sum(row), float(np.var(row)) * len(row)) for row in by_stay.values()]
    sums = np.array(rows).reshape(len(rows), 3)
    twice = int((sums[:, 0] >= 2).sum())
    if twice == 0 or len(sums) < 2:
        return Measure(None, None, None, twice, "too few: no two episodes with two answers")
    same = "undefined: all answers are the same"
    once = np.ones(len(sums), np.int64)
    return _with_interval(partial(correlation_of, sums), once, twice, ("answers", same))


def correlation_of(sums: Floats, weights: Floats) -> Floats:
    """Return ICC(1) from the number, sum and squared deviations of answers per stay, [B]."""
    count, total, within = sums.T
    stays, answers = weights.sum(axis=1), weights @ count
    between = weights @ (total**2 / count) - (weights @ total) ** 2 / answers
    msb = _ratio(between, stays - 1)
    msw = _ratio(weights @ within, answers - stays)
    each = _ratio(answers - weights @ count**2 / answers, stays - 1)
    return _ratio(msb - msw, msb + (each - 1) * msw)


def wilson_interval(count: int, total: int) -> tuple[float, float] | None:
    """Return Wilson's 95 % interval of a share, or None if the total is 0."""
    if total == 0:
        return None
    z = float(ndtri((1 + CONFIDENCE) / 2))
    share, whole = count / total, 2 * (total + z**2)
    center = (2 * total * share + z**2) / whole
    half = z / whole * math.sqrt(4 * total * share * (1 - share) + z**2)
    return 0.0 if count == 0 else center - half, 1.0 if count == total else center + half


def _measure(
    function: Callable[[Ratings, int, Floats], Floats],
    ratings: Ratings,
    *,
    categories: int,
    resamples: int,
    seed: int,
) -> Measure:
    stays = int(((ratings >= 0).sum(axis=1) >= 2).sum())
    if stays == 0:
        return Measure(None, None, None, 0, "too few: no episode has two verdicts")
    kinds, often = np.unique(ratings, axis=0, return_counts=True)  # equal rows need computing once
    same = "undefined: all verdicts are the same, so chance explains everything"
    weighed = partial(function, kinds, categories)
    return _with_interval(weighed, often, stays, ("verdicts", same), resamples, seed)


def _with_interval(
    function: Callable[[Floats], Floats],
    often: NDArray[np.int64],
    stays: int,
    words: tuple[str, str],
    resamples: int = 2000,
    seed: int = 0,
) -> Measure:
    """Return a function of weights with its percentile interval; `often` counts equal stays.

    The words are what reviewers gave, and the note if the measure is undefined.
    """
    what, same = words
    value = float(function(often[None].astype(np.float64))[0])
    if math.isnan(value):
        return Measure(None, None, None, stays, same)
    if stays < FEWEST:
        note = f"too few: {stays} episodes with two {what}, at least {FEWEST} needed"
        return Measure(value, None, None, stays, note)
    n, tail = int(often.sum()), (1 - CONFIDENCE) / 2
    weights = np.random.default_rng(seed).multinomial(n, often / n, size=resamples)
    low, high = np.nanquantile(function(weights.astype(np.float64)), [tail, 1 - tail])
    return Measure(value, float(low), float(high), stays, "")


def _counts(ratings: Ratings, categories: int) -> Floats:
    """Return how many reviewers chose each category for each stay, [n, categories]."""
    return (ratings[:, :, None] == np.arange(categories)).sum(axis=1).astype(np.float64)


def _ratio(above: Floats, below: Floats) -> Floats:
    tiny = np.abs(below) < 1e-12
    return np.where(tiny, np.nan, above / np.where(tiny, 1.0, below))

"""Bootstrap: resamples of episodes, represented as counts, and intervals from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from scipy.special import ndtr, ndtri

from butfor.checks import check_confidence, check_whole
from butfor.evaluate.influence import LESS, Influence
from butfor.random import numbered_keys
from butfor.types import Floats, Progress

INTERVALS = ("percentile", "bca")
MOST_GROUPS = 200  # groups of episodes that the jackknife leaves out in turn
BLOCK = 1 << 22  # weights held in memory at a time

Evaluate = Callable[[Floats], Floats]  # weights [B, n] -> values [B]


def resample_weights(
    episodes: int, resamples: int, seed: int, *, purpose: str = "bootstrap"
) -> Floats:
    """Count how often each episode occurs in samples with replacement, [resamples, episodes].

    A resample depends only on the seed, the purpose and its number.
    """
    check_whole(episodes, "episodes", 1, "a whole number")
    check_whole(resamples, "resamples", 1, "a whole number")
    keys = numbered_keys(seed, resamples, purpose)
    return _counts(episodes, keys.tolist())


def weight_blocks(episodes: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Yield the rows of `resample_weights` in blocks that take little memory."""
    keys = numbered_keys(seed, resamples, "bootstrap").tolist()
    size = max(1, BLOCK // episodes)
    for start in range(0, resamples, size):
        yield _counts(episodes, keys[start : start + size])


def jackknife_weights(episodes: int) -> Iterator[Floats]:
    """Yield weights that leave out each episode in turn, or each of 200 groups of them."""
    groups = min(episodes, MOST_GROUPS)
    group = np.arange(episodes) % groups
    size = max(1, BLOCK // episodes)
    for start in range(0, groups, size):
        left_out = np.arange(start, min(start + size, groups))
        yield (group != left_out[:, None]).astype(np.float64)


def percentile_interval(resampled: Floats, confidence: float = 0.95) -> tuple[float, float]:
    """Interval between the quantiles of resampled values at (1 -+ confidence) / 2.

    Values that are nan (undefined in a resample) are ignored.
    """
    tail = (1 - check_confidence(confidence)) / 2
    return _quantiles(resampled, tail, 1 - tail)


def bca_interval(
    value: float, resampled: Floats, jackknife: Floats, confidence: float = 0.95
) -> tuple[float, float]:
    """Bias-corrected and accelerated interval (Efron 1987).

    The quantiles are taken at Phi(z0 + (z0 + z) / (1 - a (z0 + z))), where z are the normal
    quantiles of the percentile interval, z0 = Phi^-1(share of resampled values below the estimate,
    ties counting half), and a = sum d^3 / (6 (sum d^2)^1.5) with d the mean of the jackknife values
    minus each of them.
    """
    tail = (1 - check_confidence(confidence)) / 2
    defined = resampled[np.isfinite(resampled)]
    if len(defined) == 0 or not np.isfinite(value):
        return float("nan"), float("nan")
    below = (defined < value).sum() + (defined == value).sum() / 2
    edge = 1 / (len(defined) + 1)  # keeps z0 finite if all resampled values are on one side
    bias = ndtri(np.clip(below / len(defined), edge, 1 - edge))
    left = jackknife[np.isfinite(jackknife)]
    gap = left.mean() - left if len(left) else np.zeros(1)
    spread = (gap**2).sum()
    acceleration = (gap**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    shifted = bias + ndtri(np.array([tail, 1 - tail]))
    low, high = ndtr(bias + shifted / (1 - acceleration * shifted))
    return _quantiles(defined, float(low), float(high))


def resampled_values(
    evaluate: Mapping[str, Evaluate],
    episodes: int,
    resamples: int,
    seed: int,
    *,
    most: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> dict[str, Floats]:
    """Evaluate each estimator on the same resamples, [resamples] each.

    `most` limits the number of resamples for some estimators, by name.
    """
    values: dict[str, list[Floats]] = {name: [] for name in evaluate}
    limits = {name: (most or {}).get(name, resamples) for name in evaluate}
    done = 0
    for block in weight_blocks(episodes, resamples, seed):
        for name, function in evaluate.items():
            if done < limits[name]:
                values[name].append(function(block[: limits[name] - done]))
        done += len(block)
        if progress is not None:
            progress(done, resamples)
    return {name: np.concatenate(parts) for name, parts in values.items()}


def bootstrap_interval(
    evaluate: Evaluate,
    value: float,
    resampled: Floats,
    rows: int,
    interval: str,
    confidence: float,
) -> tuple[float, float]:
    """Interval of an estimate from its values in resamples, widened if few rows decide it.

    Percentiles are too narrow where a few rows have most of the influence, as with large weights.
    Both ends are moved away from the value as Student's t is wider than the normal distribution,
    with `Influence.freedom` degrees of freedom.
    """
    left_out = np.concatenate([evaluate(block) for block in jackknife_weights(rows)])
    defined = left_out[np.isfinite(left_out)]
    if interval == "percentile":
        ends = percentile_interval(resampled, confidence)
    else:
        ends = bca_interval(value, resampled, left_out, confidence)
    return Influence(defined).stretch(value, ends, confidence) if len(defined) else ends


def reweighted_influence(evaluate: Evaluate, value: float, rows: int) -> Influence:
    """Influence of rows on an estimate that counts state-action pairs, such as FQE.

    Each row, or each of 200 groups of them, counts half in turn. A bootstrap would lose the rare
    pairs that a resample does not contain, and lie to one side of the estimate.
    """
    weights = (1 - LESS * (1 - block) for block in jackknife_weights(rows))
    return Influence((value - np.concatenate([evaluate(block) for block in weights])) / LESS)


def _counts(episodes: int, keys: list[int]) -> Floats:
    counts = np.empty((len(keys), episodes))
    for row, key in zip(counts, keys, strict=True):
        drawn = np.random.Generator(np.random.PCG64(key)).integers(episodes, size=episodes)
        row[:] = np.bincount(drawn, minlength=episodes)
    return counts


def _quantiles(values: Floats, low: float, high: float) -> tuple[float, float]:
    defined = values[np.isfinite(values)]
    if len(defined) == 0:
        return float("nan"), float("nan")
    below, above = np.quantile(defined, [low, high])
    return float(below), float(above)

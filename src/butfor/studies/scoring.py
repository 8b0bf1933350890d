"""Scores of predicted outcome probabilities against what truly happened, over several logs.

Arrays have the axes logs, episodes, outcomes: probability [R, n, O], truth [R, n]. Logs are
independent, but the episodes of one log share a learned model, so standard errors come from leaving
out one log at a time. A `mask` [R, n] selects episodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from butfor.types import Floats

Truth = NDArray[np.int64]
Mask = NDArray[np.bool_]

IMPOSSIBLE = 1e-12  # a lower probability rules an outcome out
BINS = 10  # of predicted probability, equally wide


def brier(probability: Floats, truth: Truth, *, draws: int | None = None) -> Floats:
    """Return the squared distance between prediction and truth, summed over outcomes.

    0 is best and 2 is worst. If the probabilities are shares of `draws` random draws, their
    sampling variance p (1 - p) / draws would worsen the score; an unbiased estimate of it is
    subtracted.
    """
    happened = np.eye(probability.shape[-1])[truth]
    score = ((probability - happened) ** 2).sum(axis=-1)
    if draws is not None:
        score = score - (probability * (1 - probability)).sum(axis=-1) / (draws - 1)
    return np.asarray(score)


def given_to_truth(probability: Floats, truth: Truth) -> Floats:
    """Return the probability that was given to what truly happened."""
    return np.take_along_axis(probability, truth[..., None], axis=-1)[..., 0]


def log_loss(probability: Floats, truth: Truth) -> Floats:
    """Return -log of the probability given to the truth; infinite where it was ruled out."""
    given = given_to_truth(probability, truth)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(np.where(given < IMPOSSIBLE, 0.0, given)))


def reliability(probability: Floats, truth: Truth, mask: Mask | bool = True) -> Floats:
    """Return sums by log, outcome and bin of the predicted probability p, [R, O, BINS, 4].

    The sums are of 1 (the count), p, whether the outcome happened, and p (1 - p).
    """
    logs, _, outcomes = probability.shape
    bins = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    happened = np.eye(outcomes)[truth]
    terms = np.stack(
        [np.ones_like(happened), probability, happened, probability * (1 - probability)], axis=-1
    )
    terms *= np.broadcast_to(mask, truth.shape)[..., None, None]
    sums = np.zeros((logs, outcomes, BINS, 4))
    np.add.at(sums, (np.arange(logs)[:, None, None], np.arange(outcomes), bins), terms)
    return sums


def calibration_error(sums: Floats) -> float:
    """Return the mean gap between predicted and true share over bins, then over outcomes.

    `sums` are those of `reliability`, added over logs, [O, BINS, 4].
    """
    return _mean_gap(np.abs(sums[..., 1] - sums[..., 2]), sums[..., 0])


def calibration_chance(sums: Floats) -> float:
    """Return the calibration error to expect by chance if every prediction were right.

    The gap of a bin is then nearly normal with variance sum p (1 - p) and mean size
    sqrt(2 / pi) sd.
    """
    return _mean_gap(np.sqrt(2 / np.pi * np.maximum(sums[..., 3], 0.0)), sums[..., 0])


def leave_one_out(totals: Floats, statistic: Callable[[Floats], float]) -> tuple[float, float]:
    """Return a statistic of totals [R, ...] added over logs, and its jackknife standard error."""
    everything = totals.sum(axis=0)
    logs = len(totals)
    without = np.array([statistic(everything - one) for one in totals])
    spread = ((without - without.mean()) ** 2).sum()
    return statistic(everything), float(np.sqrt((logs - 1) / logs * spread))


def mean_over_logs(values: Floats | Mask, mask: Mask | bool = True) -> tuple[float, float]:
    """Return the mean of values [R, n] over the selected episodes, and its standard error."""
    wanted = np.broadcast_to(mask, values.shape)
    if np.isinf(values[wanted]).any():
        return float("inf"), float("nan")
    totals = np.stack([np.where(wanted, values, 0.0).sum(axis=1), wanted.sum(axis=1)], axis=1)
    return leave_one_out(totals, _ratio)


def clear(logs: int) -> float:
    """Return the number of standard errors beyond which a mean over logs clearly differs from 0.

    It is the 97.5 % quantile of Student's t with logs - 1 degrees of freedom: 12.7 for two logs,
    2.1 for twenty.
    """
    return float(stdtrit(logs - 1, 0.975)) if logs > 1 else float("inf")


def skill(score: Floats, reference: Floats, mask: Mask | bool = True) -> tuple[float, float]:
    """Return the share of the reference's score that is saved, and its standard error.

    1 is best, 0 is no better than the reference.
    """
    kept = [np.where(mask, values, 0.0).sum(axis=1) for values in (score, reference)]
    ratio, error = leave_one_out(np.stack(kept, axis=1), _ratio)
    return 1 - ratio, error


def _mean_gap(gap: Floats, count: Floats) -> float:
    total = count.sum(axis=-1)
    return float((gap.sum(axis=-1) / total).mean()) if total.all() else float("nan")


def _ratio(totals: Floats) -> float:
    return float(totals[0] / totals[1]) if totals[1] else float("nan")

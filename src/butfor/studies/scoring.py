"""Scores of predicted outcome probabilities against what truly happened, over several logs.

Arrays have the axes logs, episodes, outcomes: probability [R, n, O], truth [R, n]. Logs are
independent and episodes of one log are not (they share a learned model), so that standard errors
come from leaving out one log at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from butfor.types import Floats

Truth = NDArray[np.int64]
Mask = NDArray[np.bool_]

IMPOSSIBLE = 1e-12  # a probability below this says that it cannot be
BINS = 10  # of predicted probability, equally wide


def brier(probability: Floats, truth: Truth, *, draws: int | None = None) -> Floats:
    """Squared distance between prediction and truth, summed over outcomes: 0 best, 2 worst.

    Shares of so many `draws` instead of probabilities would score worse by their chance alone,
    p (1 - p) / draws an outcome; an unbiased estimate of that is taken off.
    """
    happened = np.eye(probability.shape[-1])[truth]
    score = ((probability - happened) ** 2).sum(axis=-1)
    if draws is not None:
        score = score - (probability * (1 - probability)).sum(axis=-1) / (draws - 1)
    return np.asarray(score)


def given_to_truth(probability: Floats, truth: Truth) -> Floats:
    """Probability that was given to what truly happened."""
    return np.take_along_axis(probability, truth[..., None], axis=-1)[..., 0]


def log_loss(probability: Floats, truth: Truth) -> Floats:
    """Return -log of what was given to the truth; infinite where that was ruled out."""
    given = given_to_truth(probability, truth)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(np.where(given < IMPOSSIBLE, 0.0, given)))


def reliability(probability: Floats, truth: Truth, mask: Mask | None = None) -> Floats:
    """Sums by log, outcome and bin of prediction, [R, O, BINS, 4].

    Of 1 (the count), the prediction p, whether it happened, and p (1 - p).
    """
    logs, _, outcomes = probability.shape
    wanted = np.ones(truth.shape, dtype=bool) if mask is None else mask
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    sums = np.zeros((logs, outcomes, BINS, 4))
    happened = np.eye(outcomes)[truth]
    for log in range(logs):
        for outcome in range(outcomes):
            one = wanted[log]
            at, p = place[log, one, outcome], probability[log, one, outcome]
            for column, weight in enumerate((None, p, happened[log, one, outcome], p * (1 - p))):
                sums[log, outcome, :, column] = np.bincount(at, weight, BINS)
    return sums


def calibration_error(sums: Floats) -> float:
    """Mean distance between predicted and true share over bins by their size, then over outcomes.

    `sums` are those of `reliability`, added over logs, [O, BINS, 4].
    """
    return _mean_gap(np.abs(sums[..., 1] - sums[..., 2]), sums[..., 0])


def calibration_chance(sums: Floats) -> float:
    """Calibration error to expect by chance alone if every prediction were right.

    A bin's gap is then nearly normal with variance sum p (1 - p), of mean size sqrt(2 / pi) sd.
    """
    return _mean_gap(np.sqrt(2 / np.pi * np.maximum(sums[..., 3], 0.0)), sums[..., 0])


def leave_one_out(totals: Floats, statistic: Callable[[Floats], float]) -> tuple[float, float]:
    """Return a statistic of totals [R, ...] added over logs, and its jackknife standard error."""
    everything = totals.sum(axis=0)
    value = statistic(everything)
    logs = len(totals)
    without = np.array([statistic(everything - one) for one in totals])
    spread = ((without - without.mean()) ** 2).sum()
    return value, float(np.sqrt((logs - 1) / logs * spread))


def mean_over_logs(values: Floats, mask: Mask | None = None) -> tuple[float, float]:
    """Mean of values [R, n] over the wanted episodes, and its standard error over logs."""
    wanted = np.ones(values.shape, dtype=bool) if mask is None else mask
    if np.isinf(values[wanted]).any():
        return float("inf"), float("nan")
    totals = np.stack([np.where(wanted, values, 0.0).sum(axis=1), wanted.sum(axis=1)], axis=1)
    return leave_one_out(totals, _ratio)


def clear(logs: int) -> float:
    """Standard errors beyond which a mean over so many logs is called different from 0.

    The 97.5 % quantile of Student's t with logs - 1 degrees of freedom: 12.7 for two logs, 2.1 for
    twenty.
    """
    return float(student.ppf(0.975, logs - 1)) if logs > 1 else float("inf")


def skill(score: Floats, reference: Floats, mask: Mask | None = None) -> tuple[float, float]:
    """Share of the reference's mean score that is saved, 1 best, 0 as the reference; and its se."""
    wanted = np.ones(score.shape, dtype=bool) if mask is None else mask
    kept = [np.where(wanted, values, 0.0).sum(axis=1) for values in (score, reference)]
    saved, error = leave_one_out(np.stack(kept, axis=1), _ratio)
    return 1 - saved, error


def _mean_gap(gap: Floats, count: Floats) -> float:
    total = count.sum(axis=-1)
    return float((gap.sum(axis=-1) / total).mean()) if total.all() else float("nan")


def _ratio(totals: Floats) -> float:
    return float(totals[0] / totals[1]) if totals[1] else float("nan")

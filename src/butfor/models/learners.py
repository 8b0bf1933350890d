"""Classifiers of scikit-learn as learners of tables, calibrated by cross-fitting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.models.backoff import Cases
from butfor.types import Floats, Offsets

FOLDS = 5
MOST_CASES = 2_000_000  # that a classifier learns from, in memory
BLOCK = 1 << 16  # configurations of parents that are predicted together
TEMPERATURES = np.geomspace(0.5, 4.0, 13)  # above 1 a row becomes more even
# of the frequencies of levels in a calibrated row; large ones for trees that predict 0 or 1
SHARES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True, eq=False)
class Learned:
    """A calibrated table, and how well the rows predict cases of other folds."""

    table: Floats  # [levels of parents …, levels]
    score: float  # mean log score; nan if there were too few cases for folds
    source: str  # name of the learner


def check_learner(learner: Any, variable: str) -> None:
    """Refuse what is not "counts" or a classifier with `fit` and `predict_proba`."""
    if isinstance(learner, str):
        if learner != "counts":
            raise ValueError(
                f"learner {learner!r} of {variable}: give 'counts' or a classifier of scikit-learn"
            )
        return
    if isinstance(learner, type):
        raise ValueError(
            f"learner of {variable}: {learner.__name__} is a class; give {learner.__name__}(...)"
        )
    for method in ("fit", "predict_proba", "get_params"):
        if not hasattr(learner, method):
            raise ValueError(
                f"learner of {variable}: {type(learner).__name__} has no {method}; give 'counts' "
                "or a classifier of scikit-learn that predicts probabilities"
            )


def fit_classifier(cases: Cases, learner: Any) -> Learned:
    """Learn a table with one row per configuration of all parents, each level a 0-1 feature.

    The classifier is fitted to all cases; how even its rows should be, and how much of the overall
    frequencies of levels to add, is decided by the log score of predictions for cases of folds that
    it was not fitted to. So every level stays possible. Rows of configurations that were never seen
    are extrapolated.
    """
    if cases.total > MOST_CASES:
        raise ValueError(
            f"{cases.total:,.0f} cases, but a classifier learns from at most {MOST_CASES:,}; use "
            "learner='counts', or fewer episodes"
        )
    times = cases.weight.astype(np.int64)
    features = np.repeat(one_hot(cases.columns, cases.sizes), times, axis=0)
    level = np.repeat(cases.level, times)
    usual = np.bincount(level, minlength=cases.levels) + 1 / cases.levels
    usual = usual / usual.sum()
    name = type(learner).__name__
    calibration = _calibrate(learner, features, level, usual)
    fitted = _clone(learner).fit(features, level)
    sizes = tuple(int(size) for size in cases.sizes)
    table = np.empty((math.prod(sizes), cases.levels))
    for start in range(0, len(table), BLOCK):
        chosen = np.arange(start, min(start + BLOCK, len(table)))
        columns = np.array(np.unravel_index(chosen, sizes))
        rows = predict(fitted, one_hot(columns, cases.sizes), cases.levels)
        table[chosen] = calibration.apply(rows, usual)
    return Learned(table.reshape(*sizes, cases.levels), calibration.score, name)


def one_hot(columns: NDArray[np.integer], sizes: Offsets) -> NDArray[np.float32]:
    """Return one 0-1 feature per level of each parent, [m, sum of sizes]."""
    start = np.concatenate([[0], np.cumsum(sizes)])
    features = np.zeros((columns.shape[1], int(start[-1])), np.float32)
    for column, first in zip(columns, start[:-1], strict=True):
        features[np.arange(len(column)), first + column] = 1.0
    return features


def predict(fitted: Any, features: NDArray[np.float32], levels: int) -> Floats:
    """Return predicted probabilities [m, levels]; 0 for levels that the classifier never saw."""
    rows = np.zeros((len(features), levels))
    rows[:, fitted.classes_] = fitted.predict_proba(features)
    return rows


@dataclass(frozen=True)
class _Calibration:
    """Rows become even with a temperature, then get a share of the usual frequencies."""

    temperature: float = 1.0
    share: float = SHARES[1]
    score: float = math.nan

    def apply(self, rows: Floats, usual: Floats) -> Floats:
        even = rows ** (1 / self.temperature)
        even /= even.sum(axis=1, keepdims=True)
        return (1 - self.share) * even + self.share * usual


def _calibrate(
    learner: Any, features: NDArray[np.float32], level: NDArray[np.integer], usual: Floats
) -> _Calibration:
    """Choose the calibration by the log score of predictions for folds that were left out."""
    # with two levels seen twice, two levels are left whichever fold is taken out
    if (np.bincount(level) > 1).sum() < 2:
        return _Calibration()
    fold = _folds(level)
    rows = np.zeros((len(level), len(usual)))
    for left_out in np.unique(fold):
        here = fold == left_out
        fitted = _clone(learner).fit(features[~here], level[~here])
        rows[here] = predict(fitted, features[here], len(usual))
    own = np.arange(len(level)), level
    found = []
    for temperature in TEMPERATURES.tolist():
        even = _Calibration(temperature, 0.0).apply(rows, usual)[own]
        for share in SHARES:
            score = float(np.log((1 - share) * even + share * usual[level]).mean())
            found.append(_Calibration(temperature, share, score))
    return max(found, key=lambda calibration: calibration.score)


def _folds(level: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the fold of each case, [n]: every level spread over the folds as evenly as can be."""
    mixed = np.random.default_rng(0).permutation(len(level))
    order = mixed[np.argsort(level[mixed], kind="stable")]
    first = np.searchsorted(level[order], level[order])
    fold = np.empty(len(level), np.int64)
    fold[order] = (np.arange(len(level)) - first) % FOLDS
    return fold


def _clone(learner: Any) -> Any:
    """Return an unfitted copy; only this needs scikit-learn."""
    try:
        from sklearn.base import clone  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise ValueError(
            "classifiers need scikit-learn: pip install 'butfor[cluster]', or use 'counts'"
        ) from error
    return clone(learner)

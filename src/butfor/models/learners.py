"""Classifiers of scikit-learn as learners of tables, calibrated by cross-fitting."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
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


@dataclass(frozen=True)
class Calibration:
    """Rows become even with a temperature, then get a share of the usual frequencies."""

    temperature: float = 1.0
    share: float = SHARES[1]
    score: float = math.nan  # mean log score; nan if there were too few cases for folds

    def apply(self, rows: Floats, usual: Floats) -> Floats:
        """Return calibrated rows [m, levels]."""
        even = rows ** (1 / self.temperature)
        even /= even.sum(axis=1, keepdims=True)
        return (1 - self.share) * even + self.share * usual


@dataclass(frozen=True, eq=False)
class Learned:
    """A fitted classifier, and how its rows are calibrated."""

    fitted: Any
    sizes: Offsets  # [V] levels of each parent
    numbers: tuple[bool, ...]  # [V] whether its level is one number; otherwise a 0-1 per level
    usual: Floats  # [levels] their overall frequencies
    calibration: Calibration
    source: str  # name of the learner

    @property
    def score(self) -> float:
        """Mean log score of cases of other folds; nan if there were too few for folds."""
        return self.calibration.score

    def rows(self, columns: NDArray[np.integer]) -> Floats:
        """Return the distribution for each column of parent levels [V, m], [m, levels]."""
        features = make_features(columns, self.sizes, self.numbers)
        rows = predict(self.fitted, features, len(self.usual))
        return self.calibration.apply(rows, self.usual)

    def table(self) -> Floats:
        """Return the rows of all configurations of the parents, [levels of parents …, levels]."""
        sizes = tuple(int(size) for size in self.sizes)
        table = np.empty((math.prod(sizes), len(self.usual)))
        for start in range(0, len(table), BLOCK):
            chosen = np.arange(start, min(start + BLOCK, len(table)))
            table[chosen] = self.rows(np.array(np.unravel_index(chosen, sizes)))
        return table.reshape(*sizes, len(self.usual))


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


def fit_classifier(cases: Cases, learner: Any, numbers: Collection[str] = ()) -> Learned:
    """Fit a classifier to all cases, each level of a parent a 0-1 feature, or one number for all.

    How even its rows should be, and how much of the overall frequencies of levels to add, is
    decided by the log score of predictions for cases of folds that it was not fitted to. So every
    level stays possible. Rows of configurations that were never seen are extrapolated.
    """
    if cases.total > MOST_CASES:
        raise ValueError(
            f"{cases.total:,.0f} cases, but a classifier learns from at most {MOST_CASES:,}; use "
            "learner='counts', or fewer episodes"
        )
    times = cases.weight.astype(np.int64)
    as_numbers = tuple(name in numbers for name in cases.names)
    features = make_features(cases.columns, cases.sizes, as_numbers)
    features = np.repeat(features, times, axis=0)
    level = np.repeat(cases.level, times)
    usual = np.bincount(level, minlength=cases.levels) + 1 / cases.levels
    usual = usual / usual.sum()
    calibration = _calibrate(learner, features, level, usual)
    fitted = clone_learner(learner).fit(features, level)
    name = type(learner).__name__
    return Learned(fitted, cases.sizes, as_numbers, usual, calibration, name)


def make_features(
    columns: NDArray[np.integer], sizes: Offsets, numbers: Sequence[bool]
) -> NDArray[np.float32]:
    """Return one 0-1 feature per level of each parent, or its level as a number, [m, features]."""
    width = [1 if number else int(size) for size, number in zip(sizes, numbers, strict=True)]
    start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
    features = np.zeros((columns.shape[1], int(start[-1])), np.float32)
    for column, first, number in zip(columns, start[:-1], numbers, strict=True):
        if number:
            features[:, first] = column
        else:
            features[np.arange(len(column)), first + column] = 1.0
    return features


def predict(fitted: Any, features: NDArray[np.float32], levels: int) -> Floats:
    """Return predicted probabilities [m, levels]; 0 for levels that the classifier never saw."""
    rows = np.zeros((len(features), levels))
    rows[:, fitted.classes_] = fitted.predict_proba(features)
    return rows


def _calibrate(
    learner: Any, features: NDArray[np.float32], level: NDArray[np.integer], usual: Floats
) -> Calibration:
    """Choose the calibration by the log score of predictions for folds that were left out."""
    # with two levels seen twice, two levels are left whichever fold is taken out
    if (np.bincount(level) > 1).sum() < 2:
        return Calibration()
    fold = _folds(level)
    rows = np.zeros((len(level), len(usual)))
    for left_out in np.unique(fold):
        here = fold == left_out
        fitted = clone_learner(learner).fit(features[~here], level[~here])
        rows[here] = predict(fitted, features[here], len(usual))
    own = np.arange(len(level)), level
    found = []
    for temperature in TEMPERATURES.tolist():
        even = Calibration(temperature, 0.0).apply(rows, usual)[own]
        for share in SHARES:
            score = float(np.log((1 - share) * even + share * usual[level]).mean())
            found.append(Calibration(temperature, share, score))
    return max(found, key=lambda calibration: calibration.score)


def _folds(level: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the fold of each case, [n]: every level spread over the folds as evenly as can be."""
    mixed = np.random.default_rng(0).permutation(len(level))
    order = mixed[np.argsort(level[mixed], kind="stable")]
    first = np.searchsorted(level[order], level[order])
    fold = np.empty(len(level), np.int64)
    fold[order] = (np.arange(len(level)) - first) % FOLDS
    return fold


def clone_learner(learner: Any) -> Any:
    """Return an unfitted copy; only this needs scikit-learn."""
    try:
        from sklearn.base import clone  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise ValueError(
            "classifiers need scikit-learn: pip install 'butfor[cluster]', or use 'counts'"
        ) from error
    return clone(learner)

"""Classifiers of scikit-learn as learners of tables, or predicting on demand without one.

A parent enters as one 0-1 feature per level, or as one number for all levels. Rows are calibrated
by cross-fitting.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.models.backoff import Cases
from butfor.models.classifiers import one_thread
from butfor.printed import Printed
from butfor.types import Floats, Offsets

FOLDS = 5
MOST_CASES = 2_000_000  # that a classifier learns from at once
FEW = 200_000  # cases from which threads gain less than they lose on a busy machine
BLOCK = 1 << 16  # cases or configurations of parents whose features are in memory together
TEMPERATURES = np.geomspace(0.5, 4.0, 13)  # above 1 a row becomes more even
# of the frequencies of levels in a calibrated row; large ones for trees that predict 0 or 1
SHARES = (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.5)
Times = NDArray[np.int64]  # [m] how often each case counts
Numbers = Sequence[Floats | None]  # by parent; None: a 0-1 feature per level
POINTS = 7  # numbers that stand for a level; a prime, so that every stride visits all of them
Codes = dict[str, NDArray[np.intp]]  # level codes [m] by the name of a parent
TOGETHER = 1 << 17  # rows that are predicted together


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
    numbers: Numbers  # [V] [points, levels] that stand for levels; None: a 0-1 feature per level
    usual: Floats  # [levels] their overall frequencies
    calibration: Calibration
    source: str  # name of the learner

    @property
    def score(self) -> float:
        """Mean log score of cases of other folds; nan if there were too few for folds."""
        return self.calibration.score

    @property
    def plain(self) -> bool:
        """Whether every level of a parent is a 0-1 feature."""
        return all(own is None for own in self.numbers)

    def rows(self, columns: NDArray[np.integer]) -> Floats:
        """Return the distribution for each column of parent levels [V, m], [m, levels]."""
        rows = predict_levels(self.fitted, columns, self.sizes, self.numbers, len(self.usual))
        return self.calibration.apply(rows, self.usual)

    def rows_of(self, features: NDArray[np.float32]) -> Floats:
        """Return the distribution for each row of 0-1 features, if all are, [m, levels]."""
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

    A parent in `numbers` enters as the position of its level. One whose number was logged enters as
    that number, standardized. A model knows levels only, so there the prediction for a level is the
    mean of those for seven quantiles of the numbers that were logged with it.

    How even its rows should be, and how much of the overall frequencies of levels to add, is
    decided by the log score of predictions for cases of folds that it was not fitted to. So every
    level stays possible. Rows of configurations that were never seen are extrapolated.

    Up to two million cases are given one by one. If there are more, distinct cases are given with
    weights, at once or, if there are more than two million of these too, by `partial_fit`.
    """
    given = _Given(cases, learner, numbers)
    times = given.cases.weight.astype(np.int64)
    usual = np.bincount(given.cases.level, times, minlength=cases.levels) + 1 / cases.levels
    usual = usual / usual.sum()
    with one_thread() if len(given.cases.level) <= FEW else nullcontext():
        calibration, fitted = _calibrate(given, times, usual), given.fit(times)
    name = type(learner).__name__
    return Learned(fitted, cases.sizes, given.numbers, usual, calibration, name)


class _Given:
    """Cases in the form in which a learner takes them."""

    def __init__(self, cases: Cases, learner: Any, numbers: Collection[str]) -> None:
        self.learner = learner
        self.weights = _weights_argument(learner)  # "": cases are given one by one
        if cases.total <= MOST_CASES:
            cases, self.weights = _one_by_one(cases), ""
        self.batches = len(cases.level) > MOST_CASES
        self._check(cases)
        self.cases = cases
        self.logged = [_standardized(cases.logged.get(name)) for name in cases.names]
        self.numbers = [self._numbers(parent, numbers) for parent in range(len(cases.names))]

    def _numbers(self, parent: int, numbers: Collection[str]) -> Floats | None:
        """Return what stands for the levels of a parent, [points, levels]; None: 0-1 features."""
        cases, logged = self.cases, self.logged[parent]
        size = int(cases.sizes[parent])
        if logged is not None:
            earlier = sum(own is not None for own in self.logged[:parent])
            return level_numbers(cases.columns[parent], logged, size, earlier)
        return np.arange(float(size))[None] if cases.names[parent] in numbers else None

    def _check(self, cases: Cases) -> None:
        """Refuse more cases than the learner can take."""
        name, most = type(self.learner).__name__, f"{MOST_CASES:,}"
        if cases.total > MOST_CASES and not self.weights:
            raise ValueError(
                f"{cases.total:,.0f} cases: {name} learns from at most {most}, because its fit "
                "takes no sample_weight; use a classifier that does, learner='counts', or fewer "
                "episodes"
            )
        if self.batches and not hasattr(self.learner, "partial_fit"):
            raise ValueError(
                f"{len(cases.level):,} distinct cases: {name} learns from at most {most}, because "
                "it has no partial_fit; use a classifier that has one (SGDClassifier), "
                "learner='counts', or fewer variables, levels and uncut numbers"
            )

    def fit(self, times: Times) -> Any:
        """Fit a copy of the learner to the cases, each as often as it counts."""
        fitted, used = clone_learner(self.learner), np.flatnonzero(times)
        level = self.cases.level
        if not self.batches:
            weights = {self.weights: times[used]} if self.weights else {}
            return fitted.fit(self._features(used), level[used], **weights)
        used = np.random.default_rng(0).permutation(used)
        for start in range(0, len(used), BLOCK):
            rows = used[start : start + BLOCK]
            fitted.partial_fit(
                self._features(rows),
                level[rows],
                classes=np.unique(level),
                sample_weight=times[rows],
            )
        return fitted

    def predict(self, fitted: Any, rows: Offsets, levels: int) -> Floats:
        """Predict some cases from the levels of their parents, as a model will, [m, levels]."""
        found = np.empty((len(rows), levels))
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            columns = self.cases.columns[:, rows[part]]
            found[part] = predict_levels(fitted, columns, self.cases.sizes, self.numbers, levels)
        return found

    def _features(self, rows: Offsets) -> NDArray[np.float32]:
        exact = [None if own is None else own[rows] for own in self.logged]
        columns = self.cases.columns[:, rows]
        return make_features(columns, self.cases.sizes, at_point(self.numbers, 0), exact)


def _one_by_one(cases: Cases) -> Cases:
    """Return cases in which each counts once, and appears as often as it was logged."""
    times = cases.weight.astype(np.int64)
    return replace(
        cases,
        columns=np.repeat(cases.columns, times, axis=1),
        level=np.repeat(cases.level, times),
        weight=np.ones(times.sum()),
        logged={name: np.repeat(own, times) for name, own in cases.logged.items()},
    )


def _standardized(logged: Floats | None) -> Floats | None:
    """Return numbers with mean 0 and standard deviation 1, or all 0."""
    if logged is None:
        return None
    spread = logged.std()
    return np.asarray((logged - logged.mean()) / (spread if spread > 0 else 1.0))


def _weights_argument(learner: Any) -> str:
    """Return the name under which `fit` takes weights of cases, "" if it takes none."""
    prefix = ""
    while hasattr(learner, "steps"):  # a pipeline
        name, learner = learner.steps[-1]
        prefix += f"{name}__"
    takes = "sample_weight" in inspect.signature(learner.fit).parameters
    return f"{prefix}sample_weight" if takes else ""


def predict_levels(
    fitted: Any, columns: NDArray[np.integer], sizes: Offsets, numbers: Numbers, levels: int
) -> Floats:
    """Predict from levels of parents [V, m], as the mean over what stands for them, [m, levels]."""
    points = range(points_of(numbers))
    features = (make_features(columns, sizes, at_point(numbers, point)) for point in points)
    return np.mean([predict(fitted, one, levels) for one in features], axis=0)


def predict(fitted: Any, features: NDArray[np.float32], levels: int) -> Floats:
    """Return predicted probabilities [m, levels]; 0 for levels that the classifier never saw."""
    rows = np.zeros((len(features), levels))
    rows[:, fitted.classes_] = fitted.predict_proba(features)
    return rows


def _calibrate(given: _Given, times: Times, usual: Floats) -> Calibration:
    """Choose the calibration by the log score of predictions for folds that were left out."""
    level = given.cases.level
    # with two levels seen twice, two levels are left whichever fold is taken out
    if (np.bincount(level, times) > 1).sum() < 2:
        return Calibration()
    score = np.zeros((len(TEMPERATURES), len(SHARES)))
    for left_out in _folds(level, times):
        here = np.flatnonzero(left_out)
        rows = given.predict(given.fit(times - left_out), here, len(usual))
        own = np.arange(len(here)), level[here]
        for number, temperature in enumerate(TEMPERATURES.tolist()):
            even = Calibration(temperature, 0.0).apply(rows, usual)[own]
            for place, share in enumerate(SHARES):
                chance = (1 - share) * even + share * usual[level[here]]
                score[number, place] += left_out[here] @ np.log(chance)
    chosen, place = divmod(int(score.argmax()), len(SHARES))
    best = float(score.max() / times.sum())
    return Calibration(float(TEMPERATURES[chosen]), SHARES[place], best)


def _folds(level: NDArray[np.integer], times: Times) -> list[Times]:
    """Return how often each case is in each fold: every level as evenly as can be."""
    mixed = np.random.default_rng(0).permutation(len(level))
    order = mixed[np.argsort(level[mixed], kind="stable")]
    before = np.cumsum(times[order]) - times[order]
    first = before - before[np.searchsorted(level[order], level[order])]
    folds = np.zeros((FOLDS, len(level)), np.int64)
    for fold in range(FOLDS):  # of the places first, first + 1, … of a case, every fifth
        upto = (first + times[order] - 1 - fold) // FOLDS
        folds[fold, order] = upto - (first - 1 - fold) // FOLDS
    return [fold for fold in folds if fold.any()]


def clone_learner(learner: Any) -> Any:
    """Return an unfitted copy; only this needs scikit-learn."""
    try:
        from sklearn.base import clone  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise ValueError(
            "classifiers need scikit-learn: pip install 'butfor[cluster]', or use 'counts'"
        ) from error
    return clone(learner)


def make_features(
    columns: NDArray[np.integer], sizes: Offsets, numbers: Numbers, logged: Numbers | None = None
) -> NDArray[np.float32]:
    """Return the features of parents with these levels [V, m], [m, features].

    A parent with `numbers` [levels] is one feature: the number of its level, or the `logged` one,
    [m]. Any other parent is 0-1 by level.
    """
    width = [int(size) if own is None else 1 for size, own in zip(sizes, numbers, strict=True)]
    features = np.zeros((columns.shape[1], sum(width)), np.float32)
    first = 0
    for parent, column in enumerate(columns):
        own, exact = numbers[parent], None if logged is None else logged[parent]
        if own is None:
            features[np.arange(len(column)), first + column] = 1.0
        else:
            features[:, first] = own[column] if exact is None else exact
        first += width[parent]
    return features


def points_of(numbers: Numbers) -> int:
    """Return how many numbers stand for a level at most."""
    return max((len(own) for own in numbers if own is not None), default=1)


def at_point(numbers: Numbers, point: int) -> Numbers:
    """Return the number [levels] that stands for each level of a parent at one point."""
    return [None if own is None else own[point % len(own)] for own in numbers]


def level_numbers(level: NDArray[np.integer], logged: Floats, size: int, place: int = 0) -> Floats:
    """Return the numbers that stand for each level, [POINTS, size]: quantiles of those logged.

    A level that was never logged lies between its neighbors. Quantiles come in another order for
    each `place` among the parents with numbers, so that low does not always meet low.
    """
    seen, stride = np.unique(level), 1 + place % (POINTS - 1)
    order = np.arange(POINTS) * stride % POINTS
    quantiles = [np.quantile(logged[level == one], (order + 0.5) / POINTS) for one in seen]
    found = [np.interp(np.arange(size), seen, point) for point in np.transpose(quantiles)]
    return np.array(found)


@dataclass(frozen=True, eq=False, repr=False)
class Predictor(Printed):
    """P(level | parents) as a calibrated classifier predicts it, of a variable or of the end.

    The same as a `Factor`, where a table of all combinations of parents would be too large.
    """

    variable: str  # "": the end
    parents: tuple[str, ...]
    learned_from: Learned  # the classifier with its features and its calibration
    cases: int  # logged transitions that it was learned from

    strength, every = math.nan, False  # there is no back-off
    learned = True

    @property
    def source(self) -> str:
        """Name of the learner."""
        return self.learned_from.source

    @property
    def score(self) -> float:
        """Mean log score of a case in a fold that was left out of what was learned."""
        return self.learned_from.score

    @property
    def levels(self) -> int:
        """Number of levels of the variable; of the end, the outcomes and none."""
        return len(self.learned_from.usual)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that a table would have."""
        return (*(int(size) for size in self.learned_from.sizes), self.levels)

    @property
    def table(self) -> Floats:
        """Raise an error: there is none."""
        raise ValueError(self._no_table())

    @property
    def counts(self) -> Floats:
        """Raise an error: there are none."""
        raise ValueError(self._no_table())

    def rows(self, codes: Codes) -> Floats:
        """Return the distribution for each row of parent codes, [m, levels]."""
        columns = np.array([codes[parent] for parent in self.parents])
        found = np.empty((columns.shape[1], self.levels))
        for start in range(0, len(found), TOGETHER):
            part = slice(start, start + TOGETHER)
            found[part] = self.learned_from.rows(columns[:, part])
        return found

    def _no_table(self) -> str:
        return (
            f"{self.variable or '(end)'!r} is predicted by a {self.source} from "
            f"{len(self.parents)} parents, too many for a table; name fewer in parents=, or use "
            "learner='counts'"
        )

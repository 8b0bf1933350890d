"""Features of classifiers: one 0-1 feature per level of a parent, or one number for all levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from butfor.types import Floats, Offsets

Numbers = Sequence[Floats | None]  # by parent; None: a 0-1 feature per level
POINTS = 7  # numbers that stand for a level; a prime, so that every stride visits all of them


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

"""ExactSums: sums of floats that do not depend on the order or grouping of the additions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_integers, check_whole
from butfor.types import Floats

# Exponent of the lowest bit, by the number of limbs: 10 hold 2^-96 to 2^160, 68 hold all floats.
LOWEST = {10: -96, 68: -1088}
NARROW, WIDE = LOWEST
BLOCK = 500  # rows that are looked at together, while they are in the cache


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Sums by group and column, as multiples of 2^-96 or of 2^-1088, in limbs of 32 bits.

    The part of an item below that unit is cut off; with wide limbs there is none. The last two
    limbs count the items too large to represent or inf, and those too low or -inf; nan counts as
    both. A sum with one kind of them is inf or -inf, with both it is nan. Up to 2^31 items can be
    added.
    """

    limbs: NDArray[np.int64]  # [10 or 68, groups, columns]

    def __post_init__(self) -> None:
        limbs = np.require(self.limbs, requirements=["C", "W"])  # copies only if necessary
        if limbs.ndim != 3 or limbs.shape[0] not in LOWEST or limbs.dtype != np.int64:
            raise ValueError(
                f"limbs have shape {limbs.shape} and type {limbs.dtype}, expected "
                f"({NARROW} or {WIDE}, groups, columns) and int64"
            )
        object.__setattr__(self, "limbs", limbs)

    @classmethod
    def make(cls, groups: int, columns: int, *, wide: bool = False) -> ExactSums:
        """Return sums that are all 0; wide ones can hold items of any size."""
        check_whole(groups, "groups", 1, "a whole number")
        check_whole(columns, "columns", 1, "a whole number")
        return cls(np.zeros((WIDE if wide else NARROW, groups, columns), np.int64))

    def add(self, group: ArrayLike, values: ArrayLike) -> None:
        """Add each row of values [n, columns] to its group [n]."""
        rows = np.ascontiguousarray(values, dtype=np.float64)
        where = np.ascontiguousarray(check_integers(group, "group"))
        size, groups, columns = self.limbs.shape
        if rows.shape != (len(where), columns):
            raise ValueError(
                f"values have shape {rows.shape}, expected ({len(where)}, {columns}): one row per "
                "group given, one column per sum"
            )
        if len(where) and not 0 <= where.min() <= where.max() < groups:
            wrong = int(((where < 0) | (where >= groups)).argmax())
            raise ValueError(f"group at {wrong} is {where[wrong]}, outside 0..{groups - 1}")
        kernels.add_exactly(where, rows.view(np.int64), self.limbs, LOWEST[size])

    def add_packed(
        self, shape: NDArray[np.int64], place: NDArray[np.int64], value: NDArray[np.int64]
    ) -> None:
        """Add sums of the same shape that were packed."""
        assert tuple(shape) == self.limbs.shape
        self.limbs.reshape(-1)[place] += value

    def packed(self) -> dict[str, NDArray[np.int64]]:
        """Return the nonzero limbs, to be stored or sent: few sums need all of their limbs."""
        place = np.flatnonzero(self.limbs)
        shape = np.array(self.limbs.shape)
        return {"shape": shape, "place": place, "value": self.limbs.reshape(-1)[place]}

    @classmethod
    def pack(
        cls, group: NDArray[np.int64], blocks: Sequence[Floats], groups: int, *, wide: bool = False
    ) -> dict[str, NDArray[np.int64]]:
        """Return the packed sums of blocks of columns, side by side.

        Meanwhile there are only the limbs that the values of one block can reach.
        """
        size, columns = (WIDE if wide else NARROW), sum(block.shape[1] for block in blocks)
        places, values, before = [], [], 0
        for block in blocks:
            low, limbs = _add_up(group, block, groups, size)
            found = np.flatnonzero(limbs)
            row, column = np.divmod(found, block.shape[1])
            places.append((row + low * groups) * columns + before + column)
            values.append(limbs.reshape(-1)[found])
            before += block.shape[1]
        return {
            "shape": np.array([size, groups, columns]),
            "place": np.concatenate(places),
            "value": np.concatenate(values),
        }

    @classmethod
    def unpack(
        cls, shape: NDArray[np.int64], place: NDArray[np.int64], value: NDArray[np.int64]
    ) -> ExactSums:
        """Undo `packed`."""
        limbs = np.zeros(shape, np.int64)
        limbs.reshape(-1)[place] = value
        return cls(limbs)

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactSums.unpack, tuple(self.packed().values())

    def values(self) -> Floats:
        """Return the sums as floats, correctly rounded, [groups, columns]."""
        size, groups, columns = self.limbs.shape
        *digits, above, below = self.limbs.reshape(size, -1)
        totals = [0] * (groups * columns)
        for number, limb in enumerate(digits):
            for place in np.flatnonzero(limb).tolist():
                totals[place] += int(limb[place]) << 32 * number
        rounded = np.array([_divide(total, 1 << -LOWEST[size]) for total in totals])
        rounded[above > 0] = np.inf
        rounded[below > 0] = -np.inf
        rounded[(above > 0) & (below > 0)] = np.nan
        return rounded.reshape(groups, columns)


def _add_up(
    group: NDArray[np.int64], values: Floats, groups: int, size: int
) -> tuple[int, NDArray[np.int64]]:
    """Return the limbs that sums of these values can reach, and how many are below them."""
    # places of the last bits of the smallest and the largest value; each has 53 bits
    last = [(math.frexp(end)[1] - 53 - LOWEST[size]) // 32 for end in _find_range(values)]
    high = min(max(last[1], 0) + 3, size - 2)
    low = min(max(last[0], 0), high)
    limbs = np.zeros((high - low + 2, groups, values.shape[1]), np.int64)
    bits = np.ascontiguousarray(values).view(np.int64)
    kernels.add_exactly(group, bits, limbs, LOWEST[size] + 32 * low)
    return low, limbs


def _find_range(values: Floats) -> tuple[float, float]:
    """Return the smallest and the largest size of values other than 0, or the widest range."""
    least, most = np.inf, 0.0
    for start in range(0, len(values), BLOCK):
        sizes = np.abs(values[start : start + BLOCK])
        most = np.maximum(most, sizes.max())  # nan stays
        sizes[sizes == 0.0] = np.inf
        least = min(least, float(sizes.min()))
    known = least < np.inf and most < np.inf  # not if there is nothing but 0, or inf, or nan
    return (least, float(most)) if known else (5e-324, 2.0**1023)


def _divide(total: int, unit: int) -> float:
    """Return the quotient of two integers of any size, correctly rounded."""
    try:
        return total / unit
    except OverflowError:
        return math.inf if total > 0 else -math.inf

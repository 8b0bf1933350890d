"""ExactSums: sums of floats that come out the same in whatever order and parts they are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_integers, check_whole
from butfor.variables import Floats

UNIT = 1 << -kernels.LOWEST


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Sums by group and column as whole numbers of 2^-96, in limbs of 32 bits.

    Of each item what lies below 2^-96 is cut off. The last two limbs count the items that are at
    least 2^159 or inf, and those that are at most -2^159 or -inf; nan counts as both. A sum with
    one kind of them is inf or -inf, with both nan. A sum takes 2^31 items.
    """

    limbs: NDArray[np.int64]  # [groups, columns, 10], a copy of what was given

    def __post_init__(self) -> None:
        limbs = np.array(self.limbs, order="C")
        if limbs.ndim != 3 or limbs.shape[2] != kernels.LIMBS or limbs.dtype != np.int64:
            raise ValueError(
                f"limbs have shape {limbs.shape} and type {limbs.dtype}, expected "
                f"(groups, columns, {kernels.LIMBS}) and int64"
            )
        object.__setattr__(self, "limbs", limbs)

    @classmethod
    def make(cls, groups: int, columns: int) -> ExactSums:
        """Return sums that are all 0."""
        check_whole(groups, "groups", 1, "a whole number")
        check_whole(columns, "columns", 1, "a whole number")
        return cls(np.zeros((groups, columns, kernels.LIMBS), np.int64))

    def add(self, group: ArrayLike, values: ArrayLike) -> None:
        """Add each row of values [n, columns] to its group [n]."""
        rows = np.ascontiguousarray(values, dtype=np.float64)
        where = np.ascontiguousarray(check_integers(group, "group"))
        groups, columns = self.limbs.shape[:2]
        if rows.shape != (len(where), columns):
            raise ValueError(
                f"values have shape {rows.shape}, expected ({len(where)}, {columns}): a row for "
                "each group given, a column for each sum"
            )
        if len(where) and not 0 <= where.min() <= where.max() < groups:
            wrong = int(((where < 0) | (where >= groups)).argmax())
            raise ValueError(f"group at {wrong} is {where[wrong]}, outside 0..{groups - 1}")
        kernels.add_exactly(where, rows.view(np.int64), self.limbs)

    def merge(self, other: ExactSums) -> None:
        """Add what others have summed."""
        if self.limbs.shape != other.limbs.shape:
            raise ValueError(
                f"sums of shapes {self.limbs.shape[:2]} and {other.limbs.shape[:2]} cannot be "
                "merged; make both for the same groups and columns"
            )
        np.add(self.limbs, other.limbs, out=self.limbs)

    def packed(self) -> dict[str, NDArray[np.int64]]:
        """Return what is not 0, to be stored or sent: few sums need all of their limbs."""
        place = np.flatnonzero(self.limbs)
        shape = np.array(self.limbs.shape)
        return {"shape": shape, "place": place, "value": self.limbs.reshape(-1)[place]}

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
        groups, columns = self.limbs.shape[:2]
        rounded = [_round(limbs) for limbs in self.limbs.reshape(-1, kernels.LIMBS).tolist()]
        return np.array(rounded).reshape(groups, columns)


def _round(limbs: list[int]) -> float:
    *digits, above, below = limbs
    if above or below:
        return float("nan") if above and below else float("inf") if above else float("-inf")
    total = 0
    for digit in reversed(digits):
        total = (total << 32) + digit
    return total / UNIT  # whole numbers of any size: Python rounds their quotient correctly

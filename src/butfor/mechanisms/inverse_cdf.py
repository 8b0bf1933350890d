"""The inverse CDF: one uniform number, looked up in the cumulative sums of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from butfor import kernels
from butfor.mechanisms.protocol import kernel_coupling, rows_by_kernel


@dataclass(frozen=True)
class InverseCDF:
    """The outcome is the one whose interval contains the uniform noise.

    Each row divides [0, 1] among its outcomes, in the same order. Two orders are two mechanisms
    with the same rows and different counterfactuals: the paper's example of why these are not
    identified. The mechanism does not obey counterfactual stability, except with two outcomes,
    where it is 1{U <= g(x, t)} and agrees with Gumbel-Max.

    Parameters
    ----------
    order : optional
        The outcomes, counted from 0, from the lowest interval to the highest; by default in the
        order of their numbers. For episodes: the labels of next states, then of outcomes.

        "value", for episodes only: next states in the order of the target's value there, in the
        model over the whole horizon, and outcomes by their reward; ties in the order of their
        numbers. Of all couplings of two rows, this one changes the value least: E|v(Y') - v(Y)| is
        the smallest that the rows allow.
    """

    order: Sequence[int] | str | None = None

    def __post_init__(self) -> None:
        if self.order is None or self.by_value:
            return
        given = np.asarray(self.order)
        whole = given.dtype.kind in "iu" and given.ndim == 1
        if not whole or not np.array_equal(np.sort(given), np.arange(len(given))):
            raise ValueError(
                f"order {self.order!r} is not a permutation: list each of 0..n - 1 once, from the "
                "lowest interval to the highest, or give 'value'"
            )
        object.__setattr__(self, "order", tuple(given.tolist()))

    @property
    def by_value(self) -> bool:
        """Whether the order is that of the target's values, which only a `Replay` knows."""
        return isinstance(self.order, str) and self.order == "value"

    counterfactual_rows = rows_by_kernel

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism over `size` outcomes, as kernels take it."""
        if self.by_value:
            raise ValueError(
                "order 'value' is that of the target's values of next states: give it to a Replay "
                "of a TabularMDP, or of a FactoredModel with noise='state'; elsewhere list the "
                "outcomes"
            )
        if self.order is None:
            return kernel_coupling(kernels.INVERSE_CDF, np.arange(size))
        if len(self.order) != size:
            raise ValueError(
                f"order lists {len(self.order)} outcomes, but there are {size}; list every one"
            )
        return kernel_coupling(kernels.INVERSE_CDF, np.argsort(np.asarray(self.order)))

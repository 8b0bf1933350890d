"""The inverse CDF: one uniform number, looked up in the running sums of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.mechanisms.protocol import kernel_coupling
from butfor.types import Floats


@dataclass(frozen=True)
class InverseCDF:
    """The outcome is the one whose interval the uniform noise falls into.

    Each row divides [0, 1] among its outcomes, in the same order. Two orders are two mechanisms
    with the same rows and other counterfactuals: the paper's example of why these are not
    identified. It does not obey counterfactual stability, except for two outcomes, where it is
    1{U <= g(x, t)} and gives the same answers as Gumbel-Max.

    Parameters
    ----------
    order : optional
        The outcomes, counted from 0, from the lowest interval to the highest; by default as they
        are numbered. For episodes: the labels of next states, then of outcomes.
    """

    order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.order is None:
            return
        given = np.asarray(self.order)
        whole = given.dtype.kind in "iu" and given.ndim == 1
        if not whole or not np.array_equal(np.sort(given), np.arange(len(given))):
            raise ValueError(
                f"order {self.order!r} is no permutation: list each of 0..n - 1 once, from the "
                "lowest interval to the highest"
            )
        object.__setattr__(self, "order", tuple(given.tolist()))

    def counterfactual_rows(
        self, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
    ) -> Floats:
        """Return P(outcome under the counterfactual row | the observed one), exact, [m, n]."""
        coupling = self.coupling(factual.shape[1])
        return np.asarray(kernels.counterfactual_rows(coupling, factual, counterfactual, observed))

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism over `size` outcomes, as kernels take it."""
        if self.order is None:
            return kernel_coupling(kernels.INVERSE_CDF, np.arange(size))
        if len(self.order) != size:
            raise ValueError(f"order lists {len(self.order)} outcomes, but there are {size}")
        return kernel_coupling(kernels.INVERSE_CDF, np.argsort(np.array(self.order)))

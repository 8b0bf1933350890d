"""Maximal coupling: what was observed changes as rarely as the two rows allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.mechanisms.protocol import kernel_coupling
from butfor.types import Floats


@dataclass(frozen=True)
class MaximalCoupling:
    """The observed outcome stays with probability min(1, q_k / p_k); else q's excess over p takes.

    For a pair of rows it obeys counterfactual stability, as Gumbel-Max does: stability alone does
    not pick Gumbel-Max when there are more than two outcomes. But it is a coupling of each pair:
    with three rows there is often no single noise that makes all pairs maximal, so this settles
    nothing about mechanisms of whole models. It answers: what if as little as possible changed?
    """

    def counterfactual_rows(
        self, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
    ) -> Floats:
        """Return P(outcome under the counterfactual row | the observed one), exact, [m, n]."""
        coupling = self.coupling(factual.shape[1])
        return np.asarray(kernels.counterfactual_rows(coupling, factual, counterfactual, observed))

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism as kernels take it."""
        return kernel_coupling(kernels.MAXIMAL)

"""Maximal coupling: the observed outcome changes as rarely as the two rows allow."""

from __future__ import annotations

from dataclasses import dataclass

from butfor import kernels
from butfor.mechanisms.protocol import kernel_coupling, rows_by_kernel


@dataclass(frozen=True)
class MaximalCoupling:
    """The observed outcome stays with probability min(1, q_k / p_k); else the excess of q decides.

    For a pair of rows it obeys counterfactual stability, as Gumbel-Max does: stability alone does
    not single out Gumbel-Max when there are more than two outcomes. But it couples each pair
    separately: with three rows there is often no single noise that makes all pairs maximal, so it
    is not a mechanism of a whole model. It answers: what if as little as possible changed?
    """

    counterfactual_rows = rows_by_kernel

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism as kernels take it."""
        return kernel_coupling(kernels.MAXIMAL)

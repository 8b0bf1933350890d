"""Bounds of one row over all mechanisms, or over all stable ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.mechanisms.protocol import check_rows
from butfor.printed import Printed
from butfor.types import Floats


@dataclass(frozen=True, eq=False, repr=False)
class RowBounds(Printed):
    """Lowest and highest expected value under a row, over two classes of mechanisms."""

    any: Floats  # [2] or [m, 2] lowest and highest over all mechanisms
    stable: Floats  # [2] or [m, 2] over those that obey counterfactual stability


def row_bounds(
    factual: ArrayLike, counterfactual: ArrayLike, observed: ArrayLike, value: ArrayLike
) -> RowBounds:
    """Bound the expected value under another row, given the observed outcome of the factual one.

    Over all mechanisms, outcome j takes at most q_j / p_k of the mass, so the lowest value is a
    greedy fill from the least value up (the lower tail of the value under q at level p_k). Over
    stable ones, mass moves only to outcomes with a strictly larger q / p; ratios within 1e-9 count
    as equal. Both bounds are sharp for a pair of rows: they equal the linear program over all
    couplings.

    Parameters
    ----------
    factual, counterfactual : [n] or [m, n]
        Probabilities of the same n outcomes, under the action taken and under the alternative.
    observed : int or [m]
        The observed outcome, counted from 0.
    value : [n] or [m, n]
        The value of each outcome. With 1 at j and 0 elsewhere the probability of j is bounded.
    """
    p, q, k, shape = check_rows(factual, counterfactual, observed)
    worth = np.asarray(value, dtype=np.float64)
    if worth.shape not in (p.shape[1:], p.shape) or not np.isfinite(worth).all():
        raise ValueError(
            f"value has shape {worth.shape}, expected a finite number for each of the "
            f"{p.shape[1]} outcomes, {p.shape[1:]} or {p.shape}"
        )
    worth = np.ascontiguousarray(np.broadcast_to(worth, p.shape))
    found = kernels.row_bounds(p, q, k, worth)
    return RowBounds(
        any=found[:, 0].reshape(*shape, 2),
        stable=found[:, 1].reshape(*shape, 2),
    )

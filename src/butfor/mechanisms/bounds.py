"""What every mechanism, or every stable one, must agree on: bounds for rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.mechanisms.protocol import check_rows
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class RowBounds:
    """Lowest and highest expected value of a row, over two classes of mechanisms."""

    any: Floats  # [2] or [m, 2] lowest and highest over all mechanisms
    stable: Floats  # [2] or [m, 2] over those that obey counterfactual stability


def row_bounds(
    factual: ArrayLike, counterfactual: ArrayLike, observed: ArrayLike, value: ArrayLike
) -> RowBounds:
    """Bound the expected value under another row, given what happened under the factual one.

    Over all mechanisms: outcome j takes at most q_j / p_k of the mass, so that the lowest is a
    greedy fill from the least value up (the lower tail of the value under q at level p_k). Over
    stable ones mass moves only to outcomes with a strictly larger q / p, ratios within 1e-9 being
    equal. Both are sharp for a pair of rows: equal to the linear program over all couplings.

    Parameters
    ----------
    factual, counterfactual : [n] or [m, n]
        Probabilities of the same n outcomes, under what was done and under what was not.
    observed : int or [m]
        The outcome that happened, counted from 0.
    value : [n] or [m, n]
        What is to be bounded: 0 everywhere but 1 at j bounds the probability of j.
    """
    p, q, k, shape = check_rows(factual, counterfactual, observed)
    worth = np.asarray(value, dtype=np.float64)
    if worth.shape not in (p.shape[1:], p.shape) or not np.isfinite(worth).all():
        raise ValueError(
            f"value has shape {worth.shape}, expected a number for each of the {p.shape[1]} "
            f"outcomes, {p.shape[1:]} or {p.shape}, none of them missing or infinite"
        )
    worth = np.ascontiguousarray(np.broadcast_to(worth, p.shape))
    found = kernels.row_bounds(p, q, k, worth)
    return RowBounds(
        any=found[:, 0].reshape(*shape, 2),
        stable=found[:, 1].reshape(*shape, 2),
    )

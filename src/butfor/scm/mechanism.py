"""What a mechanism is, and the counterfactual of one row under any of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_distributions
from butfor.variables import Floats


class Mechanism(Protocol):
    """A causal mechanism for a categorical variable: one noise, one outcome for every row."""

    def counterfactual_rows(
        self, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
    ) -> Floats:
        """Return P(outcome under the counterfactual row | the observed one), all [m, n]."""
        ...


def counterfactual_rows(
    mechanism: Mechanism, factual: ArrayLike, counterfactual: ArrayLike, observed: ArrayLike
) -> Floats:
    """Check the rows, align them, and ask the mechanism."""
    p = check_distributions(factual, "factual row")
    q = check_distributions(counterfactual, "counterfactual row")
    seen = np.asarray(observed)
    if seen.dtype.kind not in "iu":
        raise ValueError(
            f"observed {observed!r}: give the position of what happened, counted from 0"
        )
    if p.ndim not in (1, 2) or q.ndim not in (1, 2) or p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"rows of shapes {p.shape} and {q.shape}: both must list the same outcomes, "
            "[n] for one pair or [m, n] for many"
        )
    size = p.shape[-1]
    try:
        shape = np.broadcast_shapes(p.shape[:-1], q.shape[:-1], seen.shape)
    except ValueError:
        raise ValueError(
            f"{p.shape[:-1]} factual rows, {q.shape[:-1]} counterfactual rows and {seen.shape} "
            "observed outcomes do not fit together"
        ) from None
    if len(shape) > 1:
        raise ValueError(f"observed has shape {seen.shape}, expected one number a row")
    count = shape[0] if shape else 1
    p, q = (np.ascontiguousarray(np.broadcast_to(rows, (count, size))) for rows in (p, q))
    k = np.ascontiguousarray(np.broadcast_to(seen, (count,)), dtype=np.int64)
    outside = (k < 0) | (k >= size)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"row {row}: observed outcome {k[row]} outside 0..{size - 1}")
    impossible = p[np.arange(count), k] == 0
    if impossible.any():
        row = int(impossible.argmax())
        raise ValueError(
            f"row {row}: the observed outcome {k[row]} has probability 0 in the factual row; "
            "what was seen cannot be impossible, so the model or the order of the outcomes is wrong"
        )
    return mechanism.counterfactual_rows(p, q, k).reshape(*shape, size)

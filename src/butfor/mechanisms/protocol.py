"""The protocol of mechanisms, and the counterfactual of one row under any of them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_distributions
from butfor.types import Floats

ANSWER_TOLERANCE = 1e-9  # a mechanism's row may miss 1 by this much


@runtime_checkable
class Mechanism(Protocol):
    """A causal mechanism for a categorical variable: the same noise decides under every row."""

    def counterfactual_rows(
        self, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
    ) -> Floats:
        """Return P(outcome under the counterfactual row | the observed one), [m, n].

        Rows are [m, n], `observed` is [m]. The result consists of distributions within the support
        of the counterfactual rows, which average to these: sum_k p_k P(. | k) = q.
        """
        ...


@runtime_checkable
class Compiled(Mechanism, Protocol):
    """A mechanism built into the kernels, so that no table of its rows has to be made first."""

    def coupling(self, size: int) -> kernels.Coupling:
        """Return the mechanism over `size` outcomes (labels), as kernels take it."""
        ...


def kernel_coupling(kind: int, rank: NDArray[np.int64] | None = None) -> kernels.Coupling:
    """Return the kernel form of a built-in mechanism."""
    none = np.empty(0, np.int64)
    return kernels.Coupling(kind, none if rank is None else rank, none, none, np.empty(0))


def rows_by_kernel(
    mechanism: Compiled, factual: Floats, counterfactual: Floats, observed: NDArray[np.int64]
) -> Floats:
    """Return P(outcome under the counterfactual row | the observed one), exact, [m, n]."""
    coupling = mechanism.coupling(factual.shape[1])
    return np.asarray(kernels.counterfactual_rows(coupling, factual, counterfactual, observed))


def check_mechanism(mechanism: object) -> Mechanism:
    """Return a mechanism; refuse anything else, including a class instead of its instance."""
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        raise ValueError(
            f"mechanism {mechanism!r}: give one of GumbelMax(), InverseCDF(), MaximalCoupling(), "
            "Independent(), or an object with a method counterfactual_rows"
        )
    return mechanism


def counterfactual_rows(
    mechanism: Mechanism, factual: ArrayLike, counterfactual: ArrayLike, observed: ArrayLike
) -> Floats:
    """Return the mechanism's counterfactual rows, with inputs and result checked."""
    p, q, k, shape = check_rows(factual, counterfactual, observed)
    found = check_mechanism(mechanism).counterfactual_rows(p, q, k)
    return _check_answer(mechanism, found, q).reshape(*shape, p.shape[1])


def check_rows(
    factual: ArrayLike, counterfactual: ArrayLike, observed: ArrayLike
) -> tuple[Floats, Floats, NDArray[np.int64], tuple[int, ...]]:
    """Return both rows [m, n] and outcomes [m], checked; and the requested shape, () or (m,)."""
    p = check_distributions(factual, "factual row")
    q = check_distributions(counterfactual, "counterfactual row")
    seen = np.asarray(observed)
    if seen.dtype.kind not in "iu":
        raise ValueError(
            f"observed {observed!r}: give the position of the observed outcome, counted from 0"
        )
    if p.ndim not in (1, 2) or q.ndim not in (1, 2) or p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"rows of shapes {p.shape} and {q.shape}: give the same outcomes in both, [n] for one "
            "pair or [m, n] for many"
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
        raise ValueError(f"observed has shape {seen.shape}, expected one number per row")
    count = shape[0] if shape else 1
    p, q = (np.ascontiguousarray(np.broadcast_to(rows, (count, size))) for rows in (p, q))
    k = np.ascontiguousarray(np.broadcast_to(seen, (count,)), dtype=np.int64)
    outside = (k < 0) | (k >= size)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(f"row {row}: observed outcome {k[row]} is outside 0..{size - 1}")
    impossible = p[np.arange(count), k] == 0
    if impossible.any():
        row = int(impossible.argmax())
        raise ValueError(
            f"row {row}: the observed outcome {k[row]} has probability 0 in the factual row; check "
            "the model and the order of the outcomes"
        )
    return p, q, k, shape


def _check_answer(mechanism: Mechanism, found: ArrayLike, q: Floats) -> Floats:
    """Return a mechanism's rows if each is a distribution within the support of its row q."""
    rows = np.asarray(found, dtype=np.float64)
    if rows.shape != q.shape:
        raise ValueError(f"{mechanism!r} returned shape {rows.shape}, expected {q.shape}")
    total = rows.sum(axis=1)
    bad = ~(np.abs(total - 1.0) <= ANSWER_TOLERANCE) | ~(rows >= 0.0).all(axis=1)
    bad |= ((rows > 0.0) & (q == 0.0)).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"{mechanism!r} returned {_shorten(rows[row])}, which sums to {total[row]:.9g}, for "
            f"the counterfactual row {_shorten(q[row])}: its rows must be distributions over the "
            "outcomes that the counterfactual row allows"
        )
    return rows


def _shorten(row: Floats) -> str:
    return np.array2string(row, precision=6, threshold=8, edgeitems=3, separator=", ")

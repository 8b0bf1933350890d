"""The counterfactual of one row under each mechanism.

Symbols are those of the paper: p is the factual row, q the counterfactual one, k the observed
outcome.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import (
    find_label,
    make_scratch,
    scatter,
    sort_by_ratio,
    sparse_rows,
    unscatter,
)

GUMBEL_MAX, INVERSE_CDF, MAXIMAL, INDEPENDENT, TABLE = range(5)


@by_reference
class Coupling(NamedTuple):
    """A mechanism in the form that kernels take."""

    kind: int
    rank: NDArray[np.int64]  # INVERSE_CDF: [labels] position of each label in the order
    # TABLE: precomputed rows, by the key of an observed entry and a row:
    # entry * (number of rows) + row
    key: NDArray[np.int64]  # [M] increasing
    start: NDArray[np.int64]  # [M] first position of each in `mass`
    mass: NDArray[np.float64]


@bare
def counterfactual_row(coupling, rows, row, seen_row, seen_entry, p, scratch):
    """Fill the start of `scratch.mass` with P(Y' = entry of `row` | Y = seen_entry).

    `p` is `seen_row`, the factual row, by label. The observed entry must be possible.
    """
    k = rows.label[seen_entry]
    if coupling.kind == GUMBEL_MAX:
        gumbel_max_row(rows, row, p, k, scratch)
    elif coupling.kind == INVERSE_CDF:
        inverse_cdf_row(rows, row, seen_row, seen_entry, coupling.rank, scratch)
    elif coupling.kind == MAXIMAL:
        maximal_row(rows, row, p, k, scratch)
    elif coupling.kind == INDEPENDENT:
        start, stop = rows.start[row], rows.start[row + 1]
        for i in range(stop - start):
            scratch.mass[i] = rows.probability[start + i]
    else:
        place = np.searchsorted(coupling.key, seen_entry * (len(rows.start) - 1) + row)
        first = coupling.start[place]
        for i in range(rows.start[row + 1] - rows.start[row]):
            scratch.mass[i] = coupling.mass[first + i]


@bare
def gumbel_max_row(rows, row, p, k, scratch):
    """Fill the start of `scratch.mass` with P(Y' = entry of `row` | Y = k).

    With r_i = p_i / q_i and D(u) = sum_i max(p_i, u q_i): the observed label keeps 1 / D(r_k),
    an entry with r_j < r_k gets q_j times the integral of 1 / D^2 from r_j to r_k, others 0.
    D is linear between breaks; there the integral is (u2 - u1) / D(u1) / D(u2).
    `p` is the factual row by label, q the given row.
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    label, q = rows.label, rows.probability
    mass, ratio, order = scratch
    slope = 0.0  # of D: the sum of q over entries whose break has been passed
    met = 0  # entries whose break is not at 0
    at_k = -1
    for i in range(size):
        x = label[start + i]
        if p[x] == 0.0:
            slope += q[start + i]
            continue
        if x == k:
            at_k = i
        order[met] = i
        met += 1
    r_k = p[k] / q[start + at_k] if at_k >= 0 else np.inf
    breaks = 0  # of entries that may receive mass; they come first in `order`
    for m in range(met):
        i = order[m]
        r_i = p[label[start + i]] / q[start + i]
        if r_i < r_k:
            ratio[breaks] = r_i
            order[m], order[breaks] = order[breaks], i
            breaks += 1
    sort_by_ratio(ratio, order, breaks)

    # forward from break to break; ratio[b] becomes the integral over the segment before it
    at, height = 0.0, 1.0
    for b in range(breaks):
        ahead = height + (ratio[b] - at) * slope
        segment = (ratio[b] - at) / height / ahead
        at, height = ratio[b], ahead
        ratio[b] = segment
        slope += q[start + order[b]]
    stays = 0.0
    if r_k < np.inf:  # otherwise k is impossible under q, or its ratio overflows
        ahead = height + (r_k - at) * slope
        integral = (r_k - at) / height / ahead
        stays = 1.0 / ahead
    elif slope > 0.0:
        integral = 1.0 / slope / height
    else:  # nothing but k is possible
        integral, stays = 0.0, 1.0

    # backward: ratio[b] becomes the integral from its break up to r_k
    for b in range(breaks - 1, -1, -1):
        ratio[b], integral = integral, integral + ratio[b]
    for i in range(size):
        mass[i] = q[start + i] * integral
    for b in range(breaks):
        mass[order[b]] = q[start + order[b]] * ratio[b]
    for m in range(breaks, met):
        mass[order[m]] = 0.0
    if at_k >= 0:
        mass[at_k] = stays


@bare
def inverse_cdf_row(rows, row, seen_row, seen_entry, rank, scratch):
    """Fill in the overlap of the observed interval under p with each interval under q.

    Both rows divide [0, 1] in the order of `rank`. Positions are relative to the lower end of the
    observed interval, so that a short one keeps its precision and equal rows give k exactly.
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    mass, ratio, order = scratch
    k = rows.label[seen_entry]
    p_k = rows.probability[seen_entry]
    at_k = find_label(rows, row, k)
    q_k = rows.probability[at_k] if at_k >= 0 else 0.0
    p_below, p_above = sums_beside(rows, seen_row, rank, rank[k])
    q_below, q_above = sums_beside(rows, row, rank, rank[k])
    # where the intervals below k end under q: by the smaller sums, which are more exact
    end = q_below - p_below
    if p_above + q_above < p_below + q_below:
        end = (p_above - q_above) + (p_k - q_k)

    for i in range(size):
        ratio[i] = rank[rows.label[start + i]]
        order[i] = i
    sort_by_ratio(ratio, order, size)
    first = 0  # at or above k
    while first < size and ratio[first] < rank[k]:
        first += 1
    total = 0.0
    high = end
    for i in range(first - 1, -1, -1):
        low = high - rows.probability[start + order[i]]
        mass[order[i]] = max(0.0, min(p_k, high) - max(0.0, low))
        total += mass[order[i]]
        high = low
    low = end
    for i in range(first, size):
        high = low + rows.probability[start + order[i]]
        mass[order[i]] = max(0.0, min(p_k, high) - max(0.0, low))
        total += mass[order[i]]
        low = high
    if total == 0.0:  # by rounding, the row misses the observed interval at one of its ends
        mass[order[size - 1] if low <= 0.0 else order[0]] = total = 1.0
    for i in range(size):
        mass[i] /= total


@bare
def sums_beside(rows, row, rank, place):
    """Return the mass of a row below and above a position in the order of `rank`."""
    below, above = 0.0, 0.0
    for e in range(rows.start[row], rows.start[row + 1]):
        if rank[rows.label[e]] < place:
            below += rows.probability[e]
        elif rank[rows.label[e]] > place:
            above += rows.probability[e]
    return below, above


@bare
def maximal_row(rows, row, p, k, scratch):
    """Fill in the row of the maximal coupling, which changes as little as possible.

    The observed label keeps min(1, q_k / p_k); the rest goes where q exceeds p, in proportion to
    the excess, or to q if the excess is lost in rounding.
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    label, q, mass = rows.label, rows.probability, scratch.mass
    at_k = find_label(rows, row, k) - start
    stays = min(1.0, q[start + at_k] / p[k]) if at_k >= 0 else 0.0
    excess, total = 0.0, 0.0
    for i in range(size):
        mass[i] = 0.0
        if i != at_k:
            excess += max(0.0, q[start + i] - p[label[start + i]])
            total += q[start + i]
    if total == 0.0:  # nothing else is possible
        stays = 1.0
    if stays < 1.0:
        for i in range(size):
            if i != at_k:
                above = max(0.0, q[start + i] - p[label[start + i]])
                share = above / excess if excess > 0.0 else q[start + i] / total
                mass[i] = (1.0 - stays) * share
    if at_k >= 0:
        mass[at_k] = stays


def counterfactual_rows(
    coupling: Coupling,
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    observed: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Apply `counterfactual_row` to each of m dense pairs of rows p, q [m, n]; label = position."""
    result = np.zeros(q.shape)
    size = p.shape[1]
    rows = sparse_rows(np.concatenate([p, q]))
    fill_rows(coupling, rows, observed, np.zeros(size), make_scratch(size), result)
    return result


@bare
def fill_rows(coupling, rows, observed, by_label, scratch, result):
    """Fill in `result` [m, n] for `counterfactual_rows`; row m + i goes with the factual row i."""
    count = len(observed)
    for i in range(count):
        row = count + i
        seen_entry = find_label(rows, i, observed[i])
        scatter(rows, i, by_label)
        counterfactual_row(coupling, rows, row, i, seen_entry, by_label, scratch)
        unscatter(rows, i, by_label)
        start = rows.start[row]
        for e in range(start, rows.start[row + 1]):
            result[i, rows.label[e]] = scratch.mass[e - start]

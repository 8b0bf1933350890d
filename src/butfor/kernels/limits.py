"""Bounds of one row, over all mechanisms or all stable ones.

A mechanism couples the factual row p with another row q; given the observed outcome k, it
distributes the mass p_k. Whatever the mechanism, outcome j takes at most q_j. A stable one moves
mass only to a strictly larger q / p, and then the mass that crosses a cut between ratios is the
same for all couplings: the excess of p over q below the cut. These limits are nested, so filling
outcomes in the order of their values is optimal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, inlined
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import (
    find_label,
    make_heap,
    meets,
    scatter,
    sort_by_ratio,
    sparse_rows,
    take_largest,
    unscatter,
)

TIE = 1e-9  # ratios q / p within this relative distance are equal: counts often tie
ANY, STABLE = range(2)
LOW, HIGH = range(2)


@by_reference
class Limits(NamedTuple):
    """How much of the observed mass p_k the entries of a row may take; one thread's working space.

    Classes are entries of equal q / p, counted upwards from 0, the class of k. `left[c]` is the
    mass that may still cross the upper edge of class c.
    """

    freely: NDArray[np.float64]  # [E] taken without displacing the entry's own mass
    more: NDArray[np.float64]  # [E] taken by displacing it across the upper edge of its class
    of: NDArray[np.int64]  # [E] class; -1: may take nothing
    edge: NDArray[np.float64]  # [E + 1] mass that may cross, by class
    left: NDArray[np.float64]  # [E + 1] a copy that is used up
    used: NDArray[np.float64]  # [E] mass taken by each entry, the best value last
    ratio: NDArray[np.float64]  # [E]
    order: NDArray[np.int64]  # [E]
    value: NDArray[np.float64]  # [E] the value to be bounded, by entry


def make_limits(size: int) -> Limits:
    """Return working space for rows of up to `size` entries."""
    return Limits(
        np.empty(size),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size + 1),
        np.empty(size + 1),
        np.empty(size),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size),
    )


@bare
def find_limits(rows, row, p, k, limits):
    """Find how much of p_k stability lets each entry of a row take; return the highest class.

    `p` is the factual row by label. With d = p - q and D_c the sum of -d over the classes above c,
    mass p_k x_j arrives in class c under these limits: all of it crosses the edges below c, and
    the part beyond q_j - p_j crosses the edge of c too. The edge of c admits at most D_c minus what
    its own entries must send across anyway, the sum of max(d, 0).
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    label, q = rows.label, rows.probability
    freely, more, of, edge = limits.freely, limits.more, limits.of, limits.edge
    ratio, order = limits.ratio, limits.order
    at_k = find_label(rows, row, k) - start
    r_k = p[k] / q[start + at_k] if at_k >= 0 else np.inf
    above = 0
    tied = 0.0  # mass that the entries tied with k must send up
    for i in range(size):
        p_i, q_i = p[label[start + i]], q[start + i]
        r_i = p_i / q_i
        of[i] = -1
        if i == at_k:
            of[i] = 0
            freely[i], more[i] = q_i, 0.0
        elif r_i < r_k * (1.0 - TIE) or (at_k < 0 and r_i < np.inf):
            freely[i] = max(q_i - p_i, 0.0)
            more[i] = min(q_i, p_i)
            ratio[above] = -r_i
            order[above] = i
            above += 1
        elif r_i <= r_k * (1.0 + TIE):
            tied += max(p_i - q_i, 0.0)
    sort_by_ratio(ratio, order, above)  # upwards in q / p
    top = 0
    leader = 0.0
    for b in range(above):
        if b == 0 or ratio[b] > leader * (1.0 - TIE):
            top += 1
            leader = ratio[b]
        of[order[b]] = top

    for c in range(top + 1):
        edge[c] = 0.0
    crossing = 0.0  # the excess of q over p in the classes above
    b = above - 1
    for c in range(top, 0, -1):
        kept, excess = 0.0, 0.0
        while b >= 0 and of[order[b]] == c:
            i = order[b]
            p_i, q_i = p[label[start + i]], q[start + i]
            excess += q_i - p_i
            kept += max(p_i - q_i, 0.0)
            b -= 1
        edge[c] = max(crossing - kept, 0.0)
        crossing += excess
    edge[0] = max(crossing - tied, 0.0) if at_k >= 0 else p[k]
    return top


@bare
def lowest_any(rows, row, p_k, limits, sign):
    """Return the lowest expected sign * value of a row over all mechanisms, given k."""
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    ratio, order, value = limits.ratio, limits.order, limits.value
    for i in range(size):
        ratio[i] = -sign * value[i]
        order[i] = i
    make_heap(ratio, order, size)  # seldom more than a few entries are needed in order
    rest, total = p_k, 0.0
    for b in range(size - 1, -1, -1):
        take_largest(ratio, order, b)
        taken = min(rest, rows.probability[start + order[b]])
        total -= taken * ratio[b]
        rest -= taken
        if rest <= 0.0:
            break
    return total / (p_k - rest)


@bare
def lowest_stable(rows, row, p_k, top, limits, sign):
    """Return the lowest expected sign * value of a row over stable mechanisms, given k."""
    size = rows.start[row + 1] - rows.start[row]
    freely, more, of, edge = limits.freely, limits.more, limits.of, limits.edge
    left, used, value = limits.left, limits.used, limits.value
    ratio, order = limits.ratio, limits.order
    count = 0
    for i in range(size):
        if of[i] >= 0:
            ratio[count] = -sign * value[i]
            order[count] = i
            count += 1
    make_heap(ratio, order, count)
    for c in range(top + 1):
        left[c] = edge[c]
    rest, total = p_k, 0.0
    for b in range(count - 1, -1, -1):
        take_largest(ratio, order, b)
        i = order[b]
        room = rest
        for c in range(of[i]):
            room = min(room, left[c])
        taken = min(room, freely[i])
        if more[i] > 0.0:
            displacing = min(room - taken, more[i], left[of[i]])
            left[of[i]] -= displacing
            taken += displacing
        for c in range(of[i]):
            left[c] -= taken
        used[b] = taken
        total -= taken * ratio[b]
        rest -= taken
        if rest <= 0.0:
            break
    if rest > TIE * p_k:  # with a very small p_k, limits are lost in rounding
        for b in range(count - 1, -1, -1):
            taken = min(rest, freely[order[b]] + more[order[b]] - used[b])
            total -= taken * ratio[b]
            rest -= taken
    return total / (p_k - rest)


@bare
def bound_values(rows, row, p, seen, limits, value, result):
    """Bound the expected `value` [entry of the row, columns] of a row, given the observed entry.

    `p` is the factual row by label. Columns are those of `bounds.Tables`.
    """
    size = rows.start[row + 1] - rows.start[row]
    p_k = rows.probability[seen]
    # rows without a common label are stable however they are coupled
    apart = not meets(rows, row, p)
    top = 0 if apart else find_limits(rows, row, p, rows.label[seen], limits)
    if size == 2:
        bound_two(rows, row, p_k, top, apart, limits, value, result)
        return
    for c in range(len(result)):
        sign = 1.0 - 2.0 * (c & 1)
        for e in range(size):
            limits.value[e] = value[e, c]
        if c & 2 and not apart:
            result[c] = sign * lowest_stable(rows, row, p_k, top, limits, sign)
        else:
            result[c] = sign * lowest_any(rows, row, p_k, limits, sign)


@bare
def bound_two(rows, row, p_k, top, apart, limits, value, result):
    """Do the same for a row of two entries, where two shares of the second bound every value."""
    limits.value[0], limits.value[1] = 0.0, 1.0
    for stable in range(2):
        if stable and not apart:
            least = lowest_stable(rows, row, p_k, top, limits, 1.0)
            most = -lowest_stable(rows, row, p_k, top, limits, -1.0)
        else:
            least = lowest_any(rows, row, p_k, limits, 1.0)
            most = -lowest_any(rows, row, p_k, limits, -1.0)
        for first in range(2 * stable, len(result), 4):
            for c in range(first, first + 2):
                gain = value[1, c] - value[0, c]
                share = least if (gain > 0.0) == (c & 1 == LOW) else most
                result[c] = value[0, c] + share * gain


def row_bounds(
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    observed: NDArray[np.int64],
    value: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bound the expected `value` [m, n] of each of m dense pairs of rows p, q [m, n].

    Returns [m, 2, 2]: over any and over stable mechanisms, lowest and highest.
    """
    count, size = p.shape
    result = np.empty((count, 2, 2))
    rows = sparse_rows(np.concatenate([p, q]))
    bound_rows(rows, observed, value, make_limits(size), np.zeros(size), result)
    return result


@bare
def bound_rows(rows, observed, value, limits, by_label, result):
    """Fill in `result` [m, 2, 2] for `row_bounds`; row m + i goes with the factual row i."""
    count = len(observed)
    for i in range(count):
        row = count + i
        scatter(rows, i, by_label)
        p_k = by_label[observed[i]]
        start = rows.start[row]
        for e in range(start, rows.start[row + 1]):
            limits.value[e - start] = value[i, rows.label[e]]
        top = find_limits(rows, row, by_label, observed[i], limits)
        for end in range(2):
            sign = 1.0 - 2.0 * end
            result[i, ANY, end] = sign * lowest_any(rows, row, p_k, limits, sign)
            result[i, STABLE, end] = sign * lowest_stable(rows, row, p_k, top, limits, sign)
        unscatter(rows, i, by_label)


@inlined
def worth(problem, e, quantity, c, discount, later):
    """Return what entry e contributes to a bound, column c of `later`.

    `discount` [S] is that of each state reached.

    Quantity 0 is the return; quantity 1 + o the probability of outcome o, of none after the last.
    """
    x = problem.dynamics.next_state[e]
    states = problem.dynamics.states
    if quantity == 0:
        after = discount[x] * later[x, c] if x < states else 0.0
        return problem.dynamics.reward[e] + after
    if x < states:
        return later[x, c]
    return 1.0 if problem.dynamics.shown[x] - states == quantity - 1 else 0.0


@bare
def worth_each(problem, e, discount, later, result):
    """Fill in `result` with `worth` of an entry for each bound; columns are those of `Tables`."""
    x = problem.dynamics.next_state[e]
    # the outcome, if that is not negative
    beyond = problem.dynamics.shown[x] - problem.dynamics.states
    reward = problem.dynamics.reward[e]
    for c in range(len(result)):
        if beyond >= 0:
            result[c] = reward if c < 4 else 1.0 if beyond == c // 4 - 1 else 0.0
        else:
            result[c] = reward + discount[x] * later[x, c] if c < 4 else later[x, c]


@inlined
def worth_again(problem, e, i, quantity, c, discount, later):
    """Return the same of the entry observed at step i, which pays again what was paid there."""
    found = worth(problem, e, quantity, c, discount, later)
    if quantity == 0:
        found += problem.log.reward[i] - problem.dynamics.reward[e]
    return found

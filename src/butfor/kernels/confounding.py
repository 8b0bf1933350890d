"""Bounds if hidden causes tilt the rows of a model: of a policy's value, and of single episodes.

If the odds of one action against another depend on what is hidden by a factor of at most G, the row
that would follow an action for everyone is the logged one times weights in [least, most] with mean
1. A mechanism then takes at most that from the observed mass, as in `limits.py`. Sorted by value,
these limits bind the sums over the first entries only, so filling in that order is optimal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.bounds import make_tables
from butfor.kernels.chain import Problem, Work, mark_reached, observe, shown_probability
from butfor.kernels.compiled import bare, part
from butfor.kernels.limits import make_limits, worth, worth_again
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import sort_by_ratio, widest_row


@by_reference
class Tilt(NamedTuple):
    """How far hidden causes may tilt the rows of a model, row s A + a."""

    least: NDArray[np.float64]  # [S A]
    most: NDArray[np.float64]  # [S A]
    gamma: float  # the largest ratio of odds


@part
def lowest_tilted(rows, row, p_k, least, most, limits, sign):
    """Return the lowest expected sign * value of a tilted row, given an outcome that had p_k.

    Entries of total probability Q take at most min(most Q, least Q + 1 - least) / p_k, and at most
    1. With p_k = 1 nothing was observed, and the result is the lowest mean of the tilted row.
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    ratio, order, value = limits.ratio, limits.order, limits.value
    for i in range(size):
        ratio[i] = sign * value[i]
        order[i] = i
    sort_by_ratio(ratio, order, size)
    reached, filled, total = 0.0, 0.0, 0.0
    for b in range(size):
        reached += rows.probability[start + order[b]]
        most_here = min(most * reached, least * reached + (1.0 - least)) / p_k
        full = max(filled, min(1.0, most_here))
        total += (full - filled) * ratio[b]
        filled = full
        if filled == 1.0:
            break
    return total / filled


@bare
def bound_tilted(problem, limits, row, p_k, least, most, discount, later, result):
    """Bound what follows from a tilted row; see `lowest_tilted`."""
    rows = problem.dynamics.rows
    low, high = rows.start[row], rows.start[row + 1]
    for c in range(len(result)):
        sign = 1.0 - 2.0 * (c & 1)
        for e in range(low, high):
            limits.value[e - low] = worth(problem, e, c // 2, c, discount, later)
        result[c] = sign * lowest_tilted(rows, row, p_k, least, most, limits, sign)


def confounded_values(
    problem: Problem, tilt: Tilt, discount: NDArray[np.float64], values: NDArray[np.float64]
) -> None:
    """Bound what follows for anyone, by steps left and state: `values` [H + 1, S, 2 (O + 2)].

    Columns are the lowest and the highest return, then the same of the probability of each outcome,
    none last. The bounds with no step left are given.
    """
    limits = make_limits(widest_row(problem.dynamics.rows))
    fill_values(problem, tilt, limits, discount, values, np.empty(values.shape[2]))


@bare
def fill_values(problem, tilt, limits, discount, values, result):
    """Do the work of `confounded_values`."""
    target, actions = problem.target, problem.dynamics.actions
    for left in range(1, values.shape[0]):
        for s in range(values.shape[1]):
            values[left, s] = 0.0
            for j in range(target.start[s], target.start[s + 1]):
                row = s * actions + target.label[j]
                bound_tilted(
                    problem,
                    limits,
                    row,
                    1.0,
                    tilt.least[row],
                    tilt.most[row],
                    discount,
                    values[left - 1],
                    result,
                )
                for c in range(len(result)):
                    values[left, s, c] += target.probability[j] * result[c]


def confounded_episodes(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    tilt: Tilt,
    discount: NDArray[np.float64],
    values: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> int:
    """Nest the bounds of tilted rows backwards through episodes first .. last - 1.

    Past the observed end those of anyone hold: `values`, by steps left. Writes `bounds`
    [n, 2 (O + 2)], with columns as there. Returns -1, or the first impossible step.
    """
    limits = make_limits(widest_row(problem.dynamics.rows))
    tables = make_tables(problem, first, last, bounds.shape[1])
    return tilt_episodes(first, last, problem, work, limits, tilt, tables, discount, values, bounds)


@bare
def tilt_episodes(first, last, problem, work, limits, tilt, tables, discount, values, bounds):
    """Do the work of `confounded_episodes`."""
    for episode in range(first, last):
        impossible = bound_confounded(
            problem, work, limits, tilt, tables, episode, discount, values, bounds
        )
        if impossible >= 0:
            return impossible
    return -1


@part
def bound_confounded(problem, work, limits, tilt, tables, episode, discount, values, bounds):
    """Bound one episode for `confounded_episodes`; actions are drawn afresh."""
    log, target = problem.log, problem.target
    states, actions = problem.dynamics.states, problem.dynamics.actions
    now, later, result = tables.now, tables.later, tables.row
    length = log.stop[episode] - log.start[episode]
    mark_reached(problem, work, tables.reached, episode, False)
    for s in range(states):
        for c in range(len(result)):
            later[s, c] = values[log.left[episode], s, c]
    for t in range(length - 1, -1, -1):
        i = log.start[episode] + t
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        p_k = problem.dynamics.rows.probability[seen_entry]
        seen_row = log.state[i] * actions + log.action[i]
        if log.next_state[i] < 0:  # what decides the reward of an end is not known
            p_k = shown_probability(problem.dynamics, seen_row, seen_entry)
        for s in range(states):
            if not tables.reached[t, s]:
                continue
            for c in range(len(result)):
                now[s, c] = 0.0
            least, most = 1.0 / tilt.gamma, tilt.gamma  # of the patient's own state
            for j in range(target.start[s], target.start[s + 1]):
                row = s * actions + target.label[j]
                if s != log.state[i]:
                    least = tilt.least[row] / tilt.most[seen_row]
                    most = tilt.most[row] / tilt.least[seen_row]
                if row == seen_row:  # consistency
                    for c in range(len(result)):
                        result[c] = worth_again(problem, seen_entry, i, c // 2, c, discount, later)
                else:
                    bound_tilted(problem, limits, row, p_k, least, most, discount, later, result)
                for c in range(len(result)):
                    now[s, c] += target.probability[j] * result[c]
        now, later = later, now
    for c in range(len(result)):
        bounds[episode, c] = later[log.state[log.start[episode]], c]
    return -1

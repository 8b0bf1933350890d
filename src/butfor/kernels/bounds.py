"""Bounds of whole episodes: those of rows, nested backwards, over all or all stable mechanisms."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Problem, Work, choose, longest_episode, mark_reached, observe
from butfor.kernels.compiled import bare, part
from butfor.kernels.factor_bounds import Nested, bound_product
from butfor.kernels.limits import (
    find_limits,
    lowest_any,
    lowest_stable,
    make_limits,
    worth,
    worth_again,
)
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import hold, meets, widest_row


@by_reference
class Tables(NamedTuple):
    """Working space for the bounds of one episode.

    A column of `now` and `later` is a bound: 4 j is the lowest of quantity j over all mechanisms,
    followed by the highest, then the lowest and the highest over stable ones. Quantities are the
    return and the probability of each outcome, none last.
    """

    reached: NDArray[np.bool_]  # [H + 1, S] whether a state can be reached by then
    now: NDArray[np.float64]  # [S, 4 (O + 2)]
    later: NDArray[np.float64]  # [S, 4 (O + 2)]
    row: NDArray[np.float64]  # [4 (O + 2)] of one row


def make_tables(problem: Problem, first: int, last: int, columns: int) -> Tables:
    """Return working space for episodes first .. last - 1."""
    states = problem.dynamics.states
    return Tables(
        np.zeros((longest_episode(problem.log, first, last) + 1, states), np.bool_),
        np.empty((states, columns)),
        np.empty((states, columns)),
        np.empty(columns),
    )


def episode_bounds(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    discount: NDArray[np.float64],
    values_after: NDArray[np.float64],
    outcomes_after: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> int:
    """Nest the bounds of rows backwards through episodes first .. last - 1.

    Past the observed end everything is known exactly: see `Judged`. Writes `bounds`
    [n, 4 (O + 2)], with columns as in `Tables`. Returns -1, or the first impossible step.
    """
    factors, columns = problem.factors, bounds.shape[1]
    widest = widest_row(factors.rows)
    limits = make_limits(max(widest, widest_row(problem.dynamics.rows)))
    nested = Nested(
        np.empty((len(factors.place), widest, columns)),
        np.empty(len(factors.place), np.int64),
        np.empty(len(problem.dynamics.labels), np.int64),
    )
    tables = make_tables(problem, first, last, columns)
    after = values_after, outcomes_after
    return bound_episodes(
        first, last, problem, work, limits, nested, tables, discount, *after, bounds
    )


@bare
def bound_episodes(
    first,
    last,
    problem,
    work,
    limits,
    nested,
    tables,
    discount,
    values_after,
    outcomes_after,
    bounds,
):
    """Do the work of `episode_bounds`."""
    for episode in range(first, last):
        impossible = bound_episode(
            problem,
            work,
            limits,
            nested,
            tables,
            episode,
            discount,
            values_after,
            outcomes_after,
            bounds,
        )
        if impossible >= 0:
            return impossible
    return -1


@part
def bound_episode(
    problem, work, limits, nested, tables, episode, discount, values_after, outcomes_after, bounds
):
    """Bound one episode for `episode_bounds`."""
    log, target = problem.log, problem.target
    states, actions = problem.dynamics.states, problem.dynamics.actions
    columns = bounds.shape[1]
    now, later = tables.now, tables.later
    length, left = log.stop[episode] - log.start[episode], log.left[episode]
    mark_reached(problem, work, tables.reached, episode, False)
    for s in range(states):
        if tables.reached[length, s]:
            for c in range(4):
                later[s, c] = values_after[left, s]
            for c in range(4, columns):
                later[s, c] = outcomes_after[left, s, c // 4 - 1]
    for t in range(length - 1, -1, -1):
        i = log.start[episode] + t
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        for s in range(states):
            if not tables.reached[t, s]:
                continue
            for c in range(columns):
                now[s, c] = 0.0
            choose(problem, work, s, i)
            start = target.start[s]
            for j in range(target.start[s + 1] - start):
                share = work.choices.mass[j]
                if share == 0.0:
                    continue
                row = s * actions + target.label[start + j]
                bound_row(
                    problem, work, limits, nested, row, i, seen_entry, discount, later, tables.row
                )
                for c in range(columns):
                    now[s, c] += share * tables.row[c]
        now, later = later, now
    for c in range(columns):
        bounds[episode, c] = later[log.state[log.start[episode]], c]
    return -1


@part
def bound_row(problem, work, limits, nested, row, i, seen_entry, discount, later, result):
    """Bound what follows from a row, given the observed step i and the bounds `later`."""
    log, actions = problem.log, problem.dynamics.actions
    rows = problem.dynamics.rows
    low, high = rows.start[row], rows.start[row + 1]
    seen_row = log.state[i] * actions + log.action[i]
    if row == seen_row:  # consistency
        for c in range(len(result)):
            result[c] = worth_again(problem, seen_entry, i, c // 4, c, discount, later)
        return
    if high - low == 1:
        for c in range(len(result)):
            result[c] = worth(problem, low, c // 4, c, discount, later)
        return
    if len(problem.factors.place) > 0:
        bound_product(problem, work, limits, nested, row, i, discount, later, result)
        return
    k = rows.label[seen_entry]
    p_k = rows.probability[seen_entry]
    hold(rows, seen_row, work.held_state, work.p_state)
    # rows without a common label are stable however they are coupled
    apart = not meets(rows, row, work.p_state)
    top = 0 if apart else find_limits(rows, row, work.p_state, k, limits)
    for c in range(len(result)):
        sign = 1.0 - 2.0 * (c & 1)
        for e in range(low, high):
            limits.value[e - low] = worth(problem, e, c // 4, c, discount, later)
        if c & 2 and not apart:
            result[c] = sign * lowest_stable(rows, row, p_k, top, limits, sign)
        else:
            result[c] = sign * lowest_any(rows, row, p_k, limits, sign)

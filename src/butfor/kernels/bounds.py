"""Bounds of whole episodes: those of rows, nested backwards, over all or all stable mechanisms."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Problem, Work, choose, longest_episode, mark_reached, observe
from butfor.kernels.compiled import bare, part
from butfor.kernels.factor_bounds import Nested, bound_product
from butfor.kernels.limits import Limits, bound_values, make_limits, worth_again, worth_each
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import hold, widest_row


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
    entry: NDArray[np.float64]  # [widest row, 4 (O + 2)] of its entries


def make_tables(problem: Problem, first: int, last: int, columns: int) -> Tables:
    """Return working space for episodes first .. last - 1."""
    states = problem.dynamics.states
    return Tables(
        np.zeros((longest_episode(problem.log, first, last) + 1, states), np.bool_),
        np.empty((states, columns)),
        np.empty((states, columns)),
        np.empty(columns),
        np.empty((widest_row(problem.dynamics.rows), columns)),
    )


class BoundSpace(NamedTuple):
    """Working space of one thread for `episode_bounds`; to make it takes longer than an episode."""

    limits: Limits
    nested: Nested
    tables: Tables


def make_bound_space(problem: Problem, columns: int) -> BoundSpace:
    """Return one thread's working space for this problem and so many bounds."""
    factors = problem.factors
    widest = widest_row(factors.rows)
    return BoundSpace(
        make_limits(max(widest, widest_row(problem.dynamics.rows))),
        Nested(
            np.empty((len(factors.place), widest, columns)),
            np.empty(len(factors.place), np.int64),
            np.empty(len(problem.dynamics.labels), np.int64),
        ),
        make_tables(problem, 0, len(problem.log.start), columns),
    )


def episode_bounds(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    space: BoundSpace,
    discount: NDArray[np.float64],
    values_after: NDArray[np.float64],
    outcomes_after: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> int:
    """Nest the bounds of rows backwards through episodes first .. last - 1.

    Past the observed end everything is known exactly: see `Judged`. Writes `bounds`
    [n, 4 (O + 2)], with columns as in `Tables`. Returns -1, or the first impossible step.
    """
    after = values_after, outcomes_after
    return bound_episodes(first, last, problem, work, *space, discount, *after, bounds)


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
                    problem, work, limits, nested, tables, row, i, seen_entry, discount, later
                )
                for c in range(columns):
                    now[s, c] += share * tables.row[c]
        now, later = later, now
    for c in range(columns):
        bounds[episode, c] = later[log.state[log.start[episode]], c]
    return -1


@part
def bound_row(problem, work, limits, nested, tables, row, i, seen_entry, discount, later):
    """Bound what follows from a row, given the observed step i and the bounds `later`."""
    log, actions, result = problem.log, problem.dynamics.actions, tables.row
    rows = problem.dynamics.rows
    low, high = rows.start[row], rows.start[row + 1]
    seen_row = log.state[i] * actions + log.action[i]
    if row == seen_row:  # consistency
        for c in range(len(result)):
            result[c] = worth_again(problem, seen_entry, i, c // 4, c, discount, later)
        return
    if high - low == 1:
        worth_each(problem, low, discount, later, result)
        return
    if len(problem.factors.place) > 0:
        bound_product(problem, work, limits, nested, row, i, discount, later, result)
        return
    for e in range(low, high):
        worth_each(problem, e, discount, later, tables.entry[e - low])
    hold(rows, seen_row, work.held_state, work.p_state)
    bound_values(rows, row, work.p_state, seen_entry, limits, tables.entry, result)

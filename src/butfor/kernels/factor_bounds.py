"""Bounds of a row of a factored model: those of its factors, nested from the last to the first.

The rows of one factor in different states are bounded separately, as if its noise could couple each
of them with the factual row in its own way: the result is an outer bound.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, part
from butfor.kernels.factors import configuration
from butfor.kernels.limits import bound_values, worth_each
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import hold


@by_reference
class Nested(NamedTuple):
    """Working space of one thread: bounds given the levels of earlier factors."""

    value: NDArray[np.float64]  # [F, widest row of a factor, columns] of each entry of its row
    config: NDArray[np.int64]  # [F] configuration
    entry: NDArray[np.int64]  # [S + ends] entry of the model's row, by next state or end


@part
def bound_product(problem, work, limits, nested, row, i, discount, later, result):
    """Bound what follows from a row of the model, given the observed step i and `later`.

    Depth first through the factors: where all levels of a factor have their bounds, the factor
    itself is bounded given the levels before it. Columns of `later` [S, 4 (O + 2)] and `result` are
    those of `Tables`.
    """
    factors, known = problem.factors, work.known
    rows, states = factors.rows, problem.dynamics.states
    none = problem.dynamics.shown[-1] + 1 - states  # the level of no end
    for e in range(problem.dynamics.rows.start[row], problem.dynamics.rows.start[row + 1]):
        nested.entry[problem.dynamics.next_state[e]] = e
    last = len(factors.place) - 1
    known.state[0] = factors.first_state[row]
    f = 0
    entering = True
    while True:
        if entering:
            c = configuration(factors, known.level, row, f)
            nested.config[f] = c
            known.at[f], known.stop[f] = rows.start[c], rows.start[c + 1]
            if factors.seen[i, f] >= 0 and c == factors.config[i, f]:  # consistency
                known.at[f], known.stop[f] = factors.seen[i, f], factors.seen[i, f] + 1
            entering = False
        e = known.at[f]
        if e < known.stop[f]:
            level = rows.label[e] - factors.first_label[f]
            if f < last:
                known.level[f] = level
                known.state[f + 1] = known.state[f] + level * factors.place[f]
                f += 1
                entering = True
                continue
            x = known.state[f]
            if level != none:
                x = states + level * factors.cells + factors.cell[x]
            value = nested.value[f, e - rows.start[nested.config[f]]]
            worth_each(problem, nested.entry[x], discount, later, value)
            known.at[f] = e + 1
            continue
        if f == 0:
            bound_factor(factors, known, limits, nested, i, f, result)
            return
        above = nested.value[f - 1, known.at[f - 1] - rows.start[nested.config[f - 1]]]
        bound_factor(factors, known, limits, nested, i, f, above)
        f -= 1
        known.at[f] += 1


@bare
def bound_factor(factors, known, limits, nested, i, f, result):
    """Bound the expected value of a factor's level in its present configuration."""
    rows, c, seen = factors.rows, nested.config[f], factors.seen[i, f]
    start, stop = rows.start[c], rows.start[c + 1]
    value = nested.value[f]
    certain = -1  # the entry taken, if that is certain
    if stop - start == 1:
        certain = start
    elif seen >= 0 and c == factors.config[i, f]:
        certain = seen
    if certain >= 0:
        for column in range(len(result)):
            result[column] = value[certain - start, column]
        return
    if seen < 0:  # nothing is known about the noise
        for column in range(len(result)):
            result[column] = 0.0
            for e in range(start, stop):
                result[column] += rows.probability[e] * value[e - start, column]
        return
    hold(rows, factors.config[i, f], known.held, known.p)
    bound_values(rows, c, known.p, seen, limits, value, result)

"""The counterfactual row of a factored model: the product of the rows of its variables.

A factor is the distribution of one variable of the next state, or of the end, which comes last.
Its rows are its configurations: one per combination of levels of its parents. Given a logged
transition the noises of the factors are independent, so each has its own counterfactual row, and
equal configurations give the observed level: consistency holds variable by variable.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, inlined, part
from butfor.kernels.mechanisms import counterfactual_row
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import Rows, Scratch, hold, meets

UNKNOWN, IMPOSSIBLE, NOTHING = -1, -2, -3  # instead of an observed entry


@by_reference
class Factors(NamedTuple):
    """F factors of a model and of a log, in an order in which parents come first, the end last.

    Variables that follow from state and action alone are left out: their noise decides nothing. Of
    a model without factors, F is 0.
    """

    rows: Rows  # [C] configurations of all factors; a label belongs to a level of one factor
    base: NDArray[np.int64]  # [S A, F] configuration of each factor, next-step parents at level 0
    first_state: NDArray[np.int64]  # [S A] number of the next state with all factors at level 0
    # next-step parents of factor f: positions parents[f] .. parents[f + 1] - 1 of the two below
    parents: NDArray[np.int64]  # [F + 1]
    parent: NDArray[np.int64]  # factor whose level it is
    stride: NDArray[np.int64]  # by which a level moves the configuration
    first_label: NDArray[np.int64]  # [F]
    place: NDArray[np.int64]  # [F] by which a level moves the number of the next state; end: 0
    seen: NDArray[np.int64]  # [N, F] observed entry of each logged step; UNKNOWN, IMPOSSIBLE
    config: NDArray[np.int64]  # [N, F] observed configuration; -1: not logged
    counts: NDArray[np.float64]  # [C] logged transitions; inf where nothing was learned
    own: NDArray[np.int64]  # [rows of the uncut log, F] `config` of every step of an episode
    cell: NDArray[np.int64]  # [S] in which an outcome that reaches a state pays its reward
    cells: int  # end o cells + c is outcome o in cell c


@by_reference
class Known(NamedTuple):
    """One thread's working space: what an observed step says about the noise of each factor."""

    stamp: NDArray[np.int64]  # [C] the observed entry that `mass` was computed for
    mass: NDArray[np.float64]  # [entries] counterfactual row of each configuration
    shares: NDArray[np.bool_]  # [C] whether it can differ from the row because of what was observed
    p: NDArray[np.float64]  # [labels] the factual row
    held: NDArray[np.int64]  # [1] the configuration that `p` holds, -1 for none
    own: NDArray[np.float64]  # [C] how often the episode itself used a configuration
    # the search through the levels of all factors, one after another
    at: NDArray[np.int64]  # [F] entry to be tried next
    stop: NDArray[np.int64]  # [F]
    level: NDArray[np.int64]  # [F]
    state: NDArray[np.int64]  # [F] number of the next state by the levels of earlier factors
    weight: NDArray[np.float64]  # [F] probability of the levels of earlier factors
    # its result
    cases: NDArray[np.float64]  # [F] expected number of similar past cases
    met: NDArray[np.bool_]  # [1] whether any row shares a level with its factual row
    joint: NDArray[np.float64]  # [S + ends] probability of each next state or end, 0 between uses
    touched: NDArray[np.int64]  # [S + ends] where it is not 0


def no_factors() -> Factors:
    """Return the factors of a model that has none."""
    none, table = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    rows = Rows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))
    return Factors(
        rows, table, none, none, none, none, none, none, table, table, np.empty(0), table, none, 1
    )


def make_known(factors: Factors, places: int) -> Known:
    """Return one thread's working space; `places` is the number of states and ends."""
    configurations, count = len(factors.counts), len(factors.place)
    widest = int(factors.rows.label.max()) + 1 if count else 0
    size = places if count else 0
    return Known(
        np.full(configurations, NOTHING, np.int64),
        np.empty(len(factors.rows.label)),
        np.empty(configurations, np.bool_),
        np.zeros(widest),
        np.full(1, -1),
        np.zeros(configurations),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count),
        np.zeros(count),
        np.zeros(1, np.bool_),
        np.zeros(size),
        np.empty(size, np.int64),
    )


@part
def possible(factors, i):
    """Return whether every factor gives what was observed at step i some probability."""
    impossible = False
    for f in range(len(factors.place)):
        impossible = impossible or factors.seen[i, f] == IMPOSSIBLE
    return not impossible


@inlined
def configuration(factors, level, row, f):
    """Return the configuration of factor f in a row of the model, given earlier next levels."""
    c = factors.base[row, f]
    for n in range(factors.parents[f], factors.parents[f + 1]):
        c += factors.stride[n] * level[factors.parent[n]]
    return c


@part
def condition(coupling, rows, known, c, seen, seen_config, ratio, order):
    """Compute the counterfactual row of configuration c, given the observed entry of its factor."""
    start, stop = rows.start[c], rows.start[c + 1]
    known.stamp[c] = seen
    if seen < 0:  # nothing is known about the noise
        known.shares[c] = False
        for e in range(start, stop):
            known.mass[e] = rows.probability[e]
    elif c == seen_config:  # consistency
        known.shares[c] = stop - start > 1
        for e in range(start, stop):
            known.mass[e] = 0.0
        known.mass[seen] = 1.0
    else:
        hold(rows, seen_config, known.held, known.p)
        scratch = Scratch(known.mass[start:stop], ratio, order)
        counterfactual_row(coupling, rows, c, seen_config, seen, known.p, scratch)
        known.shares[c] = stop - start > 1 and meets(rows, c, known.p)


@part
def enter(problem, work, row, i, f):
    """Begin with the levels of factor f, given those of earlier factors; i < 0: no observed step.

    Returns its configuration.
    """
    factors, known = problem.factors, work.known
    c = configuration(factors, known.level, row, f)
    seen, seen_config = UNKNOWN, -1
    if i >= 0:
        seen, seen_config = factors.seen[i, f], factors.config[i, f]
    if known.stamp[c] != seen:
        condition(
            problem.coupling, factors.rows, known, c, seen, seen_config, work.ratio, work.order
        )
    known.at[f] = factors.rows.start[c]
    known.stop[f] = factors.rows.start[c + 1]
    return c


@bare
def multiply(problem, work, row, i, record):
    """Fill `known.joint` with the counterfactual row of a row of the model, given step i.

    Depth first through the factors; levels without probability are not followed. Returns the
    number of next states and ends in `known.touched`. If `record` is not None, `known.cases`
    and `known.met` are filled too.
    """
    factors, known = problem.factors, work.known
    states, end = problem.dynamics.states, len(factors.place) - 1
    none = problem.dynamics.shown[-1] + 1 - states  # the level of no end
    touched = 0
    if record is not None:
        known.met[0] = False
        for f in range(end + 1):
            known.cases[f] = 0.0
    f = 0
    moved, reached = 1.0, factors.first_state[row]
    while True:
        c = enter(problem, work, row, i, f)
        if record is not None:
            count_case(factors, known, c, f, moved)
        if f < end:
            known.weight[f] = moved
            known.state[f] = reached
        else:
            first = states + factors.cell[reached]
            for e in range(known.at[f], known.stop[f]):
                mass = moved * known.mass[e]
                if mass > 0.0:
                    level = factors.rows.label[e] - factors.first_label[f]
                    x = reached if level == none else first + level * factors.cells
                    if known.joint[x] == 0.0:
                        known.touched[touched] = x
                        touched += 1
                    known.joint[x] += mass
            f -= 1
        moved = 0.0
        while f >= 0 and moved == 0.0:  # the next level that has any probability
            e = known.at[f]
            if e == known.stop[f]:
                f -= 1
            else:
                known.at[f] = e + 1
                moved = known.weight[f] * known.mass[e]
        if f < 0:
            break
        known.level[f] = factors.rows.label[e] - factors.first_label[f]
        reached = known.state[f] + known.level[f] * factors.place[f]
        f += 1
    return touched


@part
def count_case(factors, known, c, f, weight):
    """Add the similar past cases of a configuration that has this probability."""
    known.cases[f] += weight * max(0.0, factors.counts[c] - known.own[c])
    known.met[0] = known.met[0] or known.shares[c]


@inlined
def fewest_cases(problem, work, row, i, seen_row):
    """Return the least expected number of similar past cases over the factors; inf: none learned.

    It is that of the last product, except in the observed row, where no product was needed.
    """
    factors, known = problem.factors, work.known
    number = np.inf
    for f in range(len(factors.place)):
        if i >= 0 and row == seen_row:
            c = factors.config[i, f]
            if c >= 0:
                number = min(number, max(0.0, factors.counts[c] - known.own[c]))
        else:
            number = min(number, known.cases[f])
    return number


@bare
def forget_product(known, touched):
    """Make `known.joint` 0 everywhere again."""
    for n in range(touched):
        known.joint[known.touched[n]] = 0.0


@part
def mark_touched(known, touched, reached):
    """Mark in `reached` [S] the next states of the last product, and forget it."""
    for n in range(touched):
        if known.touched[n] < len(reached):
            reached[known.touched[n]] = True
    forget_product(known, touched)


@bare
def add_own(factors, known, i, amount):
    """Count the configurations of the episode's own step i, or remove them again."""
    for f in range(len(factors.place)):
        if factors.own[i, f] >= 0:
            known.own[factors.own[i, f]] += amount

"""Bounds over mechanisms by linear programming: every coupling of two rows is a point of it.

A coupling is a table c of how the mass of p becomes that of q: its rows sum to p, its columns to q.
Having seen k, the expected value is sum_j c_kj v_j / p_k. A stable mechanism moves mass from i to
another j only where q_j / p_j is larger than q_i / p_i; ratios within 1e-9 of each other are equal.

The solver tells masses apart down to 1e-10, and an answer is a mass over p_k: rows with smaller
probabilities than some 1e-5 are out of its reach.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from math import inf
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from tests.reference.counterfactual import Episode, Model, action_law, pays

TIE = 1e-9
CLASSES = ("any", "stable")
ENDS = (1, -1)  # lowest, highest


class Question(NamedTuple):
    """What is the lowest (sign 1) or the highest (-1) expected value, having seen k?"""

    p: Sequence[float]
    q: Sequence[float]
    k: int
    value: Sequence[float]
    stable: bool
    sign: int


def solve(questions: Sequence[Question]) -> list[float]:
    """Answer many questions by one program: they have no variable in common."""
    places, limits, costs, owners = [], [], [], []
    variables, equations = 0, 0
    for number, question in enumerate(questions):
        p, q, k, value, stable, sign = question
        givers = [i for i in range(len(p)) if p[i] > 0]
        takers = [j for j in range(len(q)) if q[j] > 0]
        equation = {("p", i): equations + n for n, i in enumerate(givers)}
        # the last taker gets what is left: a sum that is off by rounding has no solution
        equation |= {("q", j): equations + len(givers) + n for n, j in enumerate(takers[:-1])}
        limits += [p[i] for i in givers] + [q[j] for j in takers[:-1]]
        equations += len(givers) + len(takers) - 1
        for i, j in product(givers, takers):
            if stable and not may_move(p, q, i, j):
                continue
            places.append((equation["p", i], variables))
            if ("q", j) in equation:
                places.append((equation["q", j], variables))
            costs.append(sign * value[j] if i == k else 0.0)
            owners.append(number)
            variables += 1
    at = np.array(places).T
    matrix = csr_array((np.ones(len(places)), (at[0], at[1])), (equations, variables))
    finest = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(costs, A_eq=matrix, b_eq=limits, method="highs-ds", options=finest)
    assert found.status == 0, found.message
    total = np.bincount(owners, np.array(costs) * found.x, len(questions))
    return [t * one.sign / one.p[one.k] for t, one in zip(total, questions, strict=True)]


@cache
def extreme_rows(
    p: tuple[float, ...], q: tuple[float, ...], k: int, stable: bool
) -> list[list[float]]:
    """Return the rows given k of every extreme coupling: where as many cells as equations are used.

    For short rows only: three outcomes have up to 126 such choices of cells.
    """
    givers = [i for i in range(len(p)) if p[i] > 0]
    takers = [j for j in range(len(q)) if q[j] > 0]
    cells = [(i, j) for i, j in product(givers, takers) if not stable or may_move(p, q, i, j)]
    # the last taker gets what is left
    limits = np.array([p[i] for i in givers] + [q[j] for j in takers[:-1]])
    matrix = np.array(
        [[i == one for i, _ in cells] for one in givers]
        + [[j == one for _, j in cells] for one in takers[:-1]],
        dtype=np.float64,
    )
    rows = []
    for used in combinations(range(len(cells)), len(limits)):
        chosen = matrix[:, used]
        if abs(np.linalg.det(chosen)) < 0.5:  # it is -1, 0 or 1
            continue
        mass = np.linalg.solve(chosen, limits)
        if mass.min() > -1e-14:
            row = [0.0] * len(q)
            for place, moved in zip(used, mass, strict=True):
                if cells[place][0] == k:
                    row[cells[place][1]] = max(0.0, float(moved)) / p[k]
            rows.append(row)
    return rows


def may_move(p: Sequence[float], q: Sequence[float], i: int, j: int) -> bool:
    """Whether a stable mechanism may move mass from i to j."""
    ratio_i, ratio_j = (q[x] / p[x] if p[x] > 0 else inf for x in (i, j))
    return i == j or ratio_j * (1 - TIE) > ratio_i


def row_bounds(
    rows: Sequence[tuple[Sequence[float], Sequence[float], int, Sequence[float]]],
) -> list[list[list[float]]]:
    """Bound the value of each (p, q, k, value): [m][any, stable][lowest, highest]."""
    questions = [
        Question(*row, stable, sign) for row in rows for stable in (False, True) for sign in ENDS
    ]
    found = iter(solve(questions))
    return [[[next(found) for _ in ENDS] for _ in CLASSES] for _ in rows]


Bound = tuple[int, bool, int]  # quantity (0: the return, 1 + o: an outcome), stable, sign


def episode_bounds(
    model: Model,
    episode: Episode,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
    continuation: bool = True,
) -> dict[Bound, float]:
    """Go backwards: at each step the worst and the best row that any coupling allows."""
    observed = len(episode.states)
    bounds = list(product(range(model.outcomes + 2), (False, True), ENDS))
    later = {(s, b): float(b[0] == model.outcomes + 1) for s in range(model.states) for b in bounds}

    def worth(t: int, state: int, action: int, reached: int, bound: Bound) -> float:
        after = later[reached, bound] if reached < model.states else 0.0
        if bound[0] == 0:
            return pays(model, episode, t, state, action, reached) + discount * after
        return after if reached < model.states else float(reached - model.states == bound[0] - 1)

    for t in reversed(range(horizon if continuation else observed)):
        rows, questions, asked = {}, [], []
        used = [pair for pair in model.rows if target[pair[0]][pair[1]] > 0]
        for pair, bound in product(used, bounds):
            row = model.rows[pair]
            values = {x: worth(t, *pair, x, bound) for x in row}
            if t >= observed:
                rows[pair, bound] = sum(row[x][0] * values[x] for x in row)
            elif pair == (episode.states[t], episode.actions[t]):
                rows[pair, bound] = values[episode.reached[t]]
            else:
                questions.append(question(model, episode, t, pair, values, bound))
                asked.append((pair, bound))
        if questions:
            rows |= zip(asked, solve(questions), strict=True)
        later = {
            (s, bound): sum(
                chosen * rows[(s, action), bound]
                for action, chosen in action_law(episode, t, s, behavior, target, shared).items()
            )
            for s in range(model.states)
            for bound in bounds
        }
    return {bound: later[episode.states[0], bound] for bound in bounds}


def question(
    model: Model,
    episode: Episode,
    t: int,
    pair: tuple[int, int],
    values: dict[int, float],
    bound: Bound,
) -> Question:
    """Ask about a row of the model, given the observed step t."""
    p, q, value = ([0.0] * (max(model.label) + 1) for _ in range(3))
    for reached, (probability, _) in model.rows[episode.states[t], episode.actions[t]].items():
        p[model.label[reached]] = probability
    for reached, (probability, _) in model.rows[pair].items():
        q[model.label[reached]] = probability
        value[model.label[reached]] = values[reached]
    return Question(p, q, model.label[episode.reached[t]], value, *bound[1:])

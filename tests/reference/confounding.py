"""Bounds under hidden causes by linear programming, nested in plain Python.

A row q that hidden causes tilt is any row r with least q <= r <= most q. Having seen an outcome of
probability p_k, a mechanism gives any row x with p_k x <= r.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from tests.reference.counterfactual import Episode, Model, pays

FINEST = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
Policy = Sequence[Sequence[float]]
Bound = tuple[int, int]  # quantity (0: the return, 1 + o: an outcome, none last), sign
Values = dict[tuple[int, Bound], float]


class Extreme(NamedTuple):
    """The lowest mean, the tilted row, and the row of the patient that has it."""

    mean: float
    tilted: NDArray[np.float64]
    patient: NDArray[np.float64]


def limits(b: float, gamma: float) -> tuple[float, float]:
    """Least and most weight of a row whose action has probability b."""
    return b + (1 - b) / gamma, b + (1 - b) * gamma


def lowest(
    q: Sequence[float], value: Sequence[float], least: float, most: float, p_k: float = 1.0
) -> Extreme:
    """Solve for both rows at once: the first n variables are x, the others r."""
    row, size = np.array(q), len(q)
    ones, zeros, eye = np.ones(size), np.zeros(size), np.eye(size)
    found = linprog(
        np.concatenate([value, zeros]),
        A_ub=np.hstack([p_k * eye, -eye]),
        b_ub=zeros,
        A_eq=[[*ones, *zeros], [*zeros, *ones]],
        b_eq=[1.0, 1.0],
        bounds=[(0, 1)] * size + list(zip(least * row, most * row, strict=True)),
        method="highs-ds",
        options=FINEST,
    )
    assert found.status == 0, found.message
    return Extreme(found.fun, found.x[size:], found.x[:size])


def closed_form(q: Sequence[float], value: Sequence[float], b: float, gamma: float) -> float:
    """a E[v] + (1 - a) times the mean of v over its lower tail of probability 1 / (1 + gamma)."""
    least, level = limits(b, gamma)[0], 1 / (1 + gamma)
    rest, tail = level, 0.0
    for v, mass in sorted(zip(value, q, strict=True)):
        tail += min(rest, mass) * v
        rest -= min(rest, mass)
    mean = sum(v * mass for v, mass in zip(value, q, strict=True))
    return least * mean + (1 - least) * tail / level


def all_bounds(model: Model) -> list[Bound]:
    """Lowest and highest of the return, of each outcome and of none."""
    return list(product(range(model.outcomes + 2), (1, -1)))


def worths(
    model: Model, pair: tuple[int, int], bound: Bound, later: Values, discount: float
) -> dict[int, float]:
    """What each next state of a row contributes to a bound."""
    found = {}
    for x, (_, reward) in model.rows[pair].items():
        after = later[x, bound] if x < model.states else 0.0
        if bound[0] == 0:
            found[x] = reward + discount * after
        else:
            found[x] = after if x < model.states else float(x - model.states == bound[0] - 1)
    return found


def row_bound(
    model: Model,
    pair: tuple[int, int],
    bound: Bound,
    later: Values,
    discount: float,
    weights: tuple[float, float],
    p_k: float = 1.0,
) -> float:
    """Bound what follows from a row."""
    value = worths(model, pair, bound, later, discount)
    q = [model.rows[pair][x][0] for x in value]
    return bound[1] * lowest(q, [bound[1] * v for v in value.values()], *weights, p_k).mean


def values(
    model: Model, behavior: Policy, target: Policy, gamma: float, horizon: int, discount: float
) -> list[Values]:
    """Bounds for anyone, by steps left."""
    bounds = all_bounds(model)
    none = model.outcomes + 1
    tables = [{(s, b): float(b[0] == none) for s in range(model.states) for b in bounds}]
    for _ in range(horizon):
        tables.append(
            {
                (s, bound): sum(
                    chosen
                    * row_bound(
                        model, (s, a), bound, tables[-1], discount, limits(behavior[s][a], gamma)
                    )
                    for a, chosen in enumerate(target[s])
                    if chosen > 0
                )
                for s in range(model.states)
                for bound in bounds
            }
        )
    return tables


def episode_bounds(
    model: Model,
    episode: Episode,
    behavior: Policy,
    target: Policy,
    gamma: float,
    after: Values,
    discount: float,
) -> dict[Bound, float]:
    """Bounds of one episode, given those after its observed end; actions are drawn afresh."""
    later = after
    steps = zip(episode.states, episode.actions, episode.reached, strict=True)
    for t, (s_t, a_t, k) in reversed(list(enumerate(steps))):
        p_k = model.rows[s_t, a_t][k][0]
        seen = limits(behavior[s_t][a_t], gamma)
        now: Values = {}
        for s, bound in product(range(model.states), all_bounds(model)):
            total = 0.0
            for a, chosen in enumerate(target[s]):
                if chosen == 0:
                    continue
                if (s, a) == (s_t, a_t):
                    found = worths(model, (s, a), bound, later, discount)[k]
                    if bound[0] == 0:
                        found += pays(model, episode, t, s, a, k) - model.rows[s, a][k][1]
                else:
                    own = limits(behavior[s][a], gamma)
                    weights = (own[0] / seen[1], own[1] / seen[0])
                    if s == s_t:
                        weights = (1 / gamma, gamma)
                    found = row_bound(model, (s, a), bound, later, discount, weights, p_k)
                total += chosen * found
            now[s, bound] = total
        later = now
    return {bound: later[episode.states[0], bound] for bound in all_bounds(model)}

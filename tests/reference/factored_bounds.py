"""Bounds of factored models: every extreme coupling of each variable and configuration, nested."""

from collections.abc import Callable
from functools import cache
from itertools import product

from tests.reference.bounds import ENDS, Bound, extreme_rows
from tests.reference.counterfactual import Distribution
from tests.reference.factored_replay import Seen, World, join, parents_of, pays, split


def episode_bounds(
    world: World,
    steps: list[Seen],
    choices: Callable[[int, int], Distribution],
    *,
    discount: float = 1.0,
) -> dict[Bound, float]:
    """Go through the observed steps; at each the worst and the best row of every variable.

    `choices` gives the target's actions at a step in a state. Nothing follows the observed end.
    """

    @cache
    def state_bound(t: int, state: int, bound: Bound) -> float:
        if t == len(steps):
            return float(bound[0] == world.outcomes + 1)
        return sum(
            chosen * row_bound(t, state, action, bound)
            for action, chosen in choices(t, state).items()
        )

    def row_bound(t: int, state: int, action: int, bound: Bound) -> float:
        def worth(reached: int, end: int) -> float:
            goes_on = end == world.outcomes
            after = state_bound(t + 1, reached, bound) if goes_on else 0.0
            if bound[0] == 0:
                return pays(world, steps[t], state, action, reached, end) + discount * after
            return after if goes_on else float(end == bound[0] - 1)

        return part_bound(world, steps[t], state, action, {}, 0, worth, bound)

    bounds = product(range(world.outcomes + 2), (False, True), ENDS)
    return {bound: state_bound(0, steps[0].state, bound) for bound in bounds}


def part_bound(
    world: World,
    seen: Seen,
    state: int,
    action: int,
    after: dict[str, int],
    number: int,
    worth: Callable[[int, int], float],
    bound: Bound,
) -> float:
    """Bound what follows from a variable and those after it, given the levels before it."""
    part = world.parts[number]

    def value(level: int) -> float:
        if part.variable is None:
            ordered = [after[name] for name in world.variables]
            return worth(join(list(world.variables.values()), ordered), level)
        longer = after | {part.variable: level}
        return part_bound(world, seen, state, action, longer, number + 1, worth, bound)

    row = part.rows[parents_of(world, part, state, action, after)]
    there: dict[str, int] = {}
    if seen.reached is not None:
        levels = split(list(world.variables.values()), seen.reached)
        there = dict(zip(world.variables, levels, strict=True))
    if part.variable is not None and seen.reached is None:
        return sum(p * value(level) for level, p in enumerate(row) if p > 0)
    observed = seen.end if part.variable is None else there[part.variable]
    factual = parents_of(world, part, seen.state, seen.action, there)
    if factual == parents_of(world, part, state, action, after):
        return value(observed)
    values = [value(level) if p > 0 else 0.0 for level, p in enumerate(row)]
    _, stable, sign = bound
    rows = extreme_rows(tuple(part.rows[factual]), tuple(row), observed, stable)
    return sign * min(sign * sum(p * v for p, v in zip(one, values, strict=True)) for one in rows)

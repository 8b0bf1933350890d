"""Counterfactuals with noise per variable, in plain Python: every combination of levels."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from math import prod
from typing import NamedTuple

from tests.reference.counterfactual import Distribution, Episode, Rule, action_law
from tests.reference.gumbel import counterfactual_distribution

State = tuple[int, ...]  # a level per variable


class Part(NamedTuple):
    """One factor: its variable (None: the end), its parents and a row for each of their levels."""

    variable: str | None
    parents: tuple[str, ...]
    rows: dict[tuple[int, ...], list[float]]


class World(NamedTuple):
    """Factors in an order in which parents come first, the end last."""

    variables: dict[str, int]  # levels of each state variable
    choices: dict[str, int]  # levels of each action variable
    outcomes: int
    parts: list[Part]
    reward: Callable[[int, int, int], float]  # of state, action and where it leads, S + o


class Seen(NamedTuple):
    """One logged transition; the final state may be unknown, the end is `outcomes` for none."""

    state: int
    action: int
    reached: int | None
    end: int
    reward: float | None = None  # by default that of the model


def split(sizes: Sequence[int], number: int) -> State:
    """Return the levels of a state or action number, the first variable most significant."""
    levels = []
    for size in reversed(sizes):
        number, level = divmod(number, size)
        levels.append(level)
    return tuple(reversed(levels))


def join(sizes: Sequence[int], levels: Sequence[int]) -> int:
    """Return the number of levels."""
    number = 0
    for size, level in zip(sizes, levels, strict=True):
        number = number * size + level
    return number


def parents_of(
    world: World, part: Part, state: int, action: int, after: dict[str, int]
) -> tuple[int, ...] | None:
    """Return the levels of a factor's parents; None if one of them is not known."""
    before = dict(
        zip(world.variables, split(list(world.variables.values()), state), strict=True)
    ) | {
        f"action.{name}": level
        for name, level in zip(
            world.choices, split(list(world.choices.values()), action), strict=True
        )
    }
    known = before | {f"next.{name}": level for name, level in after.items()}
    if any(parent not in known for parent in part.parents):
        return None
    return tuple(known[parent] for parent in part.parents)


def part_law(
    world: World,
    part: Part,
    seen: Seen | None,
    state: int,
    action: int,
    after: dict[str, int],
    rule: Rule,
) -> list[float]:
    """Distribution of one variable, or of the end, given what was observed of it."""
    row = part.rows[parents_of(world, part, state, action, after)]
    if seen is None or (part.variable is not None and seen.reached is None):
        return row
    there = {}
    if seen.reached is not None:
        levels = split(list(world.variables.values()), seen.reached)
        there = dict(zip(world.variables, levels, strict=True))
    observed = seen.end if part.variable is None else there[part.variable]
    factual = parents_of(world, part, seen.state, seen.action, there)
    if factual == parents_of(world, part, state, action, after):
        return [float(level == observed) for level in range(len(row))]
    return rule(part.rows[factual], row, observed)


def next_law(
    world: World,
    seen: Seen | None,
    state: int,
    action: int,
    rule: Rule = counterfactual_distribution,
) -> Distribution:
    """Multiply the rows of all variables, for every combination of their levels."""
    law: Distribution = defaultdict(float)
    for after, end, mass in combinations(world):
        for part in world.parts:
            level = end if part.variable is None else after[part.variable]
            earlier = {
                one.variable: after[one.variable]
                for one in world.parts[: world.parts.index(part)]
                if one.variable is not None
            }
            mass *= part_law(world, part, seen, state, action, earlier, rule)[level]
        law[place_of(world, after, end)] += mass
    return {reached: mass for reached, mass in law.items() if mass > 0}


def combinations(world: World) -> Iterator[tuple[dict[str, int], int, float]]:
    """Go through all next states and ends."""
    for levels in product(*map(range, world.variables.values())):
        for end in range(world.outcomes + 1):
            yield dict(zip(world.variables, levels, strict=True)), end, 1.0


def place_of(world: World, after: dict[str, int], end: int) -> int:
    """Return the number of the next state, or S + o for an outcome."""
    sizes = list(world.variables.values())
    return join(sizes, list(after.values())) if end == world.outcomes else prod(sizes) + end


def exact_outcomes(
    world: World,
    steps: list[Seen],
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
    rule: Rule = counterfactual_distribution,
) -> tuple[list[float], float]:
    """Push the state distribution through the episode's chain: outcome probabilities, return."""
    states = prod(world.variables.values())
    taken = Episode([one.state for one in steps], [one.action for one in steps], [])
    present: Distribution = {steps[0].state: 1.0}
    ended, expected = [0.0] * world.outcomes, 0.0
    for t in range(horizon):
        following: Distribution = defaultdict(float)
        seen = steps[t] if t < len(steps) else None
        for state, mass in present.items():
            for action, chosen in action_law(taken, t, state, behavior, target, shared).items():
                for reached, moved in next_law(world, seen, state, action, rule).items():
                    share = mass * chosen * moved
                    expected += discount**t * share * pays(world, seen, state, action, reached)
                    if reached >= states:
                        ended[reached - states] += share
                    else:
                        following[reached] += share
        present = following
    return [*ended, sum(present.values())], expected


def pays(world: World, seen: Seen | None, state: int, action: int, reached: int) -> float:
    """Return the reward of a transition: the observed one where the observed step repeats."""
    repeats = seen is not None and (state, action) == (seen.state, seen.action)
    if repeats and seen.reward is not None:
        return seen.reward
    return world.reward(state, action, reached)


def abduct(world: World, seen: Seen, state: int, action: int) -> Distribution:
    """Enumerate the joint noise of an inverse CDF, keep what gives the observation, replay it.

    The noise of a factor is a uniform number; between two neighboring cumulative sums of any of its
    rows it makes no difference, so each factor has finitely many kinds of noise.
    """
    kept: Distribution = defaultdict(float)
    evidence = 0.0
    for cells in product(*(noise_cells(part) for part in world.parts)):
        weight = prod(high - low for low, high in cells)
        noise = [(low + high) / 2 for low, high in cells]
        if respond(world, noise, seen.state, seen.action) == (seen.reached, seen.end):
            evidence += weight
            levels, end = respond(world, noise, state, action)
            ended = prod(world.variables.values()) + end
            kept[levels if end == world.outcomes else ended] += weight
    return {reached: mass / evidence for reached, mass in kept.items()}


def noise_cells(part: Part) -> list[tuple[float, float]]:
    """Return the intervals of the noise within which no row of a factor changes its level."""
    sums = {total for row in part.rows.values() for total in accumulate(row) if total < 1.0}
    edges = sorted({0.0, 1.0, *sums})
    return [(low, high) for low, high in pairwise(edges) if high - low > 1e-12]


def respond(world: World, noise: list[float], state: int, action: int) -> tuple[int, int]:
    """Return the next state and the end that this noise leads to."""
    after: dict[str, int] = {}
    end = world.outcomes
    for part, u in zip(world.parts, noise, strict=True):
        row = part.rows[parents_of(world, part, state, action, after)]
        level = next(n for n, total in enumerate([*accumulate(row[:-1]), 1.0]) if u < total)
        if part.variable is None:
            end = level
        else:
            after[part.variable] = level
    number = join(list(world.variables.values()), [after[name] for name in world.variables])
    return number, end

"""Counterfactuals with noise per variable, in plain Python: every combination of levels."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
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
    pay: Part  # the reward of each end (none last), by parents as of a factor


Law = dict[tuple[int, int], float]  # probability of each pair of next state and end


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
    """Return the distribution of the next state, or of S + o where outcome o ends the episode."""
    law: Distribution = defaultdict(float)
    for (reached, end), mass in pair_law(world, seen, state, action, rule).items():
        law[reached if end == world.outcomes else prod(world.variables.values()) + end] += mass
    return dict(law)


def pair_law(
    world: World,
    seen: Seen | None,
    state: int,
    action: int,
    rule: Rule = counterfactual_distribution,
) -> Law:
    """Multiply the rows of all variables, for every combination of their levels."""
    law: Law = {}
    for after, end, mass in combinations(world):
        for part in world.parts:
            level = end if part.variable is None else after[part.variable]
            earlier = {
                one.variable: after[one.variable]
                for one in world.parts[: world.parts.index(part)]
                if one.variable is not None
            }
            mass *= part_law(world, part, seen, state, action, earlier, rule)[level]
        if mass > 0:
            law[join(list(world.variables.values()), list(after.values())), end] = mass
    return law


def combinations(world: World) -> Iterator[tuple[dict[str, int], int, float]]:
    """Go through all next states and ends."""
    for levels in product(*map(range, world.variables.values())):
        for end in range(world.outcomes + 1):
            yield dict(zip(world.variables, levels, strict=True)), end, 1.0


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
    taken = Episode([one.state for one in steps], [one.action for one in steps], [])
    present: Distribution = {steps[0].state: 1.0}
    ended, expected = [0.0] * world.outcomes, 0.0
    for t in range(horizon):
        following: Distribution = defaultdict(float)
        seen = steps[t] if t < len(steps) else None
        for state, mass in present.items():
            for action, chosen in action_law(taken, t, state, behavior, target, shared).items():
                law = pair_law(world, seen, state, action, rule)
                for (reached, end), moved in law.items():
                    share = mass * chosen * moved
                    earned = pays(world, seen, state, action, reached, end)
                    expected += discount**t * share * earned
                    if end < world.outcomes:
                        ended[end] += share
                    else:
                        following[reached] += share
        present = following
    return [*ended, sum(present.values())], expected


def pays(world: World, seen: Seen | None, state: int, action: int, reached: int, end: int) -> float:
    """Return the reward of a transition: the observed one where the observed step repeats."""
    repeats = seen is not None and (state, action) == (seen.state, seen.action)
    if repeats and seen.reward is not None:
        return seen.reward
    return reward_of(world, state, action, reached, end)


def reward_of(world: World, state: int, action: int, reached: int | None, end: int) -> float:
    """Return the reward of a transition, which may depend on the state that an end reaches."""
    after = {}
    if reached is not None:
        levels = split(list(world.variables.values()), reached)
        after = dict(zip(world.variables, levels, strict=True))
    return world.pay.rows[parents_of(world, world.pay, state, action, after)][end]


def best_value(
    world: World,
    steps: list[Seen],
    changes: int,
    *,
    discount: float = 1.0,
    rule: Rule = counterfactual_distribution,
) -> float:
    """Return the largest expected return within this number of changed actions."""

    @cache
    def value(t: int, state: int, left: int) -> float:
        if t == len(steps):
            return 0.0
        kept = steps[t].action
        options = range(prod(world.choices.values())) if left > 0 else [kept]
        return max(after(t, state, left - (action != kept), action) for action in options)

    def after(t: int, state: int, left: int, action: int) -> float:
        return sum(
            moved
            * (
                pays(world, steps[t], state, action, reached, end)
                + (discount * value(t + 1, reached, left) if end == world.outcomes else 0.0)
            )
            for (reached, end), moved in pair_law(world, steps[t], state, action, rule).items()
        )

    return value(0, steps[0].state, changes)


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

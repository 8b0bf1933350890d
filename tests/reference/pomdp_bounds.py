"""Bounds with a hidden state: a linear program for each row of each pair of both worlds.

The posterior of the hidden path comes from enumerating every world, and nothing is shared between
pairs: every row that the other world may use is bounded anew.
"""

from collections import defaultdict
from itertools import product

from tests.reference.bounds import ENDS, Bound, Question, solve
from tests.reference.counterfactual import Distribution
from tests.reference.gumbel import counterfactual_distribution
from tests.reference.pomdp import Agent, Model, Seen, every_world, logged_reward

Place = tuple[int, int]  # hidden state and memory of the world under the target
Values = dict[tuple[Place, Bound], float]


def episode_bounds(
    model: Model,
    seen: Seen,
    behavior: Agent,
    target: Agent,
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
) -> dict[Bound, float]:
    """Go backwards: for each actual hidden state, branch and place, the worst and best row."""
    worlds = [world for world in every_world(model, behavior, horizon) if world[0] == seen]
    bounds = list(product(range(model.outcomes + 2), (False, True), ENDS))
    places = list(product(range(model.states), memories(model, target)))
    places = [place for place in places if model.outcome[place[0]] < 0]
    length = len(seen.actions)
    after = alone(model, target, places, bounds, horizon - length, discount)
    later = {states[-1]: after for _, states, _, _ in worlds}
    for t in reversed(range(length)):
        arriving = arrivals(model, seen, target, t, places, bounds, later)
        branches: dict[int, Distribution] = defaultdict(lambda: defaultdict(float))
        remembered = {}
        for _, states, memory, mass in worlds:
            branches[states[t]][states[t + 1]] += mass
            remembered[states[t]] = memory[t]
        questions, asked = [], []
        rows: dict[tuple[int, int, Place, int, Bound], float] = {}
        for h, (place, bound) in product(branches, product(places, bounds)):
            for x, a in product(branches[h], range(model.actions)):
                row = model.rows[place[0], a]
                repeats = (place[0], a) == (h, seen.actions[t])
                worth = {
                    y: value_of(
                        model,
                        logged_reward(seen, t) if repeats else row[y][1],
                        y,
                        bound,
                        discount,
                        arriving.get((x, y, place, a)),
                    )
                    for y in row
                }
                key = (h, x, place, a, bound)
                if repeats:
                    rows[key] = worth[x]
                elif len(row) == 1:
                    rows[key] = next(iter(worth.values()))
                else:
                    factual = {y: p for y, (p, _) in model.rows[h, seen.actions[t]].items()}
                    other = {y: p for y, (p, _) in row.items()}
                    questions.append(ask(model.label, factual, other, x, worth, bound))
                    asked.append(key)
        rows |= zip(asked, solve(questions) if questions else [], strict=True)
        now: dict[int, Values] = {h: {} for h in branches}
        for h, (place, bound) in product(branches, product(places, bounds)):
            choice = list(target.row(place[1], place[0]))
            if shared:
                acted = list(behavior.row(remembered[h], h))
                choice = counterfactual_distribution(acted, choice, seen.actions[t])
            total = sum(branches[h].values())
            now[h][place, bound] = sum(
                chosen * mass / total * rows[h, x, place, a, bound]
                for a, chosen in enumerate(choice)
                for x, mass in branches[h].items()
            )
        later = now
    total = sum(mass for *_, mass in worlds)
    node = target.first(seen.observations[0])
    return {
        bound: sum(
            mass / total * later[states[0]][(states[0], node), bound]
            for _, states, _, mass in worlds
        )
        for bound in bounds
    }


def memories(model: Model, target: Agent) -> list[int]:
    """All that a target may remember."""
    found = {target.first(shown) for shown in range(model.observations)}
    while True:
        more = found | {
            target.following(m, a, shown)
            for m, a, shown in product(found, range(model.actions), range(model.observations))
        }
        if more == found:
            return sorted(found)
        found = more


def alone(
    model: Model,
    target: Agent,
    places: list[Place],
    bounds: list[Bound],
    steps: int,
    discount: float,
) -> Values:
    """What the model alone gives after the logged end."""
    none = model.outcomes + 1
    later: Values = {
        (place, bound): float(bound[0] == none) for place in places for bound in bounds
    }
    for _ in range(steps):
        now: Values = {}
        for place, bound in product(places, bounds):
            now[place, bound] = 0.0
            for a, chosen in enumerate(target.row(place[1], place[0])):
                for y, (p, reward) in model.rows[place[0], a].items():
                    ahead = {bound: 0.0}
                    for shown, chance in model.emission[y].items() if model.outcome[y] < 0 else ():
                        after = (y, target.following(place[1], a, shown))
                        ahead[bound] += chance * later[after, bound]
                    worth = value_of(model, reward, y, bound, discount, ahead)
                    now[place, bound] += chosen * p * worth
        later = now
    return later


def value_of(
    model: Model,
    reward: float,
    reached: int,
    bound: Bound,
    discount: float,
    ahead: dict[Bound, float] | None,
) -> float:
    """What a move contributes to a bound; `ahead` is what follows if it is no end."""
    end = model.outcome[reached]
    if bound[0] == 0:
        return reward + (0.0 if end >= 0 or ahead is None else discount * ahead[bound])
    if end >= 0 or ahead is None:
        return float(end == bound[0] - 1)
    return ahead[bound]


def arrivals(
    model: Model,
    seen: Seen,
    target: Agent,
    t: int,
    places: list[Place],
    bounds: list[Bound],
    later: dict[int, Values],
) -> dict[tuple[int, int, Place, int], dict[Bound, float]]:
    """Bound what follows on arrival in y, by what it may show, given what x showed."""
    shown_there = seen.observations[t + 1]
    found: dict[tuple[int, int, Place, int], dict[Bound, float]] = defaultdict(dict)
    questions, asked = [], []
    going = [y for y in range(model.states) if model.outcome[y] < 0]
    for x, y, place, a in product(later, going, places, range(model.actions)):
        row = model.emission[y]
        after = {shown: (y, target.following(place[1], a, shown)) for shown in row}
        for bound in bounds:
            value = {shown: later[x][after[shown], bound] for shown in row}
            key = (x, y, place, a)
            if len(row) == 1:
                found[key][bound] = next(iter(value.values()))
            elif shown_there not in model.emission[x]:
                found[key][bound] = sum(row[shown] * value[shown] for shown in row)
            elif x == y:
                found[key][bound] = value[shown_there]
            else:
                label = list(range(model.observations))
                questions.append(ask(label, model.emission[x], row, shown_there, value, bound))
                asked.append((key, bound))
    for (key, bound), value in zip(asked, solve(questions) if questions else [], strict=True):
        found[key][bound] = value
    return found


def ask(
    label: list[int],
    p: Distribution,
    q: Distribution,
    k: int,
    value: dict[int, float],
    bound: Bound,
) -> Question:
    """Ask about a row by label."""
    dense = [[0.0] * (max(label) + 1) for _ in range(3)]
    for target, given in zip(dense, (p, q, value), strict=True):
        for y, number in given.items():
            target[label[y]] = number
    return Question(dense[0], dense[1], label[k], dense[2], *bound[1:])

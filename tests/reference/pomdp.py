"""Counterfactuals with a hidden state in plain Python: every hidden path, one by one.

Nothing is passed forward or backward: given a whole hidden path the noises are independent, so the
world under the target is pushed along each path, and the paths are weighed by their probability.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.reference.counterfactual import Distribution
from tests.reference.gumbel import counterfactual_distribution


class Model(NamedTuple):
    """Rows by (state, action): next state to (probability, reward)."""

    states: int
    actions: int
    observations: int
    outcomes: int
    rows: dict[tuple[int, int], dict[int, tuple[float, float]]]
    label: list[int]
    initial: list[float]
    emission: list[Distribution]  # of each state; of an end it may be empty
    outcome: list[int]
    reward_seen: bool


class Seen(NamedTuple):
    """What a log tells: observations, actions, rewards, the outcome (-1: none)."""

    observations: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]
    outcome: int


class Agent(NamedTuple):
    """A policy: what it remembers first and next, and how it acts on memory and hidden state."""

    first: Callable[[int], int]
    following: Callable[[int, int, int], int]  # memory, action, observation
    row: Callable[[int, int], Sequence[float]]  # memory, hidden state


def every_world(
    model: Model, agent: Agent, horizon: int
) -> Iterator[tuple[Seen, list[int], list[int], float]]:
    """Yield what can happen: what is seen, hidden states, memories, and the probability."""

    def go_on(
        states: list[int],
        seen: list[int],
        memory: list[int],
        actions: list[int],
        rewards: list[float],
        mass: float,
    ) -> Iterator[tuple[Seen, list[int], list[int], float]]:
        end = model.outcome[states[-1]]
        if end >= 0 or len(actions) == horizon:
            told = tuple(rewards) if model.reward_seen else ()
            yield Seen(tuple(seen), tuple(actions), told, end), states, memory, mass
            return
        for action, chosen in enumerate(agent.row(memory[-1], states[-1])):
            for reached, (moved, reward) in model.rows[states[-1], action].items():
                for shown, chance in (model.emission[reached] or {-1: 1.0}).items():
                    share = mass * chosen * moved * chance
                    if share > 0:
                        yield from go_on(
                            [*states, reached],
                            [*seen, shown],
                            [*memory, agent.following(memory[-1], action, shown)],
                            [*actions, action],
                            [*rewards, reward],
                            share,
                        )

    for state, mass in enumerate(model.initial):
        for shown, chance in model.emission[state].items() if mass > 0 else ():
            yield from go_on([state], [shown], [agent.first(shown)], [], [], mass * chance)


class Step(NamedTuple):
    """One step of the world under the target, given a whole hidden path."""

    present: dict[tuple[int, int], float]  # mass by hidden state and memory, before the step
    moves: list[tuple[float, int, int, Distribution]]  # share, state, action, law of the next state
    shown: Distribution  # mass by what is seen after it
    ended: list[float]  # mass that ends with each outcome
    earned: float
    absolute: float  # the same of absolute rewards


def steps_of_path(
    model: Model,
    seen: Seen,
    states: list[int],
    rows: Sequence[Sequence[float]],
    target: Agent,
    *,
    shared: bool,
    horizon: int,
    since: int = 0,
) -> Iterator[Step]:
    """Go through the world under the target, which takes over at step `since`.

    `rows` are the behavior's at each step of this path.
    """
    memory = target.first(seen.observations[0])
    for t in range(since):
        memory = target.following(memory, seen.actions[t], seen.observations[t + 1])
    over = model.outcome[states[since]] >= 0
    present = {} if over else {(states[since], memory): 1.0}
    for t in range(since, horizon):
        following: dict[tuple[int, int], float] = defaultdict(float)
        step = Step(present, [], defaultdict(float), [0.0] * model.outcomes, 0.0, 0.0)
        earned = absolute = 0.0
        logged = t < len(seen.actions)
        for (state, memory), mass in present.items():
            choice = list(target.row(memory, state))
            if logged and shared:
                choice = counterfactual_distribution(list(rows[t]), choice, seen.actions[t])
            for action, chosen in enumerate(choice):
                if chosen == 0:
                    continue
                row = model.rows[state, action]
                law = {x: p for x, (p, _) in row.items()}
                if logged:
                    factual = model.rows[states[t], seen.actions[t]]
                    law = related(
                        {model.label[x]: p for x, (p, _) in factual.items()},
                        {model.label[x]: p for x, p in law.items()},
                        model.label[states[t + 1]],
                    )
                    law = {x: law.get(model.label[x], 0.0) for x in row}
                step.moves.append((mass * chosen, state, action, law))
                for reached, moved in law.items():
                    share = mass * chosen * moved
                    reward = row[reached][1]
                    if logged and (state, action) == (states[t], seen.actions[t]):
                        reward = logged_reward(seen, t)
                    earned += share * reward
                    absolute += share * abs(reward)
                    if model.outcome[reached] >= 0:
                        step.ended[model.outcome[reached]] += share
                        continue
                    show = model.emission[reached]
                    if logged and model.emission[states[t + 1]]:
                        show = related(
                            model.emission[states[t + 1]], show, seen.observations[t + 1]
                        )
                    for shown, chance in show.items():
                        step.shown[shown] += share * chance
                        key = reached, target.following(memory, action, shown)
                        following[key] += share * chance
        yield step._replace(earned=earned, absolute=absolute)
        present = following


def logged_reward(seen: Seen, t: int) -> float:
    """Return what step t paid, which it pays again where it repeats; 0 where nothing is told."""
    return seen.rewards[t] if seen.rewards else 0.0


def law_of_path(
    model: Model,
    seen: Seen,
    states: list[int],
    rows: Sequence[Sequence[float]],
    target: Agent,
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
    since: int = 0,
) -> tuple[list[float], float]:
    """Outcome probabilities and expected return from `since` on, given the whole hidden path."""
    ended, expected = [0.0] * model.outcomes, 0.0
    steps = steps_of_path(
        model, seen, states, rows, target, shared=shared, horizon=horizon, since=since
    )
    for t, step in enumerate(steps):
        expected += discount**t * step.earned
        ended = [total + more for total, more in zip(ended, step.ended, strict=True)]
    return [*ended, 1.0 - sum(ended)], expected


def related(p: Distribution, q: Distribution, k: int) -> Distribution:
    """Gumbel-Max counterfactual of q given k under p, over labels."""
    size = max(*p, *q) + 1
    dense = [[row.get(label, 0.0) for label in range(size)] for row in (p, q)]
    found = counterfactual_distribution(dense[0], dense[1], k)
    return {label: found[label] for label in q}


def exact_outcomes(
    model: Model,
    behavior: Agent,
    target: Agent,
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
    since: int = 0,
) -> dict[Seen, tuple[float, list[float], float]]:
    """Probability of all that can be seen, with the law under the target given each.

    The target takes over at step `since`, of the episodes that are so long.
    """
    found: dict[Seen, tuple[float, list[float], float]] = {}
    for seen, states, memory, mass in every_world(model, behavior, horizon):
        if since > len(seen.actions):
            continue
        rows = [behavior.row(m, h) for m, h in zip(memory, states, strict=True)]
        ended, expected = law_of_path(
            model,
            seen,
            states,
            rows,
            target,
            shared=shared,
            horizon=horizon,
            discount=discount,
            since=since,
        )
        total, sums, earned = found.get(seen, (0.0, [0.0] * len(ended), 0.0))
        found[seen] = (
            total + mass,
            [s + mass * e for s, e in zip(sums, ended, strict=True)],
            earned + mass * expected,
        )
    return {
        seen: (total, [s / total for s in sums], earned / total)
        for seen, (total, sums, earned) in found.items()
    }


class Walk(NamedTuple):
    """What is known of the world under the target, step by step, given what was seen."""

    weight: float  # probability of what was seen
    mass: list[float]
    influence: list[float]
    earned: list[float]
    evidence: list[float]
    thin: list[float]
    shown: list[list[float]]  # [t + 1][observation], without outcome
    latent: list[list[float]]  # [t][hidden state], without outcome
    ended: list[list[float]]  # [t + 1][outcome] by then


def walk(
    model: Model, behavior: Agent, target: Agent, *, shared: bool, horizon: int, thin: float
) -> dict[Seen, Walk]:
    """Walk through the world under the target, averaged over every hidden path."""
    worlds = list(every_world(model, behavior, horizon))
    total: dict[Seen, float] = defaultdict(float)
    own: dict[Seen, dict[tuple[int, int], float]] = {}
    for seen, states, _, mass in worlds:
        total[seen] += mass
        cases = own.setdefault(seen, defaultdict(float))
        for pair in zip(states, seen.actions, strict=False):
            cases[pair] += mass
    cases = {seen: {pair: m / total[seen] for pair, m in own[seen].items()} for seen in own}
    counts: dict[tuple[int, int], float] = defaultdict(float)
    for table in cases.values():
        for pair, number in table.items():
            counts[pair] += number
    sums: dict[Seen, list[dict[str, dict[tuple[int, ...], float]]]] = {}
    for seen, states, memory, mass in worlds:
        rows = [behavior.row(m, h) for m, h in zip(memory, states, strict=True)]
        share = mass / total[seen]
        tables = sums.setdefault(
            seen, [defaultdict(lambda: defaultdict(float)) for _ in range(horizon)]
        )
        steps = steps_of_path(model, seen, states, rows, target, shared=shared, horizon=horizon)
        for table, step in zip(tables, steps, strict=True):
            table["sum"][0,] += share * step.absolute
            for (state, _), here in step.present.items():
                table["latent"][state,] += share * here
            for shown, here in step.shown.items():
                table["shown"][shown,] += share * here
            for outcome, here in enumerate(step.ended):
                table["ended"][outcome,] += share * here
            for here, state, action, law in step.moves:
                row = model.rows[state, action]
                apart = sum(abs(law[x] - p) for x, (p, _) in row.items()) / 2
                table["sum"][1,] += share * here * apart
                table["row"][state, action] += share * here
    return {
        seen: _walk_of(model, total[seen], tables, counts, cases[seen], thin)
        for seen, tables in sums.items()
    }


def _walk_of(
    model: Model,
    weight: float,
    tables: list[dict[str, dict[tuple[int, ...], float]]],
    counts: dict[tuple[int, int], float],
    own: dict[tuple[int, int], float],
    thin: float,
) -> Walk:
    found = Walk(weight, [], [], [], [], [], [], [], [])
    ended = [0.0] * model.outcomes
    for table in tables:
        mass = sum(table["latent"].values())
        found.mass.append(mass)
        found.influence.append(table["sum"][1,] / mass if mass > 0 else 0.0)
        found.earned.append(table["sum"][0,])
        cases = sorted(
            (counts.get(pair, 0.0) - own.get(pair, 0.0), here)
            for pair, here in table["row"].items()
        )
        found.thin.append(sum(here for number, here in cases if number < thin))
        passed, median = 0.0, math.nan
        for number, here in cases:
            passed, median = passed + here, number
            if 2 * passed >= mass * (1 - 1e-12):
                break
        found.evidence.append(median)
        found.shown.append([table["shown"].get((o,), 0.0) for o in range(model.observations)])
        found.latent.append([table["latent"].get((h,), 0.0) for h in range(model.states)])
        ended = [e + table["ended"].get((o,), 0.0) for o, e in enumerate(ended)]
        found.ended.append(ended)
    return found


def posterior(model: Model, behavior: Agent, horizon: int) -> dict[Seen, list[list[float]]]:
    """Probability of each hidden state at each step, given all that is seen."""
    sums: dict[Seen, list[list[float]]] = {}
    for seen, states, _, mass in every_world(model, behavior, horizon):
        table = sums.setdefault(seen, [[0.0] * model.states for _ in states])
        for row, state in zip(table, states, strict=True):
            row[state] += mass
    return {
        seen: [[value / sum(row) for value in row] for row in table] for seen, table in sums.items()
    }


def gumbel_worlds(
    model: Model,
    behavior: Agent,
    target: Agent,
    *,
    shared: bool,
    horizon: int,
    uniform: Callable[[], float],
) -> tuple[Seen, int]:
    """Draw all noises of a patient, run both worlds on them: what is seen, and the other outcome.

    Every mechanism has its own Gumbel noise at every step, one for each label, which both worlds
    share (that of actions only if `shared`).
    """
    noise: dict[tuple[str, int, int], float] = {}

    def choose(kind: str, t: int, row: Distribution) -> int:
        best, chosen = -math.inf, -1
        for label, p in row.items():
            key = kind, t, label
            if key not in noise:
                noise[key] = -math.log(-math.log(uniform()))
            if p > 0 and math.log(p) + noise[key] > best:
                best, chosen = math.log(p) + noise[key], label
        return chosen

    def run(agent: Agent, actions_kind: str) -> tuple[Seen, list[int]]:
        state = choose("start", 0, dict(enumerate(model.initial)))
        shown = choose("seen", 0, model.emission[state])
        memory = agent.first(shown)
        states, seen, done, earned = [state], [shown], [], []
        for t in range(horizon):
            action = choose(actions_kind, t, dict(enumerate(agent.row(memory, states[-1]))))
            row = model.rows[states[-1], action]
            by_label = {model.label[x]: x for x in row}
            label = choose("state", t, {model.label[x]: p for x, (p, _) in row.items()})
            reached = by_label[label]
            states.append(reached)
            done.append(action)
            earned.append(row[reached][1])
            shown = (
                choose("seen", t + 1, model.emission[reached]) if model.emission[reached] else -1
            )
            seen.append(shown)
            if model.outcome[reached] >= 0:
                break
            memory = agent.following(memory, action, shown)
        told = tuple(earned) if model.reward_seen else ()
        return Seen(tuple(seen), tuple(done), told, model.outcome[states[-1]]), states

    seen, _ = run(behavior, "action")
    other, _ = run(target, "action" if shared else "other action")
    return seen, other.outcome

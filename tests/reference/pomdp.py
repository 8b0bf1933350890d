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
) -> tuple[list[float], float]:
    """Outcome probabilities and expected return under the target, given the whole hidden path.

    `rows` are the behaviour's at each step of this path.
    """
    first = seen.observations[0]
    present: dict[tuple[int, int], float] = {(states[0], target.first(first)): 1.0}
    ended, expected = [0.0] * model.outcomes, 0.0
    for t in range(horizon):
        following: dict[tuple[int, int], float] = defaultdict(float)
        logged = t < len(seen.actions)
        for (state, memory), mass in present.items():
            choice = list(target.row(memory, state))
            if logged and shared:
                choice = counterfactual_distribution(list(rows[t]), choice, seen.actions[t])
            for action, chosen in enumerate(choice):
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
                for reached, moved in law.items():
                    share = mass * chosen * moved
                    expected += discount**t * share * row[reached][1]
                    if model.outcome[reached] >= 0:
                        ended[model.outcome[reached]] += share
                        continue
                    show = model.emission[reached]
                    if logged and seen.observations[t + 1] >= 0:
                        was = model.emission[states[t + 1]]
                        if was:
                            show = related(was, show, seen.observations[t + 1])
                    for shown, chance in show.items():
                        key = reached, target.following(memory, action, shown)
                        following[key] += share * chance
        present = following
    return [*ended, sum(present.values())], expected


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
) -> dict[Seen, tuple[float, list[float], float]]:
    """Probability of all that can be seen, with the law under the target given each."""
    found: dict[Seen, tuple[float, list[float], float]] = {}
    for seen, states, memory, mass in every_world(model, behavior, horizon):
        rows = [behavior.row(m, h) for m, h in zip(memory, states, strict=True)]
        ended, expected = law_of_path(
            model, seen, states, rows, target, shared=shared, horizon=horizon, discount=discount
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

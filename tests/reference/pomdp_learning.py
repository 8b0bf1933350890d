"""Learning with a hidden state, slowly: every hidden path of an episode, one by one."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """An episode as it was seen."""

    observation: list[int]  # one more than actions; the last may be -1: unknown
    action: list[int]
    reward: list[float]
    outcome: int


def seen_episodes(log: Any) -> list[Seen]:
    """Return a log as plain episodes."""
    found = []
    for episode, outcome in enumerate(log.outcome.tolist()):
        rows = slice(log.offsets[episode], log.offsets[episode + 1])
        states = [*log.state[rows].tolist(), int(log.next_state[rows][-1])]
        found.append(Seen(states, log.action[rows].tolist(), log.reward[rows].tolist(), outcome))
    return found


def expected_counts(
    model: Any, behavior: Any, episodes: list[Seen]
) -> tuple[Any, Any, list[float]]:
    """Expected visits of each transition (h, a, x) and first state, and each episode's evidence.

    `behavior` [H, A] saw the hidden state; None: actions tell nothing.
    """
    emission = model.emission.toarray()
    moved: dict[Any, float] = defaultdict(float)
    began: dict[int, float] = defaultdict(float)
    evidence = []

    def like(episode, t, h):
        end = t == len(episode.action)
        if model.outcome[h] != (episode.outcome if end else -1):
            return 0.0
        seen = episode.observation[t]
        p = (
            1.0
            if model.outcome[h] >= 0 and (seen < 0 or not emission[h].any())
            else emission[h, seen]
        )
        return p if end or behavior is None else p * behavior[h][episode.action[t]]

    def rewarded(h, a, x, r):
        dynamics = model.dynamics
        for e in range(*dynamics.start[h * model.n_actions + a :][:2]):
            if dynamics.next_state[e] == x:
                return not model.reward_seen or math.isclose(dynamics.reward[e], r, abs_tol=1e-9)
        return False

    for episode in episodes:
        paths = [([h], model.initial[h] * like(episode, 0, h)) for h in range(model.n_states)]
        for t, action in enumerate(episode.action):
            paths = [
                ([*path, x], weight * p * like(episode, t + 1, x))
                for path, weight in paths
                if weight > 0
                for x, p in model.dynamics.row(path[-1], action).items()
                if rewarded(path[-1], action, x, episode.reward[t])
            ]
        total = sum(weight for _, weight in paths)
        evidence.append(total)
        for path, weight in paths:
            began[path[0]] += weight / total
            for t, (h, x) in enumerate(itertools.pairwise(path)):
                moved[h, episode.action[t], x] += weight / total
    return moved, began, evidence


def chance(factored: Any, state: tuple, action: tuple, following: tuple) -> float:
    """Probability of the next levels, variable by variable."""
    names = [variable.name for variable in factored.state_variables]
    level = dict(zip(names, state, strict=True))
    for variable, code in zip(factored.action_variables, action, strict=True):
        level["action:" + variable.name] = code
    product = 1.0
    for name, code in zip(names, following, strict=True):
        move = factored.moves.get(name, name)
        if isinstance(move, str):
            product *= level[move] == code
        else:
            product *= move.probability[(*(level[parent] for parent in move.parents), code)]
    return product


def levels_of(variables: Any) -> list[tuple]:
    """All combinations of level codes, in the order of their numbers."""
    return list(itertools.product(*(range(len(variable.levels)) for variable in variables)))


def draw_chance(factored: Any, state: tuple) -> float:
    """Probability of a first state as the tables draw it, before ends are thrown away."""
    level = dict(zip([v.name for v in factored.state_variables], state, strict=True))
    product = 1.0
    for name, table in factored.initial.items():
        product *= table.probability[(*(level[p] for p in table.parents), level[name])]
    return product


def improve(factored: Any, behavior: Any, log: Any) -> tuple[float, dict, dict, dict]:
    """One iteration of EM: log-likelihood, and expected counts of every table's cells.

    Returns counts by variable and (levels of parents, next level); those of the first state's
    tables likewise (or by state, if the first state has one joint distribution); and decisions by
    (hidden state, action).
    """
    model = factored.model()
    states, actions = levels_of(factored.state_variables), levels_of(factored.action_variables)
    names = [variable.name for variable in factored.state_variables]
    moved, began, evidence = expected_counts(model, behavior, seen_episodes(log))
    counts: dict[str, dict] = {name: defaultdict(float) for name in factored.tables}
    decisions: dict[Any, float] = defaultdict(float)
    for (h, a, x), weight in moved.items():
        decisions[h, a] += weight
        level = dict(zip(names, states[h], strict=True))
        for variable, code in zip(factored.action_variables, actions[a], strict=True):
            level["action:" + variable.name] = code
        for name, table in factored.tables.items():
            key = (*(level[parent] for parent in table.parents), states[x][names.index(name)])
            counts[name][key] += weight
    first: dict[Any, Any] = dict(began)
    if isinstance(factored.initial, dict):
        drawn = {h: draw_chance(factored, state) for h, state in enumerate(states)}
        kept = sum(p for h, p in drawn.items() if factored.outcome[h] < 0)
        weights = dict(began)
        for h, p in drawn.items():
            if factored.outcome[h] >= 0:  # expected discarded draws per kept one
                weights[h] = weights.get(h, 0.0) + len(evidence) * p / kept
        first = {name: defaultdict(float) for name in factored.initial}
        for h, weight in weights.items():
            level = dict(zip(names, states[h], strict=True))
            for name, table in factored.initial.items():
                first[name][(*(level[p] for p in table.parents), level[name])] += weight
    return sum(math.log(p) for p in evidence), counts, first, decisions

"""Counterfactuals of whole episodes, in plain Python: dictionaries, loops, no shortcuts."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.reference.gumbel import counterfactual_distribution

Distribution = dict[int, float]
Rule = Callable[[list[float], list[float], int], list[float]]  # a mechanism: p, q, k to a row


class Model(NamedTuple):
    """Rows by (state, action): next state to (probability, reward); S + o is the outcome o."""

    states: int
    actions: int
    outcomes: int
    rows: dict[tuple[int, int], dict[int, tuple[float, float]]]
    label: list[int]  # of each state and outcome


class Episode(NamedTuple):
    """The states in which decisions were made, the actions, where each one led, what it paid."""

    states: list[int]
    actions: list[int]
    reached: list[int]
    rewards: Sequence[float] = ()  # by default those of the model


def exact_outcomes(
    model: Model,
    episode: Episode,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    *,
    shared: bool,
    horizon: int,
    discount: float = 1.0,
    continuation: bool = True,
    negligible: float = 0.0,
    rule: Rule = counterfactual_distribution,
) -> tuple[list[float], float]:
    """Push the state distribution through the episode's chain: outcome probabilities, return.

    Mass below `negligible` while something is observed goes on apart, by model and target alone.
    """
    present: Distribution = {episode.states[0]: 1.0}
    nothing = Episode([], [], [])
    ended = [0.0] * model.outcomes
    expected, alone = 0.0, 0.0
    last = horizon if continuation else len(episode.states)
    for t in range(last):
        following: Distribution = defaultdict(float)
        for state, mass in present.items():
            if mass < negligible and t < len(episode.states):
                law, value = exact_outcomes(
                    model,
                    nothing._replace(states=[state]),
                    behavior,
                    target,
                    shared=False,
                    horizon=last - t,
                    discount=discount,
                )
                ended = [e + mass * p for e, p in zip(ended, law, strict=False)]
                alone += mass * law[-1]
                expected += discount**t * mass * value
                continue
            for action, chosen in action_law(episode, t, state, behavior, target, shared).items():
                for reached, moved in next_law(model, episode, t, state, action, rule).items():
                    share = mass * chosen * moved
                    expected += (
                        discount**t * share * pays(model, episode, t, state, action, reached)
                    )
                    if reached >= model.states:
                        ended[reached - model.states] += share
                    else:
                        following[reached] += share
        present = following
    return [*ended, sum(present.values()) + alone], expected


def action_law(
    episode: Episode,
    t: int,
    state: int,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    shared: bool,
) -> Distribution:
    """Distribution of the target's action: the counterfactual of the observed one if shared."""
    row = list(target[state])
    if shared and t < len(episode.actions):
        factual = list(behavior[episode.states[t]])
        row = counterfactual_distribution(factual, row, episode.actions[t])
    return {action: p for action, p in enumerate(row) if p > 0}


def next_law(
    model: Model,
    episode: Episode,
    t: int,
    state: int,
    action: int,
    rule: Rule = counterfactual_distribution,
) -> Distribution:
    """Distribution of the next state: the counterfactual of the observed transition, or P."""
    row = model.rows[state, action]
    if t >= len(episode.actions):
        return {reached: p for reached, (p, _) in row.items()}
    if (state, action) == (episode.states[t], episode.actions[t]):
        return {reached: float(reached == episode.reached[t]) for reached in row}
    p, q = ([0.0] * (max(model.label) + 1) for _ in range(2))
    factual = model.rows[episode.states[t], episode.actions[t]]
    for vector, source in ((p, factual), (q, row)):
        for reached, (probability, _) in source.items():
            vector[model.label[reached]] = probability
    law = rule(p, q, model.label[episode.reached[t]])
    return {reached: law[model.label[reached]] for reached in row}


def pays(model: Model, episode: Episode, t: int, state: int, action: int, reached: int) -> float:
    """Return the reward of a transition: the observed one where the observed step repeats."""
    if t < len(episode.rewards) and (state, action) == (episode.states[t], episode.actions[t]):
        return episode.rewards[t]
    return model.rows[state, action][reached][1]


def draw(
    model: Model,
    episode: Episode,
    behavior: Sequence[Sequence[float]],
    target: Sequence[Sequence[float]],
    *,
    shared: bool,
    horizon: int,
    key: int,
    number: int,
) -> tuple[list[int], list[int]]:
    """Draw number `number` of an episode: its states, an outcome at the end, and its actions."""
    states, actions = [episode.states[0]], []
    for t in range(horizon):
        if states[-1] >= model.states:
            break
        state = states[-1]
        counter = number * 2**32 + 2 * t
        law = action_law(episode, t, state, behavior, target, shared)
        action = pick(law, uniform(key, counter))
        law = next_law(model, episode, t, state, action)
        in_label_order = {x: law[x] for x in sorted(law, key=lambda x: model.label[x])}
        actions.append(action)
        states.append(pick(in_label_order, uniform(key, counter + 1)))
    return states, actions


def pick(law: Distribution, u: float) -> int:
    """Return the outcome at which the running sum of probabilities passes u."""
    total = 0.0
    chosen = -1
    for outcome, probability in law.items():
        if probability > 0:
            chosen = outcome
            total += probability
            if u < total:
                break
    return chosen


def uniform(key: int, counter: int) -> float:
    """Return the counter-th number of the SplitMix64 stream of a key, in [0, 1)."""
    limit = 2**64
    x = (key + (counter + 1) * 0x9E3779B97F4A7C15) % limit
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % limit
    x = (x ^ x >> 27) * 0x94D049BB133111EB % limit
    x = x ^ x >> 31
    return (x >> 11) / 2**53


def every_episode(
    model: Model, behavior: Sequence[Sequence[float]], start: int, horizon: int
) -> Iterator[tuple[Episode, float]]:
    """Go through all episodes from a state, with their probabilities under the behavior."""
    waiting = [(Episode([], [], []), start, 1.0)]
    while waiting:
        episode, state, probability = waiting.pop()
        if state >= model.states or len(episode.states) == horizon:
            yield episode, probability
            continue
        for action, chosen in enumerate(behavior[state]):
            for reached, (p, _) in model.rows[state, action].items():
                longer = Episode(
                    [*episode.states, state],
                    [*episode.actions, action],
                    [*episode.reached, reached],
                )
                if chosen > 0:
                    waiting.append((longer, reached, probability * chosen * p))

"""Fewest changes in plain Python: recursion over time, state and changes left, or every policy."""

from functools import cache
from itertools import product
from math import inf

from tests.reference.counterfactual import Episode, Model, Rule, next_law, pays
from tests.reference.gumbel import counterfactual_distribution


def best_value(
    model: Model,
    episode: Episode,
    changes: int,
    *,
    discount: float = 1.0,
    rule: Rule = counterfactual_distribution,
) -> float:
    """Return the largest expected return within this number of changed actions."""

    @cache
    def value(t: int, state: int, left: int) -> float:
        if t == len(episode.states) or state >= model.states:
            return 0.0
        options = [episode.actions[t]] if left == 0 else range(model.actions)
        return max(after(t, state, left, action) for action in options)

    def after(t: int, state: int, left: int, action: int) -> float:
        remaining = left - (action != episode.actions[t])
        law = next_law(model, episode, t, state, action, rule)
        return sum(
            moved
            * (
                pays(model, episode, t, state, action, reached)
                + discount * value(t + 1, reached, remaining)
            )
            for reached, moved in law.items()
        )

    return value(0, episode.states[0], changes)


def best_of_every_policy(model: Model, episode: Episode, changes: int) -> float:
    """The same by trying every policy, an action for each history of states, on its own.

    On every possible course a policy may change at most this number of actions.
    """
    first = (episode.states[0],)
    later = product(range(model.states), repeat=len(episode.states) - 1)
    histories = sorted({first + end[:n] for end in later for n in range(len(end) + 1)})
    best = -inf
    for actions in product(range(model.actions), repeat=len(histories)):
        policy = dict(zip(histories, actions, strict=True))
        earned, most = follow(model, episode, policy, first)
        if most <= changes:
            best = max(best, earned)
    return best


def follow(
    model: Model,
    episode: Episode,
    policy: dict[tuple[int, ...], int],
    history: tuple[int, ...],
) -> tuple[float, int]:
    """Return a policy's expected return after a history, and the most changes that it may make."""
    t, state = len(history) - 1, history[-1]
    if t == len(episode.states) or state >= model.states:
        return 0.0, 0
    action = policy[history]
    total, most = 0.0, 0
    for reached, moved in next_law(model, episode, t, state, action).items():
        if moved > 0:
            earned, more = follow(model, episode, policy, (*history, reached))
            total += moved * (pays(model, episode, t, state, action, reached) + earned)
            most = max(most, more)
    return total, most + (action != episode.actions[t])

"""Planning and evaluation in plain Python: value iteration, and the definition of a value.

A model is nested lists: `transition[s][a][j]` and `reward[s][a][j]`, where j < S is a state and
j = S + o the outcome o, after which nothing is earned. Values are lists over the states.
"""

from collections.abc import Sequence

Table = Sequence[Sequence[Sequence[float]]]


def action_value(
    transition: Table,
    reward: Table,
    values: Sequence[float],
    discount: float,
    state: int,
    action: int,
) -> float:
    """Return the sum over j of P(j | s, a) (r + discount V(j)), V = 0 at an outcome."""
    total = 0.0
    for reached, probability in enumerate(transition[state][action]):
        later = values[reached] if reached < len(transition) else 0.0
        total += probability * (reward[state][action][reached] + discount * later)
    return total


def optimal_values(transition: Table, reward: Table, discount: float, sweeps: int) -> list[float]:
    """Iterate V(s) = max_a Q(s, a) from 0; what is missing is at most discount^sweeps of it."""
    states, actions = range(len(transition)), range(len(transition[0]))
    values = [0.0 for _ in states]
    for _ in range(sweeps):
        values = [
            max(action_value(transition, reward, values, discount, s, a) for a in actions)
            for s in states
        ]
    return values


def best_actions(
    transition: Table,
    reward: Table,
    discount: float,
    sweeps: int,
    seen: Sequence[Sequence[bool]],
    tie: float = 1e-9,
) -> list[int]:
    """Return the best action of each state: among ties seen ones first, then the lowest index."""
    values = optimal_values(transition, reward, discount, sweeps)
    chosen = []
    for state in range(len(transition)):
        worth = [
            action_value(transition, reward, values, discount, state, action)
            for action in range(len(transition[state]))
        ]
        tied = [action for action, value in enumerate(worth) if value >= max(worth) - tie]
        chosen.append(next((action for action in tied if seen[state][action]), tied[0]))
    return chosen


def value_of(
    transition: Table,
    reward: Table,
    policy: Sequence[Sequence[float]],
    discount: float,
    steps: int,
    state: int,
) -> float:
    """Return the expected return over `steps` steps, by the tree of all that can happen."""
    if steps == 0:
        return 0.0
    total = 0.0
    for action, chosen in enumerate(policy[state]):
        for reached, probability in enumerate(transition[state][action]):
            if chosen == 0 or probability == 0:
                continue
            later = 0.0
            if reached < len(transition):
                later = value_of(transition, reward, policy, discount, steps - 1, reached)
            total += chosen * probability * (reward[state][action][reached] + discount * later)
    return total


def outcomes_of(
    transition: Table, policy: Sequence[Sequence[float]], steps: int, state: int
) -> list[float]:
    """Return the probability of each outcome within `steps` steps and of none, by that tree."""
    states, columns = len(transition), len(transition[0][0])
    result = [0.0] * (columns - states + 1)
    if steps == 0:
        result[-1] = 1.0
        return result
    for action, chosen in enumerate(policy[state]):
        for reached, probability in enumerate(transition[state][action]):
            if chosen == 0 or probability == 0:
                continue
            if reached >= states:
                result[reached - states] += chosen * probability
                continue
            for end, share in enumerate(outcomes_of(transition, policy, steps - 1, reached)):
                result[end] += chosen * probability * share
    return result


def values_without_end(
    transition: Table,
    reward: Table,
    policy: Sequence[Sequence[float]],
    discount: float,
    sweeps: int,
) -> list[float]:
    """Iterate V(s) = sum_a pi(a | s) Q(s, a) from 0."""
    values = [0.0 for _ in transition]
    for _ in range(sweeps):
        values = [
            sum(
                chosen * action_value(transition, reward, values, discount, state, action)
                for action, chosen in enumerate(policy[state])
            )
            for state in range(len(transition))
        ]
    return values

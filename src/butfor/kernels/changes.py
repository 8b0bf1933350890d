"""Fewest changes: dynamic programming over time, state and the number of changes left."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Problem, Work, longest_episode, mark_reached, move, observe, pays
from butfor.kernels.compiled import bare, part
from butfor.kernels.reference import by_reference

GAIN = 1e-12  # a change must gain more than this


@by_reference
class Plan(NamedTuple):
    """Working space for one episode; c is the number of changes left, 0 .. C."""

    reached: NDArray[np.bool_]  # [T + 1, S] whether any actions lead there
    choice: NDArray[np.int32]  # [T, S, C + 1] the best action, -1 for the observed one
    now: NDArray[np.float64]  # [S, C + 1] values; in the forward pass, probabilities
    later: NDArray[np.float64]  # [S, C + 1]
    worth: NDArray[np.float64]  # [C + 1] of one action


def fewest_changes(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    discount: NDArray[np.float64],
    value: NDArray[np.float64],
    outcome_mass: NDArray[np.float64],
    changed: NDArray[np.float64],
) -> int:
    """Find the best value of episodes first .. last - 1 with at most 0 .. C changed actions.

    The baseline is the observed action at each step, whatever the state, over the observed length;
    the problem's target allows every action, so its entries are the rows of the model. Writes
    `value` [n, C + 1], `outcome_mass` [n, C + 1, O + 1] (none last) and, for each logged step, the
    probability that it is changed to each action, `changed` [N, C + 1, A]. Returns -1, or the first
    step that is impossible under the model.
    """
    states, budget = problem.dynamics.states, value.shape[1]
    longest = longest_episode(problem.log, first, last)
    plan = Plan(
        np.zeros((longest + 1, states), np.bool_),
        np.empty((longest, states, budget), np.int32),
        np.zeros((states, budget)),
        np.zeros((states, budget)),
        np.empty(budget),
    )
    return change_episodes(first, last, problem, work, plan, discount, value, outcome_mass, changed)


@bare
def change_episodes(first, last, problem, work, plan, discount, value, outcome_mass, changed):
    """Do the work of `fewest_changes`."""
    for episode in range(first, last):
        impossible = plan_changes(problem, work, plan, episode, discount, value)
        if impossible >= 0:
            return impossible
        for c in range(value.shape[1]):
            follow_plan(problem, work, plan, episode, c, outcome_mass, changed)
    return -1


@part
def plan_changes(problem, work, plan, episode, discount, value):
    """Go backward through an episode: V_t(s, c) is the best of keeping or changing the action."""
    log = problem.log
    dynamics = problem.dynamics
    next_state, states, actions = dynamics.next_state, dynamics.states, dynamics.actions
    now, later, worth = plan.now, plan.later, plan.worth
    budget = value.shape[1]
    length = log.stop[episode] - log.start[episode]
    mark_reached(problem, work, plan.reached, episode, False)
    for s in range(states):
        for c in range(budget):
            later[s, c] = 0.0
    for t in range(length - 1, -1, -1):
        i = log.start[episode] + t
        seen_row = log.state[i] * actions + log.action[i]
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        for s in range(states):
            if not plan.reached[t, s]:
                continue
            for step in range(actions):  # the observed action first
                a = log.action[i] if step == 0 else step - (step <= log.action[i])
                row = s * actions + a
                low, high, place = move(problem, work, row, row, i, seen_row, seen_entry, None)
                for c in range(budget):
                    worth[c] = 0.0
                for e in range(low, high):
                    moved = work.kept.mass[place, e - low]
                    if moved == 0.0:
                        continue
                    x, reward = next_state[e], pays(problem, e, i, row, seen_row)
                    for c in range(budget):
                        after = discount[x] * later[x, c] if x < states else 0.0
                        worth[c] += moved * (reward + after)
                if step == 0:
                    for c in range(budget):
                        now[s, c] = worth[c]
                        plan.choice[t, s, c] = -1
                else:
                    for c in range(1, budget):
                        if worth[c - 1] > now[s, c] + GAIN:
                            now[s, c] = worth[c - 1]
                            plan.choice[t, s, c] = a
        now, later = later, now
    for c in range(budget):
        value[episode, c] = later[log.state[log.start[episode]], c]
    return -1


@part
def follow_plan(problem, work, plan, episode, changes, outcome_mass, changed):
    """Go forward with this many changes: where the plan leads, and which actions it changes."""
    log = problem.log
    dynamics = problem.dynamics
    next_state, states, actions = dynamics.next_state, dynamics.states, dynamics.actions
    now, later = plan.now, plan.later
    for s in range(states):
        for c in range(changes + 1):
            now[s, c] = later[s, c] = 0.0
    now[log.state[log.start[episode]], changes] = 1.0
    for i in range(log.start[episode], log.stop[episode]):
        t = i - log.start[episode]
        seen_row = log.state[i] * actions + log.action[i]
        seen_entry = observe(problem, episode, i)
        for s in range(states):
            for c in range(changes + 1):
                here = now[s, c]
                if here == 0.0:
                    continue
                now[s, c] = 0.0
                a, left = plan.choice[t, s, c], c - 1
                if a < 0:
                    a, left = log.action[i], c
                else:
                    changed[i, changes, a] += here
                row = s * actions + a
                low, high, place = move(problem, work, row, row, i, seen_row, seen_entry, None)
                for e in range(low, high):
                    moved = here * work.kept.mass[place, e - low]
                    x = next_state[e]
                    if x >= states:
                        outcome_mass[episode, changes, dynamics.shown[x] - states] += moved
                    else:
                        later[x, left] += moved
        now, later = later, now
    for s in range(states):
        for c in range(changes + 1):
            outcome_mass[episode, changes, -1] += now[s, c]
            now[s, c] = 0.0

"""What the target earns from each observed step on, if it takes over there."""

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import (
    Problem,
    Work,
    choose,
    longest_episode,
    mark_reached,
    move,
    observe,
    pays,
)
from butfor.kernels.compiled import bare, part


def step_values(
    first: int,
    last: int,
    problem: Problem,
    work: Work,
    discount: NDArray[np.float64],
    values_after: NDArray[np.float64],
    here: NDArray[np.float64],
) -> int:
    """Write the expected return `here` [N] from each step of episodes first .. last - 1 on.

    W_t(s) = sum over a of pi_t(a|s) times the sum over x of K_t(x|s, a) (r + d(x) W_{t+1}(x)),
    backwards from what the model alone gives past the observed end, `values_after` [H + 1, S]; at
    step t it is W_t of the observed state. Takes time in proportion to the length of an episode.
    Returns -1, or the first impossible step.
    """
    states = problem.dynamics.states
    reached = np.zeros((longest_episode(problem.log, first, last) + 1, states), np.bool_)
    now, later = np.empty(states), np.empty(states)
    return step_episodes(
        first, last, problem, work, discount, values_after, reached, now, later, here
    )


@bare
def step_episodes(first, last, problem, work, discount, values_after, reached, now, later, here):
    """Do the work of `step_values`."""
    for episode in range(first, last):
        impossible = go_back(
            problem, work, episode, discount, values_after, reached, now, later, here
        )
        if impossible >= 0:
            return impossible
    return -1


@part
def go_back(problem, work, episode, discount, values_after, reached, now, later, here):
    """Write the values of one episode for `step_values`."""
    log, actions = problem.log, problem.dynamics.actions
    length, left = log.stop[episode] - log.start[episode], log.left[episode]
    mark_reached(problem, work, reached, episode, True)
    for s in range(len(later)):
        if reached[length, s]:
            later[s] = values_after[left, s]
    for t in range(length - 1, -1, -1):
        i = log.start[episode] + t
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        seen_row = log.state[i] * actions + log.action[i]
        for s in range(len(now)):
            if reached[t, s]:
                now[s] = state_value(problem, work, s, i, seen_row, seen_entry, discount, later)
        here[i] = now[log.state[i]]
        now, later = later, now
    return -1


@part
def state_value(problem, work, s, i, seen_row, seen_entry, discount, later):
    """Return W_t(s) from W_{t+1}, given the observed step i."""
    target, kept = problem.target, work.kept
    dynamics = problem.dynamics
    next_state, states, actions = dynamics.next_state, dynamics.states, dynamics.actions
    total = 0.0
    choose(problem, work, s, i)
    start = target.start[s]
    for j in range(target.start[s + 1] - start):
        share = work.choices.mass[j]
        if share == 0.0:
            continue
        row = s * actions + target.label[start + j]
        low, high, place = move(problem, work, row, start + j, i, seen_row, seen_entry, None)
        for e in range(low, high):
            moved = share * kept.mass[place, e - low]
            if moved == 0.0:
                continue
            total += moved * pays(problem, e, i, row, seen_row)
            x = next_state[e]
            if x < states:
                total += moved * discount[x] * later[x]
    return total

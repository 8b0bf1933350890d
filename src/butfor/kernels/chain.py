"""The Markov chain that an observed episode makes of a model, step by step.

At step t each row P(.|s, a) becomes its counterfactual given the observed transition, and with
`shared` the target's row its counterfactual given the observed action.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, compiled
from butfor.kernels.mechanisms import Coupling, counterfactual_row, gumbel_max_row
from butfor.kernels.rows import (
    Rows,
    Scratch,
    find_label,
    make_scratch,
    scatter,
    unscatter,
    widest_row,
)


class Dynamics(NamedTuple):
    """The transition rows of a model, row s A + a, and what each entry leads to."""

    rows: Rows
    next_state: NDArray[np.int32]  # [E] outcome o is S + o
    reward: NDArray[np.float64]  # [E]
    labels: NDArray[np.int32]  # [S + O]
    states: int  # S
    actions: int  # A
    visits: bool  # the last transition of an episode leads to its outcome, not to its next state


class Log(NamedTuple):
    """The columns of Episodes that kernels read; episode i is the rows start[i] .. stop[i] - 1."""

    start: NDArray[np.int64]  # [n]
    stop: NDArray[np.int64]  # [n]
    left: NDArray[np.int64]  # [n] steps that may follow after the observed end
    state: NDArray[np.int32]  # [N]
    action: NDArray[np.int32]  # [N]
    next_state: NDArray[np.int32]  # [N]
    reward: NDArray[np.float64]  # [N]
    outcome: NDArray[np.int32]  # [n]


class Problem(NamedTuple):
    """A log, what may have made it, and what is asked of it."""

    log: Log
    behavior: Rows  # by state, labels are actions
    target: Rows
    dynamics: Dynamics
    coupling: Coupling  # how transitions come about
    shared: bool  # whether the noise of the observed action carries over, by Gumbel-Max


class Work(NamedTuple):
    """Working space of one thread for one step of one episode."""

    moves: Scratch  # transitions
    choices: Scratch  # actions
    p_state: NDArray[np.float64]  # [labels] the factual transition row
    p_action: NDArray[np.float64]  # [A] the factual action row
    now: NDArray[np.float64]  # [S] probability of each state at this step
    later: NDArray[np.float64]  # [S] at the next one
    now_states: NDArray[np.int64]  # [S] where `now` is not 0
    later_states: NDArray[np.int64]  # [S]


@compiled
def make_work(problem):
    """Return working space for this problem."""
    dynamics = problem.dynamics
    return Work(
        make_scratch(widest_row(dynamics.rows)),
        make_scratch(dynamics.actions),
        np.zeros(dynamics.labels.max() + 1),
        np.zeros(dynamics.actions),
        np.zeros(dynamics.states),
        np.zeros(dynamics.states),
        np.empty(dynamics.states, np.int64),
        np.empty(dynamics.states, np.int64),
    )


@bare
def observed_entry(log, dynamics, episode, i):
    """Return the entry of the model that step i, of this episode, took; -1 if there is none."""
    reached = log.next_state[i]
    if dynamics.visits and i == log.stop[episode] - 1 and log.outcome[episode] >= 0:
        reached = dynamics.states + log.outcome[episode]
    row = log.state[i] * dynamics.actions + log.action[i]
    entry = find_label(dynamics.rows, row, dynamics.labels[reached])
    return entry if entry >= 0 and dynamics.next_state[entry] == reached else -1


@bare
def observe(problem, work, episode, i):
    """Take in step i of an episode; return the entry that it took, -1 if it is impossible."""
    log, dynamics = problem.log, problem.dynamics
    seen_entry = observed_entry(log, dynamics, episode, i)
    scatter(dynamics.rows, log.state[i] * dynamics.actions + log.action[i], work.p_state)
    if problem.shared:
        scatter(problem.behavior, log.state[i], work.p_action)
        if work.p_action[log.action[i]] == 0.0:
            return -1
    return seen_entry


@bare
def forget(problem, work, i):
    """Undo `observe`."""
    log, dynamics = problem.log, problem.dynamics
    unscatter(dynamics.rows, log.state[i] * dynamics.actions + log.action[i], work.p_state)
    if problem.shared:
        unscatter(problem.behavior, log.state[i], work.p_action)


@bare
def choose(problem, work, s, i):
    """Fill `work.choices.mass` with the target's action in s given the one observed at step i."""
    target, mass = problem.target, work.choices.mass
    start, stop = target.start[s], target.start[s + 1]
    if problem.shared and stop - start > 1:
        gumbel_max_row(target, s, work.p_action, problem.log.action[i], work.choices)
    else:
        for j in range(stop - start):
            mass[j] = target.probability[start + j]


@bare
def move(problem, work, row, seen_row, seen_entry):
    """Fill `work.moves.mass` with K_t of this row; return its first entry and the one past it."""
    rows = problem.dynamics.rows
    if row == seen_row:  # consistency: what was seen happens again
        work.moves.mass[0] = 1.0
        return seen_entry, seen_entry + 1
    counterfactual_row(problem.coupling, rows, row, seen_row, seen_entry, work.p_state, work.moves)
    return rows.start[row], rows.start[row + 1]

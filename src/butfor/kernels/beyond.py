"""Episodes past their observed ends, where all follow the model alone: several go on at once."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Problem
from butfor.kernels.compiled import bare, part
from butfor.kernels.evidence import similar_cases
from butfor.kernels.factors import forget_product, multiply
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import Rows, sort_by_ratio

TOGETHER = 16  # episodes; what becomes of one does not depend on the others


@by_reference
class Beyond(NamedTuple):
    """W episodes that wait at their observed ends, or go on together; one thread's working space.

    *Choices* are the entries of the target.
    """

    moves: Rows  # [S] from each state under the target; a label is a next state or S + outcome
    earning: NDArray[np.float64]  # [S] expected absolute reward of a step
    state: NDArray[np.int64]  # [J] in which each choice is made
    waiting: NDArray[np.int64]  # [1] how many of the W there are
    episode: NDArray[np.int64]  # [W]
    now: NDArray[np.float64]  # [S + O, W] probability of each state; of outcomes, in this step
    later: NDArray[np.float64]  # [S + O, W]
    going: NDArray[np.float64]  # [W] probability of no outcome yet
    earned: NDArray[np.float64]  # [W]
    choices: NDArray[np.int64]  # [W] number of choices that may be met
    order: NDArray[np.int64]  # [W, J] these, by their number of similar past cases
    cases: NDArray[np.float64]  # [W, J] which increases
    met: NDArray[np.bool_]  # [S] whether a state may be reached
    reached: NDArray[np.int64]  # [S] these, the nearest first


def make_beyond(problem: Problem) -> Beyond:
    """Return one thread's working space for this problem."""
    target, dynamics = problem.target, problem.dynamics
    states, places, choices = dynamics.states, len(dynamics.labels), len(target.label)
    state = np.repeat(np.arange(states), np.diff(target.start))
    most = np.diff(dynamics.rows.start)[state * dynamics.actions + target.label].sum()
    moves = Rows(np.zeros(states + 1, np.int64), np.empty(most, np.int32), np.empty(most))
    beyond = Beyond(
        moves,
        np.zeros(states),
        state,
        np.zeros(1, np.int64),
        np.empty(TOGETHER, np.int64),
        np.zeros((places, TOGETHER)),
        np.zeros((places, TOGETHER)),
        np.zeros(TOGETHER),
        np.zeros(TOGETHER),
        np.zeros(TOGETHER, np.int64),
        np.empty((TOGETHER, choices), np.int64),
        np.empty((TOGETHER, choices)),
        np.zeros(states, np.bool_),
        np.empty(states, np.int64),
    )
    fill_moves(problem, beyond, np.zeros(places))
    return beyond


@bare
def fill_moves(problem, beyond, into):
    """Write the moves from each state under the target, and what it earns; `into` is 0."""
    target, dynamics, moves = problem.target, problem.dynamics, beyond.moves
    rows = dynamics.rows
    for s in range(dynamics.states):
        for j in range(target.start[s], target.start[s + 1]):
            row = s * dynamics.actions + target.label[j]
            for e in range(rows.start[row], rows.start[row + 1]):
                mass = target.probability[j] * rows.probability[e]
                into[dynamics.shown[dynamics.next_state[e]]] += mass
                beyond.earning[s] += mass * abs(dynamics.reward[e])
        stop = moves.start[s]
        for x in range(len(into)):
            if into[x] > 0.0:
                moves.label[stop], moves.probability[stop] = x, into[x]
                into[x] = 0.0
                stop += 1
        moves.start[s + 1] = stop


@part
def wait_at_end(problem, work, record, episode, now, now_states, active):
    """Let an episode wait in the states where it may be when its record ends."""
    beyond = record.beyond
    w = beyond.waiting[0]
    beyond.waiting[0] = w + 1
    beyond.episode[w] = episode
    for slot in range(active):
        beyond.now[now_states[slot], w] = now[now_states[slot]]
        beyond.reached[slot] = now_states[slot]
    order, cases = beyond.order[w], beyond.cases[w]
    beyond.choices[w] = foresee(
        problem, work, record, active, problem.log.left[episode], order, cases
    )
    sort_by_ratio(cases, order, beyond.choices[w])


@part
def foresee(problem, work, record, active, left, order, cases):
    """List the choices that may be met within `left` steps, and their similar past cases.

    `beyond.reached` begins with the `active` states of now. Returns the number of choices.
    """
    target, beyond = problem.target, record.beyond
    moves, reached, met = beyond.moves, beyond.reached, beyond.met
    for n in range(active):
        met[reached[n]] = True
    count, known, stop = 0, 0, active
    for _ in range(left):
        found = stop
        for n in range(known, stop):
            s = reached[n]
            for j in range(target.start[s], target.start[s + 1]):
                row = s * problem.dynamics.actions + target.label[j]
                if len(problem.factors.place) > 0:  # moving needs no product, but the cases do
                    forget_product(work.known, multiply(problem, work, row, -1, record))
                order[count] = j
                cases[count] = similar_cases(problem, work, record, row, -1, -1)
                count += 1
            for e in range(moves.start[s], moves.start[s + 1]):
                x = moves.label[e]
                if x < len(met) and not met[x]:
                    met[x] = True
                    reached[found] = x
                    found += 1
        known, stop = stop, found
    for n in range(stop):
        met[reached[n]] = False
    return count


@bare
def go_on(problem, record):
    """Record the steps of the waiting episodes up to the horizon; then none waits anymore."""
    beyond, log = record.beyond, problem.log
    waiting = beyond.waiting[0]
    now, later = beyond.now, beyond.later
    longest = 0
    for w in range(waiting):
        longest = max(longest, log.left[beyond.episode[w]])
    for step in range(longest):
        move_on(beyond, now, later)
        for w in range(waiting):
            episode = beyond.episode[w]
            if step < log.left[episode]:
                t = log.stop[episode] - log.start[episode] + step
                note_beyond(problem.target, record, w, t, now)
                note_reached(record.steps.probability, len(beyond.met), episode, t + 1, later, w)
        now, later = later, now
    now[:], later[:] = 0.0, 0.0
    beyond.waiting[0] = 0


@part
def move_on(beyond, now, later):
    """Move all waiting episodes by one step, from `now` to `later`."""
    moves, going, earned = beyond.moves, beyond.going, beyond.earned
    together = now.shape[1]
    later[:], going[:], earned[:] = 0.0, 0.0, 0.0
    for s in range(len(beyond.met)):
        here = now[s]
        for w in range(together):
            going[w] += here[w]
            earned[w] += here[w] * beyond.earning[s]
        for e in range(moves.start[s], moves.start[s + 1]):
            there, probability = later[moves.label[e]], moves.probability[e]
            for w in range(together):
                there[w] += here[w] * probability


@part
def note_beyond(target, record, w, t, now):
    """Write step t of a waiting episode: its mass, what it earns, and the evidence."""
    beyond, steps = record.beyond, record.steps
    episode, order, cases = beyond.episode[w], beyond.order[w], beyond.cases[w]
    steps.mass[episode, t] = beyond.going[w]
    steps.earned[episode, t] = beyond.earned[w]
    if beyond.going[w] == 0.0:
        return
    half, enough = 0.5 * beyond.going[w] * (1.0 - 1e-12), record.thin * (1.0 - 1e-12)
    passed, few, median = 0.0, 0.0, np.nan
    for n in range(beyond.choices[w]):
        if passed >= half and cases[n] >= enough:
            break
        mass = now[beyond.state[order[n]], w] * target.probability[order[n]]
        if mass > 0.0 and passed < half:
            median = cases[n]
        passed += mass
        if cases[n] < enough:
            few += mass
    steps.thin[episode, t] = few
    steps.evidence[episode, t] = median


@part
def note_reached(probability, states, episode, t, now, w):
    """Write the probability of each state at step t, and of each outcome up to then."""
    if probability.size == 0:
        return
    for x in range(probability.shape[2]):
        probability[episode, t, x] = now[x, w]
        if x >= states:
            probability[episode, t, x] += probability[episode, t - 1, x]

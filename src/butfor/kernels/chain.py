"""The Markov chain of a counterfactual: a model conditioned on an observed episode.

At step t each row P(.|s, a) is replaced by its counterfactual K_t given the observed transition
and, with `shared`, the target's row by its counterfactual given the observed action.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, inlined, part
from butfor.kernels.factors import (
    Factors,
    Known,
    forget_product,
    make_known,
    mark_touched,
    multiply,
    possible,
)
from butfor.kernels.mechanisms import Coupling, counterfactual_row, gumbel_max_row
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import Rows, Scratch, find_label, hold, meets

MOST_KEPT = 1 << 25  # bytes of counterfactual rows that a thread caches


@by_reference
class Dynamics(NamedTuple):
    """The transition rows of a model, row s A + a, and where each entry leads."""

    rows: Rows
    next_state: NDArray[np.int32]  # [E] end e is S + e
    reward: NDArray[np.float64]  # [E]
    labels: NDArray[np.int32]  # [S + ends]
    # [S + ends] the state itself, or S + the outcome: one has several ends where they pay different
    # rewards, in ascending order
    shown: NDArray[np.int32]
    states: int  # S
    actions: int  # A
    visits: bool  # the last transition of an episode leads to its outcome, not its next state


@by_reference
class Log(NamedTuple):
    """The columns of Episodes that kernels read; episode i has rows start[i] .. stop[i] - 1."""

    start: NDArray[np.int64]  # [n]
    stop: NDArray[np.int64]  # [n]
    left: NDArray[np.int64]  # [n] steps between the observed end and the horizon
    state: NDArray[np.int32]  # [N]
    action: NDArray[np.int32]  # [N]
    next_state: NDArray[np.int32]  # [N]
    reward: NDArray[np.float64]  # [N]
    outcome: NDArray[np.int32]  # [n] the end, -1 for none


@by_reference
class Problem(NamedTuple):
    """A log with its behavior and model, and the question: target, mechanism, action noise."""

    log: Log
    behavior: Rows  # by state; labels are actions
    target: Rows
    dynamics: Dynamics
    coupling: Coupling  # the mechanism of transitions; with factors, of the rows of each factor
    factors: Factors  # with noise per variable; otherwise none
    shared: bool  # whether the action shares the noise of the observed one, by Gumbel-Max


@by_reference
class Kept(NamedTuple):
    """A thread's cache of counterfactual rows, which equal observed transitions share.

    A pair of observed entry and row maps to one of C keys, and is cached when it is requested twice
    in a row. Its place is the next free one, so that memory is used only for what is cached. Place
    C holds a row that is not cached, place C + 1 a certain one.
    """

    key: NDArray[np.int64]  # [C, 3] of the cached pair, and of the last one missed, from 1; place
    used: NDArray[np.int64]  # [1] places that are not free
    mass: NDArray[np.float64]  # [C + 2, widest row]
    # [C + 2] overlap of the row with the model's, the sum of min(K, P); -1: not yet computed
    common: NDArray[np.float64]
    meets: NDArray[np.bool_]  # [C + 2] whether it shares a label with the observed row


@by_reference
class Work(NamedTuple):
    """Working space of one thread."""

    kept: Kept
    known: Known  # about the noise of each factor
    choices: Scratch  # actions
    ratio: NDArray[np.float64]  # [widest row of the model or of a factor]
    order: NDArray[np.int64]  # the same
    p_state: NDArray[np.float64]  # [labels] the factual transition row
    p_action: NDArray[np.float64]  # [A] the factual action row
    held_state: NDArray[np.int64]  # [1] the row that `p_state` holds, -1 for none
    held_action: NDArray[np.int64]  # [1]
    now: NDArray[np.float64]  # [S] probability of each state at this step
    later: NDArray[np.float64]  # [S] at the next step
    now_worth: NDArray[np.float64]  # [S] the same, each path discounted by the time that passed
    later_worth: NDArray[np.float64]  # [S]
    now_states: NDArray[np.int64]  # [S] where `now` is not 0
    later_states: NDArray[np.int64]  # [S]


def make_work(problem: Problem) -> Work:
    """Return one thread's working space for this problem."""
    dynamics, factors = problem.dynamics, problem.factors
    states, actions = dynamics.states, dynamics.actions
    widest = int(np.diff(dynamics.rows.start).max())
    most = min(MOST_KEPT // (8 * widest), len(problem.log.state) * len(problem.target.label))
    if len(factors.place) > 0:  # rows of factors are cached instead, see `Known`
        most = 1
    longest = max(widest, int(np.diff(factors.rows.start).max(initial=0)))
    places = 1 << max(0, most.bit_length() - 1)  # a power of two
    mass = np.empty((places + 2, widest))
    mass[places + 1, 0] = 1.0
    return Work(
        Kept(
            np.zeros((places, 3), np.int64),
            np.zeros(1, np.int64),
            mass,
            np.empty(places + 2),
            np.empty(places + 2, np.bool_),
        ),
        make_known(factors, len(dynamics.labels)),
        Scratch(np.empty(actions), np.empty(actions), np.empty(actions, np.int64)),
        np.empty(longest),
        np.empty(longest, np.int64),
        np.zeros(dynamics.labels.max() + 1),
        np.zeros(actions),
        np.full(1, -1),
        np.full(1, -1),
        np.zeros(states),
        np.zeros(states),
        np.zeros(states),
        np.zeros(states),
        np.empty(states, np.int64),
        np.empty(states, np.int64),
    )


@bare
def observed_entry(log, dynamics, episode, i):
    """Return the model's entry for step i of this episode; -1 if there is none."""
    reached = log.next_state[i]
    if dynamics.visits and i == log.stop[episode] - 1 and log.outcome[episode] >= 0:
        reached = dynamics.states + log.outcome[episode]
    row = log.state[i] * dynamics.actions + log.action[i]
    entry = find_label(dynamics.rows, row, dynamics.labels[reached])
    return entry if entry >= 0 and dynamics.next_state[entry] == reached else -1


@bare
def shown_probability(dynamics, row, entry):
    """Return the probability that a row leads where its entry does, whatever that pays."""
    rows, next_state, shown = dynamics.rows, dynamics.next_state, dynamics.shown
    if next_state[entry] < dynamics.states:
        return rows.probability[entry]
    total = 0.0
    for e in range(rows.start[row], rows.start[row + 1]):
        if shown[next_state[e]] == shown[next_state[entry]]:
            total += rows.probability[e]
    return total


@inlined
def observe(problem, episode, i):
    """Return the model's entry for step i of an episode; -1 if the step is impossible."""
    log = problem.log
    if problem.shared and find_label(problem.behavior, log.state[i], log.action[i]) < 0:
        return -1
    if not possible(problem.factors, i):
        return -1
    return observed_entry(log, problem.dynamics, episode, i)


@inlined
def choose(problem, work, s, i):
    """Fill `work.choices.mass` with the target's actions in s, given the one observed at step i.

    Past the observed end (i < 0) it is the target's row itself.
    """
    log, target, mass = problem.log, problem.target, work.choices.mass
    start, stop = target.start[s], target.start[s + 1]
    if i >= 0 and problem.shared and stop - start > 1:
        hold(problem.behavior, log.state[i], work.held_action, work.p_action)
        gumbel_max_row(target, s, work.p_action, log.action[i], work.choices)
    else:
        for j in range(stop - start):
            mass[j] = target.probability[start + j]


@inlined
def move(problem, work, row, choice, i, seen_row, seen_entry, record):
    """Find K_t of a row, which the target chooses by its entry `choice`, given step i.

    Past the observed end (seen_entry < 0) it is the row itself. Returns its first entry, one past
    its last, and its place in `work.kept`. `record` is None unless the step is recorded.
    """
    rows, kept = problem.dynamics.rows, work.kept
    low, high = rows.start[row], rows.start[row + 1]
    places = len(kept.key)
    if seen_entry < 0:
        for e in range(low, high):
            kept.mass[places, e - low] = rows.probability[e]
        kept.common[places] = 1.0
        return low, high, places
    if row == seen_row:  # consistency: the observed transition repeats
        if record is not None:
            probability = shown_probability(problem.dynamics, row, seen_entry)
            kept.common[places + 1] = min(1.0, probability)
        return seen_entry, seen_entry + 1, places + 1
    if len(problem.factors.place) > 0:
        fill_product(problem, work, row, i, places, record)
        return low, high, places
    key = seen_entry * len(problem.target.label) + choice + 1
    slot = key & (places - 1)
    place = kept.key[slot, 2]
    if kept.key[slot, 0] != key:
        asked = kept.key[slot, 1]
        kept.key[slot, 1] = key
        if asked == key:
            if kept.key[slot, 0] == 0:
                place = kept.used[0]
                kept.key[slot, 2] = place
                kept.used[0] += 1
            kept.key[slot, 0] = key
        else:
            place = places
        fill(problem, work, row, seen_row, seen_entry, place)
    return low, high, place


@bare
def fill(problem, work, row, seen_row, seen_entry, place):
    """Compute a counterfactual row for `move`."""
    rows, kept = problem.dynamics.rows, work.kept
    mass = kept.mass[place]
    hold(rows, seen_row, work.held_state, work.p_state)
    scratch = Scratch(mass, work.ratio, work.order)
    counterfactual_row(problem.coupling, rows, row, seen_row, seen_entry, work.p_state, scratch)
    kept.common[place] = -1.0


@bare
def fill_product(problem, work, row, i, place, record):
    """Compute a counterfactual row of a factored model for `move`."""
    rows, next_state, kept, known = (
        problem.dynamics.rows,
        problem.dynamics.next_state,
        work.kept,
        work.known,
    )
    low = rows.start[row]
    touched = multiply(problem, work, row, i, record)
    for e in range(low, rows.start[row + 1]):
        kept.mass[place, e - low] = known.joint[next_state[e]]
    forget_product(known, touched)
    kept.common[place] = -1.0
    kept.meets[place] = known.met[0]


@part
def compare(problem, work, row, seen_row, place):
    """Compare the row at a place of `work.kept` with the model's and with the observed one."""
    rows, kept = problem.dynamics.rows, work.kept
    next_state, shown = problem.dynamics.next_state, problem.dynamics.shown
    if kept.common[place] >= 0.0:
        return
    start, stop = rows.start[row], rows.start[row + 1]
    common, mass, probability = 0.0, 0.0, 0.0
    for e in range(start, stop):
        mass += kept.mass[place, e - start]
        probability += rows.probability[e]
        if e + 1 == stop or shown[next_state[e]] != shown[next_state[e + 1]]:
            common += min(mass, probability)
            mass, probability = 0.0, 0.0
    kept.common[place] = common
    if len(problem.factors.place) == 0:
        hold(rows, seen_row, work.held_state, work.p_state)
        kept.meets[place] = meets(rows, row, work.p_state)


@inlined
def pays(problem, e, i, row, seen_row):
    """Return the reward of an entry of a row: of the row observed at step i, what was paid there.

    The rewards of a transition may vary, and the model has their mean. So where a step repeats, its
    reward does too.
    """
    return problem.log.reward[i] if row == seen_row else problem.dynamics.reward[e]


def longest_episode(log: Log, first: int, last: int) -> int:
    """Return the number of steps of the longest of episodes first .. last - 1."""
    return int((log.stop[first:last] - log.start[first:last]).max(initial=0))


@bare
def mark_reached(problem, work, reached, episode, anytime):
    """Mark in `reached` [H + 1, S] the states that the target can reach, whatever the mechanism.

    With factors, those that it can reach by the problem's mechanism. The target takes over at the
    first step, or with `anytime` at any, from the state observed there.
    """
    log, target = problem.log, problem.target
    rows, next_state = problem.dynamics.rows, problem.dynamics.next_state
    states, actions = problem.dynamics.states, problem.dynamics.actions
    length = log.stop[episode] - log.start[episode]
    for t in range(length + 1):
        for s in range(states):
            reached[t, s] = False
    reached[0, log.state[log.start[episode]]] = True
    for t in range(length):
        i = log.start[episode] + t
        if anytime:
            reached[t, log.state[i]] = True
        seen_row = log.state[i] * actions + log.action[i]
        seen_entry = observed_entry(log, problem.dynamics, episode, i)
        for s in range(states):
            if not reached[t, s]:
                continue
            for j in range(target.start[s], target.start[s + 1]):
                row = s * actions + target.label[j]
                low, high = rows.start[row], rows.start[row + 1]
                if row == seen_row and seen_entry >= 0:  # consistency
                    low, high = seen_entry, seen_entry + 1
                elif len(problem.factors.place) > 0:
                    mark_touched(work.known, multiply(problem, work, row, i, None), reached[t + 1])
                    continue
                for e in range(low, high):
                    if next_state[e] < states:
                        reached[t + 1, next_state[e]] = True

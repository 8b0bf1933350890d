"""The exact pass through an episode's chain: its outcomes and, if asked for, every step of it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.beyond import TOGETHER, Beyond, go_on, make_beyond, wait_at_end
from butfor.kernels.chain import Problem, choose, compare, move, observe, pays
from butfor.kernels.compiled import bare, inlined, part
from butfor.kernels.evidence import Cases, similar_cases, weigh_cases
from butfor.kernels.factors import add_own
from butfor.kernels.reference import by_reference


@by_reference
class Judged(NamedTuple):
    """What the model alone gives past the observed end, and the results of a pass."""

    discount: NDArray[np.float64]  # [S] of each state reached
    values_after: NDArray[np.float64]  # [H + 1, S] expected return by steps left
    outcomes_after: NDArray[np.float64]  # [H + 1, S, O + 1] outcome probabilities, none last
    outcome_mass: NDArray[np.float64]  # [n, O + 1] written, none last
    expected_return: NDArray[np.float64]  # [n] written


@by_reference
class Steps(NamedTuple):
    """What a recorded pass writes; all of it is about the mass that has no outcome yet."""

    influence: NDArray[np.float64]  # [n, H] mean total variation between K_t(.|s, a) and P(.|s, a)
    mass: NDArray[np.float64]  # [n, H]
    earned: NDArray[np.float64]  # [n, H] expected absolute reward
    evidence: NDArray[np.float64]  # [n, H] median of the similar past cases N(s, a)
    thin: NDArray[np.float64]  # [n, H] mass with fewer than THIN similar past cases
    other: NDArray[np.float64]  # [n, H] mass in another row than the observed one
    apart: NDArray[np.float64]  # [n, H] part of that in rows without a label of the observed one
    probability: NDArray[np.float64]  # [n, H + 1, S + O] of each state and outcome; or of size 0


@by_reference
class Record(NamedTuple):
    """Where a pass notes its steps."""

    steps: Steps
    cases: Cases
    counts: NDArray[np.int64]  # [S A] logged transitions behind each row
    thin: float
    beyond: Beyond


def make_record(problem: Problem, steps: Steps, counts: NDArray[np.int64], thin: float) -> Record:
    """Return where one thread notes its steps."""
    size = problem.dynamics.states * problem.dynamics.actions
    cases = Cases(np.empty(size), np.empty(size), np.zeros(size))
    return Record(steps, cases, counts.reshape(-1), thin, make_beyond(problem))


@bare
def exact_outcomes(first, last, problem, work, judged, negligible):
    """Push the state distribution of episodes first .. last - 1 through their chains.

    Past the observed end the rows are P and the target, and what follows from a state is known by
    the number of steps left. From a state that has less than `negligible` probability at a step the
    model alone takes over. Writes to `judged`. Returns -1, or the first step that is impossible
    under the model or the behavior.
    """
    for episode in range(first, last):
        impossible = walk_episode(problem, work, judged, episode, negligible, None)
        if impossible >= 0:
            return impossible
    return -1


@bare
def walk_episodes(first, last, problem, work, judged, own_row, own_offsets, record):
    """Do what `exact_outcomes` does, bit for bit, and record each step up to the horizon.

    Of the logged transitions behind each row, `record.counts`, those of the episode itself, rows
    own_row[own_offsets[i] : own_offsets[i + 1]], are subtracted. With factors that were learned
    from a log, the least count over the factors replaces it. Episodes may still wait in
    `record.beyond` for others to go on with; `go_on` ends that after the last call.
    """
    own = record.cases.own
    for episode in range(first, last):
        for i in range(own_offsets[episode], own_offsets[episode + 1]):
            own[own_row[i]] += 1.0
            add_own(problem.factors, work.known, i, 1.0)
        impossible = walk_episode(problem, work, judged, episode, 0.0, record)
        if impossible >= 0:
            return impossible
        for i in range(own_offsets[episode], own_offsets[episode + 1]):
            own[own_row[i]] = 0.0
            add_own(problem.factors, work.known, i, -1.0)
        if record.beyond.waiting[0] == TOGETHER:
            go_on(problem, record)
    return -1


@part
def walk_episode(problem, work, judged, episode, negligible, record):
    """Push one episode through its chain.

    `record` may be None: numba then compiles a pass without what it asks for. Only a pass with a
    record goes on past the observed end, where rows are those of the model; it follows every state.
    """
    log, target, kept = problem.log, problem.target, work.kept
    dynamics = problem.dynamics
    next_state, states, actions = dynamics.next_state, dynamics.states, dynamics.actions
    now, later = work.now, work.later
    now_worth, later_worth = work.now_worth, work.later_worth
    now_states, later_states = work.now_states, work.later_states
    outcome_mass = judged.outcome_mass
    now_states[0] = log.state[log.start[episode]]
    now[now_states[0]] = 1.0
    now_worth[now_states[0]] = 1.0
    active = 1
    total = 0.0
    length = log.stop[episode] - log.start[episode]
    if record is not None:
        note_places(record.steps.probability, states, episode, 0, now, now_states, active)
    for t in range(length):
        i = log.start[episode] + t
        seen_row = log.state[i] * actions + log.action[i]
        seen_entry = observe(problem, episode, i)
        if seen_entry < 0:
            return i
        reached, count = 0, 0
        going, moved_by, earned, other, apart = 0.0, 0.0, 0.0, 0.0, 0.0
        for slot in range(active):
            s = now_states[slot]
            here, worth = now[s], now_worth[s]
            now[s], now_worth[s] = 0.0, 0.0
            if record is None and here < negligible:
                left = length - t + log.left[episode]
                total += add_known(judged, episode, s, here, worth, left)
                continue
            going += here
            choose(problem, work, s, i)
            start = target.start[s]
            for j in range(target.start[s + 1] - start):
                share = here * work.choices.mass[j]
                if share == 0.0:
                    continue
                paid = worth * work.choices.mass[j]
                row = s * actions + target.label[start + j]
                low, high, place = move(
                    problem, work, row, start + j, i, seen_row, seen_entry, record
                )
                if record is not None:
                    cases = record.cases
                    cases.number[count] = similar_cases(problem, work, record, row, i, seen_row)
                    cases.mass[count] = share
                    count += 1
                    if row != seen_row:
                        compare(problem, work, row, seen_row, place)
                        other += share
                        if not kept.meets[place]:
                            apart += share
                    moved_by += share * max(0.0, 1.0 - kept.common[place])
                for e in range(low, high):
                    moved = share * kept.mass[place, e - low]
                    if moved == 0.0:
                        continue
                    credit = paid * kept.mass[place, e - low]
                    reward = pays(problem, e, i, row, seen_row)
                    total += credit * reward
                    if record is not None:
                        earned += moved * abs(reward)
                    x = next_state[e]
                    if x < states:
                        if later[x] == 0.0:
                            later_states[reached] = x
                            reached += 1
                        later[x] += moved
                        later_worth[x] += credit * judged.discount[x]
                    else:
                        x = dynamics.shown[x]
                        outcome_mass[episode, x - states] += moved
                        if record is not None and record.steps.probability.size > 0:
                            record.steps.probability[episode, t + 1, x] += moved
        now, later = later, now
        now_worth, later_worth = later_worth, now_worth
        now_states, later_states = later_states, now_states
        active = reached
        if record is not None:
            steps = record.steps
            steps.other[episode, t] = other
            steps.apart[episode, t] = apart
            steps.mass[episode, t] = going
            steps.earned[episode, t] = earned
            if going > 0.0:
                steps.influence[episode, t] = moved_by / going
                weigh_cases(record.cases, count, going, record.thin, steps, episode, t)
            note_places(steps.probability, states, episode, t + 1, now, now_states, active)
    for slot in range(active):  # what follows by the model alone is known
        s = now_states[slot]
        total += add_known(judged, episode, s, now[s], now_worth[s], log.left[episode])
        now_worth[s] = 0.0
    judged.expected_return[episode] = total
    if record is not None and log.left[episode] > 0:
        wait_at_end(problem, work, record, episode, now, now_states, active)
    for slot in range(active):
        now[now_states[slot]] = 0.0
    return -1


@inlined
def add_known(judged, episode, s, mass, worth, left):
    """Add the outcomes of mass in s with `left` steps left; return what it earns from there on.

    `worth` is the mass with each of its paths discounted.
    """
    for o in range(judged.outcome_mass.shape[1]):
        judged.outcome_mass[episode, o] += mass * judged.outcomes_after[left, s, o]
    return worth * judged.values_after[left, s]


@bare
def note_places(probability, states, episode, t, now, now_states, active):
    """Write the probability of each state at step t, and carry over that of outcomes before it."""
    if probability.size == 0:
        return
    if t > 0:
        for x in range(states, probability.shape[2]):
            probability[episode, t, x] += probability[episode, t - 1, x]
    for slot in range(active):
        probability[episode, t, now_states[slot]] = now[now_states[slot]]

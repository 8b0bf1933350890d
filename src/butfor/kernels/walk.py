"""What can be said of a counterfactual step by step: where it is, and what that rests on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import choose, compare, move, observe
from butfor.kernels.compiled import bare, compiled


class Steps(NamedTuple):
    """What `walk_episodes` writes; all of it is about the mass that has no outcome yet."""

    influence: NDArray[np.float64]  # [n, H] mean total variation between K_t(.|s, a) and P(.|s, a)
    mass: NDArray[np.float64]  # [n, H]
    earned: NDArray[np.float64]  # [n, H] expected absolute reward
    evidence: NDArray[np.float64]  # [n, H] median of the similar past cases N(s, a)
    thin: NDArray[np.float64]  # [n, H] mass with fewer than THIN similar past cases
    other: NDArray[np.float64]  # [n, H] mass in another row than the observed one
    apart: NDArray[np.float64]  # [n, H] part of that in rows without a label of the observed one
    probability: NDArray[np.float64]  # [n, H + 1, S + O] of each state and outcome; or of size 0


class Judged(NamedTuple):
    """What `walk_episodes` finds on the way, bit for bit as `exact_outcomes` does."""

    discount: float
    values_after: NDArray[np.float64]  # [H + 1, S]
    outcomes_after: NDArray[np.float64]  # [H + 1, S, O + 1]
    outcome_mass: NDArray[np.float64]  # [n, O + 1] written
    expected_return: NDArray[np.float64]  # [n] written


class Pairs(NamedTuple):
    """The pairs of state and action that one step of one episode can be at."""

    cases: NDArray[np.float64]  # [S A] similar past cases of each
    mass: NDArray[np.float64]  # [S A]
    own: NDArray[np.int64]  # [S A] how often the episode itself is at each row


@compiled
def walk_episodes(first, last, problem, work, judged, counts, own_row, own_offsets, thin, steps):
    """Walk through episodes first .. last - 1, to the horizon; write `steps` and `judged`.

    `counts` [S, A] are the logged transitions behind each row; those of the episode itself, rows
    own_row[own_offsets[i] : own_offsets[i + 1]], are taken off.
    Past the observed end the rows are those of the model. Returns as `exact_outcomes` does.
    """
    size = problem.dynamics.states * problem.dynamics.actions
    pairs = Pairs(np.empty(size), np.empty(size), np.zeros(size, np.int64))
    for episode in range(first, last):
        for i in range(own_offsets[episode], own_offsets[episode + 1]):
            pairs.own[own_row[i]] += 1
        impossible = walk_episode(problem, work, judged, pairs, episode, counts, thin, steps)
        if impossible >= 0:
            return impossible
        for i in range(own_offsets[episode], own_offsets[episode + 1]):
            pairs.own[own_row[i]] = 0
    return -1


@bare
def walk_episode(problem, work, judged, pairs, episode, counts, thin, steps):
    """Walk through one episode."""
    log, target, kept = problem.log, problem.target, work.kept
    _, next_state, reward, _, states, actions, _ = problem.dynamics
    now, later = work.now, work.later
    now_states, later_states = work.now_states, work.later_states
    outcome_mass = judged.outcome_mass
    now_states[0] = log.state[log.start[episode]]
    now[now_states[0]] = 1.0
    active = 1
    weight = 1.0  # discount ** t
    total = 0.0
    length = log.stop[episode] - log.start[episode]
    if steps.probability.size > 0:
        steps.probability[episode, 0, now_states[0]] = 1.0
    for t in range(length + log.left[episode]):
        i = seen_row = seen_entry = -1
        if t < length:
            i = log.start[episode] + t
            seen_row = log.state[i] * actions + log.action[i]
            seen_entry = observe(problem, episode, i)
            if seen_entry < 0:
                return i
        reached, count = 0, 0
        going, moved_by, earned, other, apart = 0.0, 0.0, 0.0, 0.0, 0.0
        for slot in range(active):
            s = now_states[slot]
            here = now[s]
            now[s] = 0.0
            going += here
            choose(problem, work, s, i)
            start = target.start[s]
            for j in range(target.start[s + 1] - start):
                share = here * work.choices.mass[j]
                if share == 0.0:
                    continue
                row = s * actions + target.label[start + j]
                pairs.cases[count] = counts[s, target.label[start + j]] - pairs.own[row]
                pairs.mass[count] = share
                count += 1
                low, high, place = move(problem, work, row, start + j, seen_row, seen_entry)
                if t < length and row != seen_row:
                    compare(problem, work, row, seen_row, place)
                    other += share
                    if not kept.meets[place]:
                        apart += share
                moved_by += share * max(0.0, 1.0 - kept.common[place])
                for e in range(low, high):
                    moved = share * kept.mass[place, e - low]
                    if moved == 0.0:
                        continue
                    total += weight * moved * reward[e]
                    earned += moved * abs(reward[e])
                    x = next_state[e]
                    if x < states:
                        if later[x] == 0.0:
                            later_states[reached] = x
                            reached += 1
                        later[x] += moved
                    else:
                        if t < length:
                            outcome_mass[episode, x - states] += moved
                        if steps.probability.size > 0:
                            steps.probability[episode, t + 1, x] += moved
        if going > 0.0:
            steps.influence[episode, t] = moved_by / going
            weigh_evidence(pairs, count, going, thin, steps, episode, t)
        steps.mass[episode, t] = going
        steps.earned[episode, t] = earned
        steps.other[episode, t] = other
        steps.apart[episode, t] = apart
        now, later = later, now
        now_states, later_states = later_states, now_states
        active = reached
        weight *= judged.discount
        if t == length - 1:  # what follows is known: see `exact_outcomes`
            left = log.left[episode]
            for slot in range(active):
                s = now_states[slot]
                total += weight * now[s] * judged.values_after[left, s]
                for o in range(outcome_mass.shape[1]):
                    outcome_mass[episode, o] += now[s] * judged.outcomes_after[left, s, o]
            judged.expected_return[episode] = total
        if steps.probability.size > 0:
            for x in range(states, steps.probability.shape[2]):
                steps.probability[episode, t + 1, x] += steps.probability[episode, t, x]
            for slot in range(active):
                s = now_states[slot]
                steps.probability[episode, t + 1, s] = now[s]
    for slot in range(active):
        now[now_states[slot]] = 0.0
    return -1


@bare
def weigh_evidence(pairs, count, going, thin, steps, episode, t):
    """Write the weighted median of the cases of the first `count` pairs, and the mass on few."""
    few = 0.0
    for b in range(count):
        if pairs.cases[b] < thin:
            few += pairs.mass[b]
    steps.thin[episode, t] = few
    half = 0.5 * going * (1.0 - 1e-12)
    steps.evidence[episode, t] = weighted_median(pairs.cases, pairs.mass, count, half)


@bare
def weighted_median(value, mass, count, half):
    """Return the least of `count` values up to which there is `half` of the mass, or the largest.

    Both are reordered: values below a pivot first, those above it last, and on in one of the two.
    """
    low, high = 0, count
    passed = 0.0  # the mass of values before `low`
    while True:
        pivot = value[(low + high) // 2]
        i, first, last = low, low, high  # pivots will stand at first .. last - 1
        below, equal = 0.0, 0.0
        while i < last:
            if value[i] > pivot:
                last -= 1
                value[i], value[last] = value[last], value[i]
                mass[i], mass[last] = mass[last], mass[i]
                continue
            if value[i] < pivot:
                below += mass[i]
                value[i], value[first] = value[first], value[i]
                mass[i], mass[first] = mass[first], mass[i]
                first += 1
            else:
                equal += mass[i]
            i += 1
        if passed + below >= half and first > low:
            high = first
        elif passed + below + equal >= half or last == high:
            return pivot
        else:
            passed += below + equal
            low = last

"""What can be said of a counterfactual step by step: where it is, and what that rests on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import choose, forget, make_work, move, observe
from butfor.kernels.compiled import bare, compiled
from butfor.kernels.rows import meets, sort_by_ratio


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


class Pairs(NamedTuple):
    """The pairs of state and action that one step of one episode can be at."""

    cases: NDArray[np.float64]  # [S A] similar past cases of each
    order: NDArray[np.int64]  # [S A]
    mass: NDArray[np.float64]  # [S A]
    own: NDArray[np.int64]  # [S A] how often the episode itself is at each row


@compiled
def walk_episodes(first, last, problem, counts, own_row, own_offsets, thin, steps):
    """Walk through episodes first .. last - 1, to the horizon, and write their `steps`.

    `counts` [S, A] are the logged transitions behind each row; those of the episode itself, rows
    own_row[own_offsets[i] : own_offsets[i + 1]], are taken off.
    Past the observed end the rows are those of the model. Returns as `exact_outcomes` does.
    """
    size = problem.dynamics.states * problem.dynamics.actions
    work = make_work(problem)
    pairs = Pairs(
        np.empty(size), np.empty(size, np.int64), np.empty(size), np.zeros(size, np.int64)
    )
    for episode in range(first, last):
        impossible = walk_episode(
            problem, work, pairs, episode, counts, own_row, own_offsets, thin, steps
        )
        if impossible >= 0:
            return impossible
    return -1


@bare
def walk_episode(problem, work, pairs, episode, counts, own_row, own_offsets, thin, steps):
    """Walk through one episode."""
    log, target = problem.log, problem.target
    rows, next_state, reward, _, states, actions, _ = problem.dynamics
    now, later = work.now, work.later
    now_states, later_states = work.now_states, work.later_states
    for i in range(own_offsets[episode], own_offsets[episode + 1]):
        pairs.own[own_row[i]] += 1
    now_states[0] = log.state[log.start[episode]]
    now[now_states[0]] = 1.0
    active = 1
    length = log.stop[episode] - log.start[episode]
    if steps.probability.size > 0:
        steps.probability[episode, 0, now_states[0]] = 1.0
    for t in range(length + log.left[episode]):
        i = log.start[episode] + t
        seen_row = seen_entry = -1
        if t < length:
            seen_row = log.state[i] * actions + log.action[i]
            seen_entry = observe(problem, work, episode, i)
            if seen_entry < 0:
                return i
        reached, count = 0, 0
        going, moved_by = 0.0, 0.0
        for slot in range(active):
            s = now_states[slot]
            here = now[s]
            now[s] = 0.0
            going += here
            start = target.start[s]
            if t < length:
                choose(problem, work, s, i)
            for j in range(target.start[s + 1] - start):
                chosen = work.choices.mass[j] if t < length else target.probability[start + j]
                share = here * chosen
                if share == 0.0:
                    continue
                row = s * actions + target.label[start + j]
                pairs.cases[count] = counts[s, target.label[start + j]] - pairs.own[row]
                pairs.order[count] = count
                pairs.mass[count] = share
                count += 1
                low, high = rows.start[row], rows.start[row + 1]
                if t < length:
                    if row != seen_row:
                        steps.other[episode, t] += share
                        if not meets(rows, row, work.p_state):
                            steps.apart[episode, t] += share
                    low, high = move(problem, work, row, seen_row, seen_entry)
                kept = 0.0  # what K and P have in common
                for e in range(low, high):
                    mass = work.moves.mass[e - low] if t < length else rows.probability[e]
                    kept += min(mass, rows.probability[e])
                    moved = share * mass
                    if moved == 0.0:
                        continue
                    steps.earned[episode, t] += moved * abs(reward[e])
                    x = next_state[e]
                    if x < states:
                        if later[x] == 0.0:
                            later_states[reached] = x
                            reached += 1
                        later[x] += moved
                    elif steps.probability.size > 0:
                        steps.probability[episode, t + 1, x] += moved
                if t < length:
                    moved_by += share * max(0.0, 1.0 - kept)
        if going > 0.0:
            steps.influence[episode, t] = moved_by / going
            weigh_evidence(pairs, count, going, thin, steps, episode, t)
        steps.mass[episode, t] = going
        if t < length:
            forget(problem, work, i)
        now, later = later, now
        now_states, later_states = later_states, now_states
        active = reached
        if steps.probability.size > 0:
            for x in range(states, steps.probability.shape[2]):
                steps.probability[episode, t + 1, x] += steps.probability[episode, t, x]
            for slot in range(active):
                s = now_states[slot]
                steps.probability[episode, t + 1, s] = now[s]
    for slot in range(active):
        now[now_states[slot]] = 0.0
    for i in range(own_offsets[episode], own_offsets[episode + 1]):
        pairs.own[own_row[i]] = 0
    return -1


@bare
def weigh_evidence(pairs, count, going, thin, steps, episode, t):
    """Write the weighted median of the cases of the first `count` pairs, and the mass on few."""
    for b in range(count):
        if pairs.cases[b] < thin:
            steps.thin[episode, t] += pairs.mass[b]
    sort_by_ratio(pairs.cases, pairs.order, count)
    passed = 0.0
    for b in range(count):
        passed += pairs.mass[pairs.order[b]]
        steps.evidence[episode, t] = pairs.cases[b]
        if 2.0 * passed >= going * (1.0 - 1e-12):
            break

"""Every compiled function, and the only `import numba`.

Kernels take arrays and numbers and return arrays: no options, no validation. Each has a slow
plain-Python twin in `tests/reference/`. Symbols are those of the paper: p the factual row, q the
counterfactual one, k what was observed.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

compiled = njit(cache=True, nogil=True, error_model="numpy")

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
DRAW_STRIDE = 1 << 32  # numbers of an episode's stream that belong to one draw
INSERTION_LIMIT = 48  # shorter lists are sorted by insertion, longer ones by heap
NOISE_SIZE = 13  # uniforms that one step of the sepsis simulator uses


class Rows(NamedTuple):
    """Sparse distributions. Noise belongs to a label: entries of two rows with one label share it.

    No probability is 0 and labels increase within a row.
    """

    start: NDArray[np.int64]  # [R + 1] first entry of each row
    label: NDArray[np.int32]  # [E]
    probability: NDArray[np.float64]  # [E]


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
    outcome: NDArray[np.int32]  # [n]


class Scratch(NamedTuple):
    """Working space of one thread for the counterfactual of one row at a time."""

    mass: NDArray[np.float64]  # the result
    ratio: NDArray[np.float64]
    order: NDArray[np.int64]


@compiled
def uniform(key, counter):
    """Return the counter-th number of the stream of this key, in [0, 1) (SplitMix64)."""
    x = key + np.uint64(counter + 1) * GOLDEN
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    x = x ^ (x >> np.uint64(31))
    return np.float64(x >> np.uint64(11)) * 2.0**-53


# --------------------------------------------------------------------------- Gumbel-Max, one row


@compiled
def gumbel_max_row(rows, row, p, k, scratch):
    """Fill the first places of `scratch.mass` with P(Y' = entry | Y = k), entries of `row`.

    With r_i = p_i / q_i and D(u) = sum_i max(p_i, u q_i): the observed label keeps 1 / D(r_k),
    an entry with r_j < r_k gets q_j times the integral of 1 / D^2 from r_j to r_k, others 0.
    D is linear between breaks; there the integral is (u2 - u1) / D(u1) / D(u2).
    `p` is the factual row by label, q the given row.
    """
    start, size = rows.start[row], rows.start[row + 1] - rows.start[row]
    label, q = rows.label, rows.probability
    mass, ratio, order = scratch
    at_k = find_label(rows, row, k) - start
    r_k = p[k] / q[start + at_k] if at_k >= 0 else np.inf

    slope = 0.0  # of D: the sum of q over entries whose break has been passed
    breaks = 0
    for i in range(size):
        mass[i] = 0.0
        if i == at_k:
            continue
        p_i = p[label[start + i]]
        if p_i == 0.0:
            slope += q[start + i]
            mass[i] = -1.0  # break at 0: filled in below
        else:
            r_i = p_i / q[start + i]
            if r_i < r_k:
                ratio[breaks] = r_i
                order[breaks] = i
                breaks += 1
    if slope == 0.0 and breaks == 0:
        mass[at_k] = 1.0
        return
    sort_by_ratio(ratio, order, breaks)

    # forward from break to break; ratio[b] becomes the integral over the segment before it
    at, height = 0.0, 1.0
    for b in range(breaks):
        ahead = height + (ratio[b] - at) * slope
        segment = (ratio[b] - at) / height / ahead
        at, height = ratio[b], ahead
        ratio[b] = segment
        slope += q[start + order[b]]
    if at_k >= 0:
        ahead = height + (r_k - at) * slope
        integral = (r_k - at) / height / ahead
        mass[at_k] = 1.0 / ahead
    else:
        integral = 1.0 / slope / height

    # backward: the integral from each break up to r_k
    for b in range(breaks - 1, -1, -1):
        mass[order[b]] = q[start + order[b]] * integral
        integral += ratio[b]
    for i in range(size):
        if mass[i] < 0.0:
            mass[i] = q[start + i] * integral


@compiled
def sort_by_ratio(ratio, order, count):
    """Sort the first `count` ratios, and `order` along with them."""
    if count <= INSERTION_LIMIT:
        for i in range(1, count):
            r, o = ratio[i], order[i]
            j = i - 1
            while j >= 0 and ratio[j] > r:
                ratio[j + 1] = ratio[j]
                order[j + 1] = order[j]
                j -= 1
            ratio[j + 1] = r
            order[j + 1] = o
        return
    for top in range(count // 2 - 1, -1, -1):
        sift_down(ratio, order, top, count)
    for end in range(count - 1, 0, -1):
        ratio[0], ratio[end] = ratio[end], ratio[0]
        order[0], order[end] = order[end], order[0]
        sift_down(ratio, order, 0, end)


@compiled
def sift_down(ratio, order, top, count):
    """Let the entry at `top` sink to its place in the heap of the first `count`."""
    while 2 * top + 1 < count:
        child = 2 * top + 1
        if child + 1 < count and ratio[child + 1] > ratio[child]:
            child += 1
        if ratio[top] >= ratio[child]:
            return
        ratio[top], ratio[child] = ratio[child], ratio[top]
        order[top], order[child] = order[child], order[top]
        top = child


@compiled
def make_scratch(size):
    """Return working space for rows of up to `size` entries."""
    return Scratch(np.empty(size), np.empty(size), np.empty(size, np.int64))


@compiled
def gumbel_max_rows(p, q, observed):
    """Apply `gumbel_max_row` to each of m dense pairs of rows p, q [m, n]; label = position."""
    count, size = p.shape
    result = np.zeros((count, size))
    scratch = make_scratch(size)
    label = np.empty(size, np.int32)
    support = np.empty(size)
    start = np.zeros(2, np.int64)
    for m in range(count):
        stop = 0
        for i in range(size):
            if q[m, i] > 0.0:
                label[stop] = i
                support[stop] = q[m, i]
                stop += 1
        start[1] = stop
        gumbel_max_row(Rows(start, label, support), 0, p[m], observed[m], scratch)
        for i in range(stop):
            result[m, label[i]] = scratch.mass[i]
    return result


# ----------------------------------------------------------------------------------- sparse rows


@compiled
def find_label(rows, row, label):
    """Return the entry of a row that has this label, -1 if there is none."""
    low, stop = rows.start[row], rows.start[row + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if rows.label[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and rows.label[low] == label else -1


@compiled
def widest_row(rows):
    """Return the largest number of entries in a row."""
    widest = 0
    for r in range(len(rows.start) - 1):
        widest = max(widest, rows.start[r + 1] - rows.start[r])
    return widest


@compiled
def scatter(rows, row, by_label):
    """Write a row's probabilities to the places of their labels."""
    for e in range(rows.start[row], rows.start[row + 1]):
        by_label[rows.label[e]] = rows.probability[e]


@compiled
def unscatter(rows, row, by_label):
    """Undo `scatter`."""
    for e in range(rows.start[row], rows.start[row + 1]):
        by_label[rows.label[e]] = 0.0


@compiled
def pick_by_mass(mass, start, stop, u):
    """Return the position at which the running sum of mass[start:stop] passes u."""
    total = 0.0
    chosen = start
    for e in range(start, stop):
        if mass[e] > 0.0:
            chosen = e
            total += mass[e]
            if u < total:
                break
    return chosen


# ---------------------------------------------------------------------- episodes, exact and drawn


@compiled
def observed_entry(log, dynamics, episode, i):
    """Return the entry of the model that step i, of this episode, took; -1 if there is none."""
    reached = log.next_state[i]
    if dynamics.visits and i == log.stop[episode] - 1 and log.outcome[episode] >= 0:
        reached = dynamics.states + log.outcome[episode]
    row = log.state[i] * dynamics.actions + log.action[i]
    entry = find_label(dynamics.rows, row, dynamics.labels[reached])
    return entry if entry >= 0 and dynamics.next_state[entry] == reached else -1


@compiled
def exact_outcomes(
    first,
    last,
    log,
    behavior,
    target,
    dynamics,
    shared,
    discount,
    values_after,
    outcomes_after,
    outcome_mass,
    expected_return,
):
    """Push the state distribution of episodes first .. last - 1 through their posterior chains.

    At step t the row P(.|s, a) becomes its counterfactual given the observed transition, and
    with `shared` the target's row its counterfactual given the observed action. Past the observed
    end the rows are P and the target; what follows from a state with h steps left is known:
    `values_after` [H + 1, S], `outcomes_after` [H + 1, S, O + 1]. Writes `outcome_mass` [n, O + 1]
    (last: none) and `expected_return` [n]. Returns -1, or the first step that the model or the
    behaviour could not have taken.
    """
    rows, next_state, reward, labels, states, actions, _ = dynamics
    outcomes = outcome_mass.shape[1]
    moves = make_scratch(widest_row(rows))
    choices = make_scratch(actions)
    p_state = np.zeros(labels.max() + 1)
    p_action = np.zeros(actions)
    now, later = np.zeros(states), np.zeros(states)
    now_states, later_states = np.empty(states, np.int64), np.empty(states, np.int64)

    for episode in range(first, last):
        now_states[0] = log.state[log.start[episode]]
        now[now_states[0]] = 1.0
        active = 1
        weight = 1.0  # discount ** t
        earned = 0.0
        for i in range(log.start[episode], log.stop[episode]):
            seen_row = log.state[i] * actions + log.action[i]
            seen_entry = observed_entry(log, dynamics, episode, i)
            if seen_entry < 0:
                return i
            k = rows.label[seen_entry]
            scatter(rows, seen_row, p_state)
            if shared:
                scatter(behavior, log.state[i], p_action)
                if p_action[log.action[i]] == 0.0:
                    return i
            reached = 0
            for slot in range(active):
                s = now_states[slot]
                here = now[s]
                now[s] = 0.0
                start, stop = target.start[s], target.start[s + 1]
                if shared and stop - start > 1:
                    gumbel_max_row(target, s, p_action, log.action[i], choices)
                else:
                    choices.mass[: stop - start] = target.probability[start:stop]
                for j in range(stop - start):
                    share = here * choices.mass[j]
                    if share == 0.0:
                        continue
                    row = s * actions + target.label[start + j]
                    low, high = rows.start[row], rows.start[row + 1]
                    if row == seen_row:  # consistency: what was seen happens again
                        low, high = seen_entry, seen_entry + 1
                        moves.mass[0] = 1.0
                    else:
                        gumbel_max_row(rows, row, p_state, k, moves)
                    for e in range(low, high):
                        moved = share * moves.mass[e - low]
                        if moved == 0.0:
                            continue
                        earned += weight * moved * reward[e]
                        x = next_state[e]
                        if x >= states:
                            outcome_mass[episode, x - states] += moved
                        else:
                            if later[x] == 0.0:
                                later_states[reached] = x
                                reached += 1
                            later[x] += moved
            unscatter(rows, seen_row, p_state)
            if shared:
                unscatter(behavior, log.state[i], p_action)
            now, later = later, now
            now_states, later_states = later_states, now_states
            active = reached
            weight *= discount
        left = log.left[episode]
        for slot in range(active):
            s = now_states[slot]
            here = now[s]
            now[s] = 0.0
            earned += weight * here * values_after[left, s]
            for o in range(outcomes):
                outcome_mass[episode, o] += here * outcomes_after[left, s, o]
        expected_return[episode] = earned
    return -1


@compiled
def draw_counterfactuals(
    first,
    last,
    log,
    behavior,
    target,
    dynamics,
    shared,
    keys,
    drawn_state,
    drawn_action,
    drawn_reward,
):
    """Draw trajectories of episodes first .. last - 1 from the same chains as `exact_outcomes`.

    Step t of draw d uses the numbers d 2^32 + 2 t (action) and the next one (state) of the
    episode's stream. Writes `drawn_state` [n, draws, H + 1] (outcome o is S + o), `drawn_action`
    and `drawn_reward` [n, draws, H]; what lies beyond an end stays as it is. Returns as
    `exact_outcomes` does.
    """
    rows, next_state, reward, labels, states, actions, _ = dynamics
    draws = drawn_state.shape[1]
    moves = make_scratch(widest_row(rows))
    choices = make_scratch(actions)
    p_state = np.zeros(labels.max() + 1)
    p_action = np.zeros(actions)

    for episode in range(first, last):
        length = log.stop[episode] - log.start[episode]
        drawn_state[episode, :, 0] = log.state[log.start[episode]]
        for t in range(length + log.left[episode]):
            seen = t < length
            i = log.start[episode] + min(t, length - 1)
            seen_row = log.state[i] * actions + log.action[i]
            seen_entry = observed_entry(log, dynamics, episode, i)
            if seen:
                if seen_entry < 0:
                    return i
                scatter(rows, seen_row, p_state)
                if shared:
                    scatter(behavior, log.state[i], p_action)
                    if p_action[log.action[i]] == 0.0:
                        return i
            for d in range(draws):
                s = drawn_state[episode, d, t]
                if s < 0 or s >= states:
                    continue
                counter = d * DRAW_STRIDE + 2 * t
                pick = start = target.start[s]
                stop = target.start[s + 1]
                if stop - start > 1:
                    u = uniform(keys[episode], counter)
                    if seen and shared:
                        gumbel_max_row(target, s, p_action, log.action[i], choices)
                        pick = start + pick_by_mass(choices.mass, 0, stop - start, u)
                    else:
                        pick = pick_by_mass(target.probability, start, stop, u)
                row = s * actions + target.label[pick]
                low, high = rows.start[row], rows.start[row + 1]
                u = uniform(keys[episode], counter + 1)
                if not seen:
                    e = pick_by_mass(rows.probability, low, high, u)
                elif row == seen_row:
                    e = seen_entry
                else:
                    gumbel_max_row(rows, row, p_state, rows.label[seen_entry], moves)
                    e = low + pick_by_mass(moves.mass, 0, high - low, u)
                drawn_action[episode, d, t] = target.label[pick]
                drawn_reward[episode, d, t] = reward[e]
                drawn_state[episode, d, t + 1] = next_state[e]
            if seen:
                unscatter(rows, seen_row, p_state)
                if shared:
                    unscatter(behavior, log.state[i], p_action)
    return -1


# -------------------------------------------------------------------------------------- sepsis


@compiled
def sepsis_step(state, action, noise, corrected):
    """One step of the sepsis simulator from thirteen uniforms: full state index to full index.

    Levels count from 0. Treatments that run or have just stopped act first; what they did not
    touch fluctuates.
    """
    running, vitals = state & 7, state >> 3
    ventilated, vasopressed, medicated = running & 1, running >> 1 & 1, running >> 2
    glucose, vitals = vitals % 5, vitals // 5
    oxygen, vitals = vitals & 1, vitals >> 1
    pressure, vitals = vitals % 3, vitals // 3
    heart, diabetes = vitals % 3, vitals // 3
    antibiotics, ventilation, vasopressors = action >> 2, action >> 1 & 1, action & 1

    if antibiotics:
        if heart == 2 and noise[0] < 0.5:
            heart = 1
        if pressure == 2 and noise[1] < 0.5:
            pressure = 1
    elif medicated:
        if heart == 1 and noise[2] < 0.1:
            heart = 2
        if pressure == 1 and noise[3] < 0.1:
            pressure = 2

    if ventilation:
        if oxygen == 0 and noise[4] < 0.7:
            oxygen = 1
    elif ventilated and oxygen == 1 and noise[5] < 0.1:
        oxygen = 0

    if vasopressors:
        if diabetes:
            if pressure == 1:
                if noise[6] < 0.9:
                    pressure = 2
            elif pressure == 0:
                if noise[6] < 0.5:
                    pressure = 1
                elif noise[6] < 0.9:
                    pressure = 2
            if noise[7] < 0.5:
                glucose = min(glucose + 1, 4)
        elif pressure < 2 and noise[6] < 0.7:
            pressure += 1
    elif vasopressed and noise[8] < (0.05 if diabetes else 0.1):
        pressure = max(pressure - 1, 0)

    if not (antibiotics or medicated):
        heart = fluctuate(heart, noise[9], 0.1, 2)
    if not (antibiotics or medicated or vasopressors or vasopressed):
        pressure = fluctuate(pressure, noise[10], 0.1, 2)
    if not (ventilation or ventilated):
        oxygen = fluctuate(oxygen, noise[11], 0.1, 1)
    if not vasopressors:
        if diabetes:
            glucose = fluctuate(glucose, noise[12], 0.3, 4)
        else:
            # the published release lets a non-diabetic's glucose rise to level 1 at most
            glucose = fluctuate(glucose, noise[12], 0.1, 4 if corrected else 1)

    vitals = (((diabetes * 3 + heart) * 3 + pressure) * 2 + oxygen) * 5 + glucose
    return ((vitals * 2 + antibiotics) * 2 + vasopressors) * 2 + ventilation


@compiled
def fluctuate(level, u, chance, top):
    """Move down one level with this chance, up one with the same, but not past 0 or `top`."""
    if u < chance:
        return max(level - 1, 0)
    if u < 2 * chance:
        return min(level + 1, top)
    return level


@compiled
def sepsis_steps(state, action, noise, corrected):
    """Apply `sepsis_step` to each of m states, actions and rows of noise [m, 13]."""
    result = np.empty(len(state), np.int32)
    for i in range(len(state)):
        result[i] = sepsis_step(state[i], action[i], noise[i], corrected)
    return result


@compiled
def sepsis_uniform(key, t, j):
    """Return uniform j of step t of the episode with this key."""
    return uniform(key, 2 + (NOISE_SIZE + 1) * t + j)


@compiled
def sepsis_noise(key, t, noise):
    """Fill `noise` [13] with the uniforms of step t of the episode with this key."""
    for j in range(NOISE_SIZE):
        noise[j] = sepsis_uniform(key, t, j)


@compiled
def sepsis_noise_used(key, t, state, action, noise):
    """Fill those of the thirteen uniforms that `sepsis_step` looks at in this state and action."""
    ventilated, vasopressed, medicated = state & 1, state >> 1 & 1, state >> 2 & 1
    antibiotics, ventilation, vasopressors = action >> 2, action >> 1 & 1, action & 1
    if antibiotics or medicated:
        first = 0 if antibiotics else 2
        noise[first] = sepsis_uniform(key, t, first)
        noise[first + 1] = sepsis_uniform(key, t, first + 1)
    else:
        noise[9] = sepsis_uniform(key, t, 9)
    which = 4 if ventilation else (5 if ventilated else 11)
    noise[which] = sepsis_uniform(key, t, which)
    which = 6 if vasopressors else (8 if vasopressed else 10)
    noise[which] = sepsis_uniform(key, t, which)
    which = 7 if vasopressors else 12
    noise[which] = sepsis_uniform(key, t, which)


@compiled
def simulate_sepsis(
    keys, initial, policy, outcome_of, corrected, horizon, state, action, length, final, outcome
):
    """Simulate one episode for each key; `initial` [S] and `policy` [S, A] are cumulative.

    Number 0 of an episode's stream draws the first state; step t takes the fourteen from
    1 + 14 t on, for the action and then the noise. Writes `length`, `final` (the state reached)
    and `outcome` [n] and, step after step, `state` and `action`; returns how many steps there were.
    """
    noise = np.empty(NOISE_SIZE)
    total = 0
    for i in range(len(keys)):
        key = keys[i]
        s = np.searchsorted(initial, uniform(key, 0), side="right")
        end = -1
        t = 0
        while t < horizon and end < 0:
            u = uniform(key, 1 + (NOISE_SIZE + 1) * t)
            a = 0
            for j in range(policy.shape[1] - 1):  # without a branch that depends on chance
                a += u >= policy[s, j]
            state[total] = s
            action[total] = a
            sepsis_noise_used(key, t, s, a, noise)
            s = sepsis_step(s, a, noise, corrected)
            end = outcome_of[s]
            total += 1
            t += 1
        length[i] = t
        final[i] = s
        outcome[i] = end
    return total


# ----------------------------------------------------------------------------------- influence


@compiled
def episode_influence(
    first,
    last,
    log,
    behavior,
    target,
    dynamics,
    shared,
    going_after,
    earned_after,
    by_step,
    mass,
    earned,
):
    """Measure how far the chains of `exact_outcomes` are from the model, step by step.

    At step t of episodes first .. last - 1, over the mass that has no outcome yet: `mass` [n, H],
    the mean of TV(K_t(.|s, a), P(.|s, a)) as `by_step` [n, H], and the expected absolute reward as
    `earned` [n, H]. Past the observed end K = P; what then follows h steps later is known from the
    state: the probability of no outcome yet `going_after` [H, S] and the expected absolute reward
    `earned_after` [H, S]. Returns as `exact_outcomes` does.
    """
    rows, next_state, reward, labels, states, actions, _ = dynamics
    moves = make_scratch(widest_row(rows))
    choices = make_scratch(actions)
    p_state = np.zeros(labels.max() + 1)
    p_action = np.zeros(actions)
    now, later = np.zeros(states), np.zeros(states)
    now_states, later_states = np.empty(states, np.int64), np.empty(states, np.int64)

    for episode in range(first, last):
        now_states[0] = log.state[log.start[episode]]
        now[now_states[0]] = 1.0
        active = 1
        length = log.stop[episode] - log.start[episode]
        for t in range(length):
            i = log.start[episode] + t
            seen_row = log.state[i] * actions + log.action[i]
            seen_entry = observed_entry(log, dynamics, episode, i)
            if seen_entry < 0:
                return i
            k = rows.label[seen_entry]
            scatter(rows, seen_row, p_state)
            if shared:
                scatter(behavior, log.state[i], p_action)
                if p_action[log.action[i]] == 0.0:
                    return i
            reached = 0
            going, moved_by = 0.0, 0.0
            for slot in range(active):
                s = now_states[slot]
                here = now[s]
                now[s] = 0.0
                going += here
                start, stop = target.start[s], target.start[s + 1]
                if shared and stop - start > 1:
                    gumbel_max_row(target, s, p_action, log.action[i], choices)
                else:
                    choices.mass[: stop - start] = target.probability[start:stop]
                for j in range(stop - start):
                    share = here * choices.mass[j]
                    if share == 0.0:
                        continue
                    row = s * actions + target.label[start + j]
                    low, high = rows.start[row], rows.start[row + 1]
                    if row == seen_row:  # K is certain of what was seen
                        moved_by += share * (1.0 - rows.probability[seen_entry])
                        low, high = seen_entry, seen_entry + 1
                        moves.mass[0] = 1.0
                    else:
                        gumbel_max_row(rows, row, p_state, k, moves)
                        distance = 0.0
                        for e in range(low, high):
                            distance += abs(moves.mass[e - low] - rows.probability[e])
                        moved_by += share * distance / 2.0
                    for e in range(low, high):
                        moved = share * moves.mass[e - low]
                        if moved == 0.0:
                            continue
                        earned[episode, t] += moved * abs(reward[e])
                        x = next_state[e]
                        if x < states:
                            if later[x] == 0.0:
                                later_states[reached] = x
                                reached += 1
                            later[x] += moved
            if going > 0.0:
                by_step[episode, t] = moved_by / going
            mass[episode, t] = going
            unscatter(rows, seen_row, p_state)
            if shared:
                unscatter(behavior, log.state[i], p_action)
            now, later = later, now
            now_states, later_states = later_states, now_states
            active = reached
        for slot in range(active):
            s = now_states[slot]
            here = now[s]
            now[s] = 0.0
            for h in range(log.left[episode]):
                mass[episode, length + h] += here * going_after[h, s]
                earned[episode, length + h] += here * earned_after[h, s]
    return -1

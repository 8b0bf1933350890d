"""Both worlds of whole episodes with hidden states: exact outcomes, steps and draws."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, part
from butfor.kernels.evidence import weigh_cases
from butfor.kernels.latent import NUMBERS, behavior_row, seen_at
from butfor.kernels.pairs import (
    ABSOLUTE,
    APART,
    EARNED,
    GOING,
    MOVED,
    OTHER,
    begin,
    choose_action,
    next_node,
    push_alone,
    push_pairs,
    row_given,
)
from butfor.kernels.random import DRAW_STRIDE, uniform
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import pick_by_mass, scatter, unscatter


@bare
def exact_pairs(
    first, last, pairs, work, since, discount, values, outcomes, probability, expected_return
):
    """Push both worlds of episodes first .. last - 1 through their steps, from `since` [n] on.

    Before that the target takes the logged actions; returns count from there. What follows from a
    cell with h steps left is already known: `values` [H + 1, C], `outcomes` [H + 1, C, O + 1].
    Writes `probability` [n, O + 1] (no outcome last) and `expected_return` [n]. Returns -1, or the
    first impossible episode.
    """
    ends = probability.shape[1] - 1
    log = pairs.log
    for episode in range(first, last):
        if not begin(pairs, work, episode, since[episode]):
            return episode
        weight = 1.0
        earned = 0.0
        work.outcome[:] = 0.0
        length = log.stop[episode] - log.start[episode]
        for t in range(since[episode], length):
            work.sums[:] = 0.0
            push_pairs(pairs, work, episode, t)
            earned += weight * work.sums[EARNED]
            weight *= discount
        for o in range(ends):
            probability[episode, o] += work.outcome[o]
        left = log.left[episode]
        now = length % 2
        for slot in range(work.size[now, 0]):
            cell = work.cells[now, 0, slot]
            here = work.mass[now, 0, cell]
            work.mass[now, 0, cell] = 0.0
            earned += weight * here * values[left, cell]
            for o in range(ends + 1):
                probability[episode, o] += here * outcomes[left, cell, o]
        expected_return[episode] = earned
    return -1


@by_reference
class HiddenSteps(NamedTuple):
    """What `walk_pairs` writes; all but the last three fields are those of `walk.Steps`."""

    influence: NDArray[np.float64]  # [n, H]
    mass: NDArray[np.float64]  # [n, H]
    earned: NDArray[np.float64]  # [n, H]
    evidence: NDArray[np.float64]  # [n, H]
    thin: NDArray[np.float64]  # [n, H]
    other: NDArray[np.float64]  # [n, H]
    apart: NDArray[np.float64]  # [n, H]
    seen: NDArray[np.float64]  # [n, H + 1, Z] of each observation, without outcome; or of size 0
    latent: NDArray[np.float64]  # [n, H + 1, H] of each hidden state, without outcome; or of size 0
    ended: NDArray[np.float64]  # [n, H + 1, O] of each outcome by then; or of size 0


@bare
def walk_pairs(first, last, pairs, work, counts, own_start, own_row, own_count, thin, steps):
    """Walk through both worlds of episodes first .. last - 1, to the horizon.

    `counts` [H A] are the expected logged transitions behind each row; those of the episode
    itself, of rows own_row[own_start[i] : own_start[i + 1]], are subtracted. Returns -1, or the
    first impossible episode.
    """
    keep = steps.seen.shape[0] > 0
    log, cases = pairs.log, work.cases
    for episode in range(first, last):
        if not begin(pairs, work, episode, 0):
            return episode
        for place in range(own_start[episode], own_start[episode + 1]):
            cases.own[own_row[place]] += own_count[place]
        if keep:
            steps.seen[episode, 0, seen_at(log, episode, 0)] = 1.0
            keep_latent(pairs, work, 0, steps.latent, episode, 0)
        work.outcome[:] = 0.0
        length = log.stop[episode] - log.start[episode]
        for t in range(length + log.left[episode]):
            work.sums[:] = 0.0
            work.row[:] = 0.0
            work.shown[:] = 0.0
            if t < length:
                push_pairs(pairs, work, episode, t)
            else:
                push_alone(pairs, work, t % 2)
            going = work.sums[GOING]
            steps.mass[episode, t] = going
            steps.earned[episode, t] = work.sums[ABSOLUTE]
            steps.other[episode, t] = work.sums[OTHER]
            steps.apart[episode, t] = work.sums[APART]
            if going > 0.0:
                steps.influence[episode, t] = work.sums[MOVED] / going
                count = gather_cases(work.row, counts, cases)
                weigh_cases(cases, count, going, thin, steps, episode, t)
            if keep:
                for o in range(len(work.shown)):
                    steps.seen[episode, t + 1, o] = work.shown[o]
                for o in range(len(work.outcome)):
                    steps.ended[episode, t + 1, o] = work.outcome[o]
                keep_latent(pairs, work, 1 - t % 2, steps.latent, episode, t + 1)
        now = (length + log.left[episode]) % 2
        for slot in range(work.size[now, 0]):
            work.mass[now, 0, work.cells[now, 0, slot]] = 0.0
        for place in range(own_start[episode], own_start[episode + 1]):
            cases.own[own_row[place]] = 0.0
    return -1


@bare
def keep_latent(pairs, work, side, latent, episode, t):
    """Sum the mass of each hidden state under the target."""
    for k in range(work.size.shape[1]):
        for slot in range(work.size[side, k]):
            cell = work.cells[side, k, slot]
            latent[episode, t, pairs.target.state[cell]] += work.mass[side, k, cell]


@part
def gather_cases(mass, counts, cases):
    """List the rows that a step uses, with their similar past cases; return how many."""
    count = 0
    for row in range(len(counts)):
        if mass[row] > 0.0:
            cases.number[count] = max(0.0, counts[row] - cases.own[row])
            cases.mass[count] = mass[row]
            count += 1
    return count


@bare
def draw_pairs(first, last, pairs, work, path, keys, state, seen, action, reward):
    """Draw the worlds under the target of episodes first .. last - 1, to the horizon.

    `path` [n, draws, T + 1] are the factual hidden paths. Continues `state` [n, draws, H + 1] (an
    end is a state) and `seen` (-1 at an end without observations) from the first step; writes
    `action` and `reward` [n, draws, H]. Uses the numbers 4 t + 1 .. 4 t + 3 of each draw at step t.
    What follows an end is left unchanged. Returns -1.
    """
    hidden, log, target = pairs.hidden, pairs.log, pairs.target
    for episode in range(first, last):
        length = log.stop[episode] - log.start[episode]
        for d in range(state.shape[1]):
            node = target.first[seen[episode, d, 0]]
            for t in range(length + log.left[episode]):
                h = state[episode, d, t]
                if hidden.outcome[h] >= 0:
                    break
                i, counter = log.start[episode] + t, d * DRAW_STRIDE + NUMBERS * t
                was, x, seen_row, label, observation = -1, -1, -1, -1, -1
                if t < length:
                    was, x = path[episode, d, t], path[episode, d, t + 1]
                    seen_row = was * hidden.actions + log.action[i]
                    label, observation = hidden.labels[x], seen_at(log, episode, t + 1)
                cell = target.cell[h, node]
                u = uniform(keys[episode], counter + 1)
                a = draw_action(pairs, work, target.row[cell], was, i, u)
                row = h * hidden.actions + a
                low, high = row_given(
                    hidden.rows, pairs.coupling, work.p_state, work.moves, row, seen_row, label
                )
                u = uniform(keys[episode], counter + 2)
                e = low + pick_by_mass(work.moves.mass, 0, high - low, u)
                reached = hidden.next_state[e]
                action[episode, d, t] = a
                reward[episode, d, t] = log.reward[i] if row == seen_row else hidden.reward[e]
                state[episode, d, t + 1] = reached
                low, high = row_given(
                    hidden.emission, pairs.showing, work.p_seen, work.shows, reached, x, observation
                )
                if high > low:
                    u = uniform(keys[episode], counter + 3)
                    place = low + pick_by_mass(work.shows.mass, 0, high - low, u)
                    shown = hidden.emission.label[place]
                    seen[episode, d, t + 1] = shown
                    node = next_node(target, cell, a, shown)
    return -1


@part
def draw_action(pairs, work, row, h, i, u):
    """Draw the action of a target's row, given the logged one of step i in h (-1: not given)."""
    rows, shared = pairs.target.rows, pairs.shared and h >= 0
    if shared:
        acted = behavior_row(pairs.behavior, pairs.log, h, i)
        scatter(pairs.behavior.rows, acted, work.p_action)
    choose_action(rows, row, shared, work.p_action, pairs.log.action[i], work.choices)
    if shared:
        unscatter(pairs.behavior.rows, acted, work.p_action)
    start = rows.start[row]
    return rows.label[start + pick_by_mass(work.choices.mass, 0, rows.start[row + 1] - start, u)]

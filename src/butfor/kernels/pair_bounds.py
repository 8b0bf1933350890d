"""Bounds of whole episodes with hidden states: those of rows for each pair of both worlds, nested.

Given the actual hidden path, the world under the target moves by any row that a mechanism allows,
and shows any observation that it allows. The worst of these is taken for each hidden state of both
worlds and each branch of the path separately, and averaged over the posterior of the path. One
mechanism may not be able to do the worst in all of them, so the result is an outer bound.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import longest_episode
from butfor.kernels.compiled import bare, part
from butfor.kernels.latent import (
    behavior_row,
    branch_from,
    look_away_from,
    look_back_from,
    seen_at,
    trace_back,
)
from butfor.kernels.limits import Limits, bound_values, make_limits
from butfor.kernels.pairs import FULL, Pairs, PairWork, choose_action, next_node
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import find_label, hold, scatter, unscatter, widest_row


@by_reference
class PairTables(NamedTuple):
    """Working space for the bounds of one episode; columns are those of `bounds.Tables`."""

    reached: NDArray[np.bool_]  # [T + 1, W, C] by step, actual hidden state and cell
    now: NDArray[np.float64]  # [W, C, columns]
    later: NDArray[np.float64]  # [W, C, columns]
    limits: Limits
    value: NDArray[np.float64]  # [widest row, columns] of each entry
    shown: NDArray[np.float64]  # [widest emission row, columns] of each observation
    row: NDArray[np.float64]  # [columns] of one row
    p_seen: NDArray[np.float64]  # [Z] the actual emission row
    held: NDArray[np.int64]  # [1] the row that `p_seen` holds, -1 for none


def bound_pairs(
    first: int,
    last: int,
    pairs: Pairs,
    work: PairWork,
    discount: float,
    values: NDArray[np.float64],
    outcomes: NDArray[np.float64],
    bounds: NDArray[np.float64],
) -> int:
    """Nest the bounds of rows backwards through episodes first .. last - 1.

    What follows from a cell past the logged end is known: `values` [H + 1, C] and `outcomes`
    [H + 1, C, O + 1], by steps left. Writes `bounds` [n, 4 (O + 2)]. Returns -1, or the first
    impossible episode.
    """
    hidden, columns = pairs.hidden, bounds.shape[1]
    size, cells = widest_row(hidden.showing), len(pairs.target.state)
    widest, shown = widest_row(hidden.rows), widest_row(hidden.emission)
    tables = PairTables(
        np.zeros((longest_episode(pairs.log, first, last) + 1, size, cells), np.bool_),
        np.empty((size, cells, columns)),
        np.empty((size, cells, columns)),
        make_limits(max(widest, shown)),
        np.empty((widest, columns)),
        np.empty((shown, columns)),
        np.empty(columns),
        np.zeros(len(hidden.showing.start) - 1),
        np.full(1, -1),
    )
    return bound_pair_episodes(first, last, pairs, work, tables, discount, values, outcomes, bounds)


@bare
def bound_pair_episodes(first, last, pairs, work, tables, discount, values, outcomes, bounds):
    """Do the work of `bound_pairs`."""
    for episode in range(first, last):
        if trace_back(pairs.hidden, pairs.behavior, work.trace, pairs.log, episode) == -np.inf:
            return episode
        bound_pair_episode(pairs, work, tables, episode, discount, values, outcomes, bounds)
    return -1


@part
def bound_pair_episode(pairs, work, tables, episode, discount, values, outcomes, bounds):
    """Bound one episode for `bound_pairs`."""
    log, target, trace = pairs.log, pairs.target, work.trace
    now, later = tables.now, tables.later
    length, left = log.stop[episode] - log.start[episode], log.left[episode]
    mark_pairs(pairs, work, tables, episode)
    for cell in range(len(target.state)):
        if tables.reached[length, 0, cell]:
            for c in range(bounds.shape[1]):
                later[0, cell, c] = (
                    values[left, cell] if c < 4 else outcomes[left, cell, c // 4 - 1]
                )
    for t in range(length - 1, -1, -1):
        look_back_from(trace, t + 1)
        for k in range(trace.size[t]):
            bound_cells(pairs, work, tables, episode, t, k, discount, now[k], later)
        look_away_from(trace, t + 1)
        now, later = later, now
    node = target.first[log.state[log.start[episode]]]
    for c in range(bounds.shape[1]):
        bounds[episode, c] = 0.0
        for k in range(trace.size[0]):
            cell = target.cell[trace.support[0, k], node]
            if trace.mass[0, k] > 0.0:
                bounds[episode, c] += trace.mass[0, k] * later[k, cell, c]


@bare
def branches(pairs, work, episode, t, k):
    """List where the actual path can go from its k-th state at step t; return their number.

    After the last logged step it matters no more where it is.
    """
    log, trace = pairs.log, work.trace
    i = log.start[episode] + t
    count = branch_from(pairs.hidden, trace, log, trace.support[t, k], i)
    if i + 1 == log.stop[episode]:
        for b in range(count):
            trace.onward[b] = 0
    return count


@part
def mark_pairs(pairs, work, tables, episode):
    """Mark the cells that the target can reach, by step and actual hidden state."""
    hidden, target, log, trace = pairs.hidden, pairs.target, pairs.log, work.trace
    reached = tables.reached
    length = log.stop[episode] - log.start[episode]
    reached[: length + 1] = False
    node = target.first[log.state[log.start[episode]]]
    for k in range(trace.size[0]):
        if trace.mass[0, k] > 0.0:
            reached[0, k, target.cell[trace.support[0, k], node]] = True
    for t in range(length):
        look_back_from(trace, t + 1)
        for k in range(trace.size[t]):
            seen_row = trace.support[t, k] * hidden.actions + log.action[log.start[episode] + t]
            count = branches(pairs, work, episode, t, k)
            for cell in range(len(target.state)):
                if not reached[t, k, cell]:
                    continue
                policy_row = target.row[cell]
                for j in range(target.rows.start[policy_row], target.rows.start[policy_row + 1]):
                    action = target.rows.label[j]
                    row = target.state[cell] * hidden.actions + action
                    for b in range(count):
                        low, high = hidden.rows.start[row], hidden.rows.start[row + 1]
                        if row == seen_row:  # consistency
                            low, high = trace.entry[b], trace.entry[b] + 1
                        for e in range(low, high):
                            h = hidden.next_state[e]
                            if hidden.outcome[h] < 0:
                                mark_shown(pairs, cell, action, h, reached[t + 1, trace.onward[b]])
        look_away_from(trace, t + 1)


@part
def mark_shown(pairs, cell, action, h, reached):
    """Mark the cells that follow when the target's world arrives in h, whatever it shows."""
    target, emission = pairs.target, pairs.hidden.emission
    if target.kind == FULL:
        reached[target.cell[h, 0]] = True
        return
    for s in range(emission.start[h], emission.start[h + 1]):
        reached[target.cell[h, next_node(target, cell, action, emission.label[s])]] = True


@part
def bound_cells(pairs, work, tables, episode, t, k, discount, now, later):
    """Bound what follows from all cells that go with the k-th actual state at step t."""
    hidden, target, log, trace = pairs.hidden, pairs.target, pairs.log, work.trace
    i = log.start[episode] + t
    h = trace.support[t, k]
    seen_row = h * hidden.actions + log.action[i]
    observation = seen_at(log, episode, t + 1)
    count = branches(pairs, work, episode, t, k)
    acted = behavior_row(pairs.behavior, log, h, i)
    scatter(hidden.rows, seen_row, work.p_state)
    if pairs.shared:
        scatter(pairs.behavior.rows, acted, work.p_action)
    for cell in range(len(target.state)):
        if not tables.reached[t, k, cell]:
            continue
        now[cell] = 0.0
        policy_row = target.row[cell]
        first = target.rows.start[policy_row]
        choose_action(
            target.rows, policy_row, pairs.shared, work.p_action, log.action[i], work.choices
        )
        for j in range(first, target.rows.start[policy_row + 1]):
            share = work.choices.mass[j - first]
            if share == 0.0:
                continue
            action = target.rows.label[j]
            for b in range(count):
                bound_branch(
                    pairs, work, tables, cell, action, i, seen_row, b, observation, discount, later
                )
                for c in range(now.shape[1]):
                    now[cell, c] += share * trace.chance[b] * tables.row[c]
    if pairs.shared:
        unscatter(pairs.behavior.rows, acted, work.p_action)
    unscatter(hidden.rows, seen_row, work.p_state)


@part
def bound_branch(pairs, work, tables, cell, action, i, seen_row, b, observation, discount, later):
    """Bound what follows a cell and an action, along a branch of the path, in `tables.row`."""
    hidden, trace, value = pairs.hidden, work.trace, tables.value
    row = pairs.target.state[cell] * hidden.actions + action
    start, high = hidden.rows.start[row], hidden.rows.start[row + 1]
    seen_entry = trace.entry[b]
    low = start
    surplus = 0.0  # of the reward over that of the model
    if row == seen_row:  # consistency
        low, high = seen_entry, seen_entry + 1
        surplus = pairs.log.reward[i] - hidden.reward[seen_entry]
    x, ahead = hidden.next_state[seen_entry], later[trace.onward[b]]
    for e in range(low, high):
        arrive(pairs, tables, cell, action, e, x, observation, discount, ahead, value[e - start])
    if high - low == 1:
        copy_into(value[low - start], tables.row)
        for c in range(4):
            tables.row[c] += surplus
        return
    bound_values(hidden.rows, row, work.p_state, seen_entry, tables.limits, value, tables.row)


@part
def arrive(pairs, tables, cell, action, e, x, observation, discount, ahead, value):
    """Bound what entry e is worth while the actual world goes to x: fills `value` [columns]."""
    hidden, target = pairs.hidden, pairs.target
    h = hidden.next_state[e]
    if hidden.outcome[h] >= 0:
        for c in range(len(value)):
            value[c] = 1.0 if c // 4 - 1 == hidden.outcome[h] else 0.0
        for c in range(4):
            value[c] = hidden.reward[e]
        return
    if target.kind == FULL:
        copy_into(ahead[target.cell[h, 0]], value)
    else:
        bound_shown(pairs, tables, cell, action, h, x, observation, ahead, value)
    for c in range(4):
        value[c] = hidden.reward[e] + discount * value[c]


@part
def bound_shown(pairs, tables, cell, action, h, x, observation, ahead, value):
    """Bound what follows in h, over what it may show, given what the actual state x showed."""
    target, emission, shown = pairs.target, pairs.hidden.emission, tables.shown
    start, high = emission.start[h], emission.start[h + 1]
    seen = -1  # nothing is known about the noise
    if observation >= 0 and high - start > 1:
        seen = find_label(emission, x, observation)
    low = start
    if seen >= 0 and h == x:  # consistency
        low, high = seen, seen + 1
    for s in range(low, high):
        at = target.cell[h, next_node(target, cell, action, emission.label[s])]
        copy_into(ahead[at], shown[s - start])
    if high - low == 1:
        copy_into(shown[low - start], value)
    elif seen < 0:
        value[:] = 0.0
        for s in range(start, high):
            for c in range(len(value)):
                value[c] += emission.probability[s] * shown[s - start, c]
    else:
        hold(emission, x, tables.held, tables.p_seen)
        bound_values(emission, h, tables.p_seen, seen, tables.limits, shown, value)


@bare
def copy_into(source, result):
    """Copy an array element by element: assigning a slice would allocate."""
    for c in range(len(result)):
        result[c] = source[c]

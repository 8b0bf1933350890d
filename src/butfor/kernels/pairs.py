"""Both worlds of an episode with hidden states, step by step.

Given an episode, (h, h', m') is a Markov chain: the actual hidden state, the one under the target,
and the target's memory. h moves by kappa_t (`latent.py`); the target's action is drawn afresh or is
its counterfactual given the logged one; h' moves by the counterfactual of its row given the move of
h; and the observation of h' is the counterfactual of its emission row given that of h. A pair
(h', m') is called a cell.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.chain import Log
from butfor.kernels.compiled import bare, part
from butfor.kernels.evidence import Cases
from butfor.kernels.latent import (
    Behavior,
    Hidden,
    Trace,
    behavior_row,
    branch_from,
    go_on,
    look_away_from,
    look_back_from,
    make_trace,
    seen_at,
    trace_back,
)
from butfor.kernels.mechanisms import (
    GUMBEL_MAX,
    INDEPENDENT,
    MAXIMAL,
    Coupling,
    counterfactual_row,
    gumbel_max_row,
)
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import (
    Rows,
    Scratch,
    find_label,
    make_scratch,
    meets,
    scatter,
    unscatter,
    widest_row,
)

LAST, FULL, MEMORY = range(3)  # what a target acts on: last observation, hidden state, memory


@by_reference
class Target(NamedTuple):
    """A policy with M memory nodes; cells are the possible pairs (h, m)."""

    rows: Rows  # labels are actions
    kind: int
    state: NDArray[np.int32]  # [C]
    node: NDArray[np.int32]  # [C]
    row: NDArray[np.int32]  # [C] of `rows`
    cell: NDArray[np.int32]  # [H, M] -1: none
    first: NDArray[np.int32]  # [Z] node after the first observation
    following: NDArray[np.int32]  # [M, A, Z] MEMORY: node after an action and an observation
    choice: NDArray[np.int64]  # [C] first choice of each cell; a choice is a cell and an action
    group: NDArray[np.int64]  # [choices] in a group, the model alone leads to the same cells
    moves: Rows  # [groups] labels are cells; moves into ends are left out
    earned: NDArray[np.float64]  # [groups] expected reward
    absolute: NDArray[np.float64]  # [groups] expected absolute reward
    ended: NDArray[np.float64]  # [groups, O] probability of each outcome


@by_reference
class Pairs(NamedTuple):
    """A log with hidden states, its behavior and model, and the question asked of it."""

    log: Log
    hidden: Hidden
    behavior: Behavior
    target: Target
    coupling: Coupling  # the mechanism of transitions
    showing: Coupling  # the mechanism of observations
    shared: bool  # whether the action shares the noise of the logged one, by Gumbel-Max
    certain: bool  # whether the hidden state determines the observation


@by_reference
class PairWork(NamedTuple):
    """One thread's working space for both worlds."""

    trace: Trace
    moves: Scratch
    choices: Scratch
    shows: Scratch
    p_state: NDArray[np.float64]  # [labels] the factual transition row
    p_action: NDArray[np.float64]  # [A]
    p_seen: NDArray[np.float64]  # [Z] the factual emission row
    mass: NDArray[np.float64]  # [2, W, C] by hidden state that fits the step, and cell
    cells: NDArray[np.int32]  # [2, W, C] where it is not 0
    size: NDArray[np.int64]  # [2, W]
    alone: NDArray[np.float64]  # [C] mass that moves by the model alone, whatever the path
    alone_cells: NDArray[np.int32]  # [C] where it is not 0
    # of size 0 unless observations are noisy and the target has no memory
    pooled: NDArray[np.float64]  # [H A] mass by state and action, whatever was observed
    pooled_rows: NDArray[np.int64]  # [H A] where it is not 0
    reached: NDArray[np.float64]  # [H] mass that arrives along one branch, before it is observed
    reached_states: NDArray[np.int64]  # [H] where it is not 0
    arrived: NDArray[np.int64]  # [1] number of these
    # sums over one step; the last three are of size 0 unless walking
    outcome: NDArray[np.float64]  # [O] mass that ends
    sums: NDArray[np.float64]  # EARNED .. APART
    row: NDArray[np.float64]  # [H A] mass by state and action
    shown: NDArray[np.float64]  # [Z] mass by next observation
    cases: Cases  # [H A]


# Sums: reward; absolute reward; mass without an outcome; its total variation from the model's rows;
# mass in another row than the factual one; part of that without a common label
EARNED, ABSOLUTE, GOING, MOVED, OTHER, APART = range(6)


def make_pair_work(pairs: Pairs, walking: bool) -> PairWork:
    """Return working space for these pairs."""
    hidden = pairs.hidden
    width, cells = widest_row(hidden.showing), len(pairs.target.state)
    size, actions = widest_row(hidden.rows), hidden.actions
    observations = len(hidden.showing.start) - 1
    rows = len(hidden.rows.start) - 1 if walking else 0
    pools = not pairs.certain and pairs.target.kind != MEMORY
    pooled, states = (len(hidden.rows.start) - 1, len(hidden.outcome)) if pools else (0, 0)
    return PairWork(
        trace=make_trace(hidden, pairs.log),
        moves=make_scratch(size),
        choices=make_scratch(actions),
        shows=make_scratch(widest_row(hidden.emission)),
        p_state=np.zeros(int(hidden.labels.max()) + 1),
        p_action=np.zeros(actions),
        p_seen=np.zeros(observations),
        mass=np.zeros((2, width, cells)),
        cells=np.empty((2, width, cells), np.int32),
        size=np.zeros((2, width), np.int64),
        alone=np.zeros(cells),
        alone_cells=np.empty(cells, np.int32),
        pooled=np.zeros(pooled),
        pooled_rows=np.empty(pooled, np.int64),
        reached=np.zeros(states),
        reached_states=np.empty(states, np.int64),
        arrived=np.zeros(1, np.int64),
        outcome=np.zeros(len(hidden.ends.start) - 1),
        sums=np.zeros(6),
        row=np.zeros(rows),
        shown=np.zeros(observations if walking else 0),
        cases=Cases(np.empty(rows), np.empty(rows), np.zeros(rows)),
    )


@bare
def begin(pairs, work, episode, since):
    """Start both worlds where the episode was at step `since`; return False if impossible."""
    trace, log, target = work.trace, pairs.log, pairs.target
    if trace_back(pairs.hidden, pairs.behavior, trace, log, episode) == -np.inf:
        return False
    shown = seen_at(log, episode, 0)
    node = target.first[shown]
    for t in range(since):
        go_on(pairs.hidden, trace, log, episode, t, trace.chance[:0])
        shown = seen_at(log, episode, t + 1)
        if target.kind == MEMORY and shown >= 0:
            node = target.following[node, log.action[log.start[episode] + t], shown]
    if target.kind == LAST:
        node = shown
    ended = since == log.stop[episode] - log.start[episode]
    side = since % 2
    work.size[side] = 0
    for k in range(trace.size[since]):
        h = trace.support[since, k]
        if trace.mass[side, k] > 0.0 and pairs.hidden.outcome[h] < 0:
            at = target.cell[h, node]
            place = 0 if ended else k
            add(work.mass, work.cells, work.size, side, place, at, trace.mass[side, k])
    return True


@bare
def add(mass, cells, size, side, k, cell, amount):
    """Add mass to a cell that goes with hidden state k; the sides alternate by step."""
    if amount == 0.0:  # underflow
        return
    if mass[side, k, cell] == 0.0:
        cells[side, k, size[side, k]] = cell
        size[side, k] += 1
    mass[side, k, cell] += amount


@bare
def choose_action(rows, row, shared, p_action, logged, choices):
    """Fill `choices.mass` with a row of the target, given the logged action if noise is shared.

    `p_action` is the factual action row by label.
    """
    start, stop = rows.start[row], rows.start[row + 1]
    if shared and stop - start > 1:
        gumbel_max_row(rows, row, p_action, logged, choices)
    else:
        for j in range(stop - start):
            choices.mass[j] = rows.probability[start + j]


@bare
def row_given(rows, coupling, p, scratch, row, seen_row, label):
    """Fill `scratch.mass` with a row, given the label that `seen_row` had (-1: unknown).

    `p` is working space by label. Returns the first entry of the row and one past the last.
    """
    start, stop = rows.start[row], rows.start[row + 1]
    seen = -1
    if label >= 0 and stop - start > 1:
        seen = find_label(rows, seen_row, label)
    if seen < 0:
        for j in range(stop - start):
            scratch.mass[j] = rows.probability[start + j]
    elif row == seen_row:  # consistency
        scratch.mass[0] = 1.0
        return seen, seen + 1
    else:
        scatter(rows, seen_row, p)
        counterfactual_row(coupling, rows, row, seen_row, seen, p, scratch)
        unscatter(rows, seen_row, p)
    return start, stop


@bare
def next_node(target, cell, action, shown):
    """Return the target's memory node after an action and an observation."""
    if target.kind == MEMORY:
        return target.following[target.node[cell], action, shown]
    return 0 if target.kind == FULL else shown


@bare
def land(pairs, work, later, k, x, observation, cell, action, h, moved):
    """Add mass that arrives in h, which is not an end, while the factual world is at place k.

    The factual state x showed the observation (-1: unknown).
    """
    hidden, target = pairs.hidden, pairs.target
    walking = work.shown.size > 0
    if target.kind == FULL:
        add(work.mass, work.cells, work.size, later, k, target.cell[h, 0], moved)
        if not walking:
            return
    shows = work.shows
    low, high = row_given(hidden.emission, pairs.showing, work.p_seen, shows, h, x, observation)
    for s in range(low, high):
        share = moved * shows.mass[s - low]
        if share > 0.0:
            shown = hidden.emission.label[s]
            if walking:
                work.shown[shown] += share
            if target.kind != FULL:
                at = target.cell[h, next_node(target, cell, action, shown)]
                add(work.mass, work.cells, work.size, later, k, at, share)


@bare
def push_pairs(pairs, work, episode, t):
    """Move both worlds by the logged step t, from one side of the working space to the other.

    At the last logged step the factual world is summed out: it matters no more.
    """
    hidden, log, trace = pairs.hidden, pairs.log, work.trace
    i = log.start[episode] + t
    last = i + 1 == log.stop[episode]
    observation = seen_at(log, episode, t + 1)
    look_back_from(trace, t + 1)
    work.size[1 - t % 2] = 0
    for k in range(trace.size[t]):
        if work.size[t % 2, k] == 0:
            continue
        h = trace.support[t, k]
        seen_row = h * hidden.actions + log.action[i]
        count = branch_from(hidden, trace, log, h, i)
        if last:
            for b in range(count):
                trace.onward[b] = 0
        scatter(hidden.rows, seen_row, work.p_state)
        acted = behavior_row(pairs.behavior, log, h, i)
        if pairs.shared:
            scatter(pairs.behavior.rows, acted, work.p_action)
        push_cells(pairs, work, t % 2, k, i, seen_row, count, observation)
        if pairs.shared:
            unscatter(pairs.behavior.rows, acted, work.p_action)
        unscatter(hidden.rows, seen_row, work.p_state)
    look_away_from(trace, t + 1)


@bare
def push_cells(pairs, work, now, k, i, seen_row, count, observation):
    """Move all cells that go with one factual state, along the branches of the factual path.

    Past the logged end (i < 0) there is no factual row, and one branch without an entry.
    Rows that share no label with the factual one move by the model alone. If the observations are
    certain, these are summed first and spread over the branches together. If they are noisy, cells
    that differ by the observation alone are summed first, unless the target remembers it.
    """
    hidden, target, trace = pairs.hidden, pairs.target, work.trace
    later = 1 - now
    alone, alone_cells = work.alone, work.alone_cells
    label, probability, start = target.moves.label, target.moves.probability, target.moves.start
    shared = pairs.shared and i >= 0
    logged = pairs.log.action[i]
    arrived = 0
    rows = 0
    going = 0.0
    for slot in range(work.size[now, k]):
        cell = work.cells[now, k, slot]
        here = work.mass[now, k, cell]
        work.mass[now, k, cell] = 0.0
        going += here
        policy_row = target.row[cell]
        first, stop = target.rows.start[policy_row], target.rows.start[policy_row + 1]
        choose_action(target.rows, policy_row, shared, work.p_action, logged, work.choices)
        for j in range(first, stop):
            share = here * work.choices.mass[j - first]
            if share == 0.0:
                continue
            action = target.rows.label[j]
            row = target.state[cell] * hidden.actions + action
            kind = pairs.coupling.kind
            apart = kind == INDEPENDENT and row != seen_row and i >= 0
            if (
                kind in (GUMBEL_MAX, MAXIMAL) and i >= 0
            ):  # others also couple rows without a common label
                apart = hidden.classes[row] & hidden.classes[seen_row] == 0
            if work.row.size > 0:
                work.row[row] += share
                if row != seen_row and i >= 0:
                    work.sums[OTHER] += share
                    if not meets(hidden.rows, row, work.p_state):
                        work.sums[APART] += share
            if apart and pairs.certain:
                group = target.group[target.choice[cell] + j - first]
                work.sums[EARNED] += share * target.earned[group]
                work.sums[ABSOLUTE] += share * target.absolute[group]
                for o in range(len(work.outcome)):
                    work.outcome[o] += share * target.ended[group, o]
                for e in range(start[group], start[group + 1]):
                    at, moved = label[e], share * probability[e]
                    if alone[at] == 0.0 and moved > 0.0:
                        alone_cells[arrived] = at
                        arrived += 1
                    alone[at] += moved
            elif work.pooled.size > 0:
                if work.pooled[row] == 0.0:
                    work.pooled_rows[rows] = row
                    rows += 1
                work.pooled[row] += share
            else:
                for b in range(count):
                    push_row(
                        pairs, work, later, cell, action, share, row, i, seen_row, b, observation
                    )
    work.sums[GOING] += going
    if rows > 0:
        push_pooled(pairs, work, later, rows, i, seen_row, count, observation)
    for b in range(count):
        place, share = trace.onward[b], trace.chance[b]
        for slot in range(arrived):
            at = alone_cells[slot]
            add(work.mass, work.cells, work.size, later, place, at, share * alone[at])
    for slot in range(arrived):
        at = alone_cells[slot]
        if work.shown.size > 0:
            work.shown[hidden.shows[target.state[at]]] += alone[at]
        alone[at] = 0.0


@part
def push_pooled(pairs, work, later, rows, i, seen_row, count, observation):
    """Move the mass of the first `rows` pooled rows along each branch of the factual path.

    What arrives in a state is summed before it is observed.
    """
    hidden, trace = pairs.hidden, work.trace
    for b in range(count):
        work.arrived[0] = 0
        for slot in range(rows):
            row = work.pooled_rows[slot]
            push_row(pairs, work, later, 0, 0, work.pooled[row], row, i, seen_row, b, observation)
        x = hidden.next_state[trace.entry[b]]
        for slot in range(work.arrived[0]):
            h = work.reached_states[slot]
            land(pairs, work, later, trace.onward[b], x, observation, 0, 0, h, work.reached[h])
            work.reached[h] = 0.0
    for slot in range(rows):
        work.pooled[work.pooled_rows[slot]] = 0.0


@part
def reach(work, h, moved):
    """Add mass that arrives in h and is yet to be observed."""
    if work.reached[h] == 0.0:
        work.reached_states[work.arrived[0]] = h
        work.arrived[0] += 1
    work.reached[h] += moved


@bare
def push_row(pairs, work, later, cell, action, share, row, i, seen_row, b, observation):
    """Move the mass of one row along branch b of the factual path; of one cell, unless pooled."""
    hidden, target, trace = pairs.hidden, pairs.target, work.trace
    rows, mass = hidden.rows, work.moves.mass
    amount = share * trace.chance[b]
    seen_entry = trace.entry[b]
    x = hidden.next_state[seen_entry]
    low, high = rows.start[row], rows.start[row + 1]
    if row == seen_row:  # consistency: the factual transition repeats
        low, high = seen_entry, seen_entry + 1
        mass[0] = 1.0
    elif seen_entry < 0:
        for e in range(low, high):
            mass[e - low] = rows.probability[e]
    else:
        counterfactual_row(
            pairs.coupling, rows, row, seen_row, seen_entry, work.p_state, work.moves
        )
    kept = 0.0
    for e in range(low, high):
        moved = amount * mass[e - low]
        kept += min(mass[e - low], rows.probability[e])
        if moved == 0.0:
            continue
        reward = pairs.log.reward[i] if row == seen_row else hidden.reward[e]
        work.sums[EARNED] += moved * reward
        work.sums[ABSOLUTE] += moved * abs(reward)
        h = hidden.next_state[e]
        place = trace.onward[b]
        if hidden.outcome[h] >= 0:
            work.outcome[hidden.outcome[h]] += moved
        elif pairs.certain:
            if work.shown.size > 0:
                work.shown[hidden.shows[h]] += moved
            at = target.cell[h, next_node(target, cell, action, hidden.shows[h])]
            add(work.mass, work.cells, work.size, later, place, at, moved)
        elif work.pooled.size > 0:
            reach(work, h, moved)
        else:
            land(pairs, work, later, place, x, observation, cell, action, h, moved)
    if seen_entry >= 0:
        work.sums[MOVED] += amount * max(0.0, 1.0 - kept)


@part
def push_alone(pairs, work, now):
    """Move the world under the target one step by the model alone, after the logged end."""
    trace = work.trace
    work.size[1 - now] = 0
    trace.entry[0], trace.onward[0], trace.chance[0] = -1, 0, 1.0
    push_cells(pairs, work, now, 0, -1, -1, 1, -1)

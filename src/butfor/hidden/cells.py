"""Cells: the pairs of hidden state and memory that a target can be in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_discount, check_horizon, check_room
from butfor.hidden.model import TabularPOMDP, as_rows, check_pomdp
from butfor.hidden.policies import (
    FiniteController,
    FinitePolicy,
    LatentPolicy,
    Policy,
    check_finite_policy,
)
from butfor.log.episodes import rows_of
from butfor.models.mdp import total_by
from butfor.types import Floats, Integers

MOST_NUMBERS = 30_000_000  # in one table; larger ones are refused before they are made


def make_cells(model: TabularPOMDP, policy: FinitePolicy) -> kernels.Target:
    """Number the pairs of hidden state and memory that a target can be in."""
    going = np.flatnonzero(model.outcome < 0)
    observations = np.arange(model.n_observations, dtype=np.int32)
    none = np.zeros((1, 1, 1), np.int32)
    if isinstance(policy, LatentPolicy):
        places = going, np.zeros_like(going), going
        memory = 1, np.zeros_like(observations), none
        return _target(model, kernels.FULL, policy.table, *places, *memory)
    if isinstance(policy, FiniteController):
        nodes = policy.n_nodes
        node = np.tile(np.arange(nodes), len(going))
        memory = nodes, policy.first, policy.following
        places = np.repeat(going, nodes), node, node
        return _target(model, kernels.MEMORY, policy.action, *places, *memory)
    shown = model.emission[going].tocoo()
    places = going[shown.row], shown.col, shown.col
    return _target(model, kernels.LAST, policy, *places, len(observations), observations, none)


def _target(
    model: TabularPOMDP,
    kind: int,
    policy: Floats,
    state: NDArray[Any],
    node: NDArray[Any],
    row: NDArray[Any],
    nodes: int,
    first: Integers,
    following: Integers,
) -> kernels.Target:
    _check_size(model.n_states * nodes, "pairs of hidden state and memory")
    _check_size(len(state) * int(np.diff(model.arrays.showing.start).max()), "pairs of both worlds")
    cell = np.full((model.n_states, nodes), -1, np.int32)
    cell[state, node] = np.arange(len(state))
    # choices are a cell and an action; those of a group lead to the same
    rows = kernels.sparse_rows(policy)
    size = np.diff(rows.start)[row]
    which, taken = expand(rows.start, row)
    group = np.arange(len(which))
    if kind != kernels.MEMORY:
        key = state[which].astype(np.int64) * model.n_actions + rows.label[taken]
        group = np.unique(key, return_inverse=True)[1]
    target = kernels.Target(
        rows=rows,
        kind=kind,
        state=state.astype(np.int32),
        node=node.astype(np.int32),
        row=row.astype(np.int32),
        cell=cell,
        first=first,
        following=np.ascontiguousarray(following),
        choice=np.cumsum(size) - size,
        group=group.astype(np.int64),
        moves=rows,
        earned=np.empty(0),
        absolute=np.empty(0),
        ended=np.empty((0, 0)),
    )
    return target._replace(**_group_sums(model, target))


class Moves(NamedTuple):
    """All moves of the model alone: the group and entry they belong to, and the cell they reach.

    A group collects the cells and actions that lead to the same: it is a hidden state and an action
    and, if the target has a memory, a node. An entry occurs once for each observation that it may
    show; the cell after an end does not matter and is 0.
    """

    group: NDArray[np.int64]
    entry: NDArray[np.int64]
    cell: NDArray[np.int32]
    chance: Floats  # of the observation


def find_moves(model: TabularPOMDP, target: kernels.Target) -> Moves:
    """List all moves of the model alone."""
    dynamics, emission = model.dynamics, model.arrays.emission
    cell, taken = expand(target.rows.start, target.row)
    _, choice = np.unique(target.group, return_index=True)  # one choice of each group
    state, node = target.state[cell[choice]].astype(np.int64), target.node[cell[choice]]
    action = target.rows.label[taken[choice]]
    group, entry = expand(dynamics.start, state * model.n_actions + action)
    reached = dynamics.next_state[entry]
    over = model.outcome[reached] >= 0
    if target.kind == kernels.FULL:
        return Moves(group, entry, np.where(over, 0, target.cell[reached, 0]), np.ones(len(entry)))
    ended, going = np.flatnonzero(over), np.flatnonzero(~over)
    _check_size(int(np.diff(emission.start)[reached[going]].sum()), "moves")
    which, shown = expand(emission.start, reached[going])
    going = going[which]
    after = emission.label[shown]
    if target.kind == kernels.MEMORY:
        after = target.following[node[group[going]], action[group[going]], after]
    both = np.concatenate([ended, going])
    return Moves(
        group[both],
        entry[both],
        np.concatenate([np.zeros(len(ended), np.int32), target.cell[reached[going], after]]),
        np.concatenate([np.ones(len(ended)), emission.probability[shown]]),
    )


def _group_sums(model: TabularPOMDP, target: kernels.Target) -> dict[str, Any]:
    """Return where the model alone leads each group, and what it earns."""
    dynamics = model.dynamics
    count = int(target.group.max()) + 1
    found = find_moves(model, target)
    share = dynamics.probability[found.entry] * found.chance
    reward = dynamics.reward[found.entry]
    end = model.outcome[dynamics.next_state[found.entry]]
    over = end >= 0
    ended = np.zeros((count, len(model.outcomes)))
    np.add.at(ended, (found.group[over], end[over]), share[over])
    moves = sparse.csr_array(
        (share[~over], (found.group[~over], found.cell[~over])),
        shape=(count, len(target.state)),
    )
    moves.sum_duplicates()
    return {
        "moves": as_rows(moves),
        "earned": total_by(found.group, share * reward, count),
        "absolute": total_by(found.group, share * np.abs(reward), count),
        "ended": ended,
    }


def _check_size(numbers: int, what: str) -> None:
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"the model and this target have {numbers:,} {what}, more than {MOST_NUMBERS:,}; use "
            "fewer observations or memory nodes"
        )


def cell_tables(target: kernels.Target, horizon: int, discount: float) -> tuple[Floats, Floats]:
    """Return what the model alone gives, by steps left and cell.

    These are the expected return [H + 1, C] and the probability of each outcome [H + 1, C, O + 1],
    whose last column is for no outcome.
    """
    cells, groups = len(target.state), len(target.earned)
    cell, taken = expand(target.rows.start, target.row)
    average = sparse.csr_array(
        (target.rows.probability[taken], (cell, target.group)), shape=(cells, groups)
    )
    moves = as_matrix(target.moves, cells)
    gained = np.column_stack([target.earned, target.ended, np.zeros(groups)])
    kept = np.array([discount] + [1.0] * (gained.shape[1] - 1))
    shape = (horizon + 1, cells, gained.shape[1])
    pairs = f"{cells:,} pairs of hidden state and memory"
    check_room(shape, f"outcomes after up to {horizon:,} steps from {pairs}")
    tables = np.zeros(shape)
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, horizon + 1):
        tables[left] = average @ (gained + kept * (moves @ tables[left - 1]))
    return np.ascontiguousarray(tables[:, :, 0]), np.ascontiguousarray(tables[:, :, 1:])


def pomdp_value(
    model: TabularPOMDP, policy: Policy, *, horizon: int, discount: float = 1.0
) -> float:
    """Return the expected return of a policy in the model, over `horizon` steps."""
    check_pomdp(model)
    target = make_cells(model, check_finite_policy(policy, *model.sizes, "policy"))
    values, _ = cell_tables(target, check_horizon(horizon), check_discount(discount))
    return float(first_cells(model, target) @ values[-1])


def first_cells(model: TabularPOMDP, target: kernels.Target) -> Floats:
    """Return the probability of each cell at the start, by the model alone, [C]."""
    mass = np.zeros(len(target.state))
    if target.kind == kernels.FULL:
        state = np.flatnonzero(model.initial)
        mass[target.cell[state, 0]] = model.initial[state]
        return mass
    shown = model.emission.tocoo()
    begins = model.initial[shown.row] > 0
    state, seen = shown.row[begins], shown.col[begins]
    share = model.initial[state] * shown.data[begins]
    np.add.at(mass, target.cell[state, target.first[seen]], share)
    return mass


def as_matrix(rows: kernels.Rows, columns: int) -> sparse.csr_array:
    """Return kernel rows as a sparse matrix."""
    entries = (rows.probability, rows.label, rows.start)
    return sparse.csr_array(entries, shape=(len(rows.start) - 1, columns))


def expand(start: NDArray[np.int64], row: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List the entries of rows: the position of the row among those given, and the entry."""
    size = np.diff(start)
    return np.repeat(np.arange(len(row)), size[row]), rows_of(start[:-1], size, row)

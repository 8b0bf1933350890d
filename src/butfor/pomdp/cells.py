"""Pairs of hidden state and memory that a target can be in, and what the model makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_discount, check_horizon
from butfor.mdp import total_by
from butfor.pomdp.model import TabularPOMDP, as_rows
from butfor.pomdp.policies import (
    BeliefPolicy,
    FiniteController,
    LatentPolicy,
    Policy,
    check_hidden_policy,
)
from butfor.variables import Floats, Integers

MOST_CELLS = 20_000_000  # pairs of hidden state and memory that a table may have


def make_cells(
    model: TabularPOMDP, policy: Floats | FiniteController | LatentPolicy | BeliefPolicy
) -> kernels.Target:
    """Number the pairs of hidden state and memory that a target can be in."""
    going = np.flatnonzero(model.outcome < 0)
    none = np.zeros((1, 1, 1), np.int32)
    if isinstance(policy, LatentPolicy):
        state, node = going, np.zeros(len(going), np.int64)
        return _target(model, policy_rows(policy.table), kernels.FULL, state, node, state, 1, none)
    if isinstance(policy, FiniteController):
        nodes = policy.n_nodes
        state, node = np.repeat(going, nodes), np.tile(np.arange(nodes), len(going))
        rows = policy_rows(policy.action)
        return _target(
            model,
            rows,
            kernels.MEMORY,
            state,
            node,
            node,
            nodes,
            policy.following,
            policy.first,
        )
    if isinstance(policy, BeliefPolicy):  # its rows are asked for, draw by draw
        policy = np.full((model.n_observations, model.n_actions), 1.0 / model.n_actions)
    shown = model.emission[going].tocoo()
    state, node = going[shown.row], shown.col
    return _target(
        model, policy_rows(policy), kernels.LAST, state, node, node, model.n_observations, none
    )


def _target(
    model: TabularPOMDP,
    rows: kernels.Rows,
    kind: int,
    state: NDArray[Any],
    node: NDArray[Any],
    row: NDArray[Any],
    nodes: int,
    following: Integers,
    first: Integers | None = None,
) -> kernels.Target:
    if model.n_states * nodes > MOST_CELLS:
        raise ValueError(
            f"{model.n_states} hidden states and {nodes} nodes of memory make "
            f"{model.n_states * nodes} pairs, more than {MOST_CELLS}; draw instead, with the "
            "target as a BeliefPolicy"
        )
    cell = np.full((model.n_states, nodes), -1, np.int32)
    cell[state, node] = np.arange(len(state))
    begins = np.arange(model.n_observations, dtype=np.int32) if first is None else first
    target = kernels.Target(
        rows=rows,
        kind=kind,
        state=state.astype(np.int32),
        node=node.astype(np.int32),
        row=row.astype(np.int32),
        cell=cell,
        first=begins,
        following=np.ascontiguousarray(following),
        choice=np.empty(0, np.int64),
        moves=rows,
        earned=np.empty(0),
        absolute=np.empty(0),
        ended=np.empty((0, 0)),
    )
    return target._replace(**_choices(model, target))


def next_cells(
    model: TabularPOMDP, target: kernels.Target
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All moves of the model alone: the cell before, the entry taken, the cell after.

    An entry comes once for each observation that it may show; the cell after an end does not matter
    and is 0.
    """
    cell, taken = expand(target.rows.start, target.row)
    choice, entry = _entries_of_choices(model, target, cell, taken)
    choice, entry, arrived, _ = _arrivals(model, target, cell, taken, choice, entry)
    return cell[choice], entry, arrived


def _entries_of_choices(
    model: TabularPOMDP, target: kernels.Target, cell: NDArray[Any], taken: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Choice and entry of the model for each entry that a choice may take."""
    row = target.state[cell].astype(np.int64) * model.n_actions + target.rows.label[taken]
    return expand(model.dynamics.start, row)


def _arrivals(
    model: TabularPOMDP,
    target: kernels.Target,
    cell: NDArray[Any],
    taken: NDArray[Any],
    choice: NDArray[Any],
    entry: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Floats]:
    """Choice, entry, cell after and probability of what is shown there; an end shows nothing."""
    reached = model.dynamics.next_state[entry]
    over = model.outcome[reached] >= 0
    if target.kind == kernels.FULL:
        arrived = np.where(over, 0, target.cell[reached, 0])
        return choice, entry, arrived, np.ones(len(entry))
    emission = model.arrays.emission
    ended, going = np.flatnonzero(over), np.flatnonzero(~over)
    which, shown = expand(emission.start, reached[going])
    going = going[which]
    node = emission.label[shown]
    if target.kind == kernels.MEMORY:
        before, action = target.node[cell[choice[going]]], target.rows.label[taken[choice[going]]]
        node = target.following[before, action, node]
    arrived = np.concatenate([np.zeros(len(ended), np.int32), target.cell[reached[going], node]])
    chance = np.concatenate([np.ones(len(ended)), emission.probability[shown]])
    both = np.concatenate([ended, going])
    return choice[both], entry[both], arrived, chance


def _choices(model: TabularPOMDP, target: kernels.Target) -> dict[str, Any]:
    """What the model alone makes of each choice: a cell and one of its actions."""
    dynamics = model.dynamics
    size = np.diff(target.rows.start)[target.row]
    cell, taken = expand(target.rows.start, target.row)
    choices = len(cell)
    choice, entry = _entries_of_choices(model, target, cell, taken)
    share, reward = dynamics.probability[entry], dynamics.reward[entry]
    end = model.outcome[dynamics.next_state[entry]]
    ended = np.zeros((choices, len(model.outcomes)))
    np.add.at(ended, (choice[end >= 0], end[end >= 0]), share[end >= 0])
    earned, absolute = (total_by(choice, share * r, choices) for r in (reward, np.abs(reward)))
    choice, entry, arrived, chance = _arrivals(model, target, cell, taken, choice, entry)
    going = model.outcome[dynamics.next_state[entry]] < 0
    moves = sparse.csr_array(
        (
            (dynamics.probability[entry] * chance)[going],
            (choice[going], arrived[going]),
        ),
        shape=(choices, len(target.state)),
    )
    moves.sum_duplicates()
    return {
        "choice": np.cumsum(size) - size,
        "moves": as_rows(moves),
        "earned": earned,
        "absolute": absolute,
        "ended": ended,
    }


def cell_tables(target: kernels.Target, horizon: int, discount: float) -> tuple[Floats, Floats]:
    """What the model alone gives by steps left and cell.

    Returns the expected return [H + 1, C] and the probability of each outcome [H + 1, C, O + 1],
    the last column being that of none.
    """
    check_discount(discount)
    cells, choices = len(target.state), len(target.earned)
    cell, taken = expand(target.rows.start, target.row)
    average = sparse.csr_array(
        (target.rows.probability[taken], (cell, np.arange(choices))), shape=(cells, choices)
    )
    moves = average @ as_matrix(target.moves, cells)
    gained = average @ np.column_stack([target.earned, target.ended, np.zeros(choices)])
    kept = np.array([discount] + [1.0] * (gained.shape[1] - 1))
    tables = np.zeros((horizon + 1, *gained.shape))
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, horizon + 1):
        tables[left] = gained + kept * (moves @ tables[left - 1])
    return np.ascontiguousarray(tables[:, :, 0]), np.ascontiguousarray(tables[:, :, 1:])


def pomdp_value(
    model: TabularPOMDP, policy: Policy, *, horizon: int, discount: float = 1.0
) -> float:
    """Expected return of a policy by the model alone, over `horizon` steps."""
    chosen = check_hidden_policy(
        policy, model.n_states, model.n_observations, model.n_actions, "policy"
    )
    if isinstance(chosen, BeliefPolicy):
        raise ValueError(
            "the memory of a policy on beliefs has no end, so its value is not worked out; "
            "simulate it (simulate_pomdp), or give a FiniteController"
        )
    target = make_cells(model, chosen)
    values, _ = cell_tables(target, check_horizon(horizon), discount)
    return float(first_cells(model, target) @ values[-1])


def first_cells(model: TabularPOMDP, target: kernels.Target) -> Floats:
    """Probability of each cell at the start, by the model alone, [C]."""
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


def policy_rows(policy: Floats) -> kernels.Rows:
    """Return a policy [R, A] as sparse rows."""
    return as_rows(sparse.csr_array(policy))


def as_matrix(rows: kernels.Rows, columns: int) -> sparse.csr_array:
    """Return rows of kernels as a sparse matrix."""
    entries = (rows.probability, rows.label, rows.start)
    return sparse.csr_array(entries, shape=(len(rows.start) - 1, columns))


def expand(start: NDArray[np.int64], row: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List the entries of rows: for each entry, which of the rows it is of, and its place."""
    size = np.diff(start)[row]
    which = np.repeat(np.arange(len(row)), size)
    first = np.cumsum(size) - size
    return which, start[row][which] + np.arange(len(which)) - first[which]

"""The rows of a model that is given as arrays: checked, and made block by block.

A model may take gigabytes, so that nothing of the size of its rows is made but the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import REWARDS, ROW_TOLERANCE, find_absurd
from butfor.log.variables import Outcome
from butfor.types import Floats, Integers, Offsets

BLOCK = 1 << 20  # entries at a time

Earned = Callable[[Offsets, Integers], Floats]  # (row, next state) of entries -> their rewards


class GivenRows(NamedTuple):
    """Sparse rows, as `TabularMDP` keeps them."""

    start: Offsets  # [S A + 1]
    next_state: Integers  # [E]
    probability: Floats  # [E]
    reward: Floats  # [E]
    states: int
    actions: int


class Entries(NamedTuple):
    """Some entries of rows."""

    row: Offsets
    next_state: Integers
    weight: Floats
    reward: Floats


def given_rows(
    transition: ArrayLike | sparse.sparray | sparse.spmatrix,
    reward: ArrayLike | sparse.sparray | sparse.spmatrix | None,
    ends: tuple[Outcome, ...],
    absorbing: Mapping[int, int],
    actions: int | None,
) -> GivenRows:
    """Return the rows that `TabularMDP.from_arrays` was given."""
    matrix, states, actions = _matrix(transition, len(ends), actions)
    earned = _check_reward(reward, states, actions, ends)
    into = _redirect(absorbing, states, len(ends))
    size = len(matrix.data)
    next_state, width = np.empty(size, np.int32), np.empty(matrix.shape[0], np.int64)
    probability, rewards = np.empty(size), np.empty(size)
    filled = 0
    for first, last in row_blocks(matrix.indptr):
        mine = slice(matrix.indptr[first], matrix.indptr[last])
        row = np.repeat(np.arange(first, last), np.diff(matrix.indptr[first : last + 1]))
        column = matrix.indices[mine]
        block = Entries(row, column, matrix.data[mine], earned(row, column))
        if absorbing:
            block = _absorb(block, into, actions, None if reward is not None else ends)
        place = block.row - first
        width[first:last] = np.bincount(place, minlength=last - first)
        total = np.bincount(place, block.weight, last - first)
        kept = slice(filled, filled + len(place))
        next_state[kept], rewards[kept] = block.next_state, block.reward
        probability[kept] = block.weight / total[place]
        filled += len(place)
    start = np.concatenate([[0], np.cumsum(width)])
    return GivenRows(
        start, next_state[:filled], probability[:filled], rewards[:filled], states, actions
    )


def row_blocks(start: NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Yield the first row of each block of rows, and the row after it; `start` [R + 1] of rows."""
    cuts = np.searchsorted(start[:-1], np.arange(BLOCK, start[-1], BLOCK))
    bounds = np.unique([0, *cuts.tolist(), len(start) - 1]).tolist()
    yield from pairwise(bounds)


def coalesce(keys: Offsets, weight: Floats, reward: Floats) -> tuple[Offsets, Floats, Floats]:
    """Return sorted distinct keys, their total weights and their weighted mean rewards."""
    distinct, position = np.unique(keys, return_inverse=True)
    total = np.bincount(position, weight, len(distinct)).astype(np.float64, copy=False)
    earned = np.bincount(position, weight * reward, len(distinct))
    return distinct, total, earned / total


def _absorb(
    given: Entries, into: Integers, actions: int, ends: tuple[Outcome, ...] | None
) -> Entries:
    """Redirect entries from absorbing states to their outcomes, to which their own rows lead too.

    `into` [S + O] is where each state and outcome leads. With `ends`, arriving there earns their
    rewards.
    """
    columns = len(into)
    column, earned = into[given.next_state], given.reward
    if ends is not None:
        states = columns - len(ends)
        value = np.array([0.0] * states + [outcome.reward for outcome in ends])
        earned = np.where(column != given.next_state, value[column], earned)
    keys, weight, earned = coalesce(given.row * columns + column, given.weight, earned)
    row, column = np.divmod(keys, columns)
    state = row // actions
    gone = into[state] != state
    own = np.unique(row[gone])
    row = np.concatenate([row[~gone], own])
    order = np.argsort(row, kind="stable")
    return Entries(
        row[order],
        np.concatenate([column[~gone], into[own // actions]])[order],
        np.concatenate([weight[~gone], np.ones(len(own))])[order],
        np.concatenate([earned[~gone], np.zeros(len(own))])[order],
    )


def _matrix(
    transition: ArrayLike | sparse.sparray | sparse.spmatrix, ends: int, actions: int | None
) -> tuple[sparse.csr_array, int, int]:
    """Return the transition rows as a sparse [S A, S + O] matrix, checked, with S and A."""
    if sparse.issparse(transition):
        if actions is None or actions < 1:
            raise ValueError("a sparse transition matrix [S A, S + O] needs actions=A")
        matrix = sparse.csr_array(transition, dtype=np.float64)
        states = matrix.shape[1] - ends
        if matrix.shape[0] != states * actions:
            raise ValueError(
                f"transition has shape {matrix.shape}; with {actions} actions and {ends} outcomes "
                f"expected ({states * actions}, {matrix.shape[1]})"
            )
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # it shares its memory with what was given
            matrix.sum_duplicates()
    else:
        dense = np.asarray(transition, dtype=np.float64)
        if dense.ndim != 3 or dense.shape[0] + ends != dense.shape[2] or 0 in dense.shape:
            raise ValueError(
                f"transition has shape {dense.shape}, expected [states, actions, states + "
                f"outcomes], and there are {ends} outcomes"
            )
        states, actions = dense.shape[0], dense.shape[1]
        matrix = sparse.csr_array(dense.reshape(states * actions, -1))
    check_sparse_rows(
        matrix,
        "transition",
        lambda row: f"state {row // actions}, action {row % actions}",
        "next state",
        np.zeros(matrix.shape[0], dtype=bool),
    )
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix, states, actions


def check_sparse_rows(
    matrix: sparse.csr_array,
    name: str,
    place: Callable[[int], str],
    column: str,
    may_be_empty: NDArray[np.bool_],
) -> Floats:
    """Return the sums of sparse rows, which must be distributions.

    `place(row)` and `column` name the rows and the columns in error messages.
    """
    data = matrix.data
    if len(data) and not (data.min() >= 0 and data.max() < np.inf):
        entry = int((~np.isfinite(data) | (data < 0)).argmax())
        row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
        raise ValueError(
            f"{name}: {place(row)} has probability {matrix.data[entry]} of {column} "
            f"{matrix.indices[entry]}; probabilities are numbers from 0 to 1"
        )
    total = np.asarray(matrix.sum(axis=1)).reshape(-1)
    wrong = (np.abs(total - 1) > ROW_TOLERANCE) & ~((total == 0) & may_be_empty)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{name}: the row of {place(row)} sums to {total[row]:.9g}, not to 1; divide each row "
            "by its sum if that is what is meant"
        )
    return total


def _check_reward(
    reward: ArrayLike | sparse.sparray | sparse.spmatrix | None,
    states: int,
    actions: int,
    ends: tuple[Outcome, ...],
) -> Earned:
    """Return what gives the rewards of entries."""
    rows, columns = states * actions, states + len(ends)
    if reward is None:
        arrival = np.array([0.0] * states + [outcome.reward for outcome in ends])
        return lambda _, column: arrival[column]
    if sparse.issparse(reward):
        matrix = sparse.csr_array(reward, dtype=np.float64)
        if matrix.shape != (rows, columns):
            raise ValueError(
                f"reward has shape {matrix.shape}, expected that of transition, ({rows}, {columns})"
            )
        return _finite(lambda row, column: np.asarray(matrix[row, column]).reshape(-1), actions)
    table = np.asarray(reward, dtype=np.float64)
    if table.shape == (states, actions, columns):
        flat = table.reshape(rows, columns)
        return _finite(lambda row, column: flat[row, column], actions)
    if table.shape == (states, actions):
        return _finite(lambda row, _: table.reshape(-1)[row], actions)
    if table.shape == (columns,):
        return _finite(lambda _, column: table[column], actions)
    raise ValueError(
        f"reward has shape {table.shape}, expected [S, A, S + O], [S, A] or [S + O] with "
        f"S = {states}, A = {actions}, O = {len(ends)}"
    )


def _finite(earned: Earned, actions: int) -> Earned:
    """Return rewards of entries, of which none may be missing."""

    def checked(row: Offsets, column: Integers) -> Floats:
        found = earned(row, column)
        wrong = find_absurd(found)
        if len(wrong):
            entry = int(wrong[0])
            state, action = divmod(int(row[entry]), actions)
            raise ValueError(
                f"reward of state {state}, action {action}, next state {column[entry]} is "
                f"{found[entry]}; every possible transition needs a number, {REWARDS}"
            )
        return found

    return checked


def _redirect(absorbing: Mapping[int, int], states: int, ends: int) -> Integers:
    """Return where each state and outcome leads: absorbing states to their outcomes, [S + O]."""
    target = np.arange(states + ends, dtype=np.int32)
    for state, end in absorbing.items():
        if not (0 <= state < states and 0 <= end < ends):
            raise ValueError(
                f"absorbing: state {state} to outcome {end}, but there are {states} states and "
                f"{ends} outcomes"
            )
        target[state] = states + end
    return target

"""The tables of a `.pomdp` file: probabilities entry by entry, and rewards of transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.types import Floats

Index = NDArray[np.int64]

MOST_ENTRIES = 5_000_000  # numbers in one table; more are refused before memory is taken
MOST_REWARDS = 100_000_000  # numbers set by all R entries together


class Table:
    """Rows of probabilities, filled entry by entry; later entries overwrite earlier ones."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # actions, states, columns
        self.rows: dict[int, dict[int, float]] = {}  # row state A + action: column: probability
        self.own: set[int] = set()  # rows that do not share their dictionary
        self.line: dict[int, int] = {}  # where each row was last written
        self.written = 0

    def add(self, row: int, entries: dict[int, float], line: int, *, whole: bool) -> None:
        """Write a whole row or some of its entries; rows share a dictionary until one changes."""
        if whole:
            self.rows[row] = entries
            self.own.discard(row)
        elif row in self.own:
            self.rows[row].update(entries)
        elif row not in self.rows:
            self.rows[row] = entries
        else:
            self.rows[row] = {**self.rows[row], **entries}
            self.own.add(row)
        self.line[row] = line

    def matrix(self) -> sparse.csr_array:
        """Return the table with one row per state and action."""
        actions, states, columns = self.shape
        lengths = np.fromiter(map(len, self.rows.values()), np.int64, len(self.rows))
        row = np.repeat(np.fromiter(self.rows, np.int64, len(self.rows)), lengths)
        column = np.fromiter((c for row in self.rows.values() for c in row), np.int64, len(row))
        data = np.fromiter((p for r in self.rows.values() for p in r.values()), float, len(row))
        matrix = sparse.csr_array((data, (row, column)), (states * actions, columns))
        matrix.eliminate_zeros()
        return matrix


class RewardEntry(NamedTuple):
    """One R entry; a place of None means all."""

    action: int | None
    state: int | None
    reached: int | None
    seen: int | None
    value: Floats  # [1], or [1, Z] or [S, Z] over the places left out (.mdp: [1, S] or [S, S])


def mean_rewards(
    entries: Sequence[RewardEntry],
    transition: sparse.csr_array,
    observation: sparse.csr_array | None,
    fail: Callable[[str], NoReturn],
) -> tuple[sparse.csr_array, bool]:
    """Return the rewards of possible transitions, and whether some are means.

    They are means over the observations on arrival if these make a difference.
    """
    actions = transition.shape[0] // transition.shape[1]
    width = 1 if observation is None else observation.shape[1]
    first, reached = transition.indptr, transition.indices
    if len(reached) * width > 4 * MOST_ENTRIES:
        fail(f"R has more than {4 * MOST_ENTRIES:,} numbers; give a smaller model")
    row = np.repeat(np.arange(transition.shape[0]), np.diff(first))
    state, action = np.divmod(row, actions)
    earned = np.zeros((len(row), width))
    touched = 0
    for entry, at in _matching(entries, transition, action):
        touched += len(at) * width
        if touched > MOST_REWARDS:
            fail(
                f"the R entries set more than {MOST_REWARDS:,} numbers; remove those that "
                "later ones overwrite"
            )
        if entry.value.ndim == 1:
            earned[at, slice(None) if entry.seen is None else entry.seen] = entry.value[0]
        elif observation is None:
            line = state[at] if len(entry.value) > 1 else 0
            earned[at, 0] = entry.value[line, reached[at]]
        else:
            earned[at] = entry.value[reached[at] if len(entry.value) > 1 else 0]
    if observation is None:
        return sparse.csr_array((earned[:, 0], reached, first), transition.shape), False
    chance = sparse.csr_array(observation[reached * actions + action])
    of_row = np.repeat(np.arange(len(row)), np.diff(chance.indptr))
    value = earned[of_row, chance.indices]
    least = np.minimum.reduceat(value, chance.indptr[:-1])
    most = np.maximum.reduceat(value, chance.indptr[:-1])
    # equal rewards are kept to the last digit
    mean = np.where(least == most, least, np.bincount(of_row, chance.data * value, len(row)))
    return sparse.csr_array((mean, reached, first), transition.shape), bool((least < most).any())


def _matching(
    entries: Sequence[RewardEntry], transition: sparse.csr_array, action: Index
) -> Iterator[tuple[RewardEntry, Index]]:
    """Yield each R entry with the transitions that it is about."""
    actions = transition.shape[0] // transition.shape[1]
    first, reached = transition.indptr, transition.indices
    every = np.arange(len(reached))
    of_action = _grouped(action, actions)
    of_reached = _grouped(reached, transition.shape[1])
    for entry in entries:
        if entry.state is not None:
            low = entry.state * actions + (entry.action or 0)
            high = low + (actions if entry.action is None else 1)
            at = every[first[low] : first[high]]
        elif entry.reached is not None:
            at = of_reached[entry.reached]
            at = at if entry.action is None else at[action[at] == entry.action]
        else:
            at = every if entry.action is None else of_action[entry.action]
        yield entry, at if entry.reached is None else at[reached[at] == entry.reached]


def _grouped(codes: Index, count: int) -> list[Index]:
    """Return the positions of each code, in order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(1, count)))

"""States of wide logs: the combinations of levels that occur, where all of them are too many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.log.variables import Variable, count_levels, ravel, unravel
from butfor.types import Floats

MOST_STATES = 10_000_000  # that are numbered whether they occur or not: arrays [S, A] must fit
MOST_TRANSITIONS = 50_000_000  # that are possible in a model whose states are enumerated
MOST_LEVELS = 2**15 - 1  # of one variable of a wide log
WORD = 2**62  # combinations of levels that one integer can hold

Combinations = NDArray[np.int16]  # [S, J] level codes of each state


class Space:
    """The states and actions that variables make, counted without outcomes."""

    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    combinations: Combinations | None  # of states; None: all combinations of levels

    @property
    def n_states(self) -> int:
        """Number of states S."""
        if self.combinations is not None:
            return len(self.combinations)
        return count_levels(self.state_variables)

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return count_levels(self.action_variables)

    @cached_property
    def durations(self) -> Floats | None:
        """How long before each state the previous decision was made, [S]; None: one step."""
        return state_durations(self.state_variables, self.combinations)


def state_codes(
    variables: Sequence[Variable], combinations: Combinations | None, state: NDArray[np.integer]
) -> dict[str, NDArray[np.intp]]:
    """Return the level code of each variable, by name, of states given by their numbers."""
    if combinations is None:
        return unravel(variables, np.asarray(state))
    rows = combinations[np.asarray(state)]
    return {v.name: rows[..., place].astype(np.intp) for place, v in enumerate(variables)}


def state_durations(
    variables: Sequence[Variable], combinations: Combinations | None = None
) -> Floats | None:
    """Return how long before each state the previous decision was made, [S]; None: one step.

    Nothing counts that follows the last step of a clock, as if it took forever to get there.
    """
    if not any(variable.durations or variable.clock for variable in variables):
        return None
    states = count_levels(variables) if combinations is None else len(combinations)
    codes, found = state_codes(variables, combinations, np.arange(states)), np.ones(states)
    for variable in variables:
        if variable.durations:
            found *= np.array(variable.durations)[codes[variable.name]]
    for variable in variables:
        if variable.clock:
            found[codes[variable.name] == len(variable.levels) - 1] = np.inf
    return found


def discount_states(durations: Floats | None, discount: float, states: int) -> Floats:
    """Return the factor by which what follows counts less in each state reached, [S]."""
    return np.full(states, discount) if durations is None else discount**durations


def number_combinations(
    variables: Sequence[Variable], codes: NDArray[np.integer]
) -> tuple[Combinations, NDArray[np.int64]]:
    """Return the distinct rows of codes [m, J] in order, and the number of each row, [m]."""
    for variable in variables:
        if len(variable.levels) > MOST_LEVELS:
            raise ValueError(
                f"{variable.name!r} has {len(variable.levels):,} levels; a log that numbers only "
                f"the states that occur allows {MOST_LEVELS:,} per variable: use fewer"
            )
    words = _words(variables, codes)
    order = np.lexsort(words[::-1])
    ordered = words[:, order]
    first = np.ones(len(codes), dtype=bool)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    number = np.empty(len(codes), dtype=np.int64)
    number[order] = np.cumsum(first) - 1
    return np.asarray(codes)[order[first]].astype(np.int16), number


def find_states(
    variables: Sequence[Variable], combinations: Combinations | None, codes: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the number of the state with each row of codes [m, J]; -1 where there is none."""
    if combinations is None:
        return ravel(variables, list(np.asarray(codes).T))
    both = np.concatenate([combinations, codes])
    distinct, number = number_combinations(variables, both)
    known = np.full(len(distinct), -1, dtype=np.int64)
    known[number[: len(combinations)]] = np.arange(len(combinations))
    return known[number[len(combinations) :]]


def rows_of_codes(
    codes: NDArray[np.integer], state: NDArray[np.integer], next_state: NDArray[np.integer]
) -> dict[str, NDArray[np.integer]]:
    """Return the codes [N, J] of states given as rows of a table of codes; -1 is unknown."""
    table = np.concatenate([codes, np.full((1, codes.shape[1]), -1)])  # row -1 is the last
    return {"state": table[state], "next_state": table[next_state]}


def check_combinations(
    variables: Sequence[Variable], combinations: NDArray[np.integer]
) -> Combinations:
    """Return level codes of states [S, J]; refuse codes out of range and states given twice."""
    table = np.asarray(combinations)
    if table.ndim != 2 or table.shape[1] != len(variables) or table.dtype.kind not in "iu":
        raise ValueError(
            f"combinations: {table.dtype} of shape {table.shape}, expected whole numbers of shape "
            f"(states, {len(variables)}): one column per state variable"
        )
    check_codes(variables, table, "combinations")
    distinct, number = number_combinations(variables, table)
    if len(distinct) < len(table):
        twice = int(np.flatnonzero(np.bincount(number)[number] > 1)[0])
        raise ValueError(f"combinations: row {twice} appears twice; give each state once")
    return table.astype(np.int16)


def check_codes(variables: Sequence[Variable], codes: NDArray[np.integer], name: str) -> None:
    """Refuse level codes [m, J] that are no level of their variable."""
    for place, variable in enumerate(variables):
        size = len(variable.levels)
        wrong = (codes[:, place] < 0) | (codes[:, place] >= size)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{name}, row {row}: {variable.name!r} has the code {codes[row, place]}, outside "
                f"0..{size - 1}; list the level, or correct the code"
            )


def _words(variables: Sequence[Variable], codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Pack rows of codes [m, J] into as few integers as hold them, [words, m], in their order."""
    words, room = [], 0
    for place, variable in enumerate(variables):
        size = max(len(variable.levels), 1)
        if room < size:
            words.append(np.zeros(len(codes), dtype=np.int64))
            room = WORD
        words[-1] = words[-1] * size + codes[:, place]
        room //= size
    return np.array(words)

"""Variables that need not be learned: they never change, copy an action, or count the steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor.log.variables import Variable
from butfor.models.factored import ACTION, CLOCK, NEXT, Factor
from butfor.models.transitions import Transitions


def fixed_factors(rows: Transitions) -> dict[str, Factor]:
    """Return the factors of the variables that nature does not decide, by name.

    A variable is static if it is declared so, or if it kept its level in every transition; it
    copies an action variable if it had its level after every transition. Such a factor excludes
    everything else: give the factors found in the whole log as `known` where parts of the log are
    learned from separately.
    """
    known = rows.next_state >= 0
    if not known.any():
        raise ValueError(
            "no transition has a known next state, so nothing can be learned about the course; "
            "give every episode's final state, or longer episodes"
        )
    found = {}
    for variable in rows.state_variables:
        factor = _clock(variable) or _static(rows, variable, known) or _copy(rows, variable, known)
        if factor is not None:
            found[variable.name] = factor
    return found


def _clock(variable: Variable) -> Factor | None:
    if not variable.clock:
        return None
    size = len(variable.levels)
    table = np.eye(size)[np.minimum(np.arange(size) + 1, size - 1)]
    return Factor(variable.name, (variable.name,), table, np.zeros_like(table), CLOCK)


def _static(rows: Transitions, variable: Variable, known: NDArray[np.bool_]) -> Factor | None:
    moved = known & (rows.codes[variable.name] != rows.codes[NEXT + variable.name])
    if not moved.any():
        size = len(variable.levels)
        return Factor(
            variable.name, (variable.name,), np.eye(size), np.zeros((size, size)), "static"
        )
    if variable.static:
        first = int(moved.argmax())
        raise ValueError(
            f"{variable.name!r} is declared static but changes in {rows.weight[moved].sum()} "
            f"transitions, such as from state {rows.state[first]} to {rows.next_state[first]}; "
            "correct the log, or do not declare it static"
        )
    return None


def _copy(rows: Transitions, variable: Variable, known: NDArray[np.bool_]) -> Factor | None:
    after = rows.codes[NEXT + variable.name][known]
    for action in rows.action_variables:
        level = _corresponding(variable.levels, action.levels)
        chosen = rows.codes[ACTION + action.name][known]
        # an action that was never varied shows nothing
        if level is None or (chosen == chosen[0]).all() or (level[chosen] != after).any():
            continue
        table = np.eye(len(variable.levels))[level]
        parent = ACTION + action.name
        return Factor(variable.name, (parent,), table, np.zeros_like(table), f"copies {parent}")
    return None


def _corresponding(levels: tuple[str, ...], chosen: tuple[str, ...]) -> NDArray[np.intp] | None:
    """Return the level that has the name of each level of an action, or else its position."""
    if set(chosen) <= set(levels):
        return np.array([levels.index(name) for name in chosen])
    return np.arange(len(levels)) if len(chosen) == len(levels) else None

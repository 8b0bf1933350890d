"""The policy that a log carries in its own columns: what it does in each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.checks import ROW_TOLERANCE
from butfor.log.coding import bins_of, code_integers, code_levels, listed, read_numbers
from butfor.log.decisions import Index
from butfor.log.sections import Study, VariableSection
from butfor.log.sources import Log
from butfor.log.variables import Variable, count_levels, ravel
from butfor.types import Floats


def _coder(section: VariableSection) -> Callable[[Any], Index]:
    """Return what turns the cells of a variable's column into codes of its levels."""
    if section.cuts is not None:
        return partial(_code_cuts, cuts=section.cuts)
    return partial(code_levels, levels=section.levels or [])


def _code_cuts(column: Any, cuts: Sequence[float]) -> Index:
    """Code each number by its bin; -1 without a number."""
    numbers, wrong = read_numbers(column)
    return np.where(wrong | np.isnan(numbers), -1, bins_of(numbers, cuts))


def read_target(log: Log, study: Study, row: Index, variables: Sequence[Variable]) -> Floats | None:
    """Return what the log's own target does in these rows of the source, [N, A], if it has one."""
    named = study.columns
    if named.target_action is not None:
        return np.eye(count_levels(variables))[_actions(log, study, row, variables)]
    if named.target_probability is not None:
        return _probabilities(log, named.target_probability, row, variables)
    return None


def _actions(
    log: Log, study: Study, row: Index, variables: Sequence[Variable]
) -> NDArray[np.int64]:
    """Return the action that the target takes in each row, [N]."""
    columns = study.columns.target_columns(study.action or [str(study.columns.action)])
    codes = []
    for (column, name), variable in zip(columns.items(), variables, strict=True):
        size = len(variable.levels)
        ready = column not in study.action
        coder = partial(code_integers, count=size) if ready else _coder(study.action[column])
        code = log.code(name, coder)[row]
        _refuse(log, name, row, code < 0, f"a level of {column} ({listed(variable.levels)})")
        codes.append(code)
    return ravel(variables, codes)


def _probabilities(
    log: Log, columns: dict[str, str], row: Index, variables: Sequence[Variable]
) -> Floats:
    """Return the probability of each action in each row, [N, A]; 0 of those without a column."""
    names = [",".join(one) for one in product(*(variable.levels for variable in variables))]
    table = np.zeros((len(row), len(names)))
    for action, column in columns.items():
        if action not in names:
            raise ValueError(
                f"[columns] target_probability: no action {action!r}; there are {listed(names)}"
            )
        given = log.code(column, read_numbers)[0][row]
        _refuse(log, column, row, ~((given >= 0) & (given <= 1)), "a number from 0 to 1")
        table[:, names.index(action)] = given
    wrong = np.abs(table.sum(axis=1) - 1) > ROW_TOLERANCE
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"{log.name}, {log.places([int(row[first])])}: the probabilities of the target's "
            f"actions sum to {table[first].sum():.9g}, not to 1; name the columns of all actions "
            "in [columns] target_probability"
        )
    return table


def _refuse(log: Log, column: str, row: Index, wrong: NDArray[np.bool_], wanted: str) -> None:
    if wrong.any():
        place = int(row[int(wrong.argmax())])
        raise ValueError(
            f"{log.name}, {log.places([place])}: the target's {column!r} is "
            f"{log.cell(column, place)!r}, not {wanted}; give it in every row that has an action"
        )

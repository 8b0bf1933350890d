"""Tables of a discrete SCM: as given or as intervened on; levels and evidence."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.checks import check_distributions
from butfor.log.variables import Variable, check_distinct
from butfor.types import Floats

MOST_CELLS = 10_000_000  # numbers in one table; larger ones are refused before they are made
SAME_ROW = 1e-12  # a replaced row within this relative distance of the old one is the old one

# levels, parents and tables by variable, not yet checked
Network = tuple[dict[str, list[str]], dict[str, list[str]], dict[str, Floats]]
Masks = dict[str, NDArray[np.bool_]]  # variable: [levels] those that the evidence allows


class Table(NamedTuple):
    """Probabilities of a variable's levels, given its parents' levels."""

    parents: tuple[str, ...]
    probability: Floats  # [levels of each parent, levels of the variable]


def read_levels(levels: Mapping[str, Iterable[Any]]) -> dict[str, Variable]:
    """Return variables by name, with levels converted to text."""
    if not levels:
        raise ValueError("there are no variables; give at least one, with its levels")
    variables = {}
    for name, given in levels.items():
        if not isinstance(name, str):
            raise ValueError(f"variable {name!r}: give its name as text")
        if isinstance(given, str):
            raise ValueError(f"levels of {name!r} are {given!r}: give a list of levels")
        texts = tuple(str(level) for level in given)
        if not texts:
            raise ValueError(f"{name!r} has no levels; give at least one")
        check_distinct(texts, f"levels of {name!r}")
        variables[name] = Variable(name, texts)
    return variables


def read_network(network: Any) -> Network:
    """Return levels, parents and tables of a network of pgmpy, by variable."""
    found = {name: _find_cpd(network, name) for name in network.nodes}
    levels = {name: list(map(str, cpd.state_names.get(name, ()))) for name, cpd in found.items()}
    parents = {name: list(cpd.variables)[1:] for name, cpd in found.items()}
    return levels, parents, {name: _read_cpd(cpd, levels) for name, cpd in found.items()}


def _find_cpd(network: Any, name: str) -> Any:
    """Return the CPD of a node, which must be a table."""
    cpd = network.get_cpds(name)
    if cpd is None:
        raise ValueError(f"node {name!r} has no CPD; add one to the network")
    if not all(hasattr(cpd, needed) for needed in ("variables", "state_names", "get_values")):
        raise ValueError(
            f"the CPD of node {name!r} is a {type(cpd).__name__}, which has no table; give a "
            "TabularCPD"
        )
    return cpd


def _read_cpd(cpd: Any, levels: Mapping[str, list[str]]) -> Floats:
    """Return a table [levels of each parent, levels of the variable], levels as each node's own."""
    name, *parents = cpd.variables
    orders = []  # of levels: each CPD has its own
    for variable in (name, *parents):
        if variable not in levels:
            raise ValueError(
                f"the CPD of node {name!r} has the parent {variable!r}, which is not a node; add "
                "it to the network"
            )
        given = [str(level) for level in cpd.state_names.get(variable, ())]
        if sorted(given) != sorted(levels[variable]):
            raise ValueError(
                f"the CPD of node {name!r} gives {variable!r} the levels {given}, its own CPD "
                f"{levels[variable]}; give both the same state_names"
            )
        orders.append([given.index(level) for level in levels[variable]])
    values, shape = np.asarray(cpd.get_values(), dtype=np.float64), tuple(map(len, orders))
    if values.size != math.prod(shape):
        raise ValueError(
            f"the CPD of node {name!r} has {values.size} values, but its state_names make "
            f"{math.prod(shape)} combinations of levels; give one value for each"
        )
    return np.moveaxis(values.reshape(shape)[np.ix_(*orders)], 0, -1)


def find_variable(variables: Mapping[str, Variable], name: Any, where: str) -> Variable:
    """Return the variable of this name."""
    if name not in variables:
        known = ", ".join(map(repr, variables))
        raise ValueError(f"{where}: there is no variable {name!r}; there are {known}")
    return variables[name]


def level_code(variable: Variable, level: Any, where: str) -> int:
    """Return the position of a level, compared as text."""
    if str(level) not in variable.levels:
        known = ", ".join(map(repr, variable.levels))
        raise ValueError(f"{where}: {variable.name!r} has no level {level!r}; it has {known}")
    return variable.levels.index(str(level))


def read_masks(
    variables: Mapping[str, Variable], given: Mapping[str, Any] | None, where: str
) -> Masks:
    """Return the allowed levels as masks; a value is a level, or a collection of several."""
    masks: Masks = {}
    for name, value in (given or {}).items():
        variable = find_variable(variables, name, where)
        several = isinstance(value, Iterable) and not isinstance(value, str)
        mask = np.zeros(len(variable.levels), dtype=bool)
        mask[[level_code(variable, level, where) for level in (value if several else [value])]] = 1
        if not mask.any():
            raise ValueError(f"{where}: no level of {name!r} is allowed; give at least one")
        masks[name] = mask
    return masks


def read_table(variable: Variable, parents: Sequence[Variable], given: Any) -> Table:
    """Return a checked table, given as an array, a mapping or a function of the parents' levels.

    The keys of a mapping are the parents' levels (a tuple, or one level for one parent; without
    parents it is the distribution itself) and its values are distributions. A function is called
    with the levels, in order. A distribution is a list of numbers or a mapping
    {level: probability}, in which missing levels have probability 0.
    """
    names = tuple(parent.name for parent in parents)
    check_distinct(names, f"parents of {variable.name!r}")
    if variable.name in names:
        raise ValueError(f"{variable.name!r} is its own parent; leave it out")
    shape = (*(len(parent.levels) for parent in parents), len(variable.levels))
    if math.prod(shape) > MOST_CELLS:
        raise ValueError(
            f"the table of {variable.name!r} given {', '.join(map(repr, names))} would have "
            f"{math.prod(shape):,} cells, more than {MOST_CELLS:,}; give it fewer parents"
        )
    if callable(given):
        every = itertools.product(*(parent.levels for parent in parents))
        given = {levels: given(*levels) for levels in every}
        return Table(names, _from_mapping(variable, parents, given, shape, decides=True))
    if isinstance(given, Mapping):
        keyed = given if parents else {(): given.get((), given)}
        return Table(names, _from_mapping(variable, parents, keyed, shape, decides=False))
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"the table of {variable.name!r} is not an array of numbers; expected shape {shape}"
        ) from None
    return Table(names, _check_array(variable, names, array, shape))


def read_intervention(
    variables: Mapping[str, Variable], name: str, old: Table, given: Any
) -> Table:
    """Return the table by which an intervention replaces the old one.

    `given` is a level; a table for the old parents; a function whose parameters are its parents;
    or a pair (parents, table or function).
    """
    variable = find_variable(variables, name, "do")
    parents: Sequence[str] = old.parents
    if isinstance(given, tuple):
        if len(given) != 2 or isinstance(given[0], str) or not isinstance(given[0], Iterable):
            raise ValueError(f"do {name!r}: {given!r} is not a pair ([parents], table)")
        parents, given = tuple(given[0]), given[1]
    elif callable(given):
        parents, given = _by_position(name, given)
    elif not isinstance(given, Mapping | list | np.ndarray):
        row = np.zeros(len(variable.levels))
        row[level_code(variable, given, "do")] = 1.0
        parents, given = (), row
    found = [find_variable(variables, parent, f"do {name!r}, parents") for parent in parents]
    return _keep_equal_rows(read_table(variable, found, given), old)


def _keep_equal_rows(new: Table, old: Table) -> Table:
    """Return the new table with unchanged rows taken from the old, so that consistency applies."""
    if set(new.parents) != set(old.parents):
        return new
    axes = [new.parents.index(parent) for parent in old.parents]
    probability = new.probability.transpose(*axes, len(axes))
    apart = np.abs(probability - old.probability) > SAME_ROW * old.probability
    equal = np.asarray(~apart.any(axis=-1))
    if equal.all():
        return old
    probability = np.where(equal[..., None], old.probability, probability)
    probability.setflags(write=False)
    return Table(old.parents, probability)


def _by_position(
    name: str, function: Callable[..., Any]
) -> tuple[tuple[str, ...], Callable[..., Any]]:
    """Return the names of parameters without defaults, and the function of these by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ValueError(
            f"do {name!r}: {function!r} has no readable signature; give ([parents], function)"
        ) from None
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters:
        if parameter.kind not in plain:
            raise ValueError(
                f"do {name!r}: parameter '{parameter}' is not a parent; give ([parents], function)"
            )
    names = tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)
    return names, lambda *levels: function(**dict(zip(names, levels, strict=True)))


def _from_mapping(
    variable: Variable,
    parents: Sequence[Variable],
    given: Mapping[Any, Any],
    shape: tuple[int, ...],
    *,
    decides: bool,
) -> Floats:
    """Fill a table row by row; with `decides`, a row may be a level."""
    where = f"table of {variable.name!r}"
    array = np.full(shape, np.nan)
    for key, row in given.items():
        levels = key if isinstance(key, tuple) else (key,)
        if len(levels) != len(parents):
            raise ValueError(
                f"{where}: key {key!r}; give one level for each of its {len(parents)} parents"
            )
        at = tuple(level_code(p, v, where) for p, v in zip(parents, levels, strict=True))
        array[at] = _read_row(variable, row, where, decides=decides)
    missing = np.isnan(array).any(axis=-1)
    if missing.any():
        at = np.argwhere(missing)[0].tolist()
        shown = tuple(parent.levels[code] for parent, code in zip(parents, at, strict=True))
        raise ValueError(f"{where}: no row for {shown}; add it")
    return _check_array(variable, [parent.name for parent in parents], array, shape)


def _read_row(variable: Variable, row: Any, where: str, *, decides: bool) -> Floats:
    result = np.zeros(len(variable.levels))
    if isinstance(row, Mapping):
        at = [level_code(variable, level, where) for level in row]
        result[at] = _numbers(list(row.values()), len(at), where)
    elif decides and not isinstance(row, list | tuple | np.ndarray):
        result[level_code(variable, row, where)] = 1.0
    else:
        result[:] = _numbers(row, len(result), where)
    return result


def _numbers(row: Any, count: int, where: str) -> Floats:
    try:
        array = np.array(row, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (count,):
        raise ValueError(f"{where}: row {row!r}; give {count} probabilities, one per level")
    return array


def _check_array(
    variable: Variable, parents: Sequence[str], array: Floats, shape: tuple[int, ...]
) -> Floats:
    if array.shape != shape:
        axes = ", ".join(f"levels of {name!r}" for name in (*parents, variable.name))
        raise ValueError(
            f"the table of {variable.name!r} has shape {array.shape}, expected {shape}: {axes}"
        )
    checked = check_distributions(array, f"table of {variable.name!r}", tuple(parents))
    checked.setflags(write=False)
    return checked

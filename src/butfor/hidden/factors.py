"""Factored: a model with a hidden state, described variable by variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_distributions
from butfor.graph.tables import Table, find_variable, read_table
from butfor.hidden.model import TabularPOMDP, check_ends
from butfor.log.variables import (
    Outcome,
    Variable,
    check_distinct,
    check_outcomes,
    check_variables,
    count_levels,
    project,
    ravel,
    unravel,
)
from butfor.printed import Printed
from butfor.types import Floats, Integers

ACTION = "action:"  # prefix of action variables: a state variable may have the same name
MOST_ROWS = 5_000_000  # of states and actions; larger models are refused before they are made

Key = TypeVar("Key")
Places = NDArray[np.int64]
Rule = ArrayLike | Callable[[dict[str, NDArray[np.intp]]], ArrayLike]


class Layout(NamedTuple):
    """The E transitions that tables allow, by row h A + a and next state."""

    row: Places  # [E]
    reached: Places  # [E]
    cell: dict[str, Places]  # by variable with a table: [E] flat position of its factor


@dataclass(frozen=True, eq=False, repr=False)
class Factored(Printed):
    """A model with a hidden state and known structure, described variable by variable.

    Given the state and the action, variables move independently of each other: a static one never,
    a treatment flag as the action says, any other by a table. Variables that are not hidden are
    observed without error.
    """

    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    hidden: tuple[str, ...]  # names of state variables
    moves: Mapping[str, Table | str]  # by variable that is not static; text: the action it copies
    initial: Floats | Mapping[str, Table]  # [H]; or one table per variable, ends discarded
    outcome: Integers  # [H] -1: none
    outcomes: tuple[Outcome, ...]
    reward_seen: bool = True  # as for TabularPOMDP

    @classmethod
    def from_tables(
        cls,
        states: Sequence[Variable],
        moves: Mapping[str, Any],
        *,
        actions: Sequence[Variable],
        hidden: Sequence[str],
        initial: ArrayLike | Mapping[str, Any],
        outcome: Rule | None = None,
        outcomes: Sequence[Outcome] = (),
        reward_seen: bool = True,
    ) -> Factored:
        """Check a description and make a factored model from it.

        Parameters
        ----------
        states, actions
            The variables that make up hidden states and actions. A static one never changes.
        moves : {state variable: (parents, table) or "action:name"}
            For each variable that is not static. Parents are names of state variables, at their
            current levels, and "action:name" for action variables. A table is an array
            [levels of each parent, levels of the variable]; a mapping from the parents' levels to
            distributions; or a function of these levels. "action:name" alone makes the variable a
            copy of that action variable, as treatment flags are.
        hidden
            Names of the state variables that logs do not show.
        initial : [H], [levels of each state variable], or {state variable: (parents, table)}
            Distribution of the first state. With tables, list parents before their children; draws
            that are ends are discarded.
        outcome : [H] or a function, optional
            The outcome of each state, -1 for none. A function is called once, with the level codes
            of all states by variable, {name: [H]}, and returns [H].
        """
        variables = check_variables(states, "state")
        doing = check_variables(actions, "action")
        _check_hidden(variables, hidden)
        size = count_levels(variables)
        if size * count_levels(doing) > MOST_ROWS:
            raise ValueError(
                f"{size} states and {count_levels(doing)} actions make "
                f"{size * count_levels(doing):,} rows, more than {MOST_ROWS:,}; use fewer levels"
            )
        ends = np.full(size, -1) if outcome is None else outcome
        if callable(ends):
            ends = ends(unravel(variables, np.arange(size)))
        made = cls(
            state_variables=variables,
            action_variables=doing,
            hidden=tuple(hidden),
            moves=_read_moves(variables, doing, moves),
            initial=_read_initial(variables, initial),
            outcome=check_ends(ends, size, check_outcomes(outcomes)),
            outcomes=tuple(outcomes),
            reward_seen=reward_seen,
        )
        made.model()  # refuses what cannot be a model
        return made

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by which variables move, by name."""
        return {name: move for name, move in self.moves.items() if not isinstance(move, str)}

    def with_tables(self, tables: Mapping[str, Any]) -> Factored:
        """Return the model with some tables replaced, for the same parents."""
        known = _parents(self.state_variables, self.action_variables)
        moves = dict(self.moves)
        for name, given in tables.items():
            pair = self._table_of(name).parents, given
            moves[name] = _read_pair(_following(known[name]), pair, known, "tables")
        return replace(self, moves=moves)

    @property
    def first(self) -> Floats:
        """Distribution of the first state, [H]."""
        if not isinstance(self.initial, Mapping):
            return self.initial
        tables = {name: table.probability for name, table in self.initial.items()}
        weight = multiply(tables, first_cells(self), len(self.outcome))
        weight[self.outcome >= 0] = 0.0
        if weight.sum() == 0:
            raise ValueError("initial: every possible first state is an end; change the tables")
        return np.asarray(weight / weight.sum())

    def layout(self) -> Layout:
        """List the transitions that the tables allow; ends have none."""
        number = count_levels(self.action_variables)
        going = np.flatnonzero(self.outcome < 0)
        state, action = np.repeat(going, number), np.tile(np.arange(number), len(going))
        codes: dict[str, NDArray[Any]] = dict(unravel(self.state_variables, state))
        for name, code in unravel(self.action_variables, action).items():
            codes[ACTION + name] = code
        known = _parents(self.state_variables, self.action_variables)
        row = np.arange(len(state))
        reached = np.zeros(len(state), np.int64)
        cell: dict[str, Places] = {}
        for variable in self.state_variables:
            size = len(variable.levels)
            move = self.moves.get(variable.name, variable.name)
            if isinstance(move, str):
                level = codes[move][row]
            else:
                given = _place(move, known, codes, len(state))
                found, level = np.nonzero(move.probability.reshape(-1, size)[given[row]])
                row, reached = row[found], reached[found]
                cell = {name: place[found] for name, place in cell.items()}
                cell[variable.name] = given[row] * size + level
            reached = reached * size + level
        return Layout(state[row] * number + action[row], reached, cell)

    def model(self) -> TabularPOMDP:
        """Return the model, which is the product of the tables."""
        layout = self.layout()
        tables = {name: table.probability for name, table in self.tables.items()}
        size, number = count_levels(self.state_variables), count_levels(self.action_variables)
        moves = sparse.csr_array(
            (multiply(tables, layout.cell, len(layout.row)), (layout.row, layout.reached)),
            shape=(size * number, size),
        )
        seen = [v for v in self.state_variables if v.name not in self.hidden]
        return TabularPOMDP.from_arrays(
            moves,
            project(self.state_variables, *(variable.name for variable in seen)),
            initial=self.first,
            outcome=self.outcome,
            outcomes=self.outcomes,
            states=self.state_variables,
            observations=seen,
            actions=self.action_variables,
            reward_seen=self.reward_seen,
        )

    def frame(self, name: str) -> pd.DataFrame:
        """Return the table of a variable: rows are the parents' levels, columns its next level."""
        table = self._table_of(name)
        known = _parents(self.state_variables, self.action_variables)
        levels = known[name].levels
        index = None
        if table.parents:
            index = pd.MultiIndex.from_product(
                [known[parent].levels for parent in table.parents], names=table.parents
            )
        flat = table.probability.reshape(-1, len(levels))
        return pd.DataFrame(flat, index=index, columns=pd.Index(levels, name=f"next {name}"))

    def _table_of(self, name: str) -> Table:
        if name not in self.tables:
            known = ", ".join(map(repr, self.tables))
            raise ValueError(f"no table of {name!r}; there are tables of {known}")
        return self.tables[name]


def multiply(tables: Mapping[Key, Floats], cell: Mapping[Key, Places], count: int) -> Floats:
    """Return the product of the tables' factors at these cells, [count]."""
    weight = np.ones(count)
    for name, place in cell.items():
        weight *= tables[name].reshape(-1)[place]
    return weight


def first_cells(factored: Factored) -> dict[str, Places]:
    """Return the flat position of each state's factor in the tables of the first state, each [H].

    A joint distribution of the first state is one table without a name.
    """
    states, size = factored.state_variables, len(factored.outcome)
    if not isinstance(factored.initial, Mapping):
        return {"": np.arange(size)}
    known, codes = _parents(states, ()), unravel(states, np.arange(size))
    return {
        name: _place(table, known, codes, size) * len(known[name].levels) + codes[name]
        for name, table in factored.initial.items()
    }


def _place(
    table: Table, known: Mapping[str, Variable], codes: Mapping[str, NDArray[Any]], count: int
) -> Places:
    """Return the row of a table given the levels of its parents, [count]."""
    if not table.parents:
        return np.zeros(count, np.int64)
    parents = [known[name] for name in table.parents]
    return ravel(parents, [codes[name] for name in table.parents])


def _parents(states: Sequence[Variable], actions: Sequence[Variable]) -> dict[str, Variable]:
    """Return the possible parents by name."""
    doing = (replace(variable, name=ACTION + variable.name) for variable in actions)
    return {variable.name: variable for variable in (*states, *doing)}


def _following(variable: Variable) -> Variable:
    """Return the variable after the step, which may be a parent of itself before."""
    return replace(variable, name=f"next {variable.name}")


def _check_hidden(states: Sequence[Variable], hidden: Sequence[str]) -> None:
    known = _parents(states, ())
    for variable in states:
        if variable.name.startswith(ACTION):
            raise ValueError(
                f"state variable {variable.name!r}: names that begin with {ACTION!r} are reserved "
                "for action variables; choose another name"
            )
    if isinstance(hidden, str):
        raise ValueError(f"hidden {hidden!r}: give a list of names")
    for name in hidden:
        find_variable(known, name, "hidden")
    check_distinct(hidden, "hidden")
    if len(hidden) == len(states):
        raise ValueError("every state variable is hidden; leave at least one observed")


def _read_moves(
    states: Sequence[Variable], actions: Sequence[Variable], moves: Mapping[str, Any]
) -> dict[str, Table | str]:
    for name in moves:
        find_variable(_parents(states, ()), name, "moves")
    known = _parents(states, actions)
    read: dict[str, Table | str] = {}
    for variable in states:
        name = variable.name
        if variable.static:
            if name in moves:
                raise ValueError(
                    f"moves: {name!r} is static and never moves; leave it out, or give the "
                    "variable without static=True"
                )
            continue
        if name not in moves:
            raise ValueError(
                f"moves: no entry for {name!r}; give (parents, table), an action variable to copy, "
                f"such as '{ACTION}{actions[0].name}', or make it static"
            )
        if isinstance(moves[name], str):
            read[name] = _read_copy(variable, moves[name], known)
        else:
            read[name] = _read_pair(_following(variable), moves[name], known, "moves")
    return read


def _read_copy(variable: Variable, given: str, known: Mapping[str, Variable]) -> str:
    doing = {name: copied for name, copied in known.items() if name.startswith(ACTION)}
    copied = find_variable(doing, given, f"moves, what {variable.name!r} copies")
    if len(copied.levels) != len(variable.levels):
        raise ValueError(
            f"moves: {variable.name!r} has {len(variable.levels)} levels and cannot copy "
            f"{given!r}, which has {len(copied.levels)}"
        )
    return given


def _read_pair(variable: Variable, given: Any, known: Mapping[str, Variable], where: str) -> Table:
    if (
        not isinstance(given, tuple)
        or len(given) != 2
        or isinstance(given[0], str)
        or not isinstance(given[0], Iterable)
    ):
        raise ValueError(f"{where}, {variable.name!r}: give a pair (parents, table)")
    parents = [
        find_variable(known, name, f"{where}, parents of {variable.name!r}") for name in given[0]
    ]
    return read_table(variable, parents, given[1])


def _read_initial(
    states: Sequence[Variable], initial: ArrayLike | Mapping[str, Any]
) -> Floats | dict[str, Table]:
    if not isinstance(initial, Mapping):
        shape = tuple(len(variable.levels) for variable in states)
        array = np.asarray(initial, dtype=np.float64)
        if array.shape not in ((count_levels(states),), shape):
            raise ValueError(
                f"initial has shape {array.shape}, expected ({count_levels(states)},) or {shape}: "
                "one probability per state"
            )
        return check_distributions(array.reshape(-1), "initial", ())
    known = _parents(states, ())
    read: dict[str, Table] = {}
    for name, given in initial.items():
        variable = find_variable(known, name, "initial")
        read[name] = _read_pair(variable, given, known, "initial")
        for parent in read[name].parents:
            if parent not in read:
                raise ValueError(
                    f"initial: {parent!r} is a parent of {name!r}; list it before {name!r}"
                )
    for name in known:
        if name not in read:
            raise ValueError(f"initial: no entry for {name!r}; give (parents, table)")
    return read

"""Target policies from elsewhere: a table or a Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.checks import ROW_TOLERANCE, check_choice, check_policy
from butfor.log.coding import MISSING as EMPTY_CELL
from butfor.log.coding import code_integers, code_levels, listed, read_numbers
from butfor.log.combinations import MOST_STATES
from butfor.log.episodes import Episodes
from butfor.log.sources import Log, load_log
from butfor.log.variables import Variable, count_levels, ravel, unravel
from butfor.printed import Printed
from butfor.types import Floats

MISSING = ("error", "uniform")
ANY = EMPTY_CELL  # in place of a level: every level matches


@dataclass(frozen=True, eq=False, repr=False)
class TablePolicy(Printed):
    """A policy that depends on some of the state variables, for logs of any number of them."""

    columns: tuple[int, ...]  # positions of these variables among all
    sizes: tuple[int, ...]  # their numbers of levels
    table: Floats  # [combinations of their levels, A]

    def __call__(self, codes: NDArray[np.integer]) -> Floats:
        """Return the distribution of actions in states given by codes [m, J], [m, A]."""
        chosen = tuple(np.asarray(codes)[:, place] for place in self.columns)
        return np.asarray(self.table[np.ravel_multi_index(chosen, self.sizes)])


def target_from_table(
    table: Any, episodes: Episodes, *, missing: str = "error", name: str = "the target table"
) -> Floats | TablePolicy:
    """Make a policy of a table with one row per state and possible action, [S, A].

    A wide log has too many states for that: its table has columns of those few state variables on
    which the policy depends, and the policy is a function of level codes.

    Parameters
    ----------
    table
        A data frame (pandas, Polars, Arrow), or the path of a CSV or Parquet file. States are given
        by one column of levels for each state variable of the log, or by a column `state` of
        numbers; actions likewise, or by a column `action`. `probability` is that of the action in
        the state; without this column it is 1. Pairs that are left out have probability 0.
        A `*` or an empty cell matches every level, and so does a variable without a column. If
        several rows match a state, those with most levels count.
    missing : "error" or "uniform"
        How to treat states that the table leaves out.
    name
        What messages call the table; a file is called by its path.
    """
    check_choice(missing, "missing", MISSING)
    if episodes.combinations is not None:
        return _wide_target(table, episodes, missing, name)
    source = _load(table, episodes, name)
    states, actions = episodes.n_states, episodes.n_actions
    pattern = _patterns(source, episodes.state_variables)
    action = _indices(source, episodes.action_variables, "action")
    rules, first, rule = np.unique(pattern, axis=0, return_index=True, return_inverse=True)
    pair = rule * actions + action
    _, once = np.unique(pair, return_index=True)
    if len(once) < len(pair):
        row = int(np.setdiff1d(np.arange(len(pair)), once)[0])
        raise ValueError(
            f"{_row(source, row)}: {_describe_rule(episodes, rules[rule[row]])}, action "
            f"{action[row]} is given again, after row {int((pair == pair[row]).argmax())}; keep "
            "one of the two"
        )
    chances = np.zeros((len(rules), actions))
    chances[rule, action] = _probabilities(source)
    totals = chances.sum(axis=1)
    wrong = np.abs(totals - 1) > ROW_TOLERANCE
    if wrong.any():
        worst = int(wrong.argmax())
        raise ValueError(
            f"{source.name}: the probabilities of {_describe_rule(episodes, rules[worst])} sum to "
            f"{totals[worst]:.9g}, not to 1; correct its rows, from row {first[worst]} on"
        )
    chosen = _match(episodes, rules, chances, source.name)
    given = chosen >= 0
    if not given.all() and missing == "error":
        logged = np.isin(np.flatnonzero(~given), episodes.state).sum()
        raise ValueError(
            f"{source.name} leaves out {(~given).sum()} of {states} states ({logged} of them in "
            f"the log), first {_describe(episodes, int((~given).argmax()))}; add them, or give "
            "missing='uniform'"
        )
    policy = np.full((states, actions), 1 / actions)
    policy[given] = chances[chosen[given]]
    return check_policy(policy, states, actions, source.name)


def _match(
    episodes: Episodes, rules: NDArray[np.int64], chances: Floats, name: str
) -> NDArray[np.int64]:
    """Return the rule of each state, [S]: of those that match, the one with most levels; or -1."""
    variables = episodes.state_variables
    sizes = tuple(len(variable.levels) for variable in variables)
    chosen, rival = np.full(sizes, ANY), np.full(sizes, ANY)
    wildcards = (rules == ANY).sum(axis=1)
    exact = wildcards == 0
    for number in np.argsort(-wildcards, kind="stable"):
        if exact[number]:  # all of these are placed at once
            break
        place = tuple(slice(None) if level == ANY else level for level in rules[number])
        before = chosen[place]
        equal = (before >= 0) & (wildcards[before] == wildcards[number])
        torn = equal & (chances[before] != chances[number]).any(axis=-1)
        rival[place] = np.where(torn, before, np.where(equal, rival[place], ANY))
        chosen[place] = number
    states, others = chosen.reshape(-1), rival.reshape(-1)
    placed = ravel(variables, list(rules[exact].T))
    states[placed], others[placed] = np.flatnonzero(exact), ANY
    if (others >= 0).any():
        state = int((others >= 0).argmax())
        one, other = (_describe_rule(episodes, rules[k]) for k in (others[state], states[state]))
        raise ValueError(
            f"{name}: both {one} and {other} match {_describe(episodes, state)}, and ask for "
            "different actions; add a row with the levels of both"
        )
    return states


def target_from_function(function: Callable[[dict[str, str]], Any], episodes: Episodes) -> Floats:
    """Make a policy of a function that returns what to do in a state given by its labels, [S, A].

    The function gets {state variable: level} and returns an action, or a distribution of actions.
    An action is its number; the level of the only action variable; a tuple of levels, one for each
    action variable; or {action variable: level}. A distribution is {action: probability}, or A
    probabilities in the order of the actions.
    """
    states, actions = episodes.n_states, episodes.n_actions
    codes = episodes.codes(np.arange(states))
    policy = np.zeros((states, actions))
    for state in range(states):
        labels = {v.name: v.levels[codes[v.name][state]] for v in episodes.state_variables}
        try:
            answer = function(labels)
        except Exception as error:
            error.add_note(f"The target's function raised this in state {state}: {labels}.")
            raise
        try:
            policy[state] = _distribution(answer, episodes.action_variables, actions)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"the target's function in {_describe(episodes, state)}: {error}"
            ) from error
    return check_policy(policy, states, actions, "the target's function")


def _wide_target(table: Any, episodes: Episodes, missing: str, name: str) -> TablePolicy:
    """Make a policy of a table whose columns are some of the state variables of a wide log."""
    variables = episodes.state_variables
    columns = load_log(table).table.column_names
    few = [v for v in variables if v.name in columns]
    if not few or count_levels(few) > MOST_STATES:
        raise ValueError(
            f"{name}: a log of this many variables needs a table of those few on which the policy "
            "depends, one column each; or give a function of level codes, [m, J] → [m, A]"
        )
    codes = episodes.codes(episodes.state)
    state = ravel(few, [codes[v.name] for v in few]).astype(np.int32)
    narrow = replace(episodes, state=state, state_variables=tuple(few), combinations=None)
    rows = target_from_table(table, narrow, missing=missing, name=name)
    places = tuple(place for place, v in enumerate(variables) if v in few)
    return TablePolicy(places, tuple(len(v.levels) for v in few), np.asarray(rows))


def _load(table: Any, episodes: Episodes, name: str) -> Log:
    """Return the table; a column without a meaning is refused, since it may be misspelled."""
    variables = (*episodes.state_variables, *episodes.action_variables)
    known = {"state", "action", "probability", *(variable.name for variable in variables)}
    known |= {f"{group}.{variable.name}" for group in ("state", "action") for variable in variables}
    log = load_log(table, text=known)
    if not isinstance(table, str | Path):
        log = Log(name, log.table)
    strange = [column for column in log.table.column_names if column not in known]
    if strange:
        raise ValueError(
            f"{log.name} has an unknown column {strange[0]!r}; rename it to one of "
            f"{', '.join(map(repr, sorted(known)[:12]))}, or remove it"
        )
    return log


def _row(source: Log, row: int) -> str:
    return f"{source.name}, {source.places([row])}"


def _patterns(source: Log, variables: Sequence[Variable]) -> NDArray[np.int64]:
    """Return the level of each state variable in each row, ANY if all match, [R, J]."""
    columns = source.table.column_names
    named = [variable for variable in variables if variable.name in columns]
    if not named or (len(named) < len(variables) and "state" in columns):
        number = _indices(source, variables, "state")
        return np.stack(list(unravel(variables, number).values()), axis=1).astype(np.int64)
    pattern = np.full((source.table.num_rows, len(variables)), ANY)
    starred = np.zeros(len(pattern), dtype=bool)
    for variable in named:
        levels = (*variable.levels, *({"*"} - {*variable.levels}))
        codes = source.code(variable.name, partial(code_levels, levels=levels))
        unknown = f"one of its levels ({listed(variable.levels)}), nor * for all; correct it"
        _refuse(source, variable.name, codes < EMPTY_CELL, unknown)
        starred |= codes == len(variable.levels)
        pattern[:, variables.index(variable)] = np.where(codes < len(variable.levels), codes, ANY)
    # a row of empty cells may be a mistake; that it matches all has to be said
    none = (pattern == ANY).all(axis=1) & ~starred
    every = f"one of its levels ({listed(named[0].levels)}), nor * for all; correct it"
    _refuse(source, named[0].name, none, every)
    return pattern


def _indices(source: Log, variables: Sequence[Variable], noun: str) -> NDArray[np.int64]:
    """Return the state or action of each row, from columns of levels or one of numbers."""
    names = [variable.name for variable in variables]
    columns = source.table.column_names
    if all(name in columns for name in names):
        codes = []
        for variable in variables:
            codes.append(source.code(variable.name, partial(code_levels, levels=variable.levels)))
            levels = f"one of its levels ({listed(variable.levels)}); correct it"
            _refuse(source, variable.name, codes[-1] < 0, levels)
        return ravel(variables, codes)
    if noun not in columns:
        raise ValueError(
            f"{source.name} has neither the columns {', '.join(map(repr, names))} nor a column "
            f"{noun!r}; it has {', '.join(map(repr, columns))}"
        )
    size = count_levels(variables)
    numbers = source.code(noun, partial(code_integers, count=size))
    wanted = f"a number from 0 to {size - 1}; correct it, or give the levels of {', '.join(names)}"
    _refuse(source, noun, numbers < 0, wanted)
    return numbers


def _probabilities(source: Log) -> Floats:
    if "probability" not in source.table.column_names:
        return np.ones(source.table.num_rows)
    numbers, _ = source.code("probability", read_numbers)
    wrong = ~((numbers >= 0) & (numbers <= 1 + ROW_TOLERANCE))
    _refuse(source, "probability", wrong, "a number from 0 to 1; correct it")
    return numbers


def _refuse(source: Log, column: str, wrong: NDArray[np.bool_], wanted: str) -> None:
    """Raise an error that names the first wrong cell of a column, if there is one."""
    if wrong.any():
        row = int(wrong.argmax())
        cell = source.cell(column, row)
        raise ValueError(f"{_row(source, row)}: {column} {cell!r} is not {wanted}")


def _distribution(answer: Any, variables: Sequence[Variable], actions: int) -> Floats:
    """Return the answer of a function as probabilities of the actions, [A]."""
    row = np.zeros(actions)
    if isinstance(answer, Mapping) and set(answer) != {variable.name for variable in variables}:
        for action, probability in answer.items():
            row[action_number(action, variables, actions)] += probability
    elif isinstance(answer, np.ndarray | list) or (
        isinstance(answer, tuple) and not any(isinstance(part, str) for part in answer)
    ):
        row = np.asarray(answer, dtype=np.float64)
        if row.shape != (actions,):
            raise ValueError(
                f"probabilities of shape {row.shape}, expected {actions}, one per action"
            )
    else:
        row[action_number(answer, variables, actions)] = 1
    if not ((row >= 0).all() and abs(row.sum() - 1) <= ROW_TOLERANCE):
        raise ValueError(
            f"{answer!r} is not a distribution; give probabilities from 0 to 1 that sum to 1"
        )
    return row


def action_number(answer: Any, variables: Sequence[Variable], actions: int) -> int:
    """Return the number of an action given as a number, as levels or as levels by variable."""
    names = ", ".join(variable.name for variable in variables)
    if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
        if not 0 <= answer < actions:
            raise ValueError(f"action {answer} outside 0..{actions - 1}; count from 0")
        return int(answer)
    if isinstance(answer, Mapping):
        levels = [answer[variable.name] for variable in variables]
    else:
        levels = list(answer) if isinstance(answer, tuple) else [answer]
    if len(levels) != len(variables) or isinstance(answer, bool | np.bool_ | float | None):
        raise ValueError(f"{answer!r} is not an action; return its number, or levels of {names}")
    codes = []
    for variable, level in zip(variables, levels, strict=True):
        if str(level) not in variable.levels:
            raise ValueError(
                f"{level!r} is not a level of {variable.name} ({listed(variable.levels)}); "
                "return one of them"
            )
        codes.append(np.array([variable.levels.index(str(level))]))
    return int(ravel(variables, codes)[0])


def _describe_rule(episodes: Episodes, rule: NDArray[np.int64]) -> str:
    """Name the states that a row of the table is about."""
    variables = episodes.state_variables
    if (rule != ANY).all():
        return _describe(episodes, int(ravel(variables, [rule[[j]] for j in range(len(rule))])[0]))
    levels = (
        f"{v.name}={'*' if code == ANY else v.levels[code]}"
        for v, code in zip(variables, rule, strict=True)
    )
    return ", ".join(levels)


def _describe(episodes: Episodes, state: int) -> str:
    codes = episodes.codes(np.array([state]))
    levels = ", ".join(f"{v.name}={v.levels[codes[v.name][0]]}" for v in episodes.state_variables)
    return f"state {state} ({levels})"

"""Target policies from elsewhere, as [S, A] arrays: a table, a Python function, a learned model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from butfor.checks import ROW_TOLERANCE, check_choice, check_integers, check_policy
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, check_distinct, count_levels, ravel, unravel
from butfor.types import Floats

MISSING = ("error", "uniform")


def target_from_table(
    table: Any, episodes: Episodes, *, missing: str = "error", name: str = "the target table"
) -> Floats:
    """Make a policy of a table with a row for each state and action that it may take, [S, A].

    Parameters
    ----------
    table
        A data frame (pandas, Polars, Arrow), or the path of a CSV or Parquet file. States stand in
        one column for each state variable of the log, with its levels, or in a column `state`,
        with their numbers; actions likewise, or in a column `action`. `probability` is that of the
        action in the state; without the column every row counts as 1. Pairs left out have 0.
    missing : "error" or "uniform"
        What to do about states of which the table says nothing.
    name
        What messages call the table; that of a file is its path.
    """
    check_choice(missing, "missing", MISSING)
    if isinstance(table, str | Path):
        name = str(table)
    frame = _read(table, name)
    states, actions = episodes.n_states, episodes.n_actions
    state = _indices(frame, episodes.state_variables, "state", name)
    action = _indices(frame, episodes.action_variables, "action", name)
    _check_columns(frame, episodes, name)
    probability = _probabilities(frame, name)
    pair = state * actions + action
    twice = pd.Series(pair).duplicated().to_numpy()
    if twice.any():
        row = int(twice.argmax())
        first = int((pair == pair[row]).argmax())
        raise ValueError(
            f"{name}, row {row}: {_say_state(episodes, state[row])}, action {action[row]} stands "
            f"in row {first} already; keep one of them"
        )
    policy = np.zeros((states, actions))
    policy[state, action] = probability
    given = np.zeros(states, dtype=bool)
    given[state] = True
    totals = policy.sum(axis=1)
    wrong = given & (np.abs(totals - 1) > ROW_TOLERANCE)
    if wrong.any():
        first = int(wrong.argmax())
        raise ValueError(
            f"{name}: the probabilities of {_say_state(episodes, first)} sum to "
            f"{totals[first]:.9g}, not to 1; correct its rows, from row "
            f"{int((state == first).argmax())} on"
        )
    if not given.all() and missing == "error":
        logged = np.isin(np.flatnonzero(~given), episodes.state).sum()
        raise ValueError(
            f"{name} says nothing about {(~given).sum()} of {states} states ({logged} of them in "
            f"the log), first {_say_state(episodes, int((~given).argmax()))}; add them, or give "
            "missing='uniform'"
        )
    policy[~given] = 1 / actions
    return check_policy(policy, states, actions, name)


def target_from_function(function: Callable[[dict[str, str]], Any], episodes: Episodes) -> Floats:
    """Make a policy of a function that says what to do in a state given by its labels, [S, A].

    The function gets {state variable: level} and returns an action, or a distribution of actions.
    An action is its number; the level of the only action variable; a tuple of levels, one for each
    action variable; or {action variable: level}. A distribution is {action: probability}, or A
    probabilities in the order of the actions.
    """
    states, actions = episodes.n_states, episodes.n_actions
    codes = unravel(episodes.state_variables, np.arange(states))
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
                f"the target's function in {_say_state(episodes, state)}: {error}"
            ) from error
    return check_policy(policy, states, actions, "the target's function")


def target_from_predict(
    model: Any, features: ArrayLike, episodes: Episodes, *, deterministic: bool = True
) -> Floats:
    """Make a policy of a learned model's `predict`, averaged over the rows of each state, [S, A].

    Parameters
    ----------
    model
        Its `predict(x)` returns one action a row, or (actions, state), as d3rlpy and
        Stable-Baselines3 do; an action is its number, or one level number for each action variable.
    features : [N, ...]
        What the model sees at each row of the log.
    deterministic
        Handed on where `predict` takes it. False lets the model draw: averages then depend on its
        own random numbers.

    Notes
    -----
    Where rows of one state get different actions the policy is their mixture: it forgets what the
    features tell beyond the state. States never visited get a uniform row.
    """
    if not callable(getattr(model, "predict", None)):
        raise ValueError(f"{type(model).__name__} has no predict(x); give a model that has")
    rows = len(episodes.state)
    seen = np.asarray(features)
    if seen.ndim == 0 or len(seen) != rows:
        raise ValueError(
            f"features has shape {seen.shape}, expected {rows} rows, one for each decision of the "
            "log; leave out rows of final states"
        )
    if seen.dtype.kind == "f" and np.isnan(seen).any():
        row = int(np.isnan(seen).reshape(rows, -1).any(axis=1).argmax())
        raise ValueError(
            f"features of row {row} ({episodes.place(row)}) have a nan; fill it as in training"
        )
    knobs = {"deterministic": deterministic} if _takes_deterministic(model.predict) else {}
    answer = model.predict(seen, **knobs)
    action = _predicted(answer[0] if isinstance(answer, tuple) else answer, episodes)
    states, actions = episodes.n_states, episodes.n_actions
    pair = episodes.state.astype(np.int64) * actions + action
    counts = np.bincount(pair, minlength=states * actions).reshape(states, actions)
    counts[counts.sum(axis=1) == 0] = 1
    return check_policy(counts / counts.sum(axis=1, keepdims=True), states, actions)


def _read(table: Any, name: str) -> pd.DataFrame:
    """Return the table as a pandas frame; text of a CSV stays text, "none" and "NA" included."""
    if isinstance(table, str | Path):
        path = Path(table)
        try:
            if path.suffix.lower() in (".parquet", ".pq"):
                frame = pd.read_parquet(path)
            else:
                frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (ValueError, pa.ArrowException) as error:
            raise ValueError(f"{name} cannot be read: {error}; give CSV or Parquet") from error
    elif isinstance(table, pd.DataFrame):
        frame = table
    elif hasattr(table, "__arrow_c_stream__"):
        frame = pa.table(table).to_pandas()
    else:
        raise ValueError(
            f"{name} is a {type(table).__name__}; give a data frame, or the path of a CSV or "
            "Parquet file"
        )
    if len(frame) == 0:
        raise ValueError(f"{name} has no rows; give at least one state with its action")
    check_distinct(frame.columns, f"columns of {name}")
    return frame.reset_index(drop=True)


def _indices(
    frame: pd.DataFrame, variables: Sequence[Variable], noun: str, name: str
) -> NDArray[np.int64]:
    """Return the state or action of each row, from columns of levels or one of numbers."""
    names = [variable.name for variable in variables]
    if all(column in frame.columns for column in names):
        codes = [_levels(frame[variable.name], variable, name) for variable in variables]
        return ravel(variables, codes)
    if noun not in frame.columns:
        wanted = ", ".join(map(repr, names))
        has = ", ".join(repr(column) for column in frame.columns)
        raise ValueError(
            f"{name} has neither the columns {wanted} nor a column {noun!r}; it has {has}"
        )
    size = count_levels(variables)
    numbers = pd.to_numeric(frame[noun], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~((numbers >= 0) & (numbers < size) & (numbers == np.floor(numbers)))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{name}, row {row}: {noun} {frame[noun].tolist()[row]!r} is not a number from 0 to "
            f"{size - 1}; correct it, or give the levels of {', '.join(names)}"
        )
    return numbers.astype(np.int64)


def _levels(column: pd.Series[Any], variable: Variable, name: str) -> NDArray[np.int64]:
    """Code a column by the levels of its variable."""
    codes = np.empty(len(column), dtype=np.int64)
    known = {level: code for code, level in enumerate(variable.levels)}
    for row, value in enumerate(column.tolist()):
        code = known.get(_label(value, known))
        if code is None:
            raise ValueError(
                f"{name}, row {row}: {variable.name} {value!r} is not one of its levels "
                f"({_some(variable.levels)}); correct it"
            )
        codes[row] = code
    return codes


def _label(value: Any, known: Mapping[str, int]) -> str:
    """Return a level as text: 1.0 is "1" where the levels have it so."""
    text = str(value)
    if text not in known and isinstance(value, float) and value.is_integer():
        return str(int(value))
    return text


def _check_columns(frame: pd.DataFrame, episodes: Episodes, name: str) -> None:
    """Refuse a column that stands for nothing: it may be a probability by another name."""
    variables = (*episodes.state_variables, *episodes.action_variables)
    known = {"state", "action", "probability", *(variable.name for variable in variables)}
    known |= {f"{group}.{variable.name}" for group in ("state", "action") for variable in variables}
    strange = [str(column) for column in frame.columns if str(column) not in known]
    if strange:
        raise ValueError(
            f"{name} has a column {strange[0]!r} that stands for nothing; rename it to one of "
            f"{', '.join(map(repr, sorted(known)[:12]))}, or leave it out"
        )


def _probabilities(frame: pd.DataFrame, name: str) -> Floats:
    if "probability" not in frame.columns:
        return np.ones(len(frame))
    values = pd.to_numeric(frame["probability"], errors="coerce")
    numbers = np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    wrong = ~((numbers >= 0) & (numbers <= 1 + ROW_TOLERANCE))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{name}, row {row}: probability {frame['probability'].tolist()[row]!r} is not a "
            "number from 0 to 1; correct it"
        )
    return numbers


def _distribution(answer: Any, variables: Sequence[Variable], actions: int) -> Floats:
    """Return what a function answered as probabilities of the actions, [A]."""
    row = np.zeros(actions)
    if isinstance(answer, Mapping) and set(answer) != {variable.name for variable in variables}:
        for action, probability in answer.items():
            row[_action(action, variables, actions)] += probability
    elif isinstance(answer, np.ndarray | list) or (
        isinstance(answer, tuple) and not any(isinstance(part, str) for part in answer)
    ):
        row = np.asarray(answer, dtype=np.float64)
        if row.shape != (actions,):
            raise ValueError(f"{row.shape} probabilities, expected {actions}, one an action")
    else:
        row[_action(answer, variables, actions)] = 1
    if not ((row >= 0).all() and abs(row.sum() - 1) <= ROW_TOLERANCE):
        raise ValueError(
            f"{answer!r} is no distribution; probabilities are 0 or more, and sum to 1"
        )
    return row


def _action(answer: Any, variables: Sequence[Variable], actions: int) -> int:
    """Return the number of an action that came as a number, as levels or as labelled levels."""
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
        raise ValueError(f"{answer!r} is no action; return its number, or levels of {names}")
    codes = []
    for variable, level in zip(variables, levels, strict=True):
        if str(level) not in variable.levels:
            raise ValueError(
                f"{level!r} is not a level of {variable.name} ({_some(variable.levels)}); "
                "return one of them"
            )
        codes.append(np.array([variable.levels.index(str(level))]))
    return int(ravel(variables, codes)[0])


def _predicted(answer: Any, episodes: Episodes) -> NDArray[np.int64]:
    """Return the actions that a model predicted, one a row of the log, [N]."""
    rows, variables = len(episodes.state), episodes.action_variables
    array = np.asarray(answer)
    columns = array.reshape(rows, -1) if len(array.shape) and len(array) == rows else array
    if columns.ndim != 2 or columns.shape[1] not in (1, len(variables)):
        raise ValueError(
            f"predict returned shape {array.shape}, expected ({rows},), one action a row"
            + (f", or ({rows}, {len(variables)})" if len(variables) > 1 else "")
        )
    sizes = [len(variable.levels) for variable in variables]
    if columns.shape[1] == 1:
        sizes = [episodes.n_actions]
    codes = [check_integers(column, "the predicted action") for column in columns.T]
    for code, size in zip(codes, sizes, strict=True):
        wrong = (code < 0) | (code >= size)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"row {row} ({episodes.place(row)}): predicted action {code[row]} outside "
                f"0..{size - 1}; the model must number its actions as the log does"
            )
    return codes[0] if len(codes) == 1 else ravel(variables, codes)


def _takes_deterministic(predict: Callable[..., Any]) -> bool:
    try:
        return "deterministic" in inspect.signature(predict).parameters
    except (TypeError, ValueError):  # compiled functions do not tell
        return False


def _say_state(episodes: Episodes, state: int) -> str:
    codes = unravel(episodes.state_variables, np.array([state]))
    levels = ", ".join(f"{v.name}={v.levels[codes[v.name][0]]}" for v in episodes.state_variables)
    return f"state {state} ({levels})"


def _some(levels: Sequence[str]) -> str:
    return ", ".join(map(repr, levels[:8])) + (", …" if len(levels) > 8 else "")

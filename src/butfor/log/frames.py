"""A data frame with one row per decision, as the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.coding import MISSING, NOT_A_NUMBER, UNKNOWN, text_of
from butfor.log.combinations import rows_of_codes
from butfor.log.decisions import Decisions, last_rows
from butfor.log.problems import Index, LogProblems
from butfor.log.settle import settle_cells, settle_order, settle_outcomes, settle_transitions
from butfor.log.sources import check_columns
from butfor.log.variables import Variable, check_distinct
from butfor.types import Floats

# A frame may be in any order, and its episodes may end without an outcome.
POLICIES = {"order": "sort", "no_outcome": "keep", "lost_reward": "drop"}


def read_frame(
    frame: pd.DataFrame,
    *,
    episode: str,
    time: str | None,
    state: str | Sequence[str],
    action: str,
    reward: str | None,
    outcome: str | None,
    states: Sequence[Any] | Mapping[str, Sequence[Any]] | None,
    actions: Sequence[Any] | None,
    outcomes: Sequence[Any] | None,
) -> tuple[dict[str, Any], tuple[Variable, ...], tuple[str, ...], tuple[str, ...]]:
    """Return arrays for `Episodes.from_codes`, state variables, and labels of actions and ends."""
    named = {"episode": episode, "time": time, "action": action}
    named |= {"reward": reward, "outcome": outcome}
    column = {role: str(name) for role, name in named.items() if name is not None}
    known = _levels_of(state, states)
    frame = frame.rename(columns=str)
    roles = {n: f"{role}=" for role, n in column.items()} | dict.fromkeys(known, "state=")
    check_columns("the frame", list(frame.columns), roles)
    if len(frame) == 0:
        raise ValueError("the frame has no rows; give at least one decision")
    numbers, ids = pd.factorize(frame[column["episode"]])
    coded = {name: _code(frame[name], levels, "states") for name, levels in known.items()}
    action_codes, action_labels = _code(frame[column["action"]], actions, "actions")
    ends, end_labels = np.full(len(frame), MISSING), tuple[str, ...]()
    if "outcome" in column:
        ends, end_labels = _code(frame[column["outcome"]], outcomes, "outcomes")
    action_key = ("action", column["action"])
    rows = Decisions(
        LogProblems(POLICIES, partial(_places, numbers, ids), in_study=False),
        lambda name, row: text_of(frame[name].iloc[row]),
        np.arange(len(frame)),
        numbers.astype(np.int64),
        _positions(frame, column.get("time")),
        ends,
        {("state", name): codes for name, (codes, _) in coded.items()} | {action_key: action_codes},
    )
    remedies = {("state", name): _remedy("states", labels) for name, (_, labels) in coded.items()}
    remedies[action_key] = _remedy("actions", action_labels)
    if "reward" in column:
        key = ("number", column["reward"])
        rows.numbers["reward"], rows.cells[key] = _numbers(frame[column["reward"]])
        rows.number_columns["reward"] = column["reward"]
        remedies[key] = "Fill or drop it"
    settle_order(rows)
    _refuse_early_outcomes(rows, column.get("outcome", ""))
    settle_outcomes(rows, column.get("outcome", ""), _remedy("outcomes", end_labels))
    settle_cells(rows, remedies)
    settle_transitions(rows, outcomes=False)
    rows.problems.check("the frame")
    levels = np.stack([rows.cells["state", name] for name in known], axis=1)
    blank = (levels < 0).any(axis=1)
    place = np.where(blank, -1, np.arange(len(rows)))
    arrays = rows.arrays(place, rows.cells[action_key], np.asarray(ids))
    arrays |= rows_of_codes(levels, arrays["state"], arrays["next_state"])
    variables = tuple(Variable(name, labels) for name, (_, labels) in coded.items())
    return arrays, variables, action_labels, end_labels


def _levels_of(
    state: str | Sequence[str], states: Sequence[Any] | Mapping[str, Sequence[Any]] | None
) -> dict[str, Sequence[Any] | None]:
    """Return the columns of the state, each with its levels if these are given."""
    names = [str(state)] if isinstance(state, str) else [str(name) for name in state]
    check_distinct(names, "state")
    if not isinstance(states, Mapping):
        if states is not None and len(names) > 1:
            raise ValueError(
                f"states: {len(names)} columns have their own levels; give {{column: [...]}}"
            )
        return dict.fromkeys(names, states)
    for name in states:
        if str(name) not in names:
            raise ValueError(f"states: {name!r} is not in state=; it has {', '.join(names)}")
    return {name: states.get(name) for name in names}


def _places(numbers: NDArray[Any], ids: Any, rows: Sequence[int]) -> str:
    """Name rows of the frame, with their episodes."""
    mine = ((row, numbers[row]) for row in rows)
    return ", ".join(f"row {r} (episode {ids[n]})" if n >= 0 else f"row {r}" for r, n in mine)


def _refuse_early_outcomes(rows: Decisions, column: str) -> None:
    """Refuse an outcome before the last row of an episode."""
    early = (rows.outcome >= 0) & ~last_rows(rows.episode)
    what = f"have an outcome before the last row: {rows.values(column, early)}"
    rows.refuse("after_outcome", early, what, "Move it: an episode ends with its outcome")


def _remedy(plural: str, labels: Sequence[str]) -> str:
    shown = ", ".join(map(repr, labels[:8])) + (", …" if len(labels) > 8 else "")
    return f"The {plural} are {shown or 'none'}; list it in {plural}=[...], or fill or drop it"


def _positions(frame: pd.DataFrame, time: str | None) -> Floats:
    """Return the place of each row in the order of time; equal times stay in the frame's order."""
    if time is None:
        return np.arange(len(frame), dtype=np.float64)
    codes, _ = pd.factorize(frame[time], sort=True)
    positions = np.empty(len(frame))
    positions[np.argsort(codes, kind="stable")] = np.arange(len(frame))
    positions[codes < 0] = np.nan
    return positions


def _code(
    column: pd.Series[Any], labels: Sequence[Any] | None, plural: str
) -> tuple[Index, tuple[str, ...]]:
    """Code a column by the labels given, or by its own in order; return codes and labels."""
    values = _whole(column)
    levels = _sorted(values.dropna().unique(), plural) if labels is None else list(labels)
    check_distinct(levels, plural)
    codes = pd.Index(levels, dtype=object).get_indexer(pd.Index(values, dtype=object))
    codes = np.where(codes >= 0, codes, np.where(values.isna(), MISSING, UNKNOWN))
    return codes.astype(np.int64), tuple(str(level) for level in levels)


def _whole(values: pd.Series[Any]) -> pd.Series[Any]:
    """Undo what a missing cell does to integers in pandas: 1.0 is 1 again."""
    if values.dtype.kind == "f" and (values.dropna() % 1 == 0).all():
        return values.astype("Int64").astype(object).where(values.notna(), None)
    return values.astype(object)


def _sorted(labels: NDArray[Any], plural: str) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        kinds = {type(label).__name__: label for label in labels}
        shown = ", ".join(repr(text_of(label)) for label in kinds.values())
        raise ValueError(
            f"{plural} of several types ({shown}) have no order; list them in {plural}=[...]"
        ) from None


def _numbers(column: pd.Series[Any]) -> tuple[Floats, Index]:
    """Return numbers, nan if missing, and codes that mark the cells that are not numbers."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = np.isinf(values) | (np.isnan(values) & column.notna().to_numpy())
    return np.where(wrong, np.nan, values), np.where(wrong, NOT_A_NUMBER, np.arange(len(values)))

"""A data frame with one row per decision, as the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.coding import MISSING, NOT_A_NUMBER, UNKNOWN, listed, text_of
from butfor.log.combinations import rows_of_codes
from butfor.log.decisions import Decisions, last_rows
from butfor.log.problems import Index, LogProblems
from butfor.log.settle import settle_cells, settle_order, settle_outcomes, settle_transitions
from butfor.log.sources import check_columns
from butfor.log.variables import check_distinct
from butfor.types import Floats

# A frame may be in any order, and its episodes may end without an outcome.
POLICIES = {"order": "sort", "no_outcome": "keep", "lost_reward": "drop"}


Key = tuple[str, str]  # role and column


def read_frame(
    frame: pd.DataFrame, roles: Mapping[str, str | None], given: Mapping[Key, Sequence[Any] | None]
) -> tuple[dict[str, Any], dict[Key, tuple[str, ...]]]:
    """Return arrays for `Episodes.from_codes`, and the labels of states, actions and outcomes.

    `roles` has the columns of episode, time, reward and probability (of the action taken), None if
    there is no such column; `given` the labels of the columns that have labels, None if these are
    those that it has.
    """
    column = {role: str(name) for role, name in roles.items() if name is not None}
    frame = frame.rename(columns=str)
    used = {name: f"{role}=" for role, name in (*column.items(), *given)}
    check_columns("the frame", list(frame.columns), used)
    if len(frame) == 0:
        raise ValueError("the frame has no rows; give at least one decision")
    numbers, ids = pd.factorize(frame[column["episode"]])
    end = next((key for key in given if key[0] == "outcome"), ("outcome", ""))
    cells, labels = {end: np.full(len(frame), MISSING)}, {end: tuple[str, ...]()}
    for (role, name), among in given.items():
        cells[role, name], labels[role, name] = _code(frame[name], among, f"{role}s")
    remedies = {key: _remedy(f"{key[0]}s", known) for key, known in labels.items()}
    rows = Decisions(
        LogProblems(POLICIES, partial(_places, numbers, ids), in_study=False),
        lambda name, row: text_of(frame[name].iloc[row]),
        np.arange(len(frame)),
        numbers.astype(np.int64),
        _positions(frame, column.get("time")),
        cells.pop(end),
        cells,
    )
    for role in column.keys() & {"reward", "probability"}:
        key = ("number", column[role])
        rows.numbers[role], rows.cells[key] = _numbers(frame[column[role]])
        rows.number_columns[role] = column[role]
        remedies[key] = "Fill or drop it"
    settle_order(rows)
    early = (rows.outcome >= 0) & ~last_rows(rows.episode)
    what = f"have an outcome before the last row: {rows.values(end[1], early)}"
    rows.refuse("after_outcome", early, what, "Move it: an episode ends with its outcome")
    settle_outcomes(rows, end[1], remedies.pop(end))
    settle_cells(rows, remedies)
    settle_transitions(rows, outcomes=False)
    rows.problems.check("the frame")
    return _arrays(rows, np.asarray(ids)), labels


def levels_of(
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


def _arrays(rows: Decisions, ids: NDArray[Any]) -> dict[str, Any]:
    """Return arrays of settled rows, states as level codes [N, J]."""
    levels = np.stack(list(rows.group("state").values()), axis=1)
    place = np.where((levels < 0).any(axis=1), -1, np.arange(len(rows)))
    (action,) = rows.group("action").values()
    arrays = rows.arrays(place, action, ids)
    if "probability" in rows.numbers:
        arrays["probability"] = rows.numbers["probability"][rows.transitions()[0]]
    return arrays | rows_of_codes(levels, arrays["state"], arrays["next_state"])


def _places(numbers: NDArray[Any], ids: Any, rows: Sequence[int]) -> str:
    mine = ((row, numbers[row]) for row in rows)
    return ", ".join(f"row {r} (episode {ids[n]})" if n >= 0 else f"row {r}" for r, n in mine)


def _remedy(plural: str, labels: Sequence[str]) -> str:
    known = listed(labels) or "none"
    return f"The {plural} are {known}; list it in {plural}=[...], or fill or drop it"


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

"""A data frame with one row per decision, as the arrays that Episodes are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.coding import MISSING, NOT_A_NUMBER, UNKNOWN, text_of
from butfor.log.decisions import Decisions, last_rows
from butfor.log.problems import Index, LogProblems
from butfor.log.settle import settle_cells, settle_order, settle_outcomes, settle_transitions
from butfor.log.sources import check_columns
from butfor.log.variables import check_distinct
from butfor.types import Floats

# A frame may be in any order, and its episodes may end without an outcome.
POLICIES = {"order": "sort", "no_outcome": "keep", "lost_reward": "drop"}


def read_frame(
    frame: pd.DataFrame,
    *,
    episode: str,
    time: str | None,
    state: str,
    action: str,
    reward: str | None,
    outcome: str | None,
    states: Sequence[Any] | None,
    actions: Sequence[Any] | None,
    outcomes: Sequence[Any] | None,
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return arrays for `Episodes.from_arrays`, and the labels of states, actions and outcomes."""
    arguments = {"episode": episode, "time": time, "state": state, "action": action}
    arguments |= {"reward": reward, "outcome": outcome}
    named = {str(name): f"{key}=" for key, name in arguments.items() if name is not None}
    frame = frame.rename(columns=str)
    check_columns("the frame", list(frame.columns), named)
    if len(frame) == 0:
        raise ValueError("the frame has no rows; give at least one decision")
    numbers, ids = pd.factorize(frame[str(episode)])
    state_codes, state_labels = _code(frame[str(state)], states, "states")
    action_codes, action_labels = _code(frame[str(action)], actions, "actions")
    ends, end_labels = np.full(len(frame), MISSING), tuple[str, ...]()
    if outcome is not None:
        ends, end_labels = _code(frame[str(outcome)], outcomes, "outcomes")

    def places(rows: Sequence[int]) -> str:
        mine = ((row, numbers[row]) for row in rows)
        return ", ".join(f"row {r} (episode {ids[n]})" if n >= 0 else f"row {r}" for r, n in mine)

    def show(column: str, row: int) -> str:
        return text_of(frame[column].iloc[row])

    rows = Decisions(
        LogProblems(POLICIES, places, in_study=False),
        show,
        np.arange(len(frame)),
        numbers.astype(np.int64),
        _positions(frame, time),
        ends,
        {("state", str(state)): state_codes, ("action", str(action)): action_codes},
    )
    if reward is not None:
        rows.numbers["reward"], codes = _numbers(frame[str(reward)])
        rows.number_columns["reward"] = str(reward)
        rows.cells["number", str(reward)] = codes
    settle_order(rows)
    _refuse_early_outcomes(rows, str(outcome))
    settle_outcomes(rows, str(outcome), _remedy("outcomes", end_labels))
    remedies = {
        ("state", str(state)): _remedy("states", state_labels),
        ("action", str(action)): _remedy("actions", action_labels),
        ("number", str(reward)): "Fill or drop it",
    }
    settle_cells(rows, remedies)
    settle_transitions(rows, outcomes=False)
    rows.problems.check("the frame")
    state_codes, action_codes = rows.cells["state", str(state)], rows.cells["action", str(action)]
    arrays = rows.arrays(state_codes, action_codes, np.asarray(ids))
    return arrays, state_labels, action_labels, end_labels


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
    codes, _ = pd.factorize(frame[str(time)], sort=True)
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

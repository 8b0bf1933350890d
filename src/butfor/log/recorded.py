"""What readers see of a log behind its levels: when each row was, and the numbers in it.

No model sees any of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from butfor.log.coding import MISSING
from butfor.log.column_rules import Key
from butfor.log.decisions import Decisions, Index, Mask
from butfor.log.sections import Study
from butfor.types import Floats

TIME = "time"
RAW, FILLED = "raw.", "filled."  # before the name of a variable


def shown_names(study: Study) -> dict[Key, str]:
    """Return what readers call the columns of the state and the action.

    An action with the name of a state variable is left out: it is the same treatment.
    """
    found: dict[Key, str] = {}
    for column, section in study.state.items():
        found["state", column] = section.name or column
    for column in study.cluster_columns():
        called = study.side[column].name if column in study.side else None
        found["state", column] = column if called in (None, *found.values()) else str(called)
    taken = set(found.values())
    for column, action in study.action.items():
        if (action.name or column) not in taken:
            found["action", column] = action.name or column
    return found


def given_side(study: Study) -> tuple[str, ...]:
    """Return the names of the side columns that are also part of the state or the action."""
    ready = (study.columns.state, study.columns.action)
    given = {*study.state, *study.action, *study.cluster_columns(), *ready}
    return tuple(one.name or column for column, one in study.side.items() if column in given)


def find_measured(study: Study, rows: Decisions) -> dict[Key, Mask]:
    """Mark the cells that the log has, of each column that may be filled in."""
    every = study.time is not None or "fill" in study.problems.values()
    return {
        key: rows.cells[key] >= 0 for key in shown_names(study) if every or key[1] in study.missing
    }


def record(study: Study, rows: Decisions, chosen: Index, kind: Any) -> pd.DataFrame | None:
    """Return what readers see of these rows (-1: there is none); None if that is nothing.

    `kind` is the Arrow type of the time column.
    """
    absent, columns = chosen < 0, dict[str, Any]()
    if rows.time is not None:
        columns[TIME] = _times(np.where(absent, np.nan, rows.time[chosen]), rows.dated, kind)
    names = shown_names(study)
    for key, name in names.items():
        if key in rows.pools:
            columns[RAW + name] = np.where(absent, np.nan, rows.numbers_of(*key)[chosen])
    for key, measured in rows.measured.items():
        filled = (rows.cells[key] != MISSING) & (~measured | (rows.row < 0))
        columns[FILLED + names[key]] = ~absent & filled[chosen]
    return pd.DataFrame(columns) if columns else None


def _times(times: Floats, dated: bool, kind: Any) -> Any:
    """Return times as they are logged: numbers, dates, or lengths of time."""
    if not dated:
        return times
    passed = pd.to_timedelta(np.round(times * 1e6), unit="us").as_unit("us")
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return passed
    moments = pd.Timestamp(0).as_unit("us") + passed
    zone = getattr(kind, "tz", None)
    return moments if zone is None else moments.tz_localize("UTC").tz_convert(zone)

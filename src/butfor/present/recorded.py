"""The record behind an episode's states as a table: when each step was, and what was measured."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pandas as pd

from butfor.log.recorded import FILLED, RAW, TIME
from butfor.present.text import Clock, capitalized

TIME_IN_LOG = "Time in the log"
BEHIND = "What the record says, before it became levels or clusters for the model."
IN_PARENTHESES = (
    "In parentheses: not recorded at that time, but carried forward or filled in as the study says."
)


def recorded_table(steps: pd.DataFrame, clock: Clock, static: Container[str]) -> dict[str, Any]:
    """Return a table with one row per variable and one column per step, and its caption.

    It is empty if nothing is known. Variables that are `static` are left out.
    """
    times = times_in_log(steps, clock)
    values = {name: texts for name, texts in recorded_values(steps).items() if name not in static}
    if not (times or values):
        return {"table": [], "caption": ""}
    head = [capitalized(clock.unit), *(str(clock.time(step)) for step in steps["step"].tolist())]
    rows = [[TIME_IN_LOG, *times]] if times else []
    rows += [[name, *texts] for name, texts in values.items()]
    filled = any(steps[name].any() for name in steps.columns if name.startswith(FILLED))
    return {"table": [head, *rows], "caption": f"{BEHIND} {IN_PARENTHESES}" if filled else BEHIND}


def recorded_values(steps: pd.DataFrame) -> dict[str, list[str]]:
    """Return the numbers behind a variable's levels, or levels of which some were filled in."""
    names = (
        column.removeprefix(mark)
        for mark in (RAW, FILLED)
        for column in steps.columns
        if column.startswith(mark)
    )
    found = {}
    for name in dict.fromkeys(names):
        columns = (RAW + name, f"state.{name}", f"action.{name}")
        column = next(column for column in columns if column in steps)
        texts = [value_text(value) for value in steps[column]]
        filled = steps[FILLED + name].tolist() if FILLED + name in steps else [False] * len(texts)
        found[name] = [
            f"({text or 'missing'})" if f else text for text, f in zip(texts, filled, strict=True)
        ]
    return found


def times_in_log(steps: pd.DataFrame, clock: Clock) -> list[str]:
    """Return when each step was, unless the clock says the same; "" where that is not known."""
    if TIME not in steps or steps[TIME].isna().all():
        return []
    times = steps[TIME]
    if pd.api.types.is_float_dtype(times.dtype):
        told = [clock.time(step) for step in steps["step"].tolist()]
        if all(pd.isna(time) or round(time, 6) == at for time, at in zip(times, told, strict=True)):
            return []
    elif not pd.api.types.is_timedelta64_dtype(times.dtype):
        return _moments(times)
    return [value_text(time) for time in times]


def _moments(times: pd.Series) -> list[str]:
    """Return dates and times: the date where it is another one, the time unless all are 0:00."""
    known = times.dropna()
    dates, texts = times.dt.strftime("%Y-%m-%d").fillna("").tolist(), []
    if (known == known.dt.normalize()).all():
        return dates
    exact = "%H:%M" if (known == known.dt.floor("min")).all() else "%H:%M:%S"
    hours = times.dt.strftime(exact).fillna("").tolist()
    for before, date, hour in zip(["", *dates], dates, hours, strict=False):
        texts.append(hour if date == before else f"{date} {hour}".strip())
    return texts


def without_record(steps: pd.DataFrame) -> pd.DataFrame:
    """Return steps as the model knows them, without times and numbers."""
    columns = (name for name in steps.columns if name != TIME)
    return steps[[name for name in columns if not name.startswith((RAW, FILLED))]]


def value_text(value: Any) -> str:
    """Return a recorded value as readers see it; "" if it is missing."""
    if pd.isna(value):
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)

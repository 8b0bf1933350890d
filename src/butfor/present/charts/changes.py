"""Fewest changes: what 0, 1, 2, … changed actions would have been worth to one episode."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.rows import (
    LABELS,
    PLOT,
    TOTAL,
    Domain,
    label_layers,
    number_layer,
    number_text,
    stack,
    value_axis,
    value_domain,
)
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    ESTIMATE,
    GREY,
    SMALL,
    Row,
    data,
    finish,
    pixels,
    require_columns,
    wrap,
)

NOTHING = "nothing to be gained"


def changes_chart(
    changes: pd.DataFrame,
    *,
    title: str = "How much would a few changes have helped?",
    subtitle: str | None = None,
    axis_title: str = "Expected return",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw the best expected return of one episode with at most 0, 1, 2, … changed actions.

    Parameters
    ----------
    changes
        A row a number of changes: `changes, value, first_change`, the last being the first action
        to change in words, empty where there is none: rows of `Changes.frame()` of one episode.
    domain
        Ends of the axis, moved out where the data go beyond them; by default those of the data.
    """
    require_columns(changes, ("changes", "value", "first_change"), "changes")
    numbers = [int(number) for number in changes["changes"]]
    twice = [number for number in numbers if numbers.count(number) > 1]
    if twice:
        raise ValueError(
            f"changes has {numbers.count(twice[0])} rows with {twice[0]} changes; give those of "
            "one episode"
        )
    values = changes["value"].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"changes holds the value {values[~np.isfinite(values)][0]}; give numbers")
    rows: list[Row] = []
    for number, value, words in zip(numbers, values, changes["first_change"], strict=True):
        note = "as it was done" if number == 0 else str(words) or NOTHING
        rows.append(
            {
                "name": _name(number),
                "note": wrap(note, LABELS, SMALL),
                "value": float(value),
                "from": float(values[0]),
                "number": number_text(float(value), np.nan, np.nan, values),
            }
            | ({"gain": _gain(value - values[0], values)} if number > 0 else {})
        )
    height = stack(rows, least=44)
    for row in rows:
        row["y_number"] = row["y"] - 9 * ("gain" in row)
        row["y_gain"] = row["y"] + 9
    if subtitle is None:
        subtitle = (
            "The first action to change stands below each number; what to change after it depends "
            "on what it leads to. Dashed line: as it was done. Steps count from 0. "
            f"The best of many, found in the model: {ESTIMATE[0].lower()}{ESTIMATE[1:]}"
        )
    ends = value_domain(values, domain)

    def x(field: str) -> Any:
        return value_axis(field, axis_title, ends)

    base = alt.Chart(data(rows)).encode(y=pixels("y", height, down=True))
    layers = [
        *label_layers(rows, height),
        alt.Chart(data(rows[:1])).mark_rule(strokeDash=[5, 4], color=GREY).encode(x=x("from")),
        base.mark_rule(strokeWidth=8, opacity=0.4, strokeCap="round", color=BLUE).encode(
            x=x("from"), x2="value:Q"
        ),
        base.mark_point(filled=True, opacity=1, size=120, color=BLUE).encode(
            x=x("value"), tooltip=["name:N", "number:N"]
        ),
        number_layer(rows, height, "number", "y_number", BLACK),
    ]
    if any("gain" in row for row in rows):
        layers.append(number_layer(rows, height, "gain", "y_gain", GREY))
    return finish(layers, title, subtitle, width=PLOT, height=height, total=TOTAL)


def _name(number: int) -> str:
    return "No change" if number == 0 else f"At most {number} change{'s' * (number != 1)}"


def _gain(gain: float, values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    if gain == 0:
        return "no gain"
    return f"gain {number_text(float(gain), np.nan, np.nan, values)}"

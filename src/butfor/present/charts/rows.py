"""Rows of a picture of numbers: a name and a note, marks along an axis, the numbers in digits."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from butfor.present.charts.style import GREY, LINE, LINE_HEIGHT, SMALL, Row, data, pixels

PLOT = 240  # width of the part with the axis
LABELS = 205  # room for names at its left
NUMBERS = 185  # room for numbers at its right
TOTAL = LABELS + PLOT + NUMBERS
Domain = tuple[float, float]


def stack(rows: list[Row], least: int) -> int:
    """Give each row with its `name` and its lines of `note` a place; return the height of all."""
    step = max(least, 28 + LINE_HEIGHT * max(len(row["note"]) for row in rows))
    for position, row in enumerate(rows):
        row["y"] = step * (position + 0.5)
        row["y_name"] = row["y"] - LINE_HEIGHT * len(row["note"]) / 2
        row["y_note"] = row["y_name"] + LINE_HEIGHT + 1
    return step * len(rows)


def label_layers(rows: list[Row], height: int) -> list[alt.Chart]:
    """Draw a frame around the part with the axis, and names and notes at its left."""
    base = alt.Chart(data(rows))
    frame: Row = {"stroke": LINE, "fill": None, "x": 0, "x2": PLOT, "y": 0, "y2": height}
    left: Row = {"align": "right", "x": -14, "limit": LABELS}
    return [
        alt.Chart(data([{}])).mark_rect(**frame),
        base.mark_text(fontWeight="bold", **left).encode(
            text="name:N", y=pixels("y_name", height, down=True), tooltip="name:N"
        ),
        base.mark_text(fontSize=SMALL, color=GREY, lineHeight=LINE_HEIGHT, **left).encode(
            text="note:N", y=pixels("y_note", height, down=True)
        ),
    ]


def number_layer(rows: list[Row], height: int, field: str, y: str, color: str) -> alt.Chart:
    """Write the numbers that a field holds at the right, where a row has it."""
    known = alt.Chart(data([row for row in rows if field in row]))
    text = known.mark_text(align="left", x=PLOT + 14, color=color)
    return text.encode(text=f"{field}:N", y=pixels(y, height, down=True))


def value_axis(field: str, title: str, domain: Domain) -> Any:
    """Place marks by a field's value along the one axis of the picture."""
    words = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
    axis = alt.Axis(tickCount=5, labelExpr=words)
    scale = alt.Scale(domain=list(domain), nice=False)
    return alt.X(f"{field}:Q", scale=scale, title=title, axis=axis)


def value_domain(values: NDArray[np.float64], given: Domain | None) -> Domain:
    """Ends of the axis: those given, or further out as the values need it."""
    known = values[np.isfinite(values)]
    low, high = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
    if given is not None:
        if not given[0] < given[1]:
            raise ValueError(f"domain {given}: give the lower end first")
        return min(low, given[0]), max(high, given[1])
    if len(known) == 0:
        return -1.0, 1.0
    room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room


def number_text(value: float, low: float, high: float, values: NDArray[np.float64]) -> str:
    """Write a number and its interval, with as many digits as the largest of all values needs."""
    if not math.isfinite(value):
        return "no estimate"
    largest = float(np.abs(values[np.isfinite(values)]).max())
    form = "+.3g" if 0 < largest < 0.1 else "+.2f" if largest < 100 else "+,.0f"
    text = format(value, form)
    if math.isfinite(low) and math.isfinite(high):
        text += f" ({format(low, form)} to {format(high, form)})"
    return text.replace("-", "−")

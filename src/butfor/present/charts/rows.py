"""Charts of one value per row: a name with a note, marks along an axis, and the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from butfor.present.charts import style

PLOT = 240  # width of the part with the axis
NOTE = 205  # width at which notes wrap
LABELS = 260  # room for names and notes at its left, also in a wide font
NUMBERS = 185  # room for numbers at its right
TOTAL = LABELS + PLOT + NUMBERS
Floats = NDArray[np.float64]


class RowChart:
    """Rows from top to bottom, each with a `name` and a `note`, on one axis of values.

    The name is bold and the note below it small, which labels of an axis cannot be; so rows are
    placed in pixels, by the field `y` and by what the caller adds as `y_<part>`.
    """

    def __init__(
        self,
        rows: list[style.Row],
        values: Floats,
        *,
        axis_title: str,
        domain: style.Domain | None,
        least: int = 34,
    ) -> None:
        self.rows = rows
        self.axis_title = axis_title
        self.domain = style.value_domain(values, domain)
        for row in rows:
            row["note"] = style.wrap(row["note"], NOTE, style.SMALL)
        step = max(least, 28 + style.LINE_HEIGHT * max(len(row["note"]) for row in rows))
        self.height = step * len(rows)
        for position, row in enumerate(rows):
            row["y"] = step * (position + 0.5)
            row["y_name"] = row["y"] - style.LINE_HEIGHT * len(row["note"]) / 2
            row["y_note"] = row["y_name"] + style.LINE_HEIGHT + 1

    def x(self, field: str) -> Any:
        """Place marks by a value."""
        return style.value_axis(alt.X, field, self.axis_title, self.domain)

    def y(self, field: str = "y") -> Any:
        """Place marks in their row."""
        return style.pixels(field, self.height, down=True)

    def numbers(self, field: str, y: str = "y", color: str = style.BLACK) -> alt.Chart:
        """Write the numbers that a field holds at the right, in the rows that have it."""
        known = alt.Chart(style.data([row for row in self.rows if field in row]))
        text = known.mark_text(align="left", x=PLOT + 14, color=color)
        return text.encode(text=f"{field}:N", y=self.y(y))

    def draw(self, marks: Sequence[alt.Chart], title: str, subtitle: str) -> alt.LayerChart:
        """Return the chart with these marks, names and notes at the left, and a title."""
        base = alt.Chart(style.data(self.rows))
        left: style.Row = {"align": "right", "x": -14, "limit": LABELS}
        names = base.mark_text(fontWeight="bold", **left)
        notes = base.mark_text(
            fontSize=style.SMALL, color=style.GREY, lineHeight=style.LINE_HEIGHT, **left
        )
        chart = style.layered(
            names.encode(text="name:N", y=self.y("y_name"), tooltip="name:N"),
            notes.encode(text="note:N", y=self.y("y_note")),
            *marks,
        )
        return style.finish(style.framed(chart, PLOT, self.height), title, subtitle, total=TOTAL)


def number_text(value: float, low: float, high: float, values: Floats) -> str:
    """Return a number and its interval, with the digits that the largest of all values needs."""
    if not math.isfinite(value):
        return "no estimate"
    largest = float(np.abs(values[np.isfinite(values)]).max())
    form = "+.3g" if 0 < largest < 0.1 else "+.2f" if largest < 100 else "+,.0f"
    text = format(value, form)
    if math.isfinite(low) and math.isfinite(high):
        text += f" ({format(low, form)} to {format(high, form)})"
    return text.replace("-", "−")

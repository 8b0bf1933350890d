"""Rows from top to bottom on one axis of values: names at the left, numbers at the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from butfor.present.charts import style

PLOT = 240  # width of the part with the axis
NARROW = 280  # the same in a chart for phones
NOTE = 205  # width at which notes wrap
LABELS = 260  # room for names and notes at its left, also in a wide font
NUMBERS = 185  # room for numbers at its right
TOTAL = NOTE + PLOT + NUMBERS  # the width at which the subtitle wraps
# texts end at the sides, and a font wider than the one that was measured must not be cut off
PADDING = {"left": 24, "right": 48, "top": 8, "bottom": 8}
Floats = NDArray[np.float64]


class RowChart:
    """Rows from top to bottom, each with a `name` and a `note`, on one axis of values.

    The name is bold and the note below it small, which labels of an axis cannot be; so rows are
    placed in pixels, by the field `y` and by what the caller adds as `y_<part>`. A narrow chart,
    for phones, has names, notes and numbers above the marks, instead of beside them.
    """

    def __init__(
        self,
        rows: list[style.Row],
        values: Floats,
        *,
        axis_title: str,
        domain: style.Domain | None,
        least: int = 34,
        rate: bool = False,
        names: Mapping[float, str] | None = None,
        narrow: bool = False,
    ) -> None:
        self.rows = rows
        self.narrow = narrow
        self.width = NARROW if narrow else PLOT
        self.names = names or {}
        self.axis_title = axis_title
        self.rate = rate
        self.domain = style.value_domain(values, domain)
        for row in rows:
            row["note"] = style.wrap(row["note"], NARROW if narrow else NOTE, style.SMALL)
        lines = style.LINE_HEIGHT * max(len(row["note"]) for row in rows)
        step = lines + 3 * style.LINE_HEIGHT + 12 if narrow else max(least, 28 + lines)
        self.height = step * len(rows)
        for position, row in enumerate(rows):
            row["y"] = step * (position + 1) - 14 if narrow else step * (position + 0.5)
            beside = row["y"] - style.LINE_HEIGHT * len(row["note"]) / 2
            row["y_name"] = step * position + 12 if narrow else beside
            row["y_note"] = row["y_name"] + style.LINE_HEIGHT + 1
            row["y_above"] = row["y_note"] + style.LINE_HEIGHT * len(row["note"])

    def x(self, field: str) -> Any:
        """Place marks by a value."""
        return style.value_axis(
            alt.X, field, self.axis_title, self.domain, rate=self.rate, named=bool(self.names)
        )

    def y(self, field: str = "y") -> Any:
        """Place marks in their row."""
        return style.pixels(field, self.height, down=True)

    def numbers(self, field: str, y: str = "y", color: str = style.BLACK) -> alt.Chart:
        """Write the numbers that a field holds at the right, in the rows that have it."""
        known = alt.Chart(style.data([row for row in self.rows if field in row]))
        text = known.mark_text(align="left", x=4 if self.narrow else PLOT + 14, color=color)
        return text.encode(text=alt.Text(f"{field}:N"), y=self.y("y_above" if self.narrow else y))

    def draw(self, marks: Sequence[alt.Chart], title: str, subtitle: str) -> alt.LayerChart:
        """Return the chart with these marks, names and notes at the left, and a title."""
        base = alt.Chart(style.data(self.rows))
        left: style.Row = {"align": "right", "x": -14, "limit": LABELS}
        if self.narrow:
            left = {"align": "left", "x": 4, "limit": NARROW}
        names = base.mark_text(fontWeight="bold", **left)
        notes = base.mark_text(
            fontSize=style.SMALL, color=style.GREY, lineHeight=style.LINE_HEIGHT, **left
        )
        chart = style.layered(
            names.encode(
                text=alt.Text("name:N"), y=self.y("y_name"), tooltip=alt.Tooltip("name:N")
            ),
            notes.encode(text=alt.Text("note:N"), y=self.y("y_note")),
            *marks,
            *([style.axis_names(self.names, self.x("end"), self.height)] if self.names else []),
        )
        total = NARROW if self.narrow else TOTAL
        plot = style.framed(chart, self.width, self.height)
        drawn = style.finish(plot, title, subtitle, total=total)
        return drawn.properties(padding=6 if self.narrow else PADDING)

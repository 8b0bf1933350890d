"""Panels side by side: named levels from left to right, values upward on one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import pandas as pd

from butfor.present.charts import style

WIDTH, TOTAL = 282, 640  # of a panel, and of the chart
COLUMNS = 2
Marks = Callable[[pd.DataFrame, Any, Callable[[str], Any]], list[alt.Chart]]


def level_panels(
    table: pd.DataFrame,
    field: str,
    marks: Marks,
    *,
    height: int,
    axis_title: str,
    domain: style.Domain,
    bold: Mapping[str, str],
) -> alt.ConcatChart:
    """Draw a panel for each value of a field, with a line at zero.

    Parameters
    ----------
    marks
        Draws the rows of one panel, given the channel that places marks by `level` and a function
        that returns the one that places them by a value: beyond the scale, at its edge.
    bold
        The level that is written in bold, by panel.
    """
    zero = alt.Chart(style.data([{"zero": 0}])).mark_rule(color=style.GREY, strokeWidth=1.5)
    panels = []
    for number, (name, rows) in enumerate(table.groupby(field, sort=False)):
        levels = style.distinct(rows["level"])
        # by position, as the name of a level must not become part of an expression
        at = levels.index(bold[str(name)]) if bold.get(str(name)) in levels else -1
        test = f"round(datum.index * {max(len(levels) - 1, 1)}) == {at}"
        weight = {"condition": {"test": test, "value": "bold"}, "value": "normal"}
        axis = alt.Axis(labelAngle=0, labelFontWeight=weight, labelLimit=WIDTH // len(levels))
        x = alt.X("level:N", sort=levels, scale=alt.Scale(domain=levels), title=None, axis=axis)

        def y(field: str, labels: bool = number % COLUMNS == 0) -> Any:
            channel = style.value_axis(alt.Y, field, axis_title, domain, clamp=True)
            if not labels:
                channel.axis.labels = channel.axis.ticks = False
                channel.title = None
            return channel

        panel = style.layered(zero.encode(y=y("zero")), *marks(rows, x, y))
        panels.append(
            style.framed(panel, WIDTH, height).properties(title=style.panel_title(str(name), WIDTH))
        )
    concat = alt.concat(*panels, columns=COLUMNS, spacing=14)
    return concat.resolve_scale(x="independent", xOffset="independent")

"""What a larger log brings: means against the number of episodes, one line per model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from butfor.present.charts import style

WIDTH, HEIGHT = 285, 260
COLORS = (style.VERMILLION, style.BLUE, style.GREEN, "#6A4FC3", "#8A5A00", style.BLACK)
SHAPES = ("diamond", "circle", "triangle-up", "square", "triangle-down", "cross")


@style.unchecked
def learning_chart(
    table: pd.DataFrame,
    *,
    lines: Mapping[str, float] | None = None,
    title: str = "What does a larger log bring?",
    subtitle: str = "Means over logs; bars: two standard errors.",
    x_title: str = "patients in the log",
    y_title: str = "true value",
    signed: bool = True,
    domain: style.Domain | None = None,
) -> alt.FacetChart:
    """Draw means by size of the log on a logarithmic scale, a panel per setting, a line per model.

    Parameters
    ----------
    table
        One row per mark: `panel, series, size, value, se`, in the order to be drawn; at most six
        series.
    lines
        Values to compare with, drawn across every panel and named there.
    signed
        Whether numbers on the scale have a sign.
    domain
        Ends of the scale, moved out as far as the values need.
    """
    style.require_columns(table, ("panel", "series", "size", "value", "se"), "table")
    names = style.distinct(table["series"])
    look = style.series_look("series", names, COLORS, SHAPES, columns=2)
    error = 2 * table["se"].fillna(0.0)
    points = pd.DataFrame(
        {
            "panel": table["panel"].map(str),
            "series": table["series"].map(str),
            "size": table["size"],
            "value": table["value"],
            "low": table["value"] - error,
            "high": table["value"] + error,
        }
    )
    panels, sizes = style.distinct(points["panel"]), sorted(points["size"].unique().tolist())
    rows = points.assign(kind="mean").to_dict("records")
    for words, value in (lines or {}).items():
        rows += [{"panel": p, "kind": "line", "words": words, "level": value} for p in panels]
    reach = pd.concat([points["low"], points["high"], pd.Series(list((lines or {}).values()))])
    low, high = style.value_domain(reach.to_numpy(dtype="float64"), domain)
    # room for the name of the highest line
    ends = low, high + 0.05 * (high - low) * bool(lines)

    def y(field: str) -> Any:
        channel = style.value_axis(alt.Y, field, y_title, ends)
        if not signed:
            channel["axis"]["labelExpr"] = "format(datum.value, '~g')"
        return channel

    axis = alt.Axis(values=sizes, labelExpr="format(datum.value, ',')", grid=False)
    # room on both sides, so that the first and the last bar are not on the frame
    scale = alt.Scale(type="log", domain=[sizes[0] / 1.5, sizes[-1] * 1.5], nice=False)
    x = alt.X("size:Q", title=x_title, axis=axis, scale=scale)
    means = alt.Chart().transform_filter("datum.kind == 'mean'").encode(x=x, color=look["color"])
    compared = alt.Chart().transform_filter("datum.kind == 'line'")
    named = compared.mark_text(align="left", baseline="bottom", fontSize=style.SMALL, dy=-2).encode(
        x=style.fixed(alt.XValue, 5), y=y("level"), text=alt.Text("words:N")
    )
    chart = style.layered(
        compared.mark_rule(strokeDash=style.DASHES, color=style.GREY, strokeWidth=1.5).encode(
            y=y("level")
        ),
        # letters stay legible on the grid
        named.encode(stroke=alt.value("white"), strokeWidth=alt.value(3), color=alt.value("white")),
        means.mark_line(strokeWidth=2, opacity=0.8).encode(y=y("value")),
        means.mark_rule(strokeWidth=2).encode(y=y("low"), y2=alt.Y2("high:Q")),
        means.mark_point(filled=True, size=80, opacity=1).encode(
            y=y("value"),
            shape=look["shape"],
            tooltip=[alt.Tooltip("series:N"), alt.Tooltip("size:Q"), alt.Tooltip("value:Q")],
        ),
        named.encode(color=alt.value(style.GREY)),
    )
    grid = style.in_panels(style.framed(chart, WIDTH, HEIGHT), rows, panels, 2)
    return style.finish(grid, title, subtitle, total=2 * WIDTH + 20)

"""Scores by how far a policy departs from what was done."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from butfor.present.charts import style

COLORS = (
    *(style.BLUE, style.GREEN, "#6A4FC3", "#8A5A00", "#5E6600"),
    *(style.VERMILLION, "#8E3B73", style.GREY, style.BLACK),
)
SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-left",
    "triangle-down",
    "M-1,-1L1,-1L-1,1L1,1Z",  # an hourglass
    "cross",
    "triangle-right",
)
WIDTH = 270


def scores_chart(
    table: pd.DataFrame,
    *,
    groups: Sequence[str],
    title: str = "How far from the truth, by how much the policy changes?",
    subtitle: str = "Mean Brier score, 0 at best; bars: two standard errors over logs.",
    x_title: str = "decisions of the episode that the policy changes",
    y_title: str = "Brier score",
) -> alt.FacetChart:
    """Draw mean scores by group, a panel per case and a line per mechanism.

    Parameters
    ----------
    table
        One row per mark: `panel, series, group, value, se`; at most nine series.
    groups
        The groups from left to right.
    """
    style.require_columns(table, ("panel", "series", "group", "value", "se"), "table")
    names = style.distinct(table["series"])
    look = style.series_look("series", names, COLORS, SHAPES, columns=2)
    error = 2 * table["se"].fillna(0.0)
    points = pd.DataFrame(
        {
            "panel": [style.broken(name, WIDTH, bold=True) for name in table["panel"]],
            "series": table["series"].map(str),
            "group": table["group"].map(str),
            "score": table["value"],
            "low": (table["value"] - error).clip(lower=0.0),
            "high": table["value"] + error,
        }
    )
    axis = alt.Axis(labelAngle=0, labelFontSize=style.SMALL - 1)
    base = alt.Chart().encode(
        x=alt.X("group:N", sort=list(groups), title=x_title, axis=axis),
        xOffset=alt.XOffset("series:N", sort=names),
        color=look["color"],
    )
    score = alt.Y("score:Q", title=y_title, scale=alt.Scale(zero=True))
    chart = style.layered(
        base.mark_line(strokeWidth=1.2, opacity=0.55).encode(y=score),
        base.mark_rule(strokeWidth=1.5, opacity=0.8).encode(
            y=alt.Y("low:Q", title=y_title), y2="high:Q"
        ),
        base.mark_point(filled=True, size=46, opacity=1).encode(
            y=score, shape=look["shape"], tooltip=["series:N", "score:Q"]
        ),
    )
    rows = points.to_dict("records")
    panels = style.in_panels(
        style.framed(chart, WIDTH, 190), rows, style.distinct(points["panel"]), 2
    )
    return style.finish(
        panels.resolve_scale(y="independent"), title, subtitle, total=2 * WIDTH + 120
    )

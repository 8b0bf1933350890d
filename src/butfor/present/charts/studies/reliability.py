"""Reliability curves: how often an outcome happens when it is given a probability."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts import style

SIDE = 128


def reliability_chart(
    table: pd.DataFrame,
    *,
    columns: int = 4,
    title: str = "Does it happen as often as predicted?",
    subtitle: str = "Predicted probability in bins; larger marks: more episodes. Dashed: a "
    "prediction that is right.",
) -> alt.FacetChart:
    """Draw the true share against the predicted one, a panel per mechanism, a curve per outcome.

    Parameters
    ----------
    table
        One row per point: `panel, series, predicted, true, episodes`; at most three series.
    """
    style.require_columns(table, ("panel", "series", "predicted", "true", "episodes"), "table")
    look = style.series_look("series", style.distinct(table["series"]), columns=3)
    points = table.assign(
        panel=[style.broken(name, SIDE + 20, bold=True) for name in table["panel"]],
        series=table["series"].map(str),
        size=12 + 150 * (table["episodes"] / table["episodes"].max()) ** 0.5,
    )
    rows = points[["panel", "series", "predicted", "true", "episodes", "size"]].to_dict("records")
    base = alt.Chart().encode(
        x=style.percent_axis(alt.X, "predicted", "predicted", ticks=3),
        y=style.percent_axis(alt.Y, "true", "true", ticks=3),
        color=look["color"],
    )
    marks = base.mark_point(filled=True, opacity=0.9).encode(
        shape=look["shape"],
        size=alt.Size("size:Q", scale=None, legend=None),
        tooltip=["series:N", "predicted:Q", "true:Q", "episodes:Q"],
    )
    chart = style.layered(
        style.diagonal("predicted", "true"), base.mark_line(strokeWidth=1.5, opacity=0.6), marks
    )
    panels = style.distinct(points["panel"])
    panelled = style.in_panels(style.framed(chart, SIDE, SIDE), rows, panels, columns)
    total = max(400, min(columns, len(panels)) * (SIDE + 30) + 60)
    return style.finish(panelled, title, subtitle, total=total)

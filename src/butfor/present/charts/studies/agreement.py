"""A probability of each episode, computed in two ways."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts import style
from butfor.present.text import ESTIMATE

SIDE = 400


def agreement_chart(
    table: pd.DataFrame,
    *,
    title: str = "Do two ways of asking agree about each episode?",
    subtitle: str = f"One mark per episode; on the dashed line both agree. {ESTIMATE}",
    axis_titles: tuple[str, str] = ("one way", "the other way"),
) -> alt.LayerChart:
    """Draw a probability of each episode, computed in one way, against the same one in another.

    Parameters
    ----------
    table
        One row per episode: `id, series, x, y`; at most three series.
    axis_titles
        Of the horizontal and the vertical axis.
    """
    style.require_columns(table, ("id", "series", "x", "y"), "table")
    style.require_shares(table, ("x", "y"), "table")
    look = style.series_look("series", style.distinct(table["series"]), columns=3)
    points = table.assign(id=table["id"].map(str), series=table["series"].map(str))
    marks = alt.Chart(style.data(points[["id", "series", "x", "y"]].to_dict("records"))).encode(
        x=style.percent_axis(alt.X, "x", axis_titles[0]),
        y=style.percent_axis(alt.Y, "y", axis_titles[1]),
        tooltip=["id:N", "series:N", "x:Q", "y:Q"],
        **look,
    )
    chart = style.layered(
        style.diagonal("x", "y"), marks.mark_point(filled=True, size=34, opacity=0.5)
    )
    return style.finish(style.framed(chart, SIDE, SIDE), title, subtitle, total=SIDE + 70)

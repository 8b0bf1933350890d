"""The uncertainty about a hidden state, by step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts import style

WIDTH = 430


def entropy_chart(
    table: pd.DataFrame,
    *,
    title: str = "How uncertain is the hidden state?",
    subtitle: str = "Mean entropy over episodes that have not ended, given all that was observed "
    "of each, later steps included; 0 bits: known for certain.",
) -> alt.LayerChart:
    """Draw the mean entropy of the hidden state by step, one line per series.

    Parameters
    ----------
    table
        One row per series and step: `series, step, bits, episodes`; at most three series.
    """
    style.require_columns(table, ("series", "step", "bits", "episodes"), "table")
    look = style.series_look("series", style.distinct(table["series"]), columns=1)
    rows = table.assign(series=table["series"].map(str)).to_dict("records")
    # at least a tenth of a bit, so that certainty is not blown up to fill the chart
    top = max(1.1 * float(table["bits"].max()), 0.1)
    steps = alt.Scale(domain=[-0.5, int(table["step"].max()) + 0.5], nice=False)
    base = alt.Chart(style.data(rows)).encode(
        x=alt.X("step:Q", title="step", scale=steps, axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("bits:Q", title="bits", scale=alt.Scale(domain=[0, top])),
        color=look["color"],
    )
    points = base.mark_point(filled=True, size=50, opacity=1)
    tooltip = ["series:N", "step:Q", "bits:Q", "episodes:Q"]
    chart = style.layered(
        base.mark_line(strokeWidth=2), points.encode(shape=look["shape"], tooltip=tooltip)
    )
    return style.finish(style.framed(chart, WIDTH, 210), title, subtitle, total=WIDTH + 60)

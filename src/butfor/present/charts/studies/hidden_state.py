"""Charts of a hidden state: its levels by step, what remains unknown, two ways of asking."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts import style
from butfor.present.text import ESTIMATE, SIMULATOR

SIDE, WIDTH = 400, 430  # of the charts of agreement and of entropy
SHADES = ["#F4F6F9", "#7FB2D6", "#004C79"]
CELL, LEVEL, WIDEST = 26, 22, 270  # pixels: of a step at most, of a level, of a panel


@style.unchecked
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
        tooltip=[
            alt.Tooltip("id:N"),
            alt.Tooltip("series:N"),
            alt.Tooltip("x:Q"),
            alt.Tooltip("y:Q"),
        ],
        **look,
    )
    chart = style.layered(
        style.diagonal("x", "y"), marks.mark_point(filled=True, size=34, opacity=0.5)
    )
    return style.finish(style.framed(chart, SIDE, SIDE), title, subtitle, total=SIDE + 70)


@style.unchecked
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
    tooltip = [
        alt.Tooltip("series:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("bits:Q"),
        alt.Tooltip("episodes:Q"),
    ]
    chart = style.layered(
        base.mark_line(strokeWidth=2), points.encode(shape=look["shape"], tooltip=tooltip)
    )
    return style.finish(style.framed(chart, WIDTH, 210), title, subtitle, total=WIDTH + 60)


@style.unchecked
def latent_chart(
    table: pd.DataFrame,
    *,
    columns: int = 2,
    title: str = "What is known about the hidden state?",
    subtitle: str = "Darker: more probable, given all that was observed of the episode. Ring: the "
    f"true level, {SIMULATOR}. {ESTIMATE}",
) -> alt.FacetChart:
    """Draw the probability of each level at each step, a panel per variable and kind of evidence.

    Parameters
    ----------
    table
        One row per step and level: `panel, step, level, probability, truth`; levels from the lowest
        up, and `truth` says whether the level is the true one.
    """
    fields = ["panel", "step", "level", "probability", "truth"]
    style.require_columns(table, fields, "table")
    steps = int(table["step"].max()) + 1
    width = min(CELL * steps, WIDEST)
    cells = table.assign(
        panel=[style.broken(name, width, bold=True) for name in table["panel"]],
        level=table["level"].map(str),
        truth=table["truth"].astype(bool),
    )
    ticks = list(range(0, steps, 1 if steps <= 12 else 5))
    axis = alt.Axis(values=ticks, labelAngle=0, labelFontSize=style.SMALL)
    base = alt.Chart().encode(
        x=alt.X("step:O", title="step", axis=axis),
        # the first level of each panel at the bottom
        y=alt.Y("level:N", sort=style.distinct(cells["level"])[::-1], title=None),
        tooltip=[alt.Tooltip("step:Q"), alt.Tooltip("level:N"), alt.Tooltip("probability:Q")],
    )
    shade = alt.Color("probability:Q", legend=None).scale(domain=[0, 0.5, 1], range=SHADES)
    chart = style.layered(
        base.mark_rect(cornerRadius=2, stroke="white", strokeWidth=2).encode(color=shade),
        base.transform_filter("datum.truth").mark_point(
            size=80, strokeWidth=2.5, stroke=style.VERMILLION, fill=None, opacity=1
        ),
    )
    rows, names = cells[fields].to_dict("records"), style.distinct(cells["panel"])
    panels = style.in_panels(style.framed(chart, width, alt.Step(LEVEL)), rows, names, columns)
    total = min(columns, len(names)) * (width + 86)
    panels = panels.resolve_scale(y="independent", x="independent")
    return style.finish(panels, title, subtitle, total=total)

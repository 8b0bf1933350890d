"""Charts of predictions against the truth: scores, bounds and calibration by mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from butfor.present.charts import style

COLORS = (
    *(style.BLUE, style.GREEN, "#6A4FC3", "#8A5A00", "#5E6600"),
    *(style.VERMILLION, "#8E3B73", "#00707A", style.GREY, style.BLACK),
)
SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "triangle-left", "triangle-down"),
    *("M-1,-1L1,-1L-1,1L1,1Z", "M-1,-1L-1,1L1,-1L1,1Z"),  # an hourglass, standing and lying
    *("cross", "triangle-right"),
)
CLASS_COLORS = ("#A9CDE4", style.BLUE, "#00375A")
SCORES_WIDTH, BOUNDS_WIDTH, CURVES_SIDE = 270, 240, 128  # of a panel
BAR = 9
WORDS = ("series", "group", "kind", "outcome")  # columns of names, which are drawn as text


@style.unchecked
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
        One row per mark: `panel, series, group, value, se`; at most ten series.
    groups
        The groups from left to right.
    """
    style.require_columns(table, ("panel", "series", "group", "value", "se"), "table")
    names = style.distinct(table["series"])
    look = style.series_look("series", names, COLORS, SHAPES, columns=2)
    error = 2 * table["se"].fillna(0.0)
    points = table[["panel", "series", "group"]].assign(
        score=table["value"],
        low=(table["value"] - error).clip(lower=0.0),
        high=table["value"] + error,
    )
    axis = alt.Axis(labelAngle=0, labelFontSize=style.SMALL - 1)
    base = alt.Chart().encode(
        x=alt.X("group:N", sort=list(groups), title=x_title, axis=axis),
        xOffset=alt.XOffset("series:N", sort=names),
        color=look["color"],
    )
    score = alt.Y("score:Q", title=y_title, scale=alt.Scale(zero=True))
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.8)
    marks = base.mark_point(filled=True, size=46, opacity=1)
    chart = style.layered(
        base.mark_line(strokeWidth=1.2, opacity=0.55).encode(y=score),
        bars.encode(y=alt.Y("low:Q", title=y_title), y2=alt.Y2("high:Q")),
        marks.encode(
            y=score, shape=look["shape"], tooltip=[alt.Tooltip("series:N"), alt.Tooltip("score:Q")]
        ),
    )
    panels = _in_panels(chart, points, SCORES_WIDTH, 190).resolve_scale(y="independent")
    return style.finish(panels, title, subtitle, total=2 * SCORES_WIDTH + 120)


@style.unchecked
def containment_chart(
    table: pd.DataFrame,
    *,
    kinds: Sequence[str],
    title: str = "Do the bounds contain the truth?",
    subtitle: str = "Bar: mean of the lowest to mean of the highest probability over episodes. "
    "Diamond: how often it truly happens.",
) -> alt.FacetChart:
    """Draw mean bounds on each outcome, a panel per case and a bar per class of mechanisms.

    Parameters
    ----------
    table
        One row per bar: `panel, kind, outcome, low, high, true`.
    kinds
        The classes from widest to narrowest, at most three.
    """
    fields = ["panel", "kind", "outcome", "low", "high", "true"]
    style.require_columns(table, fields, "table")
    look = style.series_look("kind", kinds, CLASS_COLORS, None, columns=3, symbolType="square")
    names = style.distinct(table["outcome"])
    outcomes = alt.Y("outcome:N", sort=names, title=None)
    truth = alt.Chart().encode(x=alt.X("true:Q"), y=outcomes, tooltip=alt.Tooltip("true:Q"))
    row_height = BAR * len(kinds) + 16
    bars = alt.Chart().mark_bar(cornerRadius=2, height=BAR - 2)
    diamonds = truth.mark_point(
        filled=True, shape="diamond", fill=style.VERMILLION, stroke=style.BLACK, size=90, opacity=1
    )
    chart = style.layered(
        bars.encode(
            x=style.percent_axis(alt.X, "low", None),
            x2=alt.X2("high:Q"),
            y=outcomes,
            yOffset=alt.YOffset("kind:N", sort=list(kinds)),
            color=look["color"],
            tooltip=[alt.Tooltip("kind:N"), alt.Tooltip("low:Q"), alt.Tooltip("high:Q")],
        ),
        truth.mark_tick(color=style.VERMILLION, thickness=2, size=row_height - 12, opacity=1),
        diamonds,
    )
    panels = _in_panels(chart, table[fields], BOUNDS_WIDTH, row_height * len(names))
    return style.finish(panels, title, subtitle, total=2 * BOUNDS_WIDTH + 110)


@style.unchecked
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
    fields = ["panel", "series", "predicted", "true", "episodes"]
    style.require_columns(table, fields, "table")
    look = style.series_look("series", style.distinct(table["series"]), columns=3)
    size = 12 + 150 * (table["episodes"] / table["episodes"].max()) ** 0.5
    base = alt.Chart().encode(
        x=style.percent_axis(alt.X, "predicted", "predicted", ticks=3),
        y=style.percent_axis(alt.Y, "true", "true", ticks=3),
        color=look["color"],
    )
    marks = base.mark_point(filled=True, opacity=0.9).encode(
        shape=look["shape"],
        size=alt.Size("size:Q", scale=None, legend=None),
        tooltip=[
            alt.Tooltip("series:N"),
            alt.Tooltip("predicted:Q"),
            alt.Tooltip("true:Q"),
            alt.Tooltip("episodes:Q"),
        ],
    )
    chart = style.layered(
        style.diagonal("predicted", "true"), base.mark_line(strokeWidth=1.5, opacity=0.6), marks
    )
    points = table[fields].assign(size=size)
    panels = _in_panels(chart, points, CURVES_SIDE, CURVES_SIDE, columns, broken=CURVES_SIDE + 20)
    total = max(400, min(columns, table["panel"].nunique()) * (CURVES_SIDE + 30) + 60)
    return style.finish(panels, title, subtitle, total=total)


def _in_panels(
    chart: alt.LayerChart,
    table: pd.DataFrame,
    width: int,
    height: int,
    columns: int = 2,
    broken: int | None = None,
) -> Any:
    """Draw the rows of each `panel` by themselves; names are broken at the width by default."""
    names = [style.broken(name, broken or width, bold=True) for name in table["panel"]]
    words = {name: table[name].map(str) for name in table.columns if name in WORDS}
    rows = table.assign(panel=names, **words).to_dict("records")
    panels = list(dict.fromkeys(names))
    return style.in_panels(style.framed(chart, width, height), rows, panels, columns)

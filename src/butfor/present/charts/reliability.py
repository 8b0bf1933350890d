"""Reliability curves: how often what was given a probability truly happened."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import BLUE, GREEN, GREY, VERMILLION, data, finish, require_columns

COLORS, SHAPES = (VERMILLION, BLUE, GREEN), ("diamond", "circle", "triangle-up")
TICKS = {0.0: "0", 0.5: "50%", 1.0: "100%"}


def reliability_chart(
    table: pd.DataFrame,
    *,
    columns: int = 4,
    title: str = "Does it happen as often as predicted?",
    subtitle: str = "Predicted probability in bins; larger marks: more episodes. Dashed: what a "
    "prediction that holds would give.",
) -> alt.LayerChart:
    """Draw the true share against the predicted one: a panel a mechanism, a curve an outcome.

    Parameters
    ----------
    table
        A row a point: `panel, series, predicted, true, episodes`; at most three series.
    """
    require_columns(table, ("panel", "series", "predicted", "true", "episodes"), "table")
    names = [str(name) for name in table["series"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} series; there are colours for {len(COLORS)}")
    titles = tuple(str(name) for name in table["panel"].unique())
    panels = Panels(titles, columns, (128, 128), (52, 48))
    largest = float(table["episodes"].max())
    points = [
        panels.place(str(row.panel), row.predicted, row.true)
        | {
            "curve": f"{row.panel}/{row.series}",
            "series": str(row.series),
            "predicted": float(row.predicted),
            "true": float(row.true),
            "episodes": int(row.episodes),
            "size": 12 + 150 * (row.episodes / largest) ** 0.5,
        }
        for row in table.itertuples()
    ]
    diagonal = [
        panels.place(name, end, end) | {"curve": name, "order": end}
        for name in titles
        for end in (0.0, 1.0)
    ]
    look = series_legend("series", names, COLORS, SHAPES, columns=3)
    base = alt.Chart(data(points)).encode(**panels.encode(), color=look["color"])
    layers = [
        *panels.frames(TICKS, dict.fromkeys(titles, TICKS), x_title="predicted", y_title="true"),
        alt.Chart(data(diagonal))
        .mark_line(strokeDash=[4, 4], color=GREY, strokeWidth=1)
        .encode(**panels.encode(), detail="curve:N", order="order:Q"),
        base.mark_line(strokeWidth=1.5, opacity=0.6).encode(detail="curve:N", order="predicted:Q"),
        base.mark_point(filled=True, opacity=0.9).encode(
            shape=look["shape"],
            size=alt.Size("size:Q", scale=None, legend=None),
            tooltip=["series:N", "predicted:Q", "true:Q", "episodes:Q"],
        ),
    ]
    return finish(
        layers,
        title,
        subtitle,
        width=panels.width,
        height=panels.height,
        total=max(panels.width, 400),
    )

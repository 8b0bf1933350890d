"""One probability of each episode, found in two ways."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import (
    BLUE,
    ESTIMATE,
    GREEN,
    GREY,
    VERMILLION,
    data,
    finish,
    require_columns,
)

COLORS, SHAPES = (VERMILLION, BLUE, GREEN), ("diamond", "circle", "triangle-up")
TICKS = {0.0: "0", 0.25: "25%", 0.5: "50%", 0.75: "75%", 1.0: "100%"}


def agreement_chart(
    table: pd.DataFrame,
    *,
    title: str = "Do two ways of asking agree about each episode?",
    subtitle: str = f"A mark an episode; on the dashed line both say the same. {ESTIMATE}",
    axis_titles: tuple[str, str] = ("one way", "the other way"),
) -> alt.LayerChart:
    """Draw a probability of each episode, found in one way, over the same found in another.

    Parameters
    ----------
    table
        A row an episode: `id, series, x, y`; at most three series.
    axis_titles
        Below and at the left.
    """
    require_columns(table, ("id", "series", "x", "y"), "table")
    names = [str(name) for name in table["series"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} series; there are colours for {len(COLORS)}")
    values = table[["x", "y"]].to_numpy(dtype=np.float64)
    wrong = ~((values >= 0) & (values <= 1 + 1e-9))
    if wrong.any():
        raise ValueError(f"table holds {values[wrong][0]}; give probabilities, from 0 to 1")
    panels = Panels(("",), 1, (400, 400), (72, 50))
    points = [
        panels.place("", row.x, row.y)
        | {"id": str(row.id), "series": str(row.series), "one": row.x, "other": row.y}
        for row in table.itertuples()
    ]
    diagonal = [panels.place("", end, end) | {"order": end} for end in (0.0, 1.0)]
    look = series_legend("series", names, COLORS, SHAPES, columns=3)
    layers = [
        *panels.frames(TICKS, {"": TICKS}, x_title=axis_titles[0], y_title=axis_titles[1]),
        alt.Chart(data(diagonal))
        .mark_line(strokeDash=[4, 4], color=GREY, strokeWidth=1)
        .encode(**panels.encode(), order="order:Q"),
        alt.Chart(data(points))
        .mark_point(filled=True, size=34, opacity=0.5)
        .encode(**panels.encode(), **look, tooltip=["id:N", "series:N", "one:Q", "other:Q"]),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )

"""How little is known of a hidden state, by step."""

from __future__ import annotations

import altair as alt
import pandas as pd

from butfor.present.charts.level_panels import round_ticks
from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import BLUE, GREEN, VERMILLION, data, finish, require_columns

COLORS, SHAPES = (BLUE, VERMILLION, GREEN), ("circle", "diamond", "triangle-up")


def entropy_chart(
    table: pd.DataFrame,
    *,
    title: str = "How little is known of the hidden state?",
    subtitle: str = "Mean entropy over episodes that are still going, given all that was seen of "
    "each, later steps included; 0 bits: known for certain.",
) -> alt.LayerChart:
    """Draw the mean entropy of the hidden state by step, a line a series.

    Parameters
    ----------
    table
        A row a step: `series, step, bits, episodes`; at most three series.
    """
    require_columns(table, ("series", "step", "bits", "episodes"), "table")
    names = [str(name) for name in table["series"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} series; there are colours for {len(COLORS)}")
    panels = Panels(("",), 1, (430, 210), (62, 50))
    last = max(int(table["step"].max()), 1)
    ticks = round_ticks(0.0, max(float(table["bits"].max()), 0.1) * 1.1, most=6)
    top = max(ticks[-1], float(table["bits"].max()) * 1.05, 0.1)
    points = [
        panels.place("", (row.step + 0.5) / (last + 1), row.bits / top)
        | {
            "series": str(row.series),
            "step": int(row.step),
            "bits": float(row.bits),
            "episodes": int(row.episodes),
        }
        for row in table.itertuples()
    ]
    every = 1 if last <= 10 else 5
    x_ticks = {(step + 0.5) / (last + 1): str(step) for step in range(0, last + 1, every)}
    y_ticks = {"": {tick / top: f"{tick:g}" for tick in ticks}}
    look = series_legend("series", names, COLORS, SHAPES, columns=1)
    base = alt.Chart(data(points)).encode(**panels.encode(), color=look["color"])
    layers = [
        *panels.frames(x_ticks, y_ticks, x_title="step", y_title="bits"),
        base.mark_line(strokeWidth=2).encode(detail="series:N", order="step:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            shape=look["shape"], tooltip=["series:N", "step:Q", "bits:Q", "episodes:Q"]
        ),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )

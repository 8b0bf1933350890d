"""Scores by how far a policy is from what was done."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    VERMILLION,
    data,
    finish,
    pixels,
    require_columns,
)

COLORS = (BLUE, GREEN, "#6A4FC3", "#8A5A00", "#5E6600", VERMILLION, "#8E3B73", GREY, BLACK)
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
APART = 5  # pixels between marks of two series in one group


def scores_chart(
    table: pd.DataFrame,
    *,
    groups: Sequence[str],
    title: str = "How far from the truth, by how much the policy changes?",
    subtitle: str = "Mean Brier score, 0 at best; bars: two standard errors over logs.",
    x_title: str = "decisions of the episode that the policy changes",
    y_title: str = "Brier score",
) -> alt.LayerChart:
    """Draw mean scores by group: a panel a case, a line a mechanism.

    Parameters
    ----------
    table
        A row a mark: `panel, series, group, value, se`; at most nine series.
    groups
        The groups from left to right.
    """
    require_columns(table, ("panel", "series", "group", "value", "se"), "table")
    names = [str(name) for name in table["series"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} series; there are colours for {len(COLORS)}")
    titles = tuple(str(name) for name in table["panel"].unique())
    panels = Panels(titles, 2, (270, 190), (62, 50))
    highest = (table["value"] + 2 * table["se"].fillna(0.0)).groupby(table["panel"]).max()
    tops = {str(name): _round_up(float(value)) for name, value in highest.items()}
    points = []
    for row in table.itertuples():
        top = tops[str(row.panel)]
        series, group = names.index(str(row.series)), list(groups).index(row.group)
        middle = (group + 0.5) / len(groups)
        shift = (series - (len(names) - 1) / 2) * APART / panels.size[0]
        error = 2 * row.se if math.isfinite(row.se) else 0.0
        ends = [min(max(row.value + sign * error, 0.0), top) / top for sign in (-1, 1)]
        points.append(
            panels.place(str(row.panel), middle + shift, row.value / top)
            | {
                "curve": f"{row.panel}/{row.series}",
                "series": str(row.series),
                "order": group,
                "score": float(row.value),
                "y_low": panels.place(str(row.panel), 0, ends[0])["y"],
                "y_high": panels.place(str(row.panel), 0, ends[1])["y"],
            }
        )
    look = series_legend("series", names, COLORS, SHAPES, columns=2)
    x_ticks = {(place + 0.5) / len(groups): name for place, name in enumerate(groups)}
    y_ticks = {
        name: {part / 4: f"{top * part / 4:.2g}" for part in range(5)} for name, top in tops.items()
    }
    base = alt.Chart(data(points)).encode(x=panels.encode()["x"], color=look["color"])
    down = panels.encode()["y"]
    layers = [
        *panels.frames(x_ticks, y_ticks, x_title=x_title, y_title=y_title),
        base.mark_line(strokeWidth=1.2, opacity=0.55).encode(
            y=down, detail="curve:N", order="order:Q"
        ),
        base.mark_rule(strokeWidth=1.5, opacity=0.8).encode(
            y=pixels("y_low", panels.height, down=True), y2="y_high:Q"
        ),
        base.mark_point(filled=True, size=46, opacity=1).encode(
            y=down, shape=look["shape"], tooltip=["series:N", "score:Q"]
        ),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )


def _round_up(value: float) -> float:
    """Return a top for an axis of four steps that is not below the value; scores end at 2."""
    tops = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.6, 2.0)
    return next((top for top in tops if value <= top), 2.0)

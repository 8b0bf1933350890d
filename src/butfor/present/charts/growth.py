"""How time and memory grow with the size of a log."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    GREY,
    SMALL,
    VERMILLION,
    Row,
    data,
    finish,
    require_columns,
)

TIME, MEMORY = "Time", "Peak memory"
COLUMNS = {TIME: "seconds", MEMORY: "bytes"}
COLORS, SHAPES = (BLUE, VERMILLION), ("circle", "diamond")
ROOM = 0.3  # decades left free at either end of an axis


def growth_chart(
    table: pd.DataFrame,
    *,
    title: str = "What does a larger log cost?",
    subtitle: str = "Both axes go in steps of ten. Dashed: growth in proportion to the episodes, "
    "through the largest log.",
) -> alt.LayerChart:
    """Draw time and peak memory over the number of episodes, both on logarithmic scales.

    Parameters
    ----------
    table
        A row a log: `episodes, seconds, bytes`, all above 0.
    """
    require_columns(table, ("episodes", "seconds", "bytes"), "table")
    values = table[["episodes", "seconds", "bytes"]].to_numpy(dtype=np.float64)
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise ValueError(f"table holds {values[wrong][0]}; a logarithmic scale begins above 0")
    ordered = table.sort_values("episodes")
    episodes = ordered["episodes"].to_numpy(dtype=np.float64)
    panels = Panels((TIME, MEMORY), 2, (250, 250), (78, 50))
    across = _Scale(episodes)
    y_ticks = {}
    points: list[Row] = []
    lines: list[Row] = []
    for panel, column in COLUMNS.items():
        cost = ordered[column].to_numpy(dtype=np.float64)
        proportional = cost[-1] * episodes / episodes[-1]
        up = _Scale(np.append(cost, proportional))
        y_ticks[panel] = {up.place(tick): _words(panel, tick) for tick in up.ticks}
        for order, (size, value, line) in enumerate(zip(episodes, cost, proportional, strict=True)):
            place = {"panel": panel, "order": order, "episodes": size}
            words = {"value": value, "words": _words(panel, value)}
            x = across.place(size)
            points.append(place | words | panels.place(panel, x, up.place(value)))
            lines.append(place | {"line": line} | panels.place(panel, x, up.place(line)))
    x_ticks = {across.place(tick): f"{tick:,.0f}" for tick in across.ticks}
    look = series_legend("panel", (TIME, MEMORY), COLORS, SHAPES, columns=2)
    look = {name: channel.legend(None) for name, channel in look.items()}
    base = alt.Chart(data(points)).encode(**panels.encode())
    layers = [
        *panels.frames(x_ticks, y_ticks, x_title="episodes in the log"),
        alt.Chart(data(lines))
        .mark_line(strokeDash=[4, 4], color=GREY, strokeWidth=1)
        .encode(**panels.encode(), detail="panel:N", order="order:Q"),
        base.mark_line(strokeWidth=2).encode(color=look["color"], order="order:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            **look, tooltip=["panel:N", "episodes:Q", "words:N"]
        ),
        base.mark_text(fontSize=SMALL, color=BLACK, dy=-15).encode(text="words:N"),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )


class _Scale:
    """A logarithmic scale with a tick at each power of ten."""

    def __init__(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        logs = np.log10(values)
        self.low = math.floor(float(logs.min()) + 1e-9) - ROOM
        self.high = math.ceil(float(logs.max()) - 1e-9) + ROOM
        powers = range(math.ceil(self.low), math.floor(self.high) + 1)
        self.ticks = [10.0**power for power in powers]

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (math.log10(value) - self.low) / (self.high - self.low)


def _words(panel: str, value: float) -> str:
    """Write seconds or bytes with their unit and two digits, three from 100 on."""
    if panel == TIME:
        return f"{_digits(value)} s"
    unit, name = next((u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (0, "kB")) if value >= u)
    return f"{_digits(value / (unit or 1e3))} {name}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"

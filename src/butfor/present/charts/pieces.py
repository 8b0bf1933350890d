"""Pieces that add up to an error, as stacks above and below zero, a panel a setting."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.level_panels import TOTAL, inner_width, lay_out, panel_layers
from butfor.present.charts.rows import Domain
from butfor.present.charts.style import BLACK, Row, data, finish, pixels, require_columns

COLORS = ["#56B4E9", "#9AA3AE", "#D55E00", "#007A5A"]  # of the pieces, in their order
BAR = 0.68  # share of a level's room


def pieces_chart(
    pieces: pd.DataFrame,
    *,
    title: str = "What is the error made of?",
    subtitle: str | None = None,
    axis_title: str = "Part of the error",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw, at each level of each panel, up to four pieces and their sum.

    Parameters
    ----------
    pieces
        A row a piece: `panel, level, piece, value`, in the order to be drawn. Pieces above zero
        stand on each other, those below hang from zero; the diamond is the sum of all.
    domain
        Ends of the scale, moved out where the stacks go beyond them.
    """
    require_columns(pieces, ("panel", "level", "piece", "value"), "pieces")
    names = [str(name) for name in pieces["piece"].unique()]
    if len(names) > len(COLORS):
        raise ValueError(f"{len(names)} pieces, {len(COLORS)} at most: {', '.join(names)}")
    levels = {
        str(panel): [str(level) for level in group["level"].unique()]
        for panel, group in pieces.groupby("panel", sort=False)
    }
    stacks = [
        _stack(str(panel), str(level), group)
        for (panel, level), group in pieces.groupby(["panel", "level"], sort=False)
    ]
    reach = np.array([value for stack in stacks for row in stack for value in row["ends"]])
    low, high = domain or (0.0, 0.0)
    low, high = min(low, float(reach.min())), max(high, float(reach.max()))
    room = 0.05 * (high - low) or 1.0
    panels, height = lay_out(levels, low - room * (low < 0), high + room, height=260)
    place = {panel.name: panel for panel in panels}
    bars: list[Row] = []
    sums: list[Row] = []
    for stack in stacks:
        panel, level = place[stack[0]["panel"]], stack[0]["level"]
        half = BAR / 2
        for row in stack:
            bottom, top = (panel.y(end) for end in row["ends"])
            number = f"{row['value']:+.3f}".replace("-", "\N{MINUS SIGN}")
            bars.append(
                {"name": row["name"], "level": level, "value": row["value"], "number": number}
                | {"x": panel.x(level, -half), "x2": panel.x(level, half)}
                | {"y": top, "y2": bottom}
            )
        total = sum(row["value"] for row in stack)
        sums.append({"x": panel.x(level), "y": panel.y(total), "sum": total, "level": level})
    if subtitle is None:
        subtitle = "Pieces above zero are added, those below taken off. Diamond: what is left."
    layers = [
        *panel_layers(panels, height, axis_title=axis_title, strong={}),
        *_mark_layers(bars, sums, names, height),
    ]
    return finish(layers, title, subtitle, width=inner_width(), height=height, total=TOTAL)


def _stack(panel: str, level: str, group: pd.DataFrame) -> list[Row]:
    """Where each piece begins and ends."""
    above = below = 0.0
    rows: list[Row] = []
    for name, value in zip(group["piece"], group["value"].astype(float), strict=True):
        start = above if value >= 0 else below
        ends = sorted((start, start + value))
        above, below = max(above, start + value), min(below, start + value)
        rows.append(
            {"panel": panel, "level": level, "name": str(name), "value": value, "ends": ends}
        )
    return rows


def _mark_layers(
    bars: list[Row], sums: list[Row], names: list[str], height: int
) -> list[alt.Chart]:
    legend = alt.Legend(title=None, orient="top", symbolSize=160, symbolType="square")
    color = alt.Color("name:N", legend=legend).scale(domain=names, range=COLORS[: len(names)])
    x, y = pixels("x", inner_width()), pixels("y", height, down=True)
    return [
        alt.Chart(data([bar for bar in bars if bar["value"] != 0]))
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=x, x2="x2:Q", y=y, y2="y2:Q", color=color, tooltip=["name:N", "level:N", "number:N"]
        ),
        alt.Chart(data(sums))
        .mark_point(shape="diamond", filled=True, size=90, opacity=1)
        .encode(x=x, y=y, color=alt.value(BLACK), tooltip=["level:N", "sum:Q"]),
    ]

"""Panels of a picture: values upwards on one scale, named levels side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from butfor.present.charts.style import (
    BLACK,
    GREY,
    LINE,
    LINE_HEIGHT,
    TEXT,
    Row,
    data,
    pixels,
    wrap,
)

TOTAL = 640  # width of the picture
AXIS = 66  # room for numbers at the left of the first column
GAP = 22  # between columns
HEAD, FOOT = 30, 34  # room for a panel's name above it and for levels below it


@dataclass(frozen=True)
class Panel:
    """Where a panel lies, in pixels, and what it can show."""

    name: str
    levels: tuple[str, ...]
    left: float
    top: float
    width: float
    height: float
    low: float  # values at its lower and upper edge
    high: float

    def x(self, level: str, shift: float = 0.0) -> float:
        """Middle of a level, moved by a share of its room."""
        return self.left + self.width * (self.levels.index(level) + 0.5 + shift) / len(self.levels)

    def y(self, value: float) -> float:
        """Height of a value; beyond the scale its edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.top + self.height * (1 - share)


def lay_out(
    levels: Mapping[str, Sequence[str]],
    low: float,
    high: float,
    *,
    columns: int = 2,
    height: int = 170,
) -> tuple[list[Panel], int]:
    """Place a panel for each name, row by row; return them and the height of all."""
    columns = min(columns, len(levels))
    width = (TOTAL - AXIS - GAP * (columns - 1)) / columns
    panels = []
    for place, (name, mine) in enumerate(levels.items()):
        row, column = divmod(place, columns)
        left, top = column * (width + GAP), HEAD + row * (height + HEAD + FOOT)
        panels.append(Panel(name, tuple(mine), left, top, width, height, low, high))
    return panels, math.ceil(panels[-1].top + height + FOOT)


def panel_layers(
    panels: Sequence[Panel], height: int, *, axis_title: str, strong: Mapping[str, str]
) -> list[alt.Chart]:
    """Draw frames, scales, names and levels; `strong` levels, by panel, are written bold."""
    across = inner_width()
    frames: list[Row] = []
    lines: list[Row] = []
    for panel in panels:
        right, bottom = panel.left + panel.width, panel.top + panel.height
        frames.append({"x": panel.left, "x2": right, "y": panel.top, "y2": bottom})
        for tick in round_ticks(panel.low, panel.high):
            lines.append({"x": panel.left, "x2": right, "y": panel.y(tick), "zero": tick == 0})
    x, y = pixels("x", across), pixels("y", height, down=True)
    grid = alt.Chart(data(lines)).encode(x=x, x2="x2:Q", y=y)
    texts = _texts(panels, strong)
    layers = [
        grid.transform_filter("!datum.zero").mark_rule(color="#E3E6EA"),
        grid.transform_filter("datum.zero").mark_rule(color=GREY, strokeWidth=1.5),
        alt.Chart(data(frames))
        .mark_rect(stroke=LINE, fill=None)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q"),
    ]
    for align in ("left", "center", "right"):
        for weight in ("normal", "bold"):
            chosen = [row for row in texts if (row["align"], row["weight"]) == (align, weight)]
            if chosen:
                mark = alt.Chart(data(chosen)).mark_text(
                    align=align, fontWeight=weight, color=BLACK, lineHeight=LINE_HEIGHT
                )
                layers.append(mark.encode(x=x, y=y, text="text:N"))
    title: Row = {"text": axis_title, "x": -AXIS + 12, "y": panels[0].top + panels[0].height / 2}
    upwards = alt.Chart(data([title])).mark_text(angle=270, align="center")
    return [*layers, upwards.encode(x=x, y=y, text="text:N")]


def inner_width() -> int:
    """Width of all panels together, without the numbers at their left."""
    return TOTAL - AXIS


def _texts(panels: Sequence[Panel], strong: Mapping[str, str]) -> list[Row]:
    texts: list[Row] = []

    def add(text: object, x: float, y: float, align: str, weight: str = "normal") -> None:
        texts.append({"text": text, "x": x, "y": y, "align": align, "weight": weight})

    for panel in panels:
        name = wrap(panel.name, panel.width, TEXT, bold=True, lines=1)
        add(name, panel.left, panel.top - 12, "left", "bold")
        for level in panel.levels:
            room = panel.width / len(panel.levels)
            weight = "bold" if strong.get(panel.name) == level else "normal"
            label = wrap(level, room, TEXT, lines=1)
            add(label, panel.x(level), panel.top + panel.height + 13, "center", weight)
        if panel.left == 0:
            for tick in round_ticks(panel.low, panel.high):
                words = "0" if tick == 0 else f"{tick:+g}".replace("-", "\N{MINUS SIGN}")
                add(words, -8, panel.y(tick), "right")
    return texts


def round_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round values between two, so many at most."""
    rough = (high - low) / (most - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]

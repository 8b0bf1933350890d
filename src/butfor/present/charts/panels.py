"""Small pictures side by side on one plane, each with a title and axes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from butfor.present.charts.style import (
    BLACK,
    GREY,
    LINE,
    LINE_HEIGHT,
    SMALL,
    Row,
    data,
    pixels,
    wrap,
)

GRID = "#E3E6EA"


@dataclass(frozen=True)
class Panels:
    """Where the panels of a picture lie, in pixels, row by row."""

    titles: tuple[str, ...]
    columns: int
    size: tuple[int, int]  # width and height of one
    gap: tuple[int, int]  # room at the left of each for its labels, and below it for its axis

    @property
    def width(self) -> int:
        """Width of the plane."""
        return min(self.columns, len(self.titles)) * (self.size[0] + self.gap[0])

    @property
    def height(self) -> int:
        """Height of the plane."""
        return sum(head + self.size[1] + self.gap[1] for head in self._heads)

    @property
    def _heads(self) -> list[int]:
        """Room for the titles of each row of panels."""
        lines = [len(self._broken(title)) for title in self.titles]
        starts = range(0, len(lines), self.columns)
        return [LINE_HEIGHT * max(lines[start : start + self.columns]) + 10 for start in starts]

    def _broken(self, title: str) -> list[str]:
        return wrap(title, self.size[0] + self.gap[0] - 20, SMALL, bold=True, lines=4)

    def corner(self, title: str) -> tuple[float, float]:
        """Left upper corner of the panel with this title."""
        row, column = divmod(self.titles.index(title), self.columns)
        above = row * (self.size[1] + self.gap[1]) + sum(self._heads[: row + 1])
        return column * (self.size[0] + self.gap[0]) + self.gap[0], above

    def place(self, title: str, x: float, y: float) -> dict[str, float]:
        """Pixels of a point of a panel, both coordinates from 0 to 1, y upwards."""
        left, top = self.corner(title)
        return {"x": left + x * self.size[0], "y": top + (1 - y) * self.size[1]}

    def encode(self) -> dict[str, Any]:
        """Return the channels that place marks by the fields x and y."""
        return {"x": pixels("x", self.width), "y": pixels("y", self.height, down=True)}

    def frames(
        self,
        x_ticks: Mapping[float, str],
        y_ticks: Mapping[str, Mapping[float, str]],
        *,
        x_title: str = "",
        y_title: str = "",
        y_grid: bool = True,
    ) -> list[alt.Chart]:
        """Draw titles, frames, ticks with their words by place from 0 to 1, and axis titles.

        `y_ticks` are given by panel, `x_ticks` are the same for all.
        """
        boxes, lines = [], []
        words: dict[str, list[Row]] = {"title": [], "below": [], "left": [], "side": []}
        for title in self.titles:
            left, top = self.corner(title)
            right, bottom = left + self.size[0], top + self.size[1]
            boxes.append({"x": left, "x2": right, "y": top, "y2": bottom})
            broken = self._broken(title)
            head = top - 6 - LINE_HEIGHT * len(broken) + LINE_HEIGHT / 2
            words["title"].append({"x": left, "y": head, "words": broken})
            for at, word in x_ticks.items():
                x = left + at * self.size[0]
                lines.append({"x": x, "x2": x, "y": top, "y2": bottom})
                words["below"].append({"x": x, "y": bottom + 12, "words": word.split("\n")})
            for at, word in y_ticks[title].items():
                y = top + (1 - at) * self.size[1]
                if y_grid:
                    lines.append({"x": left, "x2": right, "y": y, "y2": y})
                words["left"].append({"x": left - 6, "y": y, "words": word})
            if x_title:
                low = bottom + 30
                words["below"].append({"x": (left + right) / 2, "y": low, "words": x_title})
            if y_title:
                middle = {"x": left - self.gap[0] + 12, "y": (top + bottom) / 2, "words": y_title}
                words["side"].append(middle)
        layers = [alt.Chart(data(boxes)).mark_rect(fill=None, stroke=LINE).encode(**self._ends())]
        layers.append(alt.Chart(data(lines)).mark_rule(color=GRID).encode(**self._ends()))
        styles: dict[str, Row] = {
            "title": {"align": "left", "fontWeight": "bold", "fontSize": SMALL},
            "below": {"align": "center", "fontSize": SMALL - 1, "color": GREY},
            "left": {"align": "right", "fontSize": SMALL - 1, "color": BLACK},
            "side": {"align": "center", "angle": 270, "fontSize": SMALL - 1, "color": GREY},
        }
        for kind, rows in words.items():
            if rows:
                marks = alt.Chart(data(rows)).mark_text(lineHeight=LINE_HEIGHT, **styles[kind])
                layers.append(marks.encode(text="words:N", **self.encode()))
        return layers

    def _ends(self) -> dict[str, Any]:
        return self.encode() | {"x2": "x2:Q", "y2": "y2:Q"}


def series_legend(
    field: str, names: Sequence[str], colors: Sequence[str], shapes: Sequence[str], *, columns: int
) -> dict[str, Any]:
    """Return colour and shape of series by name, with one legend for both."""
    legend = alt.Legend(
        title=None,
        orient="top",
        symbolSize=110,
        symbolOpacity=1,
        columns=columns,
        labelLimit=330,
        offset=6,
    )
    size = len(names)
    return {
        "color": alt.Color(f"{field}:N", legend=legend).scale(
            domain=list(names), range=list(colors[:size])
        ),
        "shape": alt.Shape(f"{field}:N", legend=legend).scale(
            domain=list(names), range=list(shapes[:size])
        ),
    }

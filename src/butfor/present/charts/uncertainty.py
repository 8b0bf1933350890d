"""Two uncertainties of every episode, side by side and never in one bar: mechanism and model."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.present.charts.level_panels import round_ticks
from butfor.present.charts.rows import Domain, value_domain
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    ESTIMATE,
    GREEN,
    GREY,
    LINE,
    LINE_HEIGHT,
    SMALL,
    TEXT,
    Row,
    data,
    finish,
    pixels,
    require_columns,
    text_width,
    wrap,
)

TOTAL = 640
GAP = 26  # between the two panels
NAMES = 118  # the most room for ids at the left
STEP = 24  # height of a row
MOST = 40
CAUSAL, STATISTICAL = "Which mechanism?", "How sure is the model?"
HOLDS = "Holds only if the model is right."
COVERS = "Covers what the log leaves open about the model, not its causal assumptions."
NUMBERS = (
    "observed_return",
    "expected_return",
    "low_any",
    "high_any",
    "low_stable",
    "high_stable",
    "low_credible",
    "high_credible",
)


def uncertainty_chart(
    episodes: pd.DataFrame,
    *,
    title: str = "For whom is it clear that the policy would have differed?",
    subtitle: str | None = None,
    axis_title: str = "Expected return less what was observed",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw what is open about each episode: which mechanism at the left, which model at the right.

    The two are not comparable and are not added: bounds take the model for granted, credible
    intervals the mechanism. Rows are sorted by difference, the largest at the top.

    Parameters
    ----------
    episodes
        A row an episode, up to forty: `id` and `observed_return, expected_return`
        (`Counterfactuals.frame()`), `low_any, high_any, low_stable, high_stable`
        (`Bounds.frame()`), `low_credible, high_credible` (`Credible.frame()`).
    domain
        Ends of both axes, moved out where the data go beyond them; by default those of the data.
    """
    require_columns(episodes, ("id", *NUMBERS), "episodes")
    if len(episodes) > MOST:
        raise ValueError(f"{len(episodes)} episodes, {MOST} at most; give those to look at")
    values = episodes[list(NUMBERS)].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"episode {episodes['id'].iloc[row]}: {NUMBERS[column]} is {values[row, column]}; give "
            "a number"
        )
    differences = values[:, 1:] - values[:, :1]
    order = np.argsort(-differences[:, 0], kind="stable")
    names = [str(episodes["id"].iloc[i]) for i in order]
    widest = max(text_width(name, TEXT) for name in names)
    width = TOTAL - min(NAMES, int(widest) + 18)
    plane = _Plane(*value_domain(np.append(differences, 0.0), domain), width, STEP * len(names))
    rows = [
        _row(name, differences[i], place, plane)
        for place, (name, i) in enumerate(zip(names, order, strict=True))
    ]
    if subtitle is None:
        subtitle = (
            f"{ESTIMATE} Left: the same model, other mechanisms that no data can tell apart; dot: "
            "Gumbel-Max, thick bar: every stable one, thin bar: every one. Right: Gumbel-Max, "
            "other models that the log allows; bar: credible interval, ring: the dot again."
        )
    layers = [
        *_frame_layers(plane, axis_title),
        *_bar_layers(rows, plane),
        _name_layer(rows, plane),
    ]
    return finish(layers, title, subtitle, width=width, height=plane.height, total=TOTAL)


@dataclass(frozen=True)
class _Plane:
    """Two panels side by side, on one scale."""

    low: float
    high: float
    width: int
    height: int

    @property
    def panel(self) -> float:
        return (self.width - GAP) / 2

    def left(self, panel: int) -> float:
        return panel * (self.panel + GAP)

    def x(self, value: float, panel: int) -> float:
        return self.left(panel) + self.panel * (value - self.low) / (self.high - self.low)


def _row(name: str, difference: NDArray[np.float64], place: int, plane: _Plane) -> Row:
    """Places of an episode's marks, and its numbers for those who point at them."""
    point, *bounds = difference.tolist()
    row: Row = {"id": name, "name": wrap(name, NAMES - 16, TEXT, lines=1), "difference": point}
    row |= {"y": STEP * (place + 0.5), "dot": plane.x(point, 0), "ring": plane.x(point, 1)}
    for kind, panel, low, high in (
        ("any", 0, *bounds[:2]),
        ("stable", 0, *bounds[2:4]),
        ("credible", 1, *bounds[4:]),
    ):
        row |= {f"low_{kind}": plane.x(low, panel), f"high_{kind}": plane.x(high, panel)}
        row[kind] = f"{low:+.2f} to {high:+.2f}".replace("-", "\N{MINUS SIGN}")
    row["number"] = f"{point:+.2f}".replace("-", "\N{MINUS SIGN}")
    return row


def _bar_layers(rows: list[Row], plane: _Plane) -> list[alt.Chart]:
    y = pixels("y", plane.height, down=True)
    tooltip = ["id:N", "number:N", "stable:N", "any:N", "credible:N"]
    base = alt.Chart(data(rows)).encode(y=y, tooltip=tooltip)
    bars = [
        base.mark_rule(strokeWidth=thick, color=color).encode(
            x=pixels(f"low_{kind}", plane.width), x2=f"high_{kind}:Q"
        )
        for kind, thick, color in (
            ("stable", 9, "#A9CDE4"),
            ("any", 2, BLUE),
            ("credible", 6, GREEN),
        )
    ]
    ends = [
        base.mark_tick(thickness=2, size=9, color=BLUE, opacity=1, orient="vertical").encode(
            x=pixels(f"{end}_any", plane.width)
        )
        for end in ("low", "high")
    ]
    dot = base.mark_point(filled=True, size=60, opacity=1, color=BLACK)
    ring = base.mark_point(filled=True, size=50, opacity=1, fill="white", stroke=BLACK)
    return [
        *bars,
        *ends,
        dot.encode(x=pixels("dot", plane.width)),
        ring.encode(x=pixels("ring", plane.width)),
    ]


def _frame_layers(plane: _Plane, axis_title: str) -> list[alt.Chart]:
    """Draw both panels with their names, what they hold under, scales and lines at zero."""
    frames: list[Row] = []
    lines: list[Row] = []
    texts: list[Row] = []
    height = plane.height
    heads = [wrap(words, plane.panel, SMALL) for words in (HOLDS, COVERS)]
    top = -14 - LINE_HEIGHT * max(map(len, heads))
    for panel, (name, words) in enumerate(zip((CAUSAL, STATISTICAL), heads, strict=True)):
        left = plane.left(panel)
        frames.append({"x": left, "x2": left + plane.panel, "y": 0, "y2": height})
        texts.append({"text": name, "x": left, "y": top, "look": "name"})
        texts.append({"text": words, "x": left, "y": top + LINE_HEIGHT + 2, "look": "words"})
        for tick in round_ticks(plane.low, plane.high, 5):
            x = plane.x(tick, panel)
            label = "0" if tick == 0 else f"{tick:+g}".replace("-", "\N{MINUS SIGN}")
            lines.append({"x": x, "y": 0, "y2": height, "zero": tick == 0})
            texts.append({"text": label, "x": x, "y": height + 14, "look": "scale"})
    texts.append({"text": axis_title, "x": plane.width / 2, "y": height + 38, "look": "scale"})
    x, y = pixels("x", plane.width), pixels("y", height, down=True)
    grid = alt.Chart(data(lines)).encode(x=x, y=y, y2="y2:Q")
    looks: dict[str, Row] = {
        "name": {"align": "left", "fontWeight": "bold"},
        "words": {"align": "left", "fontSize": SMALL, "color": GREY, "lineHeight": LINE_HEIGHT},
        "scale": {"align": "center"},
    }
    return [
        grid.transform_filter("!datum.zero").mark_rule(color="#E3E6EA"),
        grid.transform_filter("datum.zero").mark_rule(color=GREY, strokeWidth=1.5),
        alt.Chart(data(frames))
        .mark_rect(stroke=LINE, fill=None)
        .encode(x=x, x2="x2:Q", y=y, y2="y2:Q"),
        *(
            alt.Chart(data([row for row in texts if row["look"] == look]))
            .mark_text(**style)
            .encode(text="text:N", x=x, y=y)
            for look, style in looks.items()
        ),
    ]


def _name_layer(rows: list[Row], plane: _Plane) -> alt.Chart:
    names = alt.Chart(data(rows)).mark_text(align="right", x=-12, limit=NAMES)
    return names.encode(text="name:N", y=pixels("y", plane.height, down=True), tooltip="id:N")

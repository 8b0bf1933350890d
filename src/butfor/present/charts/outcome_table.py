"""The outcome table: what happened against what the model says under the policy."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.present.charts.style import (
    ESTIMATE,
    LINE_HEIGHT,
    SMALL,
    TEXT,
    Row,
    data,
    finish,
    pixels,
    wrap,
)

Floats = NDArray[np.float64]
SIDE = 330  # pixels of the whole square, for three outcomes
LABELS = 120
SHADES = ["#EEF2F7", "#7FB2D6", "#004C79"]


def outcome_table_chart(
    table: pd.DataFrame,
    *,
    expected: pd.DataFrame | None = None,
    thin: pd.DataFrame | None = None,
    title: str = "Where does the model disagree with what happened?",
    subtitle: str | None = None,
) -> alt.LayerChart:
    """Draw a square table of counts, the darker the more, with the share of all below each.

    Parameters
    ----------
    table
        Counts by outcome observed (rows) and under the target (columns), in the same order:
        `Counterfactuals.table()`.
    expected, thin
        Tables of the same shape: the expected counts, `Counterfactuals.table(expected=True)`,
        and how many of each cell rest on thin evidence.
    """
    counts = _square(table, "table")
    beside = {"expected": expected, "thin evidence": thin}
    small = {
        name: _square(frame, name, len(counts))
        for name, frame in beside.items()
        if frame is not None
    }
    total = counts.sum()
    if total == 0:
        raise ValueError("table counts 0 episodes; give a table of at least one")
    size = max(114, SIDE // len(counts))
    side = size * len(counts)
    cells: list[Row] = []
    for place, count in np.ndenumerate(counts):
        row, column = place
        lines = [_share(count, total)] if count else []
        lines += [f"{name} {_small(name, float(values[place]))}" for name, values in small.items()]
        top = size * (row + 0.5) - LINE_HEIGHT * (1 + len(small)) / 2
        cells.append(
            {
                "observed": str(table.index[row]),
                "under the policy": str(table.columns[column]),
                "count": _count(count),
                "lines": lines or [""],
                "shade": float(count / counts.max()),
                "x": size * column,
                "x2": size * (column + 1) - 4,
                "middle": size * (column + 0.5) - 2,
                "y": size * row,
                "y2": size * (row + 1) - 4,
                "y_count": top,
                "y_lines": top + 25,
            }
        )
    if subtitle is None:
        subtitle = "Large: episodes by the likeliest outcome in the model, with their share of all."
        subtitle += " Expected: sum of its probabilities." if expected is not None else ""
        subtitle += (
            " Thin evidence: episodes that rest on few past cases." if thin is not None else ""
        )
        subtitle += f" {ESTIMATE}"

    base = alt.Chart(data(cells))
    ink = alt.condition("datum.shade > 0.78", alt.value("white"), alt.value("#111111"))
    middle = pixels("middle", side)
    shade = alt.Color("shade:Q", legend=None).scale(domain=[0, 0.5, 1], range=SHADES)
    layers = [
        base.mark_rect(cornerRadius=3).encode(
            x=pixels("x", side),
            x2="x2:Q",
            y=pixels("y", side, down=True),
            y2="y2:Q",
            color=shade,
            tooltip=[
                alt.Tooltip(f"{name}:N") for name in ("observed", "under the policy", "count")
            ],
        ),
        base.mark_text(fontSize=25, fontWeight="bold").encode(
            text="count:N", color=ink, x=middle, y=pixels("y_count", side, down=True)
        ),
        base.mark_text(fontSize=SMALL, lineHeight=LINE_HEIGHT).encode(
            text="lines:N", color=ink, x=middle, y=pixels("y_lines", side, down=True)
        ),
    ]
    heads = [wrap(str(name), size - 6, TEXT, lines=2) for name in table.columns]
    top = -12 - LINE_HEIGHT * max(map(len, heads)) - LINE_HEIGHT / 2
    model = "What the model says under the policy"
    margins: list[Row] = [{"text": model, "x": side / 2 - 2, "y": top, "strong": True}]
    for position, lines in enumerate(heads):
        spot = {"x": size * (position + 0.5) - 2, "y": -4 - LINE_HEIGHT * len(lines) / 2}
        margins.append({"text": lines, **spot, "strong": False})
    layers += _texts(margins, side, align="center", angle=0)
    names = [
        {
            "text": wrap(f"{name} ({_count(counts[position].sum())})", LABELS, TEXT, lines=3),
            "x": -10,
            "y": size * (position + 0.5) - 2,
            "strong": False,
        }
        for position, name in enumerate(table.index)
    ]
    layers += _texts(names, side, align="right", angle=0)
    happened: Row = {"text": "What happened", "x": -LABELS - 24, "y": side / 2, "strong": True}
    layers += _texts([happened], side, align="center", angle=270)
    return finish(layers, title, subtitle, width=side, height=side, total=side + LABELS + 34)


def _texts(rows: list[Row], side: int, *, align: str, angle: int) -> list[alt.Chart]:
    """Draw texts, each centred on its y whatever its number of lines."""
    layers = []
    for strong in (True, False):
        chosen = [row for row in rows if row["strong"] == strong]
        for row in chosen:
            lines = 1 if isinstance(row["text"], str) else len(row["text"])
            row["y"] -= (lines - 1) * LINE_HEIGHT / 2
        mark: Row = {"align": align, "angle": angle, "lineHeight": LINE_HEIGHT}
        mark["fontWeight"] = "bold" if strong else "normal"
        if chosen:
            layers.append(
                alt.Chart(data(chosen))
                .mark_text(**mark)
                .encode(text="text:N", x=pixels("x", side), y=pixels("y", side, down=True))
            )
    return layers


def _square(frame: pd.DataFrame, name: str, size: int | None = None) -> Floats:
    counts = frame.to_numpy(dtype=np.float64)
    wanted = len(counts) if size is None else size
    if counts.shape != (wanted, wanted) or wanted == 0:
        raise ValueError(
            f"{name} has shape {counts.shape}; give a square table with a row and a column an "
            "outcome, as Counterfactuals.table() does"
        )
    if not np.isfinite(counts).all() or (counts < 0).any():
        wrong = counts[~np.isfinite(counts) | (counts < 0)][0]
        raise ValueError(f"{name} holds {wrong}; give counts, none of them missing or below 0")
    return counts


def _count(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _small(name: str, value: float) -> str:
    if name != "expected":
        return _count(value)
    return "<0.1" if value < 0.1 else f"{value:.1f}"


def _share(count: float, total: float) -> str:
    """Share of all episodes; never 100%, nor 0%, which read like certainty."""
    share = 100 * count / total
    return "all of them" if count == total else "under 0.1%" if share < 0.05 else f"{share:.1f}%"

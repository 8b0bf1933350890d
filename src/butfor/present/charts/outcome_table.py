"""The outcome table: what happened against what the model says under the policy."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.charts.row_chart import Floats
from butfor.present.text import ESTIMATE, WHAT_HAPPENED

SIDE = 330  # pixels of the whole square, for three outcomes
LABELS = 120
SHADES = ["#EEF2F7", "#7FB2D6", "#004C79"]


@style.unchecked
def outcome_table_chart(
    table: pd.DataFrame,
    *,
    expected: pd.DataFrame | None = None,
    thin: pd.DataFrame | None = None,
    title: str = "Where does the model disagree with what happened?",
    subtitle: str | None = None,
) -> alt.LayerChart:
    """Draw a square table of counts, darker for larger ones, with the share of all below each.

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
    if counts.sum() == 0:
        raise ValueError("table counts 0 episodes; give a table of at least one")
    beside = {
        name: _square(frame, name, len(counts))
        for name, frame in {"expected": expected, "thin evidence": thin}.items()
        if frame is not None
    }
    if subtitle is None:
        subtitle = "Large: episodes by the likeliest outcome in the model, with their share of all."
        subtitle += " Expected: sum of its probabilities." if expected is not None else ""
        if thin is not None:
            subtitle += " Thin evidence: episodes that rest on few past cases."
        subtitle += f" {ESTIMATE}"
    size = max(114, SIDE // len(counts))
    columns = [style.broken(name, size - 6, lines=2) for name in table.columns]
    rows = [
        style.broken(f"{name} ({_count(total)})", LABELS)
        for name, total in zip(table.index, counts.sum(axis=1), strict=True)
    ]
    cells: list[style.Row] = [
        {
            "observed": str(table.index[row]),
            "under the policy": str(table.columns[column]),
            "row": rows[row],
            "column": columns[column],
            "count": _count(count),
            "lines": _lines((row, column), counts, beside),
            "shade": float(count / counts.max()),
        }
        for (row, column), count in np.ndenumerate(counts)
    ]
    axis: style.Row = {"domain": False, "ticks": False, "labelExpr": style.LINES}
    axis |= {"labelLimit": 0, "titleFontWeight": "bold"}
    model = alt.Axis(orient="top", labelAngle=0, **axis)
    base = alt.Chart(style.data(cells)).encode(
        x=alt.X("column:N", sort=columns, axis=model, title="What the model says under the policy"),
        y=alt.Y("row:N", sort=rows, axis=alt.Axis(**axis), title=WHAT_HAPPENED),
    )
    shade = alt.Color("shade:Q", legend=None).scale(domain=[0, 0.5, 1], range=SHADES)
    ink = alt.condition("datum.shade > 0.78", alt.value("white"), alt.value(style.BLACK))
    above = -style.LINE_HEIGHT * (1 + len(beside)) / 2
    chart = style.layered(
        base.mark_rect(cornerRadius=3, stroke="white", strokeWidth=4).encode(
            color=shade,
            tooltip=[
                alt.Tooltip("observed:N"),
                alt.Tooltip("under the policy:N"),
                alt.Tooltip("count:N"),
            ],
        ),
        base.mark_text(fontSize=25, fontWeight="bold", dy=above).encode(
            text=alt.Text("count:N"), color=ink
        ),
        base.mark_text(fontSize=style.SMALL, lineHeight=style.LINE_HEIGHT, dy=above + 25).encode(
            text=alt.Text("lines:N"), color=ink
        ),
    ).properties(width=alt.Step(size), height=alt.Step(size))
    return style.finish(chart, title, subtitle, total=size * len(counts) + LABELS + 34)


def _lines(place: tuple[int, ...], counts: Floats, beside: dict[str, Floats]) -> list[str]:
    """Return what is written below a count: its share, then what else is known of the cell."""
    lines = [_share(counts[place], counts.sum())] if counts[place] else []
    for name, values in beside.items():
        value = float(values[place])
        few = name == "expected" and value < 0.1
        words = "<0.1" if few else f"{value:.1f}" if name == "expected" else _count(value)
        lines.append(f"{name} {words}")
    return lines or [""]


def _square(frame: pd.DataFrame, name: str, size: int | None = None) -> Floats:
    counts = frame.to_numpy(dtype=np.float64)
    wanted = len(counts) if size is None else size
    if counts.shape != (wanted, wanted) or wanted == 0:
        raise ValueError(
            f"{name} has shape {counts.shape}; give a square table with one row and one column per "
            "outcome, as Counterfactuals.table() does"
        )
    wrong = ~np.isfinite(counts) | (counts < 0)
    if wrong.any():
        raise ValueError(
            f"{name} holds {counts[wrong][0]}; give counts, none of them missing or negative"
        )
    return counts


def _count(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def _share(count: float, total: float) -> str:
    """Return the share of all episodes; never 0% or 100%, which read like certainty."""
    share = 100 * count / total
    return "all of them" if count == total else "under 0.1%" if share < 0.05 else f"{share:.1f}%"

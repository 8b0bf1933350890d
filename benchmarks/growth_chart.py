"""How time and memory grow with the size of a log."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.present.charts import style

SIDE = 250
ROOM = 0.3  # decades left free at either end of an axis
BYTES = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, ',') + ' GB' : "
    "datum.value >= 1e6 ? format(datum.value / 1e6, ',') + ' MB' : "
    "format(datum.value / 1e3, ',') + ' kB'"
)
# panel, column, color, shape, and how Vega writes a value with its unit
PANELS = (
    ("Time", "seconds", style.BLUE, "circle", "format(datum.value, ',') + ' s'"),
    ("Peak memory", "bytes", style.VERMILLION, "diamond", BYTES),
)


@style.unchecked
def growth_chart(
    table: pd.DataFrame,
    *,
    title: str = "What does a larger log cost?",
    subtitle: str = "Both axes are logarithmic. Dashed: growth in proportion to the episodes, "
    "through the largest log.",
) -> alt.HConcatChart:
    """Draw time and peak memory against the number of episodes, both on logarithmic scales.

    Parameters
    ----------
    table
        One row per log: `episodes, seconds, bytes`, all above 0.
    """
    style.require_columns(table, ("episodes", "seconds", "bytes"), "table")
    values = table[["episodes", "seconds", "bytes"]].to_numpy(dtype=np.float64)
    wrong = ~(np.isfinite(values) & (values > 0))
    if wrong.any():
        raise ValueError(f"table holds {values[wrong][0]}; a logarithmic scale begins above 0")
    ordered = table.sort_values("episodes")
    panels = [_panel(ordered, *panel) for panel in PANELS]
    return style.finish(alt.hconcat(*panels, spacing=24), title, subtitle, total=2 * SIDE + 156)


def _panel(
    table: pd.DataFrame, name: str, column: str, color: str, shape: str, unit: str
) -> alt.LayerChart:
    episodes = table["episodes"].to_numpy(dtype=np.float64)
    cost = table[column].to_numpy(dtype=np.float64)
    line = cost[-1] * episodes / episodes[-1]
    rows = [
        {"panel": name, "episodes": size, "value": value, "line": end, "words": _words(name, value)}
        for size, value, end in zip(episodes.tolist(), cost.tolist(), line.tolist(), strict=True)
    ]
    x = _log_axis(alt.X, "episodes", episodes, "format(datum.value, ',')", "episodes in the log")
    base = alt.Chart(style.data(rows)).encode(x=x)
    reach = np.append(cost, line)
    marks = base.encode(y=_log_axis(alt.Y, "value", reach, unit, None))
    chart = style.layered(
        base.mark_line(strokeDash=[4, 4], color=style.GREY, strokeWidth=1).encode(
            y=_log_axis(alt.Y, "line", reach, unit, None)
        ),
        marks.mark_line(strokeWidth=2, color=color),
        marks.mark_point(filled=True, size=80, opacity=1, color=color, shape=shape).encode(
            tooltip=[alt.Tooltip("panel:N"), alt.Tooltip("episodes:Q"), alt.Tooltip("words:N")]
        ),
        marks.mark_text(fontSize=style.SMALL, dy=-15).encode(text=alt.Text("words:N")),
    )
    return style.framed(chart, SIDE, SIDE).properties(title=style.panel_title(name, SIDE))


def _log_axis(
    channel: type[Any], field: str, values: NDArray[np.float64], words: str, title: str | None
) -> Any:
    """Place marks on a logarithmic axis with a tick at each power of ten."""
    logs = np.log10(values)
    low, high = math.floor(logs.min() + 1e-9), math.ceil(logs.max() - 1e-9)
    ticks = [10.0**power for power in range(low, high + 1)]
    axis = alt.Axis(values=ticks, labelExpr=words, labelFontSize=style.SMALL - 1)
    scale = alt.Scale(type="log", domain=[10 ** (low - ROOM), 10 ** (high + ROOM)], nice=False)
    return channel(f"{field}:Q", scale=scale, axis=axis, title=title)


def _words(panel: str, value: float) -> str:
    """Return seconds or bytes with their unit, two significant digits, or three from 100 on."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    size, unit = next((pair for pair in units if value >= pair[0]), units[-1])
    number, unit = (value, "s") if panel == "Time" else (value / size, unit)
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.2g} {unit}"

"""Mean bounds beside what is true."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from butfor.present.charts.panels import Panels, series_legend
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    VERMILLION,
    data,
    finish,
    pixels,
    require_columns,
)

COLORS = ("#A9CDE4", BLUE, "#00375A")
BAR = 9  # pixels
TICKS = {0.0: "0", 0.25: "25%", 0.5: "50%", 0.75: "75%", 1.0: "100%"}


def containment_chart(
    table: pd.DataFrame,
    *,
    kinds: Sequence[str],
    title: str = "Do the bounds hold the truth?",
    subtitle: str = "Bar: mean of the lowest to mean of the highest probability over episodes. "
    "Diamond: how often it truly happens.",
) -> alt.LayerChart:
    """Draw mean bounds of each outcome: a panel a case, a bar a class of mechanisms.

    Parameters
    ----------
    table
        A row a bar: `panel, kind, outcome, low, high, true`.
    kinds
        The classes from widest to narrowest, at most three.
    """
    require_columns(table, ("panel", "kind", "outcome", "low", "high", "true"), "table")
    if len(kinds) > len(COLORS):
        raise ValueError(f"{len(kinds)} kinds of bounds; there are colours for {len(COLORS)}")
    outcomes = [str(name) for name in table["outcome"].unique()]
    row_height = BAR * len(kinds) + 16
    titles = tuple(str(name) for name in table["panel"].unique())
    panels = Panels(titles, 2, (240, row_height * len(outcomes)), (88, 34))
    bars, truths = [], []
    for row in table.itertuples():
        middle = 1 - (outcomes.index(str(row.outcome)) + 0.5) / len(outcomes)
        kind = list(kinds).index(row.kind)
        shift = ((len(kinds) - 1) / 2 - kind) * BAR / panels.size[1]
        place = panels.place(str(row.panel), row.low, middle + shift)
        bars.append(
            place
            | {
                "x2": panels.place(str(row.panel), row.high, 0)["x"],
                "kind": str(row.kind),
                "low": float(row.low),
                "high": float(row.high),
            }
        )
        if kind == 0:
            reach = row_height / 2 - 6
            point = panels.place(str(row.panel), row.true, middle)
            ends = {"y_top": point["y"] - reach, "y_end": point["y"] + reach}
            truths.append(point | ends | {"true": float(row.true)})
    look = series_legend("kind", kinds, COLORS, ("square",) * len(kinds), columns=3)
    y_ticks = {1 - (place + 0.5) / len(outcomes): name for place, name in enumerate(outcomes)}
    down = panels.encode()["y"]
    truth = alt.Chart(data(truths)).encode(x=panels.encode()["x"], tooltip="true:Q")
    layers = [
        *panels.frames(TICKS, dict.fromkeys(titles, y_ticks), y_grid=False),
        alt.Chart(data(bars))
        .mark_bar(height=BAR - 2, cornerRadius=2)
        .encode(
            **panels.encode(), x2="x2:Q", color=look["color"], tooltip=["kind:N", "low:Q", "high:Q"]
        ),
        truth.mark_rule(color=VERMILLION, strokeWidth=2).encode(
            y=pixels("y_top", panels.height, down=True), y2="y_end:Q"
        ),
        truth.mark_point(
            filled=True, shape="diamond", fill=VERMILLION, stroke=BLACK, size=90, opacity=1
        ).encode(y=down),
    ]
    return finish(
        layers, title, subtitle, width=panels.width, height=panels.height, total=panels.width
    )

"""Pieces that add up to an error, stacked above and below zero, one panel per setting."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from butfor.present.charts import style
from butfor.present.charts.studies.panels import TOTAL, level_panels

COLORS = ("#56B4E9", "#9AA3AE", "#D55E00", "#007A5A")  # of the pieces, in their order


def pieces_chart(
    pieces: pd.DataFrame,
    *,
    title: str = "What is the error made of?",
    subtitle: str | None = None,
    axis_title: str = "Part of the error",
    domain: style.Domain | None = None,
) -> alt.ConcatChart:
    """Draw up to four pieces and their sum at each level of each panel.

    Parameters
    ----------
    pieces
        One row per piece: `panel, level, piece, value`, in the order to be drawn. Positive pieces
        are stacked up from zero, negative ones down; the diamond is the sum of all.
    domain
        Ends of the scale, moved out if the stacks exceed them.
    """
    style.require_columns(pieces, ("panel", "level", "piece", "value"), "pieces")
    names = style.distinct(pieces["piece"])
    look = style.series_look("piece", names, COLORS, None, symbolType="square")
    # as high and as low as the tallest stacks
    stacks = pieces.assign(up=pieces["value"].clip(lower=0), down=pieces["value"].clip(upper=0))
    reach = stacks.groupby(["panel", "level"])[["up", "down"]].sum()
    low, high = domain or (0.0, 0.0)
    low, high = min(low, float(reach["down"].min())), max(high, float(reach["up"].max()))
    room = 0.05 * (high - low) or 1.0
    ends = (low - room * (low < 0), high + room)
    if subtitle is None:
        subtitle = "Pieces above zero add to the error, those below reduce it. Diamond: their sum."

    def marks(mine: pd.DataFrame, x: Any, y: Any) -> list[alt.Chart]:
        shown = mine.assign(level=mine["level"].map(str), piece=mine["piece"].map(str))
        shown["order"] = [names.index(name) for name in shown["piece"]]
        shown["number"] = [style.signed(value, 3) for value in shown["value"]]
        fields = ["level", "piece", "value", "order", "number"]
        sums = shown.groupby("level", sort=False)["value"].sum().rename("sum").reset_index()
        bars = alt.Chart(style.data(shown[fields].to_dict("records"))).mark_bar(
            stroke="white", strokeWidth=0.5, width={"band": 0.68}
        )
        diamonds = alt.Chart(style.data(sums.to_dict("records"))).mark_point(
            shape="diamond", filled=True, size=90, opacity=1, color=style.BLACK
        )
        return [
            bars.encode(
                x=x,
                y=y("value").stack("zero"),
                order="order:Q",
                color=look["color"],
                tooltip=["piece:N", "level:N", "number:N"],
            ),
            diamonds.encode(x=x, y=y("sum"), tooltip=["level:N", "sum:Q"]),
        ]

    panels = level_panels(
        pieces, "panel", marks, height=260, axis_title=axis_title, domain=ends, bold={}
    )
    return style.finish(panels, title, subtitle, total=TOTAL)

"""Mean bounds beside what is true."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from butfor.present.charts import style

COLORS = ("#A9CDE4", style.BLUE, "#00375A")
BAR, WIDTH = 9, 240


def containment_chart(
    table: pd.DataFrame,
    *,
    kinds: Sequence[str],
    title: str = "Do the bounds contain the truth?",
    subtitle: str = "Bar: mean of the lowest to mean of the highest probability over episodes. "
    "Diamond: how often it truly happens.",
) -> alt.FacetChart:
    """Draw mean bounds on each outcome, a panel per case and a bar per class of mechanisms.

    Parameters
    ----------
    table
        One row per bar: `panel, kind, outcome, low, high, true`.
    kinds
        The classes from widest to narrowest, at most three.
    """
    style.require_columns(table, ("panel", "kind", "outcome", "low", "high", "true"), "table")
    look = style.series_look("kind", kinds, COLORS, None, columns=3, symbolType="square")
    bars = table.assign(
        panel=[style.broken(name, WIDTH, bold=True) for name in table["panel"]],
        kind=table["kind"].map(str),
        outcome=table["outcome"].map(str),
    )
    outcomes = alt.Y("outcome:N", sort=style.distinct(bars["outcome"]), title=None)
    truth = alt.Chart().encode(x="true:Q", y=outcomes, tooltip="true:Q")
    row_height = BAR * len(kinds) + 16
    chart = style.layered(
        alt.Chart()
        .mark_bar(cornerRadius=2, height=BAR - 2)
        .encode(
            x=style.percent_axis(alt.X, "low", None),
            x2="high:Q",
            y=outcomes,
            yOffset=alt.YOffset("kind:N", sort=list(kinds)),
            color=look["color"],
            tooltip=["kind:N", "low:Q", "high:Q"],
        ),
        truth.mark_tick(color=style.VERMILLION, thickness=2, size=row_height - 12, opacity=1),
        truth.mark_point(
            filled=True,
            shape="diamond",
            fill=style.VERMILLION,
            stroke=style.BLACK,
            size=90,
            opacity=1,
        ),
    )
    rows = bars[["panel", "kind", "outcome", "low", "high", "true"]].to_dict("records")
    framed_chart = style.framed(chart, WIDTH, row_height * bars["outcome"].nunique())
    panels = style.in_panels(framed_chart, rows, style.distinct(bars["panel"]), 2)
    return style.finish(panels, title, subtitle, total=2 * WIDTH + 110)

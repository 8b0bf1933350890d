"""Bounds of a policy's value against the strength of hidden causes."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style

WIDTH, HEIGHT, TOTAL = 420, 260, 560
COLUMNS = ("gamma", "low", "high", "observed")


@style.unchecked
def confounding_chart(
    table: pd.DataFrame,
    *,
    title: str = "What could hidden causes change?",
    subtitle: str = "Bounds of the policy's value if patients who look alike were treated with "
    "odds that differ by a factor of up to gamma. Causes that persist from step to step are not "
    "covered.",
    axis_title: str = "Value of the policy",
    domain: style.Domain | None = None,
) -> alt.LayerChart:
    """Draw the lowest and the highest value by gamma, and what was observed.

    Parameters
    ----------
    table
        One row per finite gamma: `gamma, low, high, observed`, and `usual` if the model continues
        what was observed (`ConfoundingBounds.frame()`).
    domain
        Ends of the scale, moved out as far as the values need.
    """
    style.require_columns(table, COLUMNS, "table")
    values = table[list(COLUMNS)].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all() or (values[:, 0] < 1).any():
        raise ValueError("table: give finite numbers, and gamma of at least 1; leave out infinity")
    ordered = table.sort_values("gamma")
    rows = [
        {
            "gamma": gamma,
            "low": low,
            "high": high,
            "words": f"{style.signed(low, 2)} to {style.signed(high, 2)}",
        }
        for gamma, low, high in style.tuples(ordered, "gamma", "low", "high")
    ]
    levels = {"observed": float(values[0, 3])}
    if "usual" in table and table["usual"].iloc[0] != levels["observed"]:
        levels["observed, continued"] = float(table["usual"].iloc[0])
    ends = style.value_domain(np.append(values[:, 1:3].ravel(), list(levels.values())), domain)

    def y(field: str) -> Any:
        return style.value_axis(alt.Y, field, axis_title, ends)

    gammas = ordered["gamma"].tolist()
    axis = alt.Axis(values=gammas, labelExpr="format(datum.value, '~g')", grid=False)
    scale = alt.Scale(type="log", domain=[gammas[0] / 1.06, gammas[-1] * 1.06], nice=False)
    x = alt.X("gamma:Q", title="gamma", axis=axis, scale=scale)
    base = alt.Chart(style.data(rows)).encode(
        x=x, tooltip=[alt.Tooltip("gamma:Q"), alt.Tooltip("words:N")]
    )
    observed = alt.Chart(
        style.data([{"level": level, "words": words} for words, level in levels.items()])
    ).encode(y=y("level"))
    edges = [
        base.mark_line(strokeWidth=2, color=style.BLUE).encode(y=y(end)) for end in ("low", "high")
    ]
    dots = [
        base.mark_point(filled=True, size=60, opacity=1, color=style.BLUE).encode(y=y(end))
        for end in ("low", "high")
    ]
    chart = style.layered(
        base.mark_area(color=style.BLUE, opacity=0.15).encode(y=y("low"), y2=alt.Y2("high:Q")),
        observed.mark_rule(strokeDash=style.DASHES, color=style.GREY, strokeWidth=1.5),
        observed.mark_text(
            align="left", baseline="bottom", fontSize=style.SMALL, dy=-2, color=style.GREY
        ).encode(x=style.fixed(alt.XValue, 5), text=alt.Text("words:N")),
        *edges,
        *dots,
    )
    return style.finish(style.framed(chart, WIDTH, HEIGHT), title, subtitle, total=TOTAL)

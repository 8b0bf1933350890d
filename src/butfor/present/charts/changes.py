"""Fewest changes: what 0, 1, 2, … changed actions would have been worth to one episode."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.charts.rows import Floats, RowChart, number_text
from butfor.present.text import ESTIMATE

NOTHING = "no change would help"


def changes_chart(
    changes: pd.DataFrame,
    *,
    title: str = "How much would a few changes have helped?",
    subtitle: str | None = None,
    axis_title: str = "Expected return",
    domain: style.Domain | None = None,
) -> alt.LayerChart:
    """Draw the best expected return of one episode with at most 0, 1, 2, … changed actions.

    Parameters
    ----------
    changes
        One row per number of changes: `changes, value, first_change`, the last being the first
        action to change in words, empty if there is none: rows of `Changes.frame()` of one episode.
    domain
        Ends of the axis, moved out if the data exceed them; by default those of the data.
    """
    style.require_columns(changes, ("changes", "value", "first_change"), "changes")
    numbers = [int(number) for number in changes["changes"]]
    twice = [number for number in numbers if numbers.count(number) > 1]
    if twice:
        raise ValueError(
            f"changes has {numbers.count(twice[0])} rows with {twice[0]} changes; give those of "
            "one episode"
        )
    values = changes["value"].to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        wrong = values[~np.isfinite(values)][0]
        raise ValueError(f"changes has the value {wrong}; give finite numbers")
    if subtitle is None:
        subtitle = (
            "Below each number: the first action to change; what to change after it depends on "
            "what it leads to. Dashed line: without any change. Steps count from 0. The best of "
            f"many, found in the model: {ESTIMATE[0].lower()}{ESTIMATE[1:]}"
        )
    rows = [
        _row(number, float(value), str(words), values)
        for number, value, words in zip(numbers, values, changes["first_change"], strict=True)
    ]
    plot = RowChart(rows, values, axis_title=axis_title, domain=domain, least=44)
    for row in rows:
        row["y_number"] = row["y"] - 9 * ("gain" in row)
        row["y_gain"] = row["y"] + 9
    base = alt.Chart(style.data(rows)).encode(y=plot.y())
    layers = [
        alt.Chart(style.data(rows[:1]))
        .mark_rule(strokeDash=style.DASHES, color=style.GREY)
        .encode(x=plot.x("from")),
        base.mark_rule(strokeWidth=8, opacity=0.4, strokeCap="round", color=style.BLUE).encode(
            x=plot.x("from"), x2="value:Q"
        ),
        base.mark_point(filled=True, opacity=1, size=120, color=style.BLUE).encode(
            x=plot.x("value"), tooltip=["name:N", "number:N"]
        ),
        plot.numbers("number", "y_number"),
        plot.numbers("gain", "y_gain", style.GREY),
    ]
    return plot.draw(layers, title, subtitle)


def _row(number: int, value: float, words: str, values: Floats) -> style.Row:
    row: style.Row = {"value": value, "from": float(values[0])}
    row["number"] = number_text(value, np.nan, np.nan, values)
    if number == 0:
        return row | {"name": "No change", "note": "as it was done"}
    gain = value - float(values[0])
    words_of_gain = f"gain {number_text(gain, np.nan, np.nan, values)}" if gain else "no gain"
    name = f"At most {number} change{'s' * (number != 1)}"
    return row | {"name": name, "note": words or NOTHING, "gain": words_of_gain}

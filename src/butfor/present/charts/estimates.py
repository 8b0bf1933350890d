"""Estimates, each with its interval."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style
from butfor.present.charts.rows import RowChart, number_text
from butfor.present.text import CHANCE, SIMULATOR, TRUE


def estimates_chart(
    estimates: pd.DataFrame,
    *,
    reference: str | None = "Observed",
    title: str = "How well would the policy have done?",
    subtitle: str | None = None,
    axis_title: str = "Average return per episode",
    domain: style.Domain | None = None,
) -> alt.LayerChart:
    """Draw each estimate as a dot with a bar for its 95 % interval.

    Parameters
    ----------
    estimates
        One row per estimator, top to bottom: `estimator, value, low, high`, optionally `note`. A
        missing value is labeled as such; missing bounds leave out the bar. A row named "True" is
        drawn as a vermillion diamond.
    reference
        The estimator whose value is marked by a dashed line; None for no line.
    subtitle
        By default the meaning of bar and line, and what the interval does not cover.
    domain
        Ends of the axis, moved out if the data exceed them; by default those of the data.
    """
    style.require_columns(estimates, ("estimator", "value", "low", "high"), "estimates")
    names = [str(name) for name in estimates["estimator"]]
    if reference is not None and reference not in names:
        raise ValueError(
            f"reference {reference!r} is not among the estimators {names}; name one, or give None"
        )
    if subtitle is None:
        subtitle = f"Bar: 95% interval. {CHANCE}"
        subtitle += "" if reference is None else f" Dashed line: {reference}."
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    rows = _rows(estimates, names, reference)
    plot = RowChart(rows, values, axis_title=axis_title, domain=domain)
    kinds = ["reference", "estimate", "true"]
    color = alt.Color("kind:N", legend=None).scale(
        domain=kinds, range=[style.BLACK, style.BLUE, style.VERMILLION]
    )
    shapes = ["circle", "circle", "diamond"]
    shape = alt.Shape("kind:N", legend=None).scale(domain=kinds, range=shapes)
    base = alt.Chart(style.data(rows))
    marks = base.encode(y=plot.y(), color=color, tooltip=["name:N", "number:N"])
    line = base.transform_filter("datum.kind == 'reference' && isValid(datum.value)")
    bars = marks.transform_filter("isValid(datum.low) && isValid(datum.high)")
    dots = marks.transform_filter("isValid(datum.value)")
    layers = [
        line.mark_rule(strokeDash=style.DASHES, color=style.GREY).encode(x=plot.x("value")),
        bars.mark_rule(strokeWidth=8, opacity=0.4, strokeCap="round").encode(
            x=plot.x("low"), x2="high:Q"
        ),
        dots.mark_point(filled=True, opacity=1, size=120).encode(x=plot.x("value"), shape=shape),
        plot.numbers("number"),
    ]
    return plot.draw(layers, title, subtitle)


def _rows(estimates: pd.DataFrame, names: list[str], reference: str | None) -> list[style.Row]:
    notes = pd.Series([SIMULATOR if name == TRUE else "" for name in names], dtype=object)
    if "note" in estimates:
        notes = estimates["note"].reset_index(drop=True).fillna(notes)
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    rows: list[style.Row] = []
    for name, note, numbers in zip(names, notes, values.tolist(), strict=True):
        kind = "reference" if name == reference else "true" if name == TRUE else "estimate"
        value, low, high = numbers
        known = [number if math.isfinite(number) else None for number in numbers]
        row: style.Row = {"name": name, "note": str(note), "kind": kind}
        row |= dict(zip(("value", "low", "high"), known, strict=True))
        rows.append(row | {"number": number_text(value, low, high, values)})
    return rows

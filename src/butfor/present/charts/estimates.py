"""Estimates side by side, each with its interval."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.rows import (
    LABELS,
    PLOT,
    TOTAL,
    Domain,
    label_layers,
    number_layer,
    number_text,
    stack,
    value_axis,
    value_domain,
)
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    CHANCE,
    GREY,
    SIMULATOR,
    SMALL,
    TRUE,
    VERMILLION,
    Row,
    data,
    finish,
    pixels,
    require_columns,
    wrap,
)


def estimates_chart(
    estimates: pd.DataFrame,
    *,
    reference: str | None = "Observed",
    title: str = "How well would the policy have done?",
    subtitle: str | None = None,
    axis_title: str = "Average return per episode",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw each estimate as a dot with a bar for its 95 % interval.

    Parameters
    ----------
    estimates
        A row an estimator, top to bottom: `estimator, value, low, high`, optionally `note`. A
        value that is missing is said to be so; missing bounds leave the bar out. A row named
        "True" is a diamond in vermillion.
    reference
        The estimator at whose value a dashed line stands; None for no line.
    subtitle
        By default what bar and line mean, and what the interval does not cover.
    domain
        Ends of the axis, moved out where the data go beyond them; by default those of the data.
    """
    require_columns(estimates, ("estimator", "value", "low", "high"), "estimates")
    names = [str(name) for name in estimates["estimator"]]
    if reference is not None and reference not in names:
        raise ValueError(
            f"reference {reference!r} is not among the estimators {names}; name one, or give None"
        )
    rows = _rows(estimates, names, reference)
    height = stack(rows, least=34)
    if subtitle is None:
        subtitle = f"Bar: 95% interval. {CHANCE}"
        subtitle += "" if reference is None else f" Dashed line: {reference}."
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    ends = value_domain(values, domain)

    def x(field: str) -> Any:
        return value_axis(field, axis_title, ends)

    kinds = ["reference", "estimate", "true"]
    color = alt.Color("kind:N", legend=None).scale(domain=kinds, range=[BLACK, BLUE, VERMILLION])
    shapes = ["circle", "circle", "diamond"]
    shape = alt.Shape("kind:N", legend=None).scale(domain=kinds, range=shapes)
    base = alt.Chart(data(rows))
    marks = base.encode(
        y=pixels("y", height, down=True), color=color, tooltip=["name:N", "number:N"]
    )
    line = base.transform_filter("datum.kind == 'reference' && isValid(datum.value)")
    bars = marks.transform_filter("isValid(datum.low) && isValid(datum.high)")
    dots = marks.transform_filter("isValid(datum.value)")
    layers = [
        *label_layers(rows, height),
        line.mark_rule(strokeDash=[5, 4], color=GREY).encode(x=x("value")),
        bars.mark_rule(strokeWidth=8, opacity=0.4, strokeCap="round").encode(
            x=x("low"), x2="high:Q"
        ),
        dots.mark_point(filled=True, opacity=1, size=120).encode(x=x("value"), shape=shape),
        number_layer(rows, height, "number", "y", BLACK),
    ]
    return finish(layers, title, subtitle, width=PLOT, height=height, total=TOTAL)


def _rows(estimates: pd.DataFrame, names: list[str], reference: str | None) -> list[Row]:
    notes = [SIMULATOR if name == TRUE else "" for name in names]
    if "note" in estimates:
        given = zip(notes, estimates["note"], strict=True)
        notes = [str(note) if pd.notna(note) else default for default, note in given]
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    rows: list[Row] = []
    for name, note, numbers in zip(names, notes, values, strict=True):
        kind = "reference" if name == reference else "true" if name == TRUE else "estimate"
        row: Row = {"name": name, "note": wrap(note, LABELS, SMALL), "kind": kind}
        known = [float(number) if math.isfinite(number) else None for number in numbers]
        row |= dict(zip(("value", "low", "high"), known, strict=True))
        value, low, high = numbers
        rows.append(row | {"number": number_text(value, low, high, values)})
    return rows

"""Charts of one value per row: estimates with intervals, fewest changes, rehearsals."""

from __future__ import annotations

import math

import altair as alt
import numpy as np
import pandas as pd

from butfor.evaluate.estimators.table import OBSERVED, compared_with
from butfor.evaluate.wording import Digits, digits_for
from butfor.present.charts import style
from butfor.present.charts.published import (
    LEAST,
    add_published,
    place_both,
    published_marks,
    read_published,
)
from butfor.present.charts.row_chart import Floats, RowChart
from butfor.present.text import CHANCE, ESTIMATE, FULL_NAMES, REVIEWERS, SIMULATOR, TRUE

KINDS = {TRUE: "true", REVIEWERS: "reviewers"}  # of estimates that are drawn in their own way


@style.unchecked
def estimates_chart(
    estimates: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    reference: str | None = "Observed",
    title: str = "How well would the policy have done?",
    subtitle: str | None = None,
    axis_title: str = "Average return per episode",
    domain: style.Domain | None = None,
    ends: tuple[str, str] | None = None,
    rate: bool = False,
    narrow: bool = False,
) -> alt.LayerChart:
    """Draw each estimate as a dot with a bar for its 95 % interval.

    Parameters
    ----------
    estimates
        One row per estimator, top to bottom: `estimator, value, low, high`, optionally `note`, by
        default what an abbreviation stands for. A
        missing value is labeled as such; missing bounds leave out the bar. A row named "True" is
        drawn as a vermillion diamond, one named "Reviewers" as a green square.
    published
        One row per estimator: `estimator, mean, low, high`, drawn below ours. Not for phones.
    reference
        The estimator whose value is marked by a dashed line; None for no line. "Observed" stands
        for "Observed, continued" if that is there.
    subtitle
        By default the meaning of bar and line, and what the interval does not cover.
    domain
        Ends of the axis, moved out if the data exceed them; by default those of the data.
    ends
        What the ends of `domain` mean, such as ("all died", "all discharged").
    rate
        Whether the values are rates, to be written in percent.
    narrow
        Whether to draw it for phones: half as wide, with names above their marks.
    """
    style.require_columns(estimates, ("estimator", "value", "low", "high"), "estimates")
    names = [str(name) for name in estimates["estimator"]]
    if reference == OBSERVED:
        reference = compared_with(names)
    if reference is not None and reference not in names:
        raise ValueError(
            f"reference {reference!r} is not among the estimators {names}; name one, or give None"
        )
    if subtitle is None:
        subtitle = f"Bar: 95% interval. {CHANCE} {ESTIMATE}"
        subtitle += "" if reference is None else f" Dashed line: {reference}."
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    given = read_published(published, names)
    if given and narrow:
        raise ValueError("a narrow chart has no room for published values; leave one of them out")
    digits = digits_for(values[:, 0], rate=rate)
    rows = _estimate_rows(estimates, names, reference, digits)
    add_published(rows, given, digits)
    plot = RowChart(
        rows,
        np.vstack([values, *given.values()]),
        axis_title=axis_title,
        domain=domain,
        least=LEAST if given else 34,
        rate=rate,
        names=dict(zip(domain, ends, strict=True)) if domain and ends else None,
        narrow=narrow,
    )
    place_both(plot, given)
    kinds = ["reference", "estimate", "reviewers", "true"]
    color = alt.Color("kind:N", legend=None).scale(
        domain=kinds, range=[style.BLACK, style.BLUE, style.GREEN, style.VERMILLION]
    )
    shapes = ["circle", "circle", "square", "diamond"]
    shape = alt.Shape("kind:N", legend=None).scale(domain=kinds, range=shapes)
    base = alt.Chart(style.data(rows))
    marks = base.encode(
        y=plot.y("y_ours"), color=color, tooltip=[alt.Tooltip("name:N"), alt.Tooltip("number:N")]
    )
    line = base.transform_filter("datum.kind == 'reference' && isValid(datum.value)")
    bars = marks.transform_filter("isValid(datum.low) && isValid(datum.high)")
    dots = marks.transform_filter("isValid(datum.value)")
    layers = [
        line.mark_rule(strokeDash=style.DASHES, color=style.GREY).encode(x=plot.x("value")),
        bars.mark_rule(strokeWidth=8, opacity=0.4, strokeCap="round").encode(
            x=plot.x("low"), x2=alt.X2("high:Q")
        ),
        dots.mark_point(filled=True, opacity=1, size=120).encode(x=plot.x("value"), shape=shape),
        plot.numbers("number", "y_ours"),
    ]
    if not given:
        return plot.draw(layers, title, subtitle)
    chart = plot.draw([*layers, *published_marks(plot)], title, subtitle)
    return chart.resolve_scale(color="independent", shape="independent")


def _estimate_rows(
    estimates: pd.DataFrame, names: list[str], reference: str | None, digits: Digits
) -> list[style.Row]:
    meaning = FULL_NAMES | {TRUE: SIMULATOR}
    notes = pd.Series([meaning.get(name, "") for name in names], dtype=object)
    if "note" in estimates:
        notes = estimates["note"].reset_index(drop=True).fillna(notes)
    values = estimates[["value", "low", "high"]].to_numpy(dtype=np.float64)
    rows: list[style.Row] = []
    for name, note, numbers in zip(names, notes, values.tolist(), strict=True):
        kind = "reference" if name == reference else KINDS.get(name, "estimate")
        known = [number if math.isfinite(number) else None for number in numbers]
        row = {"name": name, "note": str(note), "kind": kind}
        value, low, high = numbers
        row |= {"number": digits.estimate(value, low, high)}
        rows.append(row | dict(zip(("value", "low", "high"), known, strict=True)))
    return rows


@style.unchecked
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
        _changes_row(number, float(value), str(words), values)
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
            x=plot.x("from"), x2=alt.X2("value:Q")
        ),
        base.mark_point(filled=True, opacity=1, size=120, color=style.BLUE).encode(
            x=plot.x("value"), tooltip=[alt.Tooltip("name:N"), alt.Tooltip("number:N")]
        ),
        plot.numbers("number", "y_number"),
        plot.numbers("gain", "y_gain", style.GREY),
    ]
    return plot.draw(layers, title, subtitle)


def _changes_row(number: int, value: float, words: str, values: Floats) -> style.Row:
    digits = digits_for(values)
    row: style.Row = {"value": value, "from": float(values[0]), "number": digits.value(value)}
    if number == 0:
        return row | {"name": "No change", "note": "as it was done"}
    gain = value - float(values[0])
    words_of_gain = f"gain {digits.gap(gain)}" if gain else "no gain"
    name = f"At most {number} change{'s' * (number != 1)}"
    return row | {"name": name, "note": words or "no change would help", "gain": words_of_gain}


@style.unchecked
def rehearsal_chart(
    table: pd.DataFrame,
    gain: float,
    *,
    title: str = "How large a gain could one missing variable fake?",
    subtitle: str = "Bar: what the same method would have promised too much, had the variable not "
    "been logged. Dashed line: the gain that is promised here. If it is shorter than a bar, a "
    "single unrecorded variable could account for it.",
    axis_title: str = "Average return per episode",
    domain: style.Domain | None = None,
    rate: bool = False,
    narrow: bool = False,
) -> alt.LayerChart:
    """Draw the error of each rehearsal, the largest first, beside the gain promised.

    Parameters
    ----------
    table
        One row per rehearsal: `hidden, promised, judged, error` (`Rehearsal.table`).
    gain
        What is promised here beyond what was observed (`Rehearsal.gain`).
    rate
        Whether returns are rates, to be written in percent.
    narrow
        Whether to draw it for phones: half as wide, with names above their bars.
    """
    style.require_columns(table, ("hidden", "promised", "judged", "error"), "table")
    numbers = table[["promised", "judged", "error"]].to_numpy(dtype=np.float64)
    if len(table) == 0 or not np.isfinite(numbers).all() or not math.isfinite(gain):
        raise ValueError("table and gain: give at least one row, and finite numbers")
    values = np.append(numbers[:, 2], [gain, 0.0])
    digits, gaps = digits_for(numbers[:, :2].ravel(), rate=rate), digits_for(values, rate=rate)
    rows: list[style.Row] = [
        {
            "name": f"Without {hidden}",
            "note": f"promised {digits.value(promised)}, judged {digits.value(judged)}",
            "from": 0.0,
            "value": error,
            "gain": gain,
            "number": gaps.gap(error),
        }
        for hidden, promised, judged, error in style.tuples(
            table.sort_values("error", ascending=False, kind="stable"),
            "hidden",
            "promised",
            "judged",
            "error",
        )
    ]
    plot = RowChart(
        rows, values, axis_title=axis_title, domain=domain, least=44, rate=rate, narrow=narrow
    )
    base = alt.Chart(style.data(rows)).encode(y=plot.y())
    layers = [
        alt.Chart(style.data(rows[:1]))
        .mark_rule(strokeDash=style.DASHES, color=style.BLACK)
        .encode(x=plot.x("gain")),
        base.mark_rule(strokeWidth=8, opacity=0.6, color=style.VERMILLION).encode(
            x=plot.x("from"),
            x2=alt.X2("value:Q"),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("number:N")],
        ),
        plot.numbers("number"),
    ]
    return plot.draw(layers, title, subtitle)

"""The spread of estimates over repeats, with published values beside it."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from butfor.evaluate.wording import Digits, digits_for
from butfor.present.charts import style
from butfor.present.charts.rows import Floats, RowChart, number_text
from butfor.present.text import SIMULATOR, TRUE

BESIDE = 10  # distance of a box and of the published value from the middle of their row
BOX = {"low": 2.5, "first": 25, "median": 50, "third": 75, "high": 97.5}  # percentiles


def boxplot_chart(
    repeats: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    title: str = "How much do the estimates vary from log to log?",
    subtitle: str | None = None,
    axis_title: str = "Average return per episode",
    domain: style.Domain | None = None,
) -> alt.LayerChart:
    """Draw the spread of each estimator over repeats, and published values beside it.

    Parameters
    ----------
    repeats
        One row per estimator and repeat: `estimator, value`; missing values are left out of the
        box and counted in words. Box: 25 to 75 %; whiskers: 2.5 to 97.5 %.
    published
        One row per estimator: `estimator, mean, low, high`.
    domain
        Ends of the axis, moved out if the data exceed them; by default those of the data.
    """
    style.require_columns(repeats, ("estimator", "value"), "repeats")
    values: dict[str, Floats] = {
        str(name): group.to_numpy(dtype=np.float64)
        for name, group in repeats.groupby("estimator", sort=False)["value"]
    }
    given = {} if published is None else _published(published, values)
    everything = np.concatenate([*values.values(), *given.values()])
    digits = digits_for(everything)
    rows = [_row(name, values[name], given.get(name), digits) for name in values]
    least = 52 if given else 34
    plot = RowChart(rows, everything, axis_title=axis_title, domain=domain, least=least)
    for row in rows:
        row["y_ours"] = row["y"] - BESIDE * bool(given)
        row["y_theirs"] = row["y"] + BESIDE
    if subtitle is None:
        subtitle = (
            "Line: median. Box: 25 to 75%. Whiskers: 2.5 to 97.5%. Circle: mean. At the right: "
            "mean and 95% range."
        )
        subtitle += f" {TRUE}: {SIMULATOR}." if TRUE in values else ""
    color = style.DARK_BLUE if given else style.BLACK
    layers = [*_boxes(plot), plot.numbers("number", "y_ours", color)]
    return plot.draw(layers + _published_marks(plot) if given else layers, title, subtitle)


def _boxes(plot: RowChart) -> list[alt.Chart]:
    """Draw whiskers, boxes, medians and means; Altair's own box plot has other whiskers."""
    base = alt.Chart(style.data(plot.rows)).transform_filter("isValid(datum.median)")
    boxes = base.encode(y=plot.y("y_ours"), tooltip=["name:N", "number:N"])
    end = boxes.mark_tick(thickness=2, size=12, color=style.BLUE, opacity=1)
    box = boxes.mark_bar(size=16, fill="#A9CDE4", stroke=style.BLUE, strokeWidth=1.5)
    median = boxes.mark_tick(thickness=3, size=16, color=style.BLACK, opacity=1)
    mean = boxes.mark_point(filled=True, fill="white", stroke=style.BLACK, size=30, opacity=1)
    return [
        boxes.mark_rule(strokeWidth=2, color=style.BLUE).encode(x=plot.x("low"), x2="high:Q"),
        end.encode(x=plot.x("low")),
        end.encode(x=plot.x("high")),
        box.encode(x=plot.x("first"), x2="third:Q"),
        median.encode(x=plot.x("median")),
        mean.encode(x=plot.x("mean")),
    ]


def _published_marks(plot: RowChart) -> list[alt.Chart]:
    """Draw the published values, with a legend for both kinds."""
    base = alt.Chart(style.data(plot.rows)).transform_filter("isValid(datum.published)")
    marks = base.encode(y=plot.y("y_theirs"), tooltip=["name:N", "published_number:N"])
    names, shapes = ("This run", "Published"), ("square", "diamond")
    look = style.series_look("series", names, (style.BLUE, style.VERMILLION), shapes)
    return [
        marks.mark_rule(strokeWidth=2, color=style.VERMILLION).encode(
            x=plot.x("published_low"), x2="published_high:Q"
        ),
        marks.mark_point(filled=True, size=110, opacity=1).encode(x=plot.x("published"), **look),
        plot.numbers("published_number", "y_theirs", style.DARK_VERMILLION),
    ]


def _published(published: pd.DataFrame, values: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return mean, low and high by estimator."""
    style.require_columns(published, ("estimator", "mean", "low", "high"), "published")
    numbers = published[["mean", "low", "high"]].to_numpy(dtype=np.float64)
    names = [str(name) for name in published["estimator"]]
    unknown = [name for name in names if name not in values]
    if unknown:
        raise ValueError(
            f"published estimator {unknown[0]!r} has no repeats, which are of {list(values)}; "
            "leave it out or use the same name"
        )
    return dict(zip(names, numbers, strict=True))


def _row(name: str, repeats: Floats, published: Floats | None, digits: Digits) -> style.Row:
    known = repeats[np.isfinite(repeats)]
    note = f"{len(known)} repeat{'s' * (len(known) != 1)}"
    if len(known) < len(repeats):
        note += f", {len(repeats) - len(known)} without value"
    row: style.Row = {"name": name, "note": note}
    if len(known):
        row |= dict(zip(BOX, np.percentile(known, list(BOX.values())).tolist(), strict=True))
        row["mean"] = float(known.mean())
        row["number"] = number_text(row["mean"], row["low"], row["high"], digits)
    if published is not None:
        mean, low, high = published.tolist()
        row |= {"published": mean, "published_low": low, "published_high": high}
        row["series"] = "Published"
        row["published_number"] = number_text(mean, low, high, digits)
    return row

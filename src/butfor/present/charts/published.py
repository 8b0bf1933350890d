"""Published values below our own in the rows of a chart."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from butfor.evaluate.wording import Digits
from butfor.present.charts import style
from butfor.present.charts.row_chart import Floats, RowChart

BESIDE = 10  # distance of ours and of the published value from the middle of their row
LEAST = 52  # height of a row that holds both
SERIES = ("This run", "Published")


def read_published(published: pd.DataFrame | None, names: Sequence[str]) -> dict[str, Floats]:
    """Return mean, low and high by estimator, each of which must be among the names."""
    if published is None:
        return {}
    style.require_columns(published, ("estimator", "mean", "low", "high"), "published")
    numbers = published[["mean", "low", "high"]].to_numpy(dtype=np.float64)
    estimators = [str(name) for name in published["estimator"]]
    unknown = [name for name in estimators if name not in names]
    if unknown:
        raise ValueError(
            f"published estimator {unknown[0]!r} is not drawn, only {list(names)}; leave it out "
            "or use the same name"
        )
    return dict(zip(estimators, numbers, strict=True))


def add_published(rows: list[style.Row], given: dict[str, Floats], digits: Digits) -> None:
    """Add the published values to the rows of their estimators."""
    for row in rows:
        if row["name"] in given:
            mean, low, high = given[row["name"]].tolist()
            row |= {"published": mean, "published_low": low, "published_high": high}
            row |= {"series": SERIES[1], "published_number": digits.estimate(mean, low, high)}


def place_both(plot: RowChart, given: dict[str, Floats]) -> None:
    """Place our values in the middle of their rows, or above published ones."""
    for row in plot.rows:
        row["y_ours"] = row["y"] - BESIDE * bool(given)
        row["y_theirs"] = row["y"] + BESIDE


def published_marks(plot: RowChart, ours: str = "circle") -> list[alt.Chart]:
    """Draw the published values, with a legend for both kinds; `ours` is the shape of our marks."""
    base = alt.Chart(style.data(plot.rows)).transform_filter("isValid(datum.published)")
    marks = base.encode(
        y=plot.y("y_theirs"), tooltip=[alt.Tooltip("name:N"), alt.Tooltip("published_number:N")]
    )
    look = style.series_look("series", SERIES, (style.BLUE, style.GREY), (ours, "cross"))
    return [
        marks.mark_rule(strokeWidth=2, color=style.GREY).encode(
            x=plot.x("published_low"), x2=alt.X2("published_high:Q")
        ),
        marks.mark_point(filled=True, size=110, opacity=1).encode(x=plot.x("published"), **look),
        plot.numbers("published_number", "y_theirs", style.GREY),
    ]

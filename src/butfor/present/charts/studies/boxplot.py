"""The spread of estimates over repeats, with published values beside it."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

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
from butfor.present.text import FULL_NAMES, SIMULATOR, TRUE, enough_logs, range_percentiles

BOX = ("low", "first", "median", "third", "high")


@style.unchecked
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
        One row per estimator and log: `estimator, value`; missing values are left out of the box
        and counted in words. Box: 25 to 75%; whiskers: 2.5 to 97.5% if every estimator has 40
        values, else the lowest and the highest.
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
    given = read_published(published, list(values))
    everything = np.concatenate([*values.values(), *given.values()])
    digits = digits_for(everything)
    fewest = min(int(np.isfinite(mine).sum()) for mine in values.values())
    rows = [_row(name, values[name], fewest, digits) for name in values]
    add_published(rows, given, digits)
    least = LEAST if given else 34
    plot = RowChart(rows, everything, axis_title=axis_title, domain=domain, least=least)
    place_both(plot, given)
    if subtitle is None:
        subtitle = _subtitle(fewest, bool(given))
        subtitle += f" {TRUE}: {SIMULATOR}." if TRUE in values else ""
    color = style.DARK_BLUE if given else style.BLACK
    layers = [*_boxes(plot), plot.numbers("number", "y_ours", color)]
    if given:
        layers += published_marks(plot, "square")
    return plot.draw(layers, title, subtitle)


def _boxes(plot: RowChart) -> list[alt.Chart]:
    """Draw whiskers, boxes, medians and means; Altair's own box plot has other whiskers."""
    base = alt.Chart(style.data(plot.rows)).transform_filter("isValid(datum.median)")
    boxes = base.encode(
        y=plot.y("y_ours"), tooltip=[alt.Tooltip("name:N"), alt.Tooltip("number:N")]
    )
    end = boxes.mark_tick(thickness=2, size=12, color=style.BLUE, opacity=1)
    box = boxes.mark_bar(size=16, fill="#A9CDE4", stroke=style.BLUE, strokeWidth=1.5)
    median = boxes.mark_tick(thickness=3, size=16, color=style.BLACK, opacity=1)
    mean = boxes.mark_point(filled=True, fill="white", stroke=style.BLACK, size=30, opacity=1)
    return [
        boxes.mark_rule(strokeWidth=2, color=style.BLUE).encode(
            x=plot.x("low"), x2=alt.X2("high:Q")
        ),
        end.encode(x=plot.x("low")),
        end.encode(x=plot.x("high")),
        box.encode(x=plot.x("first"), x2=alt.X2("third:Q")),
        median.encode(x=plot.x("median")),
        mean.encode(x=plot.x("mean")),
    ]


def _subtitle(fewest: int, published: bool) -> str:
    """Say what boxes, whiskers and numbers are; ranges depend on the number of logs."""
    whiskers, numbers = "lowest and highest", "mean (lowest to highest)"
    if enough_logs(fewest):
        whiskers, numbers = "2.5 to 97.5%", "mean (95% range)"
    words = f"Line: median. Box: 25 to 75%. Whiskers: {whiskers}. Circle: mean. At the right: "
    return words + numbers + ("; below it the published mean (95% range)." if published else ".")


def _row(name: str, values: Floats, fewest: int, digits: Digits) -> style.Row:
    known = values[np.isfinite(values)]
    note = f"{len(known)} log{'s' * (len(known) != 1)}"
    if len(known) < len(values):
        note += f", {len(values) - len(known)} without value"
    meaning = FULL_NAMES.get(name.split()[0].rstrip(","))
    row: style.Row = {"name": name, "note": f"{meaning}; {note}" if meaning else note}
    if len(known):
        low, high = range_percentiles(fewest)
        percentiles = np.percentile(known, [low, 25, 50, 75, high]).tolist()
        row |= dict(zip(BOX, percentiles, strict=True)) | {"mean": float(known.mean())}
        row["number"] = digits.estimate(row["mean"], row["low"], row["high"])
    return row

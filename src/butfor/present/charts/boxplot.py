"""The spread of estimates over repeats, with published values beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

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

BESIDE = 10  # how far a box and the published value lie from the middle of their row
BOX = {"low": 2.5, "first": 25, "median": 50, "third": 75, "high": 97.5}  # percentiles


def boxplot_chart(
    repeats: pd.DataFrame,
    *,
    published: pd.DataFrame | None = None,
    title: str = "How much do the estimates vary from log to log?",
    subtitle: str | None = None,
    axis_title: str = "Average return per episode",
    domain: Domain | None = None,
) -> alt.LayerChart:
    """Draw the spread of each estimator over repeats, and published values beside it.

    Parameters
    ----------
    repeats
        A row an estimator and repeat: `estimator, value`; missing values are left out of the
        box and counted in words. Box: 25 to 75 %; whiskers: 2.5 to 97.5 %.
    published
        A row an estimator: `estimator, mean, low, high`.
    domain
        Ends of the axis, moved out where the data go beyond them; by default those of the data.
    """
    require_columns(repeats, ("estimator", "value"), "repeats")
    values: dict[str, NDArray[np.float64]] = {
        str(name): group.to_numpy(dtype=np.float64)
        for name, group in repeats.groupby("estimator", sort=False)["value"]
    }
    given = {} if published is None else _published(published, values)
    everything = np.concatenate([*values.values(), *given.values()])
    rows = [_row(name, values[name], given.get(name), everything) for name in values]
    height = stack(rows, least=52 if given else 34)
    for row in rows:
        row["ours"] = row["y"] - BESIDE * bool(given)
        row["theirs"] = row["y"] + BESIDE
    if subtitle is None:
        subtitle = (
            "Line: median. Box: 25 to 75%. Whiskers: 2.5 to 97.5%. Circle: mean. At the right: "
            "mean and 95% range."
        )
        subtitle += f" {TRUE}: {SIMULATOR}." if TRUE in values else ""
    ends = value_domain(everything, domain)

    def x(field: str) -> Any:
        return value_axis(field, axis_title, ends)

    base = alt.Chart(data(rows))
    ours = base.transform_filter("isValid(datum.median)").encode(
        y=pixels("ours", height, down=True), tooltip=["name:N", "number:N"]
    )
    tick = ours.mark_tick(thickness=2, size=12, color=BLUE, opacity=1)
    layers = [
        *label_layers(rows, height),
        ours.mark_rule(strokeWidth=2, color=BLUE).encode(x=x("low"), x2="high:Q"),
        tick.encode(x=x("low")),
        tick.encode(x=x("high")),
        ours.mark_bar(size=16, fill="#A9CDE4", stroke=BLUE, strokeWidth=1.5).encode(
            x=x("first"), x2="third:Q"
        ),
        ours.mark_tick(thickness=3, size=16, color=BLACK, opacity=1).encode(x=x("median")),
        ours.mark_point(filled=True, fill="white", stroke=BLACK, size=30, opacity=1).encode(
            x=x("mean")
        ),
        number_layer(rows, height, "number", "ours", "#005A8C" if given else BLACK),
    ]
    if given:
        theirs = base.transform_filter("isValid(datum.published)").encode(
            y=pixels("theirs", height, down=True), tooltip=["name:N", "published_number:N"]
        )
        layers += [
            theirs.mark_rule(strokeWidth=2, color=VERMILLION).encode(
                x=x("published_low"), x2="published_high:Q"
            ),
            _published_marks(theirs, x("published")),
            number_layer(rows, height, "published_number", "theirs", "#A84300"),
        ]
    return finish(layers, title, subtitle, width=PLOT, height=height, total=TOTAL)


def _published(
    published: pd.DataFrame, values: Mapping[str, NDArray[np.float64]]
) -> dict[str, NDArray[np.float64]]:
    """Mean, low and high by estimator."""
    columns = ("mean", "low", "high")
    require_columns(published, ("estimator", *columns), "published")
    numbers = published[list(columns)].to_numpy(dtype=np.float64)
    names = [str(name) for name in published["estimator"]]
    strangers = [name for name in names if name not in values]
    if strangers:
        raise ValueError(
            f"published estimator {strangers[0]!r} has no repeats, there are {list(values)}; "
            "leave it out or name it alike"
        )
    return dict(zip(names, numbers, strict=True))


def _row(
    name: str,
    repeats: NDArray[np.float64],
    published: NDArray[np.float64] | None,
    everything: NDArray[np.float64],
) -> Row:
    known = repeats[np.isfinite(repeats)]
    note = f"{len(known)} repeat{'s' * (len(known) != 1)}"
    if len(known) < len(repeats):
        note += f", {len(repeats) - len(known)} without value"
    row: Row = {"name": name, "note": wrap(note, LABELS, SMALL)}
    if len(known):
        row |= dict(zip(BOX, np.percentile(known, list(BOX.values())).tolist(), strict=True))
        row["mean"] = float(known.mean())
        row["number"] = number_text(row["mean"], row["low"], row["high"], everything)
    if published is not None:
        mean, low, high = published.tolist()
        row |= {"published": mean, "published_low": low, "published_high": high}
        row["series"] = "Published"
        row["published_number"] = number_text(mean, low, high, everything)
    return row


def _published_marks(theirs: alt.Chart, x: Any) -> alt.Chart:
    """Draw the published values, with the legend for both."""
    names, shapes = ["This run", "Published"], ["square", "diamond"]
    legend = alt.Legend(title=None, orient="top", symbolSize=130)
    color, shape = alt.Color("series:N", legend=legend), alt.Shape("series:N", legend=legend)
    marks = theirs.mark_point(filled=True, size=110, opacity=1)
    return marks.encode(
        x=x,
        color=color.scale(domain=names, range=[BLUE, VERMILLION]),
        shape=shape.scale(domain=names, range=shapes),
    )

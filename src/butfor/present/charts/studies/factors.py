"""Charts of errors by the level of a factor: their means, and the pieces they consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts import style

WIDTH, TOTAL, COLUMNS = 282, 640, 2  # of a panel, of the chart; panels side by side
# of the estimators, in their order
COLORS = (style.BLACK, style.VERMILLION, style.GREEN, style.BLUE)
SHAPES = ("square", "diamond", "triangle-up", "circle")
PIECE_COLORS = ("#56B4E9", "#9AA3AE", "#D55E00", "#007A5A")
Marks = Callable[[pd.DataFrame, Any, Callable[[str], Any]], list[alt.Chart]]


@style.unchecked
def errors_chart(
    errors: pd.DataFrame,
    *,
    reference: Mapping[str, str] | None = None,
    title: str = "What moves the error of each estimate?",
    subtitle: str | None = None,
    axis_title: str = "Estimate less true value",
    domain: style.Domain | None = None,
) -> alt.ConcatChart:
    """Draw the mean error of up to four estimators at each level of each factor.

    Parameters
    ----------
    errors
        One row per log: `factor, level, estimator, error`, in the order to be drawn. Missing errors
        are left out. Small dots: logs; marks: means; bars: mean ± 2 standard errors.
    reference
        The level of each factor that the other panels use, written in bold.
    domain
        Ends of the scale; marks beyond them are drawn at its edge.
    """
    style.require_columns(errors, ("factor", "level", "estimator", "error"), "errors")
    names = style.distinct(errors["estimator"])
    start = max(len(COLORS) - len(names), 0)
    look = style.series_look("name", names, COLORS[start:], SHAPES[start:])
    known = errors["error"][np.isfinite(errors["error"])]
    ends = domain or style.value_domain(known.to_numpy(dtype=np.float64), (0.0, 1e-9))
    if subtitle is None:
        subtitle = (
            "Means over logs, ± 2 standard errors; small dots: the logs. Bold: the level that the "
            "other panels use."
        )

    def marks(mine: pd.DataFrame, x: Any, y: Any) -> list[alt.Chart]:
        offset = alt.XOffset("name:N", scale=alt.Scale(domain=names, paddingOuter=0.6))
        place = {"x": x, "xOffset": offset, "color": look["color"]}
        shown = mine[np.isfinite(mine["error"])]
        dots = [
            {"name": str(row.estimator), "level": str(row.level), "error": row.error}
            for row in shown.itertuples()
        ]
        groups = shown.groupby(["level", "estimator"], sort=False)["error"]
        means = [_mean(str(level), str(name), values) for (level, name), values in groups]
        mean = alt.Chart(style.data(means)).encode(
            **place, tooltip=[alt.Tooltip("name:N"), alt.Tooltip("number:N")]
        )
        mark = mean.mark_point(filled=True, size=90, opacity=1, stroke="white", strokeWidth=1)
        dot = alt.Chart(style.data(dots)).mark_circle(size=14, opacity=0.35)
        return [
            dot.encode(**place, y=y("error")),
            mean.mark_rule(strokeWidth=3).encode(y=y("low"), y2=alt.Y2("high:Q")),
            mark.encode(y=y("mean"), shape=look["shape"]),
        ]

    panels = _panels(errors.groupby("factor", sort=False), marks, 170, axis_title, ends, reference)
    return style.finish(panels, title, subtitle, total=TOTAL)


def _mean(level: str, name: str, errors: pd.Series) -> style.Row:
    mean = float(errors.mean())
    margin = 2 * float(errors.std(ddof=1)) / len(errors) ** 0.5 if len(errors) > 1 else 0.0
    logs = f"{len(errors)} log{'s' * (len(errors) != 1)}"
    number = f"{style.signed(mean, 3)} ± {margin / 2:.3f} ({logs})"
    ends = {"low": mean - margin, "high": mean + margin}
    return {"name": name, "level": level, "mean": mean, "number": number, **ends}


@style.unchecked
def pieces_chart(
    pieces: pd.DataFrame,
    *,
    title: str = "What is the error made of?",
    subtitle: str | None = None,
    axis_title: str = "Part of the error",
    domain: style.Domain | None = None,
) -> alt.ConcatChart:
    """Draw up to four pieces and their sum at each level of each panel.

    Parameters
    ----------
    pieces
        One row per piece: `panel, level, piece, value`, in the order to be drawn. Positive pieces
        are stacked up from zero, negative ones down; the diamond is the sum of all.
    domain
        Ends of the scale, moved out if the stacks exceed them.
    """
    style.require_columns(pieces, ("panel", "level", "piece", "value"), "pieces")
    names = style.distinct(pieces["piece"])
    look = style.series_look("piece", names, PIECE_COLORS, None, symbolType="square")
    # as high and as low as the tallest stacks
    stacks = pieces.assign(up=pieces["value"].clip(lower=0), down=pieces["value"].clip(upper=0))
    reach = stacks.groupby(["panel", "level"])[["up", "down"]].sum()
    low, high = domain or (0.0, 0.0)
    low, high = min(low, float(reach["down"].min())), max(high, float(reach["up"].max()))
    room = 0.05 * (high - low) or 1.0
    ends = (low - room * (low < 0), high + room)
    if subtitle is None:
        subtitle = "Pieces above zero add to the error, those below reduce it. Diamond: their sum."

    def marks(mine: pd.DataFrame, x: Any, y: Any) -> list[alt.Chart]:
        shown = mine.assign(level=mine["level"].map(str), piece=mine["piece"].map(str))
        shown["order"] = [names.index(name) for name in shown["piece"]]
        shown["number"] = [style.signed(value, 3) for value in shown["value"]]
        fields = ["level", "piece", "value", "order", "number"]
        sums = shown.groupby("level", sort=False)["value"].sum().rename("sum").reset_index()
        bars = alt.Chart(style.data(shown[fields].to_dict("records"))).mark_bar(
            stroke="white", strokeWidth=0.5, width={"band": 0.68}
        )
        diamonds = alt.Chart(style.data(sums.to_dict("records"))).mark_point(
            shape="diamond", filled=True, size=90, opacity=1, color=style.BLACK
        )
        stacked = bars.encode(
            x=x, y=y("value").stack("zero"), order=alt.Order("order:Q"), color=look["color"]
        )
        return [
            stacked.encode(
                tooltip=[alt.Tooltip("piece:N"), alt.Tooltip("level:N"), alt.Tooltip("number:N")]
            ),
            diamonds.encode(
                x=x, y=y("sum"), tooltip=[alt.Tooltip("level:N"), alt.Tooltip("sum:Q")]
            ),
        ]

    panels = _panels(pieces.groupby("panel", sort=False), marks, 260, axis_title, ends, None)
    return style.finish(panels, title, subtitle, total=TOTAL)


def _panels(
    groups: Any,
    marks: Marks,
    height: int,
    axis_title: str,
    domain: style.Domain,
    bold: Mapping[str, str] | None,
) -> alt.ConcatChart:
    """Draw a panel for each group of rows, with a line at zero.

    `marks` draws the rows of one panel, given the channel that places marks by `level` and a
    function that returns the one that places them by a value: beyond the scale, at its edge. `bold`
    is the level that is written in bold, by panel.
    """
    zero = alt.Chart(style.data([{"zero": 0}])).mark_rule(color=style.GREY, strokeWidth=1.5)
    panels = []
    for number, (name, rows) in enumerate(groups):
        levels, strong = style.distinct(rows["level"]), (bold or {}).get(str(name))
        # by position, as the name of a level must not become part of an expression
        at = levels.index(strong) if strong in levels else -1
        test = f"round(datum.index * {max(len(levels) - 1, 1)}) == {at}"
        weight = {"condition": {"test": test, "value": "bold"}, "value": "normal"}
        axis = alt.Axis(labelAngle=0, labelFontWeight=weight, labelLimit=WIDTH // len(levels))
        x = alt.X("level:N", sort=levels, scale=alt.Scale(domain=levels), title=None, axis=axis)

        def y(field: str, labels: bool = number % COLUMNS == 0) -> Any:
            channel = style.value_axis(alt.Y, field, axis_title, domain, clamp=True)
            if not labels:
                channel.axis.labels = channel.axis.ticks = False
                channel.title = None
            return channel

        panel = style.layered(zero.encode(y=y("zero")), *marks(rows, x, y))
        heading = style.panel_title(str(name), WIDTH)
        panels.append(style.framed(panel, WIDTH, height).properties(title=heading))
    concat = alt.concat(*panels, columns=COLUMNS, spacing=14)
    return concat.resolve_scale(x="independent", xOffset="independent")

"""Why a model is not enough: mechanisms that agree on the model and differ on the replay."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from numpy.typing import ArrayLike

from butfor.evaluate.wording import percent
from butfor.present.charts import style
from butfor.present.charts.rows import Floats

BAR = 220  # width of [0, 1]
GAP = 26
HEIGHT = 40
HEADS = 34  # room for the headings
STEP = 92  # from one ordering to the next
FILLS = ("#FFFFFF", "#D9DCE1", "#CFE4F2", "#F7E8B8", "#CDEBDD")  # by category
WIDTH = 2 * BAR + GAP
Interval = tuple[float, float]


def nonidentifiability_chart(
    factual: ArrayLike,
    counterfactual: ArrayLike,
    observed: int,
    orders: Sequence[Sequence[int]],
    *,
    title: str = "One model, several answers",
    subtitle: str | None = None,
) -> alt.LayerChart:
    """Draw what an observed category implies for another row, for several orders of the categories.

    With each order, U ~ Uniform(0, 1) picks the category in whose interval it falls: the same two
    rows, but other counterfactuals.

    Parameters
    ----------
    factual, counterfactual : [k]
        The two rows of probabilities.
    observed
        The category seen under the factual row, from 0; the chart counts them from 1.
    orders
        Permutations of 0..k - 1, one per line.
    """
    rows = [np.asarray(row, dtype=np.float64) for row in (factual, counterfactual)]
    _check(rows, observed, orders)
    pieces: list[style.Row] = []
    spans: list[style.Row] = []
    texts: list[style.Row] = []
    for line, order in enumerate(orders):
        top = HEADS + STEP * line
        box = {"y": top, "y2": top + HEIGHT, "y_middle": top + HEIGHT / 2}
        left, right = (_intervals(row, order) for row in rows)
        span = left[observed]
        for start, intervals in ((0, left), (BAR + GAP, right)):
            pieces += [
                {"order": line} | box | _piece(category, intervals[category], span, start)
                for category in order
                if intervals[category][1] > intervals[category][0]
            ]
            spans.append(box | _span(span, start, top))
        overlap = {c: _overlap(right[c], span) / (span[1] - span[0]) for c in order}
        result = _result(overlap)
        texts.append(
            {
                "name": "ord" + "′" * line,
                "order": "[" + ", ".join(str(category + 1) for category in order) + "]",
                "result": result,
                "y": box["y_middle"],
                "y_result": box["y_middle"] - 9 * (len(result) - 1),
            }
        )
    if subtitle is None:
        subtitle = (
            "Each order of the categories cuts [0, 1] into the same probabilities, so no data can "
            "tell them apart. Orange: where U must have been, given the observation "
            f"S′ = {observed + 1}."
        )
    height = HEADS + STEP * (len(orders) - 1) + HEIGHT + 26
    chart = style.layered(*_layers(pieces, spans, texts, height), _headings(observed))
    chart = chart.properties(width=WIDTH, height=height)
    return style.finish(chart, title, subtitle, total=WIDTH + 190)


def _piece(category: int, interval: Interval, span: Interval, start: float) -> style.Row:
    """Place a category's interval on a bar that begins at `start`."""
    return {
        "category": str(category + 1),
        "low": interval[0],
        "high": interval[1],
        "fill": FILLS[category % len(FILLS)],
        "x": start + BAR * interval[0],
        "x2": start + BAR * interval[1],
        "middle": start + BAR * _middle(interval, span),
    }


def _span(span: Interval, start: float, top: float) -> style.Row:
    """Place the interval in which U must have been."""
    low, high = span
    return {
        "side": "left" if start == 0 else "right",
        "x": start + BAR * low,
        "x2": start + BAR * high,
        "below": top + HEIGHT + 13,
        "text": f"{low:.3g} ≤ U < {high:.3g}",
        "middle": start + BAR * (low + high) / 2,
    }


def _layers(
    pieces: list[style.Row], spans: list[style.Row], texts: list[style.Row], height: int
) -> list[alt.Chart]:
    def x(field: str) -> alt.X:
        return style.pixels(field, WIDTH)

    def y(field: str) -> alt.Y:
        return style.pixels(field, height, down=True)

    piece, span = alt.Chart(style.data(pieces)), alt.Chart(style.data(spans))
    box = {"x": x("x"), "x2": "x2:Q", "y": y("y"), "y2": "y2:Q"}
    text = alt.Chart(style.data(texts))
    left: style.Row = {"align": "right", "x": -12}
    return [
        piece.mark_rect(stroke=style.BLACK).encode(fill=alt.Fill("fill:N", scale=None), **box),
        span.transform_filter("datum.side == 'left'")
        .mark_rect(fill=style.VERMILLION, opacity=0.55)
        .encode(**box),
        span.mark_rect(fill=None, stroke=style.VERMILLION, strokeWidth=3).encode(**box),
        span.mark_text(fontSize=style.SMALL, color=style.DARK_VERMILLION).encode(
            x=x("middle"), y=y("below"), text="text:N"
        ),
        piece.transform_filter("datum.x2 - datum.x > 12")
        .mark_text(fontSize=17, fontWeight="bold")
        .encode(x=x("middle"), y=y("y_middle"), text="category:N"),
        text.mark_text(dy=-9, fontWeight="bold", **left).encode(y=y("y"), text="name:N"),
        text.mark_text(dy=9, fontSize=style.SMALL, color=style.GREY, **left).encode(
            y=y("y"), text="order:N"
        ),
        text.mark_text(
            align="left", x=WIDTH + 12, fontWeight="bold", fontSize=15, lineHeight=18
        ).encode(y=y("y_result"), text="result:N"),
    ]


def _headings(observed: int) -> alt.Chart:
    heads = [
        {"text": f"What happened: S′ = {observed + 1} under A = a", "x": BAR / 2},
        {"text": "The same U under A = a′", "x": BAR * 1.5 + GAP},
        {"text": "Answer", "x": WIDTH + 38},
    ]
    text = alt.Chart(style.data(heads)).mark_text(fontWeight="bold", y=14)
    return text.encode(text="text:N", x=style.pixels("x", WIDTH))


def _check(rows: list[Floats], observed: int, orders: Sequence[Sequence[int]]) -> None:
    for name, row in zip(("factual", "counterfactual"), rows, strict=True):
        if row.ndim != 1 or row.shape != rows[0].shape or len(row) == 0:
            raise ValueError(f"{name} row has shape {row.shape}; give two rows of the same length")
        if not np.isfinite(row).all() or (row < 0).any() or abs(row.sum() - 1) > 1e-9:
            raise ValueError(f"{name} row {row.tolist()} is not a distribution; make it sum to 1")
    size = len(rows[0])
    if not 0 <= observed < size or rows[0][observed] == 0:
        raise ValueError(
            f"observed {observed}: give one of 0..{size - 1} that the factual row makes possible"
        )
    for order in orders:
        if sorted(order) != list(range(size)):
            raise ValueError(f"order {list(order)}: give each of 0..{size - 1} once")
    if len(orders) == 0:
        raise ValueError("0 orders; give at least one permutation of the categories")


def _intervals(row: Floats, order: Sequence[int]) -> dict[int, Interval]:
    """Cut [0, 1] by the row's probabilities in this order."""
    cuts = [0.0, *np.cumsum(row[list(order)]).tolist()]
    return {category: (cuts[i], cuts[i + 1]) for i, category in enumerate(order)}


def _middle(piece: Interval, span: Interval) -> float:
    """Return the middle of the widest part into which the span cuts a piece, within it first."""
    low, high = piece
    inner = [min(max(cut, low), high) for cut in span]
    parts = [(inner[0], inner[1]), (low, inner[0]), (inner[1], high)]
    start, stop = max(parts, key=lambda part: round(part[1] - part[0], 9))
    return (start + stop) / 2


def _overlap(one: Interval, other: Interval) -> float:
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def _result(overlap: dict[int, float]) -> list[str]:
    """Name the counterfactual categories, with their probabilities if there are several."""
    possible = sorted((c for c in overlap if overlap[c] > 1e-9), key=lambda c: -overlap[c])
    if len(possible) == 1:
        return [f"S′ = {possible[0] + 1}"]
    return [f"S′ = {c + 1}: {percent(overlap[c])}" for c in possible]

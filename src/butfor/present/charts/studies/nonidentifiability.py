"""Why a model is not enough: mechanisms that agree on the model and differ on the replay."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
from numpy.typing import ArrayLike

from butfor.evaluate.wording import percent
from butfor.present.charts import style
from butfor.present.charts.row_chart import Floats

BAR, HEIGHT = 220, 40  # size of [0, 1]
STEP = 92  # from one order to the next
FILLS = ("#FFFFFF", "#D9DCE1", "#CFE4F2", "#F7E8B8", "#CDEBDD")  # by category
Interval = tuple[float, float]


@style.unchecked
def nonidentifiability_chart(
    factual: ArrayLike,
    counterfactual: ArrayLike,
    observed: int,
    orders: Sequence[Sequence[int]],
    *,
    title: str = "One model, several answers",
    subtitle: str | None = None,
) -> alt.HConcatChart:
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
    pieces: tuple[list[style.Row], list[style.Row]] = ([], [])
    spans: list[style.Row] = []
    answers: list[style.Row] = []
    for number, order in enumerate(orders):
        name = "ord" + "′" * number
        line = f"{name}\n[{', '.join(str(category + 1) for category in order)}]"
        cut = [_intervals(row, order) for row in rows]
        low, high = span = cut[0][observed]
        for mine, intervals in zip(pieces, cut, strict=True):
            mine += [
                {
                    "line": line,
                    "category": str(category + 1),
                    "low": start,
                    "high": stop,
                    "fill": FILLS[category % len(FILLS)],
                    "middle": _middle((start, stop), span),
                }
                for category, (start, stop) in intervals.items()
                if stop > start
            ]
        words, middle = f"{low:.3g} ≤ U < {high:.3g}", (low + high) / 2
        spans.append({"line": line, "low": low, "high": high, "words": words, "middle": middle})
        overlap = {
            category: max(0.0, min(stop, high) - max(start, low)) / (high - low)
            for category, (start, stop) in cut[1].items()
        }
        answers.append({"line": line, "name": name, "result": _result(overlap)})
    if subtitle is None:
        subtitle = (
            "Each order of the categories cuts [0, 1] into the same probabilities, so no data can "
            "tell them apart. Orange: where U must have been, given the observation "
            f"S′ = {observed + 1}."
        )
    happened = f"What happened: S′ = {observed + 1} under A = a"
    panels = alt.hconcat(
        _bars(pieces[0], spans, happened, first=True),
        _bars(pieces[1], spans, "The same U under A = a′", first=False),
        _answers(answers),
        spacing=26,
    )
    return style.finish(panels, title, subtitle, total=2 * BAR + 216)


def _bars(
    pieces: list[style.Row], spans: list[style.Row], title: str, *, first: bool
) -> alt.LayerChart:
    """Draw [0, 1] cut into categories for each order, and the interval in which U must be."""
    axis = alt.Axis(domain=False, ticks=False, labelPadding=10, labelExpr=style.LINES)
    y = alt.Y("line:N", sort=None, axis=axis if first else None, title=None)
    x = alt.X("low:Q", scale=alt.Scale(domain=[0, 1]), axis=None)
    piece, span = (alt.Chart(style.data(rows)).encode(y=y) for rows in (pieces, spans))
    wide = piece.transform_filter("datum.high - datum.low > 0.055")
    fill = style.VERMILLION if first else None
    return style.layered(
        piece.mark_bar(stroke=style.BLACK, height=HEIGHT).encode(
            x=x, x2=alt.X2("high:Q"), fill=alt.Fill("fill:N", scale=None)
        ),
        span.mark_bar(
            height=HEIGHT, fill=fill, fillOpacity=0.55, stroke=style.VERMILLION, strokeWidth=3
        ).encode(x=x, x2=alt.X2("high:Q")),
        span.mark_text(fontSize=style.SMALL, color=style.DARK_VERMILLION, dy=33).encode(
            x=alt.X("middle:Q"), text=alt.Text("words:N")
        ),
        wide.mark_text(fontSize=17, fontWeight="bold").encode(
            x=alt.X("middle:Q"), text=alt.Text("category:N")
        ),
    ).properties(width=BAR, height=alt.Step(STEP), title=style.panel_title(title, BAR + 20))


def _answers(answers: list[style.Row]) -> alt.LayerChart:
    up = alt.expr("-9 * (datum.result.length - 1)")
    text = alt.Chart(style.data(answers)).mark_text(
        align="left", x=0, dy=up, fontWeight="bold", fontSize=15, lineHeight=18
    )
    chart = style.layered(
        text.encode(y=alt.Y("line:N", sort=None, axis=None), text=alt.Text("result:N"))
    )
    title = style.panel_title("Answer", 100)
    return chart.properties(width=100, height=alt.Step(STEP), title=title)


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


def _result(overlap: dict[int, float]) -> list[str]:
    """Name the counterfactual categories, with their probabilities if there are several."""
    possible = sorted((c for c in overlap if overlap[c] > 1e-9), key=lambda c: -overlap[c])
    if len(possible) == 1:
        return [f"S′ = {possible[0] + 1}"]
    return [f"S′ = {c + 1}: {percent(overlap[c])}" for c in possible]

"""Everyone at a glance: what the model expects of each stay, with its worst and best case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.present.charts.style import (
    BLUE,
    GREY,
    LINE,
    LINE_HEIGHT,
    SMALL,
    TEXT,
    VERMILLION,
    Row,
    data,
    finish,
    pixels,
    require_columns,
    wrap,
)
from butfor.replay.steps import THIN

PLOT = 560
LABELS = 130
BAND = 118  # height of the row of one observed outcome
BINS = 20
BARS = 46  # height of the histogram above
MOST = 5000  # marks; with more stays some are left out, flagged ones never
COLUMNS = (
    "id",
    "observed_outcome",
    "expected_return",
    "low_any",
    "high_any",
    "thin_share",
    "rank",
)


def glance_template(
    outcomes: Sequence[str],
    *,
    noun: str = "episode",
    nouns: str = "episodes",
    flags: bool = True,
) -> dict[str, Any]:
    """Return the Vega-Lite specification of the strip plot, without rows.

    Parameters
    ----------
    outcomes
        Names of what can have happened, from top to bottom.
    noun, nouns
        What an episode is called, and several.
    flags
        Whether to say which ones are flagged.
    """
    height = BAND * len(outcomes)
    words = "datum.value == 0 ? '0' : format(datum.value, '+~g')"
    axis = alt.Axis(tickCount=5, labelExpr=words, grid=True)
    title = f"Model: expected return of the same {noun} under the policy"

    def x(field: str) -> Any:
        scale = alt.Scale(nice=False, zero=False)
        return alt.X(f"{field}:Q", scale=scale, title=title, axis=axis)

    y = pixels("y", height, down=True)
    kinds = ["Mostly enough similar past cases", f"Mostly thin evidence (fewer than {THIN})"]
    signed = "format(datum.{0}, '+.2f')"
    marks = alt.Chart(alt.NamedData(name="marks")).transform_calculate(
        kind=f"datum.thin > 0.5 ? '{kinds[1]}' : '{kinds[0]}'",
        expected=signed.format("value"),
        range=f"isValid(datum.low) ? {signed.format('low')} + ' to ' + {signed.format('high')} : "
        "'not worked out'",
        evidence="format(100 * datum.thin, '.0f') + ' of 100 steps thin'",
    )
    ringed = "Ringed: flagged, to be read. " if flags else ""
    legend = alt.Legend(
        title=f"{ringed}Line: worst to best case, if the model is right.",
        titleFontSize=SMALL,
        titleFontWeight="normal",
        titleLimit=PLOT,
        labelFontSize=SMALL,
        orient="bottom",
        symbolSize=110,
        symbolOpacity=1,
        columns=2,
    )
    color = alt.Color("kind:N", legend=legend).scale(domain=kinds, range=[BLUE, "#B87400"])
    shape = alt.Shape("kind:N", legend=legend).scale(domain=kinds, range=["circle", "triangle-up"])
    bands = [
        {"y": BAND * (place + 0.5), "top": BAND * place, "bottom": BAND * (place + 1)}
        for place in range(len(outcomes))
    ]
    bars = alt.Chart(alt.NamedData(name="bars"))
    fields = ("id", "happened", "expected", "range", "evidence")
    layers = [
        alt.Chart(alt.NamedData(name="frame"))
        .mark_rule(opacity=0)
        .encode(x=x("low"), x2="high:Q", y=alt.value(0)),
        alt.Chart(data(bands))
        .mark_rect(stroke=LINE, fill=None, x=0, x2=PLOT)
        .encode(y=pixels("top", height, down=True), y2="bottom:Q"),
        alt.Chart(alt.NamedData(name="rows"))
        .mark_text(align="right", x=-10, lineHeight=LINE_HEIGHT)
        .encode(y=y, text="text:N"),
        bars.mark_rect(fill="#9AA1AA").encode(
            x=x("low"), x2="high:Q", y=pixels("top", height, down=True), y2="bottom:Q"
        ),
        bars.mark_text(fontSize=SMALL, align="center").encode(
            x=x("middle"), y=pixels("y", height, down=True), text="text:N"
        ),
        alt.Chart(data([{"text": f"Number of {nouns}"}]))
        .mark_text(align="right", x=-10, y=-14, fontSize=SMALL, color=GREY, limit=LABELS)
        .encode(text="text:N"),
        marks.transform_filter("isValid(datum.low)")
        .mark_rule(opacity=0.22, strokeWidth=1)
        .encode(x=x("low"), x2="high:Q", y=y, color=color),
        marks.mark_point(filled=True, size=34, opacity=0.85).encode(
            x=x("value"),
            y=y,
            color=color,
            shape=shape,
            tooltip=[alt.Tooltip(f"{field}:N") for field in fields],
        ),
    ]
    if flags:
        rings = alt.Chart(alt.NamedData(name="marks")).transform_filter("datum.flagged")
        layers.append(
            rings.mark_point(filled=False, size=110, strokeWidth=1.6, color=VERMILLION).encode(
                x=x("value"), y=y
            )
        )
    chart = finish(layers, "", "", width=PLOT, height=height, total=PLOT + LABELS)
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("title")
    spec["description"] = "What the model expects under the policy, a mark each."
    spec["datasets"] = {
        **spec.get("datasets", {}),
        **{name: [] for name in ("frame", "rows", "bars", "marks")},
    }
    return spec


def glance_datasets(episodes: pd.DataFrame, outcomes: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of the strip plot, from an audit's table of episodes."""
    require_columns(episodes, COLUMNS, "episodes")
    places = {name: place for place, name in enumerate(outcomes)}
    unknown = [name for name in episodes["observed_outcome"].unique() if name not in places]
    if unknown:
        raise ValueError(f"outcome {unknown[0]!r}: the picture has rows for {', '.join(outcomes)}")
    values = episodes[["low_any", "high_any", "expected_return"]].to_numpy(dtype=np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.03 * (high - low) or 0.5
    ends = (low - room, high + room)
    counts = episodes["observed_outcome"].value_counts()
    rows: list[Row] = []
    for name, place in places.items():
        text = wrap(f"{name} ({counts.get(name, 0)})", LABELS - 14, TEXT, lines=3)
        y = BAND * (place + 0.5) - LINE_HEIGHT * (len(text) - 1) / 2
        rows.append({"text": text, "y": y})
    return {
        "frame": [{"low": ends[0], "high": ends[1]}],
        "rows": rows,
        "bars": _bars(episodes["expected_return"].to_numpy(dtype=np.float64), ends),
        "marks": _marks(_thinned(episodes), places),
    }


def _thinned(episodes: pd.DataFrame) -> pd.DataFrame:
    """Leave out stays beyond what can be told apart: evenly, flagged ones never."""
    if len(episodes) <= MOST:
        return episodes
    every = -(-len(episodes) // MOST)
    kept = (np.arange(len(episodes)) % every == 0) | (episodes["rank"].to_numpy() > 0)
    return episodes[kept]


def _bars(values: Any, ends: tuple[float, float]) -> list[Row]:
    counts, edges = np.histogram(values, bins=BINS, range=ends)
    return [
        {
            "low": round(float(edges[place]), 6),
            "high": round(float(edges[place + 1]), 6),
            "middle": round(float(edges[place] + edges[place + 1]) / 2, 6),
            "top": round(-4 - BARS * count / counts.max(), 1),
            "bottom": -4,
            "y": round(-14 - BARS * count / counts.max(), 1),
            "text": str(count),
        }
        for place, count in enumerate(counts.tolist())
        if count
    ]


def _marks(episodes: pd.DataFrame, places: dict[str, int]) -> list[Row]:
    """A mark each, spread over its row in the order of the log."""
    rows: list[Row] = []
    spread: dict[str, int] = {}
    golden = (5**0.5 - 1) / 2  # spreads any number of marks evenly
    columns = (episodes[column].tolist() for column in COLUMNS)
    for id_, name, value, low, high, thin, rank in zip(*columns, strict=True):
        turn = spread[name] = spread.get(name, 0) + 1
        y = BAND * (places[name] + 0.12 + 0.76 * (turn * golden % 1))
        row: Row = {
            "id": str(id_),
            "happened": name,
            "value": round(value, 4),
            "y": round(y, 1),
            "thin": round(thin, 4),
        }
        if low == low:  # else its bounds were not worked out
            row |= {"low": round(low, 4), "high": round(high, 4)}
        rows.append(row | ({"flagged": True} if rank > 0 else {}))
    return rows


def glance_sentence(episodes: pd.DataFrame, *, noun: str, nouns: str) -> str:
    """Say what the strip plot shows."""
    better = int((episodes["difference"] > 0).sum())
    thin = int((episodes["thin_share"] > 0.5).sum())
    n = len(episodes)
    many = nouns if n != 1 else noun
    return (
        f"For {better} of {n} {many} the model expects more under the policy than what happened; "
        f"{thin} of {n} rest mostly on thin evidence, steps with fewer than {THIN} similar past "
        "cases."
    )

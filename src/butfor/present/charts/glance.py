"""Everyone at a glance: what the model expects of each episode, with its worst and best case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from butfor.evaluate.wording import Digits
from butfor.present.charts import style
from butfor.replay.steps import THIN

PLOT = 560
NARROW = 205  # the same in a chart for phones
LABELS = 130
BAND = 118  # height of the row of one observed outcome
BINS = 20
BARS = 46  # height of the histogram above
TWO = Digits(2)
MOST = 5000  # marks; of more episodes some are left out, but never flagged ones
EVIDENCE = ("Mostly enough similar past cases", f"Mostly thin evidence (fewer than {THIN})")
NAMES_OF_DATA = ("frame", "rows", "bars", "marks")
COLUMNS = ("id", "observed_outcome", "expected_return", "low_any", "high_any", "thin_share", "rank")


@style.unchecked
def glance_template(
    outcomes: Sequence[str],
    *,
    noun: str = "episode",
    nouns: str = "episodes",
    flags: bool = True,
    digits: Digits = TWO,
    names: Mapping[float, str] | None = None,
    narrow: bool = False,
) -> dict[str, Any]:
    """Return the Vega-Lite specification of the strip plot, without rows.

    Parameters
    ----------
    outcomes
        Names of everything that can have happened, from top to bottom.
    noun, nouns
        What an episode is called, and several.
    flags
        Whether to show which ones are flagged.
    digits
        How returns are written.
    names
        What returns on the axis mean, such as {-1: "died", 1: "discharged"}.
    narrow
        Whether to draw it for phones: half as wide, and bars without numbers.
    """
    height, width = BAND * len(outcomes), NARROW if narrow else PLOT
    axis_title = style.wrap(
        f"Model: expected return of the same {noun} under the policy", width + 40, style.TEXT
    )

    def x(field: str) -> Any:
        axis = style.value_ticks(rate=digits.rate, named=bool(names))
        scale = alt.Scale(nice=False, zero=False)
        return alt.X(f"{field}:Q", scale=scale, title=axis_title, axis=axis)

    def y(field: str) -> Any:
        return style.pixels(field, height, down=True)

    bands = [{"top": BAND * n, "bottom": BAND * (n + 1)} for n in range(len(outcomes))]
    frame, rows, bars = map(style.named, NAMES_OF_DATA[:3])
    words = style.wrap(f"Number of {nouns}", LABELS - 14, style.SMALL, lines=2)
    number = alt.Chart(style.data([{"text": words}]))
    layers = [
        frame.mark_rule(opacity=0).encode(
            x=x("low"), x2=alt.X2("high:Q"), y=style.fixed(alt.YValue, 0)
        ),
        alt.Chart(style.data(bands))
        .mark_rect(stroke=style.LINE, fill=None, x=0, x2=width)
        .encode(y=y("top"), y2=alt.Y2("bottom:Q")),
        rows.mark_text(align="right", x=-10, lineHeight=style.LINE_HEIGHT).encode(
            y=y("y"), text=alt.Text("text:N")
        ),
        bars.mark_rect(fill="#9AA1AA").encode(
            x=x("low"),
            x2=alt.X2("high:Q"),
            y=y("top"),
            y2=alt.Y2("bottom:Q"),
            tooltip=[alt.Tooltip("text:N", title=nouns)],
        ),
        *(
            []
            if narrow
            else [
                bars.mark_text(fontSize=style.SMALL).encode(
                    x=x("middle"), y=y("y"), text=alt.Text("text:N")
                )
            ]
        ),
        number.mark_text(
            align="right",
            x=-10,
            y=-14 - style.LINE_HEIGHT * (len(words) - 1),
            lineHeight=style.LINE_HEIGHT,
            fontSize=style.SMALL,
            color=style.GREY,
            limit=LABELS,
        ).encode(text=alt.Text("text:N")),
        *([style.axis_names(names, x("end"), height)] if names else []),
        *_mark_layers(x, y("y"), noun=noun, flags=flags, digits=digits, narrow=narrow),
    ]
    chart = style.layered(*layers).properties(width=width, height=height)
    title = "What the model expects under the policy, one mark each."
    return style.template(chart, title, {name: [] for name in NAMES_OF_DATA}, total=width + LABELS)


def _mark_layers(
    x: Any, y: Any, *, noun: str, flags: bool, digits: Digits, narrow: bool
) -> list[alt.Chart]:
    """Draw each episode, the line from its worst to its best case, and a ring if it is flagged."""
    signed = f"format(datum.{{0}}, '{digits.axis}')"
    marks = style.named("marks").transform_calculate(
        kind=f"datum.thin > 0.5 ? '{EVIDENCE[1]}' : '{EVIDENCE[0]}'",
        expected=signed.format("value"),
        range=f"isValid(datum.low) ? {signed.format('low')} + ' to ' + {signed.format('high')} : "
        "'not computed'",
        evidence="format(100 * datum.thin, '.0f') + ' of 100 steps'",
    )
    ringed = "Ringed: flagged, to be read. " if flags else ""
    look = style.series_look(
        "kind",
        EVIDENCE,
        (style.BLUE, "#B87400"),
        ("circle", "triangle-up"),
        title=style.wrap(
            f"{ringed}Line: worst to best case, if the model is right.",
            NARROW + 40 if narrow else PLOT,
            style.SMALL,
        ),
        titleFontSize=style.SMALL,
        titleFontWeight="normal",
        titleLimit=PLOT,
        labelFontSize=style.SMALL,
        orient="bottom",
        columns=1 if narrow else 2,
    )
    ranges = marks.transform_filter("isValid(datum.low)").mark_rule(opacity=0.22, strokeWidth=1)
    titles = {
        "id": noun,
        "happened": "what happened",
        "expected": "expected return, model",
        "range": "worst to best case",
        "evidence": "thin evidence",
    }
    tooltip = [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]
    layers = [
        ranges.encode(x=x("low"), x2=alt.X2("high:Q"), y=y, color=look["color"]),
        marks.mark_point(filled=True, size=34, opacity=0.85).encode(
            x=x("value"), y=y, tooltip=tooltip, **look
        ),
    ]
    if flags:
        rings = marks.transform_filter("datum.flagged").mark_point(
            filled=False, size=110, strokeWidth=1.6, color=style.VERMILLION
        )
        layers.append(rings.encode(x=x("value"), y=y, tooltip=tooltip))
    return layers


def glance_datasets(episodes: pd.DataFrame, outcomes: Sequence[str]) -> dict[str, list[style.Row]]:
    """Return the rows of the strip plot, from an audit's table of episodes."""
    style.require_columns(episodes, COLUMNS, "episodes")
    places = {name: place for place, name in enumerate(outcomes)}
    unknown = [name for name in episodes["observed_outcome"].unique() if name not in places]
    if unknown:
        raise ValueError(f"outcome {unknown[0]!r}: the chart has rows for {', '.join(outcomes)}")
    values = episodes[["low_any", "high_any", "expected_return"]].to_numpy(dtype=np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.03 * (high - low) or 0.5
    ends = (low - room, high + room)
    counts = episodes["observed_outcome"].value_counts()
    rows = []
    for name, place in places.items():
        text = style.wrap(f"{name} ({counts.get(name, 0)})", LABELS - 14, style.TEXT, lines=3)
        y = BAND * (place + 0.5) - style.LINE_HEIGHT * (len(text) - 1) / 2
        rows.append({"text": text, "y": y})
    return {
        "frame": [{"low": ends[0], "high": ends[1]}],
        "rows": rows,
        "bars": _bars(values[:, 2], ends),
        "marks": _marks(_thinned(episodes), places),
    }


def _thinned(episodes: pd.DataFrame) -> pd.DataFrame:
    """Keep as many episodes as can be told apart: evenly, and always flagged ones."""
    if len(episodes) <= MOST:
        return episodes
    every = -(-len(episodes) // MOST)
    kept = (np.arange(len(episodes)) % every == 0) | (episodes["rank"].to_numpy() > 0)
    return episodes[kept]


def _bars(values: Any, ends: tuple[float, float]) -> list[style.Row]:
    counts, edges = np.histogram(values, bins=BINS, range=ends)
    tops = -4 - BARS * counts / counts.max()
    low, high = edges[:-1], edges[1:]
    bars = pd.DataFrame({"low": low, "high": high, "middle": (low + high) / 2}).round(6)
    places = pd.DataFrame({"top": tops, "y": tops - 10, "bottom": -4}).round(1)
    bars = bars.join(places).assign(text=counts.astype(str))
    return bars[counts > 0].to_dict("records")


def _marks(episodes: pd.DataFrame, places: dict[str, int]) -> list[style.Row]:
    """Return one mark per episode, spread over its row in the order of the log."""
    rows: list[style.Row] = []
    spread: dict[str, int] = {}
    golden = (5**0.5 - 1) / 2  # spreads any number of marks evenly
    for id_, name, value, low, high, thin, rank in style.tuples(episodes, *COLUMNS):
        turn = spread[name] = spread.get(name, 0) + 1
        y = BAND * (places[name] + 0.12 + 0.76 * (turn * golden % 1))
        row: style.Row = {
            "id": str(id_),
            "happened": name,
            "value": round(value, 6),
            "y": round(y, 1),
            "thin": round(thin, 4),
        }
        if low == low:  # otherwise its bounds were not computed
            row |= {"low": round(low, 6), "high": round(high, 6)}
        rows.append(row | ({"flagged": True} if rank > 0 else {}))
    return rows

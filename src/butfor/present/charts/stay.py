"""One stay: what happened, what the model says under the policy, and what that rests on.

One Vega-Lite template for an audit (`stay_template`); the rows of one stay are in `stay_rows`: to
show another stay, swap the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from butfor.present.charts.stay_rows import NAMES_OF_DATA
from butfor.present.charts.strips import EVIDENCE, PLACES, PLOT, Layout, level_rows, limit_rows
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    GREY,
    LINE,
    LINE_HEIGHT,
    SMALL,
    TEXT,
    Row,
    data,
    finish,
    heading,
    pixels,
    text_width,
    wrap,
)
from butfor.replay.steps import THIN

NAMES = 128  # room for the names of variables
LEVELS = 82  # room for the names of their levels
TOTAL = NAMES + LEVELS + PLOT
YELLOW = "#FBF1D0"
BROWN = "#7A4B00"
VIOLET = "#EDE9F7"
PURPLE = "#4B3A80"
LIMIT = "#B23A00"
AMBER = "#F2B233"
ENOUGH = "#CFE3D6"
SOLID, DOTS = [1, 0], [2, 3]
MODEL = "Model, under the policy"
INFERRED = "Inferred from the whole record"
# strips that differ from others, by kind: words below the name, background, ink
BOXES: dict[str, Row] = {
    "side": {"below": ["never given", "to the model"], "fill": YELLOW, "ink": BROWN},
    "inferred": {"below": ["inferred"], "fill": VIOLET, "ink": PURPLE},
    "policy": {"below": ["under the policy"], "ink": PURPLE},
}


def stay_template(layout: Layout) -> dict[str, Any]:
    """Return the Vega-Lite specification for every stay of an audit, without rows of any.

    Its `datasets` hold what all stays share; add those of `stay_datasets`.
    """
    layers = [
        *_strip_layers(layout),
        *_model_layers(layout),
        *_line_layers(layout),
        *_first_layers(layout),
        *_end_layers(layout),
        *_legend_layers(layout),
    ]
    chart = finish(layers, "", "", width=PLOT, height=layout.height, total=TOTAL)
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("title")
    spec["description"] = "One stay, step by step; its numbers are in the table below the picture."
    rows = {"levels": level_rows(layout), "limits": limit_rows(layout)}
    spec["datasets"] = {
        **spec.get("datasets", {}),
        **rows,
        **{name: [] for name in NAMES_OF_DATA},
    }
    return spec


def stay_chart(
    layout: Layout, datasets: Mapping[str, Sequence[Row]], title: str, caveat: str
) -> alt.LayerChart:
    """Return the picture of one stay by itself, to be saved: what it is worth stands in it."""
    spec = stay_template(layout)
    spec["datasets"] |= {name: list(rows) for name, rows in datasets.items()}
    spec["title"] = heading(title, caveat, TOTAL).to_dict()
    spec["description"] = f"{title} {caveat}"
    return alt.LayerChart.from_dict(spec)


def _named(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=name))


def _placed(name: str) -> alt.Chart:
    """Rows with the number of a level, `k`, and with it its place and name."""
    fields = ["y", "top", "bottom", "room", "variable", "level"]
    source = alt.LookupData(data=alt.NamedData(name="levels"), key="k", fields=fields)
    return _named(name).transform_lookup(lookup="k", from_=source)


def _x(field: str = "step") -> Any:
    """Place by step; the rows of `frame` are the widest, so that they set the scale."""
    return alt.X(f"{field}:Q", scale=alt.Scale(nice=False, zero=False), axis=None)


def _y(layout: Layout, field: str = "y") -> Any:
    return pixels(field, layout.height, down=True)


def _strip_layers(layout: Layout) -> list[alt.Chart]:
    """Draw each strip's box, the name of its variable and those of the levels; the axis."""
    boxes: list[Row] = []
    for strip in layout.strips:
        look = BOXES.get(strip.kind, {})
        boxes.append(_box(strip.variable.name, strip.top, strip.bottom, **look))
    if layout.with_model:
        top = layout.evidence_top
        boxes.append(_box("Similar past cases", top, top + EVIDENCE))
        top = layout.places_top
        boxes.append(_box("Model: outcome by then", top, top + PLACES))
    base = alt.Chart(data(boxes))
    ink = alt.Color("ink:N", scale=None)
    left: Row = {"align": "left", "lineHeight": LINE_HEIGHT, "x": PLOT - TOTAL}
    layers = [
        _named("frame")
        .mark_rect(opacity=0)
        .encode(x=_x("low"), x2="high:Q", y=alt.value(0), y2=alt.value(layout.height)),
        base.mark_rect(stroke=LINE, x=0, x2=PLOT).encode(
            y=_y(layout, "top"), y2="bottom:Q", fill=alt.Fill("fill:N", scale=None)
        ),
        base.mark_text(fontWeight="bold", **left).encode(
            y=_y(layout, "y_name"), text="name:N", color=ink
        ),
        base.mark_text(fontSize=SMALL, **left).encode(
            y=_y(layout, "y_below"), text="below:N", color=ink
        ),
        _named("levels")
        .mark_text(align="right", fontSize=SMALL, limit=LEVELS - 4, x=-7)
        .encode(y=_y(layout), text="label:N"),
        _named("ticks").mark_rule(y=layout.height, y2=layout.height + 5, color=LINE).encode(x=_x()),
        _named("ticks").mark_text(y=layout.height + 15).encode(x=_x(), text="step:N"),
        alt.Chart(data([{"text": "Step"}]))
        .mark_text(x=PLOT / 2, y=layout.height + 34)
        .encode(text="text:N"),
    ]
    if layout.with_model:
        ends = [("1", 6.0), ("½", PLACES / 2), ("0", PLACES - 6.0)]
        ticks = [{"text": text, "y": layout.places_top + down} for text, down in ends]
        text = alt.Chart(data(ticks)).mark_text(align="right", fontSize=SMALL, x=-7)
        layers.append(text.encode(y=_y(layout), text="text:N"))
    return layers


def _box(
    name: str,
    top: float,
    bottom: float,
    *,
    below: Sequence[str] = (),
    fill: str = "white",
    ink: str = BLACK,
) -> Row:
    room = int((bottom - top) // LINE_HEIGHT) - len(below)
    names = wrap(name, NAMES - 6, TEXT, bold=True, lines=max(1, room + 1))
    y_name = (top + bottom) / 2 - LINE_HEIGHT * (len(names) + len(below) - 1) / 2
    return {
        "name": names,
        "below": list(below),
        "top": top,
        "bottom": bottom,
        "y_name": y_name,
        "y_below": y_name + LINE_HEIGHT * len(names),
        "fill": fill,
        "ink": ink,
    }


def _shading(layout: Layout, name: str, words: str, color: str) -> alt.Chart:
    """Draw the probability of levels: the likelier, the darker."""
    chance = (
        "datum.p < 0.001 ? 'under 0.1%' : datum.p > 0.999 ? 'over 99.9%' : "
        "format(100 * datum.p, datum.p < 0.01 || datum.p > 0.99 ? '.1f' : '.0f') + '%'"
    )
    fields = ["variable", "step", "level", "model"]
    cells = _placed(name).transform_calculate(
        left="datum.step - 0.5",
        right="datum.step + 0.5",
        strength="0.05 + 0.61 * datum.p",
        model=f"'{words}: ' + ({chance})",
    )
    return cells.mark_rect(color=color, strokeWidth=0).encode(
        x=_x("left"),
        x2="right:Q",
        y=_y(layout, "top"),
        y2="bottom:Q",
        opacity=alt.Opacity("strength:Q", scale=None),
        tooltip=[alt.Tooltip(f"{field}:N") for field in fields],
    )


def _model_layers(layout: Layout) -> list[alt.Chart]:
    """Draw what the model says: shading, evidence, outcomes by step."""
    layers = [
        _shading(layout, name, words, color)
        for name, words, color in (("shade", MODEL, BLUE), ("inferred", INFERRED, BLACK))
    ]
    if not layout.with_model:
        return layers
    top, bottom = layout.evidence_top, layout.evidence_top + EVIDENCE
    evidence = _named("evidence").transform_calculate(
        left="datum.step - 0.5",
        right="datum.step + 0.5",
        strength="0.45 + 0.55 * datum.mass",
        fill=f"datum.cases < {THIN} ? '{AMBER}' : '{ENOUGH}'",
    )
    places = _named("places").transform_calculate(
        left="datum.step - 0.5",
        right="datum.step + 0.5",
        top=f"{layout.places_top} + {PLACES} * (1 - datum.high)",
        bottom=f"{layout.places_top} + {PLACES} * (1 - datum.low)",
    )
    fill = alt.Fill("fill:N", scale=None)
    return [
        *layers,
        evidence.mark_rect(stroke="white", y=top + 1, y2=bottom - 1).encode(
            x=_x("left"),
            x2="right:Q",
            fill=fill,
            opacity=alt.Opacity("strength:Q", scale=None),
        ),
        evidence.mark_text(fontSize=SMALL, y=(top + bottom) / 2).encode(x=_x(), text="text:N"),
        places.mark_rect(stroke="white", strokeWidth=0.4).encode(
            x=_x("left"), x2="right:Q", y=_y(layout, "top"), y2="bottom:Q", fill=fill
        ),
        *(
            _named("place_words")
            .transform_filter(f"datum.align == '{align}'")
            .mark_text(align=align, fontWeight="bold", fontSize=SMALL)
            .encode(x=_x(), y=_y(layout), text="text:N", color=alt.Color("ink:N", scale=None))
            for align in ("left", "right")
        ),
    ]


def _line_layers(layout: Layout) -> list[alt.Chart]:
    limits = _named("limits").mark_rule(color=LIMIT, strokeDash=DOTS, strokeWidth=1.5)
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("variable", "step", "level")]
    happened = _placed("happened").encode(x=_x(), y=_y(layout), detail="variable:N")
    drawn = _placed("draws").transform_calculate(
        line="datum.draw + ' ' + datum.variable", at="datum.y + datum.beside * datum.room"
    )
    return [
        limits.encode(x=alt.value(0), x2=alt.value(PLOT), y=_y(layout)),
        drawn.mark_line(interpolate="step", strokeWidth=1.4, color="#00375A").encode(
            x=_x(), y=_y(layout, "at"), detail="line:N"
        ),
        happened.mark_line(interpolate="step", strokeWidth=3, color=BLACK, strokeCap="round"),
        happened.mark_point(opacity=0, size=90).encode(tooltip=tooltip),
    ]


def _first_layers(layout: Layout) -> list[alt.Chart]:
    """Draw a line before the first effect of another treatment; side rows are dimmed after it."""
    hidden = [
        {"top": strip.top + 1, "bottom": strip.bottom - 1}
        for strip in layout.strips
        if strip.kind == "side"
    ]
    first = _named("first")
    layers = [
        first.mark_rect(
            x2=PLOT - 1, y=row["top"], y2=row["bottom"], fill=YELLOW, opacity=0.62
        ).encode(x=_x("at"))
        for row in hidden
    ]
    layers.append(
        first.mark_rule(
            y=-6, y2=layout.height, strokeDash=[5, 4], color=GREY, strokeWidth=1.4
        ).encode(x=_x("at"))
    )
    return layers


def _end_layers(layout: Layout) -> list[alt.Chart]:
    """Draw how the stay ended, and the drawn paths: shapes, and words above."""
    layers = []
    for name, size in (("draw_ends", 50), ("ends", 150)):
        marks = _placed(name).transform_calculate(at="datum.y + datum.beside * datum.room")
        layers.append(
            marks.mark_point(
                filled=True, opacity=1, stroke=BLACK, strokeWidth=0.8, size=size
            ).encode(
                x=_x(),
                y=_y(layout, "at"),
                fill=alt.Fill("color:N", scale=None),
                shape=alt.Shape("shape:N", scale=None),
                tooltip=[alt.Tooltip(f"{field}:N") for field in ("outcome", "step")],
            )
        )
    for align in ("left", "center", "right"):
        text = _named("words").transform_filter(f"datum.align == '{align}'")
        aside = {"left": 5, "center": 0, "right": -5}[align]
        mark = text.mark_text(align=align, fontSize=SMALL, limit=PLOT, dx=aside)
        layers.append(
            mark.encode(x=_x(), y=_y(layout), text="text:N", color=alt.Color("color:N", scale=None))
        )
    return layers


def _legend_layers(layout: Layout) -> list[alt.Chart]:
    """Draw the legend, in as many rows above all as that takes."""
    entries: list[Row] = [{"text": "What happened", "color": BLACK, "dash": SOLID, "wide": 3}]
    if layout.with_model:
        entries.append({"text": f"{MODEL} (darker: likelier)", "color": "#5BA3CF", "box": True})
    if layout.inferred:
        words = "Inferred: hidden state given the whole record"
        entries.append({"text": words, "color": "#77737F", "box": True})
    if limit_rows(layout):
        entries.append({"text": "Normal range", "color": LIMIT, "dash": DOTS, "wide": 2})
    if layout.with_model:
        entries.append({"text": f"Fewer than {THIN} similar cases", "color": AMBER, "box": True})
    entries += [
        {"text": look["outcome"], "color": look["color"], "shape": look["shape"]}
        for look in layout.looks
    ]
    x, row = float(PLOT - TOTAL), 0
    placed: list[Row] = []
    for entry in entries:
        symbol = 16 if "shape" in entry else 24
        length = symbol + 6 + min(text_width(entry["text"], SMALL), TOTAL - 60)
        if x + length > PLOT and placed:
            x, row = float(PLOT - TOTAL), row + 1
        place = {"x": x, "x2": x + symbol, "middle": x + symbol / 2, "x_text": x + symbol + 6}
        placed.append(entry | place | {"row": row})
        x += length + 16
    layers = []
    for entry in placed:
        y = -46.0 - 20 * (row - entry["row"])
        text = alt.Chart(data([{"text": entry["text"]}]))
        layers.append(
            text.mark_text(
                align="left", limit=TOTAL - 40, fontSize=SMALL, x=entry["x_text"], y=y
            ).encode(text="text:N")
        )
        one = alt.Chart(data([{}]))
        if "dash" in entry:
            line: Row = {"x": entry["x"], "x2": entry["x2"], "color": entry["color"]}
            layers.append(
                one.mark_rule(strokeDash=entry["dash"], strokeWidth=entry["wide"], **line).encode(
                    y=alt.value(y)
                )
            )
        elif "box" in entry:
            box: Row = {"x": entry["x"] + 4, "x2": entry["x2"], "fill": entry["color"]}
            layers.append(one.mark_rect(**box).encode(y=alt.value(y - 7), y2=alt.value(y + 7)))
        else:
            mark: Row = {"fill": entry["color"], "shape": entry["shape"], "x": entry["middle"]}
            layers.append(
                one.mark_point(
                    filled=True, opacity=1, stroke=BLACK, strokeWidth=0.8, size=110, **mark
                ).encode(y=alt.value(y))
            )
    return layers

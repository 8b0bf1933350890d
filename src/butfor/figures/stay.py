"""One stay: what happened, what the model says under the policy, and what that rests on.

One Vega-Lite template for an audit (`stay_template`), and the rows of one stay (`stay_datasets`):
to show another stay, swap the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.figures.strips import (
    EVIDENCE,
    NOT_YET,
    PLACES,
    Layout,
    Strip,
    level_rows,
    limit_rows,
)
from butfor.figures.style import (
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
from butfor.steps import THIN
from butfor.variables import unravel
from butfor.words import percent

PLOT = 500  # width of the part with the steps
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
FAINT = 0.005  # probabilities below are not shaded: nobody would see it
SHORT = 30  # horizons up to this are the axis of every stay
Datasets = dict[str, list[Row]]
# rows that change from stay to stay
NAMES_OF_DATA = (
    "frame",
    "ticks",
    "shade",
    "inferred",
    "happened",
    "ends",
    "draws",
    "draw_ends",
    "evidence",
    "places",
    "place_words",
    "first",
    "words",
)


# ------------------------------------------------------------------------------------- template


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


# strips that differ from others, by kind: words below the name, background, ink
BOXES: dict[str, Row] = {
    "side": {"below": ["never given", "to the model"], "fill": YELLOW, "ink": BROWN},
    "inferred": {"below": ["inferred"], "fill": VIOLET, "ink": PURPLE},
    "policy": {"below": ["under the policy"], "ink": PURPLE},
}


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


# ------------------------------------------------------------------------------ rows of one stay


def stay_datasets(
    layout: Layout,
    steps: pd.DataFrame,
    *,
    outcome: int = -1,
    first: int = -1,
    courses: pd.DataFrame | None = None,
    course_steps: pd.DataFrame | None = None,
    draws: pd.DataFrame | None = None,
) -> Datasets:
    """Return the rows of one stay, for the template.

    Parameters
    ----------
    steps, courses, course_steps, draws
        Its rows of the tables of an audit with these names, in order. Without `courses` only what
        happened is drawn. Rows of `courses` whose `world` is "observed" say what was inferred.
    outcome
        How it ended, by number; -1: without an outcome.
    first
        Step of the first decision that the policy would take otherwise; -1: none.
    """
    observed = _observed(layout, steps)
    length = int(steps["step"].iloc[-1])
    last = _last_step(layout, length, course_steps)
    end = [layout.looks[outcome]] if outcome >= 0 else []
    found: Datasets = {name: [] for name in NAMES_OF_DATA}
    found["frame"] = [{"low": -0.5, "high": last + 0.5}]
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 10**9) if last / step <= 11)
    found["ticks"] = [{"step": step} for step in range(0, last + 1, every)]
    for strip, (at, codes) in observed:
        rows = [
            {"step": int(step), "k": strip.first + int(code)}
            for step, code in zip(at, codes, strict=True)
        ]
        found["happened"] += rows
        found["ends"] += [rows[-1] | {"beside": 0} | look for look in end if rows]
    if first >= 0:
        found["first"] = [{"at": first + 0.5}]
    found["words"] = _words(layout, length, last, outcome, first)
    if courses is not None:
        target, inferred = split_worlds(courses)
        found["inferred"] = _shade_rows(layout.inferred, inferred, last)
        if course_steps is not None:
            found |= _model_rows(layout, target, course_steps, last)
    if draws is not None and len(draws):
        found |= _draw_rows(layout, draws, last)
    return found


def split_worlds(courses: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows under the target and those of what was inferred, which older audits lack."""
    if "world" not in courses:
        return courses, courses.iloc[:0]
    observed = (courses["world"] == "observed").to_numpy()
    return courses[~observed], courses[observed]


def _last_step(layout: Layout, length: int, course_steps: pd.DataFrame | None) -> int:
    if layout.horizon <= SHORT:
        return layout.horizon
    last = length
    if course_steps is not None:
        alive = course_steps["step"].to_numpy()[course_steps["mass"].to_numpy() >= FAINT]
        last = max(last, int(alive.max(initial=0)) + 1)
    return min(max(last, 1), max(layout.horizon, length))


def _codes(labels: Sequence[Any], levels: Sequence[str]) -> NDArray[np.int64]:
    known = {level: code for code, level in enumerate(levels)}
    return np.array([known.get(label, -1) for label in labels], dtype=np.int64)


def _observed(
    layout: Layout, steps: pd.DataFrame
) -> list[tuple[Strip, tuple[NDArray[np.int64], NDArray[np.int64]]]]:
    """Steps and codes of what happened on each strip.

    A decision at step t shows as treatment at t + 1: by the state, where it tells; else, and where
    the log does not tell the last state, by the decision itself.
    """
    at = steps["step"].to_numpy(dtype=np.int64)
    unknown = int(steps["state"].iloc[-1]) < 0
    found = []
    for strip in layout.strips:
        name, levels = strip.variable.name, strip.variable.levels
        if strip.kind in ("inferred", "policy"):
            continue
        if strip.kind == "side":
            codes = _codes(steps[f"side.{name}"].tolist(), levels)
        elif strip.kind == "state" or layout.runs(name):
            codes = _codes(steps[f"state.{name}"].tolist(), levels)
            if unknown and len(codes) > 1:
                given = f"action.{name}"
                last = _codes(steps[given].tolist()[-2:-1], levels) if given in steps else [-1]
                codes[-1] = last[0] if last[0] >= 0 else codes[-2]
        else:
            codes = _codes([None, *steps[f"action.{name}"].tolist()[:-1]], levels)
        known = codes >= 0
        found.append((strip, (at[known], codes[known])))
    return found


def _words(layout: Layout, length: int, last: int, outcome: int, first: int) -> list[Row]:
    """Say above the picture where the policy first differs and how the stay ended."""
    rows: list[Row] = []
    if first >= 0:
        text = f"policy first treats differently (decided at step {first})"
        left = (first + 1) / (last + 1) < 0.5
        rows.append(
            {"step": first + 0.5, "y": -14, "text": text, "color": GREY}
            | {"align": "left" if left else "right"}
        )
    if outcome >= 0:
        name, color = layout.outcomes[outcome].name, layout.looks[outcome]["color"]
        share = (length + 0.5) / (last + 1)
        align = "left" if share < 0.25 else "right" if share > 0.75 else "center"
        at = -0.5 if align == "left" else last + 0.5 if align == "right" else length
        dark = {"#D55E00": "#A84300"}.get(color, color)
        text = f"{name} at step {length}"
        rows.append({"step": at, "y": -30, "text": text, "color": dark, "align": align})
    return rows


def _course_rows(courses: pd.DataFrame, last: int) -> list[tuple[str, str, int, float]]:
    """Variable, level, step and probability of each row up to a step."""
    columns = (courses[name].tolist() for name in ("variable", "level", "step", "probability"))
    return [row for row in zip(*columns, strict=True) if row[2] <= last]


def _shade_rows(
    numbers: Mapping[tuple[str, str], int], courses: pd.DataFrame, last: int
) -> list[Row]:
    """Levels that have a number, and how likely they are."""
    return [
        {"step": step, "k": numbers[variable, level], "p": round(p, 4)}
        for variable, level, step, p in _course_rows(courses, last)
        if p >= FAINT and (variable, level) in numbers
    ]


def _model_rows(
    layout: Layout, courses: pd.DataFrame, course_steps: pd.DataFrame, last: int
) -> Datasets:
    by_then = np.zeros((last + 1, len(layout.outcomes)))
    places = {outcome.name: number for number, outcome in enumerate(layout.outcomes)}
    for variable, level, step, p in _course_rows(courses, last):
        if variable == "" and level in places:
            by_then[step, places[level]] = p
    cell = PLOT / (last + 1)
    evidence = []
    for step, mass, cases in zip(
        *(course_steps[name].tolist() for name in ("step", "mass", "evidence")), strict=True
    ):
        if step <= last and mass >= 0.01 and cases == cases:
            text = f"{cases:.0f}"
            fits = text_width(text, SMALL) < cell - 1
            evidence.append(
                {
                    "step": step,
                    "cases": round(cases, 1),
                    "mass": round(mass, 3),
                    "text": text if fits else "",
                }
            )
    shade = _shade_rows(layout.courses, courses, last)
    return {"shade": shade, "evidence": evidence, **_place_rows(layout, by_then)}


def _place_rows(layout: Layout, by_then: NDArray[np.float64]) -> Datasets:
    """Stack outcomes by step: good ones from below, bad ones from above, none between."""
    order = sorted(range(len(layout.outcomes)), key=lambda o: layout.outcomes[o].bad)
    goods = [o for o in order if not layout.outcomes[o].bad]
    bads = [o for o in order if layout.outcomes[o].bad]
    columns: list[tuple[str, str, str, NDArray[np.float64]]] = [
        (layout.outcomes[o].name, layout.looks[o]["color"], "white", by_then[:, o]) for o in goods
    ]
    columns.append((layout.none, NOT_YET, BLACK, np.clip(1 - by_then.sum(axis=1), 0.0, 1.0)))
    columns += [
        (layout.outcomes[o].name, layout.looks[o]["color"], "white", by_then[:, o]) for o in bads
    ]
    rows: list[Row] = []
    words: list[Row] = []
    low = np.zeros(len(by_then))
    last = len(by_then) - 1
    for name, fill, ink, p in columns:
        high = low + p
        for step in np.flatnonzero(p >= FAINT).tolist():
            rows.append(
                {"step": step, "low": round(low[step], 4), "high": round(high[step], 4)}
                | {"fill": fill}
            )
        word = _place_word(name, ink, p, (low, high), last)
        if word is not None:
            y = layout.places_top + PLACES * (1 - word.pop("middle"))
            words.append(word | {"y": round(y, 1)})
        low = high
    return {"places": rows, "place_words": words}


def _place_word(
    name: str,
    ink: str,
    p: NDArray[np.float64],
    ends: tuple[NDArray[np.float64], NDArray[np.float64]],
    last: int,
) -> Row | None:
    """Name an outcome at the end where it is likely there, else at the start, else nowhere."""
    need = (LINE_HEIGHT + 2) / PLACES
    text = f"{name} {percent(float(p[-1]))}"
    cells = text_width(text, SMALL, bold=True) / (PLOT / (last + 1)) + 0.6
    tail = slice(max(0, int(last + 1 - cells)), last + 1)
    head = slice(0, int(cells) + 1)
    for part, step, align, words in (
        (tail, last + 0.3, "right", text),
        (head, -0.3, "left", name),
    ):
        low, high = float(ends[0][part].max()), float(ends[1][part].min())
        if high - low >= need and text_width(words, SMALL, bold=True) < PLOT * 0.9:
            return {"step": step, "align": align, "text": words, "ink": ink} | {
                "middle": (low + high) / 2
            }
    return None


def _draw_rows(layout: Layout, draws: pd.DataFrame, last: int) -> Datasets:
    """Lines of drawn paths, each a little beside its level, and where they end."""
    lines: list[Row] = []
    ends: list[Row] = []
    states = int(np.prod([len(variable.levels) for variable in layout.state]))
    count = int(draws["draw"].max()) + 1
    for draw, path in draws.groupby("draw", sort=True):
        at = path["step"].to_numpy(dtype=np.int64)
        state, action = path["state"].to_numpy(), path["action"].to_numpy()
        inside = (state < states) & (at <= last)
        outcome = int(state[-1]) - states
        codes = unravel(layout.state, np.where(state < states, state, 0))
        decided = unravel(layout.action, np.maximum(action, 0))
        beside = round(_beside(int(draw), count), 3)
        for strip in layout.strips:
            name = strip.variable.name
            if strip.kind in ("side", "inferred", "policy"):
                continue
            if strip.kind == "state" or layout.runs(name):
                level, known = codes[name].copy(), inside
            else:
                level = np.concatenate([[0], decided[name][:-1]])
                known = (at <= last) & (at > 0)
            rows = [
                {"step": int(s), "k": strip.first + int(k), "draw": int(draw), "beside": beside}
                for s, k in zip(at[known], level[known], strict=True)
            ]
            lines += rows
            if outcome >= 0 and rows:
                ends.append(
                    {"step": int(min(at[-1], last)), "k": rows[-1]["k"], "beside": beside}
                    | layout.looks[outcome]
                )
                if rows[-1]["step"] < ends[-1]["step"]:
                    lines.append(rows[-1] | {"step": ends[-1]["step"]})
    return {"draws": lines, "draw_ends": ends}


def _beside(draw: int, draws: int) -> float:
    """How far a draw's line lies from its level, in levels: by turns below and above."""
    step = min(0.1, 0.26 / max(1, (draws - 1) // 2))
    return (0.14 + step * (draw // 2)) * (-1 if draw % 2 else 1)


# ------------------------------------------------------------------------------------ its numbers


def stay_table(layout: Layout, datasets: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """Return the numbers of the picture: the head of a table, then a row a step."""
    levels = level_rows(layout)
    names = [s.variable.name for s in layout.strips if s.kind not in ("inferred", "policy")]
    happened: dict[tuple[int, str], str] = {}
    for row in datasets["happened"]:
        level = levels[row["k"]]
        happened[row["step"], level["variable"]] = level["level"]
    model = _likely(levels, datasets["shade"])
    inferred = _likely(levels, datasets["inferred"])
    told = [s.variable.name for s in layout.strips if s.kind == "inferred" and inferred]
    evidence = {row["step"]: f"{row['cases']:g}" for row in datasets["evidence"]}
    fills = {look["color"]: look["outcome"] for look in layout.looks} | {NOT_YET: layout.none}
    by_then: dict[tuple[int, str], str] = {}
    for row in datasets["places"]:
        by_then[row["step"], fills[row["fill"]]] = percent(row["high"] - row["low"])
    said = [s.variable.name for s in layout.strips if s.kind not in ("side", "inferred")]
    said = [name for name in said if datasets["shade"] and (0, name) in model]
    ends = [*(outcome.name for outcome in layout.outcomes), layout.none] if by_then else []
    head = ["Step", *names, *(f"Inferred: {name}" for name in told)]
    head += [f"Model: {name}" for name in said]
    head += ["Similar past cases"] * bool(evidence) + [f"Model: {name} by then" for name in ends]
    rows = [head]
    last = int(datasets["frame"][0]["high"] - 0.5)
    for step in range(last + 1):
        rows.append(
            [
                str(step),
                *(happened.get((step, name), "") for name in names),
                *(", ".join(inferred.get((step, name), [])) for name in told),
                *(", ".join(model.get((step, name), [])) for name in said),
                *([evidence.get(step, "")] if evidence else []),
                *(by_then.get((step, name), "under 0.5%") for name in ends),
            ]
        )
    return rows


def _likely(levels: Sequence[Row], rows: Sequence[Row]) -> dict[tuple[int, str], list[str]]:
    """Levels with their probability in words, the likeliest first, by step and variable."""
    found: dict[tuple[int, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: -row["p"]):
        level = levels[row["k"]]
        words = f"{level['level']} {percent(row['p'])}"
        found.setdefault((row["step"], level["variable"]), []).append(words)
    return found

"""One episode: what happened, what the model says under the policy, and what that rests on.

There is one Vega-Lite template per log (`trajectory_template`); the rows of one episode come from
`trajectory_datasets`. To show another episode, swap the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from butfor.present.charts import style
from butfor.present.charts.trajectory.layout import (
    EVIDENCE,
    NAMES,
    OUTCOMES,
    PLOT,
    TrajectoryLayout,
)
from butfor.present.charts.trajectory.rows import NAMES_OF_DATA
from butfor.present.text import (
    INFERRED,
    POLICY_GIVES,
    SIMILAR_CASES,
    UNDER_POLICY,
    WHAT_HAPPENED,
    capitalized,
)
from butfor.replay.steps import THIN

LEGEND_ABOVE, LEGEND_LINE = 44, 20  # the legend's distance from the plane, height of its lines
AXIS, MARGIN = 40, 10  # below the plane; around everything
YELLOW, BROWN = "#FBF1D0", "#7A4B00"
VIOLET, PURPLE = "#EDE9F7", "#4B3A80"
LIMIT = "#B23A00"
SHADED = "#5BA3CF"
AMBER, ENOUGH = "#F2B233", "#CFE3D6"
# color of drawn paths, which differs from the shading behind them if there is a model
DRAWN = {True: "#00375A", False: style.BLUE}
# symbols of the legend: a line, a dotted line, a box
SOLID = "M-1.1,-.14H1.1V.14H-1.1Z"
DOTS = "M-1.1,-.1H-.8V.1H-1.1ZM-.47,-.1H-.17V.1H-.47ZM.17,-.1H.47V.1H.17ZM.8,-.1H1.1V.1H.8Z"
BOX = "M-.9,-.7H.9V.7H-.9Z"
# strips that differ from others, by kind: words below the name, background, text color
BOXES: dict[str, style.Row] = {
    "side": {"below": ["never given", "to the model"], "fill": YELLOW, "ink": BROWN},
    "inferred": {"below": ["inferred"], "fill": VIOLET, "ink": PURPLE},
    "policy": {"below": ["under the policy"], "ink": PURPLE},
}


@style.unchecked
def filled_template(
    layout: TrajectoryLayout, datasets: Mapping[str, Sequence[style.Row]], title: str, caveat: str
) -> alt.LayerChart:
    """Return the chart of one episode by itself, to be saved, with its caveat in the subtitle."""
    chart = style.finish(_chart(layout), title, caveat, total=layout.left + PLOT)
    chart.datasets = _shared_rows(layout) | {name: list(rows) for name, rows in datasets.items()}
    return chart


@style.unchecked
def trajectory_template(layout: TrajectoryLayout) -> dict[str, Any]:
    """Return the Vega-Lite specification for every episode of a log, without rows of any.

    Its `datasets` hold what all episodes share; add those of `trajectory_datasets`.
    """
    words = "One episode, step by step; its numbers are in the table below it."
    return style.template(_chart(layout), words, _shared_rows(layout), total=layout.left + PLOT)


def _chart(layout: TrajectoryLayout) -> alt.LayerChart:
    layers = [
        *_strip_layers(layout),
        *_model_layers(layout),
        *([_shading(layout, "treatments", POLICY_GIVES, style.BLUE)] if layout.with_policy else []),
        *_line_layers(layout),
        *_first_layers(layout),
        *_end_layers(layout),
        _legend_layer(layout),
    ]
    chart = style.layered(*layers).properties(width=PLOT, height=layout.height)
    # the legend has its own scales; colors and shapes in the data are used as they are
    return chart.resolve_scale(fill="independent", shape="independent")


def _shared_rows(layout: TrajectoryLayout) -> dict[str, list[style.Row]]:
    """Return what all episodes share, and no rows of what they do not."""
    datasets: dict[str, list[style.Row]] = {name: [] for name in NAMES_OF_DATA}
    if layout.with_policy:
        datasets["treatments"] = []
    return datasets | {"levels": layout.level_rows, "limits": layout.limit_rows}


def trajectory_size(layout: TrajectoryLayout) -> tuple[int, int]:
    """Return width and height in pixels of the drawn template, legend and axis included."""
    entries, columns = _legend_entries(layout)
    above = LEGEND_ABOVE + LEGEND_LINE * -(-len(entries) // columns)
    return layout.left + PLOT + 2 * MARGIN, layout.height + above + AXIS + 2 * MARGIN


def _cells(chart: alt.Chart, **calculated: str) -> alt.Chart:
    """Return the chart with the ends of each step's cell, and more that is calculated."""
    return chart.transform_calculate(
        left="datum.step - 0.5", right="datum.step + 0.5", **calculated
    )


def _placed(layout: TrajectoryLayout, name: str) -> alt.Chart:
    """Return rows that have the number of a level, `k`, with its place and name, and the time."""
    fields = ["y", "top", "bottom", "room", "kind", "variable", "level"]
    source = alt.LookupData(data=alt.NamedData(name="levels"), key="k", fields=fields)
    rows = style.named(name).transform_lookup(lookup="k", from_=source)
    return rows.transform_calculate(time=_clock_time(layout))


def _clock_time(layout: TrajectoryLayout) -> str:
    return f"format({layout.clock.length} * datum.step, '~g')"


def _time(layout: TrajectoryLayout) -> alt.Tooltip:
    return alt.Tooltip("time:N", title=layout.clock.unit)


def _x(layout: TrajectoryLayout, field: str = "step") -> Any:
    """Place marks by step; the rows of `frame` are the widest, so that they set the scale."""
    axis = alt.Axis(
        tickMinStep=1,
        tickCount=11,
        grid=False,
        domain=False,
        title=capitalized(layout.clock.unit),
        # a short stay has ticks between steps, too
        labelExpr=f"datum.value % 1 ? '' : format({layout.clock.length} * datum.value, '~g')",
    )
    return alt.X(f"{field}:Q", scale=alt.Scale(nice=False, zero=False), axis=axis)


def _y(layout: TrajectoryLayout, field: str = "y") -> Any:
    return style.pixels(field, layout.height, down=True)


def _strip_layers(layout: TrajectoryLayout) -> list[alt.Chart]:
    """Draw each strip's box, the name of its variable and those of its levels."""
    boxes = [
        _box(strip.variable.name, strip.top, strip.bottom, strip.kind) for strip in layout.strips
    ]
    labels: list[style.Row] = []
    if layout.with_model:
        top = layout.evidence_top
        boxes.append(_box(SIMILAR_CASES, top, top + EVIDENCE))
        top = layout.outcomes_top
        boxes.append(_box("Model: outcome by then", top, top + OUTCOMES))
        ends = (("1", 6.0), ("½", OUTCOMES / 2), ("0", OUTCOMES - 6.0))
        labels = [{"text": text, "y": top + down} for text, down in ends]
    base = alt.Chart(style.data(boxes))
    left: style.Row = {"align": "left", "lineHeight": style.LINE_HEIGHT, "x": -layout.left}
    right: style.Row = {"align": "right", "fontSize": style.SMALL, "x": -7}
    ink = alt.Color("ink:N", scale=None)
    return [
        style.named("frame")
        .mark_rect(opacity=0)
        .encode(
            x=_x(layout, "low"),
            x2=alt.X2("high:Q"),
            y=style.fixed(alt.YValue, 0),
            y2=style.fixed(alt.Y2Value, layout.height),
        ),
        base.mark_rect(stroke=style.LINE, x=0, x2=PLOT).encode(
            y=_y(layout, "top"), y2=alt.Y2("bottom:Q"), fill=alt.Fill("fill:N", scale=None)
        ),
        base.mark_text(fontWeight="bold", **left).encode(
            y=_y(layout, "y_name"), text=alt.Text("name:N"), color=ink
        ),
        base.mark_text(fontSize=style.SMALL, **left).encode(
            y=_y(layout, "y_below"), text=alt.Text("below:N"), color=ink
        ),
        style.named("levels")
        .mark_text(limit=layout.level_room - 8, lineHeight=style.LINE_HEIGHT, **right)
        .encode(y=_y(layout, "y_label"), text=alt.Text("label:N")),
        alt.Chart(style.data(labels))
        .mark_text(**right)
        .encode(y=_y(layout), text=alt.Text("text:N")),
    ]


def _box(name: str, top: float, bottom: float, kind: str = "") -> style.Row:
    look = {"below": [], "fill": "white", "ink": style.BLACK} | BOXES.get(kind, {})
    room = int((bottom - top) // style.LINE_HEIGHT) - len(look["below"])
    names = style.wrap(name, NAMES - 6, style.TEXT, bold=True, lines=max(1, room + 1))
    y_name = (top + bottom) / 2 - style.LINE_HEIGHT * (len(names) + len(look["below"]) - 1) / 2
    words = {"name": names, "y_name": y_name, "y_below": y_name + style.LINE_HEIGHT * len(names)}
    return look | words | {"top": top, "bottom": bottom}


def _shading(layout: TrajectoryLayout, name: str, words: str, color: str) -> alt.Chart:
    """Draw the probability of levels: the likelier, the stronger."""
    cells = _cells(
        _placed(layout, name),
        strength="0.05 + 0.61 * datum.p",
        model=f"'{words}: ' + ({_percent('datum.p')})",
    )
    return cells.mark_rect(color=color, strokeWidth=0).encode(
        x=_x(layout, "left"),
        x2=alt.X2("right:Q"),
        y=_y(layout, "top"),
        y2=alt.Y2("bottom:Q"),
        opacity=alt.Opacity("strength:Q", scale=None),
        tooltip=[
            alt.Tooltip("variable:N"),
            _time(layout),
            alt.Tooltip("level:N"),
            alt.Tooltip("model:N"),
        ],
    )


def _percent(share: str) -> str:
    """Return the expression that writes a probability, which is itself an expression."""
    return (
        f"{share} < 0.001 ? 'under 0.1%' : {share} > 0.999 ? 'over 99.9%' : "
        f"format(100 * {share}, {share} < 0.01 || {share} > 0.99 ? '.1f' : '.0f') + '%'"
    )


def _model_layers(layout: TrajectoryLayout) -> list[alt.Chart]:
    """Draw what the model says: shading, evidence, outcomes by step."""
    layers = [
        _shading(layout, "shade", UNDER_POLICY, style.BLUE),
        _shading(layout, "inferred", INFERRED, style.BLACK),
    ]
    if not layout.with_model:
        return layers
    top, bottom = layout.evidence_top, layout.evidence_top + EVIDENCE
    evidence = _cells(
        style.named("evidence"),
        strength="0.45 + 0.55 * datum.mass",
        fill=f"datum.cases < {THIN} ? '{AMBER}' : '{ENOUGH}'",
        time=_clock_time(layout),
        reached=_percent("datum.mass"),
    )
    places = _cells(
        style.named("places"),
        top=f"{layout.outcomes_top} + {OUTCOMES} * (1 - datum.high)",
        bottom=f"{layout.outcomes_top} + {OUTCOMES} * (1 - datum.low)",
        time=_clock_time(layout),
        chance=_percent("(datum.high - datum.low)"),
    )
    words = style.named("place_words").mark_text(
        align=alt.expr("datum.align"), fontWeight="bold", fontSize=style.SMALL
    )
    fill = alt.Fill("fill:N", scale=None)
    return [
        *layers,
        evidence.mark_rect(stroke="white", y=top + 1, y2=bottom - 1).encode(
            x=_x(layout, "left"),
            x2=alt.X2("right:Q"),
            fill=fill,
            opacity=alt.Opacity("strength:Q", scale=None),
            tooltip=[
                _time(layout),
                alt.Tooltip("cases:Q", title=SIMILAR_CASES.lower()),
                alt.Tooltip("reached:N", title="model: still going on then"),
            ],
        ),
        evidence.mark_text(fontSize=style.SMALL, y=(top + bottom) / 2).encode(
            x=_x(layout), text=alt.Text("text:N")
        ),
        places.mark_rect(stroke="white", strokeWidth=0.4).encode(
            x=_x(layout, "left"),
            x2=alt.X2("right:Q"),
            y=_y(layout, "top"),
            y2=alt.Y2("bottom:Q"),
            fill=fill,
            tooltip=[
                _time(layout),
                alt.Tooltip("outcome:N", title="model: by then"),
                alt.Tooltip("chance:N", title="probability"),
            ],
        ),
        words.encode(
            x=_x(layout),
            y=_y(layout),
            text=alt.Text("text:N"),
            color=alt.Color("ink:N", scale=None),
        ),
    ]


def _line_layers(layout: TrajectoryLayout) -> list[alt.Chart]:
    """Draw normal limits, drawn paths and what happened."""
    limits = style.named("limits").mark_rule(color=LIMIT, strokeDash=[2, 3], strokeWidth=1.5)
    # the number behind a level, if it is known
    said = "datum.value ? datum.level + ': ' + datum.value : datum.level"
    happened = _placed(layout, "happened").transform_calculate(said=said)
    happened = happened.encode(x=_x(layout), y=_y(layout), detail=alt.Detail("variable:N"))
    drawn = _placed(layout, "draws").transform_calculate(
        line="datum.draw + ' ' + datum.variable", at="datum.y + datum.beside * datum.room"
    )
    paths: style.Row = {"strokeWidth": 1.3, "color": DRAWN[layout.with_model]}
    # beside the title of the axis, and only there if they are drawn
    words, below = style.named("draw_words"), layout.height + AXIS - 7
    aside = 0.6 * PLOT
    record: style.Row = {"strokeWidth": 3, "color": style.BLACK, "strokeCap": "round"}
    return [
        limits.encode(
            x=style.fixed(alt.XValue, 0), x2=style.fixed(alt.X2Value, PLOT), y=_y(layout)
        ),
        drawn.mark_line(interpolate="step", **paths).encode(
            x=_x(layout), y=_y(layout, "at"), detail=alt.Detail("line:N")
        ),
        _whole_steps(layout, drawn, "at", paths),
        words.mark_rule(**paths).encode(
            x=style.fixed(alt.XValue, aside),
            x2=style.fixed(alt.X2Value, aside + 24),
            y=style.fixed(alt.YValue, below),
        ),
        words.mark_text(align="left", x=aside + 30, y=below, fontSize=style.SMALL).encode(
            text=alt.Text("text:N")
        ),
        happened.mark_line(interpolate="step", **record),
        _whole_steps(layout, happened, "y", record),
        happened.mark_point(opacity=0, size=90).encode(
            tooltip=[alt.Tooltip("variable:N"), _time(layout), alt.Tooltip("said:N", title="level")]
        ),
    ]


def _whole_steps(layout: TrajectoryLayout, rows: alt.Chart, y: str, look: style.Row) -> alt.Chart:
    """Draw what was decided at a step from its beginning to its end."""
    decided = _cells(rows.transform_filter("datum.kind == 'action'"))
    return decided.mark_rule(**look).encode(
        x=_x(layout, "left"), x2=alt.X2("right:Q"), y=_y(layout, y)
    )


def _first_layers(layout: TrajectoryLayout) -> list[alt.Chart]:
    """Draw a line before the first effect of a different treatment, and dim side rows after it."""
    first = style.named("first")
    dimmed = [
        first.mark_rect(
            x2=PLOT - 1, y=strip.top + 1, y2=strip.bottom - 1, fill=YELLOW, opacity=0.62
        ).encode(x=_x(layout, "after"))
        for strip in layout.strips
        if strip.kind == "side"
    ]
    line = first.mark_rule(
        y=-6, y2=layout.height, strokeDash=style.DASHES, color=style.GREY, strokeWidth=1.4
    )
    return [*dimmed, line.encode(x=_x(layout, "at"))]


def _end_layers(layout: TrajectoryLayout) -> list[alt.Chart]:
    """Draw how the episode and the drawn paths ended: shapes, and words above."""
    look: style.Row = {"filled": True, "opacity": 1, "stroke": style.BLACK, "strokeWidth": 0.8}
    layers = [
        _placed(layout, name)
        .transform_calculate(at="datum.y + datum.beside * datum.room")
        .mark_point(size=size, **look)
        .encode(
            x=_x(layout),
            y=_y(layout, "at"),
            fill=alt.Fill("color:N", scale=None),
            shape=alt.Shape("shape:N", scale=None),
            tooltip=[alt.Tooltip("outcome:N"), _time(layout)],
        )
        for name, size in (("draw_ends", 50), ("ends", 150))
    ]
    words = style.named("words").mark_text(
        align=alt.expr("datum.align"), dx=alt.expr("datum.aside"), fontSize=style.SMALL, limit=PLOT
    )
    layers.append(
        words.encode(
            x=_x(layout),
            y=_y(layout),
            text=alt.Text("text:N"),
            color=alt.Color("color:N", scale=None),
        )
    )
    return layers


def _legend_entries(layout: TrajectoryLayout) -> tuple[list[tuple[str, str, str]], int]:
    """Return words, color and symbol of each entry of the legend, and how many are in a line."""
    entries = [(WHAT_HAPPENED, style.BLACK, SOLID)]
    if layout.with_model:
        entries.append((f"{UNDER_POLICY} (bold: likelier)", SHADED, BOX))
    elif layout.with_policy:
        entries.append((POLICY_GIVES, SHADED, BOX))
    if layout.draws:
        words = f"Policy ({layout.draws} draw{'s' * (layout.draws != 1)})"
        entries.append((words, DRAWN[layout.with_model], SOLID))
    if layout.numbers("inferred"):
        entries.append((INFERRED, "#77737F", BOX))
    if layout.limit_rows:
        entries.append(("Normal range", LIMIT, DOTS))
    if layout.with_model:
        entries.append((f"Fewer than {THIN} similar cases", AMBER, BOX))
    entries += [(look["outcome"], look["color"], look["shape"]) for look in layout.looks]
    return entries, 3 if layout.with_model else 5


def _legend_layer(layout: TrajectoryLayout) -> alt.Chart:
    """Draw the legend: a scale of symbols with nothing but invisible marks on it."""
    entries, columns = _legend_entries(layout)
    names, colors, shapes = (list(column) for column in zip(*entries, strict=True))
    legend = alt.Legend(
        orient="none",
        legendX=-layout.left,
        legendY=-LEGEND_ABOVE - LEGEND_LINE * -(-len(entries) // columns),
        direction="horizontal",
        columns=columns,
        labelFontSize=style.SMALL,
        labelLimit=270,
        rowPadding=4,
        symbolSize=130,
        symbolStrokeWidth=0,
    )
    marks = alt.Chart(style.data([{"entry": name} for name in names])).mark_point(
        opacity=0, strokeWidth=0, x=0, y=0
    )
    return marks.encode(
        fill=alt.Fill("entry:N", legend=legend).scale(domain=names, range=colors),
        shape=alt.Shape("entry:N", legend=legend).scale(domain=names, range=shapes),
    )

"""One patient: what happened, step by step, and what the model draws under the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from butfor.log.episodes import Episodes
from butfor.log.variables import Variable
from butfor.present.charts.courses import Course, Key, drawn_courses, observed_course, static_levels
from butfor.present.charts.style import (
    BLACK,
    BLUE,
    ESTIMATE,
    GREEN,
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
    text_width,
    wrap,
)
from butfor.replay.draws import Draws

PLOT = 390  # width of the part with the steps
NAMES = 120  # room for the names of variables
LEVELS = 85  # room for the names of their levels
TOTAL = NAMES + LEVELS + PLOT
LEVEL = 24  # height of a level
MOST = 8  # levels that are named; with more of them they get thinner and some go unnamed
GAP = 9  # between panels
YELLOW = "#FBF1D0"
BROWN = "#7A4B00"
LIMIT = "#B23A00"
SOLID, DOTS = [1, 0], [2, 3]
CROSS = "M-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0L-1,-.7Z"
BAD = (VERMILLION, "#A0356F")  # colours of outcomes, by turns
GOOD = (GREEN, "#56B4E9")
HAPPENED = "What happened"


def trajectory_chart(
    episodes: Episodes,
    position: int,
    draws: Draws | None = None,
    *,
    word: str = "Patient",
    note: str = "",
) -> alt.LayerChart:
    """Draw one episode: state variables, then what no model saw, then treatments.

    A decision at step t shows as treatment at t + 1. Lines of the draws lie beside the level that
    they mean, so that none hides another. Where a course ends in an outcome, or in a state that
    the log does not tell, the last known level is held, and treatments follow the last decision.

    Parameters
    ----------
    position
        Of the episode, from 0.
    draws
        Draws of this episode, found by its id; there may be draws of others among them.
    word
        What an episode is called in the title.
    note
        More to say in the subtitle, such as how much evidence the draws rest on.
    """
    if not isinstance(position, int | np.integer) or not 0 <= position < len(episodes):
        raise ValueError(
            f"position {position}: there are {len(episodes)} episodes, give 0..{len(episodes) - 1}"
        )
    drawn, first = ([], None) if draws is None else drawn_courses(episodes, position, draws)
    courses = [observed_course(episodes, position), *drawn]
    last = max(course.last for course in courses)
    panels = _panels(episodes)
    height = int(panels[-1].bottom)
    lines = [_points(panels, course, draw, len(drawn), last) for draw, course in enumerate(courses)]
    limits = [limit for panel in panels for limit in _limits(panel)]
    looks = _looks(episodes)
    marks: list[Row] = []
    for draw, (course, points) in enumerate(zip(courses, lines, strict=True)):
        if course.outcome >= 0:
            ends = {row["line"]: row for row in points}  # the last point on each panel
            size = {"size": 60 if draw else 150}
            marks += [row | looks[course.outcome] | size for row in ends.values()]
    legend = _legend(len(drawn), bool(limits), marks)
    layers = [
        *_panel_layers(panels, height),
        *_line_layers([row for points in lines for row in points], limits, height),
        *_first_layers(first, last, height),
        _mark_layer(marks, height),
        *_axis_layers(last, height),
        *_legend_layers(legend, -14 if first is None else -34, height),
    ]
    title, subtitle = _words(episodes, position, drawn, first, word, note)
    return finish(layers, title, subtitle, width=PLOT, height=height, total=TOTAL)


@dataclass(frozen=True)
class _Panel:
    """The strip of one variable on the plane."""

    key: Key
    variable: Variable
    top: float
    level: float  # height of one level

    @property
    def bottom(self) -> float:
        return self.top + self.level * len(self.variable.levels)

    @property
    def hidden(self) -> bool:
        return self.key[0] == "side"

    def y(self, code: float) -> float:
        """Place of a level: the first lies at the bottom."""
        return self.bottom - self.level * (code + 0.5)


def _panels(episodes: Episodes) -> list[_Panel]:
    """Stack a panel for each variable that changes, from 0 downwards."""
    actions = {variable.name: variable for variable in episodes.action_variables}
    running = {v.name: v for v in episodes.state_variables if v.name in actions}
    seen = [v for v in episodes.state_variables if v.name not in actions and not v.static]
    hidden = [v for v in episodes.side_variables if not v.static]
    chosen = [(("state", v.name), v) for v in seen] + [(("side", v.name), v) for v in hidden]
    chosen += [(("action", name), running.get(name, v)) for name, v in actions.items()]
    panels: list[_Panel] = []
    top = 0.0
    for key, variable in chosen:
        least = 3.4 * LINE_HEIGHT if key[0] == "side" else LEVEL * 1.5
        high = max(LEVEL * min(len(variable.levels), MOST), least)
        panels.append(_Panel(key, variable, top, high / len(variable.levels)))
        top += high + GAP
    return panels


def _x(step: float, last: int) -> float:
    return PLOT * (step + 0.5) / (last + 1)


def _offset(draw: int, draws: int) -> float:
    """How far a draw's line lies from its level, in levels: by turns below and above."""
    if draw == 0:
        return 0.0
    step = min(0.1, 0.26 / max(1, (draws - 1) // 2))
    return (0.14 + step * ((draw - 1) // 2)) * (1 if draw % 2 else -1)


def _points(
    panels: Sequence[_Panel], course: Course, draw: int, draws: int, last: int
) -> list[Row]:
    """Set out a course on all panels; draw 0 is what happened."""
    return [
        {
            "series": _series(draws) if draw else HAPPENED,
            "draw": draw,
            "line": f"{draw} {' '.join(panel.key)}",
            "variable": panel.variable.name,
            "step": int(step),
            "level": panel.variable.levels[code],
            "x": _x(int(step), last),
            "y": panel.y(int(code)) + _offset(draw, draws) * max(panel.level, LEVEL / 2),
        }
        for panel in panels
        if panel.key in course.levels
        for step, code in zip(*course.levels[panel.key], strict=True)
    ]


def _limits(panel: _Panel) -> list[Row]:
    """Where the levels that count as normal begin and end."""
    normal = [level in panel.variable.normal for level in panel.variable.levels]
    edges = np.flatnonzero(np.diff([False, *normal, False])).tolist()
    return [{"variable": panel.variable.name, "y": panel.y(edge - 0.5)} for edge in edges]


def _looks(episodes: Episodes) -> list[Row]:
    """Shape and colour of each outcome: a cross if it is bad, else a diamond."""
    looks: list[Row] = []
    used: Counter[bool] = Counter()
    for outcome in episodes.outcomes:
        colors = BAD if outcome.bad else GOOD
        color = colors[used[outcome.bad] % len(colors)]
        shape = CROSS if outcome.bad else "diamond"
        looks.append({"outcome": outcome.name, "color": color, "shape": shape})
        used[outcome.bad] += 1
    return looks


def _panel_layers(panels: Sequence[_Panel], height: int) -> list[alt.Chart]:
    """Draw each panel's box, the name of its variable and those of the levels."""
    boxes: list[Row] = []
    levels: list[Row] = []
    for panel in panels:
        below = ["never given", "to the model"] if panel.hidden else []
        room = int((panel.bottom - panel.top) // LINE_HEIGHT) - len(below)
        name = wrap(panel.variable.name, NAMES - 6, TEXT, bold=True, lines=max(1, room))
        middle = (panel.top + panel.bottom) / 2
        box: Row = {"name": name, "below": below, "top": panel.top, "bottom": panel.bottom}
        box["y_name"] = middle - LINE_HEIGHT * (len(name) + len(below) - 1) / 2
        box["y_below"] = box["y_name"] + LINE_HEIGHT * len(name)
        box |= {"fill": YELLOW, "ink": BROWN} if panel.hidden else {"fill": "white", "ink": BLACK}
        boxes.append(box)
        every = -(-len(panel.variable.levels) // MOST)
        named = list(enumerate(panel.variable.levels))[::every]
        levels += [{"level": level, "y": panel.y(code)} for code, level in named]
    base = alt.Chart(data(boxes))
    ink = alt.Color("ink:N", scale=None)
    name_mark = base.mark_text(
        align="left", fontWeight="bold", lineHeight=LINE_HEIGHT, x=-TOTAL + PLOT
    )
    below_mark = base.mark_text(
        align="left", fontSize=SMALL, lineHeight=LINE_HEIGHT, x=-TOTAL + PLOT
    )
    text = alt.Chart(data(levels)).mark_text(align="right", fontSize=SMALL, limit=LEVELS - 4, x=-7)
    return [
        base.mark_rect(stroke=LINE, x=0, x2=PLOT).encode(
            y=pixels("top", height, down=True), y2="bottom:Q", fill=alt.Fill("fill:N", scale=None)
        ),
        name_mark.encode(y=pixels("y_name", height, down=True), text="name:N", color=ink),
        below_mark.encode(y=pixels("y_below", height, down=True), text="below:N", color=ink),
        text.encode(y=pixels("y", height, down=True), text="level:N"),
    ]


def _line_layers(lines: list[Row], limits: list[Row], height: int) -> list[alt.Chart]:
    y = pixels("y", height, down=True)
    rule = alt.Chart(data(limits)).mark_rule(color=LIMIT, strokeDash=DOTS, strokeWidth=1.5)
    course = alt.Chart(data(lines)).encode(x=pixels("x", PLOT), y=y, detail="line:N")
    happened = course.transform_filter("datum.draw == 0")
    drawn = course.transform_filter("datum.draw > 0")
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("series", "variable", "step", "level")]
    return [
        rule.encode(x=alt.value(0), x2=alt.value(PLOT), y=y),
        happened.mark_line(interpolate="step", strokeWidth=3, color=BLACK),
        drawn.mark_line(interpolate="step", strokeWidth=1.3, opacity=0.75, color=BLUE),
        course.mark_point(opacity=0, size=80).encode(tooltip=tooltip),
    ]


def _mark_layer(marks: list[Row], height: int) -> alt.Chart:
    base = alt.Chart(data(marks)).mark_point(filled=True, opacity=1, stroke=BLACK, strokeWidth=0.8)
    return base.encode(
        x=pixels("x", PLOT),
        y=pixels("y", height, down=True),
        size=alt.Size("size:Q", scale=None),
        fill=alt.Fill("color:N", scale=None),
        shape=alt.Shape("shape:N", scale=None),
        tooltip=[alt.Tooltip(f"{field}:N") for field in ("outcome", "step")],
    )


def _first_layers(first: int | None, last: int, height: int) -> list[alt.Chart]:
    """Draw a line between the first decision that differs and its effect, a step later."""
    if first is None:
        return []
    row: Row = {"first": first, "x": _x(first + 0.5, last)}
    row["text"] = f"policy first treats differently (decided at step {first})"
    base = alt.Chart(data([row])).encode(x=pixels("x", PLOT))
    left = row["x"] < PLOT * 0.3
    right = row["x"] > PLOT * 0.7
    mark: Row = {"align": "left" if left else "right" if right else "center", "fontSize": SMALL}
    return [
        base.mark_rule(y=-4, y2=height, strokeDash=[5, 4], color=GREY, strokeWidth=1.3),
        base.mark_text(y=-13, color=GREY, dx=-3 * left + 3 * right, **mark).encode(text="text:N"),
    ]


def _axis_layers(last: int, height: int) -> list[alt.Chart]:
    every = next(step for step in (1, 2, 5, 10, 20, 50, 10**9) if last / step <= 11)
    ticks = [{"x": _x(step, last), "text": str(step)} for step in range(0, last + 1, every)]
    base = alt.Chart(data(ticks)).encode(x=pixels("x", PLOT))
    title = alt.Chart(data([{"text": "Step"}])).mark_text(x=PLOT / 2, y=height + 34)
    return [
        base.mark_rule(y=height, y2=height + 5, color=LINE),
        base.mark_text(y=height + 15).encode(text="text:N"),
        title.encode(text="text:N"),
    ]


def _legend(draws: int, limits: bool, marks: list[Row]) -> list[Row]:
    """Name the lines and the outcomes that the picture has."""
    entries: list[Row] = [{"text": HAPPENED, "color": BLACK, "dash": SOLID, "wide": 3}]
    if draws:
        entries.append({"text": _series(draws), "color": BLUE, "dash": SOLID, "wide": 2})
    if limits:
        entries.append({"text": "Normal range", "color": LIMIT, "dash": DOTS, "wide": 2})
    ends = {mark["outcome"]: mark for mark in marks}
    looks = ("color", "shape")
    return entries + [{"text": name} | {k: ends[name][k] for k in looks} for name in ends]


def _series(draws: int) -> str:
    return f"Policy ({draws} draw{'s' * (draws != 1)})"


def _legend_layers(entries: list[Row], bottom: float, height: int) -> list[alt.Chart]:
    """Draw the legend, in as many rows above `bottom` as that takes."""
    x, row, gap = float(PLOT - TOTAL), 0, 14
    placed: list[Row] = []
    for entry in entries:
        symbol = 16 if "shape" in entry else 24
        length = symbol + 6 + text_width(entry["text"], TEXT)
        if x + length > PLOT and placed:
            x, row = float(PLOT - TOTAL), row + 1
        place = {"x": x, "x2": x + symbol, "middle": x + symbol / 2, "x_text": x + symbol + 6}
        placed.append(entry | place | {"row": row})
        x += length + gap
    for entry in placed:
        entry["y"] = bottom - 20 * (row - entry["row"])
    y = pixels("y", height, down=True)
    lines = alt.Chart(data([entry for entry in placed if "dash" in entry]))
    marks = alt.Chart(data([entry for entry in placed if "shape" in entry]))
    mark = marks.mark_point(filled=True, opacity=1, stroke=BLACK, strokeWidth=0.8, size=130)
    text = alt.Chart(data(placed)).mark_text(align="left", limit=TOTAL - 40)
    return [
        lines.mark_rule().encode(
            x=pixels("x", PLOT),
            x2="x2:Q",
            y=y,
            color=alt.Color("color:N", scale=None),
            strokeDash=alt.StrokeDash("dash:N", scale=None),
            strokeWidth=alt.StrokeWidth("wide:Q", scale=None),
        ),
        mark.encode(
            x=pixels("middle", PLOT),
            y=y,
            fill=alt.Fill("color:N", scale=None),
            shape=alt.Shape("shape:N", scale=None),
        ),
        text.encode(x=pixels("x_text", PLOT), y=y, text="text:N"),
    ]


def _words(
    episodes: Episodes,
    position: int,
    drawn: Sequence[Course],
    first: int | None,
    word: str,
    note: str,
) -> tuple[str, str]:
    """Say in words what the picture shows, and with it what it is worth."""
    names = [*(outcome.name for outcome in episodes.outcomes), episodes.none_name]
    end, length = int(episodes.outcome[position]), int(episodes.lengths[position])
    when = f"at step {length}" if end >= 0 else f"after {length} step{'s' * (length != 1)}"
    title = f"{word} {episodes.id[position]}: {names[end]} {when}."
    parts = []
    if drawn:
        counts = Counter(names[course.outcome] for course in drawn).most_common()
        name, count = counts[0]
        title += f" {count} of {len(drawn)} draws under the policy: {name}"
        title += "".join(f"; {count}: {name}" for name, count in counts[1:]) + "."
        parts.append(ESTIMATE)
        parts += ["In every draw the policy treats as was done."] * (first is None)
    for name, level, given in static_levels(episodes, position):
        parts.append(
            f"{name[:1].upper()}{name[1:]}: {level}{' (never given to the model)' * (not given)}."
        )
    return title, " ".join([*parts, note]).strip()

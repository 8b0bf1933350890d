"""The rows of one episode, for the template of its chart, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.wording import counted, percent
from butfor.log.variables import unravel
from butfor.present.charts import style
from butfor.present.charts.trajectory.layout import OUTCOMES, PLOT, TrajectoryLayout
from butfor.present.recorded import recorded_values
from butfor.present.text import FIRST_DIFFERENCE, SIMILAR_CASES, capitalized, cases_text, ending
from butfor.replay.steps import SPARSE

FAINT = 0.005  # smaller probabilities are not shaded: nobody would see it
SHORT = 30  # horizons up to this are the axis of every episode
NOT_YET = style.GRID  # the color of having no outcome
Datasets = dict[str, list[style.Row]]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
COURSE = ("variable", "level", "step", "probability")
# rows that change from episode to episode
RECORD_DATA = ("frame", "happened", "ends", "first", "words")
DRAW_DATA = ("draws", "draw_ends", "draw_words")
MODEL_DATA = ("shade", "inferred", *DRAW_DATA, "evidence", "places", "place_words")
NAMES_OF_DATA = RECORD_DATA + MODEL_DATA
# rows that depend on where the axis ends; others are only cut there
FITTED = ("frame", "words", "evidence", "place_words")


def trajectory_datasets(
    layout: TrajectoryLayout,
    steps: pd.DataFrame,
    *,
    outcome: int = -1,
    first: int = -1,
    courses: pd.DataFrame | None = None,
    course_steps: pd.DataFrame | None = None,
    draws: pd.DataFrame | None = None,
    last: int | None = None,
) -> Datasets:
    """Return the rows of one episode, for the template.

    Parameters
    ----------
    steps, courses, course_steps, draws
        Its rows of the tables of an audit with these names, in order. Without `courses` only what
        happened is drawn. Rows of `courses` whose `world` is "observed" hold what was inferred.
    outcome
        How it ended, by number; -1: without an outcome.
    first
        Step of the first decision that the policy would take differently; -1: none.
    last
        The last step on the axis; by default the horizon, unless it is long.
    """
    length = int(steps["step"].iloc[-1])
    if last is None:
        last = layout.horizon
        if last > SHORT:
            last = near_step(layout, steps, course_steps, few=FAINT)
    found: Datasets = {name: [] for name in NAMES_OF_DATA}
    found["frame"] = [{"low": -0.5, "high": last + 0.5}]
    values = recorded_values(steps)
    for line in _lines(layout, _columns(steps)):
        found["happened"] += [_with_value(layout, row, values) for row in line]
        if outcome >= 0 and line:
            end = line[-1] | {"step": length, "beside": 0}
            found["ends"].append(end | layout.looks[outcome])
    if first >= 0:
        found["first"] = [{"at": _first_at(layout, first), "after": first + 0.5}]
    found["words"] = _words(layout, length, last, outcome, first)
    if courses is not None:
        target, inferred = split_worlds(courses[courses["step"] <= last])
        found["inferred"] = _shade_rows(layout.numbers("inferred"), inferred)
        if course_steps is not None:
            numbers = layout.numbers("state", "policy", "running")
            found["shade"] = _shade_rows(numbers, target)
            found["evidence"] = _evidence_rows(course_steps, last)
            found |= _outcome_rows(layout, target, last)
    if draws is not None and len(draws):
        found |= _draw_rows(layout, draws, last)
    return found


def split_worlds(courses: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows under the target and those that were inferred, which older audits lack."""
    if "world" not in courses:
        return courses, courses.iloc[:0]
    observed = (courses["world"] == "observed").to_numpy()
    return courses[~observed], courses[observed]


def near_step(
    layout: TrajectoryLayout,
    steps: pd.DataFrame,
    course_steps: pd.DataFrame | None,
    *,
    few: float = SPARSE,
) -> int:
    """Return the step by which the episode and all but a few replays of it have ended."""
    length = int(steps["step"].iloc[-1])
    last = length
    if course_steps is not None:
        alive = course_steps["step"].to_numpy()[course_steps["mass"].to_numpy() >= few]
        last = max(last, int(alive.max(initial=0)) + 1)
    return min(max(last, 1), max(layout.horizon, length))


def last_step(datasets: Mapping[str, Sequence[style.Row]]) -> int:
    """Return the last step on the axis of a chart."""
    return int(datasets["frame"][0]["high"] - 0.5)


def _lines(layout: TrajectoryLayout, steps: Mapping[str, NDArray[Any]]) -> list[list[style.Row]]:
    """Return the points of one line on each strip, of the steps of the record or of a draw.

    A decision at step t shows at t, unless the state records the treatment: then that shows at
    t + 1, as it was decided if the last state is unknown or an outcome. Other variables hold their
    last level then.
    """
    at, state, action = (steps[name].astype(np.int64) for name in ("step", "state", "action"))
    last_known = 0 <= state[-1] < layout.n_states
    codes = layout.codes(state if last_known else np.append(state[:-1], state[-2]))
    decided = unravel(layout.action, np.maximum(action, 0))
    decisions = {variable.name: variable.levels for variable in layout.action}
    lines = []
    for strip in layout.strips:
        name, numbers = strip.variable.name, strip.numbers
        if strip.kind == "side" and f"side.{name}" in steps:
            levels = [numbers.get(label) for label in steps[f"side.{name}"]]
        elif strip.kind in ("state", "running"):
            levels = [strip.first + code for code in codes[name].tolist()]
            if strip.kind == "running" and not last_known:
                levels[-1] = numbers.get(decisions[name][decided[name][-2]], levels[-1])
        elif strip.kind == "action":
            numbered = np.where(action < 0, -1, strip.first + decided[name])
            levels = [None if number < 0 else number for number in numbered.tolist()]
        else:
            continue
        points = zip(at.tolist(), levels, strict=True)
        lines.append([{"step": step, "k": k} for step, k in points if k is not None])
    return lines


def _with_value(
    layout: TrajectoryLayout, row: style.Row, values: Mapping[str, Sequence[str]]
) -> style.Row:
    """Return a point of the record with the number behind its level, if that is known."""
    name = layout.level_rows[row["k"]]["variable"]
    value = values[name][row["step"]] if name in values else ""
    return row | {"value": value} if value else row


def _first_at(layout: TrajectoryLayout, first: int) -> float:
    """Return where the first different decision begins to show."""
    return first - 0.5 if layout.shows_decisions else first + 0.5


def _words(
    layout: TrajectoryLayout, length: int, last: int, outcome: int, first: int
) -> list[style.Row]:
    """Say above the chart where the policy first differs and how the episode ended."""

    def words(step: float, y: int, text: str, color: str, align: str) -> style.Row:
        aside = {"left": 5, "center": 0, "right": -5}[align]
        return {"step": step, "y": y, "text": text, "color": color, "align": align, "aside": aside}

    rows: list[style.Row] = []
    if first >= 0:
        at = _first_at(layout, first)
        align = "left" if (at + 0.5) / (last + 1) < 0.5 else "right"
        text = FIRST_DIFFERENCE.format(time=layout.clock.at(first))
        rows.append(words(at, -14, text, style.GREY, align))
    if outcome >= 0:
        share, align, at = (length + 0.5) / (last + 1), "center", float(length)
        if share < 0.25:
            align, at = "left", -0.5
        elif share > 0.75:
            align, at = "right", last + 0.5
        color = layout.looks[outcome]["color"]
        text = ending(layout.outcomes[outcome].name, length, layout.clock, ended=True)
        rows.append(words(at, -30, text, color, align))
    return rows


def _shade_rows(numbers: Mapping[tuple[str, str], int], courses: pd.DataFrame) -> list[style.Row]:
    """Return the levels that have a number, and how likely they are."""
    return [
        {"step": step, "k": numbers[variable, level], "p": round(p, 4)}
        for variable, level, step, p in style.tuples(courses, *COURSE)
        if p >= FAINT and (variable, level) in numbers
    ]


def _evidence_rows(course_steps: pd.DataFrame, last: int) -> list[style.Row]:
    """Return the similar past cases of each step, whole from ten on, in words if there is room."""
    rows: list[style.Row] = []
    for step, mass, cases in style.tuples(course_steps, "step", "mass", "evidence"):
        if step <= last and mass >= 0.01 and cases == cases:
            text = cases_text(cases)
            fits = style.text_width(text, style.SMALL) < PLOT / (last + 1) - 1
            row = {"step": step, "cases": float(text), "mass": round(mass, 3)}
            rows.append(row | {"text": text if fits else ""})
    return rows


def outcomes_by_then(
    layout: TrajectoryLayout, courses: pd.DataFrame, last: int
) -> dict[str, Floats]:
    """Return the probability of each outcome up to each step, [last + 1], by name."""
    by_then = {outcome.name: np.zeros(last + 1) for outcome in layout.outcomes}
    for variable, level, step, p in style.tuples(courses, *COURSE):
        if variable == "" and level in by_then:
            by_then[level][step] = p
    return by_then


def _outcome_rows(layout: TrajectoryLayout, courses: pd.DataFrame, last: int) -> Datasets:
    """Stack outcomes by step: good ones from below, bad ones from above, none between."""
    by_then = outcomes_by_then(layout, courses, last)
    none = np.clip(1 - sum(by_then.values(), np.zeros(last + 1)), 0.0, 1.0)
    good, bad = (
        [
            (outcome.name, look["color"], "white", by_then[outcome.name])
            for outcome, look in zip(layout.outcomes, layout.looks, strict=True)
            if outcome.bad == kind
        ]
        for kind in (False, True)
    )
    rows: list[style.Row] = []
    words: list[style.Row] = []
    low: Floats = np.zeros(last + 1)
    for name, fill, ink, chance in (*good, (layout.none, NOT_YET, style.BLACK, none), *bad):
        high = low + chance
        rows += [
            {
                "step": step,
                "outcome": name,
                "low": round(low[step], 4),
                "high": round(high[step], 4),
                "fill": fill,
            }
            for step in np.flatnonzero(chance >= FAINT).tolist()
        ]
        word = _outcome_word(name, chance, low, high)
        if word is not None:
            y = layout.outcomes_top + OUTCOMES * (1 - word.pop("middle"))
            words.append(word | {"y": round(y, 1), "ink": ink})
        low = high
    return {"places": rows, "place_words": words}


def _outcome_word(name: str, p: Floats, low: Floats, high: Floats) -> style.Row | None:
    """Name an outcome at the end if there is room, else at the start, else nowhere."""
    last = len(p) - 1
    text = f"{name} {percent(float(p[-1]))}"
    cells = style.text_width(text, style.SMALL, bold=True) / (PLOT / (last + 1)) + 0.6
    tail = slice(max(0, int(last + 1 - cells)), last + 1)
    head = slice(0, int(cells) + 1)
    places = ((tail, last + 0.3, "right", text), (head, -0.3, "left", name))
    for part, step, align, words in places:
        bottom, top = float(low[part].max()), float(high[part].min())
        fits = style.text_width(words, style.SMALL, bold=True) < PLOT * 0.9
        if top - bottom >= (style.LINE_HEIGHT + 2) / OUTCOMES and fits:
            return {"step": step, "align": align, "text": words, "middle": (bottom + top) / 2}
    return None


def _draw_rows(layout: TrajectoryLayout, draws: pd.DataFrame, last: int) -> Datasets:
    """Return the lines of drawn paths, each a little beside its level, and where they end."""
    found: Datasets = {name: [] for name in DRAW_DATA}
    states = layout.n_states
    count = int(draws["draw"].max()) + 1
    if layout.with_model:  # otherwise they are in the legend
        found["draw_words"] = [{"text": counted(count, "sampled path")}]
    apart = min(0.12, 0.26 / max(1, (count - 1) // 2))
    columns = _columns(draws)
    near = columns["step"] <= last
    for draw in np.unique(columns["draw"][near]).tolist():
        here = near & (columns["draw"] == draw)
        path = {name: column[here] for name, column in columns.items()}
        # below its level and above in turn, in levels
        beside = round((0.14 + apart * (draw // 2)) * (-1 if draw % 2 else 1), 3)
        outcome = int(path["state"][-1]) - states
        for line in _lines(layout, path):
            found["draws"] += [row | {"draw": draw, "beside": beside} for row in line]
            if outcome >= 0 and line:
                end = line[-1] | {"step": int(path["step"][-1]), "beside": beside}
                found["draw_ends"].append(end | layout.looks[outcome])
    return found


def _columns(steps: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns that lines are made from, as arrays."""
    side = [name for name in steps if name.startswith("side.")]
    names = [*(name for name in ("draw", "step", "state", "action") if name in steps), *side]
    return {name: steps[name].to_numpy() for name in names}


# -------------------------------------------------------------------------------------- numbers


def trajectory_table(
    layout: TrajectoryLayout, datasets: Mapping[str, Sequence[style.Row]]
) -> list[list[str]]:
    """Return the numbers of the chart: the head of a table, then one row per step."""
    levels = layout.level_rows
    happened: dict[tuple[int, str], str] = {}
    for row in datasets["happened"]:
        level = levels[row["k"]]
        words = f"{level['level']}: {row['value']}" if "value" in row else level["level"]
        happened[row["step"], level["variable"]] = words
    model, inferred = (_likely(levels, datasets[name]) for name in ("shade", "inferred"))
    evidence = {(row["step"], ""): cases_text(row["cases"]) for row in datasets["evidence"]}
    by_then = {
        (row["step"], row["outcome"]): percent(row["high"] - row["low"])
        for row in datasets["places"]
    }

    def names(*kinds: str) -> list[str]:
        return [strip.variable.name for strip in layout.strips if strip.kind in kinds]

    recorded, hidden = names("state", "side", "running", "action"), names("inferred")
    columns = [(name, happened, name, "") for name in recorded]
    if inferred:
        columns += [(f"Inferred: {name}", inferred, name, "") for name in hidden]
    said = names("state", "policy", "running", "action")
    columns += [(f"Model: {name}", model, name, "") for name in said if (0, name) in model]
    if evidence:
        columns.append((SIMILAR_CASES, evidence, "", ""))
    if by_then:
        columns += [
            (f"Model: {name} by then", by_then, name, "under 0.5%") for name in layout.names
        ]
    last = last_step(datasets)
    head = [capitalized(layout.clock.unit), *(words for words, *_ in columns)]
    rows = [
        [
            str(layout.clock.time(step)),
            *(words.get((step, name), empty) for _, words, name, empty in columns),
        ]
        for step in range(last + 1)
    ]
    return [head, *rows]


def _likely(levels: Sequence[style.Row], rows: Sequence[style.Row]) -> dict[tuple[int, str], str]:
    """Return levels with their probability, the likeliest first, by step and variable."""
    found: dict[tuple[int, str], str] = {}
    for row in sorted(rows, key=lambda row: -row["p"]):
        level = levels[row["k"]]
        key, words = (row["step"], level["variable"]), f"{level['level']} {percent(row['p'])}"
        found[key] = f"{found[key]}, {words}" if key in found else words
    return found

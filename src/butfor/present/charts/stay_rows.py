"""The rows of one stay, for the template of its picture, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.wording import percent
from butfor.log.variables import unravel
from butfor.present.charts.strips import NOT_YET, PLACES, PLOT, Layout, Strip, level_rows
from butfor.present.charts.style import BLACK, GREY, LINE_HEIGHT, SMALL, Row, text_width

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

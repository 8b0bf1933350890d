"""A first draft of a study file, guessed from the names and values of a log's columns."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from butfor.log.coding import EMPTY, Codes, encode, identify, read_numbers, read_times, text_of
from butfor.log.combinations import MOST_TRANSITIONS
from butfor.log.fields import UNIT_NAMES, UNITS, place
from butfor.log.read import read_log
from butfor.log.sources import Log, load_log
from butfor.log.study import read_study
from butfor.log.write import comment_lines, toml_value, write_toml

FEW = 6  # numbers with at most this many distinct values become levels
MOST_LEVELS = 20  # text with more distinct values becomes a side column
MOST_STATES = 5000  # few logs visit more; further columns become side columns
CHECK = "CHECK THIS:"
REGULAR = 0.8  # share of equal intervals from which on times are regular

# Words in column names, the most telling first; names are split at anything but letters and digits.
WORDS = {
    "episode": "stay episode icustay icustayid stayid admission encounter hadm trajectory visit "
    "case patient subject patientid id",
    "time": "charttime time timestep step bloc hour day datetime date timestamp t",
    "outcome": "outcome died death dead mortality expire expired survived survival status end",
    "reward": "reward r",
    "behavior_probability": "propensity probability pscore prob",
    "final_key": "final_key",
}
DRUGS = (
    "dose treatment treat drug medication therapy vaso vasopressor vasopressors fluid fluids "
    "norepinephrine noradrenaline epinephrine insulin antibiotic antibiotics heparin sedation"
)
BAD = re.compile(r"die|dead|death|mort|expire|fail|relapse|worse", re.IGNORECASE)
ORDER = (
    "none off no never absent false very_low low mild below normal medium moderate above high "
    "severe very_high on yes always present true"
)


@dataclass(frozen=True)
class Guess:
    """What a column seems to be."""

    name: str
    kind: str  # number, time, text or empty
    values: tuple[str, ...]  # the distinct ones, in order; of numbers only if they are few
    cuts: tuple[float, ...]  # quartiles of a number
    distinct: int
    empty: Any  # [R] which cells are empty
    codes: Codes  # [R] equal for equal cells


def draft_study(source: Any) -> str:
    """Return the text of a guessed study file, every section of which a person must check.

    Columns are recognized by their names (stay_id, charttime, dose, died …), their values, and
    whether they change within an episode. The problems found when the log is read with the draft
    are listed in comments at its end.
    """
    log = load_log(source)
    guesses = {name: _guess(log, name) for name in log.table.column_names}
    content, comments = _draft(log, guesses)
    found = _try(source, content)
    if "- no_outcome:" in found:
        content["problems"] = {"no_outcome": "keep"}
        comments["[problems]"] = (
            f"{CHECK} some episodes end without an outcome. They are kept as censored episodes;\n"
            '"drop" leaves them out. Other kinds of problems are refused.'
        )
        found = _try(source, content)
    head = (
        f"{comment_lines(f'A draft of a study file for {log.name}, guessed from its columns.')}\n"
        f"# Check every section, first the lines with {CHECK}\n\n"
    )
    tail = ""
    if found:
        tail = f"\n# {CHECK} reading the log with this draft finds:\n{comment_lines(found)}\n"
    return head + write_toml(content, comments, _hints(content)) + tail


def _try(source: Any, content: dict[str, Any]) -> str:
    """Read the log with a draft; add the horizon to it, or return what is wrong."""
    try:
        study = read_study(tomllib.loads(write_toml(content)))
        episodes = read_log(source, study).episodes
    except ValueError as error:
        return str(error)
    content["evaluation"] = {"horizon": episodes.horizon} | content["evaluation"]
    return ""


def _draft(log: Log, guesses: dict[str, Guess]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of the draft, and comments by section."""
    left = dict(guesses)
    notes: list[str] = []
    episode = _episode(left, notes)
    number = identify(log.table[episode], text=None)[0]
    left.pop(episode)
    columns = {"episode": episode} | _take_roles(log, left, number, notes)
    content: dict[str, Any] = {"columns": columns, "state": {}, "action": {}}
    comments = {"[columns]": "\n".join(notes)}
    actions, why = _actions(left, number)
    for name in actions:
        content["action"][name] = _levels(left.pop(name))
        comments[place("action", name)] = why
    _states(content, comments, left, number)
    if "outcome" in columns:
        content["outcome"] = _outcomes(guesses[columns["outcome"]], comments)
    if len(content["state"]) > 1:
        content["model"], comments["[model]"] = _model(content)
    content["words"] = {"episode": "stay" if "stay" in episode.lower() else "episode"}
    counted = columns.get("time", "").lower().removesuffix("s")
    if isinstance(columns.get("time_step"), float) and counted in UNIT_NAMES.values():
        content["words"]["time"] = counted
    content["evaluation"] = {"discount": 1.0, "planning_discount": 0.99}
    return {key: part for key, part in content.items() if part}, comments


def _take_roles(
    log: Log, left: dict[str, Guess], number: Codes, notes: list[str]
) -> dict[str, Any]:
    """Take the columns with a role (time, reward, outcome …) out of `left`; return them by role."""
    columns: dict[str, Any] = {}
    endings = _endings(left, number)
    for key in ("time", "reward", "behavior_probability", "final_key", "outcome"):
        among = endings if key == "outcome" else left
        name = _named(among, key)
        if key == "outcome" and name is None:
            name = next((n for n, g in endings.items() if g.empty.any()), None)
        if name is not None and name in left:
            columns[key] = name
            left.pop(name)
    if "outcome" not in columns:
        notes.append(f"{CHECK} no column looks like an outcome; name it here if there is one")
    if "time" not in columns:
        notes.append(f"{CHECK} no column looks like a time; rows are read in the order of the log")
    elif step := _time_step(log.table[columns["time"]], number):
        columns["time_step"] = step
        notes.append(f"{CHECK} rows of an episode are mostly {step} apart; time_step reveals gaps")
    return columns


def _time_step(column: Any, number: Codes) -> float | str | None:
    """Return the usual interval between rows of an episode, or None if there is no such."""
    times, _, dates = read_times(column)
    order = np.lexsort([times, number])
    within = (np.diff(number[order]) == 0) & (number[order][1:] >= 0)
    apart = np.diff(times[order])[within]
    apart = apart[np.isfinite(apart) & (apart > 0)]
    steps, counts = np.unique(apart, return_counts=True)
    if len(apart) == 0 or counts.max() / len(apart) < REGULAR:
        return None
    step = float(steps[counts.argmax()])
    if not dates:
        return step
    unit = next(unit for unit in ("d", "h", "min", "s") if step % UNITS[unit] == 0 or unit == "s")
    return f"{text_of(step / UNITS[unit])}{unit}"


def _guess(log: Log, name: str) -> Guess:
    column = log.table[name]
    codes, values = log.code(name, encode)
    numbers, wrong = log.code(name, read_numbers)
    texts = [text_of(value) for value in values]
    absent = set(EMPTY)
    if _is_drug(name):
        absent.remove("None")  # a treatment then, not a missing value
    empty = np.array([text.strip() in absent for text in texts] + [True], dtype=bool)[codes]
    known = np.unique(codes[~empty]).tolist()
    kind, cuts = "text", tuple[float, ...]()
    shown: Iterable[str] = sorted((texts[code] for code in known), key=_rank)
    if len(known) == 0:
        kind = "empty"
    elif not wrong.any() and not pa.types.is_boolean(column.type):
        kind, cuts = "number", _quartiles(numbers[~np.isnan(numbers)])
        distinct = np.unique(numbers[~np.isnan(numbers)])
        shown = map(text_of, distinct.tolist()) if len(distinct) <= MOST_LEVELS else ()
    elif not read_times(column)[1].any():
        kind = "time"
    return Guess(name, kind, tuple(shown), cuts, len(known), empty, codes)


def _quartiles(numbers: Any) -> tuple[float, ...]:
    """Return the quartiles as cuts, rounded as far as they stay distinct."""
    exact = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    spread = float(np.ptp(numbers)) or 1.0
    digits = 2 - math.floor(math.log10(spread))
    rounded = np.unique(np.round(exact, max(0, digits)))
    inside = rounded[(rounded > numbers.min()) & (rounded <= numbers.max())]
    return tuple(inside.tolist())


def _rank(text: str) -> tuple[int, str]:
    key = text.strip().lower().replace(" ", "_").replace("-", "_")
    words = ORDER.split()
    return (words.index(key) if key in words else len(words), text)


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", name.lower()) if part]


def _is_drug(name: str) -> bool:
    return not set(DRUGS.split()).isdisjoint(_parts(name))


def _named(left: dict[str, Guess], key: str) -> str | None:
    """Return the column whose name has the most telling word, and whose values fit."""
    any_kind = key in ("episode", "outcome")
    kinds = ("number", "time") if key == "time" else ("number",)
    for word in WORDS[key].split():
        for name, guess in left.items():
            if (word in _parts(name) or word == name.lower()) and (any_kind or guess.kind in kinds):
                return name
    return None


def _episode(left: dict[str, Guess], notes: list[str]) -> str:
    repeated = {
        name: guess
        for name, guess in left.items()
        if guess.kind != "empty" and guess.distinct < len(guess.codes)
    }
    name = _named(repeated, "episode")
    if name is None:
        name = next(iter(repeated or left))
        notes.append(f"{CHECK} no column looks like an episode; this is the first one")
    return name


def _actions(left: dict[str, Guess], number: Codes) -> tuple[list[str], str]:
    """Return the columns that look like actions, and the reason as a comment."""
    usable = {
        name: guess
        for name, guess in left.items()
        if guess.kind in ("text", "number") and (guess.cuts or 1 < guess.distinct <= MOST_LEVELS)
    }
    named = [name for name in usable if {"action", "actions"} & set(_parts(name))]
    last = _last(number)
    absent_last = [
        name
        for name, guess in usable.items()
        if guess.empty.any() and not (guess.empty & ~last).any()
    ]
    by_name = "taken for an action by its name"
    for names, why in (
        (named, by_name),
        (absent_last, "taken for an action because only last rows have none"),
        (list(filter(_is_drug, usable)), by_name),
    ):
        if names:
            return names, f"{CHECK} {why}"
    changing = [name for name, guess in usable.items() if not _is_static(guess, number)]
    return (changing or [*usable])[-1:], f"{CHECK} no column looks like an action; this is a guess"


def _states(
    content: dict[str, Any], comments: dict[str, str], left: dict[str, Guess], number: Codes
) -> None:
    """Divide the other columns into states and side columns."""
    states = 1
    side: dict[str, Any] = {}
    for name, guess in left.items():
        section = _levels(guess)
        size = _size(section)
        if guess.kind in ("empty", "time") or not 1 < size <= MOST_LEVELS:
            side[name] = {}
        elif states * size > MOST_STATES:
            side[name] = {}
            lines = write_toml({"state": {name: section}}).strip()
            comments[place("side", name)] = (
                f"{CHECK} left out of the state, which would have more than {MOST_STATES} values. "
                f"It could be\n{lines}"
            )
        else:
            states *= size
            if _is_static(guess, number):
                section["static"] = True
            content["state"][name] = section
            what = "the cuts are quartiles of the log" if "cuts" in section else "order the levels"
            comments[place("state", name)] = f"{CHECK} {what}; normal = [...] is missing"
    if side:
        content["side"] = side


def _model(content: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the [model] section, factored if its transitions can be enumerated, and a comment."""
    sizes = [_size(section) for section in content["state"].values()]
    actions = math.prod(_size(section) for section in content["action"].values())
    moving = [_size(s) for s in content["state"].values() if "static" not in s]
    if math.prod(sizes) * actions * math.prod(moving) > MOST_TRANSITIONS:
        return {"kind": "tabular"}, (
            f'{CHECK} with fewer levels it could be "factored": one distribution per variable\n'
            "learns far more from a log than one per state."
        )
    return {"kind": "factored", "learner": "counts"}, (
        f'{CHECK} one distribution per variable; "tabular" is one per state. The learner may be\n'
        '"logistic" or "boosting" (they need scikit-learn). These learn from the number itself\n'
        "where the section of a state with cuts says number = true."
    )


def _hints(content: dict[str, Any]) -> dict[str, str]:
    """Return what [model] could also say: parents of a variable, and an order of variables."""
    if content.get("model", {}).get("kind") != "factored":
        return {}
    names, action = list(content["state"]), next(iter(content["action"]), "")
    changing = [name for name in names if "static" not in content["state"][name]] or names
    own = [changing[0], f"action.{action}"]
    key = place("model", changing[0]).removeprefix("[model.").removesuffix("]")
    hint = f"parents.{key} = {toml_value(own)}  # if it is known what decides it"
    if len(changing) > 1:
        hint += (
            f"\norder = {toml_value(changing[:2])}  # if the second depends on where the first goes"
        )
    return {"[model]": hint}


def _size(section: dict[str, Any]) -> int:
    """Return the number of levels of a drafted variable."""
    return len(section["levels"]) if "levels" in section else len(section.get("cuts", ())) + 1


def _levels(guess: Guess) -> dict[str, Any]:
    if guess.kind == "number" and guess.distinct > FEW and guess.cuts:
        return {"cuts": list(guess.cuts)}
    return {"levels": list(guess.values)} if guess.values else {}


def _last(number: Codes) -> Any:
    """Mark the last row of each episode, in the order of the log."""
    return ~pd.Series(number).duplicated(keep="last").to_numpy()


def _endings(left: dict[str, Guess], number: Codes) -> dict[str, Guess]:
    """Return columns that have one value per episode: on its last row, or on every row."""
    last = _last(number)
    return {
        name: guess
        for name, guess in left.items()
        if guess.kind in ("text", "number")
        and guess.distinct <= MOST_LEVELS
        and (not (~guess.empty & ~last).any() or _is_static(guess, number))
    }


def _is_static(guess: Guess, number: Codes) -> bool:
    """Whether a column is constant within every episode, and some episode has several rows."""
    values = pd.DataFrame({"episode": number, "code": guess.codes}).drop_duplicates()
    return len(values) == len(np.unique(number)) < len(number)


def _outcomes(guess: Guess, comments: dict[str, str]) -> dict[str, Any]:
    """Give each value a reward: -1 if its name sounds bad, otherwise 1."""
    sections: dict[str, Any] = {}
    flag = set(guess.values) <= {"0", "1", "true", "false"}
    for value in guess.values:
        section, bad = {}, bool(BAD.search(value))
        if flag:  # 1 means that what the column is called has happened
            happened = value in ("1", "true")
            bad = happened == bool(BAD.search(guess.name))
            section = {"name": guess.name if happened else f"not {guess.name}"}
        ending = {"reward": -1.0, "bad": True} if bad else {"reward": 1.0}
        sections[value] = section | ending
        comments[place("outcome", value)] = f"{CHECK} the reward is a guess"
    return sections

"""The study file: what the columns of a log stand for, and how to settle problems of the log."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, create_model

from butfor.checks import MOST_BITS, check_size
from butfor.log.coding import text_of
from butfor.log.column_rules import column_mistakes
from butfor.log.decisions import KINDS
from butfor.log.fields import (
    INVALID,
    LOST,
    MOST,
    Mistakes,
    Section,
    named_twice,
    place,
    show,
    step_size,
)
from butfor.log.irregular import DurationsSection, MissingSection, TimeSection, indicator_name
from butfor.log.meds.section import SourceSection, source_mistakes, with_made_columns
from butfor.log.sections import (
    ClusterSection,
    Columns,
    Evaluation,
    ModelSection,
    Noise,
    OutcomeSection,
    RewardSection,
    RulesSection,
    SideColumn,
    StateSection,
    Study,
    VariableSection,
    Words,
)

_CHOICES: dict[str, Any] = {
    kind: (Literal["refuse", *choices], "refuse") for kind, choices in KINDS.items()
}
_CHOICES["drop_at_most"] = (Annotated[float, Field(ge=0, le=1)] | None, None)
SINGLE: dict[str, type[Section]] = {
    "columns": Columns,
    "source": SourceSection,
    "cluster": ClusterSection,
    "reward": RewardSection,
    "words": Words,
    "evaluation": Evaluation,
    "noise": Noise,
    "model": ModelSection,
    "time": TimeSection,
    "durations": DurationsSection,
    "rules": RulesSection,
    "problems": create_model("ProblemsSection", __base__=Section, **_CHOICES),
}
REPEATED: dict[str, type[Section]] = {
    "state": StateSection,
    "action": VariableSection,
    "outcome": OutcomeSection,
    "side": SideColumn,
    "missing": MissingSection,
}
SECTIONS = (*SINGLE, *REPEATED)
MOST_BYTES = 1_000_000  # of a study file
MOST_TOLD = 100  # mistakes
MOST_LETTERS = 1000  # of one of them
MOST_PARTS = 20  # of a key; the parser's time grows with the square of their number
MANY_PARTS = re.compile(
    r"""(?<![\w\\-])(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*)"""
    rf"{{{MOST_PARTS},}}"
)
# What pydantic found, and what it expected in its place.
EXPECTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list in square brackets",
    "dict_type": "keys with values in braces",
    "greater_than_equal": "a number of at least {ge}",
    "less_than_equal": "a number of at most {le:,}",
    "literal_error": "{expected}",
}
Kind = TypeVar("Kind", bound=Section)
StudySource = str | Path | Mapping[str, Any] | Study  # its path, or its content


def read_study(source: StudySource, *, every: float | str | None = None) -> Study:
    """Read and check a study file, or a dictionary of the same form.

    All mistakes are reported in one ValueError, each with its section and key. `every` takes the
    place of the time step in a study that has not been read yet: see `_with_step`.
    """
    if isinstance(source, Study):
        return source
    if isinstance(source, str | Path):
        name, content = str(source), _read_toml(Path(source))
    elif isinstance(source, Mapping):
        name, content = "the study", dict(source)
    else:
        raise ValueError(
            f"a study of type {type(source).__name__}; give the path of a study file, or a "
            "dictionary of the same form"
        )
    content = with_made_columns(_name_lost(content))
    if every is not None:
        content = _with_step(content, every)
    found: list[str] = []
    parts = _validate_sections(content, found)
    if isinstance(parts.get("columns"), Columns):
        found += [f"{at}: {text}" for at, text in _cross_mistakes(content, parts)]
    if found:
        count = f"{len(found)} mistake{'s' if len(found) > 1 else ''}"
        more = [f"- and {len(found) - MOST_TOLD} more"] if len(found) > MOST_TOLD else []
        told = [f"- {_shortened(line)}" for line in found[:MOST_TOLD]]
        raise ValueError("\n".join([f"{name}: {count}", *told, *more]))
    return Study(**parts)


def _name_lost(content: dict[str, Any]) -> dict[str, Any]:
    """Add the outcome of those who stop without one, if the study wants them to have one."""
    outcomes, *others = (content.get(key, {}) for key in ("outcome", "evaluation", "problems"))
    evaluation, problems = (part if isinstance(part, Mapping) else {} for part in others)
    if not isinstance(outcomes, Mapping) or LOST in outcomes:
        return content
    if evaluation.get("censored") != "outcome" and problems.get("no_transition") != "keep":
        return content
    columns = content.get("columns")
    earned = isinstance(columns, Mapping) and "reward" in columns
    lost: dict[str, float] = {} if earned else {"reward": 0.0}
    return content | {"outcome": dict(outcomes) | {LOST: lost}}


def _read_toml(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a study file (.toml)")
    try:
        check_size(path, MOST_BYTES, "a study file")
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no study file {path}; `butfor init LOG` writes a draft of one"
        ) from None
    except PermissionError:
        raise PermissionError(f"no permission to read {path}; change its permissions") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from None
    long = MANY_PARTS.search(text)
    if long:
        line = text.count("\n", 0, long.start()) + 1
        raise ValueError(
            f"{path}, line {line}: a key has more than {MOST_PARTS} parts with dots between them; "
            "put names with dots in quotes"
        )
    try:
        content = tomllib.loads(text)
        _check_digits(content)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        at = f"line {found[1]}, column {found[2]}" if found else "at the end of the file"
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise ValueError(
            f"{path}, {at}: not TOML ({what}); put text in quotes, also names with spaces or dots "
            '([state."heart rate"]), and write each section and key once'
        ) from None
    except (RecursionError, ValueError):
        raise ValueError(
            f"{path}: endlessly nested brackets or endless digits; write out each value"
        ) from None
    return content


def _check_digits(part: Any) -> None:
    """Refuse whole numbers too long to be written: TOML reads any number of hexadecimal digits."""
    if isinstance(part, int) and part.bit_length() > MOST_BITS:
        raise ValueError
    inside = part.values() if isinstance(part, dict) else part
    for value in inside if isinstance(part, dict | list) else ():
        _check_digits(value)


def _shortened(line: str) -> str:
    half = MOST_LETTERS // 2
    return line if len(line) <= MOST_LETTERS else f"{line[:half]}…{line[-half:]}"


def _with_step(content: Mapping[str, Any], every: float | str) -> dict[str, Any]:
    """Return a study with [time] every, for the same length of time ahead.

    If it has a time step, its horizon and discounts are converted from that one. What is not as it
    should be is left for others to find.
    """
    changed = {key: dict(part) for key, part in content.items() if isinstance(part, Mapping)}
    time, columns = changed.setdefault("time", {}), changed.setdefault("columns", {})
    before = [time.get("every"), columns.pop("time_step", None)]
    time["every"] = every
    sizes = [step_size(step) for step in before if isinstance(step, int | float | str)]
    ratio = step_size(every) / sizes[0] if sizes and sizes[0] > 0 else 1.0
    evaluation = changed.get("evaluation", {})
    if ratio > 0:  # not if it is undefined
        if isinstance(horizon := evaluation.get("horizon"), int):
            evaluation["horizon"] = max(1, round(horizon / ratio))
        for key in ("discount", "planning_discount"):
            if isinstance(discount := evaluation.get(key), int | float) and discount >= 0:
                evaluation[key] = discount**ratio
    return {**content, **changed}


def _validate_sections(content: Mapping[str, Any], found: list[str]) -> dict[str, Any]:
    """Return the sections, as far as they can be read, and add their mistakes to `found`."""
    parts: dict[str, Any] = {}
    for key in content:
        if key not in SECTIONS:
            found.append(f"[{key}]: no such section{_suggest(key, SECTIONS)}")
    if "columns" not in content:
        found.append('[columns]: missing; add it with at least episode = "..."')
    for key, kind in SINGLE.items():
        if key in content:
            parts[key] = _validate(kind, content[key], f"[{key}]", found)
    for key, kind in REPEATED.items():
        entries = content.get(key, {})
        if not isinstance(entries, Mapping):
            found.append(f"{key}: expected sections such as [{key}.<name>], not {show(entries)}")
            continue
        sections = {n: _validate(kind, e, place(key, n), found) for n, e in entries.items()}
        parts[key] = {name: section for name, section in sections.items() if section is not None}
    if parts.get("problems") is not None:
        parts["problems"], parts["drop_at_most"] = _problems(parts["problems"])
    return {key: part for key, part in parts.items() if part is not None}


def _validate(kind: type[Kind], given: Any, at: str, found: list[str]) -> Kind | None:
    """Return a section, as far as it can be read, and add its mistakes to `found`."""
    if not isinstance(given, Mapping):
        found.append(f"{at}: expected a section with keys, not {show(given)}")
        return None
    values = {str(key): value for key, value in given.items()}
    try:
        section = kind(**values)
    except ValidationError as error:
        for key, text in _explain(error, list(kind.model_fields)).items():
            found.append(f"{at} {key}: {text}")
            values.pop(key, None)
        try:
            section = kind(**values)
        except ValidationError:  # a required key is missing, which has been reported
            return None
    found += [f"{at} {key}: {text}" for key, text in section.mistakes(given)]
    return section


def check_problems(given: Any, at: str) -> tuple[dict[str, str], float | None]:
    """Return how to settle problems of a log, and how many of its episodes may be left out.

    `at` says where this is given.
    """
    found: list[str] = []
    section = _validate(SINGLE["problems"], given, at, found)
    if section is None or found:
        raise ValueError("; ".join(found))
    return _problems(section)


def _problems(section: Section) -> tuple[dict[str, str], float | None]:
    settled = section.model_dump(exclude_unset=True)
    most = settled.pop("drop_at_most", None)
    return settled, most


def _explain(error: ValidationError, known: Sequence[str]) -> dict[str, str]:
    """Put pydantic's findings into words, one message per key."""
    messages: dict[str, str] = {}
    expected: dict[str, list[str]] = {}  # by key: a value may fit none of several types
    for entry in error.errors(include_url=False):
        key, value = str(entry["loc"][0]), show(entry["input"])
        if entry["type"] == "extra_forbidden":
            nested = isinstance(entry["input"], Mapping)
            hint = "; a column name with a dot needs quotes" if nested else ""
            messages[key] = f"no such key{_suggest(key, known)}{hint}"
        elif entry["type"] == "missing":
            messages[key] = "missing; it must be given"
        else:
            positions = [part for part in entry["loc"][1:] if isinstance(part, int)]
            item = f"entry {positions[0] + 1}, " if positions else ""
            if entry["type"] == INVALID:
                messages[key] = item + entry["msg"]
                continue
            wanted = EXPECTED.get(entry["type"], "a value of another kind")
            bounds = {k: int(v) if v in (0.0, 1.0) else v for k, v in entry.get("ctx", {}).items()}
            expected.setdefault(key, []).append(wanted.format(**bounds))
            messages[key] = f"{item}{value}: expected {' or '.join(dict.fromkeys(expected[key]))}"
    return messages


def _cross_mistakes(content: Mapping[str, Any], parts: Mapping[str, Any]) -> Mistakes:
    """Yield what does not fit together between sections."""
    columns: Columns = parts["columns"]
    given = content["columns"]
    for key in ("state", "action"):
        ready = key in given
        others = [key] if content.get(key) else []
        others += ["cluster"] if key == "state" and "cluster" in content else []
        if not ready and not others:
            more = ", a [cluster]" if key == "state" else ""
            yield f"[{key}]", f"no {key}; add [{key}.<column>]{more} or [columns] {key}"
        if ready and others:
            yield f"[columns] {key}", f"given together with [{others[0]}]; give one of the two"
        sections = parts.get(key, {})
        names = [section.name or column for column, section in sections.items()]
        told = parts.get("missing", {}) if key == "state" else {}
        names += [
            indicator_name(section.name or column)
            for column, section in sections.items()
            if column in told and told[column].indicator
        ]
        if key == "state" and "cluster" in parts:
            names += [name for name in parts["cluster"].columns if name not in sections]
        if key == "state" and "durations" in parts:
            names += [parts["durations"].name, *([columns.state] if columns.state else [])]
        if key == "state" and "evaluation" in parts and parts["evaluation"].by_step:
            names += ["step", *([columns.state] if columns.state else [])]
        yield from named_twice(names, f"[{key}]", "variables")
        sizes = [len(s.levels or ()) or len(s.cuts or ()) + 1 for s in sections.values()]
        # more states than this make a wide log, which numbers only those that occur
        if key == "action" and math.prod(sizes) > MOST:
            yield f"[{key}]", f"{math.prod(sizes):,} {key}s are too many; use fewer levels or cuts"
    side = [section.name or name for name, section in parts.get("side", {}).items()]
    yield from named_twice(side, "[side]", "columns")
    yield from _role_mistakes(columns, parts)
    yield from _outcome_mistakes(content, parts)
    states = parts.get("state", {})
    for column in parts["noise"].labels if "noise" in parts else ():
        if column not in states:
            lost = f"there is no {place('state', column)}{_suggest(column, states)}"
            yield "[noise] labels", lost
    words = parts.get("words")
    step = parts["time"].every if "time" in parts else columns.time_step
    if words is not None and words.time is not None and not isinstance(step, float):
        yield "[words] time", "needs a number as [columns] time_step; add it, or remove time"
    yield from column_mistakes(parts)
    yield from source_mistakes(parts)
    problems = parts.get("problems", {})
    if problems.get("gaps", "refuse") != "refuse" and "time_step" not in given:
        yield "[problems] gaps", "gaps can be found only with [columns] time_step; add it"
    for key in ("behavior_probability", "target_action", "target_probability"):
        if problems.get("gaps") == "fill" and getattr(columns, key) is not None:
            text = f'filled-in decisions have no {key}; use "drop", or remove {key}'
            yield "[problems] gaps", text


def _role_mistakes(columns: Columns, parts: Mapping[str, Any]) -> Mistakes:
    roles = columns.roles()
    if "reward" in parts and roles.pop("reward", None) is None:  # words may be a state, too
        yield "[reward] values", "needs a column; add [columns] reward = ..."
    named = [(f"[columns] {key}", column) for key, column in roles.items()]
    named += [
        (place(key, name), name) for key in ("state", "action") for name in parts.get(key, {})
    ]
    if "cluster" in parts:
        named += [("[cluster] columns", name) for name in parts["cluster"].columns]
    taken: dict[str, str] = {}
    for at, column in named:
        if column in taken:
            yield at, f"the column {column!r} is already {taken[column]}; name another one"
        taken.setdefault(column, at)


def _outcome_mistakes(content: Mapping[str, Any], parts: Mapping[str, Any]) -> Mistakes:
    given, sections = content["columns"], parts.get("outcome", {})
    outcomes = [value for value in sections if value != LOST]
    if outcomes and "outcome" not in given:
        yield "[columns] outcome", "missing; name the column that holds the outcomes"
    if "outcome" in given and not content.get("outcome"):
        yield "[outcome]", "no outcomes; add [outcome.<value>] for each value of the column"
    if "outcome" not in given and "reward" not in given and not outcomes:
        yield "[columns] outcome", "neither an outcome nor a reward; name a column for one of them"
    evaluation = parts.get("evaluation")
    if evaluation is not None and evaluation.censored == "outcome" and "outcome" not in given:
        yield "[evaluation] censored", '"outcome" needs [columns] outcome; use "continue" or "cut"'
    names = [section.name or value for value, section in sections.items()]
    yield from named_twice(names, "[outcome]", "outcomes")
    none = parts.get("words", Words()).none
    if none in names:
        yield "[words] none", f"{none!r} is also an outcome; give another word"
    elif "none" in names:
        yield "[outcome]", "an outcome is called 'none', which stands for no outcome; rename it"
    for value in sections:
        if not value.strip():
            yield place("outcome", value), "an empty value means no outcome; name the value"
        if "reward" not in given and "reward" not in content["outcome"][value]:
            yield f"{place('outcome', value)} reward", "missing; give a number, or a reward column"
    rewards = {section.reward for section in sections.values()}
    if "reward" not in given and len(sections) > 1 and len(rewards) == 1 and None not in rewards:
        same = f"all {len(sections)} outcomes have the reward {text_of(rewards.pop())}"
        remedy = "give better outcomes a higher reward, or name a column in [columns] reward"
        yield "[outcome]", f"{same}, so every policy would be worth the same; {remedy}"


def _suggest(key: Any, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"

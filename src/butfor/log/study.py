"""The study file: what the columns of a log stand for, and what to do about its problems."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from butfor.checks import check_size
from butfor.log.problems import KINDS
from butfor.log.sections import (
    MOST,
    Cluster,
    Columns,
    Ending,
    Evaluation,
    Mistakes,
    Noise,
    Section,
    SideColumn,
    Study,
    VariableSection,
    Words,
    named_twice,
    place,
    show,
)

SINGLE: dict[str, type[Section]] = {
    "columns": Columns,
    "cluster": Cluster,
    "words": Words,
    "evaluation": Evaluation,
    "noise": Noise,
}
REPEATED: dict[str, type[Section]] = {
    "state": VariableSection,
    "action": VariableSection,
    "outcome": Ending,
    "side": SideColumn,
}
SECTIONS = (*SINGLE, *REPEATED, "problems")
MOST_BYTES = 1_000_000  # of a study file
EXPECTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list in square brackets",
    "butfor": "text or a number",
}
Kind = TypeVar("Kind", bound=Section)


def read_study(source: str | Path | Mapping[str, Any] | Study) -> Study:
    """Read and check a study file, or a dictionary of the same form; report every mistake."""
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
    found: list[str] = []
    parts = _validate_sections(content, found)
    if isinstance(parts.get("columns"), Columns):
        found += [f"{at}: {text}" for at, text in _cross_mistakes(content, parts)]
    if found:
        count = f"{len(found)} mistake{'s' if len(found) > 1 else ''}"
        raise ValueError("\n".join([f"{name}: {count}", *(f"- {line}" for line in found)]))
    return Study(**parts)


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
        raise PermissionError(f"{path} may not be read; ask for the right to read it") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        at = f"line {found[1]}, column {found[2]}" if found else "at the end of the file"
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise ValueError(
            f"{path}, {at}: not TOML ({what}); put text in quotes, names with spaces or dots too "
            '([state."heart rate"]), and write each section and key once'
        ) from None
    except (RecursionError, ValueError):
        raise ValueError(
            f"{path}: has brackets inside brackets, or digits, without end; write each value out"
        ) from None


def _validate_sections(content: Mapping[str, Any], found: list[str]) -> dict[str, Any]:
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
        parts[key] = {}
        for name, entry in entries.items():
            section = _validate(kind, entry, place(key, name), found)
            if section is not None:
                parts[key][name] = section
    parts["problems"] = _validate_problems(content.get("problems", {}), found)
    return {key: part for key, part in parts.items() if part is not None}


def _validate(kind: type[Kind], given: Any, at: str, found: list[str]) -> Kind | None:
    """Return a section, as far as it can be read; note its mistakes."""
    if not isinstance(given, Mapping):
        found.append(f"{at}: expected a section with keys, not {show(given)}")
        return None
    values = dict(given)
    try:
        section = kind(**values) if all(isinstance(key, str) for key in values) else None
    except ValidationError as error:
        for key, text in _explain(error, list(kind.model_fields)):
            found.append(f"{at} {key}: {text}")
            values.pop(key, None)
        try:
            section = kind(**values)
        except ValidationError:  # a key that must be there: said already
            return None
    if section is not None:
        found += [f"{at} {key}: {text}" for key, text in section.mistakes(given)]
    return section


def _explain(error: ValidationError, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Put each finding of pydantic into words, one a key."""
    seen: dict[str, str] = {}
    union: dict[str, list[str]] = {}
    for entry in error.errors(include_url=False):
        key = str(entry["loc"][0])
        if entry["type"] == "extra_forbidden":
            nested = isinstance(entry["input"], Mapping)
            hint = "; a column name with a dot needs quotes" if nested else ""
            seen[key] = f"no such key{_suggest(key, known)}{hint}"
        elif entry["type"] == "missing":
            seen[key] = "missing; it must be given"
        else:
            where = [part for part in entry["loc"][1:] if isinstance(part, int)]
            item = f"entry {where[0] + 1}, " if where else ""
            wanted = union.setdefault(key, [])
            wanted.append(EXPECTED.get(entry["type"], "a value of another kind"))
            expected = " or ".join(dict.fromkeys(wanted))
            seen[key] = f"{item}{show(entry['input'])}: expected {expected}"
    yield from seen.items()


def _validate_problems(given: Any, found: list[str]) -> dict[str, str]:
    if not isinstance(given, Mapping):
        found.append(f"[problems]: expected a section with keys, not {show(given)}")
        return {}
    for kind, policy in given.items():
        choices = ("refuse", *KINDS.get(kind, ()))
        if kind not in KINDS:
            found.append(f"[problems] {kind}: no such kind of problem{_suggest(kind, KINDS)}")
        elif policy not in choices:
            allowed = ", ".join(f'"{choice}"' for choice in choices)
            found.append(f"[problems] {kind}: {show(policy)}: give one of {allowed}")
    return {str(kind): policy for kind, policy in given.items() if isinstance(policy, str)}


def _cross_mistakes(content: Mapping[str, Any], parts: Mapping[str, Any]) -> Mistakes:
    """Say what does not go together between sections."""
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
            yield f"[columns] {key}", f"stands beside [{others[0]}]; give one of the two"
        sections = parts.get(key, {})
        names = [section.name or column for column, section in sections.items()]
        yield from named_twice(names, f"[{key}]", "variables")
        sizes = [len(s.levels or ()) or len(s.cuts or ()) + 1 for s in sections.values()]
        sizes += [parts["cluster"].count] if key == "state" and parts.get("cluster") else []
        if math.prod(sizes) > MOST:
            yield f"[{key}]", f"{math.prod(sizes):,} {key}s are too many; use fewer levels or cuts"
    side = [section.name or name for name, section in parts.get("side", {}).items()]
    yield from named_twice(side, "[side]", "columns")
    yield from _role_mistakes(columns, parts)
    yield from _outcome_mistakes(content, parts)
    yield from _noise_mistakes(parts)
    problems = parts.get("problems", {})
    if problems.get("gaps", "refuse") != "refuse" and "time_step" not in given:
        yield "[problems] gaps", "no gap is known without [columns] time_step; add it"
    if problems.get("gaps") == "fill" and columns.behavior_probability is not None:
        yield (
            "[problems] gaps",
            (
                'decisions that are filled in have no behavior_probability; use "drop", or leave '
                "behavior_probability out"
            ),
        )


def _role_mistakes(columns: Columns, parts: Mapping[str, Any]) -> Mistakes:
    taken: dict[str, str] = {}
    for key, column in columns.roles().items():
        if column in taken:
            yield f"[columns] {key}", f"{column!r} is {taken[column]} already; name another column"
        taken.setdefault(column, f"[columns] {key}")
    for key in ("state", "action"):
        for column in parts.get(key, {}):
            if column in taken:
                yield place(key, column), f"the column is {taken[column]} already; leave one out"
            taken.setdefault(column, place(key, column))
    for column in parts["cluster"].columns if parts.get("cluster") else ():
        if column in taken:
            yield "[cluster] columns", f"{column!r} is {taken[column]} already; leave one out"


def _outcome_mistakes(content: Mapping[str, Any], parts: Mapping[str, Any]) -> Mistakes:
    given, endings = content["columns"], parts.get("outcome", {})
    if content.get("outcome") and "outcome" not in given:
        yield "[columns] outcome", "missing; name the column that holds the outcomes"
    if "outcome" in given and not content.get("outcome"):
        yield "[outcome]", "no outcomes; add [outcome.<value>] for each value of the column"
    if "outcome" not in given and "reward" not in given and not content.get("outcome"):
        yield "[columns] outcome", "neither an outcome nor a reward; name a column for one of them"
    names = [ending.name or value for value, ending in endings.items()]
    yield from named_twice(names, "[outcome]", "outcomes")
    words = parts.get("words")
    if words is not None and words.none in names:
        yield "[words] none", f"{words.none!r} is an outcome too; give another word"
    elif "none" in names:
        yield "[outcome]", "an outcome is called 'none', which stands for no outcome; rename it"
    for value in endings:
        if not value.strip():
            yield place("outcome", value), "an empty value means no outcome; name the value"
        if "reward" not in given and "reward" not in content["outcome"][value]:
            yield f"{place('outcome', value)} reward", "missing; give a number, or a reward column"


def _noise_mistakes(parts: Mapping[str, Any]) -> Mistakes:
    states = parts.get("state", {})
    for column in parts["noise"].labels if parts.get("noise") else ():
        if column not in states:
            yield (
                "[noise] labels",
                f"there is no {place('state', column)}{_suggest(column, states)}",
            )


def _suggest(key: Any, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"

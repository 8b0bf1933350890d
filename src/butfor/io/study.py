"""The study file: what the columns of a log stand for, and what to do about its problems."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from butfor.io.coding import text_of
from butfor.io.problems import KINDS
from butfor.variables import Outcome, Variable

MOST = 2**31 - 1  # states, or actions: codes have 32 bits
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
TYPES = ("text", "number")

Mistakes = Iterator[tuple[str, str]]  # key and what is wrong with it


def _as_level(value: Any) -> str:
    if isinstance(value, str | int | float):
        return text_of(value)
    raise PydanticCustomError("butfor", "give text or a number")


Level = Annotated[str, BeforeValidator(_as_level)]


class Section(BaseModel):
    """A section of the study file; keys that it does not know are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Say what is wrong with the values, beyond their types; `given` is as written."""
        yield from ()


class Columns(Section):
    """Which columns of the log are which."""

    episode: str
    time: str | None = None
    time_step: float | str | None = None  # in units of the time column, or "4h" if it has dates
    outcome: str | None = None
    reward: str | None = None
    behavior_probability: str | None = None
    state: str | None = None  # ready-made: whole numbers from 0
    action: str | None = None
    states: int | None = None  # how many there are; by default the largest number and one
    actions: int | None = None
    final_key: str | None = None  # on the last row: the final state before anything was hidden
    episode_type: str | None = None  # "text": 007 and 7 are two episodes

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check the numbers, and what needs a column."""
        for key, column in (("states", "state"), ("actions", "action"), ("time_step", "time")):
            if getattr(self, key) is not None and column not in given:
                yield key, f"there is no {column} column to go with it; add {column}, or leave it"
        for key in ("states", "actions"):
            count = getattr(self, key)
            if count is not None and not 1 <= count <= MOST:
                yield key, f"{count} is not possible; give how many there are, at least 1"
        if self.time_step is not None and self.step is None:
            yield (
                "time_step",
                (
                    f"{self.time_step!r} is no step; give a number above 0 in units of the time "
                    'column, or for dates a number and a unit, such as "4h" (s, min, h or d)'
                ),
            )
        yield from _choice("episode_type", self.episode_type, TYPES)

    @property
    def step(self) -> float | None:
        """The time step as a number, in seconds if it has a unit."""
        if self.time_step is None:
            return None
        found = re.fullmatch(r"(\d+\.?\d*)\s*(s|min|h|d)", str(self.time_step))
        if isinstance(self.time_step, str) and not found:
            return None
        number = float(found[1]) * UNITS[found[2]] if found else float(self.time_step)
        return number if 0 < number < math.inf else None

    def roles(self) -> dict[str, str]:
        """Return the columns named here, by key."""
        keys = ("episode", "time", "outcome", "reward", "behavior_probability", "state", "action")
        named = {key: getattr(self, key) for key in (*keys, "final_key")}
        return {key: column for key, column in named.items() if column is not None}


class VariableSection(Section):
    """A variable of the state or the action: its levels in order, or cut points of a number."""

    levels: list[Level] | None = None
    cuts: list[float] | None = None
    names: list[str] | None = None  # of the bins between cuts
    normal: Any = None  # a level or a list of them; for cuts also the two ends of a range
    static: bool = False  # never changes within an episode
    name: str | None = None  # by default the column's

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check that there are either levels or cuts, in order, and that normal is among them."""
        if "levels" in given and "cuts" in given:
            yield "levels", "stands beside cuts; give levels for text or cuts for numbers"
            return
        if "levels" not in given and "cuts" not in given:
            yield (
                "levels",
                'missing; give levels = ["low", "high"], or cuts = [60, 100] for numbers',
            )
        yield from _levels(self.levels, "levels")
        if "names" in given and "cuts" not in given:
            yield "names", "is for the bins between cuts; leave it out, levels are names already"
        if self.cuts is not None:
            yield from self._cut_mistakes(self.cuts)
        elif self.levels is not None:
            yield from _normal(self.normal, self.levels)

    def _cut_mistakes(self, cuts: Sequence[float]) -> Mistakes:
        if not cuts:
            yield "cuts", "is empty; give at least one number"
            return
        for cut in cuts:
            if not math.isfinite(cut):
                yield "cuts", f"{cut} is no place to cut; give finite numbers"
        for low, high in pairwise(cuts):
            if low >= high:
                order = f"{text_of(high)} follows {text_of(low)}"
                yield "cuts", f"{order}; list different numbers from low to high"
                return
        yield from _levels(self.names, "names")
        if self.names is not None and len(self.names) != len(cuts) + 1:
            yield (
                "names",
                (
                    f"{len(self.names)} names for {len(cuts) + 1} bins; "
                    f"{len(cuts)} cuts need {len(cuts) + 1} names"
                ),
            )
            return
        if not self._is_range():
            yield from _normal(self.normal, self.bins())
        elif not (set(self.normal) <= set(cuts) and self.normal[0] < self.normal[1]):
            yield (
                "normal",
                (
                    f"{self.normal} is not a range between two cuts; "
                    f"take its ends from {_listed(cuts)}, or name the bins"
                ),
            )

    def _is_range(self) -> bool:
        return (
            isinstance(self.normal, list)
            and len(self.normal) == 2
            and all(isinstance(end, int | float) for end in self.normal)
        )

    def bins(self) -> list[str]:
        """Return the levels: those listed, or the names of the bins between cuts."""
        if self.cuts is None:
            return list(self.levels or ())
        if self.names is not None:
            return list(self.names)
        ends = [text_of(cut) for cut in self.cuts]
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        return [f"below {ends[0]}", *between, f"{ends[-1]} or more"]

    def variable(self, column: str) -> Variable:
        """Return it as a Variable of an Episodes."""
        bins = self.bins()
        if self.cuts is not None and self._is_range():
            low, high = (self.cuts.index(end) for end in self.normal)
            normal = tuple(bins[low + 1 : high + 1])
        else:
            normal = tuple(_as_list(self.normal))
        return Variable(self.name or column, tuple(bins), normal=normal, static=self.static)


class SideColumn(Section):
    """A column that reviewers see and the model does not."""

    levels: list[Level] | None = None
    normal: Any = None
    static: bool = False
    type: str | None = None
    name: str | None = None

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check levels and type."""
        yield from _levels(self.levels, "levels")
        yield from _choice("type", self.type, TYPES)
        if "levels" in given and "type" in given:
            yield "type", "stands beside levels; levels are text, so leave it out"
        if self.levels is not None:
            yield from _normal(self.normal, self.levels)
        elif "levels" not in given and (self.normal is not None or self.static):
            yield "levels", "missing; normal and static need the levels that they are about"

    def variable(self, column: str) -> Variable | None:
        """Return it as a Variable, if it has levels."""
        if self.levels is None:
            return None
        normal = tuple(_as_list(self.normal))
        return Variable(self.name or column, tuple(self.levels), normal=normal, static=self.static)


class Cluster(Section):
    """Columns of numbers that together make the state, as the nearest of `count` clusters."""

    columns: list[str]
    count: int

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check that there are columns, each once, and clusters."""
        if not self.columns:
            yield "columns", "is empty; name at least one column of numbers"
        yield from _levels(self.columns or None, "columns")
        if not 1 <= self.count <= MOST:
            yield "count", f"{self.count} is no number of clusters; give at least 1"


class Ending(Section):
    """One value of the outcome column."""

    name: str | None = None
    reward: float | None = None
    bad: bool = False

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check the reward and the name."""
        if self.reward is not None and not math.isfinite(self.reward):
            yield "reward", f"{self.reward} cannot be added up; give a finite number"
        if self.name is not None and not self.name.strip():
            yield "name", "is empty; give a name, or leave it out to use the value"


class Words(Section):
    """What the people who read the results call things."""

    episode: str = "episode"
    step: str = "step"
    none: str = "none"  # the end of an episode without outcome

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check that no word is empty."""
        for key in ("episode", "step", "none"):
            if not getattr(self, key).strip():
                yield key, "is empty; give a word, or leave it out"


class Evaluation(Section):
    """How far ahead, and how much later rewards count."""

    horizon: int | None = None
    discount: float = 1.0
    planning_discount: float = 0.99

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check the ranges."""
        if self.horizon is not None and self.horizon < 1:
            yield "horizon", f"{self.horizon} is no number of steps; give at least 1"
        for key in ("discount", "planning_discount"):
            if not 0 <= getattr(self, key) <= 1:
                yield key, f"{getattr(self, key)} is outside 0 to 1; give a number from 0 to 1"


class Study(Section):
    """A study file that was found in order."""

    columns: Columns
    state: dict[str, VariableSection] = {}
    cluster: Cluster | None = None
    action: dict[str, VariableSection] = {}
    outcome: dict[str, Ending] = {}
    side: dict[str, SideColumn] = {}
    problems: dict[str, str] = {}
    words: Words = Words()
    evaluation: Evaluation = Evaluation()

    def state_variables(self) -> tuple[Variable, ...]:
        """Return the variables of the [state] sections, in order."""
        return tuple(section.variable(column) for column, section in self.state.items())

    def action_variables(self) -> tuple[Variable, ...]:
        """Return the variables of the [action] sections, in order."""
        return tuple(section.variable(column) for column, section in self.action.items())

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes by the value that stands for them; a missing reward is nan."""
        return {
            value: Outcome(
                ending.name or value,
                math.nan if ending.reward is None else ending.reward,
                ending.bad,
            )
            for value, ending in self.outcome.items()
        }

    def places(self) -> dict[str, str]:
        """Return every column that the study names, with the place where it names it first."""
        found: dict[str, str] = {}
        for key, column in self.columns.roles().items():
            found.setdefault(column, f"[columns] {key}")
        for key in ("state", "action", "side"):
            for column in getattr(self, key):
                found.setdefault(column, place(key, column))
        for column in self.cluster.columns if self.cluster else ():
            found.setdefault(column, "[cluster] columns")
        return found

    def text_columns(self) -> set[str]:
        """Return the columns whose cells are text whatever they look like."""
        names = {self.columns.episode, *self.outcome_column()}
        for sections in (self.state, self.action):
            names |= {name for name, section in sections.items() if section.levels is not None}
        side = {n for n, s in self.side.items() if s.levels is not None or s.type == "text"}
        cut = {n for s in (self.state, self.action) for n, v in s.items() if v.cuts is not None}
        roles = set(self.columns.roles().values())
        return names | (side - cut - roles)

    def outcome_column(self) -> tuple[str, ...]:
        """Return the outcome column, if there is one."""
        return () if self.columns.outcome is None else (self.columns.outcome,)


SINGLE: dict[str, type[Section]] = {
    "columns": Columns,
    "cluster": Cluster,
    "words": Words,
    "evaluation": Evaluation,
}
REPEATED: dict[str, type[Section]] = {
    "state": VariableSection,
    "action": VariableSection,
    "outcome": Ending,
    "side": SideColumn,
}
SECTIONS = (*SINGLE, *REPEATED, "problems")
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


def place(section: str, name: str) -> str:
    """Write the head of a section, such as [state."heart rate"]."""
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return f"[{section}.{name if bare else quoted(name)}]"


def quoted(text: str) -> str:
    """Write text as TOML does, in double quotes on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _read_toml(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the path of a study file (.toml)")
    try:
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
            found.append(f"{key}: expected sections such as [{key}.<name>], not {_show(entries)}")
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
        found.append(f"{at}: expected a section with keys, not {_show(given)}")
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
            seen[key] = f"{item}{_show(entry['input'])}: expected {expected}"
    yield from seen.items()


def _validate_problems(given: Any, found: list[str]) -> dict[str, str]:
    if not isinstance(given, Mapping):
        found.append(f"[problems]: expected a section with keys, not {_show(given)}")
        return {}
    for kind, policy in given.items():
        choices = ("refuse", *KINDS.get(kind, ()))
        if kind not in KINDS:
            found.append(f"[problems] {kind}: no such kind of problem{_suggest(kind, KINDS)}")
        elif policy not in choices:
            allowed = ", ".join(f'"{choice}"' for choice in choices)
            found.append(f"[problems] {kind}: {_show(policy)}: give one of {allowed}")
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
        yield from _twice(names, f"[{key}]", "variables")
        sizes = [len(s.levels or ()) or len(s.cuts or ()) + 1 for s in sections.values()]
        sizes += [parts["cluster"].count] if key == "state" and parts.get("cluster") else []
        if math.prod(sizes) > MOST:
            yield f"[{key}]", f"{math.prod(sizes):,} {key}s are too many; use fewer levels or cuts"
    side = [section.name or name for name, section in parts.get("side", {}).items()]
    yield from _twice(side, "[side]", "columns")
    yield from _role_mistakes(columns, parts)
    yield from _outcome_mistakes(content, parts)
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
    yield from _twice(names, "[outcome]", "outcomes")
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


def _levels(levels: Sequence[str] | None, key: str) -> Mistakes:
    if levels is None:
        return
    if not levels:
        yield key, "is empty; list at least one"
    if any(not level.strip() for level in levels):
        yield key, "one of them is empty, which means missing; give it a name"
    for _, text in _twice(levels, "", key):
        yield key, text


def _normal(normal: Any, levels: Sequence[str]) -> Mistakes:
    for level in _as_list(normal):
        if level not in levels:
            yield "normal", f"{level!r} is not a level; there are {_listed(levels)}"


def _as_list(normal: Any) -> list[str]:
    if normal is None:
        return []
    return [text_of(level) for level in (normal if isinstance(normal, list) else [normal])]


def _choice(key: str, value: str | None, choices: Sequence[str]) -> Mistakes:
    if value is not None and value not in choices:
        yield key, f"{value!r}: give one of {_listed(choices)}"


def _twice(names: Iterable[str], at: str, what: str) -> Mistakes:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield at, f"two {what} are called {name!r}; give different names"
        seen.add(name)


def _suggest(key: Any, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(str(key), names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"


def _listed(values: Iterable[Any]) -> str:
    items = [repr(v) if isinstance(v, str) else text_of(v) for v in values]
    return ", ".join(items[:8]) + (", …" if len(items) > 8 else "")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"

"""The sections of a study file: their keys, and what can be wrong with the values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from butfor.log.coding import text_of
from butfor.log.variables import Outcome, Variable

MOST = 2**31 - 1  # states, or actions: codes have 32 bits
MOST_NUMBERED = 1_000_000  # of them that come as numbers, each of which gets a name
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
            if count is not None and not 1 <= count <= MOST_NUMBERED:
                yield (
                    key,
                    (
                        f"{show(count)} is not possible; give how many there are, from 1 to "
                        f"{MOST_NUMBERED:,}"
                    ),
                )
        if self.time_step is not None and self.step is None:
            yield (
                "time_step",
                (
                    f"{self.time_step!r} is no step; give a number above 0 in units of the time "
                    'column, or for dates a number and a unit, such as "4h" (s, min, h or d)'
                ),
            )
        yield from one_of("episode_type", self.episode_type, TYPES)

    @property
    def step(self) -> float | None:
        """The time step as a number, in seconds if it has a unit."""
        if self.time_step is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(s|min|h|d)", str(self.time_step))
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
        yield from distinct_levels(self.levels, "levels")
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
        yield from distinct_levels(self.names, "names")
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
                    f"take its ends from {listed(cuts)}, or name the bins"
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
        yield from distinct_levels(self.levels, "levels")
        yield from one_of("type", self.type, TYPES)
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
        yield from distinct_levels(self.columns or None, "columns")
        if not 1 <= self.count <= MOST_NUMBERED:
            yield (
                "count",
                f"{show(self.count)} is no number of clusters; give 1 to {MOST_NUMBERED:,}",
            )


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


class Noise(Section):
    """To which columns of the state the noise of transitions belongs: what nature decides."""

    labels: list[str]

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Check that there are columns, each once."""
        if not self.labels:
            yield "labels", "is empty; name at least one column of the state"
        yield from distinct_levels(self.labels or None, "labels")


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
    noise: Noise | None = None

    def state_variables(self) -> tuple[Variable, ...]:
        """Return the variables of the [state] sections, in order."""
        return tuple(section.variable(column) for column, section in self.state.items())

    def action_variables(self) -> tuple[Variable, ...]:
        """Return the variables of the [action] sections, in order."""
        return tuple(section.variable(column) for column, section in self.action.items())

    def noise_variables(self) -> tuple[str, ...]:
        """Return the names of the variables in [noise]; none where it is not there."""
        columns = self.noise.labels if self.noise else []
        return tuple(self.state[column].name or column for column in columns)

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


def place(section: str, name: str) -> str:
    """Write the head of a section, such as [state."heart rate"]."""
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return f"[{section}.{name if bare else quoted(name)}]"


def quoted(text: str) -> str:
    """Write text as TOML does, in double quotes on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def distinct_levels(levels: Sequence[str] | None, key: str) -> Mistakes:
    """Refuse levels that are empty or stand there twice."""
    if levels is None:
        return
    if not levels:
        yield key, "is empty; list at least one"
    if any(not level.strip() for level in levels):
        yield key, "one of them is empty, which means missing; give it a name"
    for _, text in named_twice(levels, "", key):
        yield key, text


def _normal(normal: Any, levels: Sequence[str]) -> Mistakes:
    for level in _as_list(normal):
        if level not in levels:
            yield "normal", f"{level!r} is not a level; there are {listed(levels)}"


def _as_list(normal: Any) -> list[str]:
    if normal is None:
        return []
    return [text_of(level) for level in (normal if isinstance(normal, list) else [normal])]


def one_of(key: str, value: str | None, choices: Sequence[str]) -> Mistakes:
    """Refuse a word that is none of those allowed."""
    if value is not None and value not in choices:
        yield key, f"{value!r}: give one of {listed(choices)}"


def named_twice(names: Iterable[str], at: str, what: str) -> Mistakes:
    """Refuse a name that stands there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield at, f"two {what} are called {name!r}; give different names"
        seen.add(name)


def listed(values: Iterable[Any]) -> str:
    """List the first few values, for a message."""
    items = [repr(v) if isinstance(v, str) else text_of(v) for v in values]
    return ", ".join(items[:8]) + (", …" if len(items) > 8 else "")


def show(value: Any) -> str:
    """Show a value, cut short if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"

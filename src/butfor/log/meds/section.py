"""[source] of a study file: which codes of an event log make which column of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from butfor.log.coding import listed
from butfor.log.fields import INVALID, LOST, Mistakes, Names, Section, TimeStep, place, show

MEDS = "meds"
ANY = "*"  # at the end of a pattern
ITSELF = ""  # instead of a level: the value of the event
# columns that reading adds
MADE = {"episode": "episode", "subject": "subject", "time": "time", "outcome": "outcome"}
UNMADE = ("reward", "behavior_probability", "target_action", "target_probability", "final_key")


def _codes(given: Any, at: str = "") -> list[str]:
    """Return patterns of codes, given as one or as a list."""
    patterns = given if isinstance(given, list) and given else [given]
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern.strip():
            wanted = 'a code in quotes, such as "LAB//LACTATE", its beginning and *, or a list'
            message = f"{at}{show(pattern)}: expected {wanted}"
            raise PydanticCustomError(INVALID, "{message}", {"message": message})
    return patterns


def _by_name(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {str(name): _codes(codes, f"{name}: ") for name, codes in given.items()}


def _by_level(given: Any) -> Any:
    """Return the patterns of each column by level; one without levels has those of `ITSELF`."""
    if not isinstance(given, Mapping):
        return given
    found = {}
    for name, codes in given.items():
        levels = codes if isinstance(codes, Mapping) and codes else {ITSELF: codes}
        found[str(name)] = {str(k): _codes(v, f"{name}: ") for k, v in levels.items()}
    return found


Codes = Annotated[list[str], BeforeValidator(_codes)]


class SourceSection(Section):
    """A log of events: episodes, columns and outcomes by code."""

    format: Literal["meds"]
    start: Codes | None = None  # of an episode; by default an episode is a subject
    end: Codes | None = None
    outcome_within: TimeStep | None = None  # after the end of an episode
    splits: Names | None = None  # the splits to read; by default all
    first_half: Names | None = None  # the splits that are one half when cross-fitting
    columns: Annotated[dict[str, dict[str, list[str]]], BeforeValidator(_by_level)]
    outcomes: Annotated[dict[str, list[str]], BeforeValidator(_by_name)] = Field(
        default_factory=dict
    )

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield keys that need another one."""
        if self.end is not None and self.start is None:
            yield "end", "needs start, the codes with which an episode begins; add it"
        if self.outcome_within is not None and self.end is None:
            yield "outcome_within", "counts from the end of an episode; add end = ..."
        if self.splits is not None and set(self.splits) <= set(self.first_half or ()):
            yield "first_half", "all splits that are read; nothing is left for the other half"
        if isinstance(self.outcome_within, float):
            yield "outcome_within", 'needs a unit; write "30d" or "12h"'

    def patterns(self) -> dict[str, list[str]]:
        """Return all patterns, by the place in the study that names them."""
        found = {"[source] start": self.start or [], "[source] end": self.end or []}
        for name, levels in self.columns.items():
            found[f"[source.columns] {name}"] = [one for codes in levels.values() for one in codes]
        for name, codes in self.outcomes.items():
            found[f"[source.outcomes] {name}"] = codes
        return found


def with_made_columns(content: dict[str, Any]) -> dict[str, Any]:
    """Return a study with the names of the columns that reading events adds."""
    columns = content.get("columns", {})
    if "source" not in content or not isinstance(columns, Mapping):
        return content
    made = {key: name for key, name in MADE.items() if key != "outcome" or content.get("outcome")}
    return {**content, "columns": made | dict(columns)}


def source_mistakes(parts: Mapping[str, Any]) -> Mistakes:
    """Yield what does not fit between [source] and the other sections."""
    source: SourceSection | None = parts.get("source")
    if source is None:
        return
    if "time" not in parts:
        yield "[time] every", 'missing; events come at any time, so add [time] with every = "4h"'
    named = parts["columns"]
    for key in UNMADE:
        if getattr(named, key) is not None:
            yield f"[columns] {key}", "events have no such column; remove it"
    variables = {**parts.get("state", {}), **parts.get("action", {})}
    used = {**variables, **parts.get("side", {})}
    ready = [column for column in (named.state, named.action) if column is not None]
    clustered = parts["cluster"].columns if "cluster" in parts else []
    used |= dict.fromkeys([*clustered, *ready])
    lost = [name for name in used if name not in source.columns]
    if lost:
        yield "[source.columns]", f"no codes for {listed(lost)}; add {lost[0]} = ..."
    for name, levels in source.columns.items():
        at = f"[source.columns] {name}"
        if name not in used:
            sections = ", ".join(place(key, name) for key in ("state", "action", "side"))
            yield at, f"nothing uses it; add one of {sections}, or remove it"
        elif name in (named.episode, named.subject, named.time, named.outcome):
            yield at, "this column is made of the events' own fields; choose another name"
        elif ITSELF not in levels:
            yield from _level_mistakes(at, levels, used[name])
    given = parts.get("outcome", {})
    for value in source.outcomes:
        if value not in given:
            yield f"[source.outcomes] {value}", f"there is no {place('outcome', value)}; add it"
    lost = [value for value in given if value not in (*source.outcomes, LOST)]
    if lost:
        yield "[source.outcomes]", f"no codes for {listed(lost)}; add {lost[0]} = ..."


def _level_mistakes(at: str, levels: Mapping[str, Any], section: Section | None) -> Mistakes:
    known = getattr(section, "levels", None)
    if section is None or getattr(section, "cuts", None) is not None:
        yield at, "codes by level, but the column holds numbers; give one pattern or a list"
    elif known is not None:
        for level in levels:
            if level not in known:
                yield at, f"{level!r} is not one of its levels {listed(known)}"

"""How each column of the state and the action is put on a grid and filled in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from butfor.log.coding import listed, text_of
from butfor.log.fields import Mistakes, place, step_size
from butfor.log.irregular import MEDIAN, MISSING_LEVEL, NORMAL, MissingSection, TimeSection
from butfor.log.sections import ClusterSection, Columns, Study, VariableSection

NOTHING = ("none", "no", "off", "0", "false", "never", "absent", "nothing", "not given")
Key = tuple[str, str]  # group (state or action) and column


@dataclass(frozen=True)
class ColumnRule:
    """How the values of one column are merged within a step, and what stands in for missing ones.

    Values are numbers if the column is cut or clustered, and otherwise the codes of levels.
    """

    take: str = "last"
    normal: tuple[float, float] | None = None  # the range that "worst" is measured from
    nothing: float | None = None  # the value that "any" looks beyond
    steps: float = 0.0  # how far a value is carried forward, 0 if it is not
    age: float = math.inf  # the same in units of the time column, of dates in seconds
    fill: float | None = None  # what is filled in where nothing is carried; nan: level "missing"
    median: bool = False  # instead of `fill`
    indicator: bool = False
    levels: tuple[str, ...] = ()  # the names of codes, if they have names

    def name(self, value: float) -> str:
        """Return how readers know a value."""
        if math.isnan(value):
            return MISSING_LEVEL
        return self.levels[int(value)] if self.levels else f"{value:g}"


@dataclass(frozen=True)
class _Column:
    """What the study says of a column."""

    group: str
    section: VariableSection | None  # None: clustered, or ready-made codes
    numeric: bool
    number: bool = False  # enters classifiers uncut

    def sound(self) -> bool:
        """Whether nothing else is wrong with the column's section."""
        section = self.section
        return section is None or not any(section.mistakes(section.model_dump(exclude_unset=True)))

    def levels(self) -> list[str]:
        return self.section.bins() if self.section is not None else []

    def names(self) -> tuple[str, ...]:
        """Return the names of codes, with one for a level that the study may add."""
        if self.section is None or self.numeric:
            return ()
        return (*self.levels(), MISSING_LEVEL)

    def normal(self) -> tuple[float, float] | None:
        """Return the range of normal numbers, or of the codes of normal levels."""
        if self.section is None:
            return None
        codes = sorted(self.levels().index(one) for one in self.section.variable("").normal)
        if not codes:
            return None
        if self.section.cuts is None:
            return float(codes[0]), float(codes[-1])
        edges = [-math.inf, *self.section.cuts, math.inf]
        return edges[codes[0]], edges[codes[-1] + 1]


def column_rules(study: Study) -> dict[Key, ColumnRule]:
    """Return the rule of each column that has one: with [time], of all."""
    found = {}
    for name, column in _columns(study.columns, study.state, study.action, study.cluster).items():
        section = study.missing.get(name)
        if section is None and study.time is None:
            continue
        section = section or MissingSection()
        carry = column.group == "state" if section.carry is None else section.carry
        fill = _fill(column, section, study.time is not None)
        assert not isinstance(fill, str)  # which would be a mistake of the study
        nothing = fill if fill is not None else _fill(column, MissingSection(), True)
        found[column.group, name] = ColumnRule(
            take=study.time.take.get(name, "last") if study.time else "last",
            normal=column.normal(),
            nothing=nothing if isinstance(nothing, float) else None,
            steps=math.inf if carry is True else float(carry),
            age=math.inf if section.within is None else step_size(section.within),
            fill=fill,
            median=_median(column, section.fill),
            indicator=section.indicator,
            levels=column.names(),
        )
    if study.time is not None:
        static = [name for name, section in study.side.items() if section.static]
        found |= {("side", name): ColumnRule(steps=math.inf) for name in static}
    return found


def column_mistakes(parts: Mapping[str, Any]) -> Mistakes:
    """Yield what is wrong in [time] and [missing], given the other sections."""
    named: Columns = parts["columns"]
    groups = (parts.get("state", {}), parts.get("action", {}), parts.get("cluster"))
    columns = _columns(named, *groups)
    time: TimeSection | None = parts.get("time")
    missing: Mapping[str, MissingSection] = parts.get("missing", {})
    for name, section in missing.items():
        at = place("missing", name)
        if name not in columns:
            yield at, f"{name!r} is neither part of the state nor of the action; {_known(columns)}"
        elif columns[name].sound():
            found = _missing(columns[name], section, named)
            yield from ((f"{at} {key}", text) for key, text in found)
    if "durations" in parts:
        if named.time is None:
            yield "[durations]", "needs a time column; add [columns] time = ..."
        if named.time_step is not None or time is not None:
            yield "[durations]", "given together with equal time steps; remove one of the two"
    if time is None:
        return
    if named.time is None:
        yield "[time] every", "needs a time column; add [columns] time = ..."
    if named.time_step is not None:
        yield "[columns] time_step", "given together with [time] every; remove time_step"
    for key in ("behavior_probability", "target_action", "target_probability"):
        if getattr(named, key) is not None:
            yield f"[columns] {key}", f"merged decisions have no {key}; remove it, or [time]"
    for name, take in time.take.items():
        if name not in columns:
            yield "[time] take", f"{name!r} is neither part of the state nor of the action"
        elif columns[name].sound():
            yield from (("[time] take", f"{name}: {text}") for text in _take(columns[name], take))
    for name, column in columns.items():
        section = missing.get(name, MissingSection())
        given = section.fill is not None or section.carry or _nothing(column) is not None
        if column.group == "action" and column.sound() and not given:
            yield (
                place("missing", name),
                "missing: a step without a record of this action needs a level; add fill = "
                f"..., the one that means nothing was given ({_offer(column)}), or carry = true",
            )


def _columns(
    named: Columns,
    state: Mapping[str, VariableSection],
    action: Mapping[str, VariableSection],
    cluster: ClusterSection | None,
) -> dict[str, _Column]:
    found = {}
    for group, sections, ready in (("state", state, named.state), ("action", action, named.action)):
        for name, one in sections.items():
            number = bool(getattr(one, "number", False))
            found[name] = _Column(group, one, one.cuts is not None, number)
        if ready is not None:
            found[ready] = _Column(group, None, numeric=False)
    for name in cluster.columns if cluster else ():
        found[name] = _Column("state", None, numeric=True)
    return found


def _median(column: _Column, fill: Any) -> bool:
    return fill == MEDIAN and (column.numeric or MEDIAN not in column.levels())


def _fill(column: _Column, section: MissingSection, on_grid: bool) -> float | str | None:
    """Return what is filled in, None if nothing or the median is, or what is wrong with it."""
    fill, levels = section.fill, column.levels()
    if fill is None:
        return _nothing(column) if on_grid and column.group == "action" else None
    if _median(column, fill):
        ready = column.section is None and not column.numeric
        return "codes have no median; give one of them, or use carry" if ready else None
    if not column.numeric and text_of(fill) in levels:
        return float(levels.index(text_of(fill)))
    if fill == NORMAL:
        return _middle(column)
    if fill == MISSING_LEVEL:
        if column.section is None:
            return "there are no levels to add it to; give a number, and indicator = true"
        if column.number:
            return 'number = true needs a number; use fill = "median" and indicator = true'
        return math.nan if column.numeric else float(len(levels))
    if isinstance(fill, float) and (column.numeric or (not levels and _is_code(fill))):
        return fill
    if column.section is None or column.numeric:
        return f'{text_of(fill)!r} is not a number, nor "median", "normal" or "missing"'
    return (
        f'{text_of(fill)!r} is not a level, nor "median", "normal" or "missing"; {_offer(column)}'
    )


def _is_code(fill: float) -> bool:
    return fill >= 0 and fill == int(fill)


def _nothing(column: _Column) -> float | None:
    """Return the value of an action that means nothing was given, if that is plain."""
    if column.numeric:
        return 0.0
    found = [code for code, level in enumerate(column.levels()) if level.lower() in NOTHING]
    return float(found[0]) if len(found) == 1 else None


def _middle(column: _Column) -> float | str:
    """Return a normal value: the middle of the range, or its end if it is open to one side."""
    normal = column.normal()
    if normal is None or column.section is None:
        return "no normal value is known; give normal = ... in its section, or a number"
    low, high = normal
    if column.section.cuts is None:
        return float((int(low) + int(high)) // 2)
    if low == -math.inf:
        return float(np.nextafter(high, -math.inf))
    return low if high == math.inf else (low + high) / 2


def _missing(column: _Column, section: MissingSection, named: Columns) -> Iterator[tuple[str, str]]:
    fill = _fill(column, section, on_grid=False)
    if isinstance(fill, str):
        yield "fill", fill
    if fill is not None and section.fill == MISSING_LEVEL and column.group == "action":
        yield "fill", "an action that is not known cannot be judged; give a level"
    if section.indicator and column.group == "action":
        yield "indicator", "only columns of the state can have one; remove it"
    if section.indicator and column.section is None and not column.numeric:
        yield "indicator", "states that are ready-made codes cannot have one; remove it"
    if section.within is not None and named.time is None:
        yield "within", "needs a time column; add [columns] time = ..., or give carry = 2 (steps)"


def _take(column: _Column, take: str) -> Iterator[str]:
    if take in ("mean", "sum") and not column.numeric:
        yield f"{take} needs numbers, so a column with cuts or in [cluster]; use last, min or max"
    if take in ("min", "max") and column.section is None and not column.numeric:
        yield f"{take} needs levels in order, which ready-made codes do not have; use last"
    if take == "worst" and column.normal() is None:
        yield "worst is what is farthest from normal; give normal = ..., or use min or max"
    if take == "any" and column.group == "state":
        yield "any is for actions; use last, mean, min, max, worst or sum"


def _known(columns: Mapping[str, _Column]) -> str:
    return f"there are {listed(columns)}"


def _offer(column: _Column) -> str:
    levels = column.levels()
    return f"there are {listed(levels)}" if levels else "a number"

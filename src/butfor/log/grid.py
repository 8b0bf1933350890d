"""Irregular rows: put on a grid of equal steps, missing cells filled, times made a variable."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from butfor.log.coding import MISSING
from butfor.log.column_rules import ColumnRule, Key
from butfor.log.decisions import Decisions, Index, Mask, begins, first_rows, last_rows
from butfor.log.fields import step_size
from butfor.log.irregular import DurationsSection
from butfor.log.settle import may_be_missing
from butfor.types import Floats

SLACK = 1e-9  # of a step or unit, by which times may be rounded
MOST_STEPS = 100  # steps per row of the log
MERGED = "time: rows merged with another row of the same step"
ADDED = "time: steps added where there were no rows"
CARRIED = "cells carried forward"  # after the name of the column
INDICATOR = "indicator"  # the group of codes that tell where values were filled in: 1
ROUNDED = "durations: set to the nearest level"
BEYOND = "durations: longer than the longest level, which they count as"


def put_on_grid(rows: Decisions, every: float, rules: Mapping[Key, ColumnRule]) -> Mask:
    """Leave one row per step of `every` from the first row of each episode to its last.

    Returns which rows were added.

    Rows of the same step are merged: columns with a rule as it says, others by their last value,
    rewards by their sum. Steps without rows are added with all cells missing and reward 0. A last
    row without an action gives the final state, so it does not share a step with a decision.
    """
    if len(rows) == 0 or rows.time is None:
        return np.zeros(len(rows), dtype=bool)
    start = np.flatnonzero(first_rows(rows.episode))
    lengths = np.diff(np.append(start, len(rows)))
    origin = np.repeat(rows.time[start], lengths)
    step = np.floor((rows.time - origin) / every + SLACK)
    final = last_rows(rows.episode) & ~rows.decided()
    first = _first_of_step(rows, step)
    decided = np.logical_or.reduceat(rows.decided(), np.flatnonzero(first))
    step[final & decided[np.cumsum(first) - 1]] += 1
    first = _first_of_step(rows, step)
    before = len(rows)
    _check_size(rows, step)
    _merge(rows, first, rules)
    rows.problems.count(MERGED, before - len(rows))
    return _add_steps(rows, step[first], origin[first], every)


def _first_of_step(rows: Decisions, step: Floats) -> Mask:
    return first_rows(rows.episode) | np.append(True, step[1:] != step[:-1])


def _check_size(rows: Decisions, step: Floats) -> None:
    """Refuse a grid that is far too fine for the log."""
    total = float((step[last_rows(rows.episode)] + 1).sum())
    if total > MOST_STEPS * len(rows) + 1000:
        raise ValueError(
            f"[time] every: {total:,.0f} steps for {len(rows):,} rows, more than {MOST_STEPS} per "
            "row; give a longer time"
        )


def _merge(rows: Decisions, first: Mask, rules: Mapping[Key, ColumnRule]) -> None:
    """Make one row of the rows of each step; `first` marks where a step begins."""
    start = np.flatnonzero(first)
    group: Index = np.cumsum(first) - 1
    late = _after_action(rows, start, group)
    rows.problems.count("time: steps with a state measured after an action of the step", late)
    cells = {
        key: _merged(rows, key, rules.get(key, ColumnRule()), start, group) for key in rows.cells
    }
    outcome = np.maximum.reduceat(rows.outcome, start)
    numbers = {name: _sums(values, start) for name, values in rows.numbers.items()}
    rows.take(start)
    rows.outcome, rows.cells, rows.numbers = outcome, cells, numbers


def _after_action(rows: Decisions, start: Index, group: Index) -> int:
    """Count the steps in which a part of the state was measured later than the first action."""
    row = np.arange(len(rows))
    acted = np.minimum.reduceat(np.where(rows.decided(), row, len(rows)), start)
    known = np.logical_or.reduce([codes >= 0 for codes in rows.group("state").values()])
    return len(np.unique(group[known & (row > acted[group])]))


def _merged(rows: Decisions, key: Key, rule: ColumnRule, start: Index, group: Index) -> Index:
    """Return the code of a column in each step."""
    codes = rows.cells[key]
    known = codes >= 0
    if rule.take in ("mean", "sum"):
        pool = rows.pools[key]
        total = _sums(np.where(known, pool[codes], np.nan), start)
        if rule.take == "mean":
            total /= np.maximum(np.add.reduceat(known.astype(np.float64), start), 1)
        rows.pools[key] = np.append(pool, total)
        return np.where(np.isnan(total), MISSING, len(pool) + np.arange(len(start)))
    if rule.take != "last":
        values = rows.pools[key][codes] if key in rows.pools else codes.astype(np.float64)
        score = np.where(known, _score(values, rule), -np.inf)
        known &= score == np.maximum.reduceat(score, start)[group]
    latest = np.maximum.reduceat(np.where(known, np.arange(len(codes)), MISSING), start)
    return np.where(latest < 0, MISSING, codes[latest])


def _score(values: Floats, rule: ColumnRule) -> Floats:
    """Return by how much each value is preferred within its step."""
    if rule.take == "worst":
        low, high = rule.normal or (-np.inf, np.inf)
        return np.asarray(np.maximum(np.maximum(low - values, values - high), 0.0))
    if rule.take == "any":
        return np.asarray(values != rule.nothing, dtype=np.float64)
    return values if rule.take == "max" else -values


def _sums(values: Floats, start: Index) -> NDArray[np.float64]:
    """Return the sum of the numbers of each step, nan if there are none."""
    known = ~np.isnan(values)
    total = np.add.reduceat(np.where(known, values, 0.0), start)
    return np.where(np.logical_or.reduceat(known, start), total, np.nan)


def _add_steps(rows: Decisions, step: Floats, origin: Floats, every: float) -> Mask:
    """Add the steps in which an episode has no rows, mark them, and set the time of each step."""
    last = last_rows(rows.episode)
    following = np.where(last, step + 1, np.append(step[1:], 0))
    times = (following - step).astype(np.int64)  # how often each row appears then
    source, again = rows.repeat(times)
    added = again > 0
    rows.time = origin[source] + every * (step[source] + again)
    rows.cells = {key: np.where(added, MISSING, codes) for key, codes in rows.cells.items()}
    rows.problems.count(ADDED, int(added.sum()))
    return added


def fill_missing(rows: Decisions, rules: Mapping[Key, ColumnRule]) -> None:
    """Fill the missing cells of columns with a rule, and record how many in what way.

    Cells that may be missing, those of final rows, are left alone. What no rule fills stays
    missing.
    """
    if len(rows) == 0:
        return
    exempt = may_be_missing(rows)
    for key, rule in rules.items():
        group, column = key
        codes = rows.cells[key]
        missing = (codes == MISSING) & ~exempt.get(group, np.zeros(len(rows), dtype=bool))
        good, known = rows.last_known(codes)
        carried = missing & known & _recent(rows, good, rule)
        codes = np.where(carried, codes[good], codes)
        if group in exempt:  # what is only shown, and constant, is not worth counting
            rows.problems.count(f"{column}: {CARRIED}", int(carried.sum()))
        left = missing & ~carried
        value = _median(rows, key) if rule.median else rule.fill
        if value is not None and left.any():
            codes = np.where(left, _code_of(rows, key, value), codes)
            name = f"the median, {rule.name(value)}" if rule.median else rule.name(value)
            for what, some in (("", known), (" before the first value", ~known)):
                text = f"{column}: cells{what} filled with {name}"
                rows.problems.count(text, int((left & some).sum()))
        if rule.indicator:
            rows.cells[INDICATOR, column] = left.astype(np.int64)
        rows.cells[key] = codes


def _recent(rows: Decisions, good: Index, rule: ColumnRule) -> Mask:
    """Mark rows whose last known cell is within the limits of the rule."""
    recent = np.arange(len(rows)) - good <= rule.steps
    if rows.time is not None and np.isfinite(rule.age):
        recent &= rows.time - rows.time[good] <= rule.age * (1 + SLACK)
    return np.asarray(recent)


def _median(rows: Decisions, key: Key) -> float | None:
    """Return the median of a column's numbers, or the lower median of its levels."""
    codes = rows.cells[key]
    known = codes[codes >= 0]
    if len(known) == 0:
        return None
    if key in rows.pools:
        return float(np.median(rows.pools[key][known]))
    return float(np.sort(known)[(len(known) - 1) // 2])


def _code_of(rows: Decisions, key: Key, value: float) -> int:
    """Return the code of a value: that of a level, or of a number that is added to the pool."""
    if key not in rows.pools:
        return int(value)
    rows.pools[key] = np.append(rows.pools[key], value)
    return len(rows.pools[key]) - 1


def code_durations(rows: Decisions, section: DurationsSection) -> Index:
    """Return the level of the time since the row before, [M]; of a first row the shortest."""
    assert rows.time is not None  # without a time column the study is refused
    levels = np.array(section.levels)
    first = first_rows(rows.episode)
    passed = np.diff(rows.time, prepend=np.nan) / step_size(section.unit)
    passed = np.where(first, levels[0], passed)
    code = np.searchsorted((levels[1:] + levels[:-1]) / 2, passed)
    rounded = np.abs(passed - levels[code]) > SLACK
    beyond = passed > levels[-1] + SLACK
    rows.problems.count(ROUNDED, int((rounded & ~beyond).sum()))
    rows.problems.count(BEYOND, int(beyond.sum()))
    return code


def code_steps(rows: Decisions, horizon: int) -> Index:
    """Return the step of each row within its episode, [M], at most the horizon."""
    return np.minimum(np.arange(len(rows)) - begins(rows.episode), horizon)

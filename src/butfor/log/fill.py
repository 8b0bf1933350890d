"""Missing cells: values carried forward within limits, and what is filled in beyond them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from butfor.log.coding import MISSING
from butfor.log.column_rules import ColumnRule, Key
from butfor.log.decisions import Decisions, Mask
from butfor.log.grid import SLACK
from butfor.log.problems import Index
from butfor.log.settle import may_be_missing

CARRIED = "cells carried forward"  # after the name of the column
INDICATOR = "indicator"  # the group of codes that tell where values were filled in: 1


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

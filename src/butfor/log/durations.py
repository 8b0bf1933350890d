"""Time as part of the state: how long ago the decision before was made, and which step it is."""

from __future__ import annotations

import numpy as np

from butfor.log.decisions import Decisions, begins, first_rows
from butfor.log.fields import step_size
from butfor.log.irregular import DurationsSection
from butfor.log.problems import Index

ROUNDED = "durations: set to the nearest level"
BEYOND = "durations: longer than the longest level, which they count as"
SLACK = 1e-9  # of a unit, by which times may be rounded


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

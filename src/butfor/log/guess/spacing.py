"""How far apart the rows of an episode are, and whether a grid of equal steps would suit them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from butfor.log.coding import text_of
from butfor.log.fields import UNITS, step_size
from butfor.log.grid import SLACK
from butfor.log.guess.profile import Profile, Rows

MODE = 0.8  # share of equal intervals from which on one of them is the typical one
MOST_MOVED = 0.5  # merged and added rows, relative to all, up to which a grid is drafted


@dataclass(frozen=True)
class Spacing:
    """The typical interval between rows, and what a grid of it would do to them."""

    step: float | str  # as a study file has it
    always: bool  # whether all intervals are equal
    merged: int  # rows that share a step with an earlier one
    added: int  # steps without rows
    suits: bool  # whether a grid changes little enough


def find_spacing(rows: Rows, time: Profile) -> Spacing | None:
    """Return the typical interval between rows of an episode; None if there is none."""
    apart = time.numbers[rows.later] - time.numbers[rows.earlier]
    later = apart[np.isfinite(apart) & (apart > 0)]
    if len(later) == 0:
        return None
    steps, counts = np.unique(later, return_counts=True)
    typical = float(steps[counts.argmax()])
    if counts.max() < MODE * len(later):
        typical = float(np.median(later))
    step = _written(typical, time, exact=counts.max() >= MODE * len(later))
    start = np.repeat(time.numbers[rows.first], rows.lengths)
    place = np.floor((time.numbers[rows.order] - start) / step_size(step) + SLACK)
    same = rows.episode[rows.order][1:] == rows.episode[rows.order][:-1]
    merged = int((same & (place[1:] == place[:-1])).sum())
    ends = np.cumsum(rows.lengths) - 1
    added = int(np.nansum(place[ends] + 1)) - (len(place) - merged)
    suits = np.isfinite(place).all() and merged + added <= MOST_MOVED * len(place)
    always = len(steps) == 1 and len(later) == len(apart)
    return Spacing(step, always, merged, added, bool(suits))


def _written(typical: float, time: Profile, *, exact: bool) -> float | str:
    """Write an interval as a study file has it; one that is not exact has two digits."""
    if time.kind != "time":
        return typical if exact else _two_digits(typical)
    if exact:
        unit = next(u for u in ("d", "h", "min", "s") if typical % UNITS[u] == 0 or u == "s")
        return f"{text_of(typical / UNITS[unit])}{unit}"
    unit = next(u for u in ("d", "h", "min", "s") if typical >= 2 * UNITS[u] or u == "s")
    return f"{text_of(_two_digits(typical / UNITS[unit]))}{unit}"


def _two_digits(number: float) -> float:
    return round(number, 1 - math.floor(math.log10(number)))

"""Columns of a log as they look: kind, distinct values, cuts, and how they change in episodes.

Of a column of times: how far apart rows are, and whether a grid of equal steps would suit them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from butfor.log.coding import EMPTY, Codes, bins_of, encode, read_numbers, read_times, text_of
from butfor.log.fields import UNITS, step_size
from butfor.log.grid import SLACK
from butfor.log.guess.words import sounds
from butfor.log.sources import Log
from butfor.types import Floats

FEW = 6  # numbers with at most this many distinct values become levels
MOST_LEVELS = 20  # text with more distinct values becomes a side column
DENSE = 0.5  # share of the whole numbers up to the largest that codes use at least
GROWS = 0.95  # share of rows from which on a number that never falls counts up
JUMPS = 0.6  # codes move by at least this share of the distance between random rows
NEIGHBORS = 0.5  # at most this correlation between the counts of neighboring codes
ORDER = (
    "none off no never absent false very_low low mild below normal medium moderate above high "
    "severe very_high on yes always present true"
)
MODE = 0.8  # share of equal intervals from which on one of them is the typical one
MOST_MOVED = 0.5  # merged and added rows, relative to all, up to which a grid is drafted


@dataclass(frozen=True, eq=False)
class Profile:
    """What a column holds."""

    name: str
    kind: str  # number, time, text or empty
    values: tuple[str, ...]  # the distinct ones, in order; of numbers only if they are few
    cuts: tuple[float, ...]  # quartiles of a number
    distinct: int
    empty: Any  # [R] which cells are empty
    codes: Codes  # [R] equal for equal cells
    numbers: Floats  # [R] of numbers and times; nan elsewhere
    texts: tuple[str, ...]  # of each code

    @property
    def constant(self) -> bool:
        """Whether every row has the same value."""
        return self.distinct == 1 and not self.empty.any()

    @property
    def known(self) -> Floats:
        """The numbers of the cells that have one."""
        return self.numbers[~np.isnan(self.numbers)]

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers."""
        return self.kind == "number" and bool((self.known == np.floor(self.known)).all())

    @property
    def numbered(self) -> bool:
        """Whether it could number states or actions: most of the whole numbers from 0 to K."""
        if not self.whole or self.known.min() < 0:
            return False
        return self.distinct >= DENSE * (self.known.max() + 1)

    def rows_with(self, value: str) -> Any:
        """Mark the rows that have one of `values`, [R]."""
        if self.kind == "number":
            return self.numbers == float(value)
        return (self.codes == self.texts.index(value)) & ~self.empty

    def section(self) -> dict[str, Any]:
        """Return its levels or cuts, as a section of the study; empty if it has neither."""
        if self.kind == "number" and self.distinct > FEW and self.cuts:
            return {"cuts": list(self.cuts)}
        return {"levels": list(self.values)} if self.values else {}

    def bins(self, section: dict[str, Any]) -> Codes:
        """Return the level of each cell, -1 where it is empty."""
        found = bins_of(self.numbers, section["cuts"]) if "cuts" in section else self.codes
        return np.where(self.empty, -1, found)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a log by episode, in the order of time."""

    episode: Codes  # [R] numbered by first row; -1: none
    order: Codes  # [R] rows sorted by episode and time
    earlier: Codes  # [P] rows that are followed by another row of their episode
    later: Codes  # [P] the rows that follow them
    first: Codes  # [E] first row of each episode
    last: Codes  # [E] last row of each episode

    @classmethod
    def of(cls, episode: Codes, time: Floats | None = None) -> Rows:
        """Group rows by episode; without times, in the order of the log."""
        order = np.lexsort([episode] if time is None else [time, episode])
        order = order[episode[order] >= 0]
        same = episode[order][1:] == episode[order][:-1]
        start = np.append(True, ~same)[: len(order)]
        stop = np.append(~same, True)[: len(order)]
        earlier, later = order[:-1][same], order[1:][same]
        return cls(episode, order, earlier, later, order[start], order[stop])

    @property
    def lengths(self) -> Codes:
        """The number of rows of each episode, [E]."""
        return np.bincount(self.episode[self.order])[self.episode[self.first]]

    def within(self, profile: Profile) -> Any:
        """Mark the pairs of consecutive rows that both have a value."""
        return ~profile.empty[self.earlier] & ~profile.empty[self.later]

    def is_static(self, profile: Profile) -> bool:
        """Whether a column never changes within an episode, and some episode has several rows."""
        both = self.within(profile)
        same = profile.codes[self.earlier] == profile.codes[self.later]
        return bool(both.any() and same[both].all())

    def only_last(self, profile: Profile) -> bool:
        """Whether only last rows have a value."""
        return bool(profile.empty[self.earlier].all() and not profile.empty.all())

    def is_increasing(self, profile: Profile) -> bool:
        """Whether a number never falls within an episode, and grows at nearly every row."""
        steps = profile.numbers[self.later] - profile.numbers[self.earlier]
        return bool(len(steps) and (steps >= 0).all() and (steps > 0).mean() >= GROWS)

    def is_code(self, profile: Profile) -> bool:
        """Whether whole numbers are names rather than amounts.

        Codes count from 0 (or 1) without large gaps, move as far between rows of an episode as
        between any two rows, and neighboring codes do not have similar counts.
        """
        if not profile.numbered or profile.distinct <= FEW or profile.known.min() > 1:
            return False
        counts = np.bincount(profile.known.astype(np.int64))
        varied = np.ptp(counts[1:]) and np.ptp(counts[:-1])
        if varied and np.corrcoef(counts[1:], counts[:-1])[0, 1] > NEIGHBORS:
            return False
        moves = np.abs(profile.numbers[self.later] - profile.numbers[self.earlier])
        moves = moves[moves > 0]
        any_two = np.abs(profile.known - np.random.default_rng(0).permutation(profile.known))
        return bool(len(moves) == 0 or moves.mean() >= JUMPS * any_two.mean())


def profile_column(log: Log, name: str) -> Profile:
    """Look at a column of a log."""
    column = log.table[name]
    codes, values = log.code(name, encode)
    numbers, wrong = log.code(name, read_numbers)
    texts = [text_of(value) for value in values]
    absent = set(EMPTY)
    if sounds(name, "drug"):
        absent.remove("None")  # a treatment then, not a missing value
    empty = np.array([text.strip() in absent for text in texts] + [True], dtype=bool)[codes]
    known = np.unique(codes[~empty]).tolist()
    kind, cuts = "text", tuple[float, ...]()
    shown: Iterable[str] = sorted((texts[code] for code in known), key=_rank)
    if len(known) == 0:
        kind = "empty"
    elif not wrong.any() and not pa.types.is_boolean(column.type):
        kind, cuts = "number", _quartiles(numbers[~np.isnan(numbers)])
        distinct = np.unique(numbers[~np.isnan(numbers)])
        shown = map(text_of, distinct.tolist()) if len(distinct) <= MOST_LEVELS else ()
    elif (times := read_times(column))[2] and not times[1].any():
        kind, numbers = "time", times[0]
    return Profile(name, kind, tuple(shown), cuts, len(known), empty, codes, numbers, tuple(texts))


def dose_cuts(profile: Profile) -> dict[str, Any]:
    """Return levels of a treatment: none, low and high where many rows have none of it."""
    section, known = profile.section(), profile.known
    given = known[known > 0]
    if "cuts" not in section or known.min() < 0 or len(given) > 0.95 * len(known):
        return section
    least, half = float(given.min()), float(np.median(given))
    if least == half:
        return {"cuts": [least], "names": ["none", "given"]}
    return {"cuts": [least, half], "names": ["none", "low", "high"]}


def _quartiles(numbers: Floats) -> tuple[float, ...]:
    """Return the quartiles as cuts, rounded as far as they stay distinct."""
    exact = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    spread = float(np.ptp(numbers)) or 1.0
    digits = 2 - math.floor(math.log10(spread))
    rounded = np.unique(np.round(exact, max(0, digits)))
    inside = rounded[(rounded > numbers.min()) & (rounded <= numbers.max())]
    return tuple(inside.tolist())


def _rank(text: str) -> tuple[int, str]:
    key = text.strip().lower().replace(" ", "_").replace("-", "_")
    words = ORDER.split()
    return (words.index(key) if key in words else len(words), text)


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

"""The episodes in the events of a file: whole subjects, or what lies between two codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from butfor.log.fields import step_size
from butfor.log.meds.events import END, OUTCOME, START, Events, Times, Use
from butfor.log.meds.section import SourceSection

Index = NDArray[np.int64]

SECOND = 1_000_000  # microseconds
NEVER = np.datetime64("NaT", "us")


@dataclass(frozen=True, eq=False)
class Stays:
    """Episodes, in the order of subject and time, [n]."""

    subject: Index
    number: Index  # of the episode among those of its subject, from 1
    start: Times
    stop: Times  # NaT if the record does not say; events of that time belong to the episode
    outcome: Index  # index into the outcomes of [source], -1: none

    def at(self, subject: Index, time: Times) -> Index:
        """Return the episode of events, -1 if there is none."""
        key, asked = _keys((self.subject, self.start), (subject, time))
        found = np.searchsorted(key, asked, side="right") - 1
        inside = found >= 0
        inside[inside] = self.subject[found[inside]] == subject[inside]
        inside[inside] = ~(time[inside] > self.stop[found[inside]])  # never later than NaT
        return np.where(inside, found, -1)

    def of(self, subject: Index) -> tuple[Index, Index]:
        """Return the pairs of events and all episodes of their subjects."""
        low, high = (
            np.searchsorted(self.subject, subject, side=side) for side in ("left", "right")
        )
        event = np.repeat(np.arange(len(subject)), high - low)
        before = np.cumsum(high - low) - (high - low)
        return event, np.arange(len(event)) - before[event] + low[event]

    def ends(self, every: float) -> Times:
        """Return the end of the step in which each episode stops, for steps of `every` seconds."""
        step = np.timedelta64(round(every * SECOND), "us")
        known = ~np.isnat(self.stop)
        ends = self.stop.copy()
        start = self.start[known]
        ends[known] = start - (start - self.stop[known]) // step * step  # rounded up
        return ends

    def ids(self, numbered: bool) -> Any:
        """Return the names of episodes: those of subjects, with a number if there may be more."""
        if not numbered:
            return pa.array(self.subject)
        pairs = zip(self.subject.tolist(), self.number.tolist(), strict=True)
        return pa.array([f"{subject}-{number}" for subject, number in pairs], pa.string())


def find_stays(events: Events, uses: Sequence[Use], source: SourceSection) -> Stays:
    """Find the episodes, with their ends and outcomes.

    An episode ends with the first end code before the next one starts; without one, with its
    outcome. The outcome is the first in the order of [source.outcomes] that the subject has after
    the start and up to `outcome_within` after the end.
    """
    roles = np.array([use.role for use in uses])[events.use]
    timed = events.take(~np.isnat(events.time))
    roles = roles[~np.isnat(events.time)]
    begin = timed if source.start is None else timed.take(roles == START)
    subject, time = begin.subject, begin.time
    key, _ = _keys((subject, time), (subject, time))
    first = np.unique(subject if source.start is None else key, return_index=True)[1]
    subject, time = subject[first], time[first]
    new = np.append(True, np.diff(subject) != 0)[: len(subject)]
    before = np.maximum.accumulate(np.where(new, np.arange(len(subject)), 0))
    number = np.arange(len(subject)) - before + 1
    none = np.full(len(subject), -1)
    stays = Stays(subject, number, time, np.full(len(subject), NEVER), none)
    stays = _with_ends(stays, timed.take(roles == END))
    return _with_outcomes(stays, timed.take(roles == OUTCOME), uses, source)


def _with_ends(stays: Stays, ends: Events) -> Stays:
    following = _next_start(stays)
    stop = _first_after(stays, ends)
    stop = np.where(stop > following, NEVER, stop)
    # without a later end, one at the very start
    start, end = _keys((stays.subject, stays.start), (ends.subject, ends.time))
    at_once = np.isin(start, end)
    return replace(stays, stop=np.where(np.isnat(stop) & at_once, stays.start, stop))


def _with_outcomes(stays: Stays, ends: Events, uses: Sequence[Use], source: SourceSection) -> Stays:
    within = 0.0 if source.outcome_within is None else step_size(source.outcome_within)
    limit = stays.stop + np.timedelta64(round(within * SECOND), "us")
    following = _next_start(stays)
    outcome, stop, ended = stays.outcome, stays.stop, ~np.isnat(stays.stop)
    for position, name in enumerate(source.outcomes):
        mine = np.array([use.role == OUTCOME and use.name == name for use in uses])
        time = _first_after(stays, ends.take(mine[ends.use]))
        fits = np.where(ended, time <= limit, ~np.isnat(time) & ~(time > following))
        new = fits & (outcome < 0)
        outcome = np.where(new, position, outcome)
        stop = np.where(new & ~ended, time, stop)
    return replace(stays, outcome=outcome, stop=stop)


def _next_start(stays: Stays) -> Times:
    """Return when the subject's next episode starts, NaT if there is none."""
    same = np.append(stays.subject[1:] == stays.subject[:-1], False)[: len(stays.subject)]
    return np.where(same, np.append(stays.start[1:], NEVER)[: len(same)], NEVER)


def _first_after(stays: Stays, events: Events) -> Times:
    """Return the time of the first of some events after the start of each episode, or NaT."""
    key, start = _keys((events.subject, events.time), (stays.subject, stays.start))
    order = np.argsort(key, kind="stable")
    found = np.searchsorted(key[order], start, side="right")
    there = found < len(key)
    there[there] = events.subject[order][found[there]] == stays.subject[there]
    time = np.full(len(start), NEVER)
    time[there] = events.time[order][found[there]]
    return time


def _keys(*given: tuple[Index, Times]) -> list[Index]:
    """Return a number for each subject and time, in the order of both."""
    subjects = np.unique(np.concatenate([subject for subject, _ in given]))
    times = np.unique(np.concatenate([time for _, time in given]))
    return [
        np.searchsorted(subjects, subject) * len(times) + np.searchsorted(times, time)
        for subject, time in given
    ]

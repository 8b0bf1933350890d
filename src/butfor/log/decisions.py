"""A table with one row per decision, as codes, and its problems: their kinds, what was found.

Problems are settled in it until it is a log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.log.coding import MISSING
from butfor.types import Floats

Index = NDArray[np.int64]

SHOWN = 5  # places and values that a message names

LEAVE_OUT = "leaves these episodes out"
_DROP_EPISODES = {"drop": LEAVE_OUT}
_CARRY = _DROP_EPISODES | {"fill": "carries the episode's last value forward"}
_AS_MISSING = _DROP_EPISODES | {"fill": "treats them as missing, and fills"}
# By kind: how the study may settle it instead of refusing the log, and what that does.
KINDS: dict[str, dict[str, str]] = {
    "missing_episode": {"drop": "leaves the rows out"},
    "missing_time": _DROP_EPISODES,
    "order": {"sort": "sorts each episode by time"},
    "duplicates": {"drop": "keeps the first of each"},
    "gaps": _DROP_EPISODES | {"fill": "repeats the row before the gap, with reward 0"},
    "missing_state": _CARRY,
    "missing_action": _CARRY,
    "missing_reward": {"fill": "counts them as 0"},
    "lost_reward": {"drop": "leaves out these decisions and their rewards"},
    "unknown_levels": _AS_MISSING,
    "not_numbers": _AS_MISSING,
    "after_outcome": {"drop": "leaves out the rows after the first outcome"},
    "differing_outcomes": _DROP_EPISODES | {"last": "takes the last one of each"},
    "no_outcome": _DROP_EPISODES | {"keep": "keeps them as censored episodes"},
    "no_transition": _DROP_EPISODES
    | {"keep": "keeps last decisions that nothing follows, as lost to follow-up"},
    "behavior_probability": _DROP_EPISODES,
    "beyond_horizon": {"cut": "cuts these episodes there, which removes their outcomes"},
}
DONE = {
    "drop": "dropped",
    "fill": "filled",
    "sort": "sorted",
    "keep": "kept",
    "cut": "cut",
    "last": "settled by the last one",
}
SINGULAR = {"have": "has", "follow": "follows", "do": "does", "end": "ends", "are": "is"}
Mask = NDArray[np.bool_]


@dataclass
class LogProblems:
    """What was found in a log and how it was settled, by kind."""

    policies: Mapping[str, str]  # kind: how to settle it
    places: Callable[[Sequence[int]], str]  # names rows of the source
    in_study: bool = True  # whether messages offer the choices as a study file has them
    refused: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)

    def policy(self, kind: str) -> str:
        """Return how a kind of problem is to be settled."""
        return self.policies.get(kind, "refuse")

    def find(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> str:
        """Record a problem of some rows of the source, and return how to settle it.

        If that is "refuse", the caller continues as well as it can, to find other problems.
        `noun` says what is counted: rows, or episodes given by their first rows.
        """
        policy = self.policy(kind)
        if policy == "refuse":
            self.refuse(kind, rows, what, remedy, noun=noun)
        else:
            self.count(f"{kind}: {noun}s {DONE[policy]}", len(rows))
        return policy

    def refuse(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> None:
        """Record a problem for which the log will be refused, whatever the study says."""
        if len(rows) == 0:
            return
        first = np.sort(rows)[:SHOWN].tolist()
        number = f"{len(rows):,} {noun}s"
        if len(rows) == 1:
            verb, _, rest = what.partition(" ")
            number, what = f"1 {noun}", f"{SINGULAR[verb]} {rest}"
        places = self.places(first) + (", …" if len(rows) > SHOWN else "")
        self.refused.append(f"{kind}: {number} {what} ({places}). {remedy}{self._choices(kind)}")

    def count(self, what: str, number: int) -> None:
        """Add to the record of what was done."""
        if number:
            self.done[what] = self.done.get(what, 0) + int(number)

    def check(self, source: str) -> None:
        """Raise one error that lists everything refused, if there is anything."""
        if not self.refused:
            return
        number = len(self.refused)
        head = f"{source}: {number} problem{'s' if number > 1 else ''}, so nothing was read"
        raise ValueError("\n".join([head, *(f"- {text}" for text in self.refused)]))

    def _choices(self, kind: str) -> str:
        where, written = "", 'problems={{"{}": "{}"}}'
        if self.in_study:
            where, written = "in [problems] of the study: ", '{} = "{}"'
        choices = [
            f"{written.format(kind, policy)} ({meaning})"
            for policy, meaning in KINDS[kind].items()
            if self.policies.get(kind) != policy
        ]
        return f"; or {where}{' or '.join(choices)}" if choices else ""


@dataclass
class Decisions:
    """Rows of a log as codes, with M rows at first."""

    problems: LogProblems
    show: Callable[[str, int], str]  # the text of a cell, by column and row of the source
    row: Index  # [M] number in the source; -1: filled in
    episode: Index  # [M] numbered by first row; -1: missing
    time: Floats | None  # [M]
    outcome: Index  # [M]
    cells: dict[tuple[str, str], Index]  # [M] each, by group (state, action, …) and column
    numbers: dict[str, Floats] = field(default_factory=dict)  # [M] each: reward, probability
    number_columns: dict[str, str] = field(default_factory=dict)  # the columns of `numbers`
    # numbers to which the codes of a column refer, if these are not codes of levels
    pools: dict[tuple[str, str], Floats] = field(default_factory=dict)
    ends: Index = field(default_factory=lambda: np.empty(0, np.int64))  # outcome by episode
    broken: set[int] = field(default_factory=set)  # episodes with refused rows, not judged further
    doomed: dict[str, Index] = field(default_factory=dict)  # episodes to drop, by kind of problem
    # episodes whose last decision is left out with its reward
    shortened: Index = field(default_factory=lambda: np.empty(0, np.int64))
    dated: bool = False  # whether times are those of dates, in seconds
    # [M] each: whether the log has a cell, of columns that may be filled in
    measured: dict[tuple[str, str], Mask] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row)

    def take(self, chosen: Mask | Index) -> None:
        """Keep only these rows, in this order."""
        self.row, self.episode = self.row[chosen], self.episode[chosen]
        self.time = None if self.time is None else self.time[chosen]
        self.outcome = self.outcome[chosen]
        self.cells = {key: codes[chosen] for key, codes in self.cells.items()}
        self.numbers = {key: values[chosen] for key, values in self.numbers.items()}
        self.measured = {key: known[chosen] for key, known in self.measured.items()}

    def repeat(self, times: Index) -> tuple[Index, Index]:
        """Let each row appear so often; those added have no outcome and earn nothing.

        Returns the row that each was before, and how many times that appears before it.
        """
        source = np.repeat(np.arange(len(self)), times)
        again = np.arange(len(source)) - (np.cumsum(times) - times)[source]
        self.take(source)
        self.outcome = np.where(again > 0, MISSING, self.outcome)
        if "reward" in self.numbers:
            self.numbers["reward"] = np.where(again > 0, 0.0, self.numbers["reward"])
        return source, again

    def last_known(self, codes: Index) -> tuple[Index, Mask]:
        """Return the row of the episode's last known cell, [M], and whether there is one."""
        good = np.maximum.accumulate(np.where(codes < 0, -1, np.arange(len(self))))
        return np.maximum(good, 0), good >= begins(self.episode)

    def drop(self, episodes: Index) -> None:
        """Leave out these episodes."""
        if len(episodes):
            self.take(~np.isin(self.episode, episodes))

    def drop_doomed(self) -> None:
        """Leave out the doomed episodes, and record it by kind of problem."""
        for kind, episodes in self.doomed.items():
            self.problems.count(f"{kind}: episodes dropped", len(episodes))
            self.drop(episodes)
        self.doomed = {}

    def find(self, kind: str, bad: Mask, what: str, remedy: str, *, noun: str = "row") -> str:
        """Record a problem of some rows or cells, and return how to settle it.

        If the study drops their episodes, these are doomed as a whole: if only the bad row went,
        the rows around it would make up a transition.
        """
        policy = self.problems.policy(kind)
        if policy == "refuse":
            self.refuse(kind, bad, what, remedy)
        elif KINDS[kind][policy] == LEAVE_OUT:
            known = self.doomed.get(kind, np.empty(0, np.int64))
            self.doomed[kind] = np.union1d(known, self.episode[bad])
        else:
            self.problems.find(kind, self.row[bad], what, remedy, noun=noun)
        return policy

    def refuse(self, kind: str, bad: Mask, what: str, remedy: str) -> None:
        """Record a problem of some rows that is refused whatever the study says.

        How their episodes end is not judged any more: the bad row could hold the outcome.
        """
        if bad.any():
            self.problems.refuse(kind, self.row[bad], what, remedy)
            self.broken |= set(self.episode[bad].tolist())

    def find_episodes(self, kind: str, episodes: Index, what: str, remedy: str) -> None:
        """Record a problem of those episodes that had no refused row; drop them if asked to."""
        if len(episodes) == 0:
            return
        sound = episodes[~np.isin(episodes, list(self.broken))]
        first = first_rows(self.episode)
        rows = self.row[first][np.isin(self.episode[first], sound)]
        if self.problems.find(kind, rows, what, remedy, noun="episode") == "drop":
            self.drop(sound)

    def group(self, name: str) -> dict[str, Index]:
        """Return the codes of the columns of a group."""
        return {column: codes for (group, column), codes in self.cells.items() if group == name}

    def numbers_of(self, group: str, column: str) -> Floats:
        """Return the numbers of a column, nan where missing, [M]."""
        taken = self.cells[group, column]
        numbers = self.pools[group, column][taken]
        numbers[taken < 0] = np.nan
        return numbers

    def number_codes(self, role: str) -> Index:
        """Return the codes of the cells of a column of numbers."""
        return self.cells["number", self.number_columns[role]]

    def decided(self) -> Mask:
        """Mark the rows that have an action."""
        taken = [codes != MISSING for codes in self.group("action").values()]
        return np.asarray(np.logical_or.reduce(taken))

    def transitions(self) -> tuple[Mask, Index]:
        """Mark the rows that are transitions, and count them by episode."""
        open_end = last_rows(self.episode) & (self.ends[self.episode] < 0)
        kept = self.decided() & ~open_end
        return kept, np.bincount(self.episode[kept], minlength=len(self.ends))

    def values(self, column: str, rows: Mask) -> str:
        """Show the first few different values of a column in these rows."""
        found = dict.fromkeys(repr(self.show(column, row)) for row in self.row[rows][:200].tolist())
        shown = [text if len(text) <= 60 else f"{text[:59]}…" for text in list(found)[:SHOWN]]
        return ", ".join(shown) + (", …" if len(found) > SHOWN else "")

    def arrays(self, state: Index, action: Index, ids: NDArray[Any]) -> dict[str, Any]:
        """Return the arguments of `Episodes.from_arrays`, given states and actions by row, [M].

        Every problem must have been settled.
        """
        kept, lengths = self.transitions()
        last = last_rows(self.episode)
        present = self.episode[last]
        offsets = np.concatenate([[0], np.cumsum(lengths[present])])
        following = np.where(last, -1, np.append(state[1:], -1))
        reward = None
        if "reward" in self.numbers:
            # the reward of a final row belongs to the transition before it
            earned, final = self.numbers["reward"], last & ~self.decided()
            reward = earned[kept]
            reward[offsets[1:][final[last]] - 1] += earned[final]
        return {
            "state": state[kept],
            "action": action[kept],
            "next_state": following[kept],
            "reward": reward,
            "offsets": offsets,
            "outcome": self.ends[present],
            "id": ids[present],
        }


def first_rows(episode: Index) -> Mask:
    """Mark the first row of each episode, among sorted rows."""
    return np.append(True, episode[1:] != episode[:-1])[: len(episode)]


def begins(episode: Index) -> Index:
    """Return the row with which the episode of each row begins, among sorted rows."""
    return np.maximum.accumulate(np.where(first_rows(episode), np.arange(len(episode)), 0))


def last_rows(episode: Index) -> Mask:
    """Mark the last row of each episode, among sorted rows."""
    return np.append(episode[1:] != episode[:-1], True)[: len(episode)]

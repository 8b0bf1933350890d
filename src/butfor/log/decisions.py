"""A table with one row per decision, as codes; problems are settled in it until it is a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.log.coding import MISSING
from butfor.log.problems import KINDS, LEAVE_OUT, SHOWN, Index, LogProblems
from butfor.types import Floats

Mask = NDArray[np.bool_]


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

"""Problems of a log: what kinds there are, where they are, and what is done about each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.log.coding import MISSING, NOT_A_NUMBER, UNKNOWN
from butfor.types import Floats

Mask = NDArray[np.bool_]
Index = NDArray[np.int64]

SHOWN = 5  # how many places and values a message names

# Kind: what may be done about it other than to refuse the log, and what that does.
KINDS: dict[str, dict[str, str]] = {
    "missing_episode": {"drop": "leaves the rows out"},
    "missing_time": {"drop": "leaves these episodes out"},
    "order": {"sort": "sorts each episode by time"},
    "duplicates": {"drop": "keeps the first of each"},
    "gaps": {
        "drop": "leaves these episodes out",
        "fill": "repeats the row before the gap, with reward 0",
    },
    "missing_state": {
        "drop": "leaves these episodes out",
        "fill": "carries the episode's last value forward",
    },
    "missing_action": {
        "drop": "leaves these episodes out",
        "fill": "carries the episode's last value forward",
    },
    "missing_reward": {"fill": "counts them as 0"},
    "lost_reward": {"drop": "leaves these decisions out, and what they earned"},
    "unknown_levels": {
        "drop": "leaves these episodes out",
        "fill": "treats them as missing, and fills",
    },
    "not_numbers": {
        "drop": "leaves these episodes out",
        "fill": "treats them as missing, and fills",
    },
    "after_outcome": {"drop": "leaves the rows after the first outcome out"},
    "differing_outcomes": {"drop": "leaves these episodes out"},
    "no_outcome": {
        "drop": "leaves these episodes out",
        "keep": "keeps them as episodes that the log stops watching",
    },
    "no_transition": {"drop": "leaves these episodes out"},
    "behavior_probability": {"drop": "leaves these episodes out"},
    "beyond_horizon": {"cut": "cuts these episodes there, so that they lose their outcome"},
}
DONE = {"drop": "dropped", "fill": "filled", "sort": "sorted", "keep": "kept", "cut": "cut"}
ONE = {"have": "has", "stand": "stands", "do": "does", "end": "ends", "are": "is"}


@dataclass(frozen=True)
class Problem:
    """One kind of problem in one place of a log."""

    kind: str
    count: int
    rows: tuple[int, ...]  # the first few, counted from 0 as they were given
    text: str  # what is wrong and where, with the remedy


class Problems:
    """What was found in a log, and what was done about it, kind by kind."""

    def __init__(self, policies: Mapping[str, str], places: Callable[[Sequence[int]], str]):
        self.policies = policies
        self.places = places
        self.refused: list[Problem] = []
        self.done: dict[str, int] = {}

    def policy(self, kind: str) -> str:
        """Return what the study says about a kind of problem."""
        return self.policies.get(kind, "refuse")

    def find(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> str:
        """Note a problem of the rows given (as numbered in the source); return what to do.

        If that is "refuse", the caller goes on as well as it can, to find the rest. `noun` says
        what is counted: rows, or episodes by their first row.
        """
        policy = self.policy(kind)
        if len(rows) and policy == "refuse":
            self.refuse(kind, rows, what, remedy, noun=noun)
        elif len(rows):
            self.count(f"{kind}: {noun}s {DONE[policy]}", len(rows))
        return policy

    def refuse(self, kind: str, rows: Index, what: str, remedy: str, *, noun: str = "row") -> None:
        """Note a problem for which the log will be refused, whatever the study says."""
        first = np.sort(rows)[:SHOWN].tolist()
        number = f"{len(rows):,} {noun}s" if len(rows) > 1 else f"1 {noun}"
        verb, _, rest = what.partition(" ")
        what = what if len(rows) > 1 else f"{ONE[verb]} {rest}"
        places = self.places(first) + (", …" if len(rows) > SHOWN else "")
        text = f"{kind}: {number} {what} ({places}). {remedy}{self._choices(kind)}"
        self.refused.append(Problem(kind, len(rows), tuple(first), text))

    def count(self, what: str, number: int) -> None:
        """Add to the record of what was done."""
        if number:
            self.done[what] = self.done.get(what, 0) + int(number)

    def check(self, source: str) -> None:
        """Raise one error that lists everything that was refused, if anything was."""
        if not self.refused:
            return
        number = len(self.refused)
        head = f"{source}: {number} problem{'s' if number > 1 else ''}, so nothing was read"
        raise ValueError("\n".join([head, *(f"- {problem.text}" for problem in self.refused)]))

    def _choices(self, kind: str) -> str:
        choices = [
            f'{kind} = "{policy}" ({meaning})'
            for policy, meaning in KINDS[kind].items()
            if self.policies.get(kind) != policy
        ]
        return f"; or in [problems] of the study: {' or '.join(choices)}" if choices else ""


def out_of_order(episode: Index, time: Floats | None) -> Mask:
    """Mark rows that stand after a later row of their episode.

    Without times, the rows of an episode must stand together: those that follow after rows of
    another episode are marked. Episodes are numbered by their first row.
    """
    if time is None:
        newest = np.maximum.accumulate(episode)
        same = np.append(True, episode[1:] == episode[:-1])
        new = np.append(True, newest[1:] > newest[:-1])
        return ~same & ~new
    order = np.argsort(episode, kind="stable")
    wrong = np.zeros(len(episode), dtype=bool)
    later = (episode[order][1:] == episode[order][:-1]) & (time[order][1:] < time[order][:-1])
    wrong[order[1:][later]] = True
    return wrong


def duplicated(episode: Index, time: Floats) -> Mask:
    """Mark rows with the episode and time of the row before, among sorted rows."""
    same = (episode[1:] == episode[:-1]) & (time[1:] == time[:-1])
    return np.concatenate([[False], same])


def steps_before(episode: Index, time: Floats, step: float) -> Floats:
    """Return by how many time steps each sorted row follows the one before it; 1 for a first."""
    steps = np.ones(len(episode))
    inside = np.flatnonzero(episode[1:] == episode[:-1]) + 1
    steps[inside] = (time[inside] - time[inside - 1]) / step
    return steps


def carried(codes: NDArray[Any], bad: Mask, first: Mask) -> tuple[NDArray[Any], Mask]:
    """Carry the last good value of each episode forward; also return where there was none.

    `first` marks the first row of each episode, among sorted rows.
    """
    row = np.arange(len(codes))
    good = np.maximum.accumulate(np.where(bad, -1, row))
    start = np.maximum.accumulate(np.where(first, row, 0))
    nothing = good < start
    return np.where(bad & ~nothing, codes[np.maximum(good, 0)], codes), bad & nothing


def last_rows(episode: Index) -> Mask:
    """Mark the last row of each episode, among sorted rows."""
    return np.append(episode[1:] != episode[:-1], True)


def first_rows(episode: Index) -> Mask:
    """Mark the first row of each episode, among sorted rows."""
    return np.append(True, episode[1:] != episode[:-1])


@dataclass
class Rows:
    """Rows of a log as codes; problems are found in them and settled one after the other."""

    problems: Problems
    show: Callable[[str, int], str]  # the text of a cell, by column and row of the source
    row: Index  # [M] number in the source; -1: filled in
    episode: Index  # [M] numbered by first row; -1: missing
    time: Floats | None  # [M]
    outcome: Index  # [M]
    cells: dict[tuple[str, str], Index]  # by group (state, action, side) and column, each [M]
    numbers: dict[str, Floats] = field(default_factory=dict)  # reward, probability, each [M]
    ends: Index = field(default_factory=lambda: np.empty(0, np.int64))  # outcome by episode
    broken: set[int] = field(default_factory=set)  # episodes with refused rows, not to judge

    def __len__(self) -> int:
        return len(self.row)

    def take(self, chosen: Mask | Index) -> None:
        """Keep only these rows, in this order."""
        self.row, self.episode = self.row[chosen], self.episode[chosen]
        self.time = None if self.time is None else self.time[chosen]
        self.outcome = self.outcome[chosen]
        self.cells = {key: codes[chosen] for key, codes in self.cells.items()}
        self.numbers = {key: values[chosen] for key, values in self.numbers.items()}

    def drop_episodes(self, dropped: Index) -> None:
        """Leave out these episodes."""
        if len(dropped):
            self.take(~np.isin(self.episode, dropped))

    def drop_episodes_of(self, bad: Mapping[str, Mask]) -> None:
        """Leave out the episodes of bad rows, by kind: without a row the rest would be joined."""
        gone = {kind: np.unique(self.episode[mask]) for kind, mask in bad.items()}
        for kind, episodes in gone.items():
            self.problems.count(f"{kind}: episodes dropped", len(episodes))
        if gone:
            self.drop_episodes(np.unique(np.concatenate(list(gone.values()))))

    def find(self, kind: str, bad: Mask, what: str, remedy: str) -> str:
        """Note a problem of some rows; if it is refused, no more is said of their episodes' ends.

        A row that is wrong could have been the one with the outcome.
        """
        policy = self.problems.find(kind, self.row[bad], what, remedy)
        if policy == "refuse":
            self.broken |= set(np.unique(self.episode[bad]).tolist())
        return policy

    def refuse(self, kind: str, bad: Mask, what: str, remedy: str) -> None:
        """Note a problem of some rows that is refused whatever the study says."""
        self.problems.refuse(kind, self.row[bad], what, remedy)
        self.broken |= set(np.unique(self.episode[bad]).tolist())

    def sound(self, episodes: Index) -> Index:
        """Return those of the episodes that had no refused row."""
        return episodes[~np.isin(episodes, list(self.broken))] if self.broken else episodes

    def group(self, name: str) -> dict[str, Index]:
        """Return the codes of the columns of a group."""
        return {column: codes for (group, column), codes in self.cells.items() if group == name}

    def decided(self) -> Mask:
        """Mark the rows on which something was decided."""
        taken = [codes != MISSING for codes in self.group("action").values()]
        return np.asarray(np.logical_or.reduce(taken))

    def first_row_of(self, episodes: Index) -> Index:
        """Return the number in the source of the first row of each of these episodes."""
        first = first_rows(self.episode)
        return self.row[first][np.isin(self.episode[first], episodes)]


def settle_order(rows: Rows, wrong_time: Mask | None) -> None:
    """Leave rows sorted by episode and time, each time once."""
    problems = rows.problems
    lost = rows.episode < 0
    if lost.any():
        rows.find("missing_episode", lost, "have no episode", "Fill it in")
    dropped: dict[str, Mask] = {}
    if rows.time is not None and wrong_time is not None:
        what = "have a time that is neither a number nor a date such as 2024-05-31 16:00"
        empty = np.isnan(rows.time) & ~wrong_time
        for kind, bad, problem, remedy in (
            ("missing_time", empty & ~lost, "have no time", "Fill it in"),
            ("not_numbers", wrong_time & ~lost, what, "Correct it"),
        ):
            if bad.any() and problems.policy(kind) == "drop":
                dropped[kind] = bad
            elif bad.any():
                rows.refuse(kind, bad, problem, remedy)
        gone = {kind: np.unique(rows.episode[bad]) for kind, bad in dropped.items()}
        rows.take(~(lost | empty | wrong_time))
        for kind, episodes in gone.items():
            problems.count(f"{kind}: episodes dropped", len(episodes))
            rows.drop_episodes(episodes)
    elif lost.any():
        rows.take(~lost)
    late = out_of_order(rows.episode, rows.time)
    if late.any():
        what = (
            "stand after rows of another episode, and there is no time column"
            if rows.time is None
            else "stand after a later row of the same episode"
        )
        problems.find("order", rows.row[late], what, "Sort the log by episode and time")
    if late.any() or (np.diff(rows.episode) < 0).any():
        keys = [rows.episode] if rows.time is None else [rows.time, rows.episode]
        rows.take(np.lexsort(keys))
    if rows.time is not None and len(rows):
        again = duplicated(rows.episode, rows.time)
        if again.any():
            what = "have the episode and time of an earlier row"
            rows.find("duplicates", again, what, "Remove all but one")
            rows.take(~again)


def settle_outcomes(rows: Rows, column: str, remedy: str) -> None:
    """Find the outcome of each episode, and leave no row after it."""
    problems = rows.problems
    unknown = rows.outcome == UNKNOWN
    if unknown.any():
        policy = problems.policy("unknown_levels")
        if policy == "refuse":
            shown = _values(rows, column, unknown)
            what = f"have an outcome that the study does not know: {shown}"
            rows.refuse("unknown_levels", unknown, what, remedy)
        elif policy == "fill":
            problems.count("unknown_levels: cells filled", int(unknown.sum()))
        rows.outcome = np.where(unknown, MISSING, rows.outcome)
        if policy == "drop":
            rows.drop_episodes_of({"unknown_levels": unknown})
    rows.ends = np.full(int(rows.episode.max(initial=-1)) + 1, MISSING)
    if not (rows.outcome >= 0).any():
        return
    start = np.flatnonzero(first_rows(rows.episode))
    number = rows.episode[start]
    has = rows.outcome >= 0
    highest = np.maximum.reduceat(rows.outcome, start)
    lowest = np.minimum.reduceat(np.where(has, rows.outcome, np.iinfo(np.int64).max), start)
    rows.ends[number] = highest
    differ = number[(highest >= 0) & (lowest != highest)]
    if len(rows.sound(differ)):
        problems.find(
            "differing_outcomes",
            rows.first_row_of(rows.sound(differ)),
            "have several different outcomes",
            "Give each episode one outcome, on its last row",
            noun="episode",
        )
    rows.drop_episodes(differ)
    _settle_after(rows)


def _settle_after(rows: Rows) -> None:
    """Leave no row after the first outcome, but for a last one that gives the final state.

    An outcome that stands on every row of an episode tells how it ends, not when.
    """
    if len(rows) == 0:
        return
    first, last = first_rows(rows.episode), last_rows(rows.episode)
    start = np.flatnonzero(first)
    lengths = np.diff(np.append(start, len(rows)))
    has = rows.outcome >= 0
    every = np.add.reduceat(has.astype(np.int64), start) == lengths
    rows.problems.count("outcome on every row: episodes", int((every & (lengths > 1)).sum()))
    before: Index = np.cumsum(has) - has  # outcomes on earlier rows of the log
    seen = before - np.repeat(before[start], lengths) > 0
    after = seen & ~np.repeat(every, lengths) & ~(last & ~rows.decided())
    if after.any():
        what = "stand after the outcome of the episode"
        judged = after & ~np.isin(rows.episode, list(rows.broken))
        rows.find("after_outcome", judged, what, "Put the outcome on the last row")
        rows.take(~after)


def settle_cells(rows: Rows, places: Mapping[tuple[str, str], str]) -> None:
    """Leave no cell of the state or an action without a level; `places` says what would help."""
    if len(rows) == 0:
        return
    problems = rows.problems
    last, first = last_rows(rows.episode), first_rows(rows.episode)
    final = last & ~rows.decided()
    blank = np.logical_and.reduce([codes == MISSING for codes in rows.group("state").values()])
    exempt = {"action": final, "state": final & blank & (rows.ends[rows.episode] >= 0)}
    dropped: dict[str, Mask] = {}
    for (group, column), codes in list(rows.cells.items()):
        fill = np.zeros(len(rows), dtype=bool)
        for code, kind, what in (
            (MISSING, f"missing_{group}", f"have no {column!r}"),
            (UNKNOWN, "unknown_levels", f"have a {column!r} that is not one of its levels"),
            (NOT_A_NUMBER, "not_numbers", f"have a {column!r} that is not a finite number"),
        ):
            bad = codes == code
            if code == MISSING:
                if group not in exempt:  # may be missing, or is looked at later
                    continue
                bad &= ~exempt[group]
            if not bad.any():
                continue
            policy = problems.policy(kind)
            if policy == "refuse":
                text = what if code == MISSING else f"{what}: {_values(rows, column, bad)}"
                rows.refuse(kind, bad, text, places[group, column])
            elif policy == "drop":
                dropped[kind] = dropped.get(kind, np.zeros(len(rows), dtype=bool)) | bad
            else:
                problems.count(f"{kind}: cells filled", int(bad.sum()))
                fill |= bad
        if fill.any():
            rows.cells[group, column] = _fill(rows, group, column, fill, first)
    rows.drop_episodes_of(dropped)


def _fill(rows: Rows, group: str, column: str, fill: Mask, first: Mask) -> Index:
    codes = rows.cells[group, column]
    if group not in ("state", "action"):
        return np.where(fill, MISSING, codes)
    new, nothing = carried(codes, codes < 0, first)
    if (nothing & fill).any():
        what = f"have no {column!r}, and nothing before it in the episode to carry forward"
        remedy = 'Fill it in, or use "drop"'
        rows.refuse(f"missing_{group}", nothing & fill, what, remedy)
    return np.asarray(np.where(fill, new, codes))


def settle_gaps(rows: Rows, step: float) -> None:
    """Leave each row one time step after the one before it."""
    if len(rows) == 0 or rows.time is None:
        return
    problems = rows.problems
    steps = steps_before(rows.episode, rows.time, step)
    whole = np.round(steps)
    gap = (np.abs(steps - 1) > 1e-6) & ~np.isin(rows.episode, list(rows.broken))
    if not gap.any():
        return
    what, remedy = "do not follow one time step after the row before", "Fill the gaps"
    if problems.policy("gaps") != "fill":
        episodes = np.unique(rows.episode[gap])
        if problems.policy("gaps") == "refuse":
            rows.refuse("gaps", gap, what, remedy)
        else:
            problems.count("gaps: episodes dropped", len(episodes))
            rows.drop_episodes(episodes)
        return
    odd = gap & ((np.abs(steps - whole) > 1e-6) | (whole < 1))
    if odd.any() or whole.sum() > 10 * len(rows) + 1000:
        bad = odd if odd.any() else gap
        why = "cannot be filled: not a whole number of steps, or far too many"
        rows.refuse("gaps", bad, f"{what}, and {why}", 'Correct time_step, or use "drop"')
        return
    times = np.append(whole[1:], 1).astype(np.int64)  # how often each row stands there then
    source = np.repeat(np.arange(len(rows)), times)
    added = np.append(False, source[1:] == source[:-1])
    rows.take(source)
    rows.row = np.where(added, -1, rows.row)
    rows.outcome = np.where(added, MISSING, rows.outcome)
    if "reward" in rows.numbers:
        rows.numbers["reward"] = np.where(added, 0.0, rows.numbers["reward"])
    problems.count("gaps: rows filled", int(added.sum()))


def _values(rows: Rows, column: str, bad: Mask) -> str:
    """Show the first few different values of a column at these rows."""
    found = dict.fromkeys(repr(rows.show(column, row)) for row in rows.row[bad][:200].tolist())
    shown = [text if len(text) <= 60 else f"{text[:59]}…" for text in list(found)[:SHOWN]]
    return ", ".join(shown) + (", …" if len(found) > SHOWN else "")

"""What follows from events: tables for quick reading, brought up to date event by event."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from butfor.review.ledger import PROJECTIONS, Event, read_events, scratch
from butfor.review.plan import Settings
from butfor.review.verdicts import RunChangedError, UnknownError

OF_ITEM = "run = ? AND reviewer = ? AND episode = ? AND repeat = ?"
OF_STAY = "run = ? AND episode = ?"


@dataclass(frozen=True)
class Run:
    """An audit under review."""

    id: str
    opened_at: str
    settings: Settings
    current: bool


@dataclass(frozen=True)
class Stay:
    """Where a stay is in the review. Whether it is a control is not for reviewers' eyes."""

    run: str
    episode: str
    control: bool
    steps: int
    state: str  # waiting, in_review, reviewed, disagreement, settled
    verdicts: int  # that hold; those of repeats apart
    final: int | None  # the verdict, once reviewed or settled
    version: int  # of what all reviewers did: for `settle`
    changed_at: str


@dataclass(frozen=True)
class Item:
    """A place in a reviewer's queue and how far the reviewer is with it."""

    run: str
    reviewer: str
    episode: str
    repeat: bool  # there for the second time; not for reviewers' eyes
    place: int  # a number of its own, which tells nothing of the order
    state: str  # waiting, draft, submitted, skipped, withdrawn
    stay_state: str  # as of Stay
    closed: str  # why no verdict is taken here: settling (opened for that), others (differ), or ""
    review: int | None  # the verdict that holds, to be withdrawn
    first_impression: str | None
    version: int  # of what this reviewer did here: for `submit`, `skip`, `withdraw`
    changed_at: str


@dataclass(frozen=True)
class Review:
    """A verdict that was given, also if it was withdrawn later."""

    id: int
    run: str
    reviewer: str
    episode: str
    repeat: bool
    verdict: int
    variable: str
    step: int | None
    sure: str
    comment: str
    seconds: float
    first_impression: str | None
    created_at: str
    withdrawn_at: str | None
    informed: bool  # given after others' verdicts on the stay, or on all stays, were shown


@dataclass(frozen=True)
class Settlement:
    """How a third reviewer settled a disagreement."""

    id: int
    run: str
    episode: str
    reviewer: str
    verdict: int
    reason: str
    created_at: str
    withdrawn_at: str | None


def apply(connection: sqlite3.Connection, event: Event) -> None:
    """Bring the tables that follow from events up to date with one more."""
    said, run, episode = event.payload, event.run, event.episode
    match event.action:
        case "run":
            if said:
                settings = json.dumps(said["settings"])
                connection.execute(
                    "INSERT INTO run VALUES (?, ?, ?, ?)", (run, event.at, settings, event.id)
                )
                connection.executemany(
                    "INSERT INTO stay (run, episode, control, steps) VALUES (?, ?, ?, ?)",
                    [(run, *stay) for stay in said["stays"]],
                )
            connection.execute("UPDATE run SET latest = ? WHERE id = ?", (event.id, run))
        case "join":
            connection.executemany(
                "INSERT INTO place VALUES (?, ?, ?, ?, ?)",
                [(run, event.reviewer, i, *place) for i, place in enumerate(said["order"])],
            )
        case "impression":
            _stand(connection, event, impression=said["answer"])
        case "skip":
            _stand(connection, event, state="skipped")
        case "submit":
            names = ("verdict", "variable", "step", "sure", "comment", "seconds")
            values = [said[name] for name in (*names, "first_impression")]
            place = (event.id, run, event.reviewer, episode, int(said["repeat"]))
            connection.execute(
                f"INSERT INTO review VALUES ({', '.join('?' * 15)})",
                (*place, *values, event.at, None, int(said.get("informed", False))),
            )
            _stand(connection, event, state="submitted", review=event.id)
        case "withdraw":
            connection.execute(
                "UPDATE review SET withdrawn_at = ? WHERE id = ?", (event.at, said["review"])
            )
            _stand(connection, event, state="withdrawn", review=None)
            if said.get("shown", False):
                _note_shown(connection, event, "verdicts")
        case "settling" | "overview":
            _note_shown(connection, event, event.action)
        case "settle":
            row = (event.id, run, episode, event.reviewer, said["verdict"], said["reason"])
            connection.execute(
                "INSERT INTO settlement VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", (*row, event.at)
            )
        case "unsettle":
            connection.execute(
                "UPDATE settlement SET withdrawn_at = ? WHERE id = ?",
                (event.at, said["settlement"]),
            )
    if event.action in ("submit", "withdraw", "settle", "unsettle"):
        connection.execute(
            "UPDATE stay SET version = ?, changed_at = ?, (verdicts, lowest, highest) = ("
            "SELECT COUNT(*), MIN(verdict), MAX(verdict) FROM review WHERE review.run = stay.run "
            "AND review.episode = stay.episode AND NOT repeat AND withdrawn_at IS NULL), "
            "settled = (SELECT verdict FROM settlement s WHERE s.run = stay.run "
            "AND s.episode = stay.episode AND withdrawn_at IS NULL) "
            f"WHERE {OF_STAY}",
            (event.id, event.at, run, episode),
        )


def _stand(connection: sqlite3.Connection, event: Event, **changes: Any) -> None:
    """Change how a reviewer stands with an item."""
    key = (event.run, event.reviewer, event.episode, int(event.payload["repeat"]))
    connection.execute(
        "INSERT OR IGNORE INTO standing (run, reviewer, episode, repeat) VALUES (?, ?, ?, ?)", key
    )
    changes |= {"version": event.id, "changed_at": event.at}
    columns = ", ".join(f"{name} = ?" for name in changes)
    connection.execute(f"UPDATE standing SET {columns} WHERE {OF_ITEM}", (*changes.values(), *key))


def _note_shown(connection: sqlite3.Connection, event: Event, what: str) -> None:
    """Note what of others' verdicts a reviewer was shown."""
    connection.execute(
        "INSERT OR IGNORE INTO shown VALUES (?, ?, ?, ?)",
        (event.run, event.reviewer, event.episode, what),
    )


def find_difference(connection: sqlite3.Connection) -> str:
    """Return which table does not follow from the events, or nothing."""
    other = scratch()
    try:
        for event in read_events(connection):
            apply(other, event)
        for table in PROJECTIONS:
            query = f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4"
            if connection.execute(query).fetchall() != other.execute(query).fetchall():
                return f"the table {table} does not follow from the events; rebuild it"
    finally:
        other.close()
    return ""


def stay_state(
    needed: int,
    claimed: bool,
    verdicts: int,
    lowest: int | None,
    highest: int | None,
    settled: int | None,
) -> tuple[str, int | None]:
    """Return the state that a stay is in, and its verdict once reviewed or settled."""
    if settled is not None:
        return "settled", settled
    if verdicts >= needed:
        return ("reviewed", lowest) if lowest == highest else ("disagreement", None)
    return "in_review" if verdicts or claimed else "waiting", None


def read_run(connection: sqlite3.Connection, run: str) -> Run:
    """Return a run."""
    row = connection.execute("SELECT opened_at, settings FROM run WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise UnknownError(f"there is no run {run!r}")
    return Run(run, row[0], Settings(**json.loads(row[1])), current_run(connection) == run)


def current_run(connection: sqlite3.Connection) -> str:
    """Return the run that was opened last, or nothing."""
    row = connection.execute("SELECT id FROM run ORDER BY latest DESC LIMIT 1").fetchone()
    return row[0] if row else ""


def read_current_run(connection: sqlite3.Connection, run: str) -> Run:
    """Return a run, if it is the one under review."""
    found = read_run(connection, run)
    if not found.current:
        raise RunChangedError(
            "the model, the policy or the data changed since; open the page again",
            current_run(connection),
        )
    return found


def has_joined(connection: sqlite3.Connection, run: str, reviewer: str) -> bool:
    """Tell whether a reviewer has a queue."""
    row = connection.execute(
        "SELECT 1 FROM event WHERE run = ? AND episode = '' AND reviewer = ? AND action = 'join'",
        (run, reviewer),
    ).fetchone()
    return row is not None


def read_reviews(
    connection: sqlite3.Connection, where: str, values: tuple[Any, ...]
) -> list[Review]:
    """Return reviews in the order in which they were given."""
    rows = connection.execute(f"SELECT * FROM review WHERE {where} ORDER BY id", values)
    return [replace(Review(*row), repeat=bool(row[4]), informed=bool(row[-1])) for row in rows]


def was_shown(
    connection: sqlite3.Connection, run: str, reviewer: str, episode: str, what: str | None = None
) -> bool:
    """Tell whether a reviewer was shown what others said of a stay; episode "": of all."""
    given = {"run": run, "reviewer": reviewer, "episode": episode, "what": what}
    where, values = matching(given)
    return connection.execute(f"SELECT 1 FROM shown WHERE {where}", values).fetchone() is not None


def read_settlements(
    connection: sqlite3.Connection, where: str, values: tuple[Any, ...]
) -> list[Settlement]:
    """Return settlements in the order in which they were made."""
    rows = connection.execute(f"SELECT * FROM settlement WHERE {where} ORDER BY id", values)
    return [Settlement(*row) for row in rows]


def matching(given: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return a condition for those columns for which a value is given."""
    known = {column: value for column, value in given.items() if value is not None}
    return " AND ".join(["1", *(f"{name} = ?" for name in known)]), tuple(known.values())

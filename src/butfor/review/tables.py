"""Tables derived from the events for fast reading, updated event by event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from butfor.review.events import (
    PROJECTIONS,
    Event,
    Transaction,
    append_event,
    empty_copy,
    read_events,
)
from butfor.review.plan import ReviewSettings
from butfor.review.verdicts import RunChangedError, UnknownError

OF_ITEM = "run = :run AND reviewer = :reviewer AND episode = :episode AND repeat = :repeat"


@dataclass(frozen=True)
class Run:
    """An audit under review."""

    id: str
    opened_at: str
    settings: ReviewSettings
    current: bool
    outcomes: tuple[str, ...]  # whose chances reviewers are asked for, none last; empty: not asked
    secret: str = field(repr=False)  # what the orders of reviewers follow from; never shown


@dataclass(frozen=True)
class Stay:
    """The state of a stay in the review. Reviewers must not learn whether it is a control."""

    run: str
    episode: str
    control: bool
    steps: int
    state: str  # waiting, in_review, reviewed, disagreement, settled
    verdicts: int  # that were not withdrawn, without those of repeats
    final: int | None  # the verdict, once reviewed or settled
    version: int  # changes with any reviewer's action; for `settle`
    changed_at: str


@dataclass(frozen=True)
class Item:
    """A place in a reviewer's queue and what the reviewer has done with it."""

    run: str
    reviewer: str
    episode: str
    repeat: bool  # the stay comes back; reviewers must not learn this
    place: int  # a number that does not reveal the position
    state: str  # waiting, draft, submitted, skipped, withdrawn
    stay_state: str  # as Stay.state
    closed: str  # why no verdict is accepted: "settling", "others" (see CLOSED), or ""
    review: int | None  # the verdict in force, which can be withdrawn
    first_impression: str | None
    answer: int | None  # the chances that were given
    version: int  # changes with this reviewer's actions; for `submit`, `skip`, `withdraw`
    changed_at: str


@dataclass(frozen=True)
class Review:
    """A verdict, whether or not it was withdrawn later."""

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
    informed: bool  # given after seeing what others said about this stay or about all stays

    @property
    def counts(self) -> bool:
        """Whether it counts toward the stay's state: in force, and not a repeat."""
        return self.withdrawn_at is None and not self.repeat


@dataclass(frozen=True)
class Answer:
    """The chances that a reviewer gave before seeing what the model says; never withdrawn."""

    id: int
    run: str
    reviewer: str
    episode: str
    repeat: bool
    out_of_ten: tuple[int, ...] | None  # by outcome, none last; None: cannot tell
    sure: str
    reason: str
    seconds: float
    created_at: str
    informed: bool  # given after seeing what others said about this stay or about all stays


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


def record(transaction: Transaction, action: str, **fields: Any) -> Event:
    """Append an event and update the tables."""
    event = append_event(transaction, action, **fields)
    apply(transaction, event)
    return event


def apply(transaction: Transaction, event: Event) -> None:
    """Update the derived tables with one event."""
    said = vars(event) | event.payload  # every value by name, for the statements
    match event.action:
        case "run":
            _open_run(transaction, event)
        case "join":
            transaction.connection.executemany(
                "INSERT INTO place VALUES (?, ?, ?, ?, ?)",
                [(event.run, event.reviewer, i, *place) for i, place in enumerate(said["order"])],
            )
        case "impression":
            _update_standing(transaction, said, impression=said["answer"])
        case "answer":
            transaction.execute(
                "INSERT INTO answer VALUES (:id, :run, :reviewer, :episode, :repeat, :numbers, "
                ":sure, :reason, :seconds, :at, :informed)",
                said | {"numbers": json.dumps(said["out_of_ten"])},
            )
            _update_standing(transaction, said, answer=event.id)
        case "skip":
            _update_standing(transaction, said, state="skipped")
        case "submit":
            transaction.execute(
                "INSERT INTO review VALUES (:id, :run, :reviewer, :episode, :repeat, :verdict, "
                ":variable, :step, :sure, :comment, :seconds, :first_impression, :at, NULL, "
                ":informed)",
                {"informed": False} | said,
            )
            _update_standing(transaction, said, state="submitted", review=event.id)
        case "withdraw":
            transaction.execute("UPDATE review SET withdrawn_at = :at WHERE id = :review", said)
            _update_standing(transaction, said, state="withdrawn", review=None)
            if said.get("shown", False):
                _note_shown(transaction, said, "verdicts")
        case "settling" | "overview":
            _note_shown(transaction, said, event.action)
        case "settle":
            transaction.execute(
                "INSERT INTO settlement VALUES (:id, :run, :episode, :reviewer, :verdict, "
                ":reason, :at, NULL)",
                said,
            )
        case "unsettle":
            transaction.execute(
                "UPDATE settlement SET withdrawn_at = :at WHERE id = :settlement", said
            )
    if event.action in ("submit", "withdraw", "settle", "unsettle"):
        _update_stay(transaction, said)


def rebuild(transaction: Transaction) -> None:
    """Recompute all derived tables from the events."""
    for table in PROJECTIONS:
        transaction.execute(f"DELETE FROM {table}")
    for event in list(read_events(transaction)):
        apply(transaction, event)


def find_difference(transaction: Transaction) -> str:
    """Return which table does not follow from the events, or "".

    What exports read is read in the same way: a damaged index can hide rows that are there.
    """
    with empty_copy() as other:
        for event in read_events(transaction):
            apply(other, event)
        for table in PROJECTIONS:
            query = f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4"
            if transaction.execute(query).fetchall() != other.execute(query).fetchall():
                return f"the table {table} does not follow from the events; rebuild it"
        for run in read_run_ids(other):
            for read in (read_reviews, read_answers, read_settlements):
                if read(transaction, run=run) != read(other, run=run):
                    return f"an export of run {run} would not contain what the events say"
    return ""


def _open_run(transaction: Transaction, event: Event) -> None:
    """Make a run the current one; its first event carries the settings and the stays."""
    run, said = event.run, event.payload
    if said:
        settings = json.dumps(said["settings"])
        transaction.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)",
            (
                run,
                event.at,
                settings,
                event.id,
                json.dumps(said.get("outcomes", [])),
                said.get("secret", ""),
            ),
        )
        transaction.connection.executemany(
            "INSERT INTO stay (run, episode, control, steps) VALUES (?, ?, ?, ?)",
            [(run, *stay) for stay in said["stays"]],
        )
    transaction.execute("UPDATE run SET latest = ? WHERE id = ?", (event.id, run))


def _update_stay(transaction: Transaction, said: Mapping[str, Any]) -> None:
    transaction.execute(
        "UPDATE stay SET version = :id, changed_at = :at, (verdicts, lowest, highest) = ("
        "SELECT COUNT(*), MIN(verdict), MAX(verdict) FROM review WHERE review.run = stay.run "
        "AND review.episode = stay.episode AND NOT repeat AND withdrawn_at IS NULL), "
        "settled = (SELECT verdict FROM settlement s WHERE s.run = stay.run "
        "AND s.episode = stay.episode AND withdrawn_at IS NULL) "
        "WHERE run = :run AND episode = :episode",
        said,
    )


def _update_standing(transaction: Transaction, said: dict[str, Any], **changes: Any) -> None:
    transaction.execute(
        "INSERT OR IGNORE INTO standing (run, reviewer, episode, repeat) "
        "VALUES (:run, :reviewer, :episode, :repeat)",
        said,
    )
    changes |= {"version": said["id"], "changed_at": said["at"]}
    columns = ", ".join(f"{name} = :{name}" for name in changes)
    transaction.execute(f"UPDATE standing SET {columns} WHERE {OF_ITEM}", said | changes)


def _note_shown(transaction: Transaction, said: dict[str, Any], what: str) -> None:
    """Note which of the others' verdicts a reviewer was shown."""
    statement = "INSERT OR IGNORE INTO shown VALUES (:run, :reviewer, :episode, :what)"
    transaction.execute(statement, said | {"what": what})


def read_run(transaction: Transaction, run: str) -> Run:
    """Return a run."""
    row = transaction.execute(
        "SELECT opened_at, settings, outcomes, secret FROM run WHERE id = ?", (run,)
    ).fetchone()
    if row is None:
        raise UnknownError(f"there is no run {run!r}")
    return Run(
        id=run,
        opened_at=row[0],
        settings=ReviewSettings(**json.loads(row[1])),
        current=current_run(transaction) == run,
        outcomes=tuple(json.loads(row[2])),
        secret=row[3],
    )


def read_run_ids(transaction: Transaction) -> list[str]:
    """Return the ids of all runs, in the order in which they were first opened."""
    return [name for (name,) in transaction.execute("SELECT id FROM run ORDER BY rowid")]


def current_run(transaction: Transaction) -> str:
    """Return the id of the run opened last, or ""."""
    row = transaction.execute("SELECT id FROM run ORDER BY latest DESC LIMIT 1").fetchone()
    return row[0] if row else ""


def read_current_run(transaction: Transaction, run: str) -> Run:
    """Return a run that must be the one under review."""
    found = read_run(transaction, run)
    if not found.current:
        raise RunChangedError(current_run(transaction))
    return found


def has_joined(transaction: Transaction, run: str, reviewer: str) -> bool:
    """Return whether a reviewer has a queue."""
    return _has_done(transaction, run, reviewer, "join")


def has_coordinated(transaction: Transaction, run: str, name: str) -> bool:
    """Return whether somebody has acted as a coordinator of a run."""
    return _has_done(transaction, run, name, "coordinate")


def _has_done(transaction: Transaction, run: str, name: str, action: str) -> bool:
    row = transaction.execute(
        "SELECT 1 FROM event WHERE run = ? AND episode = '' AND reviewer = ? AND action = ?",
        (run, name, action),
    ).fetchone()
    return row is not None


def known_name(transaction: Transaction, name: str) -> str:
    """Return a name as it was first written: capitals do not make another person."""
    rows = transaction.execute(
        "SELECT reviewer FROM event WHERE action IN ('join', 'coordinate') ORDER BY id"
    )
    same = (other for (other,) in rows.fetchall() if other.casefold() == name.casefold())
    return next(same, name)


def read_joined(transaction: Transaction, run: str) -> list[str]:
    """Return the reviewers of a run, in the order in which they joined."""
    rows = transaction.execute(
        "SELECT reviewer FROM event WHERE run = ? AND episode = '' AND action = 'join' ORDER BY id",
        (run,),
    )
    return [name for (name,) in rows]


def read_pseudonyms(transaction: Transaction) -> dict[str, str]:
    """Return "Reviewer 1", "Reviewer 2" … by name, numbered by who joined any run first.

    Events are only added at the end, so nobody's number ever changes.
    """
    rows = transaction.execute(
        "SELECT reviewer FROM event WHERE run IN (SELECT id FROM run) AND episode = '' "
        "AND action = 'join' ORDER BY id"
    )
    names = dict.fromkeys(name for (name,) in rows)
    return {name: f"Reviewer {number}" for number, name in enumerate(names, start=1)}


def read_reviews(transaction: Transaction, **given: Any) -> list[Review]:
    """Return reviews in the order in which they were given; `given` are values of columns."""
    where, values = matching(given)
    rows = transaction.execute(f"SELECT * FROM review WHERE {where} ORDER BY id", values)
    return [replace(Review(*row), repeat=bool(row[4]), informed=bool(row[-1])) for row in rows]


def read_answers(transaction: Transaction, **given: Any) -> list[Answer]:
    """Return the chances that reviewers gave, in order; `given` are values of columns."""
    where, values = matching(given)
    rows = transaction.execute(f"SELECT * FROM answer WHERE {where} ORDER BY id", values)
    return [
        replace(
            Answer(*row),
            repeat=bool(row[4]),
            out_of_ten=None if row[5] == "null" else tuple(json.loads(row[5])),
            informed=bool(row[-1]),
        )
        for row in rows
    ]


def read_answers_before(transaction: Transaction, reviews: Sequence[int]) -> dict[int, Answer]:
    """Return the chances that were given before verdicts, by the number of the verdict."""
    marks = ", ".join("?" * len(reviews))
    rows = transaction.execute(
        "SELECT r.id, a.id FROM review r JOIN answer a ON a.run = r.run AND a.episode = r.episode "
        f"AND a.reviewer = r.reviewer AND a.repeat = r.repeat WHERE r.id IN ({marks})",
        tuple(reviews),
    ).fetchall()
    return {review: read_answers(transaction, id=answer)[0] for review, answer in rows}


def read_settlements(transaction: Transaction, **given: Any) -> list[Settlement]:
    """Return settlements in the order in which they were made."""
    where, values = matching(given)
    rows = transaction.execute(f"SELECT * FROM settlement WHERE {where} ORDER BY id", values)
    return [Settlement(*row) for row in rows]


def was_shown(
    transaction: Transaction, run: str, reviewer: str, episode: str, what: str | None = None
) -> bool:
    """Return whether a reviewer saw what others said about a stay; episode "": about all."""
    where, values = matching({"run": run, "reviewer": reviewer, "episode": episode, "what": what})
    return transaction.execute(f"SELECT 1 FROM shown WHERE {where}", values).fetchone() is not None


def matching(given: Mapping[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return a condition on those columns whose given value is not None."""
    known = {column: value for column, value in given.items() if value is not None}
    return " AND ".join(["1", *(f"{name} = ?" for name in known)]), tuple(known.values())

"""The reviews of an audit folder: its runs, who reviews them, and all that was recorded."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from butfor.audit.audit import REVIEWS, Audit
from butfor.review import tables
from butfor.review.events import Event, EventFile, Transaction, copied, find_break, read_events
from butfor.review.plan import (
    ReviewSettings,
    asked_outcomes,
    plan_stays,
    reviewer_order,
    reviewer_seed,
    run_id,
)
from butfor.review.queue import is_closed, read_stay, read_stays
from butfor.review.reviewer import Reviewer
from butfor.review.tables import Answer, Review, Run, Settlement, Stay
from butfor.review.verdicts import DamagedError, RefusedError, check_reviewer


@dataclass(frozen=True)
class Verification:
    """Whether the file still contains what was written to it."""

    ok: bool
    events: int
    head: str  # hash of the last event; note it elsewhere and pass it to `verify` later
    broken: int | None  # the first event that is wrong or missing
    problem: str


class Store(AbstractContextManager["Store"]):
    """The reviews of an audit folder, safe to use from many threads and processes.

    When a method returns, what it recorded is on disk; claims and drafts, which are not evidence,
    follow a little later. Methods that write require the current run.
    """

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time):
        self.path = Path(folder) / REVIEWS
        self.file = EventFile(self.path, clock=clock)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_run(self, audit: Audit, settings: ReviewSettings | None = None) -> Run:
        """Make an audit the current run, with its earlier queue or a new one.

        A run keeps the settings with which it was first opened.
        """
        identifier = run_id(audit)
        with self.file.writing() as transaction:
            known = transaction.execute(
                "SELECT settings FROM run WHERE id = ?", (identifier,)
            ).fetchone()
            if known is None:
                chosen, secret = settings or ReviewSettings(), secrets.token_hex(16)
                payload = {
                    "settings": asdict(chosen),
                    "stays": [
                        [s.episode, int(s.control), s.steps]
                        for s in plan_stays(audit, chosen, secret)
                    ],
                    "outcomes": asked_outcomes(audit, chosen),
                    "butfor": str(audit.meta.butfor),
                    "secret": secret,
                }
                tables.record(transaction, "run", run=identifier, payload=payload)
            else:
                kept = ReviewSettings(**json.loads(known[0]))
                if settings not in (None, kept):
                    raise ValueError(
                        f"the run is under review with {kept}, not {settings}; omit the settings"
                    )
                if tables.current_run(transaction) != identifier:
                    tables.record(transaction, "run", run=identifier)
            return tables.read_run(transaction, identifier)

    def run(self, identifier: str) -> Run:
        """Return one run."""
        with self.file.reading() as transaction:
            return tables.read_run(transaction, identifier)

    def runs(self) -> list[Run]:
        """Return all runs, in the order in which they were first opened."""
        with self.file.reading() as transaction:
            return [tables.read_run(transaction, name) for name in tables.read_run_ids(transaction)]

    def stays(self, run: str) -> list[Stay]:
        """Return all stays of a run: the flagged ones by rank, then the controls."""
        with self.file.reading() as transaction:
            return read_stays(transaction, run)

    def stay(self, run: str, episode: str) -> Stay:
        """Return one stay."""
        with self.file.reading() as transaction:
            return read_stay(transaction, run, episode)

    def join(self, run: str, name: str) -> Reviewer:
        """Give a reviewer a queue, if there is none yet.

        A name that differs from a known one only in capitals means the same person.
        """
        given = check_reviewer(name)
        with self.file.writing() as transaction:
            found = tables.read_current_run(transaction, run)
            joined = tables.known_name(transaction, given)
            if tables.has_coordinated(transaction, run, joined):
                raise RefusedError(
                    f"{joined} has coordinated this review and seen what reviewers said, so "
                    f"{joined} cannot review"
                )
            if not tables.has_joined(transaction, run, joined):
                seed = reviewer_seed(found.settings.seed, run, joined, found.secret)
                order = reviewer_order(
                    [stay.episode for stay in read_stays(transaction, run)],
                    seed,
                    repeat_share=found.settings.repeat_share,
                )
                payload = {"seed": seed, "order": [[name, int(again)] for name, again in order]}
                tables.record(transaction, "join", run=run, reviewer=joined, payload=payload)
        return self.reviewer(run, joined)

    def check_coordinator(self, run: str, name: str) -> str:
        """Return the name of somebody who may coordinate a run, as it is known."""
        with self.file.reading() as transaction:
            return _read_coordinator(transaction, run, name)

    def coordinate(self, run: str, name: str) -> str:
        """Record, once, that somebody coordinates a run; that person cannot review it any more."""
        with self.file.writing() as transaction:
            tables.read_current_run(transaction, run)
            known = _read_coordinator(transaction, run, name)
            if not tables.has_coordinated(transaction, run, known):
                tables.record(transaction, "coordinate", run=run, reviewer=known)
        return known

    def reviewer(self, run: str, name: str) -> Reviewer:
        """Return a reviewer who joined; the name must be as `join` returned it."""
        return Reviewer(self.file, run, name)

    def reviews(
        self, run: str, *, reviewer: str | None = None, episode: str | None = None
    ) -> list[Review]:
        """Return all verdicts with their authors, including withdrawn ones and repeats."""
        with self.file.reading() as transaction:
            tables.read_run(transaction, run)
            return tables.read_reviews(transaction, run=run, reviewer=reviewer, episode=episode)

    def answers(self, run: str) -> list[Answer]:
        """Return all chances that reviewers gave, with their authors, including repeats."""
        with self.file.reading() as transaction:
            tables.read_run(transaction, run)
            return tables.read_answers(transaction, run=run)

    def pseudonyms(self) -> dict[str, str]:
        """Return what each reviewer of any run is called where names are hidden."""
        with self.file.reading() as transaction:
            return tables.read_pseudonyms(transaction)

    def closed(self, run: str) -> bool:
        """Return whether every stay of a run is reviewed or settled."""
        with self.file.reading() as transaction:
            return is_closed(transaction, run)

    def settlements(self, run: str, *, episode: str | None = None) -> list[Settlement]:
        """Return how disagreements were settled, including what was withdrawn."""
        with self.file.reading() as transaction:
            return tables.read_settlements(transaction, run=run, episode=episode)

    def events(
        self, *, run: str | None = None, reviewer: str | None = None, episode: str | None = None
    ) -> list[Event]:
        """Return events in order; those of the actions run and join reveal the controls."""
        where, values = tables.matching({"run": run, "reviewer": reviewer, "episode": episode})
        with self.file.reading() as transaction:
            return list(read_events(transaction, where, values))

    def last_event(self) -> int:
        """Return the number of the last event; nothing has changed while it stays the same."""
        with self.file.reading() as transaction:
            return int(transaction.execute("SELECT id FROM head").fetchone()[0])

    def head(self) -> str:
        """Return the hash of the last event, to be noted elsewhere."""
        with self.file.reading() as transaction:
            return str(transaction.execute("SELECT hash FROM head").fetchone()[0])

    def verify(self, head: str | None = None) -> Verification:
        """Recompute the chain and the tables; `head`, if given, must be a hash in the chain."""
        with self.file.reading() as transaction:
            return _verify(transaction, head)

    def rebuild(self) -> None:
        """Recompute everything that follows from the events; drafts stay as they are."""
        with self.file.writing() as transaction:
            tables.rebuild(transaction)


def verify_folder(folder: str | Path, head: str | None = None) -> Verification:
    """Verify the reviews of an audit folder without writing to it."""
    path = Path(folder) / REVIEWS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no reviews: there is no {REVIEWS}")
    try:
        with copied(path) as transaction:
            return _verify(transaction, head)
    except DamagedError as damage:
        return Verification(ok=False, events=0, head="", broken=None, problem=str(damage))


def _read_coordinator(transaction: Transaction, run: str, name: str) -> str:
    known = tables.known_name(transaction, check_reviewer(name))
    if tables.has_joined(transaction, run, known):
        raise RefusedError(
            f"{known} has joined this review as a reviewer; somebody else must coordinate it"
        )
    return known


def _verify(transaction: Transaction, head: str | None) -> Verification:
    broken, problem = find_break(transaction, head)
    count = transaction.execute("SELECT COUNT(*) FROM event").fetchone()[0]
    row: Any = transaction.execute("SELECT hash FROM head").fetchone()
    if broken is None:
        problem = tables.find_difference(transaction)
    return Verification(
        ok=not problem, events=count, head=row[0] if row else "", broken=broken, problem=problem
    )

"""The reviews of an audit folder: its runs, who reviews them, and all that was recorded."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path

from butfor.audit.audit import REVIEWS, Audit
from butfor.review.events import (
    EventFile,
    Transaction,
    Verification,
    copied,
    record,
    verify_file,
)
from butfor.review.plan import (
    ReviewSettings,
    asked_outcomes,
    plan_stays,
    reviewer_order,
    reviewer_seed,
    run_id,
)
from butfor.review.queue import Stay, look
from butfor.review.reviewer import Reviewer
from butfor.review.state import Answer, Event, Review, Run, Settlement
from butfor.review.verdicts import RefusedError, check_reviewer


class Store(AbstractContextManager["Store"]):
    """The reviews of an audit folder, safe to use from many threads and processes.

    Opening it verifies the chain of events, from which all that is read follows.
    When a method returns, what it recorded is on disk; claims and drafts, which are not evidence,
    follow a little later. Methods that write require the current run.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        shown: Path | None = None,
    ):
        self.path = shown or Path(folder) / REVIEWS  # as messages name it
        self.file = EventFile(Path(folder) / REVIEWS, clock=clock, shown=shown)

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
            state = transaction.state
            if identifier not in state.runs:
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
                record(transaction, "run", run=identifier, payload=payload)
            kept = state.run(identifier).run
            if settings not in (None, kept.settings):
                raise ValueError(
                    f"the run is under review with {kept.settings}, not {settings}; omit the "
                    "settings"
                )
            if not kept.current:
                record(transaction, "run", run=identifier)
            return state.run(identifier).run

    def run(self, identifier: str) -> Run:
        """Return one run."""
        with self.file.reading() as transaction:
            return transaction.state.run(identifier).run

    def runs(self) -> list[Run]:
        """Return all runs, in the order in which they were first opened."""
        with self.file.reading() as transaction:
            return [one.run for one in transaction.state.runs.values()]

    def stays(self, run: str) -> list[Stay]:
        """Return all stays of a run: the flagged ones by rank, then the controls."""
        with self.file.reading() as transaction:
            return look(transaction, run).stays()

    def stay(self, run: str, episode: str) -> Stay:
        """Return one stay."""
        with self.file.reading() as transaction:
            return look(transaction, run).stay(episode)

    def join(self, run: str, name: str) -> Reviewer:
        """Give a reviewer a queue, if there is none yet.

        A name that differs from a known one only in capitals means the same person.
        """
        given = check_reviewer(name)
        with self.file.writing() as transaction:
            found = transaction.state.run(run, current=True)
            joined = transaction.state.known_name(given)
            if joined in found.coordinators:
                raise RefusedError(
                    f"{joined} has coordinated this review and seen what reviewers said, so "
                    f"{joined} cannot review"
                )
            if joined not in found.queues:
                chosen = found.run.settings
                seed = reviewer_seed(chosen.seed, run, joined, found.run.secret)
                order = reviewer_order(list(found.stays), seed, repeat_share=chosen.repeat_share)
                payload = {"seed": seed, "order": [[name, int(again)] for name, again in order]}
                record(transaction, "join", run=run, reviewer=joined, payload=payload)
        return self.reviewer(run, joined)

    def check_coordinator(self, run: str, name: str) -> str:
        """Return the name of somebody who may coordinate a run, as it is known."""
        with self.file.reading() as transaction:
            return _read_coordinator(transaction, run, name)

    def coordinate(self, run: str, name: str) -> str:
        """Record, once, that somebody coordinates a run; that person cannot review it any more."""
        with self.file.writing() as transaction:
            found = transaction.state.run(run, current=True)
            known = _read_coordinator(transaction, run, name)
            if known not in found.coordinators:
                record(transaction, "coordinate", run=run, reviewer=known)
        return known

    def reviewer(self, run: str, name: str) -> Reviewer:
        """Return a reviewer who joined; the name must be as `join` returned it."""
        return Reviewer(self.file, run, name)

    def reviews(
        self, run: str, *, reviewer: str | None = None, episode: str | None = None
    ) -> list[Review]:
        """Return all verdicts with their authors, including withdrawn ones and repeats."""
        with self.file.reading() as transaction:
            found = transaction.state.run(run)
            given = found.reviews.values() if episode is None else found.reviews_of(episode)
            return [review for review in given if reviewer in (None, review.reviewer)]

    def answers(self, run: str) -> list[Answer]:
        """Return all chances that reviewers gave, with their authors, including repeats."""
        with self.file.reading() as transaction:
            return list(transaction.state.run(run).answers.values())

    def pseudonyms(self) -> dict[str, str]:
        """Return what each reviewer of any run is called where names are hidden."""
        with self.file.reading() as transaction:
            return dict(transaction.state.pseudonyms)

    def closed(self, run: str) -> bool:
        """Return whether every stay of a run is reviewed or settled."""
        with self.file.reading() as transaction:
            return look(transaction, run).is_closed()

    def settlements(self, run: str, *, episode: str | None = None) -> list[Settlement]:
        """Return how disagreements were settled, including what was withdrawn."""
        with self.file.reading() as transaction:
            found = transaction.state.run(run).settlements.values()
            return [one for one in found if episode in (None, one.episode)]

    def events(
        self, *, run: str | None = None, reviewer: str | None = None, episode: str | None = None
    ) -> list[Event]:
        """Return events in order; those of the actions run and join reveal the controls."""
        with self.file.reading() as transaction:
            return [
                event
                for event in transaction.state.events
                if run in (None, event.run)
                and reviewer in (None, event.reviewer)
                and episode in (None, event.episode)
            ]

    def last_event(self) -> int:
        """Return the number of the last event; nothing has changed while it stays the same."""
        with self.file.reading() as transaction:
            return len(transaction.state.events)

    def verify(self, head: str | None = None) -> Verification:
        """Recompute the chain as it is on the disk; `head`, if given, must be a hash in it."""
        return verify_file(self.path, head)


@contextmanager
def open_copy(path: Path) -> Iterator[Store]:
    """Open a copy of a file of reviews, which stays as it is: others may be using it."""
    with copied(path) as copy, Store(copy.parent, shown=path) as store:
        yield store


def verify_folder(folder: str | Path, head: str | None = None) -> Verification:
    """Verify the reviews of an audit folder without writing to it."""
    return verify_file(find_reviews(folder), head)


def find_reviews(folder: str | Path) -> Path:
    """Return the file of reviews of an audit folder, which must be there."""
    path = Path(folder) / REVIEWS
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no reviews: there is no {REVIEWS}")
    return path


def _read_coordinator(transaction: Transaction, run: str, name: str) -> str:
    state = transaction.state
    known = state.known_name(check_reviewer(name))
    if known in state.run(run).queues:
        raise RefusedError(
            f"{known} has joined this review as a reviewer; somebody else must coordinate it"
        )
    return known

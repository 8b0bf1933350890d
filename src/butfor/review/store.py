"""The review: runs, reviewers, their queues and verdicts, as they follow from events."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from butfor.audit.audit import REVIEWS, Audit
from butfor.review.ledger import (
    PROJECTIONS,
    Event,
    Ledger,
    copied,
    find_break,
    read_events,
)
from butfor.review.plan import Settings, plan_stays, reviewer_order, reviewer_seed, run_id
from butfor.review.projection import (
    OF_ITEM,
    OF_STAY,
    Item,
    Review,
    Run,
    Settlement,
    Stay,
    apply,
    current_run,
    find_difference,
    has_joined,
    matching,
    read_current_run,
    read_reviews,
    read_run,
    read_settlements,
    was_shown,
)
from butfor.review.queue import (
    Progress,
    Work,
    read_item,
    read_places,
    read_stay,
    read_stays,
    read_work,
)
from butfor.review.verdicts import (
    LONGEST_DRAFT,
    FieldError,
    RefusedError,
    StaleError,
    UnknownError,
    Verdict,
    check_reviewer,
    check_seconds,
    check_text,
    check_verdict,
)

CLOSED = {
    "settling": "you opened this to settle it and saw what others said: no verdict of yours counts",
    "others": "others read this meanwhile and their verdicts are in: no further one is taken",
}
FRESH_SECONDS = 60.0  # after which a claim is written again


@dataclass(frozen=True)
class Verification:
    """Whether the file still says what was written to it."""

    ok: bool
    events: int
    head: str  # hash of the last event: note it elsewhere, and give it to `verify` later
    broken: int | None  # the first event that is wrong or missing
    problem: str


class Store:
    """The reviews of an audit folder, safe to use from many threads and processes.

    What is acknowledged by returning is on the disk; claims and drafts, which are no evidence, are
    so a little later. Methods that write want the current run.
    """

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = time.time):
        self.path = Path(folder) / REVIEWS
        self._clock = clock
        self._ledger = Ledger(self.path, clock=clock)

    def close(self) -> None:
        """Close the file."""
        self._ledger.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --------------------------------------------------------------------------------------- runs

    def open_run(self, audit: Audit, settings: Settings | None = None) -> Run:
        """Make an audit the current run, with the queue it had or a new one.

        A run keeps the settings that it was opened with first.
        """
        identifier = run_id(audit)
        with self._ledger.writing() as connection:
            known = connection.execute(
                "SELECT settings FROM run WHERE id = ?", (identifier,)
            ).fetchone()
            if known is None:
                chosen = settings or Settings()
                stays = [
                    [stay.episode, int(stay.control), stay.steps]
                    for stay in plan_stays(audit, chosen)
                ]
                payload = {"settings": asdict(chosen), "stays": stays, "butfor": _version(audit)}
                self._do(connection, "run", run=identifier, payload=payload)
            else:
                kept = Settings(**json.loads(known[0]))
                if settings not in (None, kept):
                    raise ValueError(f"the run is under review with {kept}, not {settings}")
                if current_run(connection) != identifier:
                    self._do(connection, "run", run=identifier)
            return read_run(connection, identifier)

    def runs(self) -> list[Run]:
        """Return all runs, in the order in which they were opened first."""
        with self._ledger.reading() as connection:
            rows = connection.execute("SELECT id FROM run ORDER BY rowid").fetchall()
            return [read_run(connection, row[0]) for row in rows]

    def stays(self, run: str) -> list[Stay]:
        """Return all stays of a run: the flagged ones by rank, then the controls."""
        with self._ledger.reading() as connection:
            return read_stays(connection, self._clock(), run)

    def stay(self, run: str, episode: str) -> Stay:
        """Return one stay."""
        with self._ledger.reading() as connection:
            return read_stay(connection, self._clock(), run, episode)

    # --------------------------------------------------------------------------- reviewers, queues

    def join(self, run: str, reviewer: str) -> str:
        """Give a reviewer a queue, if there is none yet; return the name as it is kept.

        A name that differs only by capitals from one that is there is that person's.
        """
        given = check_reviewer(reviewer)
        with self._ledger.writing() as connection:
            settings = read_current_run(connection, run).settings
            known = connection.execute(
                "SELECT reviewer FROM event WHERE action = 'join' ORDER BY id"
            ).fetchall()
            same = (name for (name,) in known if name.casefold() == given.casefold())
            name = next(same, given)
            if not has_joined(connection, run, name):
                episodes = [stay.episode for stay in read_stays(connection, self._clock(), run)]
                seed = reviewer_seed(settings.seed, run, name)
                order = reviewer_order(episodes, seed, repeat_share=settings.repeat_share)
                payload = {
                    "seed": seed,
                    "order": [[episode, int(again)] for episode, again in order],
                }
                self._do(connection, "join", run=run, reviewer=name, payload=payload)
        return name

    def reviewers(self, run: str) -> list[str]:
        """Return who joined."""
        with self._ledger.reading() as connection:
            read_run(connection, run)
            joined = read_events(connection, "run = ? AND action = 'join'", (run,))
            return [event.reviewer for event in joined]

    def work(self, run: str, reviewer: str) -> Work:
        """Return a reviewer's queue, what is next in it, and how far the reviewer is."""
        with self._ledger.reading() as connection:
            return read_work(connection, self._clock(), run, reviewer)

    def queue(self, run: str, reviewer: str) -> list[Item]:
        """Return a reviewer's queue in its order; a repeat once it is its turn, or later."""
        return self.work(run, reviewer).items

    def next_item(self, run: str, reviewer: str) -> Item | None:
        """Return what to read next: no stay that others finished, claimed ones last."""
        return self.work(run, reviewer).following

    def progress(self, run: str, reviewer: str) -> Progress:
        """Return how far a reviewer is."""
        return self.work(run, reviewer).progress

    def item(self, run: str, reviewer: str, episode: str, *, repeat: bool = False) -> Item:
        """Return one place of a reviewer's queue."""
        with self._ledger.reading() as connection:
            return read_item(connection, self._clock(), run, reviewer, episode, repeat)

    def item_at(self, run: str, reviewer: str, episode: str, place: int | None) -> Item:
        """Return a stay's place in a reviewer's queue by its number; without one, the first."""
        with self._ledger.reading() as connection:
            for item in read_places(connection, self._clock(), run, reviewer, episode):
                if place == item.place or (place is None and not item.repeat):
                    return item
        raise UnknownError("this is not in your queue")

    # ---------------------------------------------------------------------------------- one's work

    def claim(self, run: str, reviewer: str, episode: str) -> None:
        """Note that a reviewer opened a stay; for a while others are offered another one."""
        with self._ledger.reading() as connection:
            held = connection.execute(
                "SELECT 1 FROM claim WHERE run = ? AND episode = ? AND reviewer = ? AND at > ?",
                (run, episode, reviewer, self._clock() - FRESH_SECONDS),
            ).fetchone()
        if held:
            return
        with self._ledger.writing(durable=False) as connection:
            read_current_run(connection, run)
            read_item(connection, self._clock(), run, reviewer, episode, False)
            self._claim(connection, run, reviewer, episode)

    def save_draft(
        self,
        run: str,
        reviewer: str,
        episode: str,
        content: Mapping[str, Any],
        *,
        repeat: bool = False,
    ) -> bool:
        """Keep an unfinished form, instead of the one before; False if no verdict is taken."""
        text = json.dumps(dict(content))
        if len(text) > LONGEST_DRAFT:
            raise FieldError("draft", f"{len(text):,} characters; at most {LONGEST_DRAFT:,}")
        with self._ledger.writing(durable=False) as connection:
            read_current_run(connection, run)
            item = read_item(connection, self._clock(), run, reviewer, episode, repeat)
            if item.state == "submitted" or item.closed:
                return False
            connection.execute(
                "INSERT OR REPLACE INTO draft VALUES (?, ?, ?, ?, ?, ?)",
                (run, reviewer, episode, int(repeat), text, self._clock()),
            )
            self._claim(connection, run, reviewer, episode)
        return True

    def draft(
        self, run: str, reviewer: str, episode: str, *, repeat: bool = False
    ) -> dict[str, Any] | None:
        """Return the form that was last kept, if any."""
        with self._ledger.reading() as connection:
            row = connection.execute(
                f"SELECT content FROM draft WHERE {OF_ITEM}", (run, reviewer, episode, int(repeat))
            ).fetchone()
            return None if row is None else json.loads(row[0])

    def give_impression(
        self, run: str, reviewer: str, episode: str, answer: str, *, repeat: bool = False
    ) -> Item:
        """Keep what a reviewer thinks before seeing the model; it cannot be given twice."""
        check_text(answer, "first_impression", required=True)
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            item = read_item(connection, self._clock(), run, reviewer, episode, repeat)
            if item.first_impression is not None:
                raise StaleError(f"episode {episode}: you gave a first impression", item.version)
            _check_open(item)
            payload = {"repeat": repeat, "answer": answer}
            return self._done(connection, "impression", item, payload)

    def submit(
        self,
        run: str,
        reviewer: str,
        episode: str,
        verdict: Verdict,
        *,
        repeat: bool = False,
        seconds: float = 0.0,
        expected_version: int | None = None,
    ) -> Item:
        """Give a verdict. To give another one, withdraw it first."""
        taken = check_seconds(seconds)
        with self._ledger.writing() as connection:
            settings = read_current_run(connection, run).settings
            item = read_item(connection, self._clock(), run, reviewer, episode, repeat)
            _check_version(item, expected_version)
            if item.state == "submitted":
                raise StaleError(f"episode {episode}: your verdict is in already", item.version)
            _check_open(item)
            if settings.first_impression and item.first_impression is None:
                raise FieldError("first_impression", "give it before the verdict")
            steps = read_stay(connection, self._clock(), run, episode).steps
            if verdict.step is not None and verdict.step > steps:
                raise FieldError("step", f"{verdict.step} is after the last one, {steps}")
            payload = {
                **asdict(verdict),
                "repeat": repeat,
                "seconds": taken,
                "first_impression": item.first_impression,
                "informed": was_shown(connection, run, reviewer, episode)
                or was_shown(connection, run, reviewer, ""),
            }
            connection.execute(f"DELETE FROM draft WHERE {OF_ITEM}", _key(item))
            return self._done(connection, "submit", item, payload, finished=True)

    def skip(
        self,
        run: str,
        reviewer: str,
        episode: str,
        *,
        repeat: bool = False,
        expected_version: int | None = None,
    ) -> Item:
        """Leave a stay out; it can still be given a verdict later, and what was written stays."""
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            item = read_item(connection, self._clock(), run, reviewer, episode, repeat)
            _check_version(item, expected_version)
            if item.state == "submitted":
                raise StaleError(f"episode {episode}: your verdict is in already", item.version)
            connection.execute(f"UPDATE draft SET at = 0 WHERE {OF_ITEM}", _key(item))  # put aside
            return self._done(connection, "skip", item, {"repeat": repeat}, finished=True)

    def withdraw(
        self, run: str, reviewer: str, review: int, *, expected_version: int | None = None
    ) -> Item:
        """Take one's own verdict back, as long as the stay is not settled."""
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            found = read_reviews(connection, "id = ? AND run = ?", (review, run))
            if not found:
                raise UnknownError(f"there is no review {review}")
            if found[0].reviewer != reviewer:
                raise RefusedError(f"review {review} is somebody else's")
            item = read_item(
                connection, self._clock(), run, reviewer, found[0].episode, found[0].repeat
            )
            _check_version(item, expected_version)
            if found[0].withdrawn_at is not None:
                raise StaleError(f"review {review} was withdrawn already", item.version)
            if item.stay_state == "settled" and not item.repeat:
                raise RefusedError(f"episode {item.episode} is settled: its verdicts stay")
            others = read_reviews(
                connection,
                f"{OF_STAY} AND reviewer != ? AND NOT repeat "
                "AND (withdrawn_at IS NULL OR withdrawn_at >= ?)",
                (run, item.episode, reviewer, found[0].created_at),
            )
            shown = bool(others) and not item.repeat  # beside one's own, while it was in
            payload = {"repeat": item.repeat, "review": review, "shown": shown}
            return self._done(connection, "withdraw", item, payload)

    def settle(
        self,
        run: str,
        reviewer: str,
        episode: str,
        verdict: int,
        reason: str,
        *,
        expected_version: int | None = None,
    ) -> Stay:
        """Settle a disagreement, as somebody who gave no verdict on the stay."""
        name = check_reviewer(reviewer)
        payload = {
            "verdict": check_verdict(verdict),
            "reason": check_text(reason, "reason", required=True),
        }
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            stay = read_stay(connection, self._clock(), run, episode)
            _check_version(stay, expected_version)
            if stay.state != "disagreement":
                raise StaleError(
                    f"episode {episode} is {stay.state}: nothing to settle", stay.version
                )
            if _gave_verdict(connection, run, episode, name):
                raise RefusedError("you gave a verdict on this; somebody else must settle")
            self._do(connection, "settle", run=run, reviewer=name, episode=episode, payload=payload)
            return read_stay(connection, self._clock(), run, episode)

    def unsettle(
        self, run: str, reviewer: str, episode: str, *, expected_version: int | None = None
    ) -> Stay:
        """Take one's own settlement back."""
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            stay = read_stay(connection, self._clock(), run, episode)
            _check_version(stay, expected_version)
            held = read_settlements(
                connection, f"{OF_STAY} AND withdrawn_at IS NULL", (run, episode)
            )
            if not held:
                raise StaleError(f"episode {episode} is {stay.state}, not settled", stay.version)
            if held[0].reviewer != reviewer:
                raise RefusedError("somebody else settled this")
            payload = {"settlement": held[0].id}
            self._do(
                connection, "unsettle", run=run, reviewer=reviewer, episode=episode, payload=payload
            )
            return read_stay(connection, self._clock(), run, episode)

    # ------------------------------------------------------------------------------------- reading

    def reviews(
        self, run: str, *, reviewer: str | None = None, episode: str | None = None
    ) -> list[Review]:
        """Return all verdicts, also withdrawn ones and those of repeats: not for reviewers."""
        with self._ledger.reading() as connection:
            read_run(connection, run)
            given = {"run": run, "reviewer": reviewer, "episode": episode}
            return read_reviews(connection, *matching(given))

    def reviews_for(self, run: str, reader: str) -> list[Review]:
        """Return all verdicts to one of the reviewers: who gave them only where it is settled."""
        with self._ledger.reading() as connection:
            stays = read_stays(connection, self._clock(), run)
            found = read_reviews(connection, "run = ?", (run,))
        settled = {stay.episode for stay in stays if stay.state == "settled"}
        of_stay: dict[str, list[Review]] = {}
        for review in found:
            of_stay.setdefault(review.episode, []).append(review)
        told = [
            review
            for name, given in of_stay.items()
            for review in (given if name in settled else _masked(given, reader))
        ]
        return sorted(told, key=lambda review: review.id)

    def settlements(self, run: str) -> list[Settlement]:
        """Return how disagreements were settled, also what was taken back."""
        with self._ledger.reading() as connection:
            return read_settlements(connection, "run = ?", (run,))

    def opinions(self, run: str, reviewer: str, episode: str) -> list[Review]:
        """Return the verdicts on a stay that this reviewer may see.

        One's own; those of others only after one's own. Others are called "Reviewer 1",
        "Reviewer 2" … until the stay is settled.
        """
        with self._ledger.reading() as connection:
            stay = read_stay(connection, self._clock(), run, episode)
            held = _read_held(connection, run, episode)
        if all(review.reviewer != reviewer for review in held):
            return []
        return held if stay.state == "settled" else _masked(held, reviewer)

    def to_settle(self, run: str, reviewer: str) -> list[str]:
        """Return what this reviewer may settle, by name: any other order could tell controls."""
        with self._ledger.reading() as connection:
            stays = read_stays(connection, self._clock(), run)
            mine = read_reviews(connection, "run = ? AND reviewer = ?", (run, reviewer))
        known = {review.episode for review in mine}
        return sorted(
            stay.episode
            for stay in stays
            if stay.state == "disagreement" and stay.episode not in known
        )

    def open_disagreement(self, run: str, reviewer: str, episode: str) -> list[Review]:
        """Return the verdicts that differ, to settle them or to see how they were settled.

        Whoever has no verdict of one's own in can give none any more: that is an event.
        """
        with self._ledger.reading() as connection:
            stay = read_stay(connection, self._clock(), run, episode)
            held = _read_held(connection, run, episode)
            gave = _gave_verdict(connection, run, episode, reviewer)
            known = was_shown(connection, run, reviewer, episode, "settling")
        if stay.state not in ("disagreement", "settled"):
            raise RefusedError("reviewers do not differ about this")
        if all(review.reviewer != reviewer for review in held):
            if gave and stay.state == "disagreement":
                raise RefusedError("you took your verdict back; somebody else settles this")
            if not known:
                self._note_shown(run, reviewer, "settling", episode)
        return held if stay.state == "settled" else _masked(held, reviewer)

    def open_overview(self, run: str, reviewer: str) -> None:
        """Note, once, that a reviewer is shown numbers about all stays."""
        with self._ledger.reading() as connection:
            known = was_shown(connection, run, reviewer, "")
            current = read_run(connection, run).current
        if current and not known:
            self._note_shown(run, reviewer, "overview")

    def earlier_opinions(self, run: str, reviewer: str, episode: str) -> list[Review]:
        """Return verdicts about the stay in other runs, of others only after one's own here."""
        with self._ledger.reading() as connection:
            read_stay(connection, self._clock(), run, episode)
            mine = read_reviews(
                connection,
                f"{OF_STAY} AND NOT repeat AND withdrawn_at IS NULL AND reviewer = ?",
                (run, episode, reviewer),
            )
            others = read_reviews(
                connection,
                "run IN (SELECT id FROM run WHERE id != ?) AND episode = ? "
                "AND NOT repeat AND withdrawn_at IS NULL",
                (run, episode),
            )
        seen = others if mine else [review for review in others if review.reviewer == reviewer]
        return _masked(seen, reviewer)

    def events(
        self,
        *,
        run: str | None = None,
        reviewer: str | None = None,
        episode: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[Event]:
        """Return events in order; those of actions run and join tell the controls."""
        where, values = matching({"run": run, "reviewer": reviewer, "episode": episode})
        with self._ledger.reading() as connection:
            found = read_events(connection, f"{where} AND id > ?", (*values, after))
            return [event for _, event in zip(range(limit or 2**62), found, strict=False)]

    def last_event(self) -> int:
        """Return the number of the last event: what was read before it is still so."""
        with self._ledger.reading() as connection:
            return int(connection.execute("SELECT id FROM head").fetchone()[0])

    # ----------------------------------------------------------------------------------- integrity

    def verify(self, head: str | None = None) -> Verification:
        """Compute the chain anew, and what follows from it; `head` must be a hash in the chain."""
        with self._ledger.reading() as connection:
            return _verify(connection, head)

    def rebuild(self) -> None:
        """Make all that follows from events anew; drafts stay as they are."""
        with self._ledger.writing() as connection:
            for table in PROJECTIONS:
                connection.execute(f"DELETE FROM {table}")
            for event in list(read_events(connection)):
                apply(connection, event)

    # ----------------------------------------------------------------- inside of one transaction

    def _do(self, connection: sqlite3.Connection, action: str, **fields: Any) -> Event:
        event = self._ledger.append(connection, action, **fields)
        apply(connection, event)
        return event

    def _note_shown(self, run: str, reviewer: str, what: str, episode: str = "") -> None:
        with self._ledger.writing() as connection:
            read_current_run(connection, run)
            if not was_shown(connection, run, reviewer, episode, what):
                self._do(connection, what, run=run, reviewer=reviewer, episode=episode)

    def _done(
        self,
        connection: sqlite3.Connection,
        action: str,
        item: Item,
        payload: dict[str, Any],
        *,
        finished: bool = False,
    ) -> Item:
        """Append what a reviewer did with an item; once finished, its claim goes."""
        place = {"run": item.run, "reviewer": item.reviewer, "episode": item.episode}
        self._do(connection, action, **place, payload=payload)
        if finished:
            connection.execute(
                "DELETE FROM claim WHERE run = ? AND reviewer = ? AND episode = ?",
                (item.run, item.reviewer, item.episode),
            )
        return read_item(
            connection, self._clock(), item.run, item.reviewer, item.episode, item.repeat
        )

    def _claim(self, connection: sqlite3.Connection, run: str, reviewer: str, episode: str) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?)",
            (run, episode, reviewer, self._clock()),
        )


def verify_folder(folder: str | Path, head: str | None = None) -> Verification:
    """Verify the reviews of an audit folder, of which nothing is written."""
    with copied(Path(folder) / REVIEWS) as connection:
        return _verify(connection, head)


def _verify(connection: sqlite3.Connection, head: str | None) -> Verification:
    broken, problem = find_break(connection, head)
    count = connection.execute("SELECT COUNT(*) FROM event").fetchone()[0]
    row = connection.execute("SELECT hash FROM head").fetchone()
    if broken is None:
        problem = find_difference(connection)
    return Verification(
        ok=not problem, events=count, head=row[0] if row else "", broken=broken, problem=problem
    )


def _masked(reviews: list[Review], reviewer: str) -> list[Review]:
    names = {
        name: f"Reviewer {i}"
        for i, name in enumerate(dict.fromkeys(review.reviewer for review in reviews), start=1)
    }
    return [
        review if review.reviewer == reviewer else replace(review, reviewer=names[review.reviewer])
        for review in reviews
    ]


def _read_held(connection: sqlite3.Connection, run: str, episode: str) -> list[Review]:
    where = f"{OF_STAY} AND NOT repeat AND withdrawn_at IS NULL"
    return read_reviews(connection, where, (run, episode))


def _gave_verdict(connection: sqlite3.Connection, run: str, episode: str, reviewer: str) -> bool:
    """Tell whether a reviewer ever gave a verdict on a stay, also one taken back."""
    where = f"{OF_STAY} AND reviewer = ?"
    return bool(read_reviews(connection, where, (run, episode, reviewer)))


def _key(item: Item) -> tuple[str, str, str, int]:
    return item.run, item.reviewer, item.episode, int(item.repeat)


def _check_open(item: Item) -> None:
    if item.closed:
        raise RefusedError(CLOSED[item.closed])


def _check_version(thing: Item | Stay, expected: int | None) -> None:
    if expected is not None and expected != thing.version:
        raise StaleError(
            f"episode {thing.episode} changed since: version {thing.version}, yours is {expected}",
            thing.version,
        )


def _version(audit: Audit) -> str:
    return str(audit.meta.butfor)

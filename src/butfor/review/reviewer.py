"""One reviewer of one run: the queue, drafts and verdicts, and what others said.

Names stay hidden until every stay of the run is reviewed or settled. If they appeared stay by stay,
one settled stay would tell whose verdicts those of "Reviewer 2" on the open ones are. A third
reviewer settles a disagreement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from butfor.review.events import EventFile, Transaction, record
from butfor.review.queue import Item, Moment, Queue, Stay, look
from butfor.review.state import UNTOUCHED, Answer, Review
from butfor.review.verdicts import (
    LONGEST_DRAFT,
    Chances,
    FieldError,
    RefusedError,
    StaleError,
    UnknownError,
    Verdict,
    chances_in_words,
    check_seconds,
    check_text,
    check_verdict,
)

CLOSED = {
    "settling": "you opened this to settle it and saw what others said, so you cannot give a "
    "verdict of your own",
    "others": "others have read this meanwhile and given their verdicts; no more are needed",
}
OF_ITEM = "run = :run AND reviewer = :reviewer AND episode = :episode AND repeat = :repeat"
FRESH_SECONDS = 60.0  # after which a claim is written again


@dataclass(frozen=True)
class Reviewer:
    """A reviewer of a run; what each method records is on disk when it returns.

    Methods take a stay by the name of its episode, and `repeat` for the second time it is read.
    `expected_version` is the version that the reviewer saw; another one raises StaleError.
    """

    file: EventFile
    run: str
    name: str

    def place(self, episode: str) -> dict[str, Any]:
        """Return run, reviewer and a stay, as events and drafts have them."""
        return {"run": self.run, "reviewer": self.name, "episode": episode}

    def queue(self) -> Queue:
        """Return the queue."""
        with self.file.reading() as transaction:
            return look(transaction, self.run).queue(self.name)

    def item(self, episode: str, place: int | None = None) -> Item:
        """Return a stay's place in the queue by its number; without one, the first."""
        with self.file.reading() as transaction:
            for item in look(transaction, self.run).places(self.name, episode):
                if place == item.place or (place is None and not item.repeat):
                    return item
        raise UnknownError("this is not in your queue")

    def reviews(self, episode: str, *, repeat: bool = False) -> list[Review]:
        """Return the reviewer's own verdicts on a stay, including withdrawn ones."""
        with self.file.reading() as transaction:
            given = transaction.state.run(self.run).reviews_of(episode, self.name)
            return [review for review in given if review.repeat == repeat]

    def claim(self, episode: str) -> None:
        """Note that the reviewer opened a stay; for a while others are offered another one."""
        with self.file.reading() as transaction:
            fresh = transaction.execute(
                "SELECT 1 FROM claim WHERE run = ? AND episode = ? AND reviewer = ? "
                "AND at BETWEEN ? AND ?",
                (
                    self.run,
                    episode,
                    self.name,
                    transaction.now - FRESH_SECONDS,
                    transaction.now,
                ),
            ).fetchone()
        if not fresh:
            with self._changing(episode, durable=False) as (transaction, _):
                self._claim(transaction, episode)

    def save_draft(self, episode: str, content: Mapping[str, Any], *, repeat: bool = False) -> bool:
        """Store an unfinished form in place of the last; False if no verdict is accepted."""
        text = json.dumps(dict(content))
        if len(text) > LONGEST_DRAFT:
            raise FieldError("draft", f"{len(text):,} characters; at most {LONGEST_DRAFT:,}")
        with self._changing(episode, repeat, durable=False) as (transaction, item):
            if item.state == "submitted" or item.closed:
                return False
            transaction.execute(
                "INSERT OR REPLACE INTO draft "
                "VALUES (:run, :reviewer, :episode, :repeat, :text, :now)",
                vars(item) | {"text": text, "now": transaction.now},
            )
            self._claim(transaction, episode)
        return True

    def draft(self, episode: str, *, repeat: bool = False) -> dict[str, Any] | None:
        """Return the draft stored last, if any."""
        with self.file.reading() as transaction:
            row = transaction.execute(
                f"SELECT content FROM draft WHERE {OF_ITEM}",
                self.place(episode) | {"repeat": repeat},
            ).fetchone()
            return None if row is None else json.loads(row[0])

    def give_impression(self, episode: str, answer: str, *, repeat: bool = False) -> Item:
        """Record what the reviewer thinks before seeing the model; it cannot be given twice."""
        check_text(answer, "first_impression", required=True)
        with self._changing(episode, repeat) as (transaction, item):
            if item.first_impression is not None:
                raise StaleError(
                    f"episode {episode}: you have already given a first impression", item.version
                )
            _check_open(item)
            return self._record(transaction, "impression", item, {"answer": answer})

    def answer(
        self, episode: str, chances: Chances, *, repeat: bool = False, seconds: float = 0.0
    ) -> Item:
        """Record what the reviewer expects before seeing the model; it cannot be given twice."""
        taken = check_seconds(seconds)
        with self._changing(episode, repeat) as (transaction, item):
            if item.answer is not None:
                raise StaleError(
                    f"episode {episode}: you have already given the chances", item.version
                )
            _check_open(item)
            run = transaction.state.run(self.run)
            outcomes = run.run.outcomes
            if not outcomes:
                raise RefusedError("this review asks for verdicts only")
            if chances.out_of_ten is not None and len(chances.out_of_ten) != len(outcomes):
                raise FieldError(
                    "chances",
                    f"give {len(outcomes)} numbers: {', '.join(outcomes)}",
                )
            payload = asdict(chances) | {
                "seconds": taken,
                "informed": run.is_informed(self.name, episode),
            }
            return self._record(transaction, "answer", item, payload)

    def answers(self, episode: str, *, repeat: bool = False) -> list[Answer]:
        """Return the chances that the reviewer gave for a stay: one or none."""
        with self.file.reading() as transaction:
            place = self.name, episode, repeat
            given = transaction.state.run(self.run).answers.values()
            return [a for a in given if (a.reviewer, a.episode, a.repeat) == place]

    def submit(
        self,
        episode: str,
        verdict: Verdict,
        *,
        repeat: bool = False,
        seconds: float = 0.0,
        expected_version: int | None = None,
    ) -> Item:
        """Give a verdict. To replace it, withdraw it first."""
        taken = check_seconds(seconds)
        with self._changing(episode, repeat, expected_version) as (transaction, item):
            _check_not_submitted(item)
            _check_open(item)
            run = transaction.state.run(self.run)
            if run.run.settings.first_impression and item.first_impression is None:
                raise FieldError("first_impression", "give it before the verdict")
            if run.run.outcomes and item.answer is None:
                raise FieldError("chances", "give them before the verdict")
            _, steps = run.stays[episode]
            if verdict.step is not None and verdict.step > steps:
                raise FieldError("step", f"{verdict.step} is after the last step, {steps}")
            payload = asdict(verdict) | {
                "seconds": taken,
                "first_impression": item.first_impression,
                "informed": run.is_informed(self.name, episode),
            }
            transaction.execute(f"DELETE FROM draft WHERE {OF_ITEM}", vars(item))
            return self._record(transaction, "submit", item, payload)

    def skip(
        self, episode: str, *, repeat: bool = False, expected_version: int | None = None
    ) -> Item:
        """Leave a stay out for now; its draft is kept and a verdict can still be given."""
        with self._changing(episode, repeat, expected_version) as (transaction, item):
            _check_not_submitted(item)
            # the time 0 puts a draft aside: the stay no longer counts as begun
            transaction.execute(f"UPDATE draft SET at = 0 WHERE {OF_ITEM}", vars(item))
            return self._record(transaction, "skip", item, {})

    def withdraw(self, review: int, *, expected_version: int | None = None) -> Item:
        """Withdraw one's own verdict, unless the stay is settled."""
        with self.file.reading() as transaction:
            mine = transaction.state.run(self.run).reviews.get(review)
        if mine is None:
            raise UnknownError(f"there is no review {review}")
        if mine.reviewer != self.name:
            raise RefusedError(f"review {review} belongs to somebody else")
        with self._changing(mine.episode, mine.repeat, expected_version) as (transaction, item):
            if item.review != review:
                raise StaleError(f"review {review} was already withdrawn", item.version)
            if item.stay_state == "settled" and not item.repeat:
                raise RefusedError(f"episode {item.episode} is settled: its verdicts stay")
            shown = not item.repeat and self._saw_others(transaction, mine)
            return self._record(transaction, "withdraw", item, {"review": review, "shown": shown})

    @contextmanager
    def _changing(
        self,
        episode: str,
        repeat: bool = False,
        expected_version: int | None = None,
        *,
        durable: bool = True,
    ) -> Iterator[tuple[Transaction, Item]]:
        """Open a transaction that changes a place in the queue of the current run."""
        with self.file.writing(durable=durable) as transaction:
            item = look(transaction, self.run, current=True).item(self.name, episode, repeat)
            check_version(item, expected_version)
            yield transaction, item

    def _record(
        self, transaction: Transaction, action: str, item: Item, payload: dict[str, Any]
    ) -> Item:
        place = self.place(item.episode)
        record(transaction, action, **place, payload=payload | {"repeat": item.repeat})
        if action in ("submit", "skip"):  # the stay is no longer claimed
            transaction.execute(
                "DELETE FROM claim "
                "WHERE run = :run AND reviewer = :reviewer AND episode = :episode",
                place,
            )
        return look(transaction, self.run).item(self.name, item.episode, item.repeat)

    def _saw_others(self, transaction: Transaction, mine: Review) -> bool:
        """Return whether others' verdicts were in force at some time since one's own was given.

        Numbers of events tell what came first; a clock can be set back.
        """
        run = transaction.state.run(self.run)
        return any(
            other.reviewer != self.name
            and not other.repeat
            and run.withdrawn.get(other.id, mine.id) >= mine.id
            for other in run.reviews_of(mine.episode)
        )

    def _claim(self, transaction: Transaction, episode: str) -> None:
        transaction.execute(
            "INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?)",
            (self.run, episode, self.name, transaction.now),
        )


def check_version(thing: Item | Stay, expected: int | None) -> None:
    """Raise if an item or stay changed since the version that was read."""
    if expected is not None and expected != thing.version:
        raise StaleError(
            f"episode {thing.episode} has changed: version {thing.version}, yours is {expected}",
            thing.version,
        )


def _check_not_submitted(item: Item) -> None:
    if item.state == "submitted":
        raise StaleError(f"episode {item.episode}: you have already given a verdict", item.version)


def _check_open(item: Item) -> None:
    if item.closed:
        raise RefusedError(CLOSED[item.closed])


def visible_opinions(reviewer: Reviewer, episode: str) -> list[Review]:
    """Return the verdicts on a stay that a reviewer may see: none before their own is given."""
    with reviewer.file.reading() as transaction:
        moment = look(transaction, reviewer.run)
        moment.stay(episode)  # which must be under review
        held = moment.run.held(episode)
        if reviewer.name not in {review.reviewer for review in held}:
            return []
        return rename(held, _read_names(transaction, moment, reviewer))


def earlier_opinions(reviewer: Reviewer, episode: str) -> list[Review]:
    """Return verdicts on the stay in other runs; those of others only after one's own here."""
    with reviewer.file.reading() as transaction:
        moment = look(transaction, reviewer.run)
        moment.stay(episode)
        authors = {review.reviewer for review in moment.run.held(episode)}
        earlier = [
            review
            for name, run in transaction.state.runs.items()
            if name != reviewer.run
            for review in run.held(episode)
            if reviewer.name in authors | {review.reviewer}
        ]
        names = _read_names(transaction, moment, reviewer) if earlier else {}
    return rename(sorted(earlier, key=lambda review: review.id), names)


def answers_before(reviewer: Reviewer, reviews: Sequence[Review]) -> dict[int, dict[str, Any]]:
    """Return the chances that were given before verdicts which are shown, by their numbers."""
    described = {}
    with reviewer.file.reading() as transaction:
        for shown in reviews:  # whose names may be hidden
            run = transaction.state.run(shown.run)
            given = run.reviews[shown.id]
            place = given.reviewer, given.episode, given.repeat
            number = run.standing.get(place, UNTOUCHED).answer
            if number is not None:
                described[given.id] = describe_answer(run.answers[number], run.run.outcomes)
    return described


def describe_answer(answer: Answer | Chances, outcomes: Sequence[str]) -> dict[str, Any]:
    """Return the chances that a reviewer gave as plain values and in words."""
    numbers = answer.out_of_ten
    return {
        "chances": None if numbers is None else dict(zip(outcomes, numbers, strict=True)),
        "sure": answer.sure,
        "reason": answer.reason,
        "words": chances_in_words(numbers, outcomes, answer.reason),
    }


def names_for(reviewer: Reviewer) -> dict[str, str]:
    """Return what a reviewer is shown for each name: their own, and others' pseudonyms."""
    with reviewer.file.reading() as transaction:
        return _read_names(transaction, look(transaction, reviewer.run), reviewer)


def rename(reviews: list[Review], names: Mapping[str, str]) -> list[Review]:
    """Return verdicts with other names for their reviewers."""
    return [replace(review, reviewer=names[review.reviewer]) for review in reviews]


def note_overview(reviewer: Reviewer) -> None:
    """Record, once, that a reviewer sees numbers about all stays."""
    with reviewer.file.reading() as transaction:
        run = transaction.state.run(reviewer.run)
        wanted = run.run.current and (reviewer.name, "", "overview") not in run.shown
    if wanted:
        _note_shown(reviewer, "overview")


def list_disagreements(reviewer: Reviewer) -> list[str]:
    """Return the stays that a reviewer may settle, by name: any other order reveals controls."""
    with reviewer.file.reading() as transaction:
        moment = look(transaction, reviewer.run)
        return sorted(
            stay.episode
            for stay in moment.stays()
            if stay.state == "disagreement"
            and not moment.run.reviews_of(stay.episode, reviewer.name)
        )


def open_disagreement(reviewer: Reviewer, episode: str) -> list[Review]:
    """Return the verdicts that differ, to settle them or to see how they were settled.

    It is recorded that a reviewer without a verdict saw them: that reviewer cannot give one any
    more.
    """
    with reviewer.file.reading() as transaction:
        moment = look(transaction, reviewer.run)
        stay, held = moment.stay(episode), moment.run.held(episode)
        gave = moment.run.reviews_of(episode, reviewer.name)
        shown = (reviewer.name, episode, "settling") in moment.run.shown
        names = _read_names(transaction, moment, reviewer)
    if stay.state not in ("disagreement", "settled"):
        raise RefusedError("reviewers do not differ about this")
    if reviewer.name not in {review.reviewer for review in held}:
        if gave and stay.state == "disagreement":
            raise RefusedError("you withdrew your verdict on this; somebody else must settle it")
        if not shown:
            _note_shown(reviewer, "settling", episode)
    return rename(held, names)


def settle(
    reviewer: Reviewer,
    episode: str,
    verdict: int,
    reason: str,
    *,
    expected_version: int | None = None,
) -> Stay:
    """Settle a disagreement, as somebody who gave no verdict on the stay."""
    payload = {
        "verdict": check_verdict(verdict),
        "reason": check_text(reason, "reason", required=True),
    }
    with reviewer.file.writing() as transaction:
        moment = look(transaction, reviewer.run, current=True)
        stay = moment.stay(episode)
        check_version(stay, expected_version)
        if stay.state != "disagreement":
            raise StaleError(
                f"episode {episode} is {stay.state}: there is nothing to settle", stay.version
            )
        if moment.run.reviews_of(episode, reviewer.name):  # even a withdrawn one
            raise RefusedError("you gave a verdict on this; somebody else must settle it")
        record(transaction, "settle", **reviewer.place(episode), payload=payload)
        return moment.stay(episode)


def unsettle(reviewer: Reviewer, episode: str, *, expected_version: int | None = None) -> Stay:
    """Withdraw one's own settlement."""
    with reviewer.file.writing() as transaction:
        moment = look(transaction, reviewer.run, current=True)
        stay = moment.stay(episode)
        check_version(stay, expected_version)
        settled = moment.run.settled.get(episode)
        if settled is None:
            raise StaleError(f"episode {episode} is {stay.state}, not settled", stay.version)
        if moment.run.settlements[settled].reviewer != reviewer.name:
            raise RefusedError("somebody else settled this")
        record(transaction, "unsettle", **reviewer.place(episode), payload={"settlement": settled})
        return moment.stay(episode)


def _note_shown(reviewer: Reviewer, what: str, episode: str = "") -> None:
    with reviewer.file.writing() as transaction:
        run = transaction.state.run(reviewer.run, current=True)
        if (reviewer.name, episode, what) not in run.shown:
            record(transaction, what, **reviewer.place(episode))


def _read_names(transaction: Transaction, moment: Moment, reviewer: Reviewer) -> dict[str, str]:
    pseudonyms = transaction.state.pseudonyms
    if moment.is_closed():
        return {name: name for name in pseudonyms}
    return pseudonyms | {reviewer.name: reviewer.name}

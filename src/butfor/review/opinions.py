"""What reviewers may see of each other's verdicts, and how a third one settles a disagreement.

Names stay hidden until every stay of the run is reviewed or settled. If they appeared stay by stay,
one settled stay would tell whose verdicts those of "Reviewer 2" on the open ones are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from butfor.review.events import Transaction, record
from butfor.review.queue import Moment, Stay, look
from butfor.review.reviewer import Reviewer, check_version
from butfor.review.state import UNTOUCHED, Answer, Review
from butfor.review.verdicts import (
    Chances,
    RefusedError,
    StaleError,
    chances_in_words,
    check_text,
    check_verdict,
)


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

"""What reviewers may see of each other's verdicts, and how a third one settles a disagreement.

Names stay hidden until every stay of the run is reviewed or settled. If they appeared stay by stay,
one settled stay would tell whose verdicts those of "Reviewer 2" on the open ones are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from butfor.review import tables
from butfor.review.events import Transaction
from butfor.review.queue import is_closed, read_stay, read_stays
from butfor.review.reviewer import Reviewer, check_version
from butfor.review.tables import Answer, Review, Stay
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
        read_stay(transaction, reviewer.run, episode)
        held = _read_held(transaction, reviewer.run, episode)
        if reviewer.name not in {review.reviewer for review in held}:
            return []
        return rename(held, _read_names(transaction, reviewer))


def earlier_opinions(reviewer: Reviewer, episode: str) -> list[Review]:
    """Return verdicts on the stay in other runs; those of others only after one's own here."""
    with reviewer.file.reading() as transaction:
        read_stay(transaction, reviewer.run, episode)
        authors = {r.reviewer for r in _read_held(transaction, reviewer.run, episode)}
        earlier = [
            review
            for run in tables.read_run_ids(transaction)
            if run != reviewer.run
            for review in _read_held(transaction, run, episode)
            if reviewer.name in authors | {review.reviewer}
        ]
        names = _read_names(transaction, reviewer) if earlier else {}
    return rename(sorted(earlier, key=lambda review: review.id), names)


def answers_before(reviewer: Reviewer, reviews: Sequence[Review]) -> dict[int, dict[str, Any]]:
    """Return the chances that were given before verdicts which are shown, by their numbers."""
    if not reviews:
        return {}
    with reviewer.file.reading() as transaction:
        found = tables.read_answers_before(transaction, [review.id for review in reviews])
        outcomes = {
            run: tables.read_run(transaction, run).outcomes for run in {r.run for r in reviews}
        }
    return {
        review: describe_answer(answer, outcomes[answer.run]) for review, answer in found.items()
    }


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
        return _read_names(transaction, reviewer)


def rename(reviews: list[Review], names: Mapping[str, str]) -> list[Review]:
    """Return verdicts with other names for their reviewers."""
    return [replace(review, reviewer=names[review.reviewer]) for review in reviews]


def note_overview(reviewer: Reviewer) -> None:
    """Record, once, that a reviewer sees numbers about all stays."""
    with reviewer.file.reading() as transaction:
        shown = tables.was_shown(transaction, reviewer.run, reviewer.name, "")
        current = tables.read_run(transaction, reviewer.run).current
    if current and not shown:
        _note_shown(reviewer, "overview")


def list_disagreements(reviewer: Reviewer) -> list[str]:
    """Return the stays that a reviewer may settle, by name: any other order reveals controls."""
    with reviewer.file.reading() as transaction:
        stays = read_stays(transaction, reviewer.run)
        mine = tables.read_reviews(transaction, run=reviewer.run, reviewer=reviewer.name)
    known = {review.episode for review in mine}
    return sorted(
        stay.episode for stay in stays if stay.state == "disagreement" and stay.episode not in known
    )


def open_disagreement(reviewer: Reviewer, episode: str) -> list[Review]:
    """Return the verdicts that differ, to settle them or to see how they were settled.

    It is recorded that a reviewer without a verdict saw them: that reviewer cannot give one any
    more.
    """
    with reviewer.file.reading() as transaction:
        stay = read_stay(transaction, reviewer.run, episode)
        held = _read_held(transaction, reviewer.run, episode)
        gave = tables.read_reviews(transaction, **reviewer.place(episode))
        shown = tables.was_shown(transaction, reviewer.run, reviewer.name, episode, "settling")
        names = _read_names(transaction, reviewer)
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
        stay = _read_current_stay(transaction, reviewer.run, episode, expected_version)
        if stay.state != "disagreement":
            raise StaleError(
                f"episode {episode} is {stay.state}: there is nothing to settle", stay.version
            )
        if tables.read_reviews(transaction, **reviewer.place(episode)):  # even a withdrawn one
            raise RefusedError("you gave a verdict on this; somebody else must settle it")
        tables.record(transaction, "settle", **reviewer.place(episode), payload=payload)
        return read_stay(transaction, reviewer.run, episode)


def unsettle(reviewer: Reviewer, episode: str, *, expected_version: int | None = None) -> Stay:
    """Withdraw one's own settlement."""
    with reviewer.file.writing() as transaction:
        stay = _read_current_stay(transaction, reviewer.run, episode, expected_version)
        settlements = tables.read_settlements(transaction, run=reviewer.run, episode=episode)
        held = [settlement for settlement in settlements if settlement.withdrawn_at is None]
        if not held:
            raise StaleError(f"episode {episode} is {stay.state}, not settled", stay.version)
        if held[0].reviewer != reviewer.name:
            raise RefusedError("somebody else settled this")
        tables.record(
            transaction, "unsettle", **reviewer.place(episode), payload={"settlement": held[0].id}
        )
        return read_stay(transaction, reviewer.run, episode)


def _read_current_stay(
    transaction: Transaction, run: str, episode: str, expected_version: int | None
) -> Stay:
    tables.read_current_run(transaction, run)
    stay = read_stay(transaction, run, episode)
    check_version(stay, expected_version)
    return stay


def _note_shown(reviewer: Reviewer, what: str, episode: str = "") -> None:
    with reviewer.file.writing() as transaction:
        tables.read_current_run(transaction, reviewer.run)
        if not tables.was_shown(transaction, **reviewer.place(episode), what=what):
            tables.record(transaction, what, **reviewer.place(episode))


def _read_names(transaction: Transaction, reviewer: Reviewer) -> dict[str, str]:
    pseudonyms = tables.read_pseudonyms(transaction)
    if is_closed(transaction, reviewer.run):
        return {name: name for name in pseudonyms}
    return pseudonyms | {reviewer.name: reviewer.name}


def _read_held(transaction: Transaction, run: str, episode: str) -> list[Review]:
    """Return the verdicts on a stay that are in force, without repeats."""
    found = tables.read_reviews(transaction, run=run, episode=episode)
    return [review for review in found if review.counts]

"""What a coordinator sees of a run: who has come how far, what waits, and who can settle what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from butfor.review.events import Transaction
from butfor.review.queue import Progress, Queue, Stay, is_wanted, look
from butfor.review.state import Review
from butfor.review.store import Store
from butfor.review.verdicts import RefusedError


@dataclass(frozen=True)
class ReviewerProgress:
    """How far a reviewer has come, and when something of theirs last arrived."""

    name: str
    progress: Progress
    begun: int  # without a verdict, but opened with something written
    median_seconds: float | None  # of active reading per verdict
    last_active: str  # ISO 8601, UTC


@dataclass(frozen=True)
class WaitingStay:
    """A stay that needs more verdicts."""

    episode: str
    verdicts: int
    missing: int
    readers: tuple[str, ...]  # who can still give one
    skipped_by: tuple[str, ...]

    @property
    def stuck(self) -> bool:
        """Whether those who joined cannot complete it, unless somebody reads what they skipped."""
        return len(self.readers) < self.missing


@dataclass(frozen=True)
class DifferingStay:
    """A stay about which reviewers differ."""

    episode: str
    reviews: tuple[Review, ...]
    may_settle: tuple[str, ...]  # who gave no verdict on it; nobody: somebody else has to join


@dataclass(frozen=True)
class RunProgress:
    """How far the review of a run has come, as its coordinator sees it."""

    stays: Sequence[Stay]
    reviewers: tuple[ReviewerProgress, ...]
    waiting: tuple[WaitingStay, ...]
    differing: tuple[DifferingStay, ...]


def read_progress(store: Store, run: str) -> RunProgress:
    """Return how far the review of a run has come."""
    with store.file.reading() as transaction:
        moment = look(transaction, run)
        needed, stays = moment.run.run.settings.needed, moment.stays()
        names = list(moment.run.queues)
        queues = {name: moment.queue(name) for name in names}
        reviews = list(moment.run.reviews.values())
        active = _read_last_active(transaction, run)
    return RunProgress(
        stays=stays,
        reviewers=tuple(
            _reviewer_progress(name, queues[name], reviews, active[name]) for name in names
        ),
        waiting=_find_waiting(stays, needed, queues),
        differing=tuple(
            _differing_stay(stay.episode, reviews, names)
            for stay in stays
            if stay.state == "disagreement"
        ),
    )


def read_disagreement(store: Store, run: str, episode: str) -> list[Review]:
    """Return the verdicts that differ about a stay, or differed before it was settled."""
    if store.stay(run, episode).state not in ("disagreement", "settled"):
        raise RefusedError("reviewers do not differ about this")
    return [review for review in store.reviews(run, episode=episode) if review.counts]


def _reviewer_progress(
    name: str, queue: Queue, reviews: Sequence[Review], last_active: str
) -> ReviewerProgress:
    seconds = [r.seconds for r in reviews if r.reviewer == name and r.withdrawn_at is None]
    begun = [
        item
        for item in queue.offered
        if item.state == "draft" or item.answer is not None or item.first_impression is not None
    ]
    return ReviewerProgress(
        name=name,
        progress=queue.progress,
        begun=len(begun),
        median_seconds=median(seconds) if seconds else None,
        last_active=last_active,
    )


def _find_waiting(
    stays: Sequence[Stay], needed: int, queues: Mapping[str, Queue]
) -> tuple[WaitingStay, ...]:
    readers: dict[str, list[str]] = {stay.episode: [] for stay in stays}
    skipped: dict[str, list[str]] = {stay.episode: [] for stay in stays}
    for name, queue in queues.items():
        for item in queue.items:
            if is_wanted(item) and not item.repeat:
                (skipped if item.state == "skipped" else readers)[item.episode].append(name)
    return tuple(
        WaitingStay(
            episode=stay.episode,
            verdicts=stay.verdicts,
            missing=needed - stay.verdicts,
            readers=tuple(readers[stay.episode]),
            skipped_by=tuple(skipped[stay.episode]),
        )
        for stay in stays
        if stay.state in ("waiting", "in_review")
    )


def _differing_stay(episode: str, reviews: Sequence[Review], names: Sequence[str]) -> DifferingStay:
    about = [review for review in reviews if review.episode == episode]
    gave = {review.reviewer for review in about}  # even if withdrawn
    return DifferingStay(
        episode=episode,
        reviews=tuple(review for review in about if review.counts),
        may_settle=tuple(name for name in names if name not in gave),
    )


def _read_last_active(transaction: Transaction, run: str) -> dict[str, str]:
    """Return when each reviewer last did something, opening a stay and drafts included."""
    latest = dict(transaction.state.run(run).active)
    claims = transaction.execute(
        "SELECT reviewer, MAX(at) FROM claim WHERE run = ? GROUP BY reviewer", (run,)
    )
    for name, seconds in claims.fetchall():
        at = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
        latest[name] = max(latest[name], at)
    return latest

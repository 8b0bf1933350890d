"""The results of a review in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from butfor.evaluate.agreement import Agreement, measure_agreement, wilson_interval
from butfor.review.state import Review
from butfor.review.store import Store
from butfor.review.verdicts import VERDICTS


@dataclass(frozen=True)
class Share:
    """A count out of a total with Wilson's 95 % interval; None where the total is 0."""

    count: int
    total: int
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Results:
    """The results of a review so far."""

    run: str
    stays: dict[str, int]  # by state
    flagged: dict[int, Share]  # by verdict, of the flagged stays that are reviewed or settled
    controls: dict[int, Share]  # likewise, of the controls
    agreement: Agreement
    self_agreement: Share  # of the stays that came back, those given the same verdict again
    median_seconds: float | None  # of active reading per verdict
    withdrawn: Share  # of all verdicts ever given
    informed: int  # verdicts given after seeing what others said; excluded from agreement
    variables: dict[str, int]  # named as missing (verdict 2), most frequent first


def summarize(store: Store, run: str, *, resamples: int = 2000, seed: int = 0) -> Results:
    """Summarize the verdicts of a run."""
    stays, reviews = store.stays(run), store.reviews(run)
    held = [review for review in reviews if review.withdrawn_at is None]
    first = [review for review in held if not review.repeat]
    named = Counter(r.variable.strip() for r in first if r.verdict == 2 and r.variable.strip())
    return Results(
        run=run,
        stays=dict(Counter(stay.state for stay in stays)),
        flagged=_verdict_shares([stay.final for stay in stays if not stay.control]),
        controls=_verdict_shares([stay.final for stay in stays if stay.control]),
        agreement=agreement_between(reviews, resamples=resamples, seed=seed),
        self_agreement=_self_agreement([review for review in held if not review.informed]),
        median_seconds=median(review.seconds for review in held) if held else None,
        withdrawn=_share(len(reviews) - len(held), len(reviews)),
        informed=sum(review.informed for review in held),
        variables=dict(sorted(named.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


def agreement_between(
    reviews: Iterable[Review], *, resamples: int = 2000, seed: int = 0
) -> Agreement:
    """Measure agreement by verdicts in force, given without having seen those of others."""
    return measure_agreement(
        ((r.episode, r.reviewer, r.verdict) for r in reviews if r.counts and not r.informed),
        resamples=resamples,
        seed=seed,
    )


def _verdict_shares(final: list[int | None]) -> dict[int, Share]:
    count = Counter(verdict for verdict in final if verdict)
    return {verdict: _share(count[verdict], count.total()) for verdict in VERDICTS}


def _self_agreement(held: list[Review]) -> Share:
    first, again = (
        {(r.reviewer, r.episode): r.verdict for r in held if r.repeat == repeat}
        for repeat in (False, True)
    )
    both = first.keys() & again.keys()
    return _share(sum(first[key] == again[key] for key in both), len(both))


def _share(count: int, total: int) -> Share:
    low, high = wilson_interval(count, total) or (None, None)
    return Share(count, total, count / total if total else None, low, high)

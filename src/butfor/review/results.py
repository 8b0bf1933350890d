"""What a review found, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median

from butfor.review.agreement import Agreement, measure_agreement, wilson_interval
from butfor.review.projection import Review
from butfor.review.store import Store
from butfor.review.verdicts import VERDICTS


@dataclass(frozen=True)
class Share:
    """A count among a total, with Wilson's 95 % interval; None where the total is 0."""

    count: int
    total: int
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Results:
    """What a review found so far."""

    run: str
    stays: dict[str, int]  # by state
    flagged: dict[int, Share]  # by verdict, of flagged stays that are reviewed or settled
    controls: dict[int, Share]  # likewise
    agreement: Agreement
    self_agreement: Share  # of stays that came back, how many got the same verdict again
    median_seconds: float | None  # active ones, a verdict
    withdrawn: Share  # of all verdicts ever given
    informed: int  # verdicts given after seeing what others said: left out of agreement
    variables: dict[str, int]  # named as missing (verdict 2), most often named first


def summarize(store: Store, run: str, *, resamples: int = 2000, seed: int = 0) -> Results:
    """Summarize the verdicts of a run."""
    stays, reviews = store.stays(run), store.reviews(run)
    held = [review for review in reviews if review.withdrawn_at is None]
    first = [review for review in held if not review.repeat]
    named = Counter(
        review.variable.strip()
        for review in first
        if review.verdict == 2 and review.variable.strip()
    )
    final = {
        control: Counter(stay.final for stay in stays if stay.final and stay.control == control)
        for control in (False, True)
    }
    return Results(
        run=run,
        stays=dict(Counter(stay.state for stay in stays)),
        flagged={
            verdict: _share(final[False][verdict], final[False].total()) for verdict in VERDICTS
        },
        controls={
            verdict: _share(final[True][verdict], final[True].total()) for verdict in VERDICTS
        },
        agreement=measure_agreement(
            (
                (review.episode, review.reviewer, review.verdict)
                for review in first
                if not review.informed
            ),
            resamples=resamples,
            seed=seed,
        ),
        self_agreement=_self_agreement([review for review in held if not review.informed]),
        median_seconds=median(review.seconds for review in held) if held else None,
        withdrawn=_share(len(reviews) - len(held), len(reviews)),
        informed=sum(review.informed for review in held),
        variables=dict(sorted(named.items(), key=lambda entry: (-entry[1], entry[0]))),
    )


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

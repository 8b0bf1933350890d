"""How far a review has come, for its coordinator."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from fastapi import Request

from butfor.review.coordination import DifferingStay, ReviewerProgress, WaitingStay, read_progress
from butfor.review.routes.access import Coordinator, find_access
from butfor.review.shown import make_slug
from butfor.review.verdicts import VERDICTS


def show_progress(request: Request, viewer: Coordinator) -> dict[str, Any]:
    """How far each reviewer has come, what waits and what differs, for coordinators."""
    review, run = viewer.review, viewer.reviewer.run
    found = read_progress(review.store, run)
    pseudonyms = review.store.pseudonyms()
    states = Counter(stay.state for stay in found.stays)
    return {
        "run": run,
        "needed": review.run.settings.needed,
        "total": len(found.stays),
        "finished": states["reviewed"] + states["settled"],
        "stays": dict(states),
        "reviewers": [
            {"pseudonym": pseudonyms[one.name]} | _describe_reviewer(one) for one in found.reviewers
        ],
        "not_signed_in": find_access(request).absent(one.name for one in found.reviewers),
        "waiting": [_describe_waiting(stay) for stay in found.waiting],
        "differing": [_describe_differing(stay) for stay in found.differing],
        "agreement": asdict(review.results(review.store.last_event()).agreement.percent),
    }


def _describe_reviewer(one: ReviewerProgress) -> dict[str, Any]:
    return {
        "name": one.name,
        **asdict(one.progress),
        "finished": one.progress.finished,
        "begun": one.begun,
        "median_seconds": one.median_seconds,
        "last_active": one.last_active,
    }


def _describe_waiting(stay: WaitingStay) -> dict[str, Any]:
    return {
        "id": stay.episode,
        "slug": make_slug(stay.episode),
        "verdicts": stay.verdicts,
        "missing": stay.missing,
        "readers": list(stay.readers),
        "skipped_by": list(stay.skipped_by),
        "stuck": stay.stuck,
    }


def _describe_differing(stay: DifferingStay) -> dict[str, Any]:
    return {
        "id": stay.episode,
        "slug": make_slug(stay.episode),
        "verdicts": [
            {"reviewer": given.reviewer, "verdict": given.verdict, "words": VERDICTS[given.verdict]}
            for given in stay.reviews
        ],
        "may_settle": list(stay.may_settle),
    }

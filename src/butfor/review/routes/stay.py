"""A reviewer's queue, and one stay as the reviewer sees it, to judge it or to settle it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import Response

from butfor.review.opinions import (
    earlier_opinions,
    list_disagreements,
    names_for,
    open_disagreement,
    visible_opinions,
)
from butfor.review.queue import is_wanted
from butfor.review.reviewer import CLOSED
from butfor.review.routes.access import Place, SignedIn
from butfor.review.shown import Viewer, make_slug
from butfor.review.tables import Item, Review
from butfor.review.verdicts import VERDICTS, UnknownError, in_a_clause

STATES = {  # of a stay
    "waiting": "Waiting",
    "in_review": "In review",
    "reviewed": "Reviewed",
    "disagreement": "Reviewers differ",
    "settled": "Settled",
}
ITEM_STATES = {  # of a place in a reviewer's queue
    "waiting": "Waiting",
    "draft": "Begun",
    "submitted": "Done",
    "skipped": "Skipped",
    "withdrawn": "Withdrawn",
}
UNLISTED = "not under review"
FIELDS = ("verdict", "variable", "step", "sure", "comment")


def show_queue(viewer: SignedIn) -> dict[str, Any]:
    """Your queue."""
    queue = viewer.reviewer.queue()
    progress = queue.progress
    return {
        "run": viewer.reviewer.run,
        "reviewer": viewer.reviewer.name,
        "progress": asdict(progress) | {"finished": progress.finished},
        "next": queue.next_item and _link(queue.next_item),
        "items": [
            {
                **_link(item),
                **viewer.review.facts[item.episode],
                "state": item.state,
                "status": _status(item),
                "changed_at": item.changed_at,
            }
            for item in queue.items
        ],
        "to_settle": [
            {"id": name, "slug": make_slug(name)} for name in list_disagreements(viewer.reviewer)
        ],
        "undo": _undo_link(viewer, queue.items),
        "overview_open": viewer.review.show_overview or progress.finished,
    }


def show_next(viewer: SignedIn) -> dict[str, Any]:
    """What to read next."""
    item = viewer.reviewer.queue().next_item
    return {"next": item and _link(item)}


def show_episode(
    viewer: SignedIn, response: Response, slug: str, place: Place = None
) -> dict[str, Any]:
    """Everything that is shown of a stay; its version is the ETag."""
    review, reviewer, name = viewer.review, viewer.reviewer, viewer.review.find(slug)
    if place is None and name not in review.under_review:
        return _unlisted_stay(viewer, name)
    items = reviewer.queue().items
    here = (i for i, it in enumerate(items) if it.episode == name and place in (None, it.place))
    at = next(here, None)
    if at is None:
        raise UnknownError("this is not in your queue")
    item = items[at]
    if is_wanted(item):
        reviewer.claim(name)  # for a while others are offered another stay
    response.headers["ETag"] = f'"{item.version}"'
    hidden = viewer.hides_model(item)
    return {
        **_link(item),
        "run": reviewer.run,
        "reviewer": reviewer.name,
        "number": at + 1,
        "total": len(items),
        "previous": _link(items[at - 1]) if at else None,
        "next": _link(items[at + 1]) if at + 1 < len(items) else None,
        "state": item.state,
        "status": _status(item),
        "closed": CLOSED.get(item.closed, ""),
        "asks_impression": hidden and not item.closed,
        "first_impression": item.first_impression,
        **review.one(name, hidden)[0],
        **review.choices,
        "form": _form(viewer, item),
        **_said(viewer, item),
        "undo": _undo_link(viewer, items),
        "settled": item.stay_state == "settled" and item.state == "submitted",
    }


def show_trajectory(
    viewer: SignedIn, slug: str, place: Place = None, settling: bool = False
) -> dict[str, Any]:
    """The rows of a stay's picture, for the trajectory chart."""
    name, hidden = viewer.review.find(slug), False
    if settling:
        open_disagreement(viewer.reviewer, name)
    elif place is None and name not in viewer.review.under_review:
        viewer.check_overview()
    else:
        hidden = viewer.hides_model(viewer.reviewer.item(name, place))
    return {"model": not hidden, **viewer.review.one(name, hidden)[1]}


def show_disagreement(viewer: SignedIn, slug: str) -> dict[str, Any]:
    """What reviewers differ about."""
    review, reviewer, name = viewer.review, viewer.reviewer, viewer.review.find(slug)
    found, names = open_disagreement(reviewer, name), names_for(reviewer)
    stay = review.store.stay(reviewer.run, name)
    held = [
        {
            "verdict": settlement.verdict,
            "words": VERDICTS[settlement.verdict],
            "reason": settlement.reason,
            "reviewer": names[settlement.reviewer],
            "at": settlement.created_at,
            "mine": settlement.reviewer == reviewer.name,
        }
        for settlement in review.store.settlements(reviewer.run, episode=name)
        if settlement.withdrawn_at is None
    ]
    return {
        "id": name,
        "slug": make_slug(name),
        "run": reviewer.run,
        "reviewer": reviewer.name,
        "state": stay.state,
        "version": stay.version,
        "may_settle": name in list_disagreements(reviewer),
        "opinions": [_opinion(given) for given in found],
        "settlement": held[0] if held else None,
        **review.one(name, False)[0],
        **review.choices,
    }


def _unlisted_stay(viewer: Viewer, name: str) -> dict[str, Any]:
    """Return a stay that is not in the reviewer's queue, to look at."""
    viewer.check_overview()
    return {
        "id": name,
        "slug": make_slug(name),
        "run": viewer.reviewer.run,
        "reviewer": viewer.reviewer.name,
        "state": "",
        "status": UNLISTED,
        "closed": "",
        "asks_impression": False,
        **dict.fromkeys(("place", "previous", "next", "mine", "form", "undo")),
        "opinions": [],
        "earlier": [],
        **viewer.review.one(name, False)[0],
    }


def _form(viewer: Viewer, item: Item) -> dict[str, Any]:
    """Return what the form contains: the draft, or the verdict that was withdrawn."""
    draft = viewer.reviewer.draft(item.episode, repeat=item.repeat)
    if draft is not None or item.state != "withdrawn":
        return draft or {}
    last = viewer.reviewer.reviews(item.episode, repeat=item.repeat)[-1]
    return {name: getattr(last, name) for name in FIELDS}


def _said(viewer: Viewer, item: Item) -> dict[str, Any]:
    """Return what the reviewer and others said about a stay, as far as it is shown."""
    reviewer, name, done = viewer.reviewer, item.episode, item.state == "submitted"
    mine = reviewer.reviews(name, repeat=item.repeat)[-1] if done else None
    # a repeat must look new: nothing that was said before its verdict is given
    opinions = visible_opinions(reviewer, name) if done and not item.repeat else []
    earlier = earlier_opinions(reviewer, name) if done or not item.repeat else []
    return {
        "mine": mine and _opinion(mine),
        "opinions": [_opinion(given) for given in opinions if given.reviewer != reviewer.name],
        "earlier": [_opinion(given) | {"run": given.run} for given in earlier],
    }


def _opinion(review: Review) -> dict[str, Any]:
    return {
        "review": review.id,
        "reviewer": review.reviewer,
        **{name: getattr(review, name) for name in (*FIELDS, "first_impression")},
        "words": VERDICTS[review.verdict],
        "at": review.created_at,
    }


def _link(item: Item) -> dict[str, Any]:
    """Return how to find an item again."""
    slug = make_slug(item.episode)
    return {"id": item.episode, "slug": slug, "place": item.place, "version": item.version}


def _undo_link(viewer: Viewer, items: list[Item]) -> dict[str, Any] | None:
    """Return the verdict given last, which one key withdraws; none of a settled stay."""
    held = [item for item in items if item.review is not None and item.stay_state != "settled"]
    if not held:
        return None
    last = max(held, key=lambda item: item.review or 0)
    said = viewer.reviewer.reviews(last.episode, repeat=last.repeat)[-1]
    return _link(last) | {
        "review": last.review,
        "words": in_a_clause(said.verdict, said.variable),
    }


def _status(item: Item) -> str:
    """Return in words where a reviewer is with an item."""
    if item.state == "submitted":
        differ = item.stay_state == "disagreement"
        return STATES["disagreement"] if differ else ITEM_STATES["submitted"]
    if item.closed == "settling":
        return "Opened to settle"
    return ITEM_STATES[item.state] if is_wanted(item) else "Read by others"

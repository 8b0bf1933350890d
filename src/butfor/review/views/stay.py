"""One stay as a reviewer sees it, to judge it or to settle a disagreement about it."""

from __future__ import annotations

from typing import Any

from butfor.review.opinions import (
    earlier_opinions,
    list_disagreements,
    open_disagreement,
    visible_opinions,
)
from butfor.review.queue import is_wanted
from butfor.review.reviewer import CLOSED
from butfor.review.tables import Item, Review
from butfor.review.verdicts import VERDICTS, UnknownError
from butfor.review.views.queue import item_status, link, undo_link
from butfor.review.views.review import Viewer
from butfor.review.views.stays import make_slug

UNLISTED = "not under review"
FIELDS = ("verdict", "variable", "step", "sure", "comment")


def stay_view(viewer: Viewer, name: str, place: int | None = None) -> dict[str, Any]:
    """Return everything that a reviewer sees of a stay; opening it claims it for a while."""
    review, reviewer = viewer.review, viewer.reviewer
    if place is None and name not in review.under_review:
        return _unlisted_stay(viewer, name)
    items = reviewer.queue().items
    at = _find(items, name, place)
    item = items[at]
    if is_wanted(item):
        reviewer.claim(name)
    hidden = viewer.hides_model(item)
    done = item.state == "submitted"
    return {
        **link(item),
        "run": reviewer.run,
        "reviewer": reviewer.name,
        "number": at + 1,
        "total": len(items),
        "previous": link(items[at - 1]) if at else None,
        "next": link(items[at + 1]) if at + 1 < len(items) else None,
        "state": item.state,
        "status": item_status(item),
        "closed": CLOSED.get(item.closed, ""),
        "asks_impression": hidden and not item.closed,
        "first_impression": item.first_impression,
        **review.shown.one(name, hidden)[0],
        **review.shown.choices,
        "form": _form(viewer, item),
        "mine": _own_verdict(viewer, item) if done else None,
        # a repeat must look new: nothing that was said before its verdict is given
        "opinions": _others(viewer, name) if done and not item.repeat else [],
        "earlier": _earlier(viewer, name) if done or not item.repeat else [],
        "undo": undo_link(items),
        "settled": item.stay_state == "settled" and done,
    }


def trajectory_view(
    viewer: Viewer, name: str, place: int | None = None, *, settling: bool = False
) -> dict[str, Any]:
    """Return the rows of a stay's picture."""
    hidden = False
    if settling:
        open_disagreement(viewer.reviewer, name)
    elif place is None and name not in viewer.review.under_review:
        viewer.check_overview()
    else:
        hidden = viewer.hides_model(viewer.reviewer.item(name, place))
    return {"model": not hidden, "datasets": viewer.review.shown.one(name, hidden)[1]}


def disagreement_view(viewer: Viewer, name: str) -> dict[str, Any]:
    """Return what reviewers differ about, for somebody who settles it."""
    review, reviewer = viewer.review, viewer.reviewer
    found = open_disagreement(reviewer, name)
    stay = review.store.stay(reviewer.run, name)
    held = [
        {
            "verdict": settlement.verdict,
            "words": VERDICTS[settlement.verdict],
            "reason": settlement.reason,
            "reviewer": settlement.reviewer,
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
        **review.shown.one(name, False)[0],
        **review.shown.choices,
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
        **viewer.review.shown.one(name, False)[0],
    }


def _find(items: list[Item], name: str, place: int | None) -> int:
    for at, item in enumerate(items):
        if item.episode == name and place in (None, item.place):
            return at
    raise UnknownError("this is not in your queue")


def _form(viewer: Viewer, item: Item) -> dict[str, Any]:
    """Return what the form contains: the draft, or the verdict that was withdrawn."""
    draft = viewer.reviewer.draft(item.episode, repeat=item.repeat)
    if draft is not None:
        return draft
    if item.state != "withdrawn":
        return {}
    last = viewer.reviewer.reviews(item.episode, repeat=item.repeat)[-1]
    return {name: getattr(last, name) for name in FIELDS}


def _own_verdict(viewer: Viewer, item: Item) -> dict[str, Any]:
    return _opinion(viewer.reviewer.reviews(item.episode, repeat=item.repeat)[-1])


def _others(viewer: Viewer, name: str) -> list[dict[str, Any]]:
    found = visible_opinions(viewer.reviewer, name)
    return [_opinion(given) for given in found if given.reviewer != viewer.reviewer.name]


def _earlier(viewer: Viewer, name: str) -> list[dict[str, Any]]:
    found = earlier_opinions(viewer.reviewer, name)
    return [_opinion(given) | {"run": given.run} for given in found]


def _opinion(review: Review) -> dict[str, Any]:
    return {
        "review": review.id,
        "reviewer": review.reviewer,
        **{name: getattr(review, name) for name in (*FIELDS, "first_impression")},
        "words": VERDICTS[review.verdict],
        "at": review.created_at,
    }

"""A reviewer's queue, and one stay as the reviewer sees it, to judge it or to settle it.

Before that, the first page has a practice case of which nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import Depends, Response

from butfor.review.queue import Item, is_wanted
from butfor.review.reviewer import (
    CLOSED,
    Reviewer,
    answers_before,
    describe_answer,
    earlier_opinions,
    list_disagreements,
    visible_opinions,
)
from butfor.review.routes.access import Place, Reader, SignedIn
from butfor.review.shown import Viewer, make_slug, read_slug
from butfor.review.state import Review
from butfor.review.verdicts import VERDICTS, Chances, UnknownError, in_a_clause

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
    "disagreement": STATES["disagreement"],
    "settling": "Opened to settle",
    "others": "Read by others",
}
UNLISTED = "not under review"
FIELDS = ("verdict", "variable", "step", "sure", "comment")
QUEUE_PAGE = 100  # places


@dataclass(frozen=True)
class QueueFilters:
    """Which places of a queue are listed, and after which one the list begins."""

    status: str = ""  # a key of ITEM_STATES
    obs: str = ""  # what happened
    text: str = ""  # part of the id, whatever its capitals
    after: Place = None


def show_queue(viewer: Reader, filters: Annotated[QueueFilters, Depends()]) -> dict[str, Any]:
    """Your queue: all places, or those with a status, an outcome or a part of the id."""
    queue = viewer.reviewer.queue()
    progress = queue.progress
    chosen = _choose(viewer, queue.items, filters)
    start = next((i + 1 for i, item in enumerate(chosen) if item.place == filters.after), 0)
    page = chosen[start : start + QUEUE_PAGE]
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
                "status": ITEM_STATES[_status(item)],
                "changed_at": item.changed_at,
            }
            for item in page
        ],
        "filters": {name: getattr(filters, name) for name in ("status", "obs", "text")},
        "states": ITEM_STATES,
        "outcomes": viewer.review.stays.names,
        "matching": len(chosen),
        "start": start,
        "after": page[-1].place if start + QUEUE_PAGE < len(chosen) else None,
        "to_settle": list_to_settle(viewer),
        "undo": _undo_link(viewer, queue.items),
        "overview_open": viewer.review.show_overview or progress.finished,
    }


def _choose(viewer: Viewer, items: list[Item], filters: QueueFilters) -> list[Item]:
    """Return the places that pass the filters, in order."""
    facts, part = viewer.review.facts, filters.text.strip().casefold()
    return [
        item
        for item in items
        if filters.status in ("", _status(item))
        and filters.obs in ("", facts[item.episode]["observed"])
        and part in item.episode.casefold()
    ]


def list_to_settle(viewer: Viewer) -> list[dict[str, Any]]:
    """Return the stays that the reviewer may settle."""
    names = list_disagreements(viewer.reviewer)
    return [{"id": name, "slug": make_slug(name)} for name in names]


def show_next(viewer: Reader) -> dict[str, Any]:
    """What to read next."""
    item = viewer.reviewer.queue().next_item
    return {"next": item and _link(item)}


def show_episode(
    viewer: SignedIn, response: Response, slug: str, place: Place = None
) -> dict[str, Any]:
    """Everything that is shown of a stay; its version is the ETag."""
    review, reviewer, name = viewer.review, viewer.reviewer, viewer.review.find(slug)
    if viewer.coordinates or (place is None and name not in review.under_review):
        return _unlisted_stay(viewer, name)
    queue = reviewer.queue()
    items, counted = queue.items, queue.counted
    here = (i for i, it in enumerate(items) if it.episode == name and place in (None, it.place))
    at = next(here, None)
    if at is None:
        raise UnknownError("this is not in your queue")
    item = items[at]
    if is_wanted(item):
        reviewer.claim(name)  # for a while others are offered another stay
    response.headers["ETag"] = f'"{item.version}"'
    asks = "" if item.closed else viewer.asks(item)
    return {
        **_link(item),
        "run": reviewer.run,
        "reviewer": reviewer.name,
        "number": counted.index(item) + 1 if item in counted else None,
        "total": len(counted),
        "previous": _link(items[at - 1]) if at else None,
        "next": _link(items[at + 1]) if at + 1 < len(items) else None,
        "state": item.state,
        "status": ITEM_STATES[_status(item)],
        "closed": CLOSED.get(item.closed, ""),
        "asks": asks,
        "outcomes": list(review.run.outcomes),
        "first_impression": item.first_impression,
        "answer": _answer(viewer, item),
        **review.one(name, viewer.hides_model(item))[0],
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
        viewer.open_disagreement(name)
    elif viewer.coordinates or (place is None and name not in viewer.review.under_review):
        viewer.check_overview()
    else:
        hidden = viewer.hides_model(viewer.reviewer.item(name, place))
    return {"model": not hidden, **viewer.review.one(name, hidden)[1]}


def show_disagreement(viewer: SignedIn, slug: str, settled: str = "") -> dict[str, Any]:
    """What reviewers differ about; `settled` names the one that you settled before."""
    review, reviewer, name = viewer.review, viewer.reviewer, viewer.review.find(slug)
    found = viewer.open_disagreement(name)
    stay = review.store.stay(reviewer.run, name)
    return {
        "id": name,
        "slug": make_slug(name),
        "run": reviewer.run,
        "reviewer": reviewer.name,
        "state": stay.state,
        "version": stay.version,
        "may_settle": not viewer.coordinates and name in list_disagreements(reviewer),
        "opinions": _opinions(reviewer, found),
        "settlement": _settlement(viewer, name),
        "settled_before": _settled_before(viewer, settled) if settled else None,
        **review.one(name, False)[0],
        **review.choices,
    }


def _settlement(viewer: Viewer, name: str) -> dict[str, Any] | None:
    """Return how a stay was settled, if it is."""
    names = viewer.names()
    for settlement in viewer.review.store.settlements(viewer.reviewer.run, episode=name):
        if settlement.withdrawn_at is None:
            return {
                "verdict": settlement.verdict,
                "words": VERDICTS[settlement.verdict],
                "reason": settlement.reason,
                "reviewer": names[settlement.reviewer],
                "at": settlement.created_at,
                "mine": settlement.reviewer == viewer.reviewer.name,
            }
    return None


def _settled_before(viewer: Viewer, slug: str) -> dict[str, Any] | None:
    """Return the settlement to confirm, which one key withdraws, if it is the reviewer's."""
    name = read_slug(slug)
    held = _settlement(viewer, name)
    if held is None or not held["mine"]:
        return None
    stay = viewer.review.store.stay(viewer.reviewer.run, name)
    words = in_a_clause(held["verdict"])
    return {"id": name, "slug": make_slug(name), "version": stay.version, "words": words}


def _unlisted_stay(viewer: Viewer, name: str) -> dict[str, Any]:
    """Return a stay that is not in a queue of the viewer's, to look at."""
    viewer.check_overview()
    under_review = name in viewer.review.under_review
    state = viewer.review.store.stay(viewer.reviewer.run, name).state if under_review else ""
    return {
        "id": name,
        "slug": make_slug(name),
        "run": viewer.reviewer.run,
        "reviewer": viewer.reviewer.name,
        "state": "",
        "status": STATES.get(state, UNLISTED),
        "closed": "",
        "asks": "",
        **dict.fromkeys(("place", "previous", "next", "mine", "form", "undo", "answer")),
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
        "mine": _opinions(reviewer, [mine])[0] if mine else None,
        "opinions": _opinions(reviewer, [r for r in opinions if r.reviewer != reviewer.name]),
        "earlier": _opinions(reviewer, earlier),
    }


def _answer(viewer: Viewer, item: Item) -> dict[str, Any] | None:
    """Return the chances that the reviewer gave, if any."""
    if item.answer is None:
        return None
    (answer,) = viewer.reviewer.answers(item.episode, repeat=item.repeat)
    return describe_answer(answer, viewer.review.run.outcomes)


def _opinions(reviewer: Reviewer, reviews: Sequence[Review]) -> list[dict[str, Any]]:
    """Return verdicts that are shown, each with the chances that were given before it."""
    answers = answers_before(reviewer, reviews)
    return [
        {
            "review": review.id,
            "run": review.run,
            "reviewer": review.reviewer,
            **{name: getattr(review, name) for name in (*FIELDS, "first_impression")},
            "words": VERDICTS[review.verdict],
            "at": review.created_at,
            "answer": answers.get(review.id),
        }
        for review in reviews
    ]


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
    """Return where a reviewer is with an item, as a key of ITEM_STATES."""
    if item.state == "submitted":
        return "disagreement" if item.stay_state == "disagreement" else "submitted"
    if item.closed == "settling":
        return "settling"
    return item.state if is_wanted(item) else "others"


def show_start(viewer: Reader) -> dict[str, Any]:
    """What the task is, with a practice case if there is one that nobody reviews."""
    return _start(viewer, None)


def show_practice_rows(viewer: Reader, model: bool = False) -> dict[str, Any]:
    """The rows of the practice case's picture, before or after it is solved."""
    name = _case(viewer)
    return {"model": model, **viewer.review.one(name, not model)[1]}


def solve(viewer: Viewer, chances: Chances) -> dict[str, Any]:
    """Return the practice case with what the model says; nothing is recorded."""
    _case(viewer)
    return _start(viewer, chances)


def _case(viewer: Viewer) -> str:
    if viewer.review.practice is None:
        raise UnknownError("there is no practice case: every case is under review")
    return viewer.review.practice


def _start(viewer: Viewer, chances: Chances | None) -> dict[str, Any]:
    """Return what the page shows; without chances the model is hidden if they are asked for."""
    review, name = viewer.review, viewer.review.practice
    outcomes = review.run.outcomes
    hidden = bool(outcomes) and chances is None
    following = viewer.reviewer.queue().next_item
    return {
        "run": review.run.id,
        "outcomes": list(outcomes),
        "needed": review.run.settings.needed,
        "has_practice": name is not None,
        "asks": "chances" if hidden else "",
        "answer": None if chances is None else describe_answer(chances, outcomes),
        "begun": bool(following is None or following.version),
        "version": 0,
        "place": None,
        **review.choices,
        **(review.one(name, hidden)[0] if name is not None else {}),
    }

"""A reviewer's queue as the reviewer sees it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from butfor.review.opinions import list_disagreements
from butfor.review.queue import is_wanted
from butfor.review.tables import Item
from butfor.review.views.review import Viewer
from butfor.review.views.stays import make_slug

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


def queue_view(viewer: Viewer) -> dict[str, Any]:
    """Return a reviewer's queue, without any number of the model."""
    queue = viewer.reviewer.queue()
    progress = queue.progress
    return {
        "run": viewer.reviewer.run,
        "reviewer": viewer.reviewer.name,
        "progress": asdict(progress) | {"finished": progress.finished},
        "next": None if queue.next_item is None else link(queue.next_item),
        "items": [
            {
                **link(item),
                **viewer.review.shown.facts[item.episode],
                "state": item.state,
                "status": item_status(item),
                "changed_at": item.changed_at,
            }
            for item in queue.items
        ],
        "to_settle": [
            {"id": name, "slug": make_slug(name)} for name in list_disagreements(viewer.reviewer)
        ],
        "undo": undo_link(queue.items),
        "overview_open": viewer.review.show_overview or progress.finished,
    }


def next_view(viewer: Viewer) -> dict[str, Any] | None:
    """Return what to read next."""
    item = viewer.reviewer.queue().next_item
    return None if item is None else link(item)


def link(item: Item) -> dict[str, Any]:
    """Return how to find an item again."""
    slug = make_slug(item.episode)
    return {"id": item.episode, "slug": slug, "place": item.place, "version": item.version}


def undo_link(items: list[Item]) -> dict[str, Any] | None:
    """Return the verdict given last, which one key withdraws; none of a settled stay."""
    held = [item for item in items if item.review is not None and item.stay_state != "settled"]
    if not held:
        return None
    last = max(held, key=lambda item: item.review or 0)
    return link(last) | {"review": last.review}


def item_status(item: Item) -> str:
    """Return in words where a reviewer is with an item."""
    if item.state == "submitted":
        differ = item.stay_state == "disagreement"
        return STATES["disagreement"] if differ else ITEM_STATES["submitted"]
    if item.closed == "settling":
        return "Opened to settle"
    return ITEM_STATES[item.state] if is_wanted(item) else "Read by others"

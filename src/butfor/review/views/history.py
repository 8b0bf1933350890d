"""The events of a run in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from butfor.review.events import Event
from butfor.review.export import ANOTHER
from butfor.review.opinions import note_overview
from butfor.review.verdicts import VERDICTS
from butfor.review.views.queue import ITEM_STATES, STATES
from butfor.review.views.review import Viewer
from butfor.review.views.stays import make_slug

PAGE = 200  # events
ACTIONS = {
    "run": "opened this run",
    "join": "joined",
    "impression": "gave a first impression",
    "submit": "gave a verdict",
    "skip": "skipped",
    "withdraw": "withdrew a verdict",
    "settle": "settled",
    "unsettle": "withdrew a settlement",
    "settling": "opened a disagreement",
    "overview": "opened the overview",
}


def history_view(viewer: Viewer, *, after: int = 0) -> dict[str, Any]:
    """Return the events of this run; those of others only if the overview is open."""
    store, run, name = viewer.review.store, viewer.reviewer.run, viewer.reviewer.name
    everybody = viewer.sees_overview()
    if everybody:
        note_overview(viewer.reviewer)
    settled = {stay.episode for stay in store.stays(run) if stay.state == "settled"}
    events = store.events(run=run)
    given = {e.id: e.payload["verdict"] for e in events if e.action in ("submit", "settle")}
    listed = [e for e in events if e.id > after and (everybody or e.reviewer == name)]
    rows = [_describe(event, name, settled, given) for event in listed[:PAGE]]
    return {
        "run": run,
        "everybody": everybody,
        "events": rows,
        "after": rows[-1]["id"] if len(listed) > PAGE else None,
    }


def _describe(
    event: Event, reader: str, settled: set[str], given: Mapping[int, int]
) -> dict[str, Any]:
    """Return an event in words, without what reveals controls or repeats."""
    named = event.reviewer in ("", reader) or not event.episode or event.episode in settled
    before, after, reason = _change(event, given)
    return {
        "id": event.id,
        "at": event.at,
        "who": event.reviewer if named else ANOTHER,
        "stay": event.episode,
        "slug": make_slug(event.episode) if event.episode else "",
        "action": event.action,
        "words": ACTIONS[event.action],
        "before": before,
        "after": after,
        "reason": reason,
        "hash": event.hash,
        "prev_hash": event.prev_hash,
    }


def _change(event: Event, given: Mapping[int, int]) -> tuple[str, str, str]:
    """Return what held before an event, what holds after it, and the reason given."""
    said, differ = event.payload, STATES["disagreement"]
    match event.action:
        case "submit":
            return "", _verdict_words(said["verdict"]), said["comment"]
        case "withdraw":
            return _verdict_words(given.get(said["review"], 0)), "", ""
        case "settle":
            return differ, _verdict_words(said["verdict"]), said["reason"]
        case "unsettle":
            return _verdict_words(given.get(said["settlement"], 0)), differ, ""
        case "impression":
            return "", "", said["answer"]
        case "skip":
            return "", ITEM_STATES["skipped"], ""
    return "", "", ""


def _verdict_words(verdict: int) -> str:
    return f"({verdict}) {VERDICTS[verdict]}" if verdict in VERDICTS else ""

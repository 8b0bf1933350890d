"""The first page: what the task is, and a practice case of which nothing is recorded."""

from __future__ import annotations

from typing import Any

from butfor.review.opinions import describe_answer
from butfor.review.routes.access import Reader
from butfor.review.shown import Viewer
from butfor.review.verdicts import Chances, UnknownError


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

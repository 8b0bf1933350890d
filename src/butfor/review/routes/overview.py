"""Views of the whole run: what it is about, all stays, the results, and its history in words.

A coordinator sees how far it has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request

from butfor.evaluate.wording import percent
from butfor.present.experts import experts_view
from butfor.present.story import outcome_chances
from butfor.review.coordination import DifferingStay, ReviewerProgress, WaitingStay, read_progress
from butfor.review.export import plain_value
from butfor.review.routes.access import MOST, Coordinator, SignedIn, find_access
from butfor.review.routes.stay import ITEM_STATES, STATES, UNLISTED
from butfor.review.shown import AuditReview, make_slug
from butfor.review.state import Event
from butfor.review.verdicts import VERDICTS, chances_in_words

CAVEATS = {
    "estimate": "A model estimate, not a fact.",
    "bounds": "Holds only if the model is right.",
    "interval": "Covers chance in the sample, not errors in the model.",
    "flag": "A flag means “read this chart”, not “the policy is better”.",
}
LIST_PAGE = 100  # stays
HISTORY_PAGE = 200  # events
SORTS = {"steps": "length", "thin": "thin_share", "difference": "difference"}
COORDINATOR = "Coordinator"
LISTED_STATES = STATES | {"none": UNLISTED.capitalize()}
ACTIONS = {
    "run": "opened this run",
    "join": "joined",
    "coordinate": "began to coordinate",
    "impression": "gave a first impression",
    "answer": "gave the chances",
    "submit": "gave a verdict",
    "skip": "skipped",
    "withdraw": "withdrew a verdict",
    "settle": "settled",
    "unsettle": "withdrew a settlement",
    "settling": "opened a disagreement",
    "overview": "opened the overview",
}


@dataclass(frozen=True)
class ListFilters:
    """Which stays a list has, in which order, and after which one it begins."""

    obs: str = ""  # what happened
    model: str = ""  # the likeliest outcome in the model
    status: str = ""
    sort: str = ""  # a key of SORTS, or id; "-" in front reverses
    after: str = ""


@dataclass(frozen=True)
class HistoryFilters:
    """Which lines a history has, and after which one it begins."""

    who: str = ""  # a pseudonym, or COORDINATOR
    action: str = ""  # a key of ACTIONS
    stay: str = ""
    text: str = ""  # part of what a line says, whatever its capitals
    after: Annotated[int, Query(ge=0, le=MOST)] = 0


def show_run(viewer: SignedIn) -> dict[str, Any]:
    """Hashes, thresholds and caveats of the run under review."""
    review, stays, meta = viewer.review, viewer.review.stays, viewer.review.audit.meta
    return {
        "run": review.run.id,
        "opened_at": review.run.opened_at,
        "digest": meta.digest,
        "butfor": meta.butfor,
        "policy": meta.target,
        "episodes": meta.counts.episodes,
        "needed": review.run.settings.needed,
        "first_impression": review.run.settings.first_impression,
        "asked_outcomes": list(review.run.outcomes),
        "noun": stays.noun,
        "nouns": stays.nouns,
        "hidden": stays.hidden(),
        "inferred": stays.inferred(),
        "outcomes": stays.names,
        "verdicts": review.choices["verdicts"],
        "caveats": CAVEATS,
    }


def show_overview(viewer: SignedIn) -> dict[str, Any]:
    """Numbers about all stays, once your queue is done."""
    viewer.check_overview()
    made = _charts(viewer.review)
    charts = {
        name: {key: made[name][key] for key in ("caption", "table")}
        for name in ("estimates", "glance")
    }
    return {
        "run": viewer.reviewer.run,
        "conclusion": made["conclusion"],
        **charts,
        "cells": made["cells"],
    }


def show_chart(
    viewer: SignedIn, name: Literal["estimates", "overview", "trajectory"], model: bool = True
) -> dict[str, Any]:
    """A chart as a Vega-Lite template, and its rows."""
    if name == "trajectory":
        return {"spec": viewer.review.template(model), "datasets": {}}
    viewer.check_overview()
    made = _charts(viewer.review)["glance" if name == "overview" else name]
    return {"spec": made["spec"], "datasets": made.get("datasets", {})}


def _charts(review: AuditReview) -> dict[str, Any]:
    return review.overview | {"estimates": review.estimates(review.store.last_event())}


def list_episodes(viewer: SignedIn, filters: Annotated[ListFilters, Depends()]) -> dict[str, Any]:
    """Stays by what happened, what the model says, and state, once your queue is done."""
    viewer.check_overview()
    review = viewer.review
    states = {stay.episode: stay.state for stay in review.store.stays(viewer.reviewer.run)}
    chosen = _choose(review, states, filters)
    start = chosen.index(filters.after) + 1 if filters.after in chosen else 0
    page = chosen[start : start + LIST_PAGE]
    return {
        "run": viewer.reviewer.run,
        "filters": {key: value for key, value in asdict(filters).items() if key != "after"},
        "outcomes": review.stays.names,
        "states": LISTED_STATES,
        "total": len(chosen),
        "scope": review.stays.scope,
        "start": start,
        "episodes": [_row(review, name, states.get(name, "none")) for name in page],
        "after": page[-1] if start + LIST_PAGE < len(chosen) else None,
        "caveat": CAVEATS["estimate"],
        "compared": review.stays.compared,
    }


def _choose(review: AuditReview, states: Mapping[str, str], filters: ListFilters) -> list[str]:
    """Return the names of the stays that pass the filters, in order."""
    table = review.table
    if filters.obs:
        table = table[table["observed_outcome"] == filters.obs]
    if filters.model:
        table = table[table["most_likely"] == filters.model]
    if filters.status:
        table = table[[states.get(name, "none") == filters.status for name in table.index]]
    column = SORTS.get(filters.sort.removeprefix("-"))
    if column is not None:
        up = not filters.sort.startswith("-")
        table = table.sort_values(column, ascending=up, kind="stable")
    elif filters.sort == "-id":
        table = table[::-1]
    return table.index.tolist()


def _row(review: AuditReview, name: str, state: str) -> dict[str, Any]:
    row = review.table.loc[name]
    likeliest = str(row["most_likely"])
    probability = dict(outcome_chances(row, review.stays.names))[likeliest]
    numbers = ("difference", "low_any", "high_any", "thin_share", "evidence_min")
    return {
        "id": name,
        "slug": make_slug(name),
        **review.facts[name],
        "model": likeliest,
        "probability": probability,
        "words": percent(probability),
        **{key: plain_value(row[key]) for key in numbers},
        "differs": review.gaps.gap(float(row["difference"])),
        "range": review.digits.span(float(row["low_any"]), float(row["high_any"])),
        "state": state,
        "status": LISTED_STATES[state],
    }


def show_results(viewer: SignedIn) -> dict[str, Any]:
    """The results of the review, once your queue is done."""
    viewer.check_overview()
    review, reviewer = viewer.review, viewer.reviewer
    event = review.store.last_event()
    found = review.results(event)
    names = viewer.names()
    pairs = tuple(
        replace(pair, first=names[pair.first], second=names[pair.second])
        for pair in found.agreement.kappas
    )
    return asdict(replace(found, agreement=replace(found.agreement, kappas=pairs))) | {
        "experts": experts_view(review.experts(event), review.audit),
        # a coordinator who reviewed an earlier run has one, but not in this run
        "pseudonym": None if viewer.coordinates else review.store.pseudonyms()[reviewer.name],
        "names_shown": viewer.coordinates or review.store.closed(reviewer.run),
    }


def show_agreement(viewer: SignedIn) -> dict[str, Any]:
    """How far reviewers agree, once your queue is done."""
    agreement: dict[str, Any] = show_results(viewer)["agreement"]
    return agreement


def show_events(viewer: SignedIn, filters: Annotated[HistoryFilters, Depends()]) -> dict[str, Any]:
    """Your actions, and those of everybody once your queue is done or if you coordinate."""
    store, run, name = viewer.review.store, viewer.reviewer.run, viewer.reviewer.name
    everybody = viewer.sees_overview()
    if everybody:
        viewer.note_overview()
    events, called, names = store.events(run=run), store.pseudonyms(), viewer.names()
    given = {e.id: e.payload["verdict"] for e in events if e.action in ("submit", "settle")}
    outcomes = viewer.review.run.outcomes
    seen = [event for event in events if everybody or event.reviewer == name]
    found = [
        _describe(event, names, given, outcomes)
        for event in seen
        if _is_asked_for(event, called, filters)
    ]
    part = filters.text.strip().casefold()
    found = [row for row in found if not part or part in _text(row)]
    left = [row for row in found if row["id"] > filters.after]
    page = left[:HISTORY_PAGE]
    return {
        "run": run,
        "everybody": everybody,
        "filters": {key: value for key, value in asdict(filters).items() if key != "after"},
        "people": _people(seen, called, names) if everybody else {},
        "actions": ACTIONS,
        "total": len(found),
        "start": len(found) - len(left),
        "events": page,
        "after": page[-1]["id"] if len(left) > HISTORY_PAGE else None,
    }


def _who(event: Event, names: Mapping[str, str]) -> str:
    return COORDINATOR if event.action == "coordinate" else names.get(event.reviewer, "")


def _people(
    events: Iterable[Event], called: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, str]:
    """Return who acted, as they are shown, by what a filter calls them."""
    return {_who(e, called): _who(e, names) for e in events if e.reviewer}


def _is_asked_for(event: Event, called: Mapping[str, str], filters: HistoryFilters) -> bool:
    return (
        filters.who in ("", _who(event, called))
        and filters.action in ("", event.action)
        and filters.stay.strip() in ("", event.episode)
    )


def _text(row: Mapping[str, Any]) -> str:
    """Return what a line of the history says, to search in."""
    shown = (row[key] for key in ("who", "stay", "words", "before", "after", "reason"))
    return "\n".join(shown).casefold()


def _describe(
    event: Event, names: Mapping[str, str], given: Mapping[int, int], outcomes: Sequence[str]
) -> dict[str, Any]:
    """Return an event in words, without what reveals controls or repeats."""
    before, after, reason = _change(event, given, outcomes)
    return {
        "id": event.id,
        "at": event.at,
        "who": _who(event, names),
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


def _change(
    event: Event, given: Mapping[int, int], outcomes: Sequence[str]
) -> tuple[str, str, str]:
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
        case "answer":
            return "", chances_in_words(said["out_of_ten"], outcomes, said["reason"]), ""
        case "skip":
            return "", ITEM_STATES["skipped"], ""
    return "", "", ""


def _verdict_words(verdict: int) -> str:
    return f"({verdict}) {VERDICTS[verdict]}" if verdict in VERDICTS else ""


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

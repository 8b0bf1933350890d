"""Numbers about all stays: the overview, the list of stays, and the results of the review."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from butfor.evaluate.wording import percent
from butfor.present.stays import outcome_chances
from butfor.review.agreement import Agreement
from butfor.review.export import plain_value
from butfor.review.opinions import number_names
from butfor.review.results import Results
from butfor.review.views.queue import STATES
from butfor.review.views.review import CAVEATS, Viewer
from butfor.review.views.stay import UNLISTED
from butfor.review.views.stays import ShownStays, make_slug

PAGE = 100  # rows of a list
SORTS = {"steps": "length", "thin": "thin_share", "difference": "difference"}
LISTED_STATES = STATES | {"none": UNLISTED.capitalize()}


@dataclass(frozen=True)
class ListFilters:
    """Which stays a list has, in which order, and after which one it begins."""

    obs: str = ""  # what happened
    model: str = ""  # the likeliest outcome in the model
    status: str = ""
    sort: str = ""  # a key of SORTS, or id; "-" in front reverses
    after: str = ""


def overview_view(viewer: Viewer) -> dict[str, Any]:
    """Return numbers about all stays: estimates, all stays at a glance, the table of cells."""
    viewer.check_overview()
    made = viewer.review.shown.overview
    charts = {
        name: {key: made[name][key] for key in ("caption", "table")}
        for name in ("estimates", "glance")
    }
    return {"run": viewer.reviewer.run, **charts, "cells": made["cells"]}


def chart_view(viewer: Viewer, name: str) -> dict[str, Any]:
    """Return a chart of the overview: its template and its rows."""
    viewer.check_overview()
    made = viewer.review.shown.overview[name]
    return {"spec": made["spec"], "datasets": made.get("datasets", {})}


def list_view(viewer: Viewer, filters: ListFilters) -> dict[str, Any]:
    """Return stays by what happened, the likeliest outcome in the model, and state."""
    viewer.check_overview()
    shown = viewer.review.shown
    states = {stay.episode: stay.state for stay in viewer.review.store.stays(viewer.reviewer.run)}
    chosen = _choose(shown, states, filters)
    start = chosen.index(filters.after) + 1 if filters.after in chosen else 0
    page = chosen[start : start + PAGE]
    return {
        "run": viewer.reviewer.run,
        "filters": {key: value for key, value in asdict(filters).items() if key != "after"},
        "outcomes": shown.stays.names,
        "states": LISTED_STATES,
        "total": len(chosen),
        "scope": shown.stays.scope,
        "start": start,
        "episodes": [_row(shown, name, states.get(name, "none")) for name in page],
        "after": page[-1] if start + PAGE < len(chosen) else None,
        "caveat": CAVEATS["estimate"],
    }


def _choose(shown: ShownStays, states: Mapping[str, str], filters: ListFilters) -> list[str]:
    """Return the names of the stays that pass the filters, in order."""
    table = shown.table
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


def _row(shown: ShownStays, name: str, state: str) -> dict[str, Any]:
    row = shown.table.loc[name]
    likeliest = str(row["most_likely"])
    probability = dict(outcome_chances(row, shown.stays.names))[likeliest]
    return {
        "id": name,
        "slug": make_slug(name),
        **shown.facts[name],
        "model": likeliest,
        "probability": probability,
        "words": percent(probability),
        "difference": float(row["difference"]),
        "low_any": plain_value(row["low_any"]),
        "high_any": plain_value(row["high_any"]),
        "thin_share": float(row["thin_share"]),
        "evidence_min": float(row["evidence_min"]),
        "state": state,
        "status": LISTED_STATES[state],
    }


def results_view(viewer: Viewer) -> Results:
    """Return the results of the review so far, without the names of other reviewers."""
    viewer.check_overview()
    found = viewer.review.results()
    return replace(found, agreement=_hide_names(found.agreement, viewer.reviewer.name))


def _hide_names(found: Agreement, reader: str) -> Agreement:
    names = number_names((n for pair in found.kappas for n in (pair.first, pair.second)), reader)
    pairs = (replace(p, first=names[p.first], second=names[p.second]) for p in found.kappas)
    return replace(found, kappas=tuple(pairs))

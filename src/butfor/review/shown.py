"""What is shown of an audit under review: its stays, and the reviewer who looks at them."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

import pandas as pd

from butfor.audit.audit import Audit
from butfor.audit.experts import ExpertValue
from butfor.evaluate.wording import Digits, percent
from butfor.log.recorded import RAW
from butfor.present import Stays
from butfor.present.report import content
from butfor.present.report.estimates import estimates_section
from butfor.present.story import outcome_chances
from butfor.review.coordination import read_disagreement
from butfor.review.experts import view_experts
from butfor.review.export import plain_value
from butfor.review.queue import Item
from butfor.review.results import Results, summarize
from butfor.review.reviewer import Reviewer, names_for, note_overview, open_disagreement, rename
from butfor.review.state import Review, Run
from butfor.review.store import Store
from butfor.review.verdicts import SURE, VERDICTS, RefusedError, RunChangedError, UnknownError

PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
REMEMBERED = 2000  # stays whose views are kept in memory


@dataclass(frozen=True, eq=False)
class AuditReview:
    """An audit under review: what it says, and what reviewers said about it."""

    audit: Audit
    store: Store
    run: Run
    show_overview: bool = False  # even to reviewers whose queue is not done

    @cached_property
    def stays(self) -> Stays:
        """The stays in words and rows, from a table that does not reveal the flags."""
        masked = self.audit.episodes.assign(rank=0, reason="", control=False)
        return Stays(replace(self.audit, episodes=masked))

    @cached_property
    def ids(self) -> dict[str, Any]:
        """The id of each stay by its name, which is the id as text, in the order of the log."""
        return {str(name): name for name in self.audit.episodes["id"].tolist()}

    @cached_property
    def table(self) -> pd.DataFrame:
        """The audit's table of episodes, by name."""
        return self.audit.episodes.set_axis(pd.Index(list(self.ids), dtype=object))

    @cached_property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What happened in each stay and how many steps it took, by name."""
        columns = (self.table["observed_outcome"].astype(str), self.table["length"].tolist())
        return {
            name: {"observed": observed, "steps": int(steps)}
            for name, observed, steps in zip(self.ids, *columns, strict=True)
        }

    @cached_property
    def under_review(self) -> frozenset[str]:
        """The names of the stays under review."""
        return frozenset(stay.episode for stay in self.store.stays(self.run.id))

    @cached_property
    def practice(self) -> str | None:
        """The name of a stay to practise on: not under review, and treated differently."""
        row = self.table
        others = row[~row.index.isin(self.under_review) & (row["first_change"] >= 0)]
        if others.empty:
            return None
        # first one with another outcome, then one in the middle: neither trivial nor extreme
        size = others["difference"].abs()
        other = others["observed_outcome"] != others["most_likely"]
        ranked = size[other if other.any() else slice(None)].sort_values(kind="stable")
        return str(ranked.index[len(ranked) // 2])

    def find(self, slug: str) -> str:
        """Return the name of the stay that an address is about."""
        name = read_slug(slug)
        if name not in self.ids:
            raise UnknownError(f"there is no such {self.stays.noun}")
        return name

    def check_run(self, run: str | None) -> None:
        """Raise if a request is about another run."""
        if run is not None and run != self.run.id:
            raise RunChangedError(self.run.id)

    @cached_property
    def results(self) -> Callable[[int], Results]:
        """Return the results up to an event; cached until the next one."""
        return lru_cache(maxsize=1)(lambda event: summarize(self.store, self.run.id))

    @cached_property
    def experts(self) -> Callable[[int], ExpertValue | str]:
        """Return the experts' view up to an event, or why there is none; cached likewise."""
        return lru_cache(maxsize=1)(lambda event: view_experts(self.audit, self.store))

    @cached_property
    def template(self) -> Callable[[bool], dict[str, Any]]:
        """Return the chart of every stay, with or without the model, but without rows; cached."""
        return cache(lambda model: self.stays.template(model=model))

    @cached_property
    def one(self) -> Callable[[str, bool], tuple[dict[str, Any], dict[str, Any]]]:
        """Return what a page shows of a stay and the rows of its picture; cached.

        The arguments are the stay's name and whether the model is hidden.
        """
        return lru_cache(maxsize=REMEMBERED)(self._one)

    def _one(self, name: str, without_model: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        made = self.stays.one(self.ids[name])
        if without_model:
            made |= self.stays.record(self.ids[name]) | {"description": made["title"]}
        keys = ("title", "description", "given", "recorded", "inferred", "side", "notes", "table")
        shown = {key: made[key] for key in keys} | self.facts[name]
        shown["size"] = self.stays.size(model=not without_model)
        shown["treatments"] = self.stays.treatments(self.ids[name])
        shown["model"] = None if without_model else self._model(name, made)
        return shown, {key: made[key] for key in ("datasets", "near")}

    def _model(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        """Return what the model says about a stay."""
        row = self.table.loc[name]
        numbers = ("low_any", "high_any", "thin_share", "evidence_min", "expected_return")
        return {
            **{key: made[key] for key in ("story", "says", "caveat", "risk", "range", "first")},
            "outcomes": [
                {"outcome": outcome, "probability": chance, "words": percent(chance)}
                for outcome, chance in outcome_chances(row, self.stays.names)
            ],
            "first_change": made["first_change"],
            **{key: plain_value(row[key]) for key in numbers},
        }

    @cached_property
    def choices(self) -> dict[str, Any]:
        """What the form of a verdict offers."""
        layout = self.stays.layout
        names = [*self.stays.hidden(), *(v.name for v in (*layout.state, *layout.action))]
        steps = self.audit.steps.columns
        names += [name.removeprefix(RAW) for name in steps if name.startswith(RAW)]
        return {
            "verdicts": {str(number): words for number, words in VERDICTS.items()},
            "sure": list(SURE),
            "variables": list(dict.fromkeys(names)),
        }

    @cached_property
    def digits(self) -> Digits:
        """How expected returns are written."""
        return self.stays.digits(self.table["expected_return"])

    @cached_property
    def gaps(self) -> Digits:
        """How differences in return are written."""
        return self.stays.digits(self.table["difference"])

    @cached_property
    def estimates(self) -> Callable[[int], dict[str, Any]]:
        """Return the chart and the table of estimates up to an event; cached likewise."""
        return lru_cache(maxsize=1)(
            lambda event: estimates_section(self.stays, self.experts(event))
        )

    @cached_property
    def overview(self) -> dict[str, Any]:
        """The charts and tables about all stays, apart from the estimates."""
        return {
            "conclusion": content.conclusion(self.stays),
            "glance": content.glance(self.stays, flags=False),
            "cells": content.cells(self.stays),
        }


@dataclass(frozen=True)
class Viewer:
    """Somebody who looks at an audit under review: a reviewer, or a coordinator without a queue."""

    review: AuditReview
    reviewer: Reviewer
    coordinates: bool = False

    def item(self, slug: str, place: int | None = None, run: str | None = None) -> Item:
        """Return a place in the queue by its number; without one, the first of the stay."""
        self.review.check_run(run)
        return self.reviewer.item(self.review.find(slug), place)

    def hides_model(self, item: Item) -> bool:
        """Return whether the model stays hidden because something is to be said before."""
        return bool(self.asks(item)) and item.closed != "settling"

    def asks(self, item: Item) -> str:
        """Return what a reviewer has to say before seeing the model: impression, chances or ""."""
        if self.review.run.settings.first_impression and item.first_impression is None:
            return "impression"
        return "chances" if self.review.run.outcomes and item.answer is None else ""

    def sees_overview(self) -> bool:
        """Return whether numbers about all stays can no longer influence this reviewer."""
        if self.coordinates or self.review.show_overview:
            return True
        return self.reviewer.queue().progress.finished

    def note_overview(self) -> None:
        """Record that a reviewer sees numbers about all stays; coordinators give no verdicts."""
        if not self.coordinates:
            note_overview(self.reviewer)

    def names(self) -> dict[str, str]:
        """Return what each reviewer is called; coordinators see names beside pseudonyms."""
        if not self.coordinates:
            return names_for(self.reviewer)
        known = self.review.store.pseudonyms()
        return {name: f"{name} ({pseudonym})" for name, pseudonym in known.items()}

    def open_disagreement(self, name: str) -> list[Review]:
        """Return what reviewers said about a stay on which they differ."""
        if not self.coordinates:
            return open_disagreement(self.reviewer, name)
        return rename(read_disagreement(self.review.store, self.reviewer.run, name), self.names())

    def check_overview(self) -> None:
        """Raise if the queue is not done; otherwise record that an overview is shown."""
        if self.sees_overview():
            self.note_overview()
            return
        progress, stays = self.reviewer.queue().progress, self.review.stays
        noun = stays.noun if progress.skipped == 1 else stays.nouns
        left = (
            f"Still to be read: {progress.left}"
            if progress.left
            else f"You skipped {progress.skipped} {noun}: read what you can, or ask whoever runs "
            "the review to open this page for you"
        )
        raise RefusedError(
            f"this opens once your queue is done, so that it does not influence you. {left}"
        )

    def check_names(self) -> None:
        """Raise while the names of other reviewers are hidden."""
        if not (self.coordinates or self.review.store.closed(self.reviewer.run)):
            raise RefusedError(
                f"names stay hidden until every {self.review.stays.noun} is reviewed or settled; "
                "coordinators and whoever runs the review can export them before"
            )


def make_slug(name: str) -> str:
    """Return a stay's name as part of an address, whatever characters it contains."""
    if PLAIN.fullmatch(name):
        return name
    return "~" + base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode().strip("=")


def read_slug(slug: str) -> str:
    """Return the name that `make_slug` turned into a slug."""
    if not slug.startswith("~"):
        return slug
    try:
        padded = slug[1:] + "=" * (-len(slug[1:]) % 4)
        return base64.b64decode(padded.encode(), b"-_", True).decode("utf-8", "surrogatepass")
    except ValueError:
        return slug

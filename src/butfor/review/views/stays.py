"""What is shown of an audit's stays, whoever looks at them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import pandas as pd

from butfor.audit.audit import Audit
from butfor.evaluate.wording import percent
from butfor.present import Stays
from butfor.present.report import content
from butfor.present.stays import outcome_chances
from butfor.review.export import plain_value
from butfor.review.verdicts import SURE, VERDICTS, UnknownError

PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
REMEMBERED = 2000  # stays whose views are kept in memory


@dataclass(frozen=True, eq=False)
class ShownStays:
    """The stays of an audit as reviewers see them: flagged ones and controls alike."""

    audit: Audit

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
        table = self.audit.episodes
        columns = (table["observed_outcome"].astype(str), table["length"].astype(int).tolist())
        return {
            name: {"observed": observed, "steps": steps}
            for name, observed, steps in zip(self.ids, *columns, strict=True)
        }

    def find(self, slug: str) -> str:
        """Return the name of the stay that an address is about."""
        name = read_slug(slug)
        if name not in self.ids:
            raise UnknownError(f"there is no such {self.stays.noun}")
        return name

    @cached_property
    def template(self) -> dict[str, Any]:
        """The chart of every stay, without rows."""
        return self.stays.template()

    @cached_property
    def template_without_model(self) -> dict[str, Any]:
        """The chart of every stay as long as the model is hidden, without rows."""
        return self.stays.template(model=False)

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
        keys = ("title", "description", "given", "inferred", "side", "notes", "table")
        shown = {key: made[key] for key in keys} | self.facts[name]
        shown["model"] = None if without_model else self._model(name, made)
        return shown, made["datasets"]

    def _model(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        """Return what the model says about a stay."""
        row = self.table.loc[name]
        numbers = ("low_any", "high_any", "thin_share", "evidence_min", "expected_return")
        return {
            **{key: made[key] for key in ("says", "caveat", "range", "first")},
            "outcomes": [
                {"outcome": outcome, "probability": chance, "words": percent(chance)}
                for outcome, chance in outcome_chances(row, self.stays.names)
            ],
            "first_change": int(row["first_change"]),
            **{key: plain_value(row[key]) for key in numbers},
        }

    @cached_property
    def choices(self) -> dict[str, Any]:
        """What the form of a verdict offers."""
        layout = self.stays.layout
        names = [*self.stays.hidden(), *(v.name for v in (*layout.state, *layout.action))]
        return {
            "verdicts": {str(number): words for number, words in VERDICTS.items()},
            "sure": list(SURE),
            "variables": list(dict.fromkeys(names)),
        }

    @cached_property
    def overview(self) -> dict[str, Any]:
        """The charts and tables about all stays."""
        return {
            "estimates": content.estimates(self.stays),
            "glance": content.glance(self.stays, flags=False),
            "cells": content.cells(self.stays),
        }


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
    except (ValueError, binascii.Error):
        return slug

"""What a reviewer sees: views of the store and the audit as plain values.

A page is the HTML of a view and its twin is the same view as JSON, so both show the same and hide
the same: which stays are controls or come back, what others said before one's own verdict, what
the model says before the first impression, and all overviews before one's queue is done.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from butfor.audit.audit import Audit
from butfor.evaluate.wording import percent
from butfor.present import Stays
from butfor.present.report import content
from butfor.present.stays import outcome_chances
from butfor.review.agreement import mask_pairs
from butfor.review.export import plain_value
from butfor.review.ledger import Event
from butfor.review.projection import Item, Review, Run
from butfor.review.queue import Progress, is_wanted
from butfor.review.results import Results, summarize
from butfor.review.store import CLOSED, Store
from butfor.review.verdicts import SURE, VERDICTS, RefusedError, RunChangedError, UnknownError

PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
PAGE = 100  # rows of a list
STATES = {  # of a stay
    "waiting": "Waiting",
    "in_review": "In review",
    "reviewed": "Reviewed",
    "disagreement": "Reviewers differ",
    "settled": "Settled",
}
MINE = {  # of a reviewer with a stay
    "waiting": "Waiting",
    "draft": "Begun",
    "submitted": "Done",
    "skipped": "Skipped",
    "withdrawn": "Taken back",
}
SETTLING, OTHERS = "Opened to settle", "Read by others"
SORTS = {"steps": "length", "thin": "thin_share", "difference": "difference"}
UNLISTED = "not under review"
ACTIONS = {
    "run": "opened this run",
    "join": "joined",
    "impression": "gave a first impression",
    "submit": "gave a verdict",
    "skip": "skipped",
    "withdraw": "took a verdict back",
    "settle": "settled",
    "unsettle": "took a settlement back",
    "settling": "opened what others differ about",
    "overview": "opened the overview",
}


@dataclass(frozen=True, eq=False)
class Desk:
    """An audit under review: what it says, and what reviewers said about it."""

    audit: Audit
    store: Store
    run: Run
    show_overview: bool = False  # also to those whose queue is not done

    def warm_up(self) -> None:
        """Make what the first page would wait for."""
        self.template()
        if self._ids:
            self._one(next(iter(self._ids)), False)

    # -------------------------------------------------------------------------------------- names

    @cached_property
    def stays(self) -> Stays:
        """What is shown of the audit's stays, made of a table that does not tell flags."""
        masked = self.audit.episodes.assign(rank=0, reason="", control=False)
        return Stays(replace(self.audit, episodes=masked))

    @cached_property
    def _ids(self) -> dict[str, Any]:
        return {str(name): name for name in self.audit.episodes["id"].tolist()}

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self._ids)}

    @cached_property
    def _observed(self) -> list[str]:
        return self.audit.episodes["observed_outcome"].astype(str).tolist()

    @cached_property
    def _lengths(self) -> list[int]:
        return self.audit.episodes["length"].astype(int).tolist()

    @cached_property
    def _under_review(self) -> frozenset[str]:
        return frozenset(stay.episode for stay in self.store.stays(self.run.id))

    def named(self, slug: str) -> str:
        """Return the stay of an address."""
        name = read_slug(slug)
        if name not in self._ids:
            raise UnknownError(f"there is no such {self.stays.noun}")
        return name

    def check_run(self, run: str | None) -> None:
        """Refuse what is about another run."""
        if run is not None and run != self.run.id:
            raise RunChangedError(
                "the model, the policy or the data changed since; open the page again", self.run.id
            )

    def observed(self, name: str) -> str:
        """Return what happened."""
        return self._observed[self._rows[name]]

    def length(self, name: str) -> int:
        """Return how many steps a stay has."""
        return self._lengths[self._rows[name]]

    # -------------------------------------------------------------------------------------- queue

    def about_run(self) -> dict[str, Any]:
        """Return what the run is: hashes, thresholds, caveats."""
        meta = self.audit.meta
        return {
            "run": self.run.id,
            "opened_at": self.run.opened_at,
            "digest": meta.digest,
            "butfor": meta.butfor,
            "policy": meta.target,
            "episodes": meta.counts.episodes,
            "needed": self.run.settings.needed,
            "first_impression": self.run.settings.first_impression,
            "noun": self.stays.noun,
            "nouns": self.stays.nouns,
            "hidden": self.stays.hidden(),
            "inferred": self.stays.inferred(),
            "outcomes": self.stays.names,
            "verdicts": {str(number): words for number, words in VERDICTS.items()},
            "caveats": CAVEATS,
        }

    def queue(self, reviewer: str) -> dict[str, Any]:
        """Return a reviewer's queue; no number of the model."""
        work = self.store.work(self.run.id, reviewer)
        progress = work.progress
        return {
            "run": self.run.id,
            "reviewer": reviewer,
            "progress": asdict(progress) | {"finished": progress.finished},
            "next": None if work.following is None else self._link(work.following),
            "items": [self._listed(item) for item in work.items],
            "to_settle": [
                {"id": name, "slug": make_slug(name)}
                for name in self.store.to_settle(self.run.id, reviewer)
            ],
            "undo": self._undo(work.items),
            "overview_open": self.show_overview or progress.finished,
        }

    def following(self, reviewer: str) -> dict[str, Any] | None:
        """Return what to read next."""
        item = self.store.next_item(self.run.id, reviewer)
        return None if item is None else self._link(item)

    def _listed(self, item: Item) -> dict[str, Any]:
        return {
            **self._link(item),
            "observed": self.observed(item.episode),
            "steps": self.length(item.episode),
            "state": item.state,
            "status": _status(item),
            "changed_at": item.changed_at,
        }

    def _link(self, item: Item) -> dict[str, Any]:
        return {
            "id": item.episode,
            "slug": make_slug(item.episode),
            "place": item.place,
            "version": item.version,
        }

    def _undo(self, items: list[Item]) -> dict[str, Any] | None:
        """Return the verdict given last, which one key takes back; none of a settled stay."""
        held = [item for item in items if item.review is not None and item.stay_state != "settled"]
        if not held:
            return None
        last = max(held, key=lambda item: item.review or 0)
        return self._link(last) | {"review": last.review}

    # --------------------------------------------------------------------------------- one stay

    def item(self, reviewer: str, name: str, place: int | None = None) -> Item:
        """Return a place of a reviewer's queue, by its number; without one, the first of a stay."""
        return self.store.item_at(self.run.id, reviewer, name, place)

    def stay(self, reviewer: str, name: str, place: int | None = None) -> dict[str, Any]:
        """Return all that a reviewer sees of a stay."""
        if place is None and name not in self._under_review:
            return self._other_stay(reviewer, name)
        items = self.store.queue(self.run.id, reviewer)
        item = _pick(items, name, place)
        if is_wanted(item):
            self.store.claim(self.run.id, reviewer, name)
        at = items.index(item)
        hidden = self.hides_model(item)
        done = item.state == "submitted"
        seen = done or not item.repeat
        return {
            **self._link(item),
            "run": self.run.id,
            "reviewer": reviewer,
            "number": at + 1,
            "total": len(items),
            "previous": self._link(items[at - 1]) if at else None,
            "next": self._link(items[at + 1]) if at + 1 < len(items) else None,
            "state": item.state,
            "status": _status(item),
            "closed": CLOSED.get(item.closed, ""),
            "asks_impression": hidden and not item.closed,
            "first_impression": item.first_impression,
            **self._shown(name, hidden),
            **self._choices(name),
            "form": self._form(item),
            "mine": self._mine(item) if done else None,
            "opinions": self._opinions(reviewer, name) if done and not item.repeat else [],
            "earlier": self._earlier(reviewer, name) if seen else [],
            "undo": self._undo(items),
            "settled": item.stay_state == "settled" and done,
        }

    def hides_model(self, item: Item) -> bool:
        """Tell whether the reviewer has to say something before seeing the model."""
        asked = self.run.settings.first_impression and item.closed != "settling"
        return asked and item.first_impression is None

    def _other_stay(self, reviewer: str, name: str) -> dict[str, Any]:
        """Return a stay that is not in the reviewer's queue, to look at."""
        self.check_overview(reviewer)
        return {
            "id": name,
            "slug": make_slug(name),
            "place": None,
            "run": self.run.id,
            "reviewer": reviewer,
            "state": "",
            "status": UNLISTED,
            "closed": "",
            "asks_impression": False,
            "previous": None,
            "next": None,
            "mine": None,
            "form": None,
            "undo": None,
            "opinions": [],
            "earlier": [],
            **self._shown(name, False),
        }

    def trajectory(
        self, reviewer: str, name: str, place: int | None = None, *, settling: bool = False
    ) -> dict[str, Any]:
        """Return the rows of a stay's picture."""
        hidden = False
        if settling:
            self.store.open_disagreement(self.run.id, reviewer, name)
        elif place is None and name not in self._under_review:
            self.check_overview(reviewer)
        else:
            hidden = self.hides_model(self.item(reviewer, name, place))
        return {"model": not hidden, "datasets": self._one(name, hidden)["datasets"]}

    def template(self, *, model: bool = True) -> dict[str, Any]:
        """Return the chart of every stay, without rows."""
        return self._template if model else self._template_without

    @cached_property
    def _template(self) -> dict[str, Any]:
        return self.stays.template()

    @cached_property
    def _template_without(self) -> dict[str, Any]:
        return self.stays.template(model=False)

    @cached_property
    def _one(self) -> Any:
        """Remember what was made for the stays looked at last."""
        return lru_cache(maxsize=2000)(self._make)

    @cached_property
    def _shown(self) -> Any:
        """Remember what is shown of the stays looked at last."""
        return lru_cache(maxsize=2000)(self._show)

    def _make(self, name: str, without_model: bool) -> dict[str, Any]:
        made = self.stays.one(self._ids[name])
        return made | self.stays.record(self._ids[name]) if without_model else made

    def _show(self, name: str, without_model: bool) -> dict[str, Any]:
        """Return what is shown of a stay: the same of flagged ones and controls."""
        made = self._one(name, without_model)
        shown = {key: made[key] for key in ("title", "given", "inferred", "side", "notes", "table")}
        shown |= {"observed": self.observed(name), "steps": self.length(name)}
        row = self.audit.episodes.iloc[self._rows[name]]
        if without_model:
            return shown | {"description": made["title"], "model": None}
        shown["description"] = made["description"]
        shown["model"] = {
            **{key: made[key] for key in ("says", "caveat", "range", "first")},
            "outcomes": [
                {"outcome": outcome, "probability": chance, "words": percent(chance)}
                for outcome, chance in outcome_chances(row, self.stays.names)
            ],
            "first_change": int(row["first_change"]),
            **{
                key: plain_value(row[key])
                for key in ("low_any", "high_any", "thin_share", "evidence_min", "expected_return")
            },
        }
        return shown

    def _choices(self, name: str) -> dict[str, Any]:
        layout = self.stays.layout
        names = [*self.stays.hidden(), *(v.name for v in (*layout.state, *layout.action))]
        return {
            "verdicts": {str(number): words for number, words in VERDICTS.items()},
            "sure": list(SURE),
            "variables": list(dict.fromkeys(names)),
        }

    def _form(self, item: Item) -> dict[str, Any]:
        """Return what stands in the form: the draft, or the verdict that was taken back."""
        key = (self.run.id, item.reviewer, item.episode)
        draft = self.store.draft(*key, repeat=item.repeat)
        if draft is not None:
            return draft
        if item.state != "withdrawn":
            return {}
        given = self.store.reviews(self.run.id, reviewer=item.reviewer, episode=item.episode)
        mine = [review for review in given if review.repeat == item.repeat]
        names = ("verdict", "variable", "step", "sure", "comment")
        return {name: getattr(mine[-1], name) for name in names} if mine else {}

    def _mine(self, item: Item) -> dict[str, Any]:
        given = self.store.reviews(self.run.id, reviewer=item.reviewer, episode=item.episode)
        return _opinion(next(review for review in given if review.id == item.review))

    def _opinions(self, reviewer: str, name: str) -> list[dict[str, Any]]:
        found = self.store.opinions(self.run.id, reviewer, name)
        return [_opinion(review) for review in found if review.reviewer != reviewer]

    def _earlier(self, reviewer: str, name: str) -> list[dict[str, Any]]:
        found = self.store.earlier_opinions(self.run.id, reviewer, name)
        return [_opinion(review) | {"run": review.run} for review in found]

    # ------------------------------------------------------------------------------ disagreements

    def disagreement(self, reviewer: str, name: str) -> dict[str, Any]:
        """Return what reviewers differ about, for somebody who settles it."""
        found = self.store.open_disagreement(self.run.id, reviewer, name)
        stay = self.store.stay(self.run.id, name)
        held = [
            settlement
            for settlement in self.store.settlements(self.run.id)
            if settlement.episode == name and settlement.withdrawn_at is None
        ]
        return {
            "id": name,
            "slug": make_slug(name),
            "run": self.run.id,
            "reviewer": reviewer,
            "state": stay.state,
            "version": stay.version,
            "may_settle": name in self.store.to_settle(self.run.id, reviewer),
            "opinions": [_opinion(review) for review in found],
            "settlement": None
            if not held
            else {
                "verdict": held[0].verdict,
                "words": VERDICTS[held[0].verdict],
                "reason": held[0].reason,
                "reviewer": held[0].reviewer,
                "at": held[0].created_at,
                "mine": held[0].reviewer == reviewer,
            },
            **self._shown(name, False),
            **self._choices(name),
        }

    # ------------------------------------------------------------------------------------ overview

    def sees_overview(self, reviewer: str) -> bool:
        """Tell whether a reviewer may see numbers about all stays without being led by them."""
        return self.show_overview or self.store.progress(self.run.id, reviewer).finished

    def check_overview(self, reviewer: str) -> None:
        """Refuse an overview to those whose queue is not done; note who is shown one."""
        if not self.sees_overview(reviewer):
            raise RefusedError(
                "open once your queue is done, so that it does not lead you. "
                + self._what_is_left(self.store.progress(self.run.id, reviewer))
            )
        self.store.open_overview(self.run.id, reviewer)

    def _what_is_left(self, progress: Progress) -> str:
        if progress.left:
            return f"Still to be read: {progress.left}"
        noun = self.stays.noun if progress.skipped == 1 else self.stays.nouns
        return (
            f"You skipped {progress.skipped} {noun}: read what you can; whoever runs the review "
            "can open it to you as well"
        )

    def overview(self, reviewer: str) -> dict[str, Any]:
        """Return numbers about all stays: estimates, everyone at a glance, the table of cells."""
        self.check_overview(reviewer)
        made = self._overview
        shown = {
            name: {key: made[name][key] for key in ("caption", "table")}
            for name in ("estimates", "glance")
        }
        return {"run": self.run.id, **shown, "cells": made["cells"]}

    def chart(self, reviewer: str, name: str) -> dict[str, Any]:
        """Return a chart of the overview: its template and its rows."""
        self.check_overview(reviewer)
        made = self._overview[name]
        return {"spec": made["spec"], "datasets": made.get("datasets", {})}

    @cached_property
    def _overview(self) -> dict[str, Any]:
        return {
            "estimates": content.estimates(self.stays),
            "glance": content.glance(self.stays, flags=False),
            "cells": content.cells(self.stays),
        }

    def listing(
        self,
        reviewer: str,
        *,
        obs: str = "",
        model: str = "",
        status: str = "",
        sort: str = "",
        after: str = "",
    ) -> dict[str, Any]:
        """Return stays by what happened, what the model says is likeliest, and their state."""
        self.check_overview(reviewer)
        table = self.audit.episodes
        states = {stay.episode: stay.state for stay in self.store.stays(self.run.id)}
        names = list(self._ids)
        kept = np.ones(len(table), dtype=bool)
        if obs:
            kept &= (table["observed_outcome"] == obs).to_numpy()
        if model:
            kept &= (table["most_likely"] == model).to_numpy()
        if status:
            kept &= np.array([states.get(name, "none") == status for name in names], dtype=bool)
        rows = np.flatnonzero(kept)
        column = SORTS.get(sort.removeprefix("-"))
        if column is not None:
            values = table[column].to_numpy()[rows]
            rows = rows[np.argsort(-values if sort.startswith("-") else values, kind="stable")]
        elif sort == "-id":
            rows = rows[::-1]
        chosen = [names[row] for row in rows]
        start = chosen.index(after) + 1 if after in chosen else 0
        page = chosen[start : start + PAGE]
        return {
            "run": self.run.id,
            "filters": {"obs": obs, "model": model, "status": status, "sort": sort},
            "outcomes": self.stays.names,
            "states": STATES | {"none": UNLISTED.capitalize()},
            "total": len(chosen),
            "scope": self.stays.scope,
            "start": start,
            "episodes": [self._row(name, states) for name in page],
            "after": page[-1] if start + PAGE < len(chosen) else None,
            "caveat": CAVEATS["estimate"],
        }

    def _row(self, name: str, states: Mapping[str, str]) -> dict[str, Any]:
        row = self.audit.episodes.iloc[self._rows[name]]
        chances = dict(outcome_chances(row, self.stays.names))
        likeliest = str(row["most_likely"])
        return {
            "id": name,
            "slug": make_slug(name),
            "observed": str(row["observed_outcome"]),
            "steps": int(row["length"]),
            "model": likeliest,
            "probability": chances[likeliest],
            "words": percent(chances[likeliest]),
            "difference": float(row["difference"]),
            "low_any": plain_value(row["low_any"]),
            "high_any": plain_value(row["high_any"]),
            "thin_share": float(row["thin_share"]),
            "evidence_min": float(row["evidence_min"]),
            "state": states.get(name, "none"),
            "status": STATES.get(states.get(name, ""), UNLISTED.capitalize()),
        }

    def results(self, reviewer: str) -> Results:
        """Return what the review found so far."""
        self.check_overview(reviewer)
        found: Results = self._results(self.store.last_event())
        return replace(found, agreement=mask_pairs(found.agreement, reviewer))

    @cached_property
    def _results(self) -> Any:
        """Remember results until something happens."""
        return lru_cache(maxsize=1)(lambda event: summarize(self.store, self.run.id))

    # -------------------------------------------------------------------------------------- history

    def history(self, reviewer: str, *, after: int = 0, limit: int = 200) -> dict[str, Any]:
        """Return what was done in this run; of others only to those who may see the overview."""
        everybody = self.sees_overview(reviewer)
        if everybody:
            self.store.open_overview(self.run.id, reviewer)
        settled = {s.episode for s in self.store.stays(self.run.id) if s.state == "settled"}
        events = self.store.events(
            run=self.run.id, reviewer=None if everybody else reviewer, after=after
        )
        given = {
            event.id: event.payload["verdict"]
            for event in self.store.events(run=self.run.id)
            if event.action in ("submit", "settle")
        }
        rows = [_told(event, reviewer, settled, given) for event in events[:limit]]
        return {
            "run": self.run.id,
            "everybody": everybody,
            "events": rows,
            "after": rows[-1]["id"] if len(events) > limit else None,
        }


CAVEATS = {
    "estimate": "A model estimate, not a fact.",
    "bounds": "Holds only if the model is right.",
    "interval": "Covers chance in the sample, not errors in the model.",
    "flag": "A flag means “read this chart”, not “the policy is better”.",
}


def make_slug(name: str) -> str:
    """Return a stay's name as part of an address, whatever it consists of."""
    if PLAIN.fullmatch(name):
        return name
    return "~" + base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode().strip("=")


def read_slug(slug: str) -> str:
    """Return the name that a part of an address stands for."""
    if not slug.startswith("~"):
        return slug
    try:
        padded = slug[1:] + "=" * (-len(slug[1:]) % 4)
        return base64.b64decode(padded.encode(), b"-_", True).decode("utf-8", "surrogatepass")
    except (ValueError, binascii.Error):
        return slug


def _pick(items: list[Item], name: str, place: int | None) -> Item:
    for item in items:
        if item.episode == name and place in (None, item.place):
            return item
    raise UnknownError("this is not in your queue")


def _status(item: Item) -> str:
    if item.state == "submitted":
        return STATES["disagreement"] if item.stay_state == "disagreement" else MINE["submitted"]
    if item.closed == "settling":
        return SETTLING
    return MINE[item.state] if is_wanted(item) else OTHERS


def _opinion(review: Review) -> dict[str, Any]:
    return {
        "review": review.id,
        "reviewer": review.reviewer,
        "verdict": review.verdict,
        "words": VERDICTS[review.verdict],
        "variable": review.variable,
        "step": review.step,
        "sure": review.sure,
        "comment": review.comment,
        "first_impression": review.first_impression,
        "at": review.created_at,
    }


def _told(
    event: Event, reviewer: str, settled: set[str], given: Mapping[int, int]
) -> dict[str, Any]:
    """Return an event in words, without what tells controls or repeats."""
    said = event.payload
    named = event.reviewer in ("", reviewer) or not event.episode or event.episode in settled
    before, after, reason = "", "", ""
    match event.action:
        case "submit":
            after, reason = _verdict_words(said["verdict"]), said["comment"]
        case "withdraw":
            before = _verdict_words(given.get(said["review"], 0))
        case "settle":
            before, after = STATES["disagreement"], _verdict_words(said["verdict"])
            reason = said["reason"]
        case "unsettle":
            before = _verdict_words(given.get(said["settlement"], 0))
            after = STATES["disagreement"]
        case "impression":
            reason = said["answer"]
        case "skip":
            after = MINE["skipped"]
    return {
        "id": event.id,
        "at": event.at,
        "who": event.reviewer if named else "another reviewer",
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


def _verdict_words(verdict: int) -> str:
    return f"({verdict}) {VERDICTS[verdict]}" if verdict in VERDICTS else ""

"""An audit under review, and a reviewer who looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from butfor.audit.audit import Audit
from butfor.review.opinions import note_overview
from butfor.review.queue import Progress
from butfor.review.results import Results, summarize
from butfor.review.reviewer import Reviewer
from butfor.review.store import Store
from butfor.review.tables import Item, Run
from butfor.review.verdicts import VERDICTS, RefusedError, RunChangedError
from butfor.review.views.stays import ShownStays

CAVEATS = {
    "estimate": "A model estimate, not a fact.",
    "bounds": "Holds only if the model is right.",
    "interval": "Covers chance in the sample, not errors in the model.",
    "flag": "A flag means “read this chart”, not “the policy is better”.",
}


@dataclass(frozen=True, eq=False)
class AuditReview:
    """An audit under review: what it says, and what reviewers said about it."""

    audit: Audit
    store: Store
    run: Run
    show_overview: bool = False  # even to reviewers whose queue is not done

    @cached_property
    def shown(self) -> ShownStays:
        """What is shown of the audit's stays."""
        return ShownStays(self.audit)

    @cached_property
    def under_review(self) -> frozenset[str]:
        """The names of the stays under review."""
        return frozenset(stay.episode for stay in self.store.stays(self.run.id))

    def viewer(self, name: str) -> Viewer:
        """Return a reviewer who joined as one who looks at this audit."""
        return Viewer(self, self.store.reviewer(self.run.id, name))

    def check_run(self, run: str | None) -> None:
        """Raise if a request is about another run."""
        if run is not None and run != self.run.id:
            raise RunChangedError(self.run.id)

    def results(self) -> Results:
        """Return the results so far."""
        found: Results = self._results(self.store.last_event())
        return found

    @cached_property
    def _results(self) -> Any:
        """Compute the results, cached until the next event."""
        return lru_cache(maxsize=1)(lambda event: summarize(self.store, self.run.id))

    def warm_up(self) -> None:
        """Compute what the first page would otherwise wait for."""
        _ = self.shown.template
        if self.shown.ids:
            self.shown.one(next(iter(self.shown.ids)), False)


@dataclass(frozen=True)
class Viewer:
    """A reviewer who looks at an audit under review."""

    review: AuditReview
    reviewer: Reviewer

    def item(self, slug: str, place: int | None = None, run: str | None = None) -> Item:
        """Return a place in the queue by its number; without one, the first of the stay."""
        self.review.check_run(run)
        return self.reviewer.item(self.review.shown.find(slug), place)

    def hides_model(self, item: Item) -> bool:
        """Return whether the model stays hidden until a first impression is given."""
        asked = self.review.run.settings.first_impression and item.closed != "settling"
        return asked and item.first_impression is None

    def sees_overview(self) -> bool:
        """Return whether numbers about all stays can no longer influence this reviewer."""
        return self.review.show_overview or self.reviewer.queue().progress.finished

    def check_overview(self) -> None:
        """Raise if the queue is not done; otherwise record that an overview is shown."""
        if not self.sees_overview():
            raise RefusedError(
                "this opens once your queue is done, so that it does not influence you. "
                + self._what_is_left(self.reviewer.queue().progress)
            )
        note_overview(self.reviewer)

    def _what_is_left(self, progress: Progress) -> str:
        if progress.left:
            return f"Still to be read: {progress.left}"
        stays = self.review.shown.stays
        noun = stays.noun if progress.skipped == 1 else stays.nouns
        return (
            f"You skipped {progress.skipped} {noun}: read what you can, or ask whoever runs the "
            "review to open this page for you"
        )


def about_view(review: AuditReview) -> dict[str, Any]:
    """Return what the run is about: hashes, thresholds, caveats."""
    meta, stays = review.audit.meta, review.shown.stays
    return {
        "run": review.run.id,
        "opened_at": review.run.opened_at,
        "digest": meta.digest,
        "butfor": meta.butfor,
        "policy": meta.target,
        "episodes": meta.counts.episodes,
        "needed": review.run.settings.needed,
        "first_impression": review.run.settings.first_impression,
        "noun": stays.noun,
        "nouns": stays.nouns,
        "hidden": stays.hidden(),
        "inferred": stays.inferred(),
        "outcomes": stays.names,
        "verdicts": {str(number): words for number, words in VERDICTS.items()},
        "caveats": CAVEATS,
    }

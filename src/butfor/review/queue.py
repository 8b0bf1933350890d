"""The stays under review and the queues of reviewers as they are at one moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from butfor.review.events import Transaction
from butfor.review.state import UNTOUCHED, RunState
from butfor.review.verdicts import RefusedError, UnknownError

OTHERS_BETWEEN = 5  # verdicts that a reviewer gives before a stay comes back


@dataclass(frozen=True)
class Stay:
    """The state of a stay in the review. Reviewers must not learn whether it is a control."""

    run: str
    episode: str
    control: bool
    steps: int
    state: str  # waiting, in_review, reviewed, disagreement, settled
    verdicts: int  # that were not withdrawn, without those of repeats
    final: int | None  # the verdict, once reviewed or settled
    version: int  # changes with any reviewer's action; for `settle`
    changed_at: str


@dataclass(frozen=True)
class Item:
    """A place in a reviewer's queue and what the reviewer has done with it."""

    run: str
    reviewer: str
    episode: str
    repeat: bool  # the stay comes back; reviewers must not learn this
    place: int  # a number that does not reveal the position
    state: str  # waiting, draft, submitted, skipped, withdrawn
    stay_state: str  # as Stay.state
    closed: str  # why no verdict is accepted: "settling", "others" (see CLOSED), or ""
    review: int | None  # the verdict in force, which can be withdrawn
    first_impression: str | None
    answer: int | None  # the chances that were given
    version: int  # changes with this reviewer's actions; for `submit`, `skip`, `withdraw`
    changed_at: str


@dataclass(frozen=True)
class Progress:
    """How far a reviewer has come."""

    total: int  # places with a verdict of the reviewer or for which one is wanted
    done: int
    skipped: int  # for which a verdict is still wanted
    left: int  # still to be offered, without stays that others have finished
    disagreements: int  # among the stays that the reviewer read

    @property
    def finished(self) -> bool:
        """Whether no further verdict of this reviewer is wanted."""
        return self.left == self.skipped == 0


@dataclass(frozen=True)
class Queue:
    """A reviewer's whole queue at one moment."""

    items: list[Item]  # in order; a repeat appears when its turn comes
    offered: list[Item]  # what may be read next, in order
    next_item: Item | None  # what to read next; stays claimed by enough others come last

    @property
    def counted(self) -> list[Item]:
        """What the reviewer has read or is still wanted to read, in order."""
        return [item for item in self.items if item.state == "submitted" or is_wanted(item)]

    @property
    def progress(self) -> Progress:
        """How far the reviewer has come."""
        done = [item for item in self.items if item.state == "submitted"]
        return Progress(
            total=len(self.counted),
            done=len(done),
            skipped=sum(i.state == "skipped" and is_wanted(i) for i in self.items),
            left=len(self.offered),
            disagreements=sum(i.stay_state == "disagreement" and not i.repeat for i in done),
        )


def is_wanted(item: Item) -> bool:
    """Return whether a verdict is still wanted: not given, not closed, not read by enough."""
    if item.state == "submitted" or item.closed:
        return False
    return item.repeat or item.state == "draft" or item.stay_state in ("waiting", "in_review")


@dataclass(frozen=True)
class Moment:
    """A run as it is now: what its events say, and who is reading or writing what."""

    run: RunState
    now: float
    drafts: dict[tuple[str, str, bool], float]  # when they were saved; 0: put aside
    claims: list[tuple[str, str]]  # stay and reviewer; neither expired nor followed by a verdict
    claimed: frozenset[str]  # the stays of these

    def stay(self, episode: str) -> Stay:
        """Return a stay that is under review."""
        if episode not in self.run.stays:
            raise UnknownError(f"episode {episode!r} is not under review")
        control, steps = self.run.stays[episode]
        state, final = self._state(episode)
        version, changed_at = self.run.changed.get(episode, (0, ""))
        return Stay(
            run=self.run.run.id,
            episode=episode,
            control=control,
            steps=steps,
            state=state,
            verdicts=len(self.run.verdicts.get(episode, ())),
            final=final,
            version=version,
            changed_at=changed_at,
        )

    def _state(self, episode: str) -> tuple[str, int | None]:
        """Return the state of a stay, and its verdict once it is reviewed or settled."""
        settled = self.run.settled.get(episode)
        if settled is not None:
            return "settled", self.run.settlements[settled].verdict
        verdicts = self.run.verdicts.get(episode, {})
        if len(verdicts) >= self.run.run.settings.needed:
            first, *others = set(verdicts.values())
            return ("disagreement", None) if others else ("reviewed", first)
        return "in_review" if verdicts or episode in self.claimed else "waiting", None

    def stays(self) -> list[Stay]:
        """Return all stays: the flagged ones by rank, then the controls."""
        return [self.stay(episode) for episode in self.run.stays]

    def is_closed(self) -> bool:
        """Return whether every stay is reviewed or settled."""
        return all(self._state(episode)[1] is not None for episode in self.run.stays)

    def places(self, reviewer: str, of: str | None = None) -> list[Item]:
        """Return the places of a reviewer's queue, due or not, or those of one stay."""
        if reviewer not in self.run.queues:
            raise UnknownError(f"{reviewer!r} has not joined this run")
        return [
            self._item(reviewer, *place)
            for place in self.run.queues[reviewer]
            if of in (None, place[0])
        ]

    def _item(self, reviewer: str, episode: str, repeat: bool, place: int) -> Item:
        key = reviewer, episode, repeat
        stood, (stay_state, _) = self.run.standing.get(key, UNTOUCHED), self._state(episode)
        begun = "waiting" if stood.answer is None else "draft"
        state = "draft" if self.drafts.get(key) else stood.state or begun
        closed = ""
        if state != "submitted":
            if (reviewer, episode, "settling") in self.run.shown:
                closed = "settling"
            elif stay_state in ("disagreement", "settled") and not repeat:
                closed = "others"
        return Item(
            run=self.run.run.id,
            reviewer=reviewer,
            episode=episode,
            repeat=repeat,
            place=place,
            state=state,
            stay_state=stay_state,
            closed=closed,
            review=stood.review,
            first_impression=stood.impression,
            answer=stood.answer,
            version=stood.version,
            changed_at=stood.changed_at,
        )

    def item(self, reviewer: str, episode: str, repeat: bool) -> Item:
        """Return a place in a reviewer's queue; a repeat only once it is up."""
        for item in self.places(reviewer, episode):
            if item.repeat == repeat:
                if repeat and item not in self.queue(reviewer).items:
                    raise RefusedError(
                        f"episode {episode} is not to be read for the second time yet"
                    )
                return item
        again = " for the second time" if repeat else ""
        raise UnknownError(f"episode {episode!r} is not in {reviewer}'s queue{again}")

    def queue(self, reviewer: str) -> Queue:
        """Return a reviewer's queue."""
        items = self.places(reviewer)
        due = self._find_due(items)

        def is_up(item: Item) -> bool:
            return not item.repeat or item.state == "draft" or item.episode in due

        visible = [item for item in items if is_up(item) or item.version]
        offered = [i for i in visible if is_up(i) and is_wanted(i) and i.state != "skipped"]
        taken = Counter(episode for episode, other in self.claims if other != reviewer)
        needed = self.run.run.settings.needed
        free = (
            item
            for item in offered
            if item.repeat
            or item.state == "draft"
            or taken[item.episode] + len(self.run.verdicts.get(item.episode, ())) < needed
        )
        return Queue(visible, offered, next(free, next(iter(offered), None)))

    def _find_due(self, items: list[Item]) -> set[str]:
        """Return which stays may come back: read once, long ago, and enough others read since."""
        given = sorted(item.review for item in items if item.review is not None)
        if len(given) <= OTHERS_BETWEEN:
            return set()
        last = given[-OTHERS_BETWEEN - 1]
        long_ago = self.now - 60 * self.run.run.settings.repeat_minutes
        first = {
            item.episode
            for item in items
            if not item.repeat
            and item.review is not None
            and item.review <= last  # enough others were given after it
            # a clock that was set back must not keep a stay from ever coming back
            and not long_ago < datetime.fromisoformat(item.changed_at).timestamp() <= self.now
        }
        return {item.episode for item in items if item.repeat and item.episode in first}


def look(transaction: Transaction, run: str, *, current: bool = False) -> Moment:
    """Return a run as it is now; one that must be `current` is the one under review."""
    found, now = transaction.state.run(run, current=current), transaction.now
    oldest = now - 60 * found.run.settings.claim_minutes
    rows = transaction.execute(
        "SELECT episode, reviewer FROM claim WHERE run = ? AND at > ? AND at <= ?",
        (run, oldest, now),  # a clock that was set back left claims in the future
    )
    claims = [
        (episode, reviewer)
        for episode, reviewer in rows.fetchall()
        if found.standing.get((reviewer, episode, False), UNTOUCHED).state != "submitted"
    ]
    rows = transaction.execute(
        "SELECT reviewer, episode, repeat, at FROM draft WHERE run = ?", (run,)
    )
    drafts = {
        (reviewer, episode, bool(again)): at for reviewer, episode, again, at in rows.fetchall()
    }
    return Moment(found, now, drafts, claims, frozenset(episode for episode, _ in claims))

"""The stays under review and a reviewer's queue as they are at one moment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from butfor.review.events import Transaction
from butfor.review.plan import place_number, reviewer_seed
from butfor.review.tables import Item, Run, Stay, has_joined, matching, read_run
from butfor.review.verdicts import RefusedError, UnknownError

OTHERS_BETWEEN = 5  # verdicts that a reviewer gives before a stay comes back


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


def read_stays(transaction: Transaction, run: str, episode: str | None = None) -> list[Stay]:
    """Return the stays of a run, flagged ones by rank and then the controls, or one of them."""
    found = read_run(transaction, run)
    claimed = {name for name, _ in _read_claims(transaction, found, episode)}
    where, values = matching({"run": run, "episode": episode})
    rows = transaction.execute(
        "SELECT episode, control, steps, version, changed_at, verdicts, lowest, highest, settled "
        f"FROM stay WHERE {where} ORDER BY rowid",
        values,
    )
    stays = []
    for name, control, steps, version, changed_at, *counts in rows.fetchall():
        state, final = _stay_state(found.settings.needed, name in claimed, counts)
        stays.append(
            Stay(run, name, bool(control), steps, state, counts[0], final, version, changed_at)
        )
    return stays


def read_stay(transaction: Transaction, run: str, episode: str) -> Stay:
    """Return a stay that is under review."""
    found = read_stays(transaction, run, episode)
    if not found:
        raise UnknownError(f"episode {episode!r} is not under review")
    return found[0]


def is_closed(transaction: Transaction, run: str) -> bool:
    """Return whether every stay of a run is reviewed or settled."""
    return all(stay.final is not None for stay in read_stays(transaction, run))


def _stay_state(needed: int, claimed: bool, counts: Sequence[Any]) -> tuple[str, int | None]:
    """Return the state of a stay, and its verdict once it is reviewed or settled."""
    verdicts, lowest, highest, settled = counts
    if settled is not None:
        return "settled", settled
    if verdicts >= needed:
        return ("reviewed", lowest) if lowest == highest else ("disagreement", None)
    return "in_review" if verdicts or claimed else "waiting", None


def _read_claims(
    transaction: Transaction, run: Run, episode: str | None = None
) -> list[tuple[str, str]]:
    """Return stay and reviewer of claims that have not expired and led to no verdict yet."""
    oldest = transaction.now - 60 * run.settings.claim_minutes
    where, values = matching({"c.run": run.id, "c.episode": episode})
    rows = transaction.execute(
        "SELECT c.episode, c.reviewer FROM claim c LEFT JOIN standing s ON s.run = c.run AND "
        "s.reviewer = c.reviewer AND s.episode = c.episode AND s.repeat = 0 "
        f"WHERE {where} AND c.at > ? AND c.at <= ? AND COALESCE(s.state, '') != 'submitted'",
        (*values, oldest, transaction.now),  # a clock that was set back left claims in the future
    )
    return rows.fetchall()


def read_queue(transaction: Transaction, run: str, reviewer: str) -> Queue:
    """Return a reviewer's queue."""
    found = read_run(transaction, run)
    claims = _read_claims(transaction, found)
    rows = _read_rows(transaction, run, reviewer)
    items = _make_items(transaction, found, reviewer, rows, {name for name, _ in claims})
    due = _find_due(items, transaction.now - 60 * found.settings.repeat_minutes, transaction.now)

    def is_up(item: Item) -> bool:
        return not item.repeat or item.state == "draft" or item.episode in due

    visible = [item for item in items if is_up(item) or item.version]
    offered = [i for i in visible if is_up(i) and is_wanted(i) and i.state != "skipped"]
    taken = Counter(name for name, other in claims if other != reviewer)
    taken.update({row[0]: row[11] for row in rows if not row[1]})
    free = [
        item
        for item in offered
        if item.repeat or item.state == "draft" or taken[item.episode] < found.settings.needed
    ]
    return Queue(visible, offered, next(iter(free or offered), None))


def read_item(
    transaction: Transaction, run: str, reviewer: str, episode: str, repeat: bool
) -> Item:
    """Return a place in a reviewer's queue; a repeat only once it is up."""
    for item in read_places(transaction, run, reviewer, episode):
        if item.repeat == repeat:
            if repeat and item not in read_queue(transaction, run, reviewer).items:
                raise RefusedError(f"episode {episode} is not to be read for the second time yet")
            return item
    again = " for the second time" if repeat else ""
    raise UnknownError(f"episode {episode!r} is not in {reviewer}'s queue{again}")


def read_places(transaction: Transaction, run: str, reviewer: str, episode: str) -> list[Item]:
    """Return the places of a stay in a reviewer's queue."""
    found = read_run(transaction, run)
    claimed = {name for name, _ in _read_claims(transaction, found, episode)}
    rows = _read_rows(transaction, run, reviewer, episode)
    return _make_items(transaction, found, reviewer, rows, claimed)


def is_wanted(item: Item) -> bool:
    """Return whether a verdict is still wanted: not given, not closed, not read by enough."""
    if item.state == "submitted" or item.closed:
        return False
    return item.repeat or item.state == "draft" or item.stay_state in ("waiting", "in_review")


def _read_rows(
    transaction: Transaction, run: str, reviewer: str, episode: str | None = None
) -> list[Any]:
    """Return places with all that is known about them, fetched as one JSON value.

    SQLite releases the interpreter's lock for each row that it returns, and with many threads
    most of the time goes into taking the lock again.
    """
    where, values = matching({"p.run": run, "p.reviewer": reviewer, "p.episode": episode})
    row = transaction.execute(
        "SELECT json_group_array(json_array(episode, repeat, position, state, at, review, "
        "impression, answer, version, changed_at, settling, verdicts, lowest, highest, settled)) "
        "FROM ("
        "SELECT p.episode, p.repeat, p.position, s.state, d.at, s.review, s.impression, "
        "s.answer, s.version, s.changed_at, w.what IS NOT NULL AS settling, y.verdicts, y.lowest, "
        "y.highest, y.settled FROM place p "
        "JOIN stay y USING (run, episode) "
        "LEFT JOIN standing s USING (run, reviewer, episode, repeat) "
        "LEFT JOIN draft d USING (run, reviewer, episode, repeat) "
        "LEFT JOIN shown w ON w.run = p.run AND w.reviewer = p.reviewer "
        "AND w.episode = p.episode AND w.what = 'settling' "
        f"WHERE {where} ORDER BY p.position)",
        values,
    ).fetchone()
    return json.loads(row[0])


def _make_items(
    transaction: Transaction, run: Run, reviewer: str, rows: list[Any], claimed: set[str]
) -> list[Item]:
    if not rows and not has_joined(transaction, run.id, reviewer):
        raise UnknownError(f"{reviewer!r} has not joined this run")
    seed = reviewer_seed(run.settings.seed, run.id, reviewer, run.secret)
    items = []
    for row in rows:
        episode, repeat, position, stood, draft, review, impression, answer = row[:8]
        version, changed_at, settling, *counts = row[8:]
        begun = "waiting" if answer is None else "draft"
        state = "draft" if draft else stood or begun  # a draft put aside has the time 0
        stay_state, _ = _stay_state(run.settings.needed, episode in claimed, counts)
        others = stay_state in ("disagreement", "settled") and not repeat
        closed = "settling" if settling else "others" if others else ""
        items.append(
            Item(
                run=run.id,
                reviewer=reviewer,
                episode=episode,
                repeat=bool(repeat),
                place=place_number(seed, position),
                state=state,
                stay_state=stay_state,
                closed="" if state == "submitted" else closed,
                review=review,
                first_impression=impression,
                answer=answer,
                version=version or 0,
                changed_at=changed_at or "",
            )
        )
    return items


def _find_due(items: list[Item], long_ago: float, now: float) -> set[str]:
    """Return which stays may come back: read once, long ago, and enough others read since."""
    given = sorted(item.review for item in items if item.review is not None)
    if len(given) <= OTHERS_BETWEEN:
        return set()
    last = given[-OTHERS_BETWEEN - 1]  # enough verdicts were given after this one
    first = {
        item.episode
        for item in items
        if not item.repeat
        and item.review is not None
        and item.review <= last
        # a clock that was set back must not keep a stay from ever coming back
        and not long_ago < datetime.fromisoformat(item.changed_at).timestamp() <= now
    }
    return {item.episode for item in items if item.repeat and item.episode in first}

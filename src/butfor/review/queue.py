"""What stays and queues look like at a moment, and what a reviewer is offered next."""

from __future__ import annotations

import sqlite3

from butfor.review.projection import Item, Stay, has_joined, make_stay, matching, read_run
from butfor.review.verdicts import RefusedError, UnknownError

OTHERS_BETWEEN = 5  # verdicts that a reviewer gives before a stay comes back


def read_claims(
    connection: sqlite3.Connection, now: float, run: str, *, apart_from: str = ""
) -> dict[str, int]:
    """Count claims that still hold, of reviewers whose verdict is not in, by stay."""
    oldest = now - 60 * read_run(connection, run).settings.claim_minutes
    rows = connection.execute(
        "SELECT c.episode, COUNT(*) FROM claim c LEFT JOIN standing s ON s.run = c.run AND "
        "s.reviewer = c.reviewer AND s.episode = c.episode AND s.repeat = 0 "
        "WHERE c.run = ? AND c.at > ? AND c.reviewer != ? "
        "AND COALESCE(s.state, '') != 'submitted' GROUP BY c.episode",
        (run, oldest, apart_from),
    )
    return dict(rows.fetchall())


def read_stays(
    connection: sqlite3.Connection, now: float, run: str, episode: str | None = None
) -> list[Stay]:
    """Return stays of a run, or one of them."""
    needed = read_run(connection, run).settings.needed
    claims = read_claims(connection, now, run)
    where, values = matching({"run": run, "episode": episode})
    rows = connection.execute(
        "SELECT run, episode, control, steps, verdicts, lowest, highest, settled, version, "
        f"changed_at FROM stay WHERE {where} ORDER BY rowid",
        values,
    )
    return [make_stay(row, needed, row[1] in claims) for row in rows]


def read_stay(connection: sqlite3.Connection, now: float, run: str, episode: str) -> Stay:
    """Return a stay that is under review."""
    found = read_stays(connection, now, run, episode)
    if not found:
        raise UnknownError(f"stay {episode!r} is not under review")
    return found[0]


def read_items(
    connection: sqlite3.Connection, now: float, run: str, reviewer: str, episode: str | None = None
) -> list[Item]:
    """Return a reviewer's queue, or the places of one stay in it."""
    states = {stay.episode: stay.state for stay in read_stays(connection, now, run, episode)}
    where, values = matching({"p.run": run, "p.reviewer": reviewer, "p.episode": episode})
    key = ("run", "reviewer", "episode", "repeat")
    rows = connection.execute(
        "SELECT p.episode, p.repeat, p.position, s.state, d.at, s.review, s.impression, "
        "s.version, s.changed_at FROM place p "
        f"LEFT JOIN standing s ON {' AND '.join(f's.{name} = p.{name}' for name in key)} "
        f"LEFT JOIN draft d ON {' AND '.join(f'd.{name} = p.{name}' for name in key)} "
        f"WHERE {where} ORDER BY p.position",
        values,
    ).fetchall()
    if not rows and not has_joined(connection, run, reviewer):
        raise UnknownError(f"{reviewer!r} has not joined this run")
    return [
        Item(
            run=run,
            reviewer=reviewer,
            episode=row[0],
            repeat=bool(row[1]),
            position=row[2],
            state="draft" if row[4] is not None else row[3] or "waiting",
            stay_state=states[row[0]],
            review=row[5],
            first_impression=row[6],
            version=row[7] or 0,
            changed_at=row[8] or "",
        )
        for row in rows
    ]


def read_item(
    connection: sqlite3.Connection, now: float, run: str, reviewer: str, episode: str, repeat: bool
) -> Item:
    """Return a place of a reviewer's queue; the second one only after the first was read."""
    items = read_items(connection, now, run, reviewer, episode)
    for item in items:
        if item.repeat == repeat:
            if repeat and not item.version and not any(i.review for i in items):
                raise RefusedError(f"stay {episode} has not been read for the first time")
            return item
    again = " for the second time" if repeat else ""
    raise UnknownError(f"stay {episode!r} is not in {reviewer}'s queue{again}")


def choose_offered(items: list[Item]) -> list[Item]:
    """Return what a reviewer may be offered, in order."""
    return [
        item
        for item in items
        if item.state == "draft"
        or (
            item.state in ("waiting", "withdrawn")
            and (
                is_due(item, items) if item.repeat else item.stay_state in ("waiting", "in_review")
            )
        )
    ]


def is_due(repeat: Item, items: list[Item]) -> bool:
    """Tell whether a stay may come back: read, and enough others read since."""
    first = next((i.review for i in items if i.episode == repeat.episode and not i.repeat), None)
    if first is None:
        return False
    return sum(item.review is not None and item.review > first for item in items) >= OTHERS_BETWEEN

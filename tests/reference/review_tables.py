"""A review by tables: what its events say, read by SQL from tables that each event updates.

`butfor.review.state` computes the same in memory. Files of versions 1 to 4 had these tables, so
that files of these versions are made here, too.
"""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime

from butfor.review.plan import ReviewSettings, place_number, reviewer_seed
from butfor.review.queue import OTHERS_BETWEEN, Item, Queue, Stay, is_wanted
from butfor.review.state import START, Answer, Event, Review, Run, Settlement
from butfor.review.verdicts import UnknownError

OF_ITEM = "run = :run AND reviewer = :reviewer AND episode = :episode AND repeat = :repeat"

# as they were released, by version
MIGRATIONS = [
    (
        """CREATE TABLE event (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, run TEXT NOT NULL, reviewer TEXT NOT NULL,
            episode TEXT NOT NULL, action TEXT NOT NULL, payload TEXT NOT NULL,
            prev_hash TEXT NOT NULL, hash TEXT NOT NULL)""",
        "CREATE INDEX event_of_stay ON event (run, episode, reviewer)",
        """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never changed'); END""",
        """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END""",
        """CREATE TRIGGER event_no_replace BEFORE INSERT ON event
            WHEN EXISTS (SELECT 1 FROM event WHERE id >= NEW.id)
            BEGIN SELECT RAISE(ABORT, 'events are only added at the end'); END""",
        "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER, hash TEXT)",
        f"INSERT INTO head VALUES (1, 0, '{START}')",
        # derived from the events, for fast reading: Store.rebuild recomputes these tables
        """CREATE TABLE run (
            id TEXT PRIMARY KEY, opened_at TEXT, settings TEXT, latest INTEGER)""",
        """CREATE TABLE stay (
            run TEXT, episode TEXT, control INTEGER, steps INTEGER, verdicts INTEGER DEFAULT 0,
            lowest INTEGER, highest INTEGER, settled INTEGER, version INTEGER DEFAULT 0,
            changed_at TEXT DEFAULT '', PRIMARY KEY (run, episode))""",
        """CREATE TABLE place (
            run TEXT, reviewer TEXT, position INTEGER, episode TEXT, repeat INTEGER,
            PRIMARY KEY (run, reviewer, position))""",
        """CREATE TABLE standing (
            run TEXT, reviewer TEXT, episode TEXT, repeat INTEGER, state TEXT, impression TEXT,
            review INTEGER, version INTEGER, changed_at TEXT,
            PRIMARY KEY (run, reviewer, episode, repeat))""",
        """CREATE TABLE review (
            id INTEGER PRIMARY KEY, run TEXT, reviewer TEXT, episode TEXT, repeat INTEGER,
            verdict INTEGER, variable TEXT, step INTEGER, sure TEXT, comment TEXT, seconds REAL,
            first_impression TEXT, created_at TEXT, withdrawn_at TEXT)""",
        "CREATE INDEX review_of_stay ON review (run, episode)",
        """CREATE TABLE settlement (
            id INTEGER PRIMARY KEY, run TEXT, episode TEXT, reviewer TEXT, verdict INTEGER,
            reason TEXT, created_at TEXT, withdrawn_at TEXT)""",
        # not part of the evidence: the latest one replaces the one before
        """CREATE TABLE draft (
            run TEXT, reviewer TEXT, episode TEXT, repeat INTEGER, content TEXT, at REAL,
            PRIMARY KEY (run, reviewer, episode, repeat))""",
        """CREATE TABLE claim (
            run TEXT, episode TEXT, reviewer TEXT, at REAL,
            PRIMARY KEY (run, episode, reviewer))""",
    ),
    (
        "ALTER TABLE review ADD COLUMN informed INTEGER DEFAULT 0",
        """CREATE TABLE shown (
            run TEXT, reviewer TEXT, episode TEXT, what TEXT,
            PRIMARY KEY (run, reviewer, episode, what))""",
    ),
    (
        "ALTER TABLE run ADD COLUMN outcomes TEXT DEFAULT '[]'",
        "ALTER TABLE standing ADD COLUMN answer INTEGER",
        """CREATE TABLE answer (
            id INTEGER PRIMARY KEY, run TEXT, reviewer TEXT, episode TEXT, repeat INTEGER,
            out_of_ten TEXT, sure TEXT, reason TEXT, seconds REAL, created_at TEXT,
            informed INTEGER)""",
        "CREATE INDEX answer_of_stay ON answer (run, episode)",
    ),
    ("ALTER TABLE run ADD COLUMN secret TEXT DEFAULT ''",),
]
PROJECTIONS = ("run", "stay", "place", "standing", "review", "settlement", "shown", "answer")


@dataclass(frozen=True)
class Tables:
    """A file of a version, or one in memory, at a time."""

    connection: sqlite3.Connection
    now: float = 0.0

    def execute(self, statement, values=()):
        """Execute one SQL statement."""
        return self.connection.execute(statement, values)


def in_memory():
    """Return empty tables in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _create(connection, len(MIGRATIONS))
    return Tables(connection)


def follow(tables, file):
    """Bring tables up to date with a file of any version: new events, all drafts and claims."""
    with closing(sqlite3.connect(file)) as connection:
        (last,) = tables.execute("SELECT COALESCE(MAX(id), 0) FROM event").fetchone()
        for row in connection.execute("SELECT * FROM event WHERE id > ? ORDER BY id", (last,)):
            tables.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            apply(tables, Event(*row))
        for table in ("draft", "claim", "head"):
            tables.execute(f"DELETE FROM {table}")
            _insert(tables, table, connection.execute(f"SELECT * FROM {table}").fetchall())


def make_version(path, version):
    """Write what a file holds as an earlier butfor would have written it."""
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    with closing((full := in_memory()).connection):
        follow(full, path)
        path.unlink()
        with closing(sqlite3.connect(path)) as connection, connection:
            _create(connection, version)
            connection.execute("DELETE FROM head")
            for (table,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table'"
            ).fetchall():
                found = connection.execute(f"PRAGMA table_info({table})").fetchall()
                names = ", ".join(column[1] for column in found)
                rows = full.execute(f"SELECT {names} FROM {table} ORDER BY rowid").fetchall()
                _insert(connection, table, rows)


def _create(connection, version):
    for statement in (one for step in MIGRATIONS[:version] for one in step):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")


def _insert(target, table, rows):
    for row in rows:
        target.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def apply(tables, event):
    """Update the derived tables with one event."""
    said = event._asdict() | event.payload  # every value by name, for the statements
    match event.action:
        case "run":
            _open_run(tables, event)
        case "join":
            tables.connection.executemany(
                "INSERT INTO place VALUES (?, ?, ?, ?, ?)",
                [(event.run, event.reviewer, i, *place) for i, place in enumerate(said["order"])],
            )
        case "impression":
            _update_standing(tables, said, impression=said["answer"])
        case "answer":
            tables.execute(
                "INSERT INTO answer VALUES (:id, :run, :reviewer, :episode, :repeat, :numbers, "
                ":sure, :reason, :seconds, :at, :informed)",
                said | {"numbers": json.dumps(said["out_of_ten"])},
            )
            _update_standing(tables, said, answer=event.id)
        case "skip":
            _update_standing(tables, said, state="skipped")
        case "submit":
            tables.execute(
                "INSERT INTO review VALUES (:id, :run, :reviewer, :episode, :repeat, :verdict, "
                ":variable, :step, :sure, :comment, :seconds, :first_impression, :at, NULL, "
                ":informed)",
                {"informed": False} | said,
            )
            _update_standing(tables, said, state="submitted", review=event.id)
        case "withdraw":
            tables.execute("UPDATE review SET withdrawn_at = :at WHERE id = :review", said)
            _update_standing(tables, said, state="withdrawn", review=None)
            if said.get("shown", False):
                _note_shown(tables, said, "verdicts")
        case "settling" | "overview":
            _note_shown(tables, said, event.action)
        case "settle":
            tables.execute(
                "INSERT INTO settlement VALUES (:id, :run, :episode, :reviewer, :verdict, "
                ":reason, :at, NULL)",
                said,
            )
        case "unsettle":
            tables.execute("UPDATE settlement SET withdrawn_at = :at WHERE id = :settlement", said)
    if event.action in ("submit", "withdraw", "settle", "unsettle"):
        _update_stay(tables, said)


def _open_run(tables, event):
    """Make a run the current one; its first event carries the settings and the stays."""
    run, said = event.run, event.payload
    if said:
        settings = json.dumps(said["settings"])
        tables.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)",
            (
                run,
                event.at,
                settings,
                event.id,
                json.dumps(said.get("outcomes", [])),
                said.get("secret", ""),
            ),
        )
        tables.connection.executemany(
            "INSERT INTO stay (run, episode, control, steps) VALUES (?, ?, ?, ?)",
            [(run, *stay) for stay in said["stays"]],
        )
    tables.execute("UPDATE run SET latest = ? WHERE id = ?", (event.id, run))


def _update_stay(tables, said):
    tables.execute(
        "UPDATE stay SET version = :id, changed_at = :at, (verdicts, lowest, highest) = ("
        "SELECT COUNT(*), MIN(verdict), MAX(verdict) FROM review WHERE review.run = stay.run "
        "AND review.episode = stay.episode AND NOT repeat AND withdrawn_at IS NULL), "
        "settled = (SELECT verdict FROM settlement s WHERE s.run = stay.run "
        "AND s.episode = stay.episode AND withdrawn_at IS NULL) "
        "WHERE run = :run AND episode = :episode",
        said,
    )


def _update_standing(tables, said, **changes):
    tables.execute(
        "INSERT OR IGNORE INTO standing (run, reviewer, episode, repeat) "
        "VALUES (:run, :reviewer, :episode, :repeat)",
        said,
    )
    changes |= {"version": said["id"], "changed_at": said["at"]}
    columns = ", ".join(f"{name} = :{name}" for name in changes)
    tables.execute(f"UPDATE standing SET {columns} WHERE {OF_ITEM}", said | changes)


def _note_shown(tables, said, what):
    """Note which of the others' verdicts a reviewer was shown."""
    statement = "INSERT OR IGNORE INTO shown VALUES (:run, :reviewer, :episode, :what)"
    tables.execute(statement, said | {"what": what})


def read_run(tables, run):
    """Return a run."""
    row = tables.execute(
        "SELECT opened_at, settings, outcomes, secret FROM run WHERE id = ?", (run,)
    ).fetchone()
    if row is None:
        raise UnknownError(f"there is no run {run!r}")
    return Run(
        id=run,
        opened_at=row[0],
        settings=ReviewSettings(**json.loads(row[1])),
        current=current_run(tables) == run,
        outcomes=tuple(json.loads(row[2])),
        secret=row[3],
    )


def current_run(tables):
    """Return the id of the run opened last, or ""."""
    row = tables.execute("SELECT id FROM run ORDER BY latest DESC LIMIT 1").fetchone()
    return row[0] if row else ""


def read_joined(tables, run):
    """Return the reviewers of a run, in the order in which they joined."""
    rows = tables.execute(
        "SELECT reviewer FROM event WHERE run = ? AND episode = '' AND action = 'join' ORDER BY id",
        (run,),
    )
    return [name for (name,) in rows]


def read_pseudonyms(tables):
    """Return "Reviewer 1", "Reviewer 2" … by name, numbered by who joined any run first.

    Events are only added at the end, so nobody's number ever changes.
    """
    rows = tables.execute(
        "SELECT reviewer FROM event WHERE run IN (SELECT id FROM run) AND episode = '' "
        "AND action = 'join' ORDER BY id"
    )
    names = dict.fromkeys(name for (name,) in rows)
    return {name: f"Reviewer {number}" for number, name in enumerate(names, start=1)}


def read_reviews(tables, **given):
    """Return reviews in the order in which they were given; `given` are values of columns."""
    where, values = matching(given)
    rows = tables.execute(f"SELECT * FROM review WHERE {where} ORDER BY id", values)
    return [replace(Review(*row), repeat=bool(row[4]), informed=bool(row[-1])) for row in rows]


def read_answers(tables, **given):
    """Return the chances that reviewers gave, in order; `given` are values of columns."""
    where, values = matching(given)
    rows = tables.execute(f"SELECT * FROM answer WHERE {where} ORDER BY id", values)
    return [
        replace(
            Answer(*row),
            repeat=bool(row[4]),
            out_of_ten=None if row[5] == "null" else tuple(json.loads(row[5])),
            informed=bool(row[-1]),
        )
        for row in rows
    ]


def read_settlements(tables, **given):
    """Return settlements in the order in which they were made."""
    where, values = matching(given)
    rows = tables.execute(f"SELECT * FROM settlement WHERE {where} ORDER BY id", values)
    return [Settlement(*row) for row in rows]


def matching(given):
    """Return a condition on those columns whose given value is not None."""
    known = {column: value for column, value in given.items() if value is not None}
    return " AND ".join(["1", *(f"{name} = ?" for name in known)]), tuple(known.values())


def read_stays(tables, run, episode=None):
    """Return the stays of a run, flagged ones by rank and then the controls, or one of them."""
    found = read_run(tables, run)
    claimed = {name for name, _ in _read_claims(tables, found, episode)}
    where, values = matching({"run": run, "episode": episode})
    rows = tables.execute(
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


def is_closed(tables, run):
    """Return whether every stay of a run is reviewed or settled."""
    return all(stay.final is not None for stay in read_stays(tables, run))


def _stay_state(needed, claimed, counts):
    """Return the state of a stay, and its verdict once it is reviewed or settled."""
    verdicts, lowest, highest, settled = counts
    if settled is not None:
        return "settled", settled
    if verdicts >= needed:
        return ("reviewed", lowest) if lowest == highest else ("disagreement", None)
    return "in_review" if verdicts or claimed else "waiting", None


def _read_claims(tables, run, episode=None):
    """Return stay and reviewer of claims that have not expired and led to no verdict yet."""
    oldest = tables.now - 60 * run.settings.claim_minutes
    where, values = matching({"c.run": run.id, "c.episode": episode})
    rows = tables.execute(
        "SELECT c.episode, c.reviewer FROM claim c LEFT JOIN standing s ON s.run = c.run AND "
        "s.reviewer = c.reviewer AND s.episode = c.episode AND s.repeat = 0 "
        f"WHERE {where} AND c.at > ? AND c.at <= ? AND COALESCE(s.state, '') != 'submitted'",
        (*values, oldest, tables.now),  # a clock that was set back left claims in the future
    )
    return rows.fetchall()


def read_queue(tables, run, reviewer):
    """Return a reviewer's queue."""
    found = read_run(tables, run)
    claims = _read_claims(tables, found)
    rows = _read_rows(tables, run, reviewer)
    items = _make_items(tables, found, reviewer, rows, {name for name, _ in claims})
    due = _find_due(items, tables.now - 60 * found.settings.repeat_minutes, tables.now)

    def is_up(item):
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


def _read_rows(tables, run, reviewer, episode=None):
    """Return places with all that is known about them, fetched as one JSON value.

    SQLite releases the interpreter's lock for each row that it returns, and with many threads
    most of the time goes into taking the lock again.
    """
    where, values = matching({"p.run": run, "p.reviewer": reviewer, "p.episode": episode})
    row = tables.execute(
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


def _make_items(tables, run, reviewer, rows, claimed):
    if not rows and reviewer not in read_joined(tables, run.id):
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


def _find_due(items, long_ago, now):
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

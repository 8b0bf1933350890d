"""The file of reviews: an append-only, hash-chained table of events in SQLite.

An event is never changed. Each carries the hash of the one before, so that changing, removing or
reordering any of them breaks the chain; the last hash is stored separately, so that events missing
at the end are found too. Whoever can write the file can also forge a whole new chain: note the head
elsewhere to detect that.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from butfor.review.verdicts import DamagedError, StoreError

BUSY_SECONDS = 30.0
SALT = "salt"  # random, in every payload as it is stored
START = "0" * 64  # the hash before the first event

# Never change a released migration: append another one.
MIGRATIONS: list[tuple[str, ...]] = [
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
class Event:
    """One action; `reviewer` and `episode` are empty where the action has none."""

    id: int  # 1, 2, 3 …
    at: str  # ISO 8601, UTC
    run: str
    reviewer: str
    episode: str
    # run, join, coordinate, impression, answer, submit, skip, withdraw, settle, unsettle,
    # settling, overview
    action: str
    payload: dict[str, Any]
    prev_hash: str
    hash: str


@dataclass(frozen=True)
class Transaction:
    """An open transaction and the time at which it began."""

    connection: sqlite3.Connection
    now: float  # seconds since 1970

    def execute(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> sqlite3.Cursor:
        """Execute one SQL statement."""
        return self.connection.execute(statement, values)


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


class EventFile:
    """A file of hash-chained events that many threads and processes can use at once.

    Messages name it `shown`, by default its path.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, shown: Path | None = None
    ):
        self.path = path
        self.shown = shown or path
        self._clock = clock
        self._idle: list[sqlite3.Connection] = []
        weakref.finalize(self, _close_all, self._idle)  # also if nobody calls `close`
        self._writer = threading.Lock()  # fairer than many threads contending for SQLite's lock
        self._file: tuple[int, int] | None = None
        _check_not_lost(path, self.shown)
        with _explained(self.shown), closing(self._connect()) as connection:
            _use_wal(connection)
            with self._transaction(connection, "IMMEDIATE"):
                _check_undamaged(connection, self.shown)
                _migrate(connection)
            self._file = self._identity()

    def close(self) -> None:
        """Close the file."""
        _close_all(self._idle)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Open a transaction that sees the file as it is now, whatever others write meanwhile."""
        with (
            _explained(self.shown),
            self._borrowed() as connection,
            self._transaction(connection, "DEFERRED") as transaction,
        ):
            yield transaction

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Transaction]:
        """Open the only transaction that writes; on leaving, all of it is on disk or nothing.

        What is not durable outlives the program, but perhaps not a power failure.
        """
        with self._writer, _explained(self.shown), self._borrowed() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with self._transaction(connection, "IMMEDIATE") as transaction:
                yield transaction

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection, kind: str) -> Iterator[Transaction]:
        connection.execute(f"BEGIN {kind}")
        with connection:  # commits, or rolls back after an error
            yield Transaction(connection, self._clock())

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        self._check_file()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except sqlite3.Error:
            connection.close()  # its state is unknown
            raise
        except BaseException:
            self._idle.append(connection)
            raise
        self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        if self._file is None and not self.path.parent.is_dir():
            raise StoreError(f"there is no folder {self.path.parent}")
        mode = "rwc" if self._file is None else "rw"
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )

    def _identity(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_dev, status.st_ino

    def _check_file(self) -> None:
        """Raise if the path no longer leads to the file that was opened."""
        if not self.path.exists() or self._identity() != self._file:
            raise StoreError(f"{self.path} was moved or replaced; restart the review")


def append_event(
    transaction: Transaction,
    action: str,
    *,
    run: str,
    reviewer: str = "",
    episode: str = "",
    payload: dict[str, Any] | None = None,
) -> Event:
    """Append an event to the chain.

    Its salt keeps the next event, whose author sees the hash of this one, from telling what this
    one says: otherwise name, stay and time would leave few verdicts to try.
    """
    last, prev_hash = transaction.execute("SELECT id, hash FROM head").fetchone()
    at = datetime.fromtimestamp(transaction.now, UTC).isoformat(timespec="milliseconds")
    salted = (payload or {}) | {SALT: secrets.token_hex(16)}
    said = json.dumps(salted, sort_keys=True, separators=(",", ":"), allow_nan=False)
    fields = (last + 1, at, run, reviewer, episode, action, said)
    row = (*fields, prev_hash, _hash(fields, prev_hash))
    transaction.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    transaction.execute("UPDATE head SET id = ?, hash = ?", (last + 1, row[-1]))
    return _event(row)


def read_events(
    transaction: Transaction, where: str = "1", values: Sequence[Any] = ()
) -> Iterator[Event]:
    """Yield events in order."""
    for row in transaction.execute(f"SELECT * FROM event WHERE {where} ORDER BY id", values):
        yield _event(row)


def find_break(transaction: Transaction, head: str | None) -> tuple[int | None, str]:
    """Return the first event that breaks the chain and why; None and "" if the chain holds."""
    place, hash_before, found = 0, START, head is None or head == START
    for *fields, prev_hash, own_hash in transaction.execute("SELECT * FROM event ORDER BY id"):
        place += 1
        if fields[0] != place:
            return place, f"event {place} is missing: {fields[0]} comes next"
        if prev_hash != hash_before:
            return place, f"event {place} does not follow the one before"
        if own_hash != _hash(fields, prev_hash):
            return place, f"event {place} was changed"
        hash_before = own_hash
        found = found or hash_before == head
    last, hash_last = transaction.execute("SELECT id, hash FROM head").fetchone() or (0, "")
    if last > place:
        return place + 1, f"events after {place} are missing: there were {last}"
    if (last, hash_last) != (place, hash_before):
        return place, f"event {place} is not the last one that was noted"
    if not found:
        return place + 1, f"no event has the hash {head}: later events were removed or replaced"
    return None, ""


@contextmanager
def copied(path: Path) -> Iterator[Transaction]:
    """Open a copy of the file as the review would open the file, which is only read."""
    in_use = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if in_use else 'immutable=1'}"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with (
            _explained(path),
            closing(sqlite3.connect(address, uri=True)) as connection,
            closing(sqlite3.connect(copy)) as target,
        ):
            if connection.execute("PRAGMA user_version").fetchone() == (0,):
                raise StoreError(f"{path} has no reviews in it; is it the right file?")
            connection.backup(target)
        with closing(EventFile(copy, shown=path)) as file, file.reading() as transaction:
            yield transaction


@contextmanager
def empty_copy() -> Iterator[Transaction]:
    """Open an empty file of reviews in memory."""
    with closing(_in_memory(len(MIGRATIONS))) as connection:
        yield Transaction(connection, 0.0)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and the file system as StoreError, with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; {_remedy(str(error))}") from error
    except UnicodeDecodeError as error:
        raise DamagedError(
            f"{path}: some of its text cannot be read; {_remedy('malformed')}"
        ) from error
    except PermissionError as error:
        raise StoreError(f"{path}: {error.strerror}; {_remedy('readonly')}") from error


def _use_wal(connection: sqlite3.Connection) -> None:
    """Let readers continue while one process writes; several may be setting this at once."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _check_not_lost(path: Path, shown: Path) -> None:
    """Raise if only the newest verdicts are left: SQLite would begin anew, and delete them."""
    wal = path.with_name(f"{path.name}-wal")
    if _size(wal) and not _size(path):  # in this order: another process may be creating both
        raise DamagedError(
            f"{shown} is empty or missing, but {wal.name} has verdicts in it; keep a copy of that "
            "file, and restore both from a backup"
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_undamaged(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless the file is whole, and has just the tables, indexes and triggers of its version.

    An index with one wrong bit would hide verdicts, and a foreign view or trigger could show others
    or never come to an end.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 <= version <= len(MIGRATIONS):
        raise StoreError(
            f"{path} has version {version}, this butfor reads up to {len(MIGRATIONS)}: "
            "use a newer butfor"
        )
    with closing(_in_memory(version)) as expected:
        if _schema(connection) != _schema(expected):
            raise DamagedError(
                f"{path} has tables, views or triggers that butfor did not make, or lacks some; "
                f"{_remedy('malformed')}"
            )
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedError(f"{path}: {' '.join(found.split())}; {_remedy('malformed')}")


def _schema(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"))


def _in_memory(version: int) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _migrate(connection, version)
    return connection


def _migrate(connection: sqlite3.Connection, to: int = len(MIGRATIONS)) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for statements in MIGRATIONS[version:to]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {to}")


def _remedy(message: str) -> str:
    if "readonly" in message or "unable to open" in message:
        return "the folder must exist and you must be allowed to write to it"
    if "locked" in message:
        return "another program has been writing for a long time; close it, or try again"
    if "not a database" in message or "malformed" in message:
        return "it is damaged or another kind of file; move it away, or restore a backup"
    if "full" in message:
        return "free some space on the disk"
    return "nothing was saved"


def _hash(fields: Sequence[Any], prev_hash: str) -> str:
    text = json.dumps([*fields, prev_hash], separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _event(row: Sequence[Any]) -> Event:
    fields = [*row]
    fields[6] = {name: value for name, value in json.loads(fields[6]).items() if name != SALT}
    return Event(*fields)

"""The file of reviews: an append-only, hash-chained table of events in SQLite.

An event is never changed. Each carries the hash of the one before, so that changing, removing or
reordering any of them breaks the chain; the last hash is stored separately, so that events missing
at the end are found too. Whoever can write the file can also forge a whole new chain: note the head
elsewhere to detect that.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from butfor.audit.audit import REVIEWS
from butfor.review.state import SALT, START, Event, State
from butfor.review.verdicts import DamagedError, StoreError

LOG = logging.getLogger("butfor.review")
BUSY_SECONDS = 30.0
DAMAGED = "it is damaged or another kind of file; move it away, or restore a backup"
PATIENCE = 1.0  # seconds of reading events, after which the terminal says so
ENCODE = json.JSONEncoder(separators=(",", ":"), default=repr).encode

# Never change a released schema: append a migration from it, and its digest.
SCHEMA = (
    """CREATE TABLE event (
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, run TEXT NOT NULL, reviewer TEXT NOT NULL,
            episode TEXT NOT NULL, action TEXT NOT NULL, payload TEXT NOT NULL,
            prev_hash TEXT NOT NULL, hash TEXT NOT NULL)""",
    """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never changed'); END""",
    """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
            BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END""",
    """CREATE TRIGGER event_no_replace BEFORE INSERT ON event
            WHEN EXISTS (SELECT 1 FROM event WHERE id >= NEW.id)
            BEGIN SELECT RAISE(ABORT, 'events are only added at the end'); END""",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER, hash TEXT)",
    f"INSERT INTO head VALUES (1, 0, '{START}')",
    # not part of the evidence: the latest one replaces the one before
    """CREATE TABLE draft (
            run TEXT, reviewer TEXT, episode TEXT, repeat INTEGER, content TEXT, at REAL,
            PRIMARY KEY (run, reviewer, episode, repeat))""",
    """CREATE TABLE claim (
            run TEXT, episode TEXT, reviewer TEXT, at REAL,
            PRIMARY KEY (run, episode, reviewer))""",
)
# versions 1 to 4 also had tables that follow from the events, which nobody checked while reading
DERIVED = ("run", "stay", "place", "standing", "review", "settlement", "shown", "answer")
WITHOUT_DERIVED = (
    *(f"DROP TABLE IF EXISTS {table}" for table in DERIVED),
    "DROP INDEX event_of_stay",
)
SCHEMAS = (  # digests, by version
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",  # of an empty file
    "89d6b53c487750f5552b0e811bd208e16f5c8c8213d0f6a44af851257be3b77e",
    "d4af2286ff0b9941b6f05852dfba96e8487058cb95a0f05e83699194871979b8",
    "1530909630cc25d0d37c034d6a823dc43c6feffc6776f77e37056776a1ae4bc0",
    "d00f0be481f5105f5b8cebb6f370badf0ef800fcf7def9bae1acd62363f7907d",
    "b957b007f8c50294078feffb62eba803438a4ca311792a4a12e8cf14d52b563e",
)


@dataclass(frozen=True)
class Transaction:
    """An open transaction, the time at which it began, and what the events say."""

    connection: sqlite3.Connection
    now: float  # seconds since 1970
    state: State

    def execute(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> sqlite3.Cursor:
        """Execute one SQL statement."""
        return self.connection.execute(statement, values)


@dataclass(frozen=True)
class Verification:
    """Whether the file still contains what was written to it."""

    ok: bool
    events: int
    head: str  # hash of the last event; note it elsewhere and pass it to `verify` later
    broken: int | None  # the first event that is wrong or missing
    problem: str


class ChainError(Exception):
    """The events are not those that were written; `event` is the first that is wrong or missing."""

    def __init__(self, event: int, problem: str):
        super().__init__(problem)
        self.event = event


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
        self._alone = threading.Lock()  # fairer than many threads contending for SQLite's lock
        self._state = State()
        _check_not_lost(path, self.shown)
        with _explained(self.shown), ExitStack() as failed:
            self._connection = self._connect()
            failed.callback(self._connection.close)
            _use_wal(self._connection)
            self._connection.execute("BEGIN IMMEDIATE")
            with self._connection:  # a damaged file stays as it is
                check_undamaged(self._connection, self.shown)
                _migrate(self._connection)
                self._catch_up()
            self._file = self._identity()
            failed.pop_all()
        weakref.finalize(self, self._connection.close)  # also if nobody calls `close`

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def reading(self) -> AbstractContextManager[Transaction]:
        """Open a transaction that sees the file as it is now, whatever other processes write."""
        return self._transaction("BEGIN")

    def writing(self, *, durable: bool = True) -> AbstractContextManager[Transaction]:
        """Open the only transaction that writes; on leaving, all of it is on disk or nothing.

        What is not durable outlives the program, but perhaps not a power failure.
        """
        level = "FULL" if durable else "NORMAL"
        return self._transaction(f"PRAGMA synchronous = {level}", "BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, *beginning: str) -> Iterator[Transaction]:
        with self._alone, _explained(self.shown):
            self._check_file()
            known = len(self._state.events)
            try:
                with self._connection:  # commits, or rolls back after an error
                    for statement in beginning:
                        self._connection.execute(statement)
                    state = self._catch_up()
                    yield Transaction(self._connection, self._clock(), state)
            except BaseException:
                if len(self._state.events) > known:  # it may know of events that were not kept
                    self._state = State()
                raise

    def known(self) -> tuple[int, str]:
        """Return number and hash of the last event that was read or written, without reading."""
        with self._alone:
            return len(self._state.events), self._state.head

    def _catch_up(self) -> State:
        """Take in the events that were not seen yet, which must follow those that were."""
        state = self._state
        until = time.monotonic() + PATIENCE
        for event in read_chain(self._connection, len(state.events), state.head):
            state.apply(event)
            if time.monotonic() > until:
                LOG.warning("Reading the events of %s takes a moment …", self.shown)
                until = math.inf
        return state

    def _connect(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            raise StoreError(f"there is no folder {self.path.parent}")
        return sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    def _identity(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_dev, status.st_ino

    def _check_file(self) -> None:
        """Raise if the path no longer leads to the file that was opened."""
        if not self.path.exists() or self._identity() != self._file:
            raise StoreError(f"{self.path} was moved or replaced; restart the review")


def record(
    transaction: Transaction,
    action: str,
    *,
    run: str,
    reviewer: str = "",
    episode: str = "",
    payload: dict[str, Any] | None = None,
) -> Event:
    """Append an event to the chain, and take it in.

    Its salt keeps the next event, whose author sees the hash of this one, from telling what this
    one says: otherwise name, stay and time would leave few verdicts to try.
    """
    state = transaction.state
    at = datetime.fromtimestamp(transaction.now, UTC).isoformat(timespec="milliseconds")
    salted = (payload or {}) | {SALT: secrets.token_hex(16)}
    said = json.dumps(salted, sort_keys=True, separators=(",", ":"), allow_nan=False)
    fields = (len(state.events) + 1, at, run, reviewer, episode, action, said)
    row = (*fields, state.head, _hash((*fields, state.head)))
    transaction.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    transaction.execute("UPDATE head SET id = ?, hash = ?", (row[0], row[-1]))
    event = Event(*row)
    state.apply(event)
    return event


def read_chain(
    connection: sqlite3.Connection, place: int = 0, hash_before: str = START
) -> Iterator[Event]:
    """Yield the events after one of them, each checked; raise where they are not what was written.

    Only the last hash, which is stored separately, tells that none is missing at the end.
    """
    rows = connection.execute("SELECT * FROM event WHERE id > ? ORDER BY id", (place,))
    for row in rows:
        place += 1
        event = Event(*row)
        if event.id != place:
            raise ChainError(place, f"event {place} is missing: {event.id} comes next")
        if event.prev_hash != hash_before:
            raise ChainError(place, f"event {place} does not follow the one before")
        if event.hash != _hash(row[:-1]):
            raise ChainError(place, f"event {place} was changed")
        hash_before = event.hash
        yield event
    last, hash_last = connection.execute("SELECT id, hash FROM head").fetchone() or (0, "")
    if (last, hash_last) == (place, hash_before):
        return
    if isinstance(last, int) and last > place:
        raise ChainError(place + 1, f"events after {place} are missing: there were {last}")
    raise ChainError(place, f"event {place} is not the last one that was noted")


def verify(connection: sqlite3.Connection, head: str | None = None) -> Verification:
    """Recompute the chain of a file; `head`, if given, must be a hash in it."""
    count = connection.execute("SELECT COUNT(*) FROM event").fetchone()[0]
    noted = (connection.execute("SELECT hash FROM head").fetchone() or ("",))[0]
    found = head in (None, START)
    try:
        for event in read_chain(connection):
            found = found or event.hash == head
    except ChainError as error:
        return Verification(False, count, noted, error.event, str(error))
    if not found:
        lost = f"no event has the hash {head}: later events were removed or replaced"
        return Verification(False, count, noted, count + 1, lost)
    return Verification(True, count, noted, None, "")


@contextmanager
def copied(path: Path) -> Iterator[Path]:
    """Give the path of a copy of a file of reviews, which is only read."""
    in_use = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if in_use else 'immutable=1'}"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / REVIEWS
        with (
            _explained(path),
            closing(sqlite3.connect(address, uri=True)) as connection,
            closing(sqlite3.connect(copy)) as target,
        ):
            if connection.execute("PRAGMA user_version").fetchone() == (0,):
                raise StoreError(f"{path} has no reviews in it; is it the right file?")
            connection.backup(target)
        yield copy


def verify_file(path: Path, head: str | None = None) -> Verification:
    """Verify a file of reviews without writing to it."""
    try:
        with copied(path) as copy, _explained(path), closing(sqlite3.connect(copy)) as connection:
            check_undamaged(connection, path)
            return verify(connection, head)
    except DamagedError as damage:
        return Verification(ok=False, events=0, head="", broken=None, problem=str(damage))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and the file system as StoreError, with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        words = str(error)
        if "Could not decode" in words:  # what follows is a reviewer's text
            raise DamagedError(f"{path}: some of its text cannot be read; {DAMAGED}") from error
        remedy = _remedy(words)
        kind = DamagedError if remedy == DAMAGED else StoreError
        raise kind(f"{path}: {words}; {remedy}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(f"{path}: some of its text cannot be read; {DAMAGED}") from error
    except ChainError as error:
        raise DamagedError(
            f"{path} is damaged or was changed: {error}; restore a backup"
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


def check_undamaged(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless the file is whole, and has just the tables, indexes and triggers of its version.

    An index with one wrong bit would hide verdicts, and a foreign view or trigger could show others
    or never come to an end.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 <= version < len(SCHEMAS):
        raise StoreError(
            f"{path} has version {version}, this butfor reads up to {len(SCHEMAS) - 1}: "
            "use a newer butfor"
        )
    if _schema(connection) != SCHEMAS[version]:
        raise DamagedError(
            f"{path} has tables, views or triggers that butfor did not make, or lacks some; "
            f"{DAMAGED}"
        )
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedError(f"{path}: {' '.join(found.split())}; {DAMAGED}")


def _schema(connection: sqlite3.Connection) -> str:
    """Return the digest of a file's tables, indexes, views and triggers."""
    found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return hashlib.sha256("\n".join(sorted(map(repr, found))).encode()).hexdigest()


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version < len(SCHEMAS) - 1:
        for statement in WITHOUT_DERIVED if version else SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(SCHEMAS) - 1}")


def _remedy(message: str) -> str:
    if "readonly" in message or "unable to open" in message:
        return "the folder must exist and you must be allowed to write to it"
    if "locked" in message:
        return "another program has been writing for a long time; close it, or try again"
    if "not a database" in message or "malformed" in message:
        return DAMAGED
    if "full" in message:
        return "free some space on the disk"
    return "nothing was saved"


def _hash(fields: Sequence[Any]) -> str:
    """Return the hash of an event from all its other fields, the hash before included."""
    return hashlib.sha256(ENCODE(fields).encode()).hexdigest()

"""Sessions, tokens, and the limit on failed sign-ins."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from butfor.review.verdicts import FieldError, check_reviewer

HOURS = 12
MOST_SESSIONS = 10_000
MOST_FAILURES = 5  # in a minute, from one address
MOST_FAILURES_IN_ALL = 200
SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Session:
    """A browser's session; `reviewer` is empty until somebody signs in."""

    id: str
    csrf: str  # token that every form must return
    reviewer: str
    until: float


class Sessions:
    """Sessions in memory; a restart ends them, which loses neither verdicts nor drafts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, Session] = {}

    def start(self, reviewer: str = "") -> Session:
        """Start a session under an unguessable id."""
        until = self._clock() + 3600 * HOURS
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), reviewer, until)
        with self._lock:
            if len(self._known) >= MOST_SESSIONS:  # those who never signed in go first
                idle = (key for key, known in self._known.items() if not known.reviewer)
                del self._known[next(idle, next(iter(self._known)))]
            self._known[session.id] = session
        return session

    def find(self, identifier: str | None) -> Session | None:
        """Return a session that has not ended."""
        with self._lock:
            found = self._known.get(identifier or "")
            if found is not None and found.until < self._clock():
                del self._known[found.id]
                return None
            return found

    def end(self, identifier: str | None) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._known.pop(identifier or "", None)


class FailedSignIns:
    """Failed attempts to sign in within the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: list[tuple[float, str]] = []

    def too_many(self, address: str) -> bool:
        """Return whether an address must wait before trying again."""
        with self._lock:
            oldest = self._clock() - 60
            self._failed = [entry for entry in self._failed if entry[0] > oldest]
            own = sum(entry[1] == address for entry in self._failed)
            return own >= MOST_FAILURES or len(self._failed) >= MOST_FAILURES_IN_ALL

    def add(self, address: str) -> None:
        """Count a failure."""
        with self._lock:
            self._failed.append((self._clock(), address))


class Tokens:
    """The names of reviewers and the digests of their tokens."""

    def __init__(self, tokens: Mapping[str, str]):
        self._digests = {name: _digest(token) for name, token in tokens.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Whose tokens they are."""
        return tuple(self._digests)

    def match(self, name: str, token: str) -> bool:
        """Compare a token, taking the same time whether name and token are right or not."""
        known = self._digests.get(name, _digest(""))
        return hmac.compare_digest(known, _digest(token)) and name in self._digests


def read_tokens(path: str | Path) -> Tokens:
    """Read a file with one `name token` per line, which only its owner may be able to read."""
    file = Path(path)
    mode = file.stat().st_mode
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"{file} can be read by others on this machine: chmod 600 {file}")
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        *words, token = line.split()
        try:
            name = check_reviewer(" ".join(words))
        except FieldError as problem:
            raise ValueError(f"{file}, line {number}: {problem}; write: name token") from None
        if len(token) < SHORTEST_TOKEN:
            raise ValueError(
                f"{file}, line {number}: the token of {name} has {len(token)} characters; use at "
                f"least {SHORTEST_TOKEN}, for example from: openssl rand -hex 16"
            )
        if name.casefold() in {known.casefold() for known in found}:
            raise ValueError(
                f"{file}, line {number}: {name} is listed twice; capitals make no difference"
            )
        found[name] = token
    if not found:
        raise ValueError(f"{file} names no reviewer; write one per line: name token")
    return Tokens(found)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()

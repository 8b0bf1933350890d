"""Sessions, tokens, and how failed sign-ins slow down those that follow."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from butfor.review.verdicts import FieldError, check_reviewer

HOURS = 12
MOST_SESSIONS = 10_000
FREE_FAILURES = 3  # from one address, before its sign-ins are answered later
FIRST_DELAY, LONGEST_DELAY = 0.5, 16.0  # seconds; the delay doubles with each failure
FAILURES_KEPT = 600.0  # seconds without another one after which failures are forgotten
MOST_ADDRESSES = 10_000
LEAST_BITS = 64  # of a token, as `guessable_bits` counts them


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
    """Failed attempts to sign in, by address, and how long the next answer takes for them.

    Right tokens are answered as late as wrong ones, so that a quick answer tells nothing, but they
    are never refused: otherwise, behind a shared address, anybody could lock others out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, float]] = {}  # how many, and when the last one was

    def delay(self, address: str) -> float:
        """Return how many seconds an address has to wait for the answer to its next attempt."""
        with self._lock:
            doublings = self._count(address) - FREE_FAILURES
        return 0.0 if doublings < 0 else min(FIRST_DELAY * 2.0 ** min(doublings, 60), LONGEST_DELAY)

    def add(self, address: str) -> None:
        """Count a failure."""
        with self._lock:
            count = self._count(address) + 1
            self._failed.pop(address, None)  # so that the order is that of the last failures
            self._failed[address] = count, self._clock()
            if len(self._failed) > MOST_ADDRESSES:
                del self._failed[next(iter(self._failed))]

    def _count(self, address: str) -> int:
        count, last = self._failed.get(address, (0, 0.0))
        return count if self._clock() - last < FAILURES_KEPT else 0


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
    check_private(file, stat.S_IRWXG | stat.S_IRWXO)
    found: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        *words, token = line.split()
        try:
            name = check_reviewer(" ".join(words))
        except FieldError as problem:
            raise ValueError(f"{file}, line {number}: {problem}; write: name token") from None
        bits = guessable_bits(token)
        if bits < LEAST_BITS:
            raise ValueError(
                f"{file}, line {number}: the token of {name} is too easy to guess, with about "
                f"{bits:.0f} bits where {LEAST_BITS} are needed; make one: openssl rand -hex 16"
            )
        if name.casefold() in {known.casefold() for known in found}:
            raise ValueError(
                f"{file}, line {number}: {name} is listed twice; capitals make no difference"
            )
        found[name] = token
    if not found:
        raise ValueError(f"{file} names no reviewer; write one per line: name token")
    return Tokens(found)


def check_private(file: Path, others: int = stat.S_IRWXO) -> None:
    """Refuse a file that others may read, by the bits of its permissions for `others`."""
    if os.name == "posix" and file.stat().st_mode & others:
        raise ValueError(f"{file} can be read by others on this machine: chmod 600 {file}")


def guessable_bits(token: str) -> float:
    """Return how many bits a token has, at most, by the variety of its characters and steps.

    Repetitions count once; runs such as 12345 have little variety in their steps.
    """
    short = re.sub(r"(.+?)\1+", r"\1", token[:200])
    steps = [ord(after) - ord(before) for before, after in pairwise(short)]
    return min(_variety(short), _variety(steps))


def _variety(values: Sequence[Hashable]) -> float:
    """Return the entropy of values, all of them together, in bits."""
    return sum(n * math.log2(len(values) / n) for n in Counter(values).values())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()

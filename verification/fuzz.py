"""Hostile and broken input for every reader, by seed: it may only raise errors of butfor.

A target makes input number i of a seed and passes it to a reader. `attack` feeds it one input after
the other and records what went wrong: an error of another library, more than a second, or more than
1 GB. `python -m verification.fuzz TARGET SEED NUMBER` repeats one input.
"""

from __future__ import annotations

import linecache
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import butfor

SECONDS = 1.0  # of processor time for one input
STUCK = 20.0  # of wall-clock time: the reader is waiting for something
MEMORY = 2**30  # of the whole process
SOURCE = str(Path(butfor.__file__).parent)
OWN = (ValueError, FileNotFoundError, PermissionError)

Feed = Callable[[random.Random, Path], None]  # makes one input in a folder and reads it


class TooLongError(BaseException):
    """Raised by the alarm; no reader may catch it."""


@dataclass
class Attack:
    """The results of the inputs of one target."""

    target: str
    inputs: int = 0
    read: int = 0  # number of inputs that were read
    slowest: float = 0.0  # seconds
    slowest_number: int = -1
    memory: int = 0  # bytes, at most
    findings: list[str] = field(default_factory=list)


def is_own(error: BaseException) -> bool:
    """Whether an error was raised on purpose: of our types, by a `raise` in butfor."""
    if type(error) not in OWN:
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(SOURCE) and line.startswith("raise ")


def attack(
    target: str, feed: Feed, seed: int, numbers: range, *, seconds: float = SECONDS
) -> Attack:
    """Feed inputs to a target; a finding names the command that repeats it, and a copy."""
    found = Attack(target, memory=_peak())
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="butfor-fuzz-") as name:
            folder = Path(name)
            started = time.process_time()
            rng = random.Random(f"{target} {seed} {number}")
            problem = _feed_one(feed, rng, folder, found, seconds)
            taken = time.process_time() - started
            if taken > found.slowest:
                found.slowest, found.slowest_number = taken, number
            memory = _peak()
            if memory > MEMORY >= found.memory:
                problem = problem or f"memory grew to {memory / 2**20:.0f} MB\n"
            if taken > seconds:
                problem = problem or f"took {taken:.1f} s\n"
            found.memory = max(found.memory, memory)
            found.inputs += 1
            if problem:
                kept = tempfile.mkdtemp(prefix=f"butfor-fuzz-{target}-{number}-")
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                again = f"python -m verification.fuzz {target} {seed} {number}"
                found.findings.append(f"{again}\ninput kept in {kept}\n{problem}")
    return found


def _peak() -> int:
    """Return the peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _feed_one(feed: Feed, rng: random.Random, folder: Path, found: Attack, seconds: float) -> str:
    """Return what went wrong, or an empty string."""
    try:
        with _alarm(seconds), warnings.catch_warnings():
            warnings.simplefilter("error")
            feed(rng, folder)
        found.read += 1
    except TooLongError:
        return "took too long\n" + traceback.format_exc(limit=-4)
    except Exception as error:
        if not is_own(error):
            return "".join(traceback.format_exception(error, limit=-6))
    return ""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Interrupt what takes more than these seconds of processor time, or is stuck."""

    def ring(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, ring)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, STUCK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


# Numbers, words and bytes that are hard on readers.
NUMBERS = """0 1 -1 2 0.5 1.0 -0.0 1e-9 1e308 1e999 -1e999 nan inf -inf 007 1_000 0x10 +1 .5 5. 1e
1,5 ٣ ² 1e-400 20000 100000 1000000 5000000 99999999 2147483647 2147483648 9007199254740993
9223372036854775807 9223372036854775808 1e19""".split()  # noqa: SIM905
TEXTS = ["", " ", "\x00", "\ufeff", "\u202e", "é", "日本", "🙂", '"', "'", "\\", "\n", "\r", "\t"]
TEXTS += [
    "a" * 5000,
    "[" * 3000,
    "9" * 5000,
    "None",
    "NaN",
    "NULL",
    "true",
    "#",
    "*",
    ":",
    "{}",
    ",",
]
BYTES = [b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\x80", b"\r", b"\n", b"\x1f\x8b", b"PK"]


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, delete, repeat, replace and insert bytes in a few places."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        stop = min(len(changed), at + rng.choice((1, 1, 2, 4, 8, 64, 1000)))
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:stop]
        elif kind == 2:
            changed[at:at] = changed[at:stop] * rng.choice((1, 2, 50))
        elif kind == 3:
            changed[at:at] = rng.choice(BYTES)
        elif kind == 4:
            changed[at:stop] = rng.randbytes(stop - at)
        elif kind == 5:
            changed[at:at] = rng.choice(NUMBERS + TEXTS).encode()
        elif rng.random() < 0.3:
            del changed[at:]
    return bytes(changed)


def mutate_words(rng: random.Random, words: list[str], vocabulary: list[str]) -> list[str]:
    """Replace, delete, repeat, swap and insert words in a few places."""
    changed = list(words)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not changed:
            return [rng.choice(vocabulary)]
        at, other = rng.randrange(len(changed)), rng.randrange(len(changed))
        kind = rng.randrange(7)
        if kind == 0:
            del changed[at : at + rng.choice((1, 1, 1, 5))]
        elif kind == 1:
            changed[at], changed[other] = changed[other], changed[at]
        elif kind == 2:
            low, high = sorted((at, other))
            changed[at:at] = changed[low : min(high, low + 20)]
        elif kind == 3:
            changed[at] = rng.choice(NUMBERS)
        elif kind == 4:
            changed[at] = rng.choice(TEXTS)
        else:
            changed[at : at + rng.randint(0, 1)] = [rng.choice(vocabulary)]
    return changed


if __name__ == "__main__":
    from verification.fuzz_targets import TARGETS

    name, seed, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    TARGETS[name].prepare()
    result = attack(name, TARGETS[name].feed, seed, range(number, number + 1))
    print(result)
    print("\n".join(result.findings))

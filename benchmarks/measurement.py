"""What a benchmark reports, and how it is timed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import butfor as bf
from tests.reference import sepsis as plain_sepsis

PLAIN_EPISODES = 4000
USUAL = 114e-6  # CPU seconds of an episode in plain Python, where times were promised


@dataclass(frozen=True)
class Measurement:
    """One line of the table: what was measured, what came out, what was promised."""

    work: str
    seconds: float | None
    promise: str
    ratio: float | None = None
    note: str = ""
    kept: bool | None = None  # whether the promise was kept; None: a time, "about"


def best_of(runs: int, work: Callable[[], object]) -> float:
    """Return the shortest time of several runs, after one to warm up."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def core_seconds(runs: int, work: Callable[[], object]) -> float:
    """Return the least CPU time of several runs, after one to warm up.

    Other programs disturb it less than the time that passes.
    """
    work()
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


@cache
def plain_seconds() -> float:
    """Return the CPU time of simulating a sepsis episode in plain Python."""
    policy = bf.sepsis.behavior_policy("icml2019").tolist()

    def simulate() -> None:
        plain_sepsis.simulate(policy, PLAIN_EPISODES, random.Random(0), "icml2019")

    return core_seconds(2, simulate) / PLAIN_EPISODES


def slowness() -> float:
    """Return how many times as long as usual plain Python takes on this machine, at least 1."""
    return max(1.0, plain_seconds() / USUAL)


def within(seconds: float, limit: float) -> bool:
    """Whether a time is below a limit, which is longer on a slow machine."""
    return seconds < limit * slowness()


def in_own_process(code: str) -> tuple[float, float]:
    """Run code that sets `seconds`, and return them and the peak memory in bytes."""
    # not getrusage, whose peak begins with that of the parent process
    report = (
        "\nimport json"
        "\nlines = open('/proc/self/status').read().splitlines()"
        "\npeak = next(int(x.split()[1]) * 1024 for x in lines if x.startswith('VmHWM'))"
        "\nprint(json.dumps([seconds, peak]))"
    )
    seconds, memory = json.loads(subprocess.check_output([sys.executable, "-c", code + report]))
    return seconds, memory

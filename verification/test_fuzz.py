"""More than 100,000 broken and hostile inputs: each is read, or refused in our own words.

None may take more than a second or 1 GB. `-s` shows how many were read, the slowest and the peak.
"""

from __future__ import annotations

import resource
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from verification.fuzz import MEMORY, SECONDS, Attack, attack
from verification.fuzz_targets import TARGETS

SEED = 1
WORKERS = 2


def attack_part(name: str, numbers: range) -> Attack:
    """Attack in a process of its own, which may not take the whole machine."""
    resource.setrlimit(resource.RLIMIT_AS, (8 * MEMORY, 8 * MEMORY))
    target = TARGETS[name]
    target.prepare()
    return attack(name, target.feed, SEED, numbers)


def test_there_are_at_least_100_000_inputs() -> None:
    assert sum(target.inputs for target in TARGETS.values()) >= 100_000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_gets_past_our_own_errors(name: str) -> None:
    size = TARGETS[name].inputs // WORKERS
    parts = [range(start, start + size) for start in range(0, WORKERS * size, size)]
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        results = list(pool.map(attack_part, [name] * WORKERS, parts))
    slowest, peak = max(r.slowest for r in results), max(r.memory for r in results)
    read, inputs = sum(r.read for r in results), sum(r.inputs for r in results)
    print(
        f"{name}: {inputs:,} inputs, {read:,} read, slowest {slowest:.2f} s, {peak / 2**20:.0f} MB"
    )
    findings = [finding for result in results for finding in result.findings]
    assert not findings, f"{len(findings)} findings, the first:\n{findings[0]}"
    assert 0 < read < inputs
    assert slowest <= SECONDS
    assert peak <= MEMORY

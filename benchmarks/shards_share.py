"""How much of an audit in shards is what none can do without: reading, the exact pass, writing.

All in CPU time and in one run, so that the share hardly depends on the machine or on its load.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

import butfor as bf
from benchmarks.measurement import Measurement
from benchmarks.shards import TABULAR, WARM, write_shards
from butfor.audit.audit import Audit
from butfor.audit.files import TableWriter
from butfor.audit.shards import audit_shards

EPISODES = 100_000
RUNS = 2
PROMISED = 0.25  # of the CPU time; learning, planning and rehearsing take the same at any size


def measure_share() -> list[Measurement]:
    """Audit a log in shards, and do only what is needed of it with the same files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "warm").mkdir()
        few, some = write_shards(folder / "warm", WARM)
        audit_shards(some, few, folder / "compiled", TABULAR)
        study, files = write_shards(folder, EPISODES)
        out = folder / "audit"
        audits, needs = [], []
        for _ in range(RUNS):
            audits.append(
                cpu_seconds(lambda: audit_shards(files, study, out, TABULAR, overwrite=True))
            )
            needs.append(need(study, out, files))
        whole, parts = min(audits), [min(column) for column in zip(*needs, strict=True)]
    share = sum(parts) / whole
    told = (f"{took:.1f}" for took in parts)
    reading, replaying, writing = told
    return [
        Measurement(
            f"audit in shards, {EPISODES:,} sepsis episodes: CPU time",
            whole,
            f"at least {PROMISED:.0%} of it reads, replays and writes",
            share,
            f"reading the files once takes {reading} s, the exact pass {replaying} s, and writing "
            f"the tables {writing} s: {share:.0%}",
            share >= PROMISED,
        )
    ]


def need(study: Path, out: Path, files: Sequence[Path]) -> tuple[float, float, float]:
    """Return the CPU time of reading, of the exact pass with its steps, and of writing."""
    audit = Audit.load(out, shown=True)
    reading, replaying, writing = 0.0, 0.0, 0.0
    for file in files:
        logs: list[bf.Episodes] = []
        reading += cpu_seconds(lambda: logs.append(bf.read_episodes(file, study)))  # noqa: B023
        question = bf.Replay(
            logs[0],
            audit.model,
            audit.target,
            behavior=audit.behavior,
            horizon=audit.meta.parameters.horizon,
        )
        replaying += cpu_seconds(lambda: question.compute(threads=1))  # noqa: B023
    for name in ("episodes", "steps"):
        table = pq.read_table(out / f"{name}.parquet")
        with TableWriter(out.parent / f"{name}.parquet", table.schema) as writer:
            writing += cpu_seconds(lambda: writer.write(table))  # noqa: B023
    return reading, replaying, writing


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start

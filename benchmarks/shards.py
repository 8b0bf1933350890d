"""Measure audits in shards: logs of three sizes, each in a process of its own.

`python -m benchmarks.shards STUDY OUT FILE...` audits these files and prints what it cost as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import butfor as bf
from benchmarks.growth_chart import growth_chart
from butfor.audit.settings import AuditSettings
from butfor.audit.shards import Cluster, Threads, audit_shards
from butfor.audit.shards.log import Shard
from butfor.audit.shards.parts import parts_folder
from butfor.audit.shards.run import PASSES
from butfor.audit.shards.workers import Done, Work, Workers
from butfor.present.charts import save_figure

SIZES = (10_000, 100_000, 1_000_000)
EACH = 10_000  # episodes of a shard
WARM = 100  # episodes of the run that compiles
PICTURE = Path(__file__).parent / "shards"
TABULAR = AuditSettings(model="tabular")  # what the promises are about


@dataclass(frozen=True)
class Cost:
    """What an audit of some episodes took."""

    episodes: int
    seconds: float
    cpu: float  # seconds of all cores, without those of processes of a cluster
    bytes: int  # peak memory of the process
    disk: int  # bytes of the parts, when all were there
    folder: int  # bytes of the audit
    alone: float  # seconds in which the coordinating program worked and its workers waited
    serving: float  # seconds that it spent on what workers gave, while they went on
    written: float  # of those alone, seconds in which the tables were put together


def write_shards(
    folder: Path, episodes: int, each: int = EACH, *, dealt: bool = False
) -> tuple[Path, list[Path]]:
    """Write a sepsis log in shards; return its study file and its files in order.

    Files follow each other in the order of ids, or ids are `dealt` out over all of them.
    """
    study = folder / "study.toml"
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), episodes, version="corrected")
    log = log.hide("glucose", "diabetes")
    count = -(-episodes // each)
    everyone = np.arange(episodes)
    groups = (
        [everyone[n::count] for n in range(count)]
        if dealt
        else np.split(everyone, range(each, episodes, each))
    )
    files = [folder / f"part-{number:05d}.parquet" for number in range(count)]
    for file, group in zip(files, groups, strict=True):
        bf.write_episodes(log.select(group), file, study)
    return study, files


def measure_sizes() -> list[Cost]:
    """Audit sepsis logs of each size, and draw time and memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study, files = write_shards(folder, max(SIZES))
        costs = [measure_audit(study, folder / "audit", files[: size // EACH]) for size in SIZES]
    table = pd.DataFrame([asdict(cost) for cost in costs])
    save_figure(growth_chart(table), PICTURE, ["svg"])
    return costs


def measure_audit(study: Path, out: Path, files: Sequence[Path], *options: str) -> Cost:
    """Audit some files in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.shards", *options, study, out, *files]
    return Cost(**json.loads(subprocess.check_output([str(word) for word in command])))


class Watched:
    """Workers that are passed on, while it is seen how long what comes of them takes."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.passes = 0
        self.working = 0.0  # seconds of all passes
        self.serving = 0.0  # of these, seconds in which results were kept

    def run(self, work: Work, shards: Sequence[Shard], shared: Mapping[str, Any]) -> Iterator[Done]:
        """Pass on what the workers give."""
        began = time.perf_counter()
        for done in self.workers.run(work, shards, shared):
            given = time.perf_counter()
            yield done
            self.serving += time.perf_counter() - given
        self.working += time.perf_counter() - began
        self.passes += 1

    def close(self) -> None:
        """Let go of the workers."""
        self.workers.close()


def audit(study: Path, out: Path, files: Sequence[Path], workers: Workers) -> Cost:
    """Audit some files, after a small run that compiles."""
    with tempfile.TemporaryDirectory() as name:
        few, some = write_shards(Path(name), WARM, WARM // 4)
        audit_shards(some, few, Path(name) / "audit", TABULAR, workers=workers)
    watched = Watched(workers)
    disk = 0

    def weigh(_done: int, _total: int) -> None:
        nonlocal disk
        if watched.passes == PASSES and not disk:
            disk = _size(parts_folder(out))

    began, used = time.perf_counter(), time.process_time()
    audit_shards(files, study, out, TABULAR, workers=watched, overwrite=True, progress=weigh)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    meta = json.loads((out / "meta.json").read_text())
    told = meta["seconds"]
    return Cost(
        episodes=meta["counts"]["episodes"],
        seconds=seconds,
        cpu=cpu,
        bytes=_peak(),
        disk=disk,
        folder=_size(out),
        alone=seconds - watched.working,
        serving=watched.serving,
        written=told["all"] - told["counting"] - told["judging"],
    )


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _peak() -> int:
    """Peak memory of this process in bytes; ru_maxrss would begin with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Audit the files of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    workers: Workers = Threads(given.threads)
    if given.processes:
        workers = Cluster(workers=given.processes)
    cost = audit(given.study, given.out, given.files, workers)
    workers.close()
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()

"""Logs in shards, and audits of them, that several test files share."""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from butfor import sepsis
from butfor.audit.settings import AuditSettings
from butfor.log.write import write_episodes

EPISODES = 300
# the bounds of a few episodes only, and no rehearsal: together they take longer than all the rest
FEW = AuditSettings(flags=5, review_size=12, intervals=20, rehearsal=False)
SUMMARY = (
    *("--detail", "summary", "--flags", "5", "--review-size", "12"),
    *("--intervals", "20", "--no-rehearsal"),
)
TABLES = (
    "estimates",
    "diagnostics",
    "episodes",
    "decomposition",
    "steps",
    "draws",
    "courses",
    "course_steps",
)


@cache
def simulate_patients():
    """Simulate a log whose glucose and diabetes no model sees."""
    physician = sepsis.behavior_policy("corrected")
    full = sepsis.simulate(physician, EPISODES, seed=3, version="corrected")
    return full.hide("glucose", "diabetes")


def write_shards(log, folder, groups):
    folder.mkdir()
    for number, group in enumerate(groups):
        path = folder / f"part-{number:03d}.parquet"
        write_episodes(log.select(group), path, folder.parent / "study.toml")
    return folder


def check_same(folder, other):
    for name in TABLES:
        ours, theirs = (part / f"{name}.parquet" for part in (folder, other))
        assert ours.read_bytes() == theirs.read_bytes(), name
    assert (folder / "model.npz").read_bytes() == (other / "model.npz").read_bytes()


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)


# What is put in order and written together is small here, as it is beside a large log.
MEASURED = """
import sys
import butfor.audit.files, butfor.audit.shards.run as run
from tests.shard_logs import FEW
butfor.audit.files.ROW_GROUP = 1000
run.RANGE = run.SAMPLED
run.audit_shards(*sys.argv[1:], FEW, workers=run.Threads(1))
print([l for l in open("/proc/self/status") if l.startswith("VmHWM")][0].split()[1])
"""


def peaks_of_memory(log, few, many, place):
    """Return what audits of a few and of many shards like this log take, in bytes.

    And what the working arrays and tables of the additional rows would take at once.
    """

    def peak(count):
        folder = place / f"log-{count}"
        folder.mkdir()
        for number in range(count):
            shard = replace(log, id=np.arange(len(log)) + number * len(log))
            write_episodes(shard, folder / f"{number:03d}.parquet", place / "s.toml")
        arguments = [str(folder), str(place / "s.toml"), str(place / f"audit-{count}")]
        result = subprocess.run(
            [sys.executable, "-c", MEASURED, *arguments],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
        return int(result.stdout) * 1024

    return peak(few), peak(many), 1_000 * (many - few) * (len(log.state) + len(log))

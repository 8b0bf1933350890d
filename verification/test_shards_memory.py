"""The memory of an audit does not grow with the number of shards, at the size of real ones."""

import subprocess
import sys
from dataclasses import replace

import numpy as np

from butfor.log.write import write_episodes
from tests.shard_logs import simulate_patients

# What is put in order and written together is small here, as it is beside a large log.
MEASURED = """
import sys
import butfor.audit.files, butfor.audit.shards.run as run, butfor.audit.shards.stitch as stitch
butfor.audit.files.ROW_GROUP = 1000
stitch.RANGE = stitch.SAMPLED
run.audit_shards(*sys.argv[1:], workers=run.Threads(1))
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
            [sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True
        )
        return int(result.stdout) * 1024

    return peak(few), peak(many), 1_000 * (many - few) * (len(log.state) + len(log))


def test_memory_does_not_grow_with_the_number_of_shards(tmp_path):
    few, many, held = peaks_of_memory(simulate_patients(300), 6, 24, tmp_path)
    assert many - few < held / 4, (few, many)

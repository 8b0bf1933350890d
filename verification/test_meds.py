"""A million MEDS events to an audit, in memory that the number of files does not decide."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.meds_data import STUDY, write_data

ROOT = Path(__file__).parents[1]
SUBJECTS_PER_SHARD = 2500  # about 64,000 events
# an audit in a process of its own, which tells the most memory that it ever had
CHILD = """
import resource, sys
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into

audit_into(*sys.argv[1:4], AuditSettings(detail=sys.argv[4]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak_memory(source, out, detail):
    """Return the peak memory of an audit, in MB."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", CHILD, source, STUDY, out, detail]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Audit data sets of 1, 4 and 16 files of the same size: events and peak memory by files."""
    folder, rows = tmp_path_factory.mktemp("meds"), []
    for shards in (1, 4, 16):
        events = write_data(folder / str(shards), shards * SUBJECTS_PER_SHARD, shards)
        # "auto" means this for more than a million events
        peak = peak_memory(folder / str(shards), folder / f"audit {shards}", "summary")
        rows.append({"files": shards, "events": events, "peak": round(peak)})
    table = pd.DataFrame(rows).set_index("files")
    print(f"\n{table}")
    return folder, table


def test_a_million_events_take_hardly_more_memory_than_a_quarter_of_them(measured):
    _, table = measured
    assert table.events[16] > 1_000_000
    assert table.events[16] > 3.9 * table.events[4]
    # if all events were kept, memory would grow nearly fourfold
    assert table.peak[16] < 1.5 * table.peak[4]
    assert table.peak[16] < 1000


def test_the_audit_of_a_million_events_counts_what_the_files_hold(measured):
    folder, _ = measured
    data = folder / "16" / "data"
    codes = pd.concat(
        [pd.read_parquet(path, columns=["subject_id", "code"]) for path in data.rglob("*.parquet")]
    )
    stays = codes.code.str.startswith("ICU_ADMISSION").sum()
    died = (codes.code == "MEDS_DEATH").sum()
    estimates = pd.read_parquet(folder / "audit 16" / "estimates.parquet").set_index("estimator")
    episodes = pd.read_parquet(
        folder / "audit 16" / "episodes.parquet", columns=["id", "observed_outcome"]
    )
    assert len(episodes) == stays
    assert (episodes.observed_outcome == "died").sum() == died
    # each stay that does not end in death is worth 1, each that does -1
    assert estimates.value["Observed"] == pytest.approx((stays - 2 * died) / stays, abs=1e-12)

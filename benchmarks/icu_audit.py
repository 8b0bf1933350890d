"""`butfor audit` with its defaults on ICU-Sepsis: stays in a CSV file, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measurement import Measurement, in_own_process, within
from butfor.interop.icu_sepsis import LONGEST_STAY, IcuSepsis
from butfor.models.simulate import simulate_model

MOST_SECONDS, MOST_BYTES = 60, 2e9  # promised, on two cores
AUDIT = """
import contextlib, io, sys, time
start = time.perf_counter()
from butfor.cli.main import app
with contextlib.redirect_stdout(io.StringIO()):
    app(["audit", {log!r}, "--study", {study!r}, "--out", {out!r}], standalone_mode=False)
seconds = time.perf_counter() - start
print(f"{{time.process_time():.1f}} CPU seconds", file=sys.stderr)
"""


def write_stays(data: IcuSepsis, stays: int, path: Path) -> None:
    """Write stays under the expert policy, one row per decision, with ready-made states."""
    log = simulate_model(data.model, data.expert_policy, stays, horizon=LONGEST_STAY, seed=0)
    outcome = np.full(len(log.state), None, dtype=object)
    names = np.array([*(one.name for one in log.outcomes), None], dtype=object)
    outcome[log.offsets[1:] - 1] = names[log.outcome]
    pd.DataFrame(
        {
            "stay": np.repeat(log.id, log.lengths),
            "step": log.time,
            "state": log.state,
            "action": log.action,
            "outcome": outcome,
        }
    ).to_csv(path, index=False)


def audit_stays(data: IcuSepsis, stays: int, folder: Path) -> tuple[float, float]:
    """Draft a study file, audit with defaults into `folder / "audit"`: seconds, peak bytes."""
    log, study = folder / "icu.csv", folder / "study.toml"
    write_stays(data, stays, log)
    start = [sys.executable, "-c", "from butfor.cli.main import run; run()"]
    subprocess.run([*start, "init", log, "--out", study], check=True, stdout=subprocess.DEVNULL)
    return in_own_process(AUDIT.format(log=str(log), study=str(study), out=str(folder / "audit")))


def measure_icu_audit(data: IcuSepsis, stays: int, folder: Path) -> Measurement:
    """Return the line of a benchmark."""
    seconds, memory = audit_stays(data, stays, folder)
    return Measurement(
        f"butfor audit with defaults, {stays:,} stays of ICU-Sepsis",
        seconds,
        f"under {MOST_SECONDS} s and {MOST_BYTES / 1e9:.0f} GB",
        None,
        f"peak memory {memory / 1e6:,.0f} MB; the start of the program included",
        within(seconds, MOST_SECONDS) and memory < MOST_BYTES,
    )

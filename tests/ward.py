"""A ward's log with dates, numbers that are cut or clustered, gaps, and long names of levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

PRESSORS = ("no vasopressor given", "low dose (below 0.1 µg/kg/min)", "high dose or two drugs")
_COMMON = f"""
[columns]
episode = "stay"
time = "at"
time_step = "4h"
outcome = "end"
[action.pressor]
levels = ["{PRESSORS[0]}", "{PRESSORS[1]}", "{PRESSORS[2]}"]
[missing.lactate]
fill = 1.5
[outcome.died]
reward = -1.0
bad = true
[outcome.home]
reward = 1.0
[words]
episode = "stay"
"""
# lactate is listed as side information, too, although the model is given it
CUT = f"""{_COMMON}
[state.lactate]
cuts = [1.48, 3.11]
name = "Lactate (mmol/l)"
[state.age]
cuts = [50, 70]
static = true
[side.lactate]
type = "number"
[side.beds]
"""
CLUSTERED = f"""{_COMMON}
[cluster]
columns = ["lactate", "age"]
count = 4
[side.lactate]
type = "number"
name = "Lactate (mmol/l)"
"""


def ward_log(stays: int = 60) -> pd.DataFrame:
    """Return stays of two to five rows, one every four hours; a third of lactates is missing."""
    rng = np.random.default_rng(0)
    rows = []
    for stay in range(stays):
        begin = pd.Timestamp("2024-01-01 06:30") + pd.Timedelta(hours=int(rng.integers(1000)))
        age = int(rng.integers(30, 90))
        for step in range(int(rng.integers(2, 6))):
            lactate = None if rng.random() < 0.3 else round(float(rng.uniform(1, 6)), 2)
            row = [stay, begin + pd.Timedelta(hours=4 * step), lactate, age]
            drug = int(rng.integers(3))
            rows.append([*row, PRESSORS[drug], int(rng.integers(20)), None])
        rows[-1][-1] = "died" if rng.random() < (0.9, 0.3, 0.2)[drug] else "home"
    return pd.DataFrame(rows, columns=["stay", "at", "lactate", "age", "pressor", "beds", "end"])


def write_ward(folder: Path, study: str = CUT) -> tuple[Path, Path]:
    """Write the log, also as two parts in a folder, and its study; return both paths."""
    frame = ward_log()
    frame.to_csv(folder / "log.csv", index=False)
    (folder / "parts").mkdir()
    for part in (0, 1):
        mine = frame[frame["stay"] % 2 == part]
        mine.to_csv(folder / "parts" / f"{part}.csv", index=False)
    (folder / "study.toml").write_text(study, encoding="utf-8")
    return folder / "log.csv", folder / "study.toml"

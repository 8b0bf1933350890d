"""Audits of one log on several grids of time, side by side."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from butfor.audit.audit import Audit
from butfor.log.fill import CARRIED
from butfor.log.grid import ADDED, MERGED

# estimators
COMPARED = ("Observed", "WIS", "MB", "CF", "MB (cross-fitted)", "CF (cross-fitted)")


def compare_grids(audits: Mapping[str, Audit]) -> pd.DataFrame:
    """Return one row per audit, by time step: what the grid did to the log, and the estimates.

    Estimates have their interval in columns of their own, such as "CF low" and "CF high"; those
    that an audit does not have are nan.
    """
    rows = []
    for step, audit in audits.items():
        problems, counts = audit.meta.problems, audit.meta.counts
        carried = sum(n for words, n in problems.items() if words.endswith(f": {CARRIED}"))
        row = {
            "time_step": step,
            "episodes": counts.episodes,
            "decisions": counts.steps,
            "merged": problems.get(MERGED, 0),
            "added": problems.get(ADDED, 0),
            "carried": carried,
        }
        estimates = audit.estimates.set_index("estimator").reindex(list(COMPARED))
        for name, found in estimates.iterrows():
            row |= {
                name: found["value"],
                f"{name} low": found["low"],
                f"{name} high": found["high"],
            }
        rows.append(row)
    return pd.DataFrame(rows)

"""A made-up log of an intensive care unit: measurements at irregular times, with gaps.

python examples/icu/make_log.py examples/icu/icu.csv
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

STEPS = 10  # of about four hours, at most


def simulate(stays: int = 500, seed: int = 0) -> pd.DataFrame:
    """Return one row each time that somebody charted something about a patient."""
    rng = np.random.default_rng(seed)
    rows = [row for stay in range(stays) for row in _stay(f"S{stay + 1:04d}", rng)]
    columns = ["stay_id", "charttime", "unit", "lactate", "map", "vasopressor", "fluids"]
    return pd.DataFrame(rows, columns=[*columns, "status"])


def _stay(name: str, rng: np.random.Generator) -> list[tuple]:
    """Return the rows of one stay: shock shows in lactate and blood pressure."""
    shock, unit = rng.gamma(2.0, 0.7), str(rng.choice(["medical", "surgical"]))
    now = pd.Timestamp("2151-01-01") + pd.Timedelta(minutes=int(rng.integers(500_000)))
    rows = []
    for step in range(STEPS):
        lactate, pressure = 1.0 + 1.3 * shock, 82 - 9 * shock
        lactate += rng.normal(0, 0.3)
        pressure += rng.normal(0, 4)
        need = 1 / (1 + np.exp(-(68 - pressure) / 4))
        dose = rng.choice([0.1, 0.3]) if rng.random() < 0.15 + 0.7 * need else 0.0
        fluids = 500 if rng.random() < 0.2 + 0.3 * (lactate > 3) else 0
        measured = round(lactate, 1) if step == 0 or rng.random() < 0.7 else None
        rows.append((name, now, unit, measured, round(pressure), dose, fluids, None))
        shock = max(0.0, shock + rng.normal(0.1, 0.35) - 0.35 * (dose > 0) - 0.15 * (fluids > 0))
        if rng.random() < 0.012 * np.exp(shock):
            return [*rows[:-1], (*rows[-1][:-1], "died")]
        if shock < 0.6 and rng.random() < 0.45:
            return [*rows[:-1], (*rows[-1][:-1], "discharged")]
        # the next round is late now and then, and once in a while it is not charted at all
        minutes = 4 * 60 + rng.normal(0, 25) + 240 * (rng.random() < 0.06)
        now += pd.Timedelta(minutes=int(minutes))
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--stays", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    simulate(given.stays, given.seed).to_csv(given.path, index=False)

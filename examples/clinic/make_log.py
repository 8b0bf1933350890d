"""A made-up trial: at each visit the drug is drawn again, with chances that are known.

python examples/clinic/make_log.py examples/clinic/clinic.csv
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

VISITS = 4
DRUGS = ("none", "standard", "high")


def simulate(patients: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return one row per visit; the last one says whether the patient relapsed."""
    rng = np.random.default_rng(seed)
    rows = [row for patient in range(patients) for row in _patient(patient + 1, rng)]
    columns = ["patient_id", "visit", "sex", "severity", "side_effects", "drug"]
    return pd.DataFrame(rows, columns=[*columns, "drug_probability", "relapse"])


def _patient(number: int, rng: np.random.Generator) -> list[tuple]:
    """Return the visits of one patient: the drug helps, but a high dose has side effects."""
    sex, severity = str(rng.choice(["female", "male"])), rng.normal(12, 3)
    effects, rows = False, []
    for visit in range(1, VISITS + 1):
        # those who suffer from side effects get the high dose less often
        chances = (0.4, 0.4, 0.2) if effects else (0.2, 0.4, 0.4)
        drug = int(rng.choice(3, p=chances))
        seen = (number, visit, sex, round(severity, 1), "yes" if effects else "no")
        rows.append([*seen, DRUGS[drug], chances[drug], None])
        benefit = (0.0, 1.5, 2.2)[drug]
        severity = max(0.0, severity + rng.normal(0.8, 1.2) - benefit + 1.2 * effects)
        effects = bool(rng.random() < (0.05, 0.15, 0.45)[drug] + 0.3 * effects)
    risk = 1 / (1 + np.exp(-(severity - 11) / 2))
    rows[-1][-1] = "yes" if rng.random() < risk else "no"
    return [tuple(row) for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    simulate(given.patients, given.seed).to_csv(given.path, index=False)

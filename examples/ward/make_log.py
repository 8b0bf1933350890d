"""A made-up log of a respiratory ward: ten variables, three of them numbers, two treatments.

python examples/ward/make_log.py ward.csv --patients 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd

STEPS = 12  # of six hours
Patients = dict[str, np.ndarray]  # one entry per patient and variable
Policy = Callable[[Patients], tuple[np.ndarray, np.ndarray]]  # P(oxygen), P(antibiotics)


def physicians(now: Patients) -> tuple[np.ndarray, np.ndarray]:
    """Treat what they see, but not always in the same way."""
    oxygen = np.select([now["spo2"] < 90, now["spo2"] < 94], [0.7, 0.4], 0.2)
    return oxygen, np.where(now["fever"], 0.45, 0.2)


def simulate(patients: int, seed: int, policy: Policy = physicians) -> pd.DataFrame:
    """Return one row per decision, and one for how each patient was in the end."""
    rng = np.random.default_rng(seed)
    now = _admit(patients, rng)
    inside, rows = np.ones(patients, bool), []
    for step in range(STEPS):
        oxygen, antibiotics = (rng.random(patients) < share for share in policy(now))
        row = pd.DataFrame(now).assign(patient=range(patients), hour=6 * step, outcome=None)
        treated = row.assign(oxygen=oxygen, antibiotics=antibiotics)
        rows.append(treated[inside])
        now = _move(now, oxygen, antibiotics, rng)
        died, left = _end(now, rng)
        outcome = np.where(died, "died", np.where(left, "discharged", None))
        row = pd.DataFrame(now).assign(patient=range(patients), hour=6 * step + 6, outcome=outcome)
        final = inside & (died | left | (step == STEPS - 1))
        rows.append(row[final])
        inside &= ~final
    return _tidy(pd.concat(rows))


def _admit(patients: int, rng: np.random.Generator) -> Patients:
    return {
        "age": rng.uniform(25, 95, patients).round(),
        "copd": rng.random(patients) < 0.3,
        "smoker": rng.random(patients) < 0.4,
        "spo2": rng.normal(91, 3, patients).clip(75, 100).round(1),
        "rate": rng.normal(23, 4, patients).clip(8, 50).round(1),
        "fever": rng.random(patients) < 0.6,
        "confused": rng.random(patients) < 0.1,
        "low_pressure": rng.random(patients) < 0.1,
        "on_oxygen": np.zeros(patients, bool),
        "on_antibiotics": np.zeros(patients, bool),
    }


def _move(
    now: Patients, oxygen: np.ndarray, antibiotics: np.ndarray, rng: np.random.Generator
) -> Patients:
    """Return how the patients are six hours later."""
    count, fever, copd = len(oxygen), now["fever"], now["copd"]

    def happens(score: np.ndarray) -> np.ndarray:
        return rng.random(count) < 1 / (1 + np.exp(-score))

    usual = 95 - 3 * copd - now["smoker"] - 4 * fever - 0.04 * (now["age"] - 60) + 3 * oxygen
    spo2 = now["spo2"] + 0.35 * (usual - now["spo2"]) + rng.normal(0, 1.2, count)
    usual = 17 + 5 * fever + 3 * copd + 0.6 * (94 - now["spo2"]).clip(0)
    rate = now["rate"] + 0.35 * (usual - now["rate"]) + rng.normal(0, 1.8, count)
    # oxygen makes patients with COPD retain carbon dioxide
    dazed = (
        -3.5
        + 2.5 * now["confused"]
        + 1.2 * (now["spo2"] < 88)
        + 2.5 * copd * oxygen
        + 0.05 * (rate - 24)
    )
    return {
        "age": now["age"],
        "copd": copd,
        "smoker": now["smoker"],
        "spo2": spo2.clip(70, 100).round(1),
        "rate": rate.clip(6, 60).round(1),
        "fever": happens(-1.8 + 3.2 * fever - 2.2 * antibiotics * fever),
        "confused": happens(dazed + 0.03 * (now["age"] - 60)),
        "low_pressure": happens(-3 + 2.5 * now["low_pressure"] + fever + 0.5 * antibiotics),
        "on_oxygen": oxygen,
        "on_antibiotics": antibiotics,
    }


def _end(now: Patients, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return who dies and who leaves."""
    score = -4.8 + 1.6 * now["low_pressure"] + 1.8 * now["confused"] + 0.35 * (90 - now["spo2"])
    died = rng.random(len(score)) < 1 / (1 + np.exp(-score - 0.03 * (now["age"] - 65)))
    well = ~now["fever"] & ~now["confused"] & ~now["low_pressure"] & (now["spo2"] >= 92)
    return died, ~died & well & (rng.random(len(score)) < 0.35)


def _tidy(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.sort_values(["patient", "hour"])
    words = {True: "yes", False: "no"}
    for name in rows.columns.drop(["age", "spo2", "rate", "patient", "hour", "outcome"]):
        rows[name] = rows[name].map(words)
    front = ["patient", "hour", *rows.columns.drop(["patient", "hour", "outcome"]), "outcome"]
    return rows[front].reset_index(drop=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    simulate(given.patients, given.seed).to_csv(given.path, index=False)

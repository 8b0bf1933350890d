"""Every compiled function; numba lives here only.

Kernels take arrays and numbers and return arrays: no options, no validation. Each has a slow
plain-Python twin in `tests/reference/`.
"""

from butfor.kernels.bounds import episode_bounds, row_bounds
from butfor.kernels.chain import Dynamics, Log, Problem
from butfor.kernels.changes import fewest_changes
from butfor.kernels.episodes import draw_counterfactuals, exact_outcomes
from butfor.kernels.mechanisms import (
    GUMBEL_MAX,
    INDEPENDENT,
    INVERSE_CDF,
    MAXIMAL,
    TABLE,
    Coupling,
    counterfactual_rows,
)
from butfor.kernels.models import Models, exact_outcomes_of_models, value_tables_of_models
from butfor.kernels.random import GOLDEN, MIX_1, MIX_2, uniform
from butfor.kernels.rows import Rows
from butfor.kernels.sepsis import NOISE_SIZE, sepsis_noise, sepsis_steps, simulate_sepsis
from butfor.kernels.walk import Steps, walk_episodes

__all__ = [
    "GOLDEN",
    "GUMBEL_MAX",
    "INDEPENDENT",
    "INVERSE_CDF",
    "MAXIMAL",
    "MIX_1",
    "MIX_2",
    "NOISE_SIZE",
    "TABLE",
    "Coupling",
    "Dynamics",
    "Log",
    "Models",
    "Problem",
    "Rows",
    "Steps",
    "counterfactual_rows",
    "draw_counterfactuals",
    "episode_bounds",
    "exact_outcomes",
    "exact_outcomes_of_models",
    "fewest_changes",
    "row_bounds",
    "sepsis_noise",
    "sepsis_steps",
    "simulate_sepsis",
    "uniform",
    "value_tables_of_models",
    "walk_episodes",
]

"""Every compiled function; numba lives here only.

Kernels take arrays and numbers and return arrays: no options, no validation. Each has a slow
plain-Python twin in `tests/reference/`.
"""

from butfor.kernels.bounds import episode_bounds, row_bounds
from butfor.kernels.chain import Dynamics, Log, Problem, Work, make_work
from butfor.kernels.changes import fewest_changes
from butfor.kernels.episodes import draw_counterfactuals, exact_outcomes
from butfor.kernels.expect import count_paths
from butfor.kernels.latent import (
    LATENT,
    SEEN,
    STEP,
    Behavior,
    Hidden,
    draw_paths,
    find_impossible,
    make_trace,
    trace_latent,
)
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
from butfor.kernels.pair_episodes import (
    HiddenSteps,
    draw_pair_step,
    exact_pairs,
    make_cases,
    walk_pairs,
)
from butfor.kernels.pairs import (
    FULL,
    LAST,
    MEMORY,
    Pairs,
    Target,
    make_pair_work,
    make_passed,
)
from butfor.kernels.random import GOLDEN, MIX_1, MIX_2, uniform
from butfor.kernels.rows import Rows
from butfor.kernels.sepsis import NOISE_SIZE, sepsis_noise, sepsis_steps, simulate_sepsis
from butfor.kernels.sums import LIMBS, LOWEST, add_exactly
from butfor.kernels.walk import Judged, Steps, walk_episodes

__all__ = [
    "FULL",
    "GOLDEN",
    "GUMBEL_MAX",
    "INDEPENDENT",
    "INVERSE_CDF",
    "LAST",
    "LATENT",
    "LIMBS",
    "LOWEST",
    "MAXIMAL",
    "MEMORY",
    "MIX_1",
    "MIX_2",
    "NOISE_SIZE",
    "SEEN",
    "STEP",
    "TABLE",
    "Behavior",
    "Coupling",
    "Dynamics",
    "Hidden",
    "HiddenSteps",
    "Judged",
    "Log",
    "Models",
    "Pairs",
    "Problem",
    "Rows",
    "Steps",
    "Target",
    "Work",
    "add_exactly",
    "count_paths",
    "counterfactual_rows",
    "draw_counterfactuals",
    "draw_pair_step",
    "draw_paths",
    "episode_bounds",
    "exact_outcomes",
    "exact_outcomes_of_models",
    "exact_pairs",
    "fewest_changes",
    "find_impossible",
    "make_cases",
    "make_pair_work",
    "make_passed",
    "make_trace",
    "make_work",
    "row_bounds",
    "sepsis_noise",
    "sepsis_steps",
    "simulate_sepsis",
    "trace_latent",
    "uniform",
    "value_tables_of_models",
    "walk_episodes",
    "walk_pairs",
]

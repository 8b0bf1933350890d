"""But for what was done: exact counterfactual evaluation of policies on logged decisions.

The names below load when first used, so that `import butfor` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

__version__ = "0.1.0"

gymnasium.register(
    "butfor/Sepsis-v0", entry_point="butfor.sepsis.env:SepsisEnv", max_episode_steps=20
)

if TYPE_CHECKING:
    from butfor import figures, io, sepsis, targets
    from butfor.audit import Audit, run_audit
    from butfor.carryover import influence
    from butfor.counterfactual import (
        Counterfactuals,
        Draws,
        counterfactual_outcomes,
        draws_needed,
        sample_counterfactuals,
        step_contributions,
    )
    from butfor.diagnostics import diagnose
    from butfor.episodes import Episodes
    from butfor.fit import fit_mdp
    from butfor.io.read import read_episodes
    from butfor.io.study import read_study
    from butfor.io.write import write_episodes
    from butfor.mdp import TabularMDP
    from butfor.ope.estimate import estimate_values
    from butfor.own_log import audit_log
    from butfor.planning import policy_iteration, policy_value, state_values
    from butfor.policy import estimate_behavior, greedy, soften
    from butfor.scm.gumbel_max import GumbelMax, counterfactual_distribution
    from butfor.scm.independent import Independent
    from butfor.scm.inverse_cdf import InverseCDF
    from butfor.scm.maximal import MaximalCoupling
    from butfor.scm.properties import is_monotone, is_stable
    from butfor.variables import Outcome, Variable

_HOMES = {
    "Audit": "audit",
    "run_audit": "audit",
    "influence": "carryover",
    "diagnose": "diagnostics",
    "Counterfactuals": "counterfactual",
    "Draws": "counterfactual",
    "counterfactual_outcomes": "counterfactual",
    "draws_needed": "counterfactual",
    "sample_counterfactuals": "counterfactual",
    "step_contributions": "counterfactual",
    "Episodes": "episodes",
    "Outcome": "variables",
    "Variable": "variables",
    "fit_mdp": "fit",
    "read_episodes": "io.read",
    "read_study": "io.study",
    "write_episodes": "io.write",
    "audit_log": "own_log",
    "TabularMDP": "mdp",
    "estimate_values": "ope.estimate",
    "policy_iteration": "planning",
    "policy_value": "planning",
    "state_values": "planning",
    "estimate_behavior": "policy",
    "greedy": "policy",
    "soften": "policy",
    "GumbelMax": "scm.gumbel_max",
    "counterfactual_distribution": "scm.gumbel_max",
    "Independent": "scm.independent",
    "InverseCDF": "scm.inverse_cdf",
    "MaximalCoupling": "scm.maximal",
    "is_monotone": "scm.properties",
    "is_stable": "scm.properties",
}

__all__ = [
    "Audit",
    "Counterfactuals",
    "Draws",
    "Episodes",
    "GumbelMax",
    "Independent",
    "InverseCDF",
    "MaximalCoupling",
    "Outcome",
    "TabularMDP",
    "Variable",
    "audit_log",
    "counterfactual_distribution",
    "counterfactual_outcomes",
    "diagnose",
    "draws_needed",
    "estimate_behavior",
    "estimate_values",
    "figures",
    "fit_mdp",
    "greedy",
    "influence",
    "io",
    "is_monotone",
    "is_stable",
    "policy_iteration",
    "policy_value",
    "read_episodes",
    "read_study",
    "run_audit",
    "sample_counterfactuals",
    "sepsis",
    "soften",
    "state_values",
    "step_contributions",
    "targets",
    "write_episodes",
]


def __getattr__(name: str) -> Any:
    if name in ("figures", "io", "sepsis", "targets"):
        return import_module(f"butfor.{name}")
    if name in _HOMES:
        return getattr(import_module(f"butfor.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'butfor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

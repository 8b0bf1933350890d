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
    from butfor.bounds import Bounds, counterfactual_bounds
    from butfor.changes import Changes, fewest_changes
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
    from butfor.labels import LabelComparison, compare_labels, nature_labels
    from butfor.mdp import TabularMDP
    from butfor.ope.estimate import estimate_values
    from butfor.own_log import audit_log, compare_log
    from butfor.planning import policy_iteration, policy_value, state_values
    from butfor.policy import estimate_behavior, greedy, soften
    from butfor.pomdp.cells import pomdp_value
    from butfor.pomdp.factors import Factored
    from butfor.pomdp.latent import LatentPosterior, latent_posterior
    from butfor.pomdp.learn import BehaviorFit, PomdpFit, fit_latent_behavior, fit_pomdp
    from butfor.pomdp.model import TabularPOMDP
    from butfor.pomdp.policies import BeliefPolicy, FiniteController, LatentPolicy
    from butfor.pomdp.simulate import simulate_pomdp
    from butfor.posterior import Credible, credible_intervals, draw_models
    from butfor.report import write_report
    from butfor.scm.bounds import RowBounds, row_bounds
    from butfor.scm.causation import (
        conditional_effect,
        probability_of_necessity,
        probability_of_necessity_and_sufficiency,
        probability_of_sufficiency,
    )
    from butfor.scm.graph import DiscreteSCM
    from butfor.scm.gumbel_max import GumbelMax, counterfactual_distribution
    from butfor.scm.independent import Independent
    from butfor.scm.inverse_cdf import InverseCDF
    from butfor.scm.maximal import MaximalCoupling
    from butfor.scm.properties import is_monotone, is_stable
    from butfor.steps import Steps, walk_through
    from butfor.variables import Outcome, Variable

_HOMES = {
    "Audit": "audit",
    "run_audit": "audit",
    "Bounds": "bounds",
    "Changes": "changes",
    "fewest_changes": "changes",
    "counterfactual_bounds": "bounds",
    "diagnose": "diagnostics",
    "Counterfactuals": "counterfactual",
    "Draws": "counterfactual",
    "counterfactual_outcomes": "counterfactual",
    "draws_needed": "counterfactual",
    "sample_counterfactuals": "counterfactual",
    "step_contributions": "counterfactual",
    "Steps": "steps",
    "walk_through": "steps",
    "Episodes": "episodes",
    "Outcome": "variables",
    "Variable": "variables",
    "fit_mdp": "fit",
    "read_episodes": "io.read",
    "read_study": "io.study",
    "write_episodes": "io.write",
    "LabelComparison": "labels",
    "compare_labels": "labels",
    "nature_labels": "labels",
    "audit_log": "own_log",
    "compare_log": "own_log",
    "TabularMDP": "mdp",
    "TabularPOMDP": "pomdp.model",
    "pomdp_value": "pomdp.cells",
    "Factored": "pomdp.factors",
    "BehaviorFit": "pomdp.learn",
    "PomdpFit": "pomdp.learn",
    "fit_latent_behavior": "pomdp.learn",
    "fit_pomdp": "pomdp.learn",
    "BeliefPolicy": "pomdp.policies",
    "FiniteController": "pomdp.policies",
    "LatentPolicy": "pomdp.policies",
    "LatentPosterior": "pomdp.latent",
    "latent_posterior": "pomdp.latent",
    "simulate_pomdp": "pomdp.simulate",
    "estimate_values": "ope.estimate",
    "Credible": "posterior",
    "credible_intervals": "posterior",
    "draw_models": "posterior",
    "write_report": "report",
    "policy_iteration": "planning",
    "policy_value": "planning",
    "state_values": "planning",
    "estimate_behavior": "policy",
    "greedy": "policy",
    "soften": "policy",
    "RowBounds": "scm.bounds",
    "row_bounds": "scm.bounds",
    "conditional_effect": "scm.causation",
    "probability_of_necessity": "scm.causation",
    "probability_of_necessity_and_sufficiency": "scm.causation",
    "probability_of_sufficiency": "scm.causation",
    "DiscreteSCM": "scm.graph",
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
    "BehaviorFit",
    "BeliefPolicy",
    "Bounds",
    "Changes",
    "Counterfactuals",
    "Credible",
    "DiscreteSCM",
    "Draws",
    "Episodes",
    "Factored",
    "FiniteController",
    "GumbelMax",
    "Independent",
    "InverseCDF",
    "LabelComparison",
    "LatentPolicy",
    "LatentPosterior",
    "MaximalCoupling",
    "Outcome",
    "PomdpFit",
    "RowBounds",
    "Steps",
    "TabularMDP",
    "TabularPOMDP",
    "Variable",
    "audit_log",
    "compare_labels",
    "compare_log",
    "conditional_effect",
    "counterfactual_bounds",
    "counterfactual_distribution",
    "counterfactual_outcomes",
    "credible_intervals",
    "diagnose",
    "draw_models",
    "draws_needed",
    "estimate_behavior",
    "estimate_values",
    "fewest_changes",
    "figures",
    "fit_latent_behavior",
    "fit_mdp",
    "fit_pomdp",
    "greedy",
    "io",
    "is_monotone",
    "is_stable",
    "latent_posterior",
    "nature_labels",
    "policy_iteration",
    "policy_value",
    "pomdp_value",
    "probability_of_necessity",
    "probability_of_necessity_and_sufficiency",
    "probability_of_sufficiency",
    "read_episodes",
    "read_study",
    "row_bounds",
    "run_audit",
    "sample_counterfactuals",
    "sepsis",
    "simulate_pomdp",
    "soften",
    "state_values",
    "step_contributions",
    "targets",
    "walk_through",
    "write_episodes",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in ("figures", "io", "sepsis", "targets"):
        return import_module(f"butfor.{name}")
    if name in _HOMES:
        return getattr(import_module(f"butfor.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'butfor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

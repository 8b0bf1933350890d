"""How an audit learns: functions that turn a log into a model and the policy that is best in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.crossfit import Learned
from butfor.evaluate.rehearsal import Part
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.log.sections import Study
from butfor.models.caution import Caution
from butfor.models.factored import NEXT, FactoredModel
from butfor.models.fit import count_again, fit_mdp
from butfor.models.fit_factored import fit_factored, learn_factored
from butfor.models.fitted_q import fitted_q_policy
from butfor.models.fixed import fixed_factors
from butfor.models.mdp import TabularMDP
from butfor.models.plan import Plan
from butfor.models.planning import policy_iteration
from butfor.models.rules import Rules
from butfor.models.transitions import Transitions, count_distinct
from butfor.types import Integers

Mask = Callable[[Part], NDArray[np.bool_] | None]  # what may be done in a part of a log, [S, A]
LearnPart = Callable[[Part], tuple[Learned, Policy]]


def factored_learner(
    log: Part,
    *,
    discount: float,
    learner: Any = "counts",
    parents: dict[str, list[str]] | None = None,
    order: list[str] | None = None,
    horizon: int | None = None,
    caution: Caution | None = None,
    mask: Mask | None = None,
) -> LearnPart:
    """Return a function that learns a factored model from parts of a log and plans a policy.

    What is static or copies an action is found in the whole log: a part may lack the exceptions.
    Parts may also lack variables. Where states cannot be enumerated, the policy is planned by
    fitted Q iteration (`fitted_q_policy`), which knows no bad cases, and is a function of level
    codes.
    """
    fixed = fixed_factors(log if isinstance(log, Transitions) else count_distinct(log))
    named = {variable.name for variable in log.state_variables}
    steps = log.horizon if horizon is None and isinstance(log, Episodes) else horizon

    def learn(part: Part) -> tuple[FactoredModel, Plan]:
        gone = named - {variable.name for variable in part.state_variables}
        gone |= {NEXT + name for name in gone}
        options: dict[str, Any] = {
            "parents": {
                variable: [parent for parent in own if parent not in gone]
                for variable, own in (parents or {}).items()
                if variable not in gone
            },
            "order": None if order is None else [name for name in order if name not in gone],
            "known": {name: factor for name, factor in fixed.items() if name not in gone},
        }
        if isinstance(part, Transitions):
            model = learn_factored(part, learner, **options)
        else:
            model = fit_factored(part, learner, **options)
        if not model.enumerable:
            _refuse(caution, mask)
            assert steps is not None  # what was counted can be enumerated
            return model, fitted_q_policy(model, horizon=steps, discount=discount)
        allowed = None if mask is None else mask(part)
        return model, plan(model, discount=discount, caution=caution, allowed=allowed)

    return learn


def tabular_learner(
    *,
    discount: float,
    unseen: str | None = None,
    prior: float = 0.0,
    labels: Integers | None = None,
    caution: Caution | None = None,
    mask: Mask | None = None,
) -> LearnPart:
    """Return a function that learns a tabular model from a log and plans a policy."""

    def learn(part: Part) -> tuple[TabularMDP, Plan]:
        if isinstance(part, Transitions):
            model = count_again(part, unseen=unseen, prior=prior).model()
        else:
            model = fit_mdp(part, unseen=unseen, prior=prior, labels=labels)
        allowed = None if mask is None else mask(part)
        return model, plan(model, discount=discount, caution=caution, allowed=allowed)

    return learn


def rules_of(study: Study) -> Rules:
    """Return the rules for a learned policy in a study file."""
    return Rules(study.rules.never, study.rules.gradual)


def mask_of(rules: Rules, log: Part) -> Mask | None:
    """Return what applies rules to parts of a log, which may lack variables; None without rules.

    Rules that do not fit the log are refused at once.
    """
    if not rules:
        return None
    rules.allowed(log.state_variables, log.action_variables)
    names = {variable.name for variable in log.state_variables}

    def mask(part: Part) -> NDArray[np.bool_] | None:
        left = rules.without(names - {variable.name for variable in part.state_variables})
        return left.allowed(part.state_variables, part.action_variables) if left else None

    return mask


def plan(
    model: Learned,
    *,
    discount: float,
    caution: Caution | None,
    allowed: NDArray[np.bool_] | None = None,
) -> Plan:
    """Plan a policy in a model; labels, which only noise has, make no difference."""
    if isinstance(model, TabularMDP):
        model = model.with_labels(None)
    return policy_iteration(model, discount=discount, caution=caution, allowed=allowed)


def _refuse(caution: Caution | None, mask: Mask | None) -> None:
    """Refuse what a plan by fitted Q iteration cannot do."""
    if mask is not None:
        raise ValueError(
            "[rules] need states that can be enumerated; leave them out, or use fewer variables or "
            "levels"
        )
    if caution is not None and (caution.least_cases or caution.risk is not None):
        asked = "least_cases" if caution.least_cases else "risk"
        raise ValueError(
            f"{asked} needs states that can be enumerated; leave it out, or use fewer variables or "
            "levels"
        )

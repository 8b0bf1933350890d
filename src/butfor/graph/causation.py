"""Pearl's probabilities of causation (necessity, sufficiency), and effects by group.

In each, `cause` and `alternative` are levels of the same variables, {name: level}; `effect` is
{name: level, or a list of levels} of one variable; `given` is further evidence. `method`, `draws`
and `seed` are those of `DiscreteSCM.distribution`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

from butfor.graph.answer import Answer, ask
from butfor.graph.scm import DRAWS, DiscreteSCM
from butfor.graph.tables import Masks, read_masks
from butfor.graph.worlds import FACTUAL, twin_nodes

Levels = Mapping[str, Any]


def probability_of_necessity(
    scm: DiscreteSCM,
    *,
    cause: Levels,
    alternative: Levels,
    effect: Levels,
    given: Levels | None = None,
    method: str = "auto",
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
) -> Answer:
    """Return the probability that the observed effect would not have happened without the cause.

    PN = P(not effect, under the alternative | cause, effect, given). With two levels of the
    effect, Gumbel-Max and no mediator it is max(0, 1 - q / p) in each group, where p and q are the
    effect's probabilities under cause and alternative. It is causal under the assumptions of
    `DiscreteSCM.counterfactual`.
    """
    otherwise = _check(scm, cause, alternative, effect, given)
    return scm.counterfactual(
        otherwise,
        evidence={**(given or {}), **cause, **effect},
        do=alternative,
        method=method,
        draws=draws,
        seed=seed,
    )


def probability_of_sufficiency(
    scm: DiscreteSCM,
    *,
    cause: Levels,
    alternative: Levels,
    effect: Levels,
    given: Levels | None = None,
    method: str = "auto",
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
) -> Answer:
    """Return the probability that the cause would have produced the effect that did not happen.

    PS = P(effect, under the cause | alternative, not effect, given). It is causal under the
    assumptions of `DiscreteSCM.counterfactual`.
    """
    otherwise = _check(scm, cause, alternative, effect, given)
    return scm.counterfactual(
        effect,
        evidence={**(given or {}), **alternative, **otherwise},
        do=cause,
        method=method,
        draws=draws,
        seed=seed,
    )


def probability_of_necessity_and_sufficiency(
    scm: DiscreteSCM,
    *,
    cause: Levels,
    alternative: Levels,
    effect: Levels,
    given: Levels | None = None,
    method: str = "auto",
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
) -> Answer:
    """Return the probability that the effect follows the cause but not the alternative.

    PNS = P(effect under do(cause), no effect under do(alternative) | given), where `given` precedes
    the cause. It is causal under the assumptions of `DiscreteSCM.counterfactual`.
    """
    _check(scm, cause, alternative, effect, given)
    evidence, factual = _before(scm, cause, given), scm.do(cause)
    action = factual.do(alternative).tables
    nodes, place = twin_nodes(factual.tables, evidence, action, scm.mechanisms)
    ((name, mask),) = read_masks(scm.variables, effect, "effect").items()
    outcome = scm.variables[name]
    return ask(
        nodes,
        [(outcome, (name, FACTUAL)), (outcome, place[name])],
        [mask, ~mask],
        method=method,
        draws=draws,
        seed=seed,
    )


def conditional_effect(
    scm: DiscreteSCM,
    *,
    cause: Levels,
    alternative: Levels,
    effect: Levels,
    given: Levels | None = None,
    method: str = "auto",
    draws: int = DRAWS,
    seed: int | np.random.Generator = 0,
) -> Answer:
    """Return the effect of the cause: P(effect | do(cause)) - P(effect | do(alternative)).

    Both are conditional on `given`, which precedes the cause (CATE). The answer's `probability` is
    this difference, from -1 to 1. It is causal if the graph contains all common causes; mechanisms
    do not matter.
    """
    _check(scm, cause, alternative, effect, given)
    _before(scm, cause, given)
    generator = np.random.default_rng(seed)  # shared, so that the two sets of draws are independent
    under, instead = (
        scm.distribution(
            effect, evidence=given, do=levels, method=method, draws=draws, seed=generator
        )
        for levels in (cause, alternative)
    )
    return Answer(
        variables=(),
        probability=under.probability - instead.probability,
        standard_error=np.hypot(under.standard_error, instead.standard_error),
        exact=under.exact and instead.exact,
        draws=max(under.draws, instead.draws),
    )


def _check(
    scm: DiscreteSCM, cause: Levels, alternative: Levels, effect: Levels, given: Levels | None
) -> dict[str, list[str]]:
    """Refuse bad arguments; return the levels of the effect's variable that are not the effect."""
    named = (("cause", cause), ("alternative", alternative))
    both = [read_masks(scm.variables, levels, name) for name, levels in named]
    if not cause or set(cause) != set(alternative):
        raise ValueError(
            f"cause {dict(cause)} and alternative {dict(alternative)}: give levels of the same "
            "variables"
        )
    if any(mask.sum() > 1 for masks in both for mask in masks.values()):
        raise ValueError("cause and alternative: give one level per variable to set it to")
    if all((both[0][name] == both[1][name]).all() for name in cause):
        raise ValueError(f"cause and alternative are both {dict(cause)}; give two that differ")
    if len(effect) != 1 or set(effect) & set(cause):
        raise ValueError(f"effect {dict(effect)}: give levels of one variable, not of the cause")
    ((name, mask),) = read_masks(scm.variables, effect, "effect").items()
    if mask.all():
        raise ValueError(f"effect {dict(effect)} is certain; leave out at least one level")
    twice = (set(cause) | set(effect)) & set(given or {})
    if twice:
        raise ValueError(f"given: {min(twice)!r} is part of cause or effect; leave it out")
    return {name: list(itertools.compress(scm.variables[name].levels, ~mask))}


def _before(scm: DiscreteSCM, cause: Levels, given: Levels | None) -> Masks:
    """Return the evidence; refuse it if any comes after the cause."""
    evidence = read_masks(scm.variables, given, "given")
    after = set().union(*(nx.descendants(scm.graph, name) for name in cause))
    for name in evidence:
        if name in after:
            raise ValueError(
                f"given: {name!r} comes after the cause, which may change it; give only what comes "
                "before, or use counterfactual(...) with it as evidence"
            )
    return evidence

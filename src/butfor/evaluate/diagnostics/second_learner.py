"""Learners agree: the target's value in the model, and in that of another learner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from butfor.evaluate.diagnostics.lights import Row, at_most
from butfor.evaluate.wording import digits_for
from butfor.log.episodes import Episodes
from butfor.models.backoff import backoff_table
from butfor.models.factored import AnyFactor, Factor, FactoredModel
from butfor.models.planning import state_values
from butfor.models.posterior import is_counted
from butfor.replay.engine import check_factored, fit_again
from butfor.replay.replay import Replay

# At most, in standard deviations of the observed returns: the standard errors of a mean over 400
# episodes and over 50, which *effective sample size* asks for too.
DISAGREEMENT = (0.05, 0.14)
SMOOTHER = 10.0  # strength of the back-off, at least


def check_learners(replay: Replay) -> Row | None:
    """Check how much the target's value in the model depends on how the model was learned.

    Counts are compared with counts whose back-off weighs as much as ten cases: where the target
    goes there are either enough cases, or the value depends on that choice. Classifiers are
    compared with counts. None if no distribution was learned.

    A parent fewer would be a poor second learner, because its gap does not vanish however long the
    log, and a second classifier takes minutes. One-step log scores do not replace this check: a
    learner that predicts logged actions well may differ from another on those of the target.
    """
    found = second_model(replay.factored, replay.episodes)
    if found is None:
        return None
    other, name = found
    value = float(replay.engine.first_values().mean())
    if replay.sampled:  # by the same random numbers
        change = float(replay.ask(model=other).engine.first_values().mean()) - value
    else:
        start = np.bincount(replay.log.first_state, minlength=replay.log.n_states)
        values = state_values(
            other, replay.target_table, horizon=replay.horizon, discount=replay.discount
        )
        change = float(start @ values / start.sum()) - value
    spread = float(replay.usual_return.std())
    gap = abs(change)
    light = at_most(gap, (DISAGREEMENT[0] * spread, DISAGREEMENT[1] * spread))
    digits = digits_for([value, value + change, spread])
    known = "continued" if replay.continues.any() else "observed"
    sentence = (
        f"In the model the policy earns {digits.value(value)}, in a model learned by {name} "
        f"{digits.value(value + change)}; {known} returns have a standard deviation of "
        f"{digits.size(spread)}. "
    )
    if light == "green":
        sentence += (
            "This other learner hardly changes the value; both may be wrong in the same way."
        )
    else:
        sentence += (
            "For this policy the answer depends on how the model was learned: the log has too few "
            "cases of what it would do."
        )
    return "learners agree", gap, light, sentence


def second_model(model: FactoredModel, log: Episodes) -> tuple[FactoredModel, str] | None:
    """Return the model of another learner, and the name of that learner; None if none learned."""
    if any(is_classifier(factor) for factor in model.factors):
        return check_factored(fit_again(model, log, learner="counts")), "counts with back-off"
    if not any(is_counted(factor) for factor in model.factors):
        return None
    factors = [
        _smoother(one) if isinstance(one, Factor) and is_counted(one) else one
        for one in model.factors
    ]
    return replace(model, factors=tuple(factors)), f"counts with stronger back-off ({SMOOTHER:g})"


def _smoother(factor: Factor) -> Factor:
    strength = max(SMOOTHER, factor.strength)
    table = backoff_table(factor.counts, strength, every=factor.every)
    return replace(factor, table=table, strength=strength)


def is_classifier(factor: AnyFactor) -> bool:
    """Whether a distribution was learned by a classifier, so that it extrapolates."""
    return factor.learned and factor.source != "given" and not is_counted(factor)

"""Warnings about estimates, in words; "" if there is nothing to warn about."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.estimators.table import CONTINUED, OBSERVED
from butfor.evaluate.sample import Sample, continued
from butfor.evaluate.wording import digits_for, percent, signed
from butfor.replay.replay import Replay
from butfor.replay.usual import MOSTLY
from butfor.types import Floats

WEIGHTED = ("IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MAGIC")  # use importance weights
UNDEFINED = ("WIS", "PDWIS")  # if no episode follows the policy
NEED_OVERLAP = (*WEIGHTED, "FQE")
BROKEN_OFF = (OBSERVED, "IS", "WIS", "PDIS", "PDWIS")  # use logged rewards only
FEW = 50  # smaller effective sample sizes cause a warning
SMALL_MASS = 0.01  # smaller probabilities of unseen pairs cause no warning
FAR = 0.1  # standard deviations of the return by which cross-fitting must differ for a warning
Found = tuple[float, float, float]  # value, low, high
LISTED = 3  # states named in a message
ROUNDING = 1e-9  # relative; smaller gaps are floating-point error
APART = 3.0  # standard errors between counterfactuals and model that cause a warning

NOBODY = {
    "IS": "every weight is 0, and so is the estimate",
    "WIS": "undefined",
    "PDIS": "only rewards earned before departing from it count",
    "PDWIS": "undefined",
    **dict.fromkeys(("DR", "WDR", "MAGIC"), "the rest comes from the model alone"),
}
LEFT_OUT = {
    **dict.fromkeys(("DR", "WDR", "MAGIC"), "for these only the model counts"),
    "FQE": "these count as 0",
}


def explain(
    sample: Sample,
    crossed: CrossFitted | None,
    reasons: Mapping[str, str],
    found: Mapping[str, Found],
    resampled: Mapping[str, Floats],
) -> dict[str, str]:
    """Return the warning about each estimate (value, low, high).

    `reasons` say why an estimate has no interval.
    """
    replay = sample.replay
    if replay.hidden:
        return {n: of_consistency(sample) if n == "CF" else of_censored(n, sample) for n in found}
    missing = never_taken(replay, replay.behavior_table)
    unlogged = never_taken(replay, sample.decisions)
    unsupported = unsupported_mass(sample, crossed, found)
    rewards = [outcome.reward for outcome in replay.model.outcomes] or [0.0]
    explained = {}
    for name in found:
        said = []
        reason = reasons.get(name, "")
        sized = "effective" in reason and sample.followers > 0  # the reason says how few
        if name != "True":
            said = [
                reason,
                of_weights(name, sample) if not sized else "",
                of_overlap(name, unlogged if name == "FQE" else missing),
                of_censored(name, sample),
                of_undefined(resampled[name]) if name in UNDEFINED and name in resampled else "",
                of_unsupported(name, unsupported),
                of_outside(found[name]),
            ]
        plain = name.removesuffix(" (cross-fitted)")
        if plain != name and plain in found:
            rule = unsupported[name] * (max(rewards) - min(rewards))
            said.append(of_luck(found[name], found[plain], sample.spread, rule))
        explained[name] = "; ".join(sentence for sentence in said if sentence)
    return explained


def sizes(name: str, sample: Sample, truth: Floats | float | None) -> tuple[int, float]:
    """Number of episodes with weight, and effective sample size (sum w)^2 / sum w^2."""
    if name == "True":
        count = len(truth) if isinstance(truth, np.ndarray) else 0
        return count, float(count) if count else float("nan")
    if name in WEIGHTED:
        return sample.followers, sample.effective
    return sample.episodes, float(sample.episodes)


def of_consistency(sample: Sample) -> str:
    """Warn if the mean counterfactual return is far from what the model alone predicts."""
    z = consistency(sample.replay)
    if not abs(z) > APART:
        return ""
    return (
        f"The mean counterfactual return is {signed(z)} standard errors from what the model alone "
        "predicts; the model or the behavior policy does not fit the log."
    )


def consistency(replay: Replay) -> float:
    """Standard errors between the mean counterfactual return and what the model alone predicts.

    If model and behavior are right, the counterfactual returns of many episodes average to what the
    model predicts for the target from the same starts. This is necessary, not sufficient: a wrong
    model fitted to the same log agrees with itself.
    """
    expected = replay.engine.first_values()
    gap = replay.outcomes().expected_return - expected
    if len(gap) < 2:
        return float("nan")
    if np.abs(gap).max() <= ROUNDING * max(1.0, float(np.abs(expected).max())):
        return 0.0
    return float(gap.mean() / (gap.std(ddof=1) / len(gap) ** 0.5))


def of_weights(name: str, sample: Sample) -> str:
    """Warn if an estimate rests on few episodes."""
    if name not in WEIGHTED:
        return ""
    n, followers, effective = sample.episodes, sample.followers, sample.effective
    if followers == 0:
        return f"no episode follows the policy to its end: {NOBODY[name]}"
    if effective >= min(FEW, n / 2):
        return ""
    return (
        f"{followers} of {n} episodes follow the policy to their end; weighted, they count as "
        f"{effective:.1f} (effective sample size)"
    )


def of_overlap(name: str, states: NDArray[np.int64]) -> str:
    """Warn if the target takes actions that were never taken in some states."""
    if name not in NEED_OVERLAP or len(states) == 0:
        return ""
    listed = ", ".join(str(state) for state in states[:LISTED])
    more = ", …" if len(states) > LISTED else ""
    return (
        f"the policy takes actions never seen in {len(states)} visited "
        f"state{'s' if len(states) > 1 else ''} ({listed}{more}): "
        f"{LEFT_OUT.get(name, 'this estimate leaves them out')}"
    )


def of_censored(name: str, sample: Sample) -> str:
    """Warn of what is assumed about the rest of censored episodes, or that it is missing."""
    count = sample.censored
    if count == 0 or name not in (CONTINUED, *BROKEN_OFF):
        return ""
    stop = f"{count} episode{'s' if count > 1 else ''} stop{'s' if count == 1 else ''} before the "
    stop += "horizon without an outcome: "
    if name == CONTINUED:
        known = sample.steps / sample.usual[1]
        part = f" ({percent(known)} of its steps were recorded)" * (known < MOSTLY)
        return f"{stop}how they go on under usual care is the model's expectation{part}"
    if name != OBSERVED:
        return "" if sample.replay.hazard is not None else f"{stop}whatever followed counts as 0"
    return f"{stop}only what was recorded counts{'' if continued(sample) else ', here and in CF'}"


def of_undefined(resampled: Floats) -> str:
    """Warn if the estimate is undefined in some resamples."""
    undefined = int((~np.isfinite(resampled)).sum())
    if undefined in (0, len(resampled)):
        return ""
    return (
        f"in {undefined} of {len(resampled)} resamples no episode follows the policy; the interval "
        "ignores these"
    )


def of_outside(found: Found) -> str:
    """Warn if the value of (value, low, high) is outside its interval."""
    value, low, high = found
    slack = 1e-9 * max(abs(low), abs(high))
    if not (value < low - slack or value > high + slack):
        return ""
    return (
        "the value lies outside its interval: resamples contain fewer distinct episodes, so "
        "state-action pairs seen rarely are missing from them"
    )


def of_unsupported(name: str, unsupported: Mapping[str, float]) -> str:
    """Warn if much of the probability passes through pairs never seen."""
    if not name.startswith(("MB", "CF")):
        return ""
    share = unsupported[name]
    if not share >= SMALL_MASS:
        return "" if np.isfinite(share) else "one episode cannot be split into halves"
    where = "evaluating half" if name.endswith("(cross-fitted)") else "log"
    return (
        f"{100 * share:.0f}% of the probability passes through state-action pairs never seen in "
        f"the {where}, whose effect is assumed (by default the worst outcome, which is pessimistic)"
    )


def of_luck(crossed: Found, plain: Found, spread: float, rule: float) -> str:
    """Warn if the cross-fitted estimate (value, low, high) is far below the plain one.

    `rule` is how much the cross-fitted one could rise if pairs never seen led to the best outcome;
    its interval already extends by that.
    """
    if not (crossed[2] - rule < plain[0] and plain[0] - crossed[0] > FAR * spread):
        return ""
    digits = digits_for([crossed[0], plain[0]])
    gap = (
        f"policies learned the same way on half of the log score {digits.value(crossed[0])} in the "
        f"model of the other half, compared with {digits.value(plain[0])}"
    )
    if crossed[2] < plain[0]:
        return f"{gap}: part of the plain estimate is overfitting"
    return (
        f"{gap}; up to {digits.size(rule)} of the gap may come from the rule for pairs never seen, "
        "so overfitting cannot be distinguished from that rule"
    )


def never_taken(replay: Replay, taken: NDArray[Any]) -> NDArray[np.int64]:
    """Visited states in which the target may take an action that was never taken there.

    `taken` [S, A] is the number or the probability of each action.
    """
    visited = np.zeros(len(taken), dtype=bool)
    visited[replay.log.state] = True
    return np.flatnonzero(visited & ((replay.target_table > 0) & (taken == 0)).any(axis=1))


def unsupported_mass(
    sample: Sample, crossed: CrossFitted | None, names: Collection[str]
) -> dict[str, float]:
    """Mean probability of ever using a pair never seen, for each MB and CF estimator."""
    known = {} if crossed is None else crossed.by_estimator
    mass = {name: float(unsupported.mean()) for name, (_, unsupported) in known.items()}
    for kind, attribute in (("MB", "unsupported_in_model"), ("CF", "unsupported")):
        mine = [name for name in names if name.startswith(kind) and name not in mass]
        if mine:  # only then, because it takes a pass over all episodes
            mass.update(dict.fromkeys(mine, getattr(sample, attribute)))
    return mass

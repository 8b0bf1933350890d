"""What a reader should know before trusting an estimate, in words; "" where nothing is wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.bootstrap import Found
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.problem import Problem
from butfor.evaluate.support import overlap_problems, unsupported_mass, unsupported_model_mass
from butfor.models.policies import action_counts
from butfor.types import Floats

WEIGHTED = ("IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MAGIC")  # use importance weights
UNDEFINED = ("WIS", "PDWIS")  # without an episode that follows the policy
NEED_OVERLAP = (*WEIGHTED, "FQE")
BROKEN_OFF = ("Observed", "IS", "WIS", "PDIS", "PDWIS")  # know only what the log tells
FEW = 50  # an effective sample size below this is told
SMALL_MASS = 0.01  # a share of probability below this is not
FAR = 0.1  # standard deviations of the return by which cross-fitting must differ to be told
LISTED = 3  # states that a message names
NOTHING = 0.005  # a share of a return that two digits do not show

NOBODY = {
    "IS": "so that every weight is 0, and the estimate with them",
    "WIS": "undefined",
    "PDIS": "only rewards before they left it count",
    "PDWIS": "undefined",
    "DR": "the model alone speaks for the rest",
    "WDR": "the model alone speaks for the rest",
    "MAGIC": "the model alone speaks for the rest",
}
LEFT_OUT = {
    "DR": "of these only the model tells",
    "WDR": "of these only the model tells",
    "MAGIC": "of these only the model tells",
    "FQE": "these count as 0",
}


@dataclass(frozen=True, eq=False)
class Facts:
    """What words about estimates rest on; its length is the number of episodes."""

    episodes: int
    spread: float  # standard deviation of the returns
    censored: int  # episodes that stop before the horizon without an outcome
    followers: int  # episodes that the target might have made, to their end
    effective: float  # sample size of the weights at the end, (sum w)^2 / sum w^2
    missing: NDArray[np.int64]  # visited states where the target does what the behaviour never does
    unlogged: NDArray[np.int64]  # visited states where it does what was never logged
    unsupported: Mapping[str, float]  # mean mass by pairs never seen, of each MB and CF estimator
    lowest: float  # reward of the worst outcome
    highest: float  # reward of the best outcome

    def __len__(self) -> int:
        return self.episodes


def facts_of(problem: Problem, crossed: CrossFitted | None, names: Collection[str]) -> Facts:
    """Return what words about the named estimates of a problem rest on."""
    rewards = [outcome.reward for outcome in problem.model.outcomes] or [0.0]
    return Facts(
        episodes=len(problem),
        spread=float(problem.returns.std()),
        censored=int(problem.censored.sum()),
        followers=problem.followers,
        effective=problem.effective,
        missing=overlap_problems(problem),
        unlogged=overlap_problems(problem, action_counts(problem.episodes)),
        unsupported=_unsupported(problem, crossed, names),
        lowest=min(rewards),
        highest=max(rewards),
    )


def explain(
    facts: Facts, found: Mapping[str, Found], resampled: Mapping[str, Floats], rows: int
) -> dict[str, str]:
    """Say what is doubtful about each estimate (value, low, high).

    `rows` are what was resampled: the episodes, or groups of them.
    """
    explained = {}
    for name in found:
        said = []
        if name != "True":
            said = [
                of_one(rows, facts.episodes),
                of_weights(name, facts),
                of_overlap(name, facts.unlogged if name == "FQE" else facts.missing),
                of_censored(name, facts.censored),
                of_undefined(resampled[name]) if name in UNDEFINED else "",
                of_unsupported(name, facts),
                of_outside(found[name]),
            ]
        plain = name.removesuffix(" (cross-fitted)")
        if plain != name and plain in found:
            rule = facts.unsupported[name] * (facts.highest - facts.lowest)
            said.append(of_luck(found[name], found[plain], facts.spread, rule))
        explained[name] = "; ".join(sentence for sentence in said if sentence)
    return explained


def sizes(name: str, facts: Facts | Problem, truth: Floats | float | None) -> tuple[int, float]:
    """Episodes that count, and the effective sample size (sum w)^2 / sum w^2."""
    if name == "True":
        count = len(truth) if isinstance(truth, np.ndarray) else 0
        return count, float(count) if count else float("nan")
    if name not in WEIGHTED:
        return len(facts), float(len(facts))
    return facts.followers, facts.effective


def of_one(rows: int, episodes: int) -> str:
    """Say that one row cannot be resampled."""
    if rows > 1:
        return ""
    return "one episode: no interval" if episodes == 1 else "one group of episodes: no interval"


def of_weights(name: str, facts: Facts) -> str:
    """Say how few episodes carry an estimate."""
    if name not in WEIGHTED:
        return ""
    n, followers, effective = facts.episodes, facts.followers, facts.effective
    if followers == 0:
        return f"no episode follows the policy to its end: {NOBODY[name]}"
    if effective >= min(FEW, n / 2):
        return ""
    return (
        f"{followers} of {n} episodes follow the policy to their end; the estimate rests on them "
        f"(effective sample size {effective:.1f})"
    )


def of_overlap(name: str, states: NDArray[np.int64]) -> str:
    """Say in which states the target does what the behaviour never did."""
    if name not in NEED_OVERLAP or len(states) == 0:
        return ""
    listed = ", ".join(str(state) for state in states[:LISTED])
    more = ", …" if len(states) > LISTED else ""
    return (
        f"the policy takes actions never seen in {len(states)} visited "
        f"state{'s' if len(states) > 1 else ''} ({listed}{more}): "
        f"{LEFT_OUT.get(name, 'this estimate leaves them out')}"
    )


def of_censored(name: str, count: int) -> str:
    """Say that what would have followed after a log broke off is left out."""
    if name not in BROKEN_OFF or count == 0:
        return ""
    return (
        f"{count} episode{'s' if count > 1 else ''} stop{'s' if count == 1 else ''} before the "
        "horizon without an outcome: what would have followed counts as nothing"
    )


def of_undefined(resampled: Floats) -> str:
    """Say in how many resamples there was no value."""
    undefined = int((~np.isfinite(resampled)).sum())
    if undefined in (0, len(resampled)):
        return ""
    return (
        f"in {undefined} of {len(resampled)} resamples no episode follows the policy; the interval "
        "leaves them out"
    )


def of_outside(found: Found) -> str:
    """Say that the value (value, low, high) is not between the bounds."""
    value, low, high = found
    slack = 1e-9 * max(abs(low), abs(high))
    if not (value < low - slack or value > high + slack):
        return ""
    return (
        "the value lies outside its interval: resamples hold fewer different episodes, so that "
        "pairs seen seldom are lost in them"
    )


def of_unsupported(name: str, facts: Facts) -> str:
    """Say how much of the probability runs through pairs never seen."""
    if not name.startswith(("MB", "CF")):
        return ""
    share = facts.unsupported[name]
    if not share >= SMALL_MASS:
        return "" if np.isfinite(share) else "one episode cannot be split into halves"
    where = "half that judges" if name.endswith("(cross-fitted)") else "log"
    return (
        f"{100 * share:.0f} % of the probability runs through state-action pairs never seen in the "
        f"{where}, which are made up (by default they lead to the worst outcome: pessimistic)"
    )


def of_luck(crossed: Found, plain: Found, spread: float, rule: float) -> str:
    """Say that the cross-fitted estimate (value, low, high) is far below the plain one.

    `rule` is by how much the cross-fitted one could rise if pairs never seen ended well.
    """
    if not (crossed[2] < plain[1] and plain[0] - crossed[0] > FAR * spread):
        return ""
    told = (
        f"policies learned the same way on half of the log score {crossed[0]:+.2f} by the model of "
        f"the other half, against {plain[0]:+.2f}"
    )
    if rule < NOTHING:
        return f"{told}: part of the plain estimate is the luck of its model"
    if crossed[0] + rule < plain[1]:
        return (
            f"{told}, and {crossed[0] + rule:+.2f} even if all that was never seen ended well: "
            "part of the plain estimate is the luck of its model"
        )
    return (
        f"{told}; up to {rule:.2f} of that is the rule for pairs never seen, so that luck and rule "
        "cannot be told apart"
    )


def _unsupported(
    problem: Problem, crossed: CrossFitted | None, names: Collection[str]
) -> dict[str, float]:
    """Mean probability of ever using a pair never seen, of each estimate by MB or CF."""
    mass: dict[str, Floats] = {}
    if crossed is not None:
        mass["MB (cross-fitted)"] = crossed.unsupported_model_based
        mass["CF (cross-fitted)"] = crossed.unsupported_counterfactual
    by_model, by_path = (
        [name for name in names if name.startswith(kind) and name not in mass]
        for kind in ("MB", "CF")
    )
    if by_model:
        unseen = unsupported_model_mass(
            problem.episodes, problem.model, problem.target, horizon=problem.horizon
        )
        mass.update(dict.fromkeys(by_model, unseen))
    if by_path:
        unseen = unsupported_mass(
            problem.episodes,
            problem.model,
            problem.target,
            behavior=problem.behavior,
            mechanism=problem.mechanism,
            action_noise=problem.action_noise,
            horizon=problem.horizon,
        )
        mass.update(dict.fromkeys(by_path, unseen))
    return {name: float(values.mean()) for name, values in mass.items()}

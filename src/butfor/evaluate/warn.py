"""What a reader should know before trusting an estimate, in words; "" where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.bootstrap import Found
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.wording import signed
from butfor.models.policies import action_counts
from butfor.replay.replay import Replay
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
ROUNDING = 1e-9  # relative; smaller gaps are those of floating point
APART = 3.0  # standard errors by which the mean counterfactual may miss the model's own value

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
    """What warnings about estimates rest on."""

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


def about(
    sample: EpisodeColumns,
    crossed: CrossFitted | None,
    names: Collection[str],
    truth: Floats | float | None,
) -> tuple[
    Callable[[Mapping[str, Found], Mapping[str, Floats]], dict[str, str]],
    Callable[[str], tuple[int, float]],
]:
    """Return what explains the named estimates over episodes, and what gives their sizes."""
    if sample.replay.hidden:
        said = of_consistency(sample)
        return (
            lambda found, _: {name: said if name == "CF" else "" for name in found},
            partial(sizes, facts=None, truth=truth, episodes=len(sample)),
        )
    facts = facts_of(sample, crossed, names)
    return partial(explain, facts, len(sample)), partial(sizes, facts=facts, truth=truth)


def facts_of(sample: EpisodeColumns, crossed: CrossFitted | None, names: Collection[str]) -> Facts:
    """Return what warnings about the named estimates rest on."""
    replay = sample.replay
    rewards = [outcome.reward for outcome in replay.model.outcomes] or [0.0]
    return Facts(
        episodes=len(sample),
        spread=float(sample.returns.std()),
        censored=int(sample.censored.sum()),
        followers=sample.followers,
        effective=sample.effective,
        missing=_missing(replay, replay.behavior_table),
        unlogged=_missing(replay, action_counts(replay.log)),
        unsupported=_unsupported(sample, crossed, names),
        lowest=min(rewards),
        highest=max(rewards),
    )


def explain(
    facts: Facts, rows: int, found: Mapping[str, Found], resampled: Mapping[str, Floats]
) -> dict[str, str]:
    """Explain what is doubtful about each estimate (value, low, high).

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


def sizes(
    name: str, facts: Facts | None, truth: Floats | float | None, episodes: int = 0
) -> tuple[int, float]:
    """Episodes that count, and the effective sample size (sum w)^2 / sum w^2."""
    if name == "True":
        count = len(truth) if isinstance(truth, np.ndarray) else 0
        return count, float(count) if count else float("nan")
    if facts is not None and name in WEIGHTED:
        return facts.followers, facts.effective
    count = episodes if facts is None else facts.episodes
    return count, float(count)


def of_consistency(sample: EpisodeColumns) -> str:
    """Warn if the mean counterfactual is far from what the model alone expects."""
    z = consistency(sample.replay)
    if not abs(z) > APART:
        return ""
    return (
        f"The mean counterfactual is {signed(z)} standard errors from what the model alone "
        "expects; the model or the behavior does not fit the log."
    )


def consistency(replay: Replay) -> float:
    """Standard errors between the mean counterfactual and what the model alone expects.

    If model and behavior are right, the counterfactuals of many episodes average to what the model
    expects of the target from the same starts. Necessary, not sufficient: a wrong model that was
    fitted to its own log agrees with itself.
    """
    expected = replay.engine.first_values()
    gap = replay.outcomes().expected_return - expected
    if len(gap) < 2:
        return float("nan")
    if np.abs(gap).max() <= ROUNDING * max(1.0, float(np.abs(expected).max())):
        return 0.0
    return float(gap.mean() / (gap.std(ddof=1) / len(gap) ** 0.5))


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


def _missing(replay: Replay, taken: NDArray[Any]) -> NDArray[np.int64]:
    """Visited states in which the target may take an action that was never taken there.

    `taken` [S, A] is how often, or with which probability, each action was taken.
    """
    visited = np.zeros(len(taken), dtype=bool)
    visited[replay.log.state] = True
    return np.flatnonzero(visited & ((replay.target_table > 0) & (taken == 0)).any(axis=1))


def _unsupported(
    sample: EpisodeColumns, crossed: CrossFitted | None, names: Collection[str]
) -> dict[str, float]:
    """Mean probability of ever using a pair never seen, of each estimate by MB or CF."""
    mass: dict[str, float] = {}
    if crossed is not None:
        mass["MB (cross-fitted)"] = float(crossed.unsupported_model_based.mean())
        mass["CF (cross-fitted)"] = float(crossed.unsupported_counterfactual.mean())
    for kind, compute in (
        ("MB", sample.replay.engine.unsupported_in_model),
        ("CF", sample.replay.support),
    ):
        mine = [name for name in names if name.startswith(kind) and name not in mass]
        if mine:
            mass.update(dict.fromkeys(mine, float(compute().mean())))
    return mass

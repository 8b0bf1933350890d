"""Conclusion: whether to act, from the estimates, all checks and what reviewers expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from butfor.evaluate.diagnostics.lights import ALARMS, UNKNOWN, worst_light
from butfor.evaluate.estimators.table import CROSS_FITTED, compared_with
from butfor.evaluate.finding import (
    BETTER,
    MIXED,
    NOTHING,
    UNCLEAR,
    WORSE,
    Finding,
    Reviewed,
    Scale,
    find,
    told_digits,
)
from butfor.printed import Printed

NAMED = 3  # reasons in the sentence, the gravest
FRESH = "cross-fitted estimates"
PAST = "the past still matters"
PREDICTED = ("the action", "what follows")  # what the step before may still predict
REVIEWERS = "reviewers"
NOTHING_FOUND = (
    "No check found a reason to doubt this, but none can show whether something that was not "
    "recorded influenced both the decisions and the course: ask those who made the decisions."
)
DO_NOT = "Do not act on this."
# what follows unless a check found a problem
ADVICE = {
    BETTER: "This supports trying the policy.",
    WORSE: "This argues against the policy.",
    UNCLEAR: "This shows neither a gain nor a loss.",
    MIXED: "This shows neither a gain nor a loss.",
    NOTHING: "There is nothing to decide.",
}
PROMISING = "Promising, but not yet a reason to act."  # better, but a check calls for caution


@dataclass(frozen=True, repr=False)
class Conclusion(Printed):
    """What follows from all checks together."""

    light: str  # "red": do not act; "amber": caution; "unknown": no alarm, and no proof either
    sentence: str  # what was found, how many checks fail, and what to do: a line to read first
    reason: str  # what the checks that decided say, in a sentence; or what no check can show
    checks: tuple[str, ...]  # that decided, the gravest first


@dataclass(frozen=True)
class _Reason:
    """Checks that say the same in different ways, and what they say, by light."""

    checks: tuple[str, ...]
    red: str
    amber: str
    decisive: bool = True  # whether a red light means not to act


# From the gravest on. First what must hold whatever the data; then what refutes the gain; then what
# contradicts the assumptions that every estimate shares, which no amount of data mends; then what
# unrecorded variables could do; then a lack of data, and a poor model, which both can be mended;
# last what concerns single episodes only.
GRAVITY = (
    _Reason(
        ("null check",),
        "even a policy that does what was done seems to change something",
        "even a policy that does what was done seems to change something",
    ),
    _Reason(
        (FRESH,),
        "judged on data that it was not learned from, the policy does no better than what was done",
        "judged on data that it was not learned from, the policy may do no better than what was "
        "done",
    ),
    _Reason(
        (REVIEWERS,),
        "the reviewers expect the policy to do worse than what was done",
        "the reviewers do not expect a clear gain",
    ),
    _Reason(
        (PAST,),
        "the step before still predicts {what}, a sign that something lasting is missing from the "
        "records",
        "the step before still predicts some of {what}, a possible sign that something lasting is "
        "missing from the records",
    ),
    _Reason(
        ("mean importance weight",),
        "decisions look as if they had depended on more than what was recorded",
        "decisions may have depended on more than what was recorded",
    ),
    _Reason(
        ("estimators disagree", "consistency"),
        "estimates that should agree do not",
        "estimates that should agree differ somewhat",
    ),
    _Reason(
        ("rehearsal",),
        "a single variable that was not recorded could account for the whole gain",
        "no gain is promised",
    ),
    _Reason(
        ("overlap", "unsupported mass", "rare rows"),
        "too little of what the policy would do is in the records",
        "little of what the policy would do is in the records",
    ),
    _Reason(
        ("effective sample size", "episodes left"),
        "hardly any episode follows the policy from beginning to end",
        "few episodes follow the policy from beginning to end",
    ),
    _Reason(
        (
            "calibration",
            "calibration of ends",
            "calibration by variable",
            "log score",
            "residual correlation",
            "learners agree",
            "extrapolation",
            "hidden state",
        ),
        "the model predicts poorly",
        "it is not certain that the model predicts well",
    ),
    _Reason(
        ("influence", "rows in common"),
        "for a single episode, the answer is mostly what the model predicts for anyone",
        "for a single episode, the answer is partly what the model predicts for anyone",
        decisive=False,
    ),
)
ORDER = tuple(check for reason in GRAVITY for check in reason.checks)


def conclude(
    estimates: pd.DataFrame,
    diagnostics: pd.DataFrame,
    scale: Scale | None = None,
    *,
    changed: float = float("nan"),
    reviewed: Reviewed | None = None,
) -> Conclusion:
    """Decide from the tables of estimates and checks whether to act on them.

    A problem that concerns all episodes means not to act, and other alarms mean caution. Without
    any, the reason says what no check can show.

    Parameters
    ----------
    scale : optional
        How numbers are told, by default as returns.
    changed : optional
        Share of the decisions that the policy would change.
    reviewed : optional
        What reviewers expect of the policy.
    """
    told = scale or Scale(told_digits(estimates))
    finding = find(estimates, told, changed=changed, reviewed=reviewed)
    if finding.side == NOTHING:
        return Conclusion(UNKNOWN, f"{finding.sentence} {ADVICE[NOTHING]}", "", ())
    lights = dict(zip(diagnostics["check"], diagnostics["light"], strict=True))
    tally = _tally(list(lights.values()))
    lights |= {FRESH: _fresh_light(estimates), REVIEWERS: _reviewers_light(finding)}
    said = _say({check: light for check, light in lights.items() if light in ALARMS})
    if not said:
        sentence = f"{finding.sentence} {tally} {ADVICE[finding.side]}"
        return Conclusion(UNKNOWN, sentence, NOTHING_FOUND, ())
    found = dict(zip(diagnostics["check"], diagnostics["sentence"], strict=True)).get(PAST, "")
    what = next(
        (what for what in PREDICTED if f"still predicts {what}" in found), "what comes next"
    )
    light = worst_light(one.light for one in said)
    doubtful = any(one.decisive for one in said)
    advice = PROMISING if finding.side == BETTER and doubtful else ADVICE[finding.side]
    decided = [one for one in said if one.light == light]
    reason = _listed([one.words.replace("{what}", what) for one in decided[:NAMED]])
    return Conclusion(
        light,
        f"{finding.sentence} {tally} {DO_NOT if light == 'red' else advice}",
        f"{reason[:1].upper()}{reason[1:]}.",
        tuple(check for one in decided for check in one.checks),
    )


class _Said(NamedTuple):
    """What alarms of the same reason mean."""

    light: str
    words: str
    checks: list[str]
    decisive: bool = True


def _say(alarms: dict[str, str]) -> list[_Said]:
    """Return what alarms mean, the gravest first."""
    said = []
    for reason in GRAVITY:
        mine = [check for check in reason.checks if check in alarms]
        if mine:
            worst = worst_light(alarms[check] for check in mine)
            checks = [check for check in mine if alarms[check] == worst]
            words = reason.red if worst == "red" else reason.amber
            light = worst if reason.decisive else "amber"
            said.append(_Said(light, words, checks, reason.decisive))
    for check in alarms.keys() - set(ORDER):  # of another version
        said.append(_Said(alarms[check], f"the check “{check}” found a problem", [check]))
    return said


def _tally(lights: list[str]) -> str:
    """Say how many of the checks that could be made fail."""
    made = [light for light in lights if light != UNKNOWN]
    if not made:
        return "Nothing could be checked."
    failed, doubtful = made.count("red"), made.count("amber")
    text = f"{failed or 'None'} of {len(made)} checks {'fails' if failed <= 1 else 'fail'}"
    if doubtful:
        text += f", {doubtful} {'calls' if doubtful == 1 else 'call'} for caution"
    return f"{text}."


def _reviewers_light(finding: Finding) -> str:
    """Return the light of what reviewers expect: red if it is worse than what was observed."""
    if finding.reviewers == WORSE:
        return "red"
    if finding.reviewers == UNCLEAR and finding.side == BETTER:
        return "amber"
    return UNKNOWN


def _fresh_light(estimates: pd.DataFrame) -> str:
    """Return the light of the cross-fitted estimates: red if one is below what was observed."""
    found = estimates.set_index("estimator")
    rows = found.loc[[name for name in CROSS_FITTED if name in found.index]]
    name = compared_with(found.index)
    if name not in found.index or not len(rows):
        return UNKNOWN
    observed = found.loc[name, "value"]
    if (rows["value"] < observed).any():
        return "red"
    return "amber" if (rows["low"] <= observed).any() else "green"


def _listed(clauses: list[str]) -> str:
    *most, last = clauses
    return f"{'; '.join(most)}; and {last}" if most else last

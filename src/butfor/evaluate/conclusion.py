"""Conclusion: one sentence about whether to act, from all checks and the cross-fitted estimates."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from butfor.evaluate.diagnostics.lights import ALARMS, UNKNOWN, worst_light
from butfor.evaluate.estimators.table import CROSS_FITTED
from butfor.evaluate.wording import digits_for

NAMED = 3  # reasons in the sentence, the gravest
FRESH = "cross-fitted estimates"
NOTHING_FOUND = (
    "No check found a reason to doubt these results, but none can show whether something that was "
    "not recorded influenced both the decisions and the course: ask those who made the decisions "
    "before acting on them."
)


@dataclass(frozen=True)
class Conclusion:
    """What follows from all checks together."""

    light: str  # "red": do not act; "amber": caution; "unknown": no alarm, and no proof either
    sentence: str
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
        ("the past still matters",),
        "the step before still predicts what comes next, a sign that something lasting is missing "
        "from the records",
        "the step before still predicts some of what comes next, a possible sign that something "
        "lasting is missing from the records",
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
    estimates: pd.DataFrame, diagnostics: pd.DataFrame, *, rate: bool = False
) -> Conclusion:
    """Decide from the tables of estimates and checks whether to act on them.

    A problem that concerns all episodes means not to act, and other alarms mean caution. Without
    any, the sentence says what no check can show. `rate`: values are shares, told in percent.
    """
    lights = dict(zip(diagnostics["check"], diagnostics["light"], strict=True))
    lights[FRESH] = _fresh_light(estimates)
    alarms = {check: light for check, light in lights.items() if light in ALARMS}
    said = []
    for reason in GRAVITY:
        mine = [check for check in reason.checks if check in alarms]
        if mine:
            worst = worst_light(alarms[check] for check in mine)
            checks = [check for check in mine if alarms[check] == worst]
            words = reason.red if worst == "red" else reason.amber
            said.append((worst if reason.decisive else "amber", words, checks))
    for check in alarms.keys() - set(ORDER):  # of another version
        said.append((alarms[check], f"the check “{check}” found a problem", [check]))
    if not said:
        return Conclusion(UNKNOWN, NOTHING_FOUND, ())
    light = worst_light(light for light, *_ in said)
    decided = [(words, checks) for own, words, checks in said if own == light]
    clauses = [words for words, _ in decided[:NAMED]]
    if lights[FRESH] == light:
        clauses[0] += f" ({_fresh_words(estimates, rate)})"
    advice = {"red": "Do not act on these results", "amber": "Take these results with caution"}
    return Conclusion(
        light,
        f"{advice[light]}: {_listed(clauses)}.",
        tuple(check for _, checks in decided for check in checks),
    )


def _fresh_light(estimates: pd.DataFrame) -> str:
    """Return the light of the cross-fitted estimates: red if one is below what was observed."""
    found = estimates.set_index("estimator")
    rows = found.loc[[name for name in CROSS_FITTED if name in found.index]]
    if "Observed" not in found.index or not len(rows):
        return UNKNOWN
    observed = found.loc["Observed", "value"]
    if (rows["value"] < observed).any():
        return "red"
    return "amber" if (rows["low"] <= observed).any() else "green"


def _fresh_words(estimates: pd.DataFrame, rate: bool) -> str:
    """Return the lowest cross-fitted estimate beside what was observed."""
    value = estimates.set_index("estimator")["value"]
    lowest = value[[name for name in CROSS_FITTED if name in value.index]].min()
    digits = digits_for(estimates["value"], rate=rate)  # as in a table of all of them
    return f"{digits.value(lowest)} against {digits.value(value['Observed'])}"


def _listed(clauses: list[str]) -> str:
    *most, last = clauses
    return f"{'; '.join(most)}; and {last}" if most else last

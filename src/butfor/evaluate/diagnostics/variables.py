"""Calibration by variable: one-step predictions compared with what followed in the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from butfor.evaluate.diagnostics.calibration import CALIBRATION_OF_RATE
from butfor.evaluate.diagnostics.lights import Limits, Row, at_most
from butfor.evaluate.diagnostics.one_step import OneStep
from butfor.evaluate.wording import percent
from butfor.models.mdp import total_by
from butfor.types import Floats

# At most, beyond chance, as the share of steps that get a wrong level: one step in fifty, one in
# twenty. For a variable that seldom changes, a quarter and half of the steps at which it has not
# its most frequent level, if less.
WRONG_LEVEL = (0.02, 0.05)
# Of steps, by predicted probability, for each level. Gaps by chance add up over groups and levels:
# with deciles they would hide what is looked for in logs of a thousand episodes.
GROUPS = 5


@dataclass(frozen=True)
class VariableGap:
    """How far the predictions for one variable are from what followed."""

    words: str
    gap: float  # half the sum over levels of the mean gap by quintile: a total variation distance
    chance: float  # the gap to expect if the model is right
    rarer: float  # share of the steps without the most frequent level
    steps: int

    @property
    def limits(self) -> Limits:
        """The limits of what is beyond chance."""
        if self.rarer == 0:
            return WRONG_LEVEL
        green, amber = (
            min(points, share * self.rarer)
            for points, share in zip(WRONG_LEVEL, CALIBRATION_OF_RATE, strict=True)
        )
        return green, amber

    @property
    def excess(self) -> float:
        """The gap beyond chance, as a multiple of the green limit."""
        return (self.gap - self.chance) / self.limits[0]


def calibration_by_variable(predicted: Sequence[OneStep], given: bool) -> list[Row]:
    """Return the row about the worst variable, and the one about the end."""
    gaps = [variable_gap(one, given) for one in predicted if one.variable and one.known.any()]
    ends = [variable_gap(one, given) for one in predicted if not one.variable and one.known.any()]
    rows = []
    if gaps:
        worst = max(gaps, key=lambda gap: gap.excess)
        rows.append(
            _row(
                "calibration by variable",
                worst,
                f" (the worst of {len(gaps)} variables)" if len(gaps) > 1 else "",
                given,
            )
        )
    if ends:
        rows.append(_row("calibration of ends", ends[0], "", given))
    return rows


def variable_gap(one: OneStep, given: bool) -> VariableGap:
    """Compare predicted with observed shares of each level, by quintile of the prediction.

    The steps of an episode follow each other, so given the past each is a draw of its own. If the
    model was learned from as many steps as it predicts, its own error is about as large as theirs:
    that doubles the variance that chance alone explains.
    """
    rows, level = one.rows[one.known], one.level[one.known]
    gap = chance = 0.0
    for number, predicted in enumerate(rows.T):
        gaps, errors = _by_quintile(predicted, (level == number).astype(np.float64))
        gap += float(np.abs(gaps).sum()) / 2
        chance += float(np.sqrt(2 / np.pi) * errors.sum()) / 2
    share = np.bincount(level, minlength=rows.shape[1]) / len(level)
    chance *= 1.0 if given else np.sqrt(2)
    return VariableGap(one.words, gap, chance, float(1 - share.max()), len(level))


def _by_quintile(predicted: Floats, happened: Floats) -> tuple[Floats, Floats]:
    """Return the gap of each group and its standard error, both as shares of all steps."""
    cuts = np.unique(np.quantile(predicted, np.arange(1, GROUPS) / GROUPS))
    group = np.searchsorted(cuts, predicted, side="right")
    gap = total_by(group, predicted - happened, len(cuts) + 1)
    variance = total_by(group, predicted * (1 - predicted), len(cuts) + 1)
    return gap / len(predicted), np.sqrt(np.maximum(variance, 0.0)) / len(predicted)


def _row(check: str, worst: VariableGap, among: str, given: bool) -> Row:
    light = at_most(worst.gap - worst.chance, worst.limits)
    source = "the model" if given else "the model of the other half of the log"
    sentences = [
        f"One step ahead, {source} predicts {worst.words}{among} to within "
        f"{100 * worst.gap:.1f} percentage points (chance alone: about {100 * worst.chance:.1f}). "
        f"{percent(worst.rarer).capitalize()} of {worst.steps} steps do not lead to its most "
        "frequent level."
    ]
    if light != "red" and (worst.chance > worst.limits[1] or worst.rarer == 0):
        light = "amber"  # chance alone is as large as what a poor model does
        sentences.append("There are too few data to tell a good model from a poor one.")
    elif light != "green":
        sentences.append("Give it other parents (parents=) or another learner.")
    return check, worst.gap, light, " ".join(sentences)

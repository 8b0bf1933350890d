"""Mean importance weight: whether the behavior explains how often the policy was followed."""

from __future__ import annotations

import math

from butfor.evaluate.diagnostics.hidden import CONSISTENT
from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_most
from butfor.evaluate.intervals import LEAST_EFFECTIVE
from butfor.evaluate.sample import Sample

# At most, in standard errors, as for *consistency*, if the behavior is known. If it is estimated
# from the same log, the mean weight varies less than that, and false alarms are rarer still.
AWAY = CONSISTENT
# From 1, at most: in a large log this may be many standard errors, but it changes no estimate much.
NEGLIGIBLE = 0.02


def weight_row(sample: Sample) -> Row:
    """Check whether the final importance weights average to 1, as those of a right behavior do.

    With w = prod_t pi(a_t|s_t) / pi_b(a_t|s_t), E[w] = 1 if pi_b is right given the states and
    takes every action of the target. The standard error takes the behavior as known. Below an
    effective sample size of 10 a few weights decide both, and nothing is claimed.
    """
    n, effective = sample.episodes, sample.effective
    mean = float(sample.logged.ratio[:, -1].sum()) / n
    if n < 2 or not effective >= LEAST_EFFECTIVE:
        sentence = (
            "The importance weights are too few, or too large, to be averaged: the effective "
            f"sample size is below {LEAST_EFFECTIVE:.0f}."
        )
        return "mean importance weight", mean, UNKNOWN, sentence
    # effective = (sum w)^2 / sum w^2, so the variance of the weights is mean^2 (n / effective - 1)
    error = mean * math.sqrt(max(n / effective - 1, 0.0) / (n - 1))
    away = abs(mean - 1)
    apart = away / error if error > 0 else math.inf
    light = "green" if away <= NEGLIGIBLE else at_most(apart, AWAY)
    sentence = (
        f"The importance weights average {mean:.2f} (standard error {error:.2g}); they should "
        "average 1."
    )
    if light != "green":
        sentence += (
            " Either decisions depend on more than the state, or episodes that would have large "
            "weights are missing from the log, as happens at low overlap with nothing hidden."
        )
    return "mean importance weight", mean, light, sentence

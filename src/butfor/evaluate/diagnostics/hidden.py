"""Diagnostics where the state is hidden: does the model fit, what is known, what carries over."""

from __future__ import annotations

import numpy as np

from butfor.evaluate.diagnostics.lights import Row, at_least, at_most
from butfor.evaluate.warn import consistency
from butfor.evaluate.wording import percent
from butfor.hidden.latent import LatentPosterior
from butfor.replay.replay import Replay
from butfor.replay.steps import Steps

CONSISTENT = (2.0, 3.0)  # at most: chance alone goes beyond once in 22, once in 370 logs
# At most, in bits: one is a toss-up between two hidden states, two between four.
UNKNOWN = (1.0, 2.0)
# At least: rows that the counterfactual meets and that share a label with the observed one. Nothing
# of the patient crosses between rows that share none.
SHARED = (0.50, 0.20)


def check_consistency(replay: Replay) -> Row:
    """Check whether counterfactuals average to what the model alone expects."""
    z = consistency(replay)
    result, expected = replay.outcomes(), replay.engine.first_values()
    sentence = (
        f"Replayed episodes average to {result.expected_return.mean():+.3f}, the model alone "
        f"expects {expected.mean():+.3f} of the policy: {abs(z):.1f} standard errors apart. More "
        "than 3 say that the model, or what is assumed of who saw what, does not fit the log; "
        "fewer do not say that it does."
    )
    if np.isnan(z):
        return "consistency", z, "amber", "One episode cannot tell whether the model fits the log."
    return "consistency", abs(z), at_most(abs(z), CONSISTENT), sentence


def check_entropy(posterior: LatentPosterior) -> Row:
    """Judge how much of the hidden state the record gives away."""
    _, step = posterior.rows
    by_step = np.bincount(step, posterior.entropy) / np.bincount(step)
    value = float(posterior.entropy.mean())
    sentence = (
        f"Given the whole record the hidden state is unknown by {value:.2f} bits on average (one "
        f"is a toss-up between two), {by_step[0]:.2f} at the first step."
    )
    return "hidden state", value, at_most(value, UNKNOWN), sentence


def check_shared_rows(steps: Steps) -> Row:
    """Judge how often the rows met have a label in common with the observed one."""
    apart = steps.share_apart
    value = 1.0 if np.isnan(apart) else 1.0 - apart
    sentence = (
        f"{percent(value).capitalize()} of the rows that the policy's course meets share a label "
        "with the observed one; across the others nothing of the episode carries over. Labels on "
        "what nature decides (labels=) may raise it."
    )
    return "rows in common", value, at_least(value, SHARED), sentence

"""Checks for models with a hidden state: model fit, uncertainty of the state, shared labels."""

from __future__ import annotations

import numpy as np

from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_least, at_most
from butfor.evaluate.warn import consistency
from butfor.evaluate.wording import digits_for, percent
from butfor.hidden.latent import LatentPosterior
from butfor.replay.replay import Replay
from butfor.replay.steps import Steps

CONSISTENT = (2.0, 3.0)  # at most: by chance alone exceeded in one log in 22, one in 370
# At most, in bits: one is a toss-up between two hidden states, two between four.
UNDETERMINED = (1.0, 2.0)
# At least: share of the rows met by the counterfactual that share a label with the observed one.
# Between rows that share none, nothing about the patient carries over.
SHARED = (0.50, 0.20)


def check_consistency(replay: Replay) -> Row:
    """Check whether counterfactual returns average to what the model alone predicts."""
    z = consistency(replay)
    result, expected = replay.outcomes(), replay.engine.first_values()
    means = result.expected_return.mean(), expected.mean()
    digits = digits_for([*means, result.expected_return.std() / len(replay) ** 0.5])
    sentence = (
        f"Under the policy the replayed episodes return {digits.value(means[0])} on average, the "
        f"model alone predicts {digits.value(means[1])}: {abs(z):.1f} standard errors apart. "
        "More than 3 mean that the model, or the assumption about who saw what, does not fit the "
        "log; fewer do not prove that it fits."
    )
    if np.isnan(z):
        return "consistency", z, UNKNOWN, "One episode cannot show whether the model fits the log."
    return "consistency", abs(z), at_most(abs(z), CONSISTENT), sentence


def check_entropy(posterior: LatentPosterior) -> Row:
    """Check how much the record reveals about the hidden state."""
    _, step = posterior.rows
    by_step = np.bincount(step, posterior.entropy) / np.bincount(step)
    value = float(posterior.entropy.mean())
    sentence = (
        f"Given the whole record, the uncertainty about the hidden state is {value:.2f} bits on "
        f"average (one bit is a toss-up between two states) and {by_step[0]:.2f} bits at the first "
        "step."
    )
    return "hidden state", value, at_most(value, UNDETERMINED), sentence


def check_shared_rows(steps: Steps) -> Row:
    """Check how often the rows met share a label with the observed row."""
    apart = steps.share_apart
    value = 1.0 if np.isnan(apart) else 1.0 - apart
    sentence = (
        f"{percent(value).capitalize()} of the rows met under the policy share a label with the "
        "observed row; at the others nothing about the episode carries over. Labels for what "
        "nature decides (labels=) may raise this share."
    )
    return "rows in common", value, at_least(value, SHARED), sentence

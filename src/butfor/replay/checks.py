"""Checks of the parts of a question that come as arrays, one number per decision or pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.log.episodes import Episodes
from butfor.models.policies import action_counts
from butfor.types import Floats


def check_probability(given: ArrayLike | None, episodes: Episodes, hidden: bool) -> Floats | None:
    """Return the probabilities of the logged actions, each above 0 and at most 1, [N]."""
    if given is None:
        return None
    if hidden:
        raise ValueError(
            "behavior_probability: not available for a model with a hidden state; leave it out"
        )
    probability = np.asarray(given, dtype=np.float64)
    if probability.shape != episodes.state.shape:
        raise ValueError(
            f"behavior_probability has shape {probability.shape}, expected "
            f"({len(episodes.state)},): one per logged decision"
        )
    wrong = ~((probability > 0) & (probability <= 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"behavior_probability of row {row} ({episodes.place(row)}) is {probability[row]}; "
            "the probability of what was done must be above 0 and at most 1"
        )
    return probability


def check_counts(counts: ArrayLike | None, episodes: Episodes, hidden: bool) -> NDArray[np.int64]:
    """Return the logged decisions by state and action, [S, A]; at least those of the episodes."""
    own = action_counts(episodes)
    if counts is None:
        return own
    if hidden:
        raise ValueError("counts: with a hidden state they follow from the episodes; leave it out")
    given = np.asarray(counts)
    if given.shape != own.shape or given.dtype.kind not in "iu":
        raise ValueError(
            f"counts: expected whole numbers of shape {own.shape}, got {given.dtype} of shape "
            f"{given.shape}"
        )
    if (given < own).any():
        state, action = np.argwhere(given < own)[0]
        raise ValueError(
            f"counts: {given[state, action]} at state {state}, action {action}, but these episodes "
            f"alone have {own[state, action]}; give the counts of the whole log"
        )
    return given.astype(np.int64)

"""Checks of a question: counts of logged decisions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.log.episodes import Episodes
from butfor.models.policies import action_counts


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

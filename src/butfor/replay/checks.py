"""Checks of a question: counts of logged decisions, and what it takes to answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.log.episodes import Episodes
from butfor.models.policies import action_counts

MOST_NUMBERS = 10**8  # of a table that is kept in memory: 0.8 GB


def check_room(shape: Sequence[int], what: str) -> None:
    """Refuse a table that is too large, before memory runs out."""
    numbers = math.prod(shape)
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"{what} are {numbers:,} numbers, more than the {MOST_NUMBERS:,} that are kept at "
            "once; lower the horizon, or give fewer episodes or states at once"
        )


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

"""Twins: episodes with the same course, whose counterfactuals are the same."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.types import Floats

Whole = NDArray[np.int64]


def find_twins(log: Episodes) -> tuple[Whole, Whole]:
    """Return the first episode of each distinct course, [m], and the course of each episode, [n].

    A course is all states, actions, rewards and the outcome; ids may differ.
    """
    paid = _number(log.reward)
    taken = log.state.astype(np.int64) * log.n_actions + log.action
    kind = _number(taken * (paid.max() + 1) + paid)
    kinds = int(kind.max()) + 1
    final = log.next_state[log.offsets[1:] - 1].astype(np.int64) + 1
    course = _number((log.outcome + 1) * (log.n_states + 1) + final)
    # step by step: courses that are the same so far differ if this step does
    for step in range(int(log.lengths.max())):
        going = np.flatnonzero(log.lengths > step)
        course[going] = _number(course[going] * kinds + kind[log.offsets[going] + step])
    course = _number(course * (int(log.lengths.max()) + 1) + log.lengths)
    first = np.flatnonzero(np.diff(np.maximum.accumulate(course), prepend=-1))
    return first, course


def _number(keys: Whole | Floats) -> Whole:
    """Number distinct keys in the order in which they come."""
    return pd.factorize(keys)[0].astype(np.int64)

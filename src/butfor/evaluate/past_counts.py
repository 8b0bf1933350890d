"""PastCounts: how often each transition followed each level of the step before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.log.variables import Variable
from butfor.models.fit import destinations

Whole = NDArray[np.int64]
LEVEL = 32  # first bit of the number of a variable; the rest is its level


@dataclass(frozen=True, eq=False)
class PastCounts:
    """How often each transition followed each level of the step before, M counts."""

    names: tuple[str, ...]  # of the variables of the step before, the action first
    past: Whole  # [M] packed variable and level of the step before
    state: Whole  # [M]
    action: Whole  # [M]
    follows: Whole  # [M] next state, or S + o for an outcome o
    number: Whole  # [M]

    @classmethod
    def of_log(cls, log: Episodes) -> PastCounts:
        """Count a log in memory, whose states can be enumerated."""
        pair = log.state.astype(np.int64) * log.n_actions + log.action
        size = log.n_states + len(log.outcomes)
        kinds, kind = np.unique(pair * size + destinations(log, "visits"), return_inverse=True)
        entry, past, number = count_past(log, kind)
        pair, follows = np.divmod(kinds[entry], size)
        state, action = np.divmod(pair, log.n_actions)
        return cls(past_names(log.state_variables), past, state, action, follows, number)


def count_past(log: Episodes, kind: Whole) -> tuple[Whole, Whole, Whole]:
    """Count the steps of each kind [N] by each level of the step before: kind, level, number, [M].

    The rows are in the order of kinds, then of levels.
    """
    # levels are looked at for each distinct pair of a kind and the step before it
    pair = log.state.astype(np.int64) * log.n_actions + log.action
    before = np.where(log.time > 0, np.roll(pair, 1) + 1, 0)
    size = log.n_states * log.n_actions + 1
    place, found = pd.factorize(kind * size + before)
    number = np.bincount(place)
    kinds, levels, numbers = [], [], []
    for past in previous_levels(log, found % size):
        known = past >= 0
        place, seen = pd.factorize(past[known])
        width = max(len(seen), 1)
        place, keys = pd.factorize((found // size)[known] * width + place)
        kinds.append(keys // width)
        levels.append(seen[keys % width])
        numbers.append(np.bincount(place, number[known]).astype(np.int64))
    entry, past, count = (np.concatenate(parts) for parts in (kinds, levels, numbers))
    order = np.lexsort((past, entry))
    return entry[order], past[order], count[order]


def previous_levels(log: Episodes, before: Whole) -> Whole:
    """Return levels of the step before as packed codes, [1 + J, M]; -1: there is none.

    `before` [M] numbers its state and action from 1 on; 0: there was no step before. The first row
    is the action, where level 0 means that there was none, so that a first step that differs from
    later ones shows, too. The others are the state variables.
    """
    state, action = np.divmod(np.maximum(before - 1, 0), log.n_actions)
    states = [
        np.where(before > 0, code.astype(np.int64) | number << LEVEL, -1)
        for number, code in enumerate(log.codes(state).values(), start=1)
    ]
    return np.stack([np.where(before > 0, action + 1, 0), *states])


def past_names(state_variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return what the variables of the step before are called."""
    return (
        "the action of the step before, if any,",
        *(f'"{variable.name}" at the step before' for variable in state_variables),
    )

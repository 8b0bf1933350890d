"""Mean rewards of transitions: by end alone where that is all, else by a few parents."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from butfor.models.backoff import LEAST_GAIN, MOST_CELLS
from butfor.models.factored import Rewards, size_of
from butfor.models.fit import differs_from, varying_rewards
from butfor.models.mdp import total_by
from butfor.models.transitions import Transitions
from butfor.types import Floats, Offsets

STRENGTHS = (1e-6, 1.0, 3.0)  # of the back-off, in cases; the first for rewards that do not vary
EXACT = 1e-9  # share of the variation of rewards below which nothing is left to explain


def fit_rewards(rows: Transitions, candidates: Sequence[str]) -> Rewards:
    """Learn the mean reward of a transition by its end, and by parents where it varies with them.

    Parents are added one at a time while the squared error of rewards that are left out falls: by
    a gain of 2 in log likelihood, as for other variables. Means are backed off to those with one
    parent fewer, finally to those of each end. Warns where rewards vary for the same transition.
    """
    _warn_of_varying_rewards(rows)
    values = np.array([*(outcome.reward for outcome in rows.outcomes), 0.0])
    lowest, highest = values.copy(), values.copy()
    for end in np.unique(rows.end):
        here = rows.end == end
        lowest[end], highest[end] = rows.lowest[here].min(), rows.highest[here].max()
    if not differs_from(highest, lowest).any():
        return Rewards((), lowest)
    sizes = [size_of(name, rows.state_variables, rows.action_variables) for name in candidates]
    columns = [rows.codes[name] for name in candidates]
    searches = [_Search(rows, columns, sizes, values, strength) for strength in STRENGTHS]
    best = min((search.run() for search in searches), key=lambda search: search.error)
    return Rewards(tuple(candidates[parent] for parent in best.parents), best.table())


def _warn_of_varying_rewards(rows: Transitions) -> None:
    varies = differs_from(rows.highest, rows.lowest)
    if varies.any():
        first = int(varies.argmax())
        place = f"first in state {rows.state[first]}, action {rows.action[first]}"
        warnings.warn(varying_rewards(int(varies.sum()), place), stacklevel=5)


@dataclass(frozen=True, eq=False)
class _Left:
    """What is predicted for a reward y that is left out, in each cell: mean - own * y."""

    mean: Floats  # [cells]
    own: Floats  # [cells]
    error: float  # summed squared error

    @classmethod
    def out(
        cls, rows: Transitions, cell: Offsets, mean: Floats, own: Floats, strength: float
    ) -> _Left:
        """Predict in these cells, given the predictions with one parent fewer, by cell."""
        count, total, squares = (
            total_by(cell, weight, len(mean))
            for weight in (rows.weight.astype(np.float64), rows.reward, rows.squares)
        )
        # a case that is alone in its cell is predicted as with one parent fewer
        several = count > 1
        others = np.where(several, count - 1 + strength, 1.0)
        mean = np.where(several, (total + strength * mean) / others, mean)
        own = np.where(several, (1 + strength * own) / others, own)
        error = (1 + own) ** 2 * squares - 2 * mean * (1 + own) * total + mean**2 * count
        return cls(mean, own, float(np.maximum(error, 0.0).sum()))


class _Search:
    """The parents chosen so far; cells are numbered by the end and the levels of the parents."""

    def __init__(
        self,
        rows: Transitions,
        columns: Sequence[NDArray[np.integer]],
        sizes: Sequence[int],
        values: Floats,
        strength: float,
    ) -> None:
        self.rows, self.columns, self.sizes = rows, columns, sizes
        self.values, self.strength = values, strength
        self.parents: list[int] = []
        self.ends, self.cell = np.unique(rows.end, return_inverse=True)
        start = values[self.ends]
        self.left = _Left.out(rows, self.cell, start, np.zeros_like(start), strength)
        mean = rows.reward.sum() / rows.weight.sum()
        self.variation = float(rows.squares.sum() - mean * rows.reward.sum())

    @property
    def error(self) -> float:
        return self.left.error

    def run(self) -> _Search:
        cases = float(self.rows.weight.sum())
        while self.error > EXACT * self.variation:
            tried = {v: self._with(v) for v in self._possible()}
            # a parent that divides no cell would only weaken the back-off
            cells = len(self.left.mean)
            tried = {v: found for v, found in tried.items() if len(found[1].mean) > cells}
            if not tried:
                break
            best = min(tried, key=lambda v: tried[v][1].error)
            cell, left = tried[best]
            floor = EXACT * self.variation
            if cases / 2 * math.log(self.error / max(left.error, floor)) < LEAST_GAIN:
                break
            self.parents.append(best)
            self.cell, self.left = cell, left
        return self

    def _possible(self) -> list[int]:
        cells = len(self.values) * math.prod(self.sizes[parent] for parent in self.parents)
        return [
            v
            for v in range(len(self.sizes))
            if v not in self.parents and cells * self.sizes[v] <= MOST_CELLS
        ]

    def _with(self, parent: int) -> tuple[Offsets, _Left]:
        """Return the cells with one more parent, and the predictions in them."""
        size = self.sizes[parent]
        key = self.cell * size + self.columns[parent]
        occurs = np.zeros(len(self.left.mean) * size, bool)
        occurs[key] = True
        fewer = np.flatnonzero(occurs) // size
        cell = (np.cumsum(occurs) - 1)[key]
        mean, own = self.left.mean[fewer], self.left.own[fewer]
        return cell, _Left.out(self.rows, cell, mean, own, self.strength)

    def table(self) -> Floats:
        """Return mean rewards [levels of parents …, O + 1]."""
        shape = (*(self.sizes[parent] for parent in self.parents), len(self.values))
        place = np.zeros(len(self.cell), np.int64)
        for parent in self.parents:
            place = place * self.sizes[parent] + self.columns[parent]
        place = place * len(self.values) + self.rows.end
        counts, totals = (
            total_by(place, weight, math.prod(shape)).reshape(shape)
            for weight in (self.rows.weight.astype(np.float64), self.rows.reward)
        )
        table = self.values
        for known in range(len(self.parents) + 1):
            dropped = tuple(range(known, len(self.parents)))
            count, total = counts.sum(axis=dropped), totals.sum(axis=dropped)
            fewer = table[..., None, :] if known else table
            table = (total + self.strength * fewer) / (count + self.strength)
        return table

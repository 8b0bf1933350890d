"""Columns: what estimators sum, one row per episode or per group of episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from butfor.types import Floats, Keys

GROUPS = 1000  # of episodes, by a hash of their ids, that stand for single episodes where resampled

# the layout of `Columns.matrix`: fields with one column, then fields with one column per step
SINGLE = ("episodes", "recorded", "returns", "weighted_return", "value", "counterfactual")
STEPPED = ("ratio", "earned", "base", "surprise")


@dataclass(frozen=True, eq=False)
class Columns:
    """What estimators sum: one row per episode, or the sums over a group of episodes.

    With w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), G the return, V and Q the values of the
    target in the model, and d_t the discount of step t: discount^t, or to the power of the time
    that has passed.
    """

    episodes: Floats  # [n] number of episodes: 1 each, or that of the group
    recorded: Floats  # [n] G
    returns: Floats  # [n] what counterfactuals are compared with
    weighted_return: Floats  # [n] w_{H-1} G
    ratio: Floats  # [n, H] w_t
    earned: Floats  # [n, H] d_t w_t r_t
    base: Floats  # [n, H] d_t w_{t-1} V(s_t)
    surprise: Floats  # [n, H] d_t w_t (r_t - Q(s_t, a_t))
    value: Floats  # [n] V(s_0)
    counterfactual: Floats  # [n] expected counterfactual return
    seed: int  # for estimators that draw
    group: NDArray[np.int64] | None = None  # [n] of each row, if there are more rows than GROUPS

    def __len__(self) -> int:
        return len(self.episodes)

    def matrix(self) -> Floats:
        """Return all columns side by side, [n, K]."""
        return np.hstack(self.blocks())

    def blocks(self) -> list[Floats]:
        """Return the columns of `matrix` in blocks: those of episodes, and those of steps."""
        single = np.column_stack([getattr(self, name) for name in SINGLE])
        return [single, *(getattr(self, name) for name in STEPPED)]

    def by_group(self, weights: Floats) -> Columns:
        """Return the sums over each group, with weights [n] on the rows."""
        assert self.group is not None
        rows = np.flatnonzero(weights)
        place, group = np.unique(self.group[rows], return_inverse=True)
        sums = sparse.csr_array((weights[rows], (group, rows)), (len(place), len(self)))
        named = {name: sums @ getattr(self, name) for name in (*SINGLE, *STEPPED)}
        return Columns(**named, seed=self.seed)

    @classmethod
    def from_matrix(cls, matrix: Floats, steps: int, seed: int) -> Columns:
        """Return the columns of a matrix, or of sums over its rows."""
        count = len(SINGLE)
        expected = count + len(STEPPED) * steps
        if matrix.ndim != 2 or matrix.shape[1] != expected:
            raise ValueError(
                f"the matrix has shape {matrix.shape}, expected {expected} columns for {steps} "
                "steps"
            )
        parts = [*matrix[:, :count].T, *np.split(matrix[:, count:], len(STEPPED), axis=1)]
        # contiguous copies, as in EpisodeColumns: strides decide the order of summation
        named = zip((*SINGLE, *STEPPED), map(np.ascontiguousarray, parts), strict=True)
        return cls(**dict(named), seed=seed)


def group_of(keys: Keys) -> NDArray[np.int64]:
    """Return the group of each episode, given their keys [n]."""
    return (keys % np.uint64(GROUPS)).astype(np.int64)

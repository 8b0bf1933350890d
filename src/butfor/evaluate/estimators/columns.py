"""Columns: what estimators sum, one row per episode or per group of episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from butfor.types import Floats

# the layout of `Columns.matrix`: fields with one column, then fields with one column per step
SINGLE = ("episodes", "returns", "weighted_return", "value", "counterfactual")
STEPPED = ("ratio", "earned", "base", "surprise")


@dataclass(frozen=True, eq=False)
class Columns:
    """What estimators sum: one row per episode, or the sums over a group of episodes.

    With w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), G the return, V and Q the values of the
    target in the model, and d_t the discount of step t: discount^t, or to the power of the time
    that has passed.
    """

    episodes: Floats  # [n] number of episodes: 1 each, or that of the group
    returns: Floats  # [n] G
    weighted_return: Floats  # [n] w_{H-1} G
    ratio: Floats  # [n, H] w_t
    earned: Floats  # [n, H] d_t w_t r_t
    base: Floats  # [n, H] d_t w_{t-1} V(s_t)
    surprise: Floats  # [n, H] d_t w_t (r_t - Q(s_t, a_t))
    value: Floats  # [n] V(s_0)
    counterfactual: Floats  # [n] expected counterfactual return
    seed: int  # for estimators that draw

    def __len__(self) -> int:
        return len(self.episodes)

    def matrix(self) -> Floats:
        """Return all columns side by side, [n, K]."""
        return np.column_stack([getattr(self, name) for name in (*SINGLE, *STEPPED)])

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

"""The difference between the target and what was observed, split into pieces that add up."""

from __future__ import annotations

import numpy as np
import pandas as pd

from butfor.counterfactual import Counterfactuals
from butfor.mdp import total_by

COLUMNS = [
    "by",  # what the log was split by: "all", "outcome" or "first state"
    "observed",  # outcome that happened
    "counterfactual",  # most likely outcome under the target
    "first_state",
    "episodes",
    "expected_episodes",  # by probability rather than by most likely outcome
    "observed_mean",
    "counterfactual_mean",
    "difference",  # between the two means
    "contribution",  # to the overall difference: those of one split add up to it
]


def decompose(result: Counterfactuals) -> pd.DataFrame:
    """Split the mean difference by observed and counterfactual outcome, and by first state.

    The rows of each split add up: delta = sum over pieces of (episodes / n) times the mean
    difference within the piece.
    """
    return pd.concat(
        [_whole(result), _by_outcomes(result), _by_first_state(result)], ignore_index=True
    )[COLUMNS]


def check_decomposition(table: pd.DataFrame, difference: float, tolerance: float = 1e-10) -> float:
    """Return by how much the pieces of a split miss the whole difference; too much is an error."""
    sums = table.groupby("by")["contribution"].sum()
    gap = float(np.abs(sums - difference).max())
    if gap > tolerance:
        raise ArithmeticError(f"the pieces of the decomposition miss the whole by {gap:.3g}")
    return gap


def _whole(result: Counterfactuals) -> pd.DataFrame:
    everyone = np.zeros(len(result.difference), dtype=np.int64)
    return _pieces(result, everyone, 1).assign(
        by="all", observed="", counterfactual="", first_state=-1
    )


def _by_outcomes(result: Counterfactuals) -> pd.DataFrame:
    names = result.outcome_names
    size = len(names)
    observed = result.episodes.outcome % size  # none, -1, comes last
    table = _pieces(result, observed * size + result.most_likely % size, size * size)
    expected = np.zeros((size, size))
    np.add.at(expected, observed, result.probability)
    table["expected_episodes"] = expected.reshape(-1)
    return table.assign(
        by="outcome",
        observed=np.repeat(names, size),
        counterfactual=np.tile(names, size),
        first_state=-1,
    )


def _by_first_state(result: Counterfactuals) -> pd.DataFrame:
    states, piece = np.unique(result.episodes.first_state, return_inverse=True)
    return _pieces(result, piece, len(states)).assign(
        by="first state", observed="", counterfactual="", first_state=states
    )


def _pieces(result: Counterfactuals, piece: np.ndarray, size: int) -> pd.DataFrame:
    episodes = np.bincount(piece, minlength=size)
    observed = total_by(piece, result.observed_return, size)
    counterfactual = total_by(piece, result.expected_return, size)
    difference = total_by(piece, result.difference, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(
            {
                "episodes": episodes,
                "expected_episodes": episodes.astype(np.float64),
                "observed_mean": observed / episodes,
                "counterfactual_mean": counterfactual / episodes,
                "difference": difference / episodes,
                "contribution": difference / len(piece),
            }
        )

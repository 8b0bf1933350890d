"""Decomposition of the difference between target and observed return into pieces that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.models.mdp import total_by
from butfor.printed import Printed
from butfor.replay.outcomes import Counterfactuals
from butfor.types import Floats

COLUMNS = [
    "by",  # what the log was split by: "all", "outcome" or "first state"
    "observed",  # observed outcome
    "counterfactual",  # most likely outcome under the target
    "first_state",
    "episodes",
    "expected_episodes",  # by probability instead of by most likely outcome
    "observed_mean",  # as recorded
    "usual_mean",  # what differences are taken from; left out if it is the same
    "counterfactual_mean",
    "difference",  # between the two means
    "contribution",  # to the overall difference; the contributions of one split add up to it
]


@dataclass(frozen=True, eq=False, repr=False)
class Pieces(Printed):
    """Sums of `piece_columns` over the episodes of each piece."""

    whole: Floats  # [1, 5] all episodes
    cells: Floats  # [(O + 1)^2, 5] by `cells_of`
    expected: Floats  # [O + 1, O + 1] counterfactual probabilities, by observed outcome
    by_state: Floats  # [states, 5] by first state


def pieces_of(result: Counterfactuals) -> Pieces:
    """Sum over the episodes of each piece."""
    size = len(result.outcome_names)
    cell, first = cells_of(result), result.episodes.first_state
    expected = np.zeros((size, size))
    np.add.at(expected, result.episodes.outcome % size, result.probability)
    return Pieces(
        whole=_sums(result, np.zeros_like(cell), 1),
        cells=_sums(result, cell, size * size),
        expected=expected,
        by_state=_sums(result, first, int(first.max()) + 1),
    )


def cells_of(result: Counterfactuals) -> NDArray[np.int64]:
    """Number each episode by observed and most likely outcome, none last in both, [n]."""
    size = len(result.outcome_names)
    return np.asarray(result.episodes.outcome % size * size + result.most_likely % size)


def piece_columns(result: Counterfactuals) -> Floats:
    """Return what is summed over the episodes of a piece, [n, 5].

    The columns are 1 (to count episodes), observed return, the return compared with, expected
    return and difference.
    """
    returns = (result.observed_return, result.usual_return, result.expected_return)
    return np.stack([np.ones(len(result.difference)), *returns, result.difference], axis=1)


def decompose(names: Sequence[str], pieces: Pieces, *, continued: bool = False) -> pd.DataFrame:
    """Split the mean difference by observed and counterfactual outcome, and by first state.

    The rows of each split add up: delta = sum over pieces of (episodes / n) times the mean
    difference within the piece. `names` are those of the outcomes, none last. If records were
    `continued`, differences are from these, whose mean is `usual_mean`.
    """
    count, size = pieces.whole[0, 0], len(names)
    states = np.flatnonzero(pieces.by_state[:, 0])
    cell_rows = _means(pieces.cells, count).assign(
        by="outcome",
        observed=np.repeat(names, size),
        counterfactual=np.tile(names, size),
        first_state=-1,
        expected_episodes=pieces.expected.reshape(-1),
    )
    plain = {"observed": "", "counterfactual": ""}
    columns = COLUMNS if continued else [name for name in COLUMNS if name != "usual_mean"]
    return pd.concat(
        [
            _means(pieces.whole, count).assign(by="all", first_state=-1, **plain),
            cell_rows,
            _means(pieces.by_state[states], count).assign(
                by="first state", first_state=states, **plain
            ),
        ],
        ignore_index=True,
    )[columns]


def check_decomposition(table: pd.DataFrame, difference: float, tolerance: float = 1e-10) -> float:
    """Return how far the pieces of any split are from the whole; raise an error if too far.

    `tolerance` is relative to the largest mean return, if that is above 1.
    """
    tolerance *= max(
        1.0, float(table[["observed_mean", "counterfactual_mean"]].abs().max(axis=None))
    )
    sums = table.groupby("by")["contribution"].sum()
    gap = float(np.abs(sums - difference).max())
    if gap > tolerance:
        raise ArithmeticError(
            f"the pieces of the decomposition differ from the whole by {gap:.3g}, more than "
            f"{tolerance:.3g}"
        )
    return gap


def _sums(result: Counterfactuals, piece: NDArray[Any], size: int) -> Floats:
    columns = piece_columns(result).T
    return np.stack([total_by(piece, column, size) for column in columns], axis=1)


def _means(sums: Floats, count: float) -> pd.DataFrame:
    episodes, observed, usual, counterfactual, difference = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(
            {
                "episodes": episodes.astype(np.int64),
                "expected_episodes": episodes,
                "observed_mean": observed / episodes,
                "usual_mean": usual / episodes,
                "counterfactual_mean": counterfactual / episodes,
                "difference": difference / episodes,
                "contribution": difference / count,
            }
        )

"""Beliefs: the distribution of the hidden state given the observations and actions so far."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.hidden.model import TabularPOMDP
from butfor.types import Floats


@lru_cache(maxsize=8)
def transition_matrices(model: TabularPOMDP) -> tuple[sparse.csr_array, ...]:
    """Return the transitions between hidden states, one [H, H] matrix per action."""
    dynamics = model.dynamics
    state, action = np.divmod(dynamics.entry_row, dynamics.n_actions)
    return tuple(
        sparse.csr_array(
            (
                dynamics.probability[action == a],
                (state[action == a], dynamics.next_state[action == a]),
            ),
            shape=(model.n_states, model.n_states),
        )
        for a in range(dynamics.n_actions)
    )


def first_beliefs(model: TabularPOMDP, seen: NDArray[Any]) -> Floats:
    """Return the beliefs after the first observations [m], [m, H]."""
    return _scaled(model.initial * _likelihood(model, seen))


def next_beliefs(
    model: TabularPOMDP, beliefs: Floats, action: NDArray[Any], seen: NDArray[Any]
) -> Floats:
    """Return the beliefs after actions [m] and the next observations [m], [m, H].

    No episode may have ended: hidden states with an outcome are excluded.
    """
    moved = np.empty_like(beliefs)
    for a, matrix in enumerate(transition_matrices(model)):
        mine = action == a
        if mine.any():
            moved[mine] = (matrix.T @ beliefs[mine].T).T
    moved[:, model.outcome >= 0] = 0.0
    return _scaled(moved * _likelihood(model, seen))


def _likelihood(model: TabularPOMDP, seen: NDArray[Any]) -> Floats:
    """Return the probability of each observation in every hidden state, [m, H]."""
    return np.asarray(model.emission.tocsc()[:, seen].T.toarray())


def _scaled(weights: Floats) -> Floats:
    """Return beliefs that sum to one; nan where the model gives the observations probability 0."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)

"""What can be known of the hidden state as time goes on: beliefs, and a behaviour's own rows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import BeliefPolicy, FiniteController
from butfor.log.episodes import Episodes
from butfor.types import Floats


@lru_cache(maxsize=8)
def transition_matrices(model: TabularPOMDP) -> tuple[sparse.csr_array, ...]:
    """Moves between hidden states by action, each [H, H]."""
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
    """Beliefs after the first observations [m], [m, H]."""
    return _scaled(model.initial * _chances(model, seen))


def next_beliefs(
    model: TabularPOMDP, beliefs: Floats, action: NDArray[Any], seen: NDArray[Any]
) -> Floats:
    """Beliefs after actions [m] and what they showed [m], no episode having ended, [m, H]."""
    moved = np.empty_like(beliefs)
    for a, matrix in enumerate(transition_matrices(model)):
        mine = action == a
        if mine.any():
            moved[mine] = (matrix.T @ beliefs[mine].T).T
    moved[:, model.outcome >= 0] = 0.0
    return _scaled(moved * _chances(model, seen))


def history_rows(
    episodes: Episodes, model: TabularPOMDP, policy: FiniteController | BeliefPolicy
) -> Floats:
    """The policy's row at each logged step, from what was seen until then, [N, A]."""
    rows = np.empty((len(episodes.state), model.n_actions))
    remembered = isinstance(policy, FiniteController)
    node = np.zeros(len(episodes), dtype=np.int64)
    beliefs = np.zeros((0 if remembered else len(episodes), model.n_states))
    for t in range(int(episodes.lengths.max())):
        going = np.flatnonzero(episodes.lengths > t)
        row = episodes.offsets[going] + t
        seen, done = episodes.state[row], episodes.action[row - 1]
        if isinstance(policy, FiniteController):
            before = policy.following[node[going], done, seen]
            node[going] = policy.first[seen] if t == 0 else before
            rows[row] = policy.action[node[going]]
        else:
            beliefs[going] = (
                first_beliefs(model, seen)
                if t == 0
                else next_beliefs(model, beliefs[going], done, seen)
            )
            impossible = np.isnan(beliefs[going, 0])
            if impossible.any():
                raise ValueError(
                    f"{episodes.place(int(row[impossible.argmax()]))}: the model gives what was "
                    "seen the probability 0, given all before; the model or the log is wrong"
                )
            rows[row] = policy.rows(beliefs[going], model.n_actions)
    return rows


def _chances(model: TabularPOMDP, seen: NDArray[Any]) -> Floats:
    """Probability of what was seen in each hidden state, [m, H]."""
    return np.asarray(model.emission.tocsc()[:, seen].T.toarray())


def _scaled(weights: Floats) -> Floats:
    """Return beliefs that sum to one; all nan where the model holds what was seen impossible."""
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.full_like(weights, np.nan), where=total > 0)

"""Model-based estimators: the target, or each logged episode, in a model; fitted Q evaluation.

Replays are causal if the model is right, the states contain everything that influenced both the
actions and the course, and transitions follow the mechanism.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.estimators.importance import average, divide
from butfor.models.simulate import walk_model
from butfor.random import episode_keys
from butfor.replay.draws import discount_path
from butfor.types import Floats

BLOCK = 1 << 21  # numbers that fitted Q evaluation holds in memory at a time


def model_based(columns: Columns, weights: Floats) -> Floats:
    """MB: mean over the first states of the target's value in the model, E[V_H(s_0)], [B]."""
    return average(columns.value, weights, columns.episodes)


def model_sampled(sample: EpisodeColumns, weights: Floats) -> Floats:
    """MB by draws: mean return of one trajectory in the model from each first state, [B]."""
    replay, log = sample.replay, sample.replay.log
    keys = episode_keys(sample.seed, log.id, "model")
    walk = walk_model(replay.mdp, replay.target_table, log.first_state, keys, replay.horizon)
    kept = discount_path(walk.state, log.durations, replay.discount)
    return average((walk.reward * kept).sum(axis=1), weights)


def fitted_q(sample: EpisodeColumns, weights: Floats) -> Floats:
    """FQE, tabular: mean over the first states of sum_a pi(a|s) Q_H(s, a), [B].

    Q_h(s, a) is the weighted mean over the logged steps (s, a, r, s') of
    r + d(s') sum_a' pi(a'|s') Q_{h-1}(s', a'), d the discount of the state reached, where nothing
    follows an outcome; it is 0 for pairs never logged.
    """
    log, target = sample.replay.log, sample.replay.target_table
    used = target[log.state, log.action] > 0  # other pairs have no effect
    if not used.any():
        return np.zeros(len(weights))
    states, n = log.n_states + 1, len(log)  # the last one, of value 0, follows outcomes
    reached = log.next_state.astype(np.int64)
    reached[log.offsets[1:][log.outcome >= 0] - 1] = log.n_states
    row = log.state.astype(np.int64) * log.n_actions + log.action
    pair, pair_of = np.unique(row[used], return_inverse=True)
    step, step_of = np.unique(pair_of * states + reached[used], return_inverse=True)
    owner, following = np.divmod(step, states)
    first_step = np.searchsorted(owner, np.arange(len(pair)))
    episode = np.repeat(np.arange(n), log.lengths)[used]
    how_often = _sum_table(np.ones(len(episode)), episode, step_of, (n, len(step)))
    earned = _sum_table(log.reward[used], episode, pair_of, (n, len(pair)))
    starts = _sum_table(np.ones(n), np.arange(n), log.first_state, (n, states))
    chosen = _sum_table(
        target.ravel()[pair],
        np.arange(len(pair)),
        pair // log.n_actions,
        (len(pair), states),
    )
    kept = np.append(sample.replay.mdp.discounts(sample.replay.discount), 0.0)
    values = np.empty(len(weights))
    size = max(1, BLOCK // len(step))
    for start in range(0, len(weights), size):
        block = weights[start : start + size]
        count = block @ how_often
        total = np.add.reduceat(count, first_step, axis=1)
        gained = divide(block @ earned, total, otherwise=0.0)
        share = kept[following] * divide(count, total[:, owner], otherwise=0.0)
        value = np.zeros((len(block), states))
        for _ in range(sample.replay.horizon):
            later = np.add.reduceat(share * value[:, following], first_step, axis=1)
            value = (gained + later) @ chosen
        values[start : start + size] = (value * (block @ starts)).sum(axis=1)
    return values / weights.sum(axis=1)


def _sum_table(
    values: Floats, row: NDArray[Any], column: NDArray[Any], shape: tuple[int, int]
) -> sparse.csr_array:
    """Sparse table in which values at the same position are added."""
    return sparse.csr_array((values, (row, column)), shape)


def counterfactual(columns: Columns, weights: Floats) -> Floats:
    """CF: mean over the episodes of their exact expected counterfactual returns, [B]."""
    return average(columns.counterfactual, weights, columns.episodes)


def counterfactual_draws(sample: EpisodeColumns, weights: Floats) -> Floats:
    """CF from draws: mean over the episodes of the mean return of their drawn trajectories, [B]."""
    if sample.draws is None:
        raise ValueError("no draws to average: make them with Replay.draws and give draws=...")
    return average(sample.draws.returns(sample.replay.discount).mean(axis=1), weights)

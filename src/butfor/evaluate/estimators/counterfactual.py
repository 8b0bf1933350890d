"""Estimators that average the counterfactual returns of the logged episodes under the target.

They are causal if the model is right, the states contain everything that influenced both the
actions and the course, and transitions follow the mechanism.
"""

from __future__ import annotations

from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.estimators.importance import average
from butfor.types import Floats


def counterfactual(columns: Columns, weights: Floats) -> Floats:
    """CF: mean over the episodes of their exact expected counterfactual returns, [B]."""
    return average(columns.counterfactual, weights, columns.episodes)


def counterfactual_draws(sample: EpisodeColumns, weights: Floats) -> Floats:
    """CF from draws: mean over the episodes of the mean return of their drawn trajectories, [B]."""
    if sample.draws is None:
        raise ValueError("no draws to average: make them with Replay.draws and give draws=...")
    return average(sample.draws.returns(sample.replay.discount).mean(axis=1), weights)

"""Importance sampling estimators, which weight logged episodes by their likelihood ratio.

With w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), d_t the discount of step t, G the return and c
the number of times each episode counts. They are causal if the states contain everything that
influenced both the actions and the course, and if the behavior takes every action that the target
takes.
"""

from __future__ import annotations

import numpy as np

from butfor.evaluate.estimators.columns import Columns
from butfor.types import Floats


def observed(columns: Columns, weights: Floats) -> Floats:
    """Mean recorded return of the log, sum_i c_i G_i / sum_i c_i, [B].

    It is the value of the behavior if no episode is censored.
    """
    return average(columns.recorded, weights, columns.episodes)


def observed_continued(columns: Columns, weights: Floats) -> Floats:
    """Observed, continued: the mean of what counterfactuals are compared with, [B].

    The value of the behavior, if censored episodes go on as its model says.
    """
    return average(columns.returns, weights, columns.episodes)


def importance_sampling(columns: Columns, weights: Floats) -> Floats:
    """IS: sum_i c_i w_{H-1} G_i / sum_i c_i, [B]."""
    return average(columns.weighted_return, weights, columns.episodes)


def weighted(columns: Columns, weights: Floats) -> Floats:
    """WIS: sum_i c_i w_{H-1} G_i / sum_i c_i w_{H-1}, [B]; nan where no episode has weight."""
    total = weights @ columns.ratio[:, -1]
    return divide(weights @ columns.weighted_return, total, otherwise=np.nan)


def per_decision(columns: Columns, weights: Floats) -> Floats:
    """PDIS: sum_t sum_i c_i d_t w_t r_t / sum_i c_i, [B]."""
    return average(columns.earned.sum(axis=1), weights, columns.episodes)


def per_decision_weighted(columns: Columns, weights: Floats) -> Floats:
    """PDWIS: sum_t sum_i c_i d_t w_t r_t / sum_i c_i w_t, [B]; nan as for WIS."""
    earned = divide(weights @ columns.earned, weights @ columns.ratio, otherwise=np.nan)
    return earned.sum(axis=1)


def average(values: Floats, weights: Floats, episodes: Floats | None = None) -> Floats:
    """Weighted mean of one number per episode [n] under each row of weights [B, n], [B].

    If the values are sums over groups, `episodes` [n] is the number of episodes in each.
    """
    return (weights @ values) / (weights.sum(axis=1) if episodes is None else weights @ episodes)


def divide(numerator: Floats, denominator: Floats, *, otherwise: float) -> Floats:
    """Quotient, or `otherwise` where the denominator is 0."""
    result = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), otherwise)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)

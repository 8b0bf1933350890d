"""Estimators that weigh logged episodes by how likely the target makes them.

With w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), G the return, c how often each episode
counts. They are causal if the states hold all that moved both treatment and course, and if the
behaviour takes every action that the target takes.
"""

from __future__ import annotations

import numpy as np

from butfor.ope.problem import Problem
from butfor.variables import Floats


def observed(problem: Problem, weights: Floats) -> Floats:
    """Mean return of the log, sum_i c_i G_i / sum_i c_i, [B]: the value of the behaviour."""
    return average(problem.returns, weights)


def importance_sampling(problem: Problem, weights: Floats) -> Floats:
    """IS: sum_i c_i w_{H-1} G_i / sum_i c_i, [B]."""
    return average(problem.ratio[:, -1] * problem.returns, weights)


def weighted(problem: Problem, weights: Floats) -> Floats:
    """WIS: sum_i c_i w_{H-1} G_i / sum_i c_i w_{H-1}, [B]; nan where no episode has weight."""
    ratio = problem.ratio[:, -1]
    return divide(weights @ (ratio * problem.returns), weights @ ratio, otherwise=np.nan)


def per_decision(problem: Problem, weights: Floats) -> Floats:
    """PDIS: sum_t discount^t sum_i c_i w_t r_t / sum_i c_i, [B]."""
    return average((problem.ratio * problem.reward) @ problem.powers, weights)


def per_decision_weighted(problem: Problem, weights: Floats) -> Floats:
    """PDWIS: sum_t discount^t sum_i c_i w_t r_t / sum_i c_i w_t, [B]; nan as for WIS."""
    earned = weights @ (problem.ratio * problem.reward)
    return divide(earned, weights @ problem.ratio, otherwise=np.nan) @ problem.powers


def average(values: Floats, weights: Floats) -> Floats:
    """Weighted mean of a number an episode [n] under each row of weights [B, n], [B]."""
    return (weights @ values) / weights.sum(axis=1)


def divide(numerator: Floats, denominator: Floats, *, otherwise: float) -> Floats:
    """Quotient, and `otherwise` where the denominator is 0."""
    result = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), otherwise)
    return np.divide(numerator, denominator, out=result, where=denominator > 0)

"""Doubly robust estimators, which correct the model's value by weighted residuals of the log.

DR (Jiang & Li 2016), WDR and MAGIC (Thomas & Brunskill 2016), with V and Q the values of the
target in the model and w_t the importance weights. The residual ("surprise") of a step is
r_t - Q(s_t, a_t).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from butfor.evaluate.bootstrap import resample_weights
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.estimators.importance import average, divide
from butfor.types import Floats

INNER = 50  # resamples from which MAGIC computes an interval of WDR
INNER_TAIL = 0.05  # share of them beyond each end of that interval
MOST_PARTIAL = 200  # partial returns that MAGIC mixes; of longer episodes, as evenly spaced
MOST_KEPT = 1 << 20  # numbers of inner resamples that are kept
RIDGE = 1e-9  # share of the largest variance, so that equal partial returns get equal shares


def doubly_robust(columns: Columns, weights: Floats) -> Floats:
    """DR: mean of sum_t d_t (w_{t-1} V(s_t) + w_t (r_t - Q(s_t, a_t))), [B]."""
    corrected = (columns.base + columns.surprise).sum(axis=1)
    return average(corrected, weights, columns.episodes)


def weighted_doubly_robust(columns: Columns, weights: Floats) -> Floats:
    """WDR: as DR, with w_t divided by its mean over the episodes at each t, [B].

    After the last step at which any episode follows the target, the model's value is used.
    """
    total = weights @ columns.ratio
    before = np.hstack([(weights @ columns.episodes)[:, None], total[:, :-1]])
    base = divide(weights @ columns.base, before, otherwise=0.0)
    surprise = divide(weights @ columns.surprise, total, otherwise=0.0)
    return (base + surprise).sum(axis=1)


def magic(columns: Columns, weights: Floats) -> Floats:
    """MAGIC: the mixture of partial returns of least estimated squared error, [B].

    The partial return g_j follows the log, as WDR does, for steps 0 .. j and then the model:
    g_{-1} is the model's value, g_{H-1} is WDR; beyond 199 steps some are left out in between, as
    the cost grows with the cube of their number. The mixture x minimizes x' (Omega + b b') x on
    the simplex; Omega is their covariance, b their distance from a 90% interval of WDR. Both are
    computed from the rows, whether these are episodes or groups: many episodes are summed by group.
    """
    if columns.group is not None:
        summed = [columns.by_group(row) for row in weights]
        return np.concatenate([magic(rows, np.ones((1, len(rows)))) for rows in summed])
    n = len(columns)
    sums = _inner_sums(n, columns.seed)
    blended = np.empty(len(weights))
    for place, counts in enumerate(weights * (n / weights.sum(axis=1, keepdims=True))):
        # row i owns the slots between the running sums of the counts: the resample of the
        # resample is the same as if each row were repeated that often
        ends = np.append(0, np.floor(np.cumsum(counts) + 1e-6).astype(np.int64))
        inner = np.diff(sums[:, np.minimum(ends, n)], axis=1)
        blended[place] = _blend(columns, counts, inner)
    return blended


def _inner_sums(rows: int, seed: int) -> Floats:
    """Return running sums of the inner resamples, [INNER, rows + 1], from 0."""
    return _kept_sums(rows, seed) if INNER * rows <= MOST_KEPT else _make_sums(rows, seed)


def _make_sums(rows: int, seed: int) -> Floats:
    slots = resample_weights(rows, INNER, seed, purpose="magic")
    sums = np.hstack([np.zeros((INNER, 1)), np.cumsum(slots, axis=1)])
    sums.setflags(write=False)  # shared by all who ask for the same
    return sums


# MAGIC is computed again in each of many models of the same log
_kept_sums = lru_cache(maxsize=2)(_make_sums)


def _blend(columns: Columns, counts: Floats, inner: Floats) -> float:
    shares = _partial_shares(columns, counts)
    partial = counts @ shares
    n = len(counts)
    centered = shares - np.outer(columns.episodes, partial / (counts @ columns.episodes))
    covariance = (centered * counts[:, None]).T @ centered * (n / max(n - 1, 1))
    drawn = weighted_doubly_robust(columns, inner)
    low, high = np.quantile(drawn, [INNER_TAIL, 1 - INNER_TAIL])
    bias = partial - np.clip(partial, min(low, partial[-1]), max(high, partial[-1]))
    return float(partial @ _mixture(covariance + np.outer(bias, bias)))


def _partial_shares(columns: Columns, counts: Floats) -> Floats:
    """Contribution of each row to each partial return, [n, J]; column 0 is the model's."""
    total = counts @ columns.ratio
    before = np.append(counts @ columns.episodes, total[:-1])
    base = divide(columns.base, before, otherwise=0.0)
    surprise = divide(columns.surprise, total, otherwise=0.0)
    followed = np.cumsum(base + surprise, axis=1)
    continued = np.hstack([base, np.zeros((len(base), 1))])
    continued[:, 1:] += followed
    most = min(continued.shape[1], MOST_PARTIAL)
    return continued[:, np.linspace(0, continued.shape[1] - 1, most).round().astype(np.int64)]


def _mixture(error: Floats) -> Floats:
    """Shares x >= 0 that sum to 1 and minimize x' M x.

    They are proportional to the y >= 0 that minimizes y' M y / 2 - sum y, that is,
    |L' y - L^-1 1|^2 with M = L L'.
    """
    scale = error.diagonal().max()
    if not scale > 0:
        return np.full(len(error), 1 / len(error))
    factor = np.linalg.cholesky(error / scale + RIDGE * np.eye(len(error)))
    ones = solve_triangular(factor, np.ones(len(error)), lower=True)
    shares = nnls(factor.T, ones)[0]
    return np.asarray(shares / shares.sum())

"""The widest that a counterfactual with a hidden state can be: over all that the model allows."""

from __future__ import annotations

import numpy as np

from butfor import kernels
from butfor.pomdp.cells import expand, next_cells
from butfor.pomdp.latent import trace_posterior
from butfor.pomdp.task import HiddenTask
from butfor.variables import Floats


def outcome_spans(task: HiddenTask, discount: float) -> Floats:
    """Lowest and highest return and outcome of each episode, [n, 1 + O + 1, 2].

    Whatever the mechanism, the world under the target begins in a hidden state that the episode
    allows and then takes some course that the model holds possible: the worst and the best of all
    these. Nothing else of the episode is used, so that sharper bounds exist.
    """
    target, model = task.pairs.target, task.model
    low, high = (_extremes(task, discount, pick) for pick in (np.minimum, np.maximum))
    posterior = trace_posterior(task.episodes, model, task.pairs.behavior)
    log = task.episodes
    row = log.offsets[:-1] + np.arange(len(log))
    which, entry = expand(posterior.start, row)
    node = np.zeros(len(log), np.int64)
    if target.kind != kernels.FULL:
        node = target.first[log.first_state].astype(np.int64)
    cell = target.cell[posterior.state[entry], node[which]]
    found = np.empty((len(log), low.shape[1], 2))
    begins = np.searchsorted(which, np.arange(len(log)))
    found[:, :, 0] = np.minimum.reduceat(low[cell], begins, axis=0)
    found[:, :, 1] = np.maximum.reduceat(high[cell], begins, axis=0)
    return found


def _extremes(task: HiddenTask, discount: float, pick: np.ufunc) -> Floats:
    """Lowest or highest return and indicator of each outcome, from each cell, [C, 1 + O + 1]."""
    target, model = task.pairs.target, task.model
    cell, entry, arrived = next_cells(model, target)
    order = np.argsort(cell, kind="stable")
    cell, entry, arrived = cell[order], entry[order], arrived[order]
    first = np.searchsorted(cell, np.arange(len(target.state)))
    end = model.outcome[model.dynamics.next_state[entry]]
    gained = np.zeros((len(entry), len(model.outcomes) + 2))
    gained[:, 0] = model.dynamics.reward[entry]
    over = np.flatnonzero(end >= 0)
    gained[over, 1 + end[over]] = 1.0
    kept = np.array([discount] + [1.0] * (gained.shape[1] - 1))
    value = np.zeros((len(target.state), gained.shape[1]))
    value[:, -1] = 1.0
    for _ in range(task.horizon):
        ahead = np.where(end[:, None] >= 0, 0.0, value[arrived])
        value = pick.reduceat(gained + kept * ahead, first, axis=0)
    return value

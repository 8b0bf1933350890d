"""The widest possible range of a counterfactual with a hidden state."""

from __future__ import annotations

import numpy as np

from butfor.hidden.cells import expand, find_moves
from butfor.hidden.latent import trace_posterior
from butfor.hidden.pairs import PairChain
from butfor.types import Floats


def outcome_spans(chain: PairChain, discount: float) -> Floats:
    """Return the lowest and highest return and outcome of each episode, [n, 1 + O + 1, 2].

    Whatever the mechanism, the world under the target starts in a hidden state that the episode
    allows and then follows a course that the model allows: these are the worst and the best of all
    such courses. No other part of the episode is used, so sharper bounds exist.
    """
    target, log = chain.pairs.target, chain.episodes
    posterior = trace_posterior(log, chain.model, chain.pairs.behavior)
    which, entry = expand(posterior.start, log.offsets[:-1] + np.arange(len(log)))
    cell = target.cell[posterior.state[entry], target.first[log.first_state][which]]
    steps = (log.lengths + chain.pairs.log.left)[which]
    begins = np.searchsorted(which, np.arange(len(log)))
    return np.stack(
        [
            pick.reduceat(_extremes(chain, discount, pick)[steps, cell], begins, axis=0)
            for pick in (np.minimum, np.maximum)
        ],
        axis=2,
    )


def _extremes(chain: PairChain, discount: float, pick: np.ufunc) -> Floats:
    """Return the lowest or highest return and outcome indicators, [H + 1, C, 1 + O + 1].

    By steps left and cell; the last column is for no outcome.
    """
    target, model = chain.pairs.target, chain.model
    found = find_moves(model, target)
    order = np.argsort(found.group, kind="stable")
    entry, arrived = found.entry[order], found.cell[order]
    first = np.searchsorted(found.group[order], np.arange(len(target.earned)))
    end = model.outcome[model.dynamics.next_state[entry]]
    gained = np.zeros((len(entry), len(model.outcomes) + 2))
    gained[:, 0] = model.dynamics.reward[entry]
    over = np.flatnonzero(end >= 0)
    gained[over, 1 + end[over]] = 1.0
    kept = np.array([discount] + [1.0] * (gained.shape[1] - 1))
    tables = np.zeros((chain.horizon + 1, len(target.state), gained.shape[1]))
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, chain.horizon + 1):
        ahead = np.where(end[:, None] >= 0, 0.0, tables[left - 1][arrived])
        of_group = pick.reduceat(gained + kept * ahead, first, axis=0)
        tables[left] = pick.reduceat(of_group[target.group], target.choice, axis=0)
    return tables

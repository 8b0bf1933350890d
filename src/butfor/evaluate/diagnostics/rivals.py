"""What a tabular model and clusters of states predict, to compare a factored model with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.diagnostics.one_step import step_ends
from butfor.log.clusters import fit_clusters
from butfor.log.episodes import Episodes
from butfor.models.classifiers import have_classifiers
from butfor.models.fit import destinations
from butfor.types import Floats

PRIOR = 1.0  # cases that overall frequencies weigh in each distribution
CLUSTERS = 100  # of states; where fewer occur, each would be a cluster of its own


def tabular_probabilities(learned_from: Episodes, log: Episodes) -> Floats:
    """Probability of each logged next state without end, or of the outcome, [N].

    From a table with one row per state and action, learned from other episodes.
    """
    size = log.n_states + len(log.outcomes)
    return _smoothed(*_steps(learned_from), *_steps(log), size)


def can_cluster(learned_from: Episodes) -> bool:
    """Whether there are enough different states for clusters, and scikit-learn is installed."""
    return have_classifiers() and len(np.unique(learned_from.state)) > CLUSTERS


def cluster_probabilities(learned_from: Episodes, log: Episodes, *, seed: int) -> Floats:
    """Return the same as predicted by clusters of similar states, [N].

    States are clustered by k-means on their standardized level codes. In each cluster, under each
    action, an outcome has its frequency; without one, each variable has the frequencies of its next
    levels, independently of other variables.
    """
    names = [variable.name for variable in log.state_variables]
    values, asked = (_values(one) for one in (learned_from, log))
    clusters = fit_clusters(values, names, CLUSTERS, seed=seed)
    before = clusters.assign(values) * log.n_actions + learned_from.action
    now = clusters.assign(asked) * log.n_actions + log.action
    outcomes = len(log.outcomes)
    ends, observed = step_ends(learned_from), step_ends(log)
    probability = _smoothed(before, ends, now, observed, outcomes + 1)
    went_on, judged = ends == outcomes, observed == outcomes
    # an unknown next state, -1, is that of a step that ended
    after, reached = (one.codes(np.maximum(one.next_state, 0)) for one in (learned_from, log))
    for variable in log.state_variables:
        probability[judged] *= _smoothed(
            before[went_on],
            after[variable.name][went_on],
            now[judged],
            reached[variable.name][judged],
            len(variable.levels),
        )
    return probability


def _values(log: Episodes) -> Floats:
    """Level codes of states as numbers, [N, J]."""
    return np.stack(list(log.codes(log.state).values()), axis=1).astype(np.float64)


def _smoothed(
    before: NDArray[np.integer],
    seen: NDArray[np.integer],
    now: NDArray[np.integer],
    asked: NDArray[np.integer],
    levels: int,
) -> Floats:
    """Frequency of the level asked for in the cell asked for, among cells and levels seen.

    Overall frequencies count as one case: what was never seen would have probability 0.
    """
    usual = np.bincount(seen, minlength=levels) + PRIOR / levels
    usual /= usual.sum()
    total = np.bincount(before, minlength=int(now.max(initial=0)) + 1)[now]
    key, count = np.unique(before * levels + seen, return_counts=True)
    wanted = now * levels + asked
    position = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    same = np.where(key[position] == wanted, count[position], 0)
    return np.asarray((same + PRIOR * usual[asked]) / (total + PRIOR))


def _steps(log: Episodes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The state and action of each step, as one number, and where it led, [N] each."""
    return log.state.astype(np.int64) * log.n_actions + log.action, destinations(log, "visits")

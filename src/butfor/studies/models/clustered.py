"""Clusters of states: a log on them, and policies there and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from butfor.log.clusters import Clusters, fit_clusters
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable
from butfor.types import Floats, Integers


@dataclass(frozen=True, eq=False)
class Clustered:
    """Clusters of the states of a log by k-means on level codes."""

    clusters: Clusters
    of_state: Integers  # [S] the cluster of each state
    visits: NDArray[np.int64]  # [S] logged decisions in each state

    def log(self, log: Episodes) -> Episodes:
        """Return episodes with clusters as states."""
        unknown = log.next_state < 0
        following = np.where(unknown, -1, self.of_state[log.next_state]).astype(np.int32)
        names = tuple(map(str, range(len(self.clusters))))
        return replace(
            log,
            state=self.of_state[log.state],
            next_state=following,
            state_variables=(Variable("cluster", names),),
            combinations=None,
        )

    def reduce(self, policy: Floats) -> Floats:
        """Return what a policy [S, A] does in each cluster, on average over decisions, [k, A]."""
        # states without decisions count only where a cluster has no others
        weight = self.visits + 1e-9
        done = np.zeros((len(self.clusters), policy.shape[1]))
        np.add.at(done, self.of_state, weight[:, None] * policy)
        total = done.sum(axis=1, keepdims=True)
        even = np.full_like(done, 1 / policy.shape[1])
        return np.divide(done, total, out=even, where=total > 0)

    def act(self, plan: Floats, codes: NDArray[np.int64]) -> Floats:
        """Return what a plan [k, A] does in states given by level codes [m, J], [m, A]."""
        return np.asarray(plan[self.clusters.assign(codes.astype(np.float64))])


def cluster_states(log: Episodes, count: int) -> Clustered:
    """Find clusters of the logged decisions, at most half as many as there are distinct states."""
    codes = np.stack(list(log.codes(np.arange(log.n_states)).values()), axis=1).astype(np.float64)
    visits = np.bincount(log.state, minlength=log.n_states)
    names = [variable.name for variable in log.state_variables]
    most = max(2, int((visits > 0).sum()) // 2)
    clusters = fit_clusters(codes[log.state], names, min(count, most))
    return Clustered(clusters, clusters.assign(codes).astype(np.int32), visits)

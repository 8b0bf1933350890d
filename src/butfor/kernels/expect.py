"""Expected counts of hidden transitions given the observations: the E step of learning."""

import numpy as np

from butfor.kernels.compiled import bare
from butfor.kernels.latent import first_states, go_on, trace_back


@bare
def count_paths(first, last, hidden, behavior, log, trace, evidence, moved, began):
    """Add up the expected transitions and first states of episodes first .. last - 1.

    Adds to `moved` [E] the posterior probability of each entry at each step, and to `began` [H]
    that of each first state; writes the evidence [n]. Returns -1, or the first impossible episode.
    """
    for episode in range(first, last):
        evidence[episode] = trace_back(hidden, behavior, trace, log, episode)
        if evidence[episode] == -np.inf:
            return episode
        first_states(hidden, trace)
        for k in range(trace.size[0]):
            began[trace.support[0, k]] += trace.mass[0, k]
        for t in range(log.stop[episode] - log.start[episode]):
            go_on(hidden, trace, log, episode, t, moved)
    return -1

"""Expected counts of hidden transitions given what was seen: the E step of learning."""

import numpy as np

from butfor.kernels.compiled import bare
from butfor.kernels.latent import (
    branch_from,
    first_states,
    look_away_from,
    look_back_from,
    trace_back,
)


@bare
def count_paths(first, last, hidden, behavior, log, trace, evidence, moved, began):
    """Add up how often episodes first .. last - 1 took each transition, as far as can be known.

    Adds to `moved` [E] the posterior probability of each entry at each step, to `began` [H] that of
    each first state; writes the evidence [n]. Returns -1, or the first impossible episode.
    """
    for episode in range(first, last):
        evidence[episode] = trace_back(hidden, behavior, trace, log, episode)
        if evidence[episode] == -np.inf:
            return episode
        first_states(hidden, trace)
        for k in range(trace.size[0]):
            began[trace.support[0, k]] += trace.mass[0, k]
        for t in range(log.stop[episode] - log.start[episode]):
            now, later = trace.mass[t % 2], trace.mass[1 - t % 2]
            for k in range(trace.size[t + 1]):
                later[k] = 0.0
            look_back_from(trace, t + 1)
            for k in range(trace.size[t]):
                if now[k] > 0.0:
                    i = log.start[episode] + t
                    count = branch_from(hidden, trace, log, trace.support[t, k], i)
                    for b in range(count):
                        mass = now[k] * trace.chance[b]
                        later[trace.onward[b]] += mass
                        moved[trace.entry[b]] += mass
            look_away_from(trace, t + 1)
    return -1

"""Random numbers as a hash of a key and a counter."""

import numpy as np

from butfor.kernels.compiled import compiled

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
DRAW_STRIDE = 1 << 32  # numbers of an episode's stream that belong to one draw


@compiled
def uniform(key, counter):
    """Return the counter-th number of the stream of this key, in [0, 1) (SplitMix64)."""
    x = key + np.uint64(counter + 1) * GOLDEN
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    x = x ^ (x >> np.uint64(31))
    return np.float64(x >> np.uint64(11)) * 2.0**-53

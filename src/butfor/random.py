"""Random numbers that depend only on a seed and an episode.

Every episode has a 64-bit key; `kernels.uniform(key, counter)` turns a key and a position into a
number. So no result depends on the number of threads or on which other episodes there are.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import MOST_WHOLE, check_whole
from butfor.types import Keys

MOST_SEED = MOST_WHOLE


def episode_keys(seed: int, ids: NDArray[Any], purpose: str) -> Keys:
    """Keys of episodes, from the seed, their ids and the purpose of the numbers, [n]."""
    base = blake2b(f"{purpose}\0{check_seed(seed)}\0".encode(), digest_size=8)
    digests = []
    for identifier in ids.tolist():
        digest = base.copy()
        digest.update(str(identifier).encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def shard_keys(ids: NDArray[Any], seed: int) -> Keys:
    """Keys of episodes that decide their half, fold and group, [n]."""
    return episode_keys(seed, ids, "shards")


def numbered_keys(seed: int, count: int, purpose: str) -> Keys:
    """Keys of episodes numbered 0 .. count - 1, [count]; fast for millions."""
    digest = blake2b(f"{purpose}\0{check_seed(seed)}".encode(), digest_size=8).digest()
    start = np.uint64(int.from_bytes(digest, "little"))
    with np.errstate(over="ignore"):
        return scramble(start + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * kernels.GOLDEN)


def scramble(numbers: Keys) -> Keys:
    """Mix the bits of each number, as the last step of SplitMix64 does."""
    with np.errstate(over="ignore"):
        x = (numbers ^ (numbers >> np.uint64(30))) * kernels.MIX_1
        x = (x ^ (x >> np.uint64(27))) * kernels.MIX_2
        return x ^ (x >> np.uint64(31))


def uniforms(keys: Keys, counter: int) -> NDArray[np.float64]:
    """Return number `counter` of each key's stream, equal to `kernels.uniform`."""
    with np.errstate(over="ignore"):
        x = scramble(keys + np.uint64(counter + 1) * kernels.GOLDEN)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def check_seed(seed: int) -> int:
    """Return a seed that is an integer of at least 0, with at most 63 bits."""
    return check_whole(seed, "seed", 0, "a whole number", MOST_SEED)

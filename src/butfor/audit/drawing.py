"""The order in which episodes are drawn, which only those who have the whole log can compute.

Reviewers know ids, seed and source, and must not find out from these who is a control. A secret of
its own for each run would do, but two runs would differ, as would memory and shards. So the secret
is made of the log: of what happened in all its episodes, of which reviewers see a few.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.random import episode_keys, scramble, shard_keys
from butfor.types import Keys


def drawing_order(ids: NDArray[Any], digest: Keys, seed: int) -> Keys:
    """Return hashes of ids, a log's digest and a seed; episodes are drawn in their order, [n]."""
    secret = blake2b(digest.astype("<u8").tobytes(), digest_size=32).hexdigest()
    return episode_keys(seed, ids, f"drawing {secret}")


def log_digest(log: Episodes, seed: int, keys: Keys | None = None) -> Keys:
    """Hash a log such that the hashes of its parts add up, [2].

    `keys` are the `shard_keys` of its ids, if they are known.
    """
    known = shard_keys(log.id, seed) if keys is None else keys
    digest = np.zeros(2, dtype=np.uint64)
    columns: list[NDArray[Any]] = [
        log.state,
        log.action,
        log.next_state,
        log.reward.view(np.int64),
        log.time,
    ]
    if log.behavior_probability is not None:
        columns.append(log.behavior_probability.view(np.int64))
    if log.target_probability is not None:
        columns += [np.ascontiguousarray(one).view(np.int64) for one in log.target_probability.T]
    for number in range(len(digest)):
        row = np.full(len(log.state), number, dtype=np.uint64)
        for column in columns:
            row = scramble(row + column.astype(np.int64).view(np.uint64))
        total = np.add.reduceat(row, log.offsets[:-1]) + known
        for column in (log.outcome, log.final_key):
            total = scramble(total + column.astype(np.int64).view(np.uint64))
        digest[number] = total.sum(dtype=np.uint64)
    return digest

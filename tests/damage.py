"""Bits that flip in stored files, and whether anybody notices."""

from collections import Counter

import numpy as np

from tests.shard_logs import TABLES


def flip(content, bit):
    """Return bytes with one bit flipped."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def count_flips(paths, read, same, flips, seed=0):
    """Flip random bits of files, one at a time, and count by file what becomes of reading them.

    An error that a user can read is "reported", otherwise what was read is "the same" or "SILENT".
    """
    contents = [path.read_bytes() for path in paths]
    ends = np.cumsum([8 * len(content) for content in contents])
    found = Counter()
    for bit in np.random.default_rng(seed).integers(ends[-1], size=flips).tolist():
        which = int(np.searchsorted(ends, bit, side="right"))
        path, content = paths[which], contents[which]
        path.write_bytes(flip(content, bit - int(ends[which]) + 8 * len(content)))
        try:
            result = "the same" if same(read()) else "SILENT"
        except (ValueError, OSError):
            result = "reported"
        finally:
            path.write_bytes(content)
        found[path.name, result] += 1
    return found


def same_audit(one, other):
    """Whether two audits say the same."""
    return (
        one.meta == other.meta
        and all(getattr(one, name).equals(getattr(other, name)) for name in TABLES)
        and one.target.tobytes() == other.target.tobytes()
        and one.behavior.tobytes() == other.behavior.tobytes()
        and all(
            array.tobytes() == other.model.stored_arrays()[name].tobytes()
            for name, array in one.model.stored_arrays().items()
        )
    )

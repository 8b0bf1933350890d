"""Levels of particles, one after the other, in plain Python."""

from tests.reference.gumbel import counterfactual_distribution

MASK = 2**64 - 1


def uniform(key: int, counter: int) -> float:
    """Return the counter-th number of the stream of this key (SplitMix64)."""
    x = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    x ^= x >> 31
    return (x >> 11) * 2.0**-53


def pick(row: list[float], u: float) -> int:
    """Return the level at which the running sum of a row exceeds u."""
    total, chosen = 0.0, 0
    for level, share in enumerate(row):
        if share > 0:
            chosen = level
            total += share
            if u < total:
                break
    return chosen


def draw_level(
    rows: list[list[float]], own: int, factual: int, observed: int, key: int, counter: int
) -> tuple[int, float]:
    """Draw one level: as observed from the same row, otherwise from the counterfactual row.

    Also returns its probability in its own row, over that with which it was drawn.
    """
    if own == factual:
        return observed, rows[own][observed]
    row = rows[own]
    if factual >= 0:
        row = counterfactual_distribution(rows[factual], row, observed)
    level = pick(row, uniform(key, counter))
    return level, rows[own][level] / row[level]


def cases(total: list[float], place: int, own: list[int], least: float) -> float:
    """Return the cases of one place without those of its own episode, if they are fewer."""
    return min(least, max(0.0, total[place] - own.count(place)))

"""The G-test within strata, in plain Python."""

from collections import Counter
from math import log, sqrt

LEAST = 5


def g_test(cases):
    """Test cases (stratum, row, column): statistic, degrees of freedom, what is open, cases."""
    statistic, freedom, open_, tested = 0.0, 0, 0.0, 0
    for stratum in {stratum for stratum, _, _ in cases}:
        pairs = [(row, column) for own, row, column in cases if own == stratum]
        n = len(pairs)
        pooled = pool([row for row, _ in pairs], sqrt(LEAST * n))
        least = LEAST * n / min(Counter(pooled).values())
        columns = pool([column for _, column in pairs], least)
        rows, kinds, cells = (
            Counter(pooled),
            Counter(columns),
            Counter(zip(pooled, columns, strict=True)),
        )
        if len(rows) == 1 or len(kinds) == 1:
            continue
        g = 2 * sum(k * log(k * n / (rows[i] * kinds[j])) for (i, j), k in cells.items())
        own = (len(rows) - 1) * (len(kinds) - 1)
        excess = (n * sum(1 / k for k in rows.values()) - 1) * (
            n * sum(1 / k for k in kinds.values()) - 1
        )
        statistic += g / (1 + excess / (6 * n * own))
        freedom += own
        open_ -= 2 * sum(k * log(k / n) for k in kinds.values())
        tested += n
    return statistic, freedom, open_, tested


def pool(levels, least):
    """Call rare levels "others", and these the most frequent level if they are rare, too."""
    count = Counter(levels)
    levels = ["others" if count[level] < least else level for level in levels]
    count = Counter(levels)
    # of equally frequent levels the first, and others last
    first = min(count, key=lambda level: (-count[level], level == "others", level))
    return [first if count[level] < least else level for level in levels]

"""How much columns tell about the action and the outcome, and which of them make the state."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from butfor.log.coding import Codes

SAME = 0.5  # share of its entropy that a column has in common with one it repeats

TABLE = 1_000_000  # codes that are counted in a table


def mutual_information(one: Codes, other: Codes) -> float:
    """Return the mutual information of two columns of codes, in bits; negative codes are left out.

    The bias of a finite sample, (k - 1)(m - 1) / 2n nats for k and m levels, is subtracted.
    """
    both = (one >= 0) & (other >= 0)
    n = int(both.sum())
    if n == 0:
        return 0.0
    left, right = (pd.factorize(codes[both])[0].astype(np.int64) for codes in (one, other))
    k, m = int(left.max()) + 1, int(right.max()) + 1
    pairs, counts = _count(left * m + right, k * m)
    shares = counts / n
    expected = (np.bincount(left) / n)[pairs // m] * (np.bincount(right) / n)[pairs % m]
    found = float((shares * np.log(shares / expected)).sum())
    return (found - (k - 1) * (m - 1) / (2 * n)) / math.log(2)


def _count(codes: Codes, levels: int) -> tuple[Codes, Codes]:
    """Return the codes that occur, and how often each does."""
    if levels > TABLE:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes, minlength=levels)
    found = np.flatnonzero(counts)
    return found, counts[found]


def entropy(codes: Codes) -> float:
    """Return the entropy of a column of codes, in bits; negative codes are left out."""
    counts = pd.Series(codes[codes >= 0]).value_counts().to_numpy()
    shares = counts / max(1, counts.sum())
    return float(-(shares * np.log2(shares)).sum())


def says_the_same(one: Codes, other: Codes) -> bool:
    """Whether two columns have most of what either tells in common."""
    least = min(entropy(one), entropy(other))
    return least > 0 and mutual_information(one, other) > SAME * least


def share_told(column: Codes, about: Codes) -> float:
    """Return the share of a column's entropy that another one tells, 0 if it has none."""
    whole = entropy(about)
    return mutual_information(column, about) / whole if whole > 0 else 0.0

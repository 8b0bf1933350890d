"""Exact sums with fractions: each item is cut off below 2^-96, infinities and nan are counted."""

import math
from collections.abc import Iterable
from fractions import Fraction

UNIT = 2**96
LARGEST = 2.0**159


def whole(value: float) -> int:
    """The item as a whole number of 2^-96, cut off towards 0."""
    return math.trunc(Fraction(value) * UNIT)


def limbs(values: Iterable[float]) -> list[int]:
    """Eight digits to base 2^32, each added up by itself; how many are above and below all."""
    total = [0] * 10
    for value in values:
        if not abs(value) < LARGEST:
            total[8] += not value < 0
            total[9] += not value > 0
            continue
        sign, rest = (-1 if value < 0 else 1), abs(whole(value))
        for place in range(8):
            rest, digit = divmod(rest, 2**32)
            total[place] += sign * digit
        assert rest == 0
    return total


def rounded(values: Iterable[float]) -> float:
    """The sum, correctly rounded."""
    items = list(values)
    above = any(not value < LARGEST for value in items)
    below = any(not value > -LARGEST for value in items)
    if above or below:
        return math.nan if above and below else math.inf if above else -math.inf
    return float(Fraction(sum(whole(value) for value in items), UNIT))

"""Exact sums with fractions: items are cut off below 2^lowest, infinities and nan are counted."""

import math
from collections.abc import Iterable
from fractions import Fraction

LIMBS = {-96: 8, -1088: 66}  # by the exponent of the lowest bit


def too_large(value: float, lowest: int) -> bool:
    """Whether an item is beyond the limbs, in size."""
    edge = 2 ** (lowest + 32 * LIMBS[lowest])
    return not (math.isfinite(value) and abs(Fraction(value)) < edge)


def whole(value: float, lowest: int) -> int:
    """The item as a whole number of 2^lowest, cut off towards 0."""
    return math.trunc(Fraction(value) * 2**-lowest)


def limbs(values: Iterable[float], lowest: int = -96) -> list[int]:
    """Digits to base 2^32, each added up by itself; how many are above and below all."""
    count = LIMBS[lowest]
    total = [0] * (count + 2)
    for value in values:
        if too_large(value, lowest):
            total[-2] += not value < 0
            total[-1] += not value > 0
            continue
        sign, rest = (-1 if value < 0 else 1), abs(whole(value, lowest))
        for place in range(count):
            rest, digit = divmod(rest, 2**32)
            total[place] += sign * digit
        assert rest == 0
    return total


def rounded(values: Iterable[float], lowest: int = -96) -> float:
    """The sum, correctly rounded."""
    items = list(values)
    above = any(too_large(value, lowest) and not value < 0 for value in items)
    below = any(too_large(value, lowest) and not value > 0 for value in items)
    if above or below:
        return math.nan if above and below else math.inf if above else -math.inf
    total = Fraction(sum(whole(value, lowest) for value in items)) / 2**-lowest
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf

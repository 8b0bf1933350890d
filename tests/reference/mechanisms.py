"""The counterfactual of one categorical draw under other mechanisms, in exact fractions.

Having seen outcome k under the factual row p, what would the same noise have given under q? Rows
are probabilities up to rounding: they are scaled to sum to one exactly. Outcomes count from 0.
"""

from collections.abc import Sequence
from fractions import Fraction
from random import Random

Row = Sequence[float]


def inverse_cdf(p: Row, q: Row, k: int, order: Sequence[int] | None = None) -> list[float]:
    """Return the overlap of k's interval under p with each interval under q, over p_k."""
    low, high = intervals(p, order)[k]
    overlaps = [min(high, b) - max(low, a) for a, b in intervals(q, order)]
    return [float(max(overlap, Fraction(0)) / (high - low)) for overlap in overlaps]


def maximal(p: Row, q: Row, k: int) -> list[float]:
    """Return min(1, q_k / p_k) for k; the rest is shared in proportion to what q has above p."""
    before, after = exact(p), exact(q)
    stays = min(Fraction(1), after[k] / before[k])
    above = [max(b - a, Fraction(0)) for a, b in zip(before, after, strict=True)]
    if stays == 1:
        return [float(j == k) for j in range(len(q))]
    excess = sum(above)
    moved = [(1 - stays) * share / excess for share in above]
    return [float(stays if j == k else moved[j]) for j in range(len(q))]


def independent(p: Row, q: Row, k: int) -> list[float]:
    """Return q: what was seen says nothing."""
    return [float(value) for value in exact(q)]


# ---------------------------------------------------------------------------------------------
# The same with explicit noise: one uniform number
# ---------------------------------------------------------------------------------------------


def noise_of_interval(p: Row, k: int, order: Sequence[int] | None, random: Random) -> Fraction:
    """Draw the uniform number given that it fell into k's interval."""
    low, high = intervals(p, order)[k]
    return low + (high - low) * Fraction(random.random())


def outcome_of_noise(q: Row, noise: Fraction, order: Sequence[int] | None) -> int:
    """Return the outcome whose interval holds the number."""
    return next(j for j, (low, high) in enumerate(intervals(q, order)) if low <= noise < high)


def intervals(row: Row, order: Sequence[int] | None) -> list[tuple[Fraction, Fraction]]:
    """Divide [0, 1] among the outcomes, the first of the order lowest."""
    scaled = exact(row)
    ends = [(Fraction(0), Fraction(0))] * len(row)
    low = Fraction(0)
    for outcome in range(len(row)) if order is None else order:
        ends[outcome] = low, low + scaled[outcome]
        low += scaled[outcome]
    return ends


def exact(row: Row) -> list[Fraction]:
    """Return a row as fractions that sum to one."""
    values = [Fraction(float(value)) for value in row]
    total = sum(values)
    return [value / total for value in values]

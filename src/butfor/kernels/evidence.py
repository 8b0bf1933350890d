"""Evidence behind a step: the similar past cases of the rows that it may use."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare, inlined
from butfor.kernels.factors import fewest_cases
from butfor.kernels.reference import by_reference


@by_reference
class Cases(NamedTuple):
    """The rows that one step of an episode may use; working space of one thread."""

    number: NDArray[np.float64]  # [R] similar past cases of each of these rows
    mass: NDArray[np.float64]  # [R] probability of using it
    own: NDArray[np.float64]  # [R] by row of the model: how often the episode itself used it


@inlined
def similar_cases(problem, work, record, row, i, seen_row):
    """Return the number of similar past cases of a row at step i; i < 0: past the observed end.

    With factors, that of the last product.
    """
    number = record.counts[row] - record.cases.own[row]
    if len(problem.factors.place) > 0:
        fewest = fewest_cases(problem, work, row, i, seen_row)
        if fewest < np.inf:
            number = fewest
    return number


@bare
def weigh_cases(cases, count, going, thin, steps, episode, t):
    """Write the weighted median of the first `count` cases, and the mass on fewer than `thin`."""
    few = 0.0
    for b in range(count):
        # a mean of whole numbers, by rounding, may be just below one
        if cases.number[b] < thin * (1.0 - 1e-12):
            few += cases.mass[b]
    steps.thin[episode, t] = few
    half = 0.5 * going * (1.0 - 1e-12)
    steps.evidence[episode, t] = weighted_median(cases.number, cases.mass, count, half)


@bare
def weighted_median(value, mass, count, half):
    """Return the smallest of `count` values at which the running mass reaches `half`.

    If it never does, return the largest value. Quickselect: both arrays are reordered, with values
    below a pivot first and those above it last, and the search continues in one of the two parts.
    """
    low, high = 0, count
    passed = 0.0  # the mass of values before `low`
    while True:
        pivot = value[(low + high) // 2]
        i, first, last = low, low, high  # values equal to the pivot end up at first .. last - 1
        below, equal = 0.0, 0.0
        while i < last:
            if value[i] > pivot:
                last -= 1
                value[i], value[last] = value[last], value[i]
                mass[i], mass[last] = mass[last], mass[i]
                continue
            if value[i] < pivot:
                below += mass[i]
                value[i], value[first] = value[first], value[i]
                mass[i], mass[first] = mass[first], mass[i]
                first += 1
            else:
                equal += mass[i]
            i += 1
        if passed + below >= half and first > low:
            high = first
        elif passed + below + equal >= half or last == high:
            return pivot
        else:
            passed += below + equal
            low = last

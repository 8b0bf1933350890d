"""Sparse distributions, and working space for the counterfactual of one row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare

INSERTION_LIMIT = 48  # up to this length insertion sort is used, then heap sort


class Rows(NamedTuple):
    """Sparse distributions. Entries of two rows that have the same label share their noise.

    No probability is 0, and labels increase within a row.
    """

    start: NDArray[np.int64]  # [R + 1] first entry of each row
    label: NDArray[np.int32]  # [E]
    probability: NDArray[np.float64]  # [E]


class Scratch(NamedTuple):
    """One thread's working space for the counterfactual of one row at a time."""

    mass: NDArray[np.float64]  # the result
    ratio: NDArray[np.float64]
    order: NDArray[np.int64]


def sparse_rows(dense: NDArray[np.float64]) -> Rows:
    """Return the rows of a table [R, labels] without their zeros."""
    row, label = np.nonzero(dense)
    start = np.searchsorted(row, np.arange(len(dense) + 1))
    return Rows(start, label.astype(np.int32), dense[row, label])


def make_scratch(size: int) -> Scratch:
    """Return working space for rows of up to `size` entries."""
    return Scratch(np.empty(size), np.empty(size), np.empty(size, np.int64))


@bare
def sort_by_ratio(ratio, order, count):
    """Sort the first `count` ratios, and reorder `order` in the same way."""
    if count <= INSERTION_LIMIT:
        for i in range(1, count):
            r, o = ratio[i], order[i]
            j = i - 1
            while j >= 0 and ratio[j] > r:
                ratio[j + 1] = ratio[j]
                order[j + 1] = order[j]
                j -= 1
            ratio[j + 1] = r
            order[j + 1] = o
        return
    make_heap(ratio, order, count)
    for end in range(count - 1, 0, -1):
        take_largest(ratio, order, end)


@bare
def make_heap(ratio, order, count):
    """Turn the first `count` ratios into a heap, the largest first; reorder `order` likewise."""
    for top in range(count // 2 - 1, -1, -1):
        sift_down(ratio, order, top, count)


@bare
def take_largest(ratio, order, end):
    """Move the largest of a heap of end + 1 ratios to its end; those before it are a heap again."""
    ratio[0], ratio[end] = ratio[end], ratio[0]
    order[0], order[end] = order[end], order[0]
    sift_down(ratio, order, 0, end)


@bare
def sift_down(ratio, order, top, count):
    """Move the entry at `top` down to its place in the heap of the first `count`."""
    while 2 * top + 1 < count:
        child = 2 * top + 1
        if child + 1 < count and ratio[child + 1] > ratio[child]:
            child += 1
        if ratio[top] >= ratio[child]:
            return
        ratio[top], ratio[child] = ratio[child], ratio[top]
        order[top], order[child] = order[child], order[top]
        top = child


@bare
def find_label(rows, row, label):
    """Return the entry of a row with this label; -1 if there is none."""
    low, stop = rows.start[row], rows.start[row + 1]
    high = stop
    while low < high:
        middle = (low + high) // 2
        if rows.label[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and rows.label[low] == label else -1


def widest_row(rows: Rows) -> int:
    """Return the largest number of entries in a row."""
    return int(np.diff(rows.start).max(initial=0))


@bare
def scatter(rows, row, by_label):
    """Write a row's probabilities at the positions of their labels."""
    for e in range(rows.start[row], rows.start[row + 1]):
        by_label[rows.label[e]] = rows.probability[e]


@bare
def unscatter(rows, row, by_label):
    """Undo `scatter`."""
    for e in range(rows.start[row], rows.start[row + 1]):
        by_label[rows.label[e]] = 0.0


@bare
def hold(rows, row, held, by_label):
    """Make `by_label` hold this row instead of the row held[0]; -1 means none."""
    if held[0] == row:
        return
    if held[0] >= 0:
        unscatter(rows, held[0], by_label)
    scatter(rows, row, by_label)
    held[0] = row


@bare
def meets(rows, row, by_label):
    """Return whether a row has a label in common with the scattered one."""
    met = False
    for e in range(rows.start[row], rows.start[row + 1]):
        met = met or by_label[rows.label[e]] > 0.0
    return met


@bare
def pick_by_mass(mass, start, stop, u):
    """Return the position at which the cumulative sum of mass[start:stop] exceeds u."""
    total = 0.0
    chosen = start
    for e in range(start, stop):
        if mass[e] > 0.0:
            chosen = e
            total += mass[e]
            if u < total:
                break
    return chosen


@bare
def append_row(rows, row, dense, m):
    """Write the nonzero part of dense[m] as this row, directly after the row before it."""
    stop = rows.start[row]
    for i in range(dense.shape[1]):
        if dense[m, i] > 0.0:
            rows.label[stop] = i
            rows.probability[stop] = dense[m, i]
            stop += 1
    rows.start[row + 1] = stop

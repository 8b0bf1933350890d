"""Levels of many particles, each drawn from its own exact counterfactual row."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.kernels.compiled import bare
from butfor.kernels.mechanisms import Coupling, counterfactual_row
from butfor.kernels.random import uniform
from butfor.kernels.reference import by_reference
from butfor.kernels.rows import (
    Rows,
    Scratch,
    append_row,
    find_label,
    make_scratch,
    pick_by_mass,
    scatter,
    unscatter,
)


@by_reference
class Room(NamedTuple):
    """Working space for R rows [R, L]."""

    mass: NDArray[np.float64]  # [R, L] counterfactual rows
    stamp: NDArray[np.int64]  # [R] what `mass` was computed for: factual row and observed level
    pair: Rows  # a factual row and another one
    by_label: NDArray[np.float64]  # [L] the factual row
    scratch: Scratch


def draw_levels(
    coupling: Coupling,
    rows: NDArray[np.float64],
    own: NDArray[np.int64],
    factual: NDArray[np.int64],
    observed: NDArray[np.int64],
    keys: NDArray[np.uint64],
    first: NDArray[np.int64],
    offset: int,
    level: NDArray[np.int64],
    ratio: NDArray[np.float64],
) -> None:
    """Fill in `level` [m], drawn for each particle from its row of `rows` [R, L].

    Particle i has row own[i]; in the logged step it was factual[i] (-1: nothing was logged), where
    the level observed[i] is possible. Equal rows give the observed level: consistency. Otherwise
    number first[i] + offset of the stream of keys[i] decides. Rows that neighboring particles share
    are computed once. `ratio` [m] is multiplied by the probability of the level in the row, over
    that with which it was drawn.
    """
    count, size = rows.shape
    room = Room(
        np.empty((count, size)),
        np.full(count, -1),
        Rows(np.zeros(3, np.int64), np.empty(2 * size, np.int32), np.empty(2 * size)),
        np.zeros(size),
        make_scratch(size),
    )
    draw_each(coupling, rows, own, factual, observed, keys, first, offset, level, ratio, room)


@bare
def draw_each(coupling, rows, own, factual, observed, keys, first, offset, level, ratio, room):
    """Do the work of `draw_levels`."""
    mass, stamp, pair = room.mass, room.stamp, room.pair
    by_label, scratch, size = room.by_label, room.scratch, rows.shape[1]
    held = -1
    for i in range(len(own)):
        q, p, k = own[i], factual[i], observed[i]
        if p == q:
            level[i] = k
            ratio[i] *= rows[q, k]
            continue
        u = uniform(keys[i], first[i] + offset)
        if p < 0:
            level[i] = pick_by_mass(rows[q], 0, size, u)
            continue
        if stamp[q] != p * size + k:
            if held != p:
                if held >= 0:
                    unscatter(pair, 0, by_label)
                append_row(pair, 0, rows, p)
                scatter(pair, 0, by_label)
                held = p
            append_row(pair, 1, rows, q)
            seen = find_label(pair, 0, k)
            counterfactual_row(coupling, pair, 1, 0, seen, by_label, scratch)
            mass[q] = 0.0
            for e in range(pair.start[2] - pair.start[1]):
                mass[q, pair.label[pair.start[1] + e]] = scratch.mass[e]
            stamp[q] = p * size + k
        level[i] = pick_by_mass(mass[q], 0, size, u)
        ratio[i] *= rows[q, level[i]] / mass[q, level[i]]


@bare
def fewest_cases(total, place, own, start, stop, least):
    """Lower `least` [m] to the similar past cases of one variable where there are fewer.

    Particle i has total[place[i]] cases, minus those of its own episode: how often place[i] is
    among own[start[i] : stop[i]].
    """
    for i in range(len(place)):
        number = total[place[i]]
        for step in range(start[i], stop[i]):
            if own[step] == place[i]:
                number -= 1.0
        least[i] = min(least[i], max(0.0, number))

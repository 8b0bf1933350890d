"""Levels of many particles, each drawn from its own exact counterfactual row."""

import numpy as np

from butfor.kernels.compiled import compiled
from butfor.kernels.mechanisms import counterfactual_row
from butfor.kernels.random import uniform
from butfor.kernels.rows import (
    Rows,
    append_row,
    find_label,
    make_scratch,
    pick_by_mass,
    scatter,
    unscatter,
)


@compiled
def draw_levels(coupling, rows, own, factual, observed, keys, first, offset, level, ratio):
    """Fill in `level` [m], drawn for each particle from its row of `rows` [R, L].

    Particle i has row own[i]; in the logged step it was factual[i] (-1: nothing was logged), where
    the level observed[i] is possible. Equal rows give the observed level: consistency. Otherwise
    number first[i] + offset of the stream of keys[i] decides. Rows that neighboring particles share
    are computed once. `ratio` [m] is multiplied by the probability of the level in the row, over
    that with which it was drawn.
    """
    count, size = rows.shape
    mass = np.empty((count, size))
    stamp = np.full(count, -1)  # what `mass` was computed for: factual row and observed level
    pair = Rows(np.zeros(3, np.int64), np.empty(2 * size, np.int32), np.empty(2 * size))
    by_label, scratch = np.zeros(size), make_scratch(size)
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


@compiled
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

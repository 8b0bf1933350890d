"""Leave-one-out scores of tables with back-off, for choosing the parents of a variable."""

import numpy as np

from butfor.kernels.compiled import compiled, part

TINY = 1e-250  # a product of probabilities below this is added to the sum of logarithms


@part
def count_levels_by_cell(row_cell, level, weight, columns, sizes, u, v, levels, counts):
    """Add up the weights by cell, level of parent u, of parent v (-1: none), and level."""
    if v < 0:
        for r in range(len(level)):
            place = row_cell[r] * sizes[u] + columns[u, r]
            counts[place * levels + level[r]] += weight[r]
    else:
        for r in range(len(level)):
            place = (row_cell[r] * sizes[u] + columns[u, r]) * sizes[v] + columns[v, r]
            counts[place * levels + level[r]] += weight[r]


@part
def score_table(counts, cells, outer, inner, pair, levels, above, strength, kept, summed):
    """Return the leave-one-out log score of a table [cells, outer, inner, levels] with back-off.

    `above` [cells, levels] is what the row with neither parent gives to a case of that level which
    is left out; `kept` and `summed` [levels] are working space. Without `pair` there is one parent,
    and `inner` is 1. A parent that divides no cell has the score -inf: it would only weaken the
    back-off.
    """
    score, product = 0.0, 1.0
    outer_cells, inner_cells = 0, 0
    for cell in range(cells):
        for a in range(outer):
            start = (cell * outer + a) * inner * levels
            total = 0.0
            for y in range(levels):
                summed[y] = 0.0
                for b in range(inner):
                    summed[y] += counts[start + b * levels + y]
                total += summed[y]
            if total == 0:
                continue
            outer_cells += 1
            for y in range(levels):
                kept[y] = (summed[y] - 1 + strength * above[cell, y]) / (total - 1 + strength)
            for b in range(inner):
                place = start + b * levels
                own = 0.0
                for y in range(levels):
                    own += counts[place + y]
                if own == 0:
                    continue
                inner_cells += 1
                for y in range(levels):
                    n = counts[place + y]
                    if n == 0:
                        continue
                    p = kept[y]
                    if pair:
                        p = (n - 1 + strength * p) / (own - 1 + strength)
                    if n > 1:
                        score += n * np.log(p)
                        continue
                    # most cases are alone: one logarithm for many of them
                    product *= p
                    if product < TINY:
                        score += np.log(product)
                        product = 1.0
    if outer_cells == cells or (pair and inner_cells == outer_cells):
        return -np.inf
    return score + np.log(product)


@compiled
def score_parents(
    first,
    last,
    candidates,
    columns,
    sizes,
    row_cell,
    cells,
    level,
    levels,
    weight,
    above,
    strength,
    scores,
):
    """Fill in `scores` [C] for the candidates first .. last - 1: a parent, or two in their order.

    Rows are distinct cases: `columns` [V, m] levels of possible parents, `row_cell` [m] the cell by
    the parents chosen so far, `level` [m], `weight` [m] whole numbers.
    """
    most = 0
    for c in range(first, last):
        u, v = candidates[c]
        inner = sizes[v] if v >= 0 else 1
        most = max(most, cells * sizes[u] * inner * levels)
    table = np.empty(most)
    kept, summed = np.empty(levels), np.empty(levels)
    for c in range(first, last):
        u, v = candidates[c]
        inner = sizes[v] if v >= 0 else 1
        counts = table[: cells * sizes[u] * inner * levels]
        counts[:] = 0.0
        count_levels_by_cell(row_cell, level, weight, columns, sizes, u, v, levels, counts)
        scores[c] = score_table(
            counts, cells, sizes[u], inner, v >= 0, levels, above, strength, kept, summed
        )

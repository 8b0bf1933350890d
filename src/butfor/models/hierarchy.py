"""Rows with a hierarchical Dirichlet prior: each is drawn around the row with one parent fewer.

A row given parents c is Dirichlet(k P'), where P' is the row without the last parent or, with
`every`, the mean of the rows without one of them; without parents P' is uniform. The weight k, in
cases, says how alike such rows are: the larger, the more alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from butfor.types import Floats

WEIGHTS: Floats = 2.0 ** np.arange(
    -2.0, 9.0
)  # weights that are possible, equally probable beforehand
LEAST = 1e-300  # smallest share of a row that a draw gives to a transition that may happen
BURN = 50  # sweeps before the first draw
BETWEEN = 2  # sweeps from one draw to the next

Node = tuple[int, ...]  # which parents a row has
# cases one after another: the cell of each, the number of earlier ones there, and how many cells
Line = tuple[NDArray[np.intp], NDArray[np.intp], int]


class Hierarchy:
    """A Gibbs sampler of everything above the rows themselves: their prior means, and the weights.

    In the words of the Chinese restaurant, a case of a row sits down at a table, and each table is
    one case of the row above. Given the tables (`_seat`), the weights depend on their numbers alone
    (`_weigh`), and the rows are Dirichlet (`_draw`); given rows and weights, tables are drawn case
    by case. What is drawn has the posterior as its stationary distribution, exactly.

    Rows with the same number of parents are one level. Its cells are one flat array, whichever
    parents they have, so that a sweep draws level by level.
    """

    def __init__(
        self,
        counts: Floats,
        *,
        possible: Sequence[Floats],
        generator: np.random.Generator,
        every: bool = False,
        tied: bool = False,
    ) -> None:
        """Begin at the means.

        Parameters
        ----------
        counts : [levels of parents …, levels]
            Whole numbers.
        possible : by number of parents
            The weights from which one is drawn; a single one is fixed.
        tied
            Whether all weights are the same.
        """
        self.generator, self.possible, self.tied = generator, possible, tied
        self.weight = np.array([float(np.median(values)) for values in possible])
        parents, self.width = counts.ndim - 1, counts.shape[-1]
        nodes: list[list[Node]] = [  # by number of parents
            list(combinations(range(parents), size)) if every else [tuple(range(size))]
            for size in range(parents + 1)
        ]
        numbers = [_number_cells(counts.shape, level) for level in nodes[:-1]]
        # of the last level, whose cases never change, only cells with cases are needed
        self._seen = np.flatnonzero(counts)
        # cells that those of a level are backed off to, [U, C], by level; none of the first
        self._cells = [np.empty((0, self.width), np.intp)]
        levels: list[dict[Node, NDArray[Any]]] = [*numbers, {nodes[-1][0]: counts}]
        for above, level in pairwise(levels):
            found = []
            for node, cells in level.items():
                base = [above[one] for one in _backed_off(node, every)]
                only = self._seen if cells is counts else slice(None)
                found.append([np.broadcast_to(one, cells.shape).ravel()[only] for one in base])
            self._cells.append(np.concatenate(found, axis=1))
        largest = _backed_off(nodes[-1][0], every) if parents else []
        self._base = [numbers[-1][one] for one in largest]
        self.cases: list[Floats] = [
            np.concatenate([_sum_except(counts, node).ravel() for node in level])
            for level in nodes[:-1]
        ]
        self.cases.append(counts.ravel())
        self._line = line_up(self.cases[-1][self._seen])
        self._last = self._normalizer(parents)
        self.rows: list[Floats] = []  # by level, except the last
        self._tables = [(0.0, np.zeros(0)) for _ in nodes]
        self._draw(mean=True)

    @property
    def base(self) -> Floats:
        """What the rows with all parents are drawn around, [levels of parents or 1 …, levels]."""
        if not self._base:
            return self._uniform()
        return np.asarray(sum(self.rows[-1][cells] for cells in self._base) / len(self._base))

    def run(self, sweeps: int) -> None:
        """Move on by this many sweeps."""
        for _ in range(sweeps):
            self._seat()
            self._weigh()
            self._draw()

    def _uniform(self) -> Floats:
        return np.full(self.width, 1.0 / self.width)

    def _seat(self) -> None:
        """Draw tables from the last level upwards; they become cases of the level above."""
        last = len(self.cases) - 1
        for size in reversed(range(last + 1)):
            cases = self.cases[size]
            seen = self._seen if size == last else np.flatnonzero(cases)
            line = self._line if size == last else line_up(cases[seen])
            if size == 0:
                tables = seat(line, self.weight[0] / self.width, self.generator)
            else:
                cells = self._cells[size] if size == last else self._cells[size][:, seen]
                tables = self._pass_on(size, line, cells)
            known = self._last if size == last else self._normalizer(size)
            self._tables[size] = (float(tables.sum()), known)

    def _normalizer(self, size: int) -> Floats:
        """Return the sum of log Γ(k) / Γ(k + N) over rows of N cases, for each possible weight."""
        rows = self.cases[size].reshape(-1, self.width).sum(axis=1)
        k = np.asarray(self.possible[size])[:, None]
        return np.asarray((gammaln(k) - gammaln(k + rows)).sum(axis=1))

    def _pass_on(self, size: int, line: Line, cells: NDArray[np.intp]) -> NDArray[np.int64]:
        """Draw the tables of the cases of a level, which are backed off to these cells [U, C].

        Each table is a case of one of the U rows above, in proportion to what they give it.
        """
        given = self.rows[size - 1][cells]
        total = given.sum(axis=0)
        tables = seat(line, self.weight[size] * (total / len(cells)), self.generator)
        parts = tables[None]
        if len(cells) > 1:
            parts = self.generator.multinomial(tables, (given / total).T).T
        passed = np.bincount(cells.ravel(), parts.ravel(), len(self.cases[size - 1]))
        self.cases[size - 1] = passed.astype(np.float64, copy=False)
        return tables

    def _weigh(self) -> None:
        """Draw weights given the tables: T of them in rows of N cases, k^T Γ(k) / Γ(k + N)."""
        scores = []
        for (total, normalizer), values in zip(self._tables, self.possible, strict=True):
            scores.append(total * np.log(np.asarray(values)) + normalizer)
        if self.tied:
            self.weight[:] = self._choose(np.sum(scores, axis=0), self.possible[0])
            return
        for size, (score, values) in enumerate(zip(scores, self.possible, strict=True)):
            self.weight[size] = self._choose(score, values)

    def _choose(self, score: Floats, values: Floats) -> float:
        chance = np.exp(score - score.max())
        return float(self.generator.choice(values, p=chance / chance.sum()))

    def _draw(self, *, mean: bool = False) -> None:
        """Draw the rows given their cases, those without parents first; or take their means."""
        self.rows = []
        for size, cases in enumerate(self.cases[:-1]):
            around = self.rows[-1][self._cells[size]].mean(axis=0) if size else self._uniform()
            shape = cases + self.weight[size] * around
            rows = shape if mean else draw_gamma(shape, self.generator)
            self.rows.append(normalized(rows.reshape(-1, self.width)).ravel())


def line_up(cases: Floats) -> Line:
    """Return the cell that each case is from, and how many cases of that cell come before it."""
    count = cases.astype(np.int64)
    of = np.repeat(np.arange(len(count)), count)
    return of, np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count), len(count)


def seat(line: Line, weight: Floats | float, generator: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of tables at which the cases of each cell sit down, one after another.

    Case i, counted from 0, takes a new table with probability w / (w + i).
    """
    of, before, cells = line
    w = np.broadcast_to(weight, cells)[of]
    new = generator.random(len(of)) * (w + before) < w
    return np.bincount(of[new], minlength=cells)


def draw_gamma(shape: Floats, generator: np.random.Generator) -> Floats:
    """Draw gammas, none of them 0."""
    return np.maximum(generator.standard_gamma(shape), LEAST)


def normalized(weight: Floats) -> Floats:
    """Return rows that sum to 1."""
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def _backed_off(node: Node, every: bool) -> list[Node]:
    """Return the parents of the rows that those with these parents are backed off to."""
    return [node[:i] + node[i + 1 :] for i in range(len(node))] if every else [node[:-1]]


def _number_cells(shape: tuple[int, ...], nodes: Sequence[Node]) -> dict[Node, NDArray[np.intp]]:
    """Number the cells of a level; the axes of parents that rows do not have are of length 1."""
    found, first, last = {}, 0, len(shape) - 1
    for node in nodes:
        mine = [size if axis in node or axis == last else 1 for axis, size in enumerate(shape)]
        found[node] = first + np.arange(math.prod(mine)).reshape(mine)
        first += found[node].size
    return found


def _sum_except(counts: Floats, node: Node) -> Floats:
    others = tuple(axis for axis in range(counts.ndim - 1) if axis not in node)
    return np.asarray(counts.sum(axis=others, keepdims=True))

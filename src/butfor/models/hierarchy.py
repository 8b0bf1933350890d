"""Rows with a hierarchical Dirichlet prior: each is drawn around the row with one parent fewer.

A row given parents c is Dirichlet(k P'), where P' is the row without the last parent or, with
`every`, the mean of the rows without one of them; without parents P' is uniform. The weight k, in
cases, says how alike such rows are: the larger, the more alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from butfor.models.mdp import total_by
from butfor.types import Floats

WEIGHTS: Floats = 2.0 ** np.arange(
    -2.0, 9.0
)  # weights that are possible, equally probable beforehand
LEAST = 1e-300  # smallest share of a row that a draw gives to a transition that may happen
BURN = 50  # sweeps before the first draw
BETWEEN = 2  # sweeps from one draw to the next

Node = tuple[int, ...]  # which parents a table has


class Hierarchy:
    """A Gibbs sampler of everything above the rows themselves: their prior means, and the weights.

    In the words of the Chinese restaurant, a case of a row sits down at a table, and each table is
    one case of the row above. Given the tables (`_seat`), the weights depend on their numbers alone
    (`_weigh`), and the rows are Dirichlet (`_draw`); given rows and weights, tables are drawn case
    by case. What is drawn has the posterior as its stationary distribution, exactly.
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
        parents = counts.ndim - 1
        self.generator, self.possible = generator, possible
        self.every, self.tied = every, tied
        self.nodes: list[list[Node]] = [  # by number of parents
            list(combinations(range(parents), size)) if every else [tuple(range(size))]
            for size in range(parents + 1)
        ]
        self.weight = np.array([float(np.median(values)) for values in possible])
        largest = self.nodes[-1][0]
        self._shape = {node: _shape(counts, node) for nodes in self.nodes for node in nodes}
        self._seen = np.flatnonzero(counts)  # of the largest table, whose cases never change
        self._cells = {node: self._find_cells(node) for nodes in self.nodes[1:] for node in nodes}
        self.cases: dict[Node, Floats] = {largest: counts.ravel()}  # tables are flat
        self._largest = self._normalizer(parents, counts.sum(axis=-1).ravel())
        self._tables = [(0.0, np.zeros(0)) for _ in range(parents + 1)]
        for size in range(parents):
            for node in self.nodes[size]:
                self.cases[node] = _sum_except(counts, node).ravel()
        self.rows: dict[Node, Floats] = {}
        self._draw(mean=True)

    @property
    def base(self) -> Floats:
        """What the rows with all parents are drawn around, [levels of parents or 1 …, levels]."""
        node = self.nodes[-1][0]
        if not node:
            return self._uniform()
        above = self._above(node)
        return mean_of([self.rows[one].reshape(self._shape[one]) for one in above])

    def run(self, sweeps: int) -> None:
        """Move on by this many sweeps."""
        for _ in range(sweeps):
            self._seat()
            self._weigh()
            self._draw()

    def _uniform(self) -> Floats:
        levels = self._shape[()][-1]
        return np.full(levels, 1.0 / levels)

    def _above(self, node: Node) -> list[Node]:
        """Return the tables that this one is backed off to."""
        if not self.every:
            return [node[:-1]]
        return [node[:i] + node[i + 1 :] for i in range(len(node))]

    def _find_cells(self, node: Node) -> list[NDArray[np.intp]]:
        """Return where the cells of a table are in those above it; of the largest, those seen."""
        found = []
        for one in self._above(node):
            shape = self._shape[one]
            cells = np.arange(math.prod(shape)).reshape(shape)
            found.append(np.broadcast_to(cells, self._shape[node]).ravel())
        if node == self.nodes[-1][0]:
            found = [cells[self._seen] for cells in found]
        return found

    def _seat(self) -> None:
        """Draw tables from the largest table of rows upwards; they become cases above."""
        for size in reversed(range(1, len(self.nodes))):
            for node in self.nodes[size - 1]:
                self.cases[node] = np.zeros_like(self.cases[node])
            total, rows = 0.0, []
            largest = size == len(self.nodes) - 1
            for node in self.nodes[size]:
                cases, cells = self.cases[node], self._cells[node]
                seen = self._seen if largest else np.flatnonzero(cases)
                if not largest:
                    cells = [each[seen] for each in cells]
                    rows.append(cases.reshape(-1, self._shape[node][-1]).sum(axis=1))
                total += self._pass_on(node, cases[seen], cells, self.weight[size])
            known = self._largest if largest else self._normalizer(size, np.concatenate(rows))
            self._tables[size] = (total, known)
        root = self.cases[()]
        tables = seat(root.astype(np.int64), self.weight[0] / len(root), self.generator)
        self._tables[0] = (tables.sum(), self._normalizer(0, root.sum(keepdims=True)))

    def _normalizer(self, size: int, rows: Floats) -> Floats:
        """Return the sum of log Γ(k) / Γ(k + N) over rows of N cases, for each possible weight."""
        k = np.asarray(self.possible[size])[:, None]
        return np.asarray((gammaln(k) - gammaln(k + rows)).sum(axis=1))

    def _pass_on(
        self, node: Node, cases: Floats, cells: list[NDArray[np.intp]], weight: float
    ) -> float:
        """Draw the tables of these cases, and return how many there are.

        Each is a case of one of the rows above, in proportion to what they give it.
        """
        above = self._above(node)
        given = [self.rows[one][cell] for one, cell in zip(above, cells, strict=True)]
        mean = mean_of(given)
        tables = seat(cases.astype(np.int64), weight * mean, self.generator)
        left, share = tables, mean * len(above)
        for i, (one, cell, mine) in enumerate(zip(above, cells, given, strict=True)):
            part = left
            if i < len(above) - 1:
                chance = np.minimum(mine / share, 1.0)
                part = self.generator.binomial(left.astype(np.int64), chance).astype(np.float64)
                left, share = left - part, np.maximum(share - mine, LEAST)
            self.cases[one] += total_by(cell, part, len(self.cases[one]))
        return float(tables.sum())

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
        for size in range(len(self.nodes) - 1):
            for node in self.nodes[size]:
                around = self._uniform()
                if node:
                    cells = zip(self._above(node), self._cells[node], strict=True)
                    around = mean_of([self.rows[one][cell] for one, cell in cells])
                shape = self.cases[node] + self.weight[size] * around
                rows = shape if mean else draw_gamma(shape, self.generator)
                levels = self._shape[node][-1]
                self.rows[node] = normalized(rows.reshape(-1, levels)).ravel()


def mean_of(tables: Sequence[Floats]) -> Floats:
    """Return the mean of tables, added from the first to the last."""
    return sum(tables[1:], tables[0]) / len(tables)


def seat(
    cases: NDArray[np.int64], weight: Floats | float, generator: np.random.Generator
) -> Floats:
    """Draw the number of tables at which so many cases sit down, one after another.

    Case i, counted from 0, takes a new table with probability w / (w + i).
    """
    of = np.repeat(np.arange(len(cases)), cases)
    before = np.arange(len(of)) - np.repeat(np.cumsum(cases) - cases, cases)
    w = np.broadcast_to(weight, cases.shape)[of]
    new = generator.random(len(of)) * (w + before) < w
    return total_by(of, new.astype(np.float64), len(cases))


def draw_gamma(shape: Floats, generator: np.random.Generator) -> Floats:
    """Draw gammas, none of them 0."""
    return np.maximum(generator.standard_gamma(shape), LEAST)


def normalized(weight: Floats) -> Floats:
    """Return rows that sum to 1."""
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))


def _shape(counts: Floats, node: Node) -> tuple[int, ...]:
    """Return the shape of a table with these parents: the axes of the others are of length 1."""
    last = counts.ndim - 1
    return tuple(
        length if axis in node or axis == last else 1 for axis, length in enumerate(counts.shape)
    )


def _sum_except(counts: Floats, node: Node) -> Floats:
    others = tuple(axis for axis in range(counts.ndim - 1) if axis not in node)
    return np.asarray(counts.sum(axis=others, keepdims=True))

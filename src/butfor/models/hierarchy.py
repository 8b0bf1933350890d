"""Rows with a hierarchical Dirichlet prior: each is drawn around the row with one parent fewer.

A row given parents c is Dirichlet(k P'), where P' is the row without the last parent or, with
`every`, the mean of the rows without one of them; without parents P' is uniform. The weight k, in
cases, says how alike such rows are: the larger, the more alike.
"""

from __future__ import annotations

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
        self.cases: dict[Node, Floats] = {self.nodes[-1][0]: counts}
        self._seen = np.nonzero(counts)  # of the largest table
        self._largest = self._normalizer(parents, counts.sum(axis=-1).ravel())
        self._tables = [(0.0, np.zeros(0)) for _ in range(parents + 1)]
        for size in range(parents):
            for node in self.nodes[size]:
                self.cases[node] = _sum_except(counts, node)
        self.rows: dict[Node, Floats] = {}
        self._draw(mean=True)

    @property
    def base(self) -> Floats:
        """What the rows with all parents are drawn around, [levels of parents or 1 …, levels]."""
        return self._fewer(self.nodes[-1][0])

    def run(self, sweeps: int) -> None:
        """Move on by this many sweeps."""
        for _ in range(sweeps):
            self._seat()
            self._weigh()
            self._draw()

    def _fewer(self, node: Node) -> Floats:
        """Return the mean of the rows with one parent fewer."""
        if not node:
            levels = self.cases[node].shape[-1]
            return np.full(levels, 1.0 / levels)
        above = self._above(node)
        return sum((self.rows[one] for one in above[1:]), self.rows[above[0]]) / len(above)

    def _above(self, node: Node) -> list[Node]:
        """Return the tables that this one is backed off to."""
        if not self.every:
            return [node[:-1]]
        return [node[:i] + node[i + 1 :] for i in range(len(node))]

    def _seat(self) -> None:
        """Draw tables from the largest table of rows upwards; they become cases above."""
        for size in reversed(range(1, len(self.nodes))):
            for node in self.nodes[size - 1]:
                self.cases[node] = np.zeros_like(self.cases[node])
            total, rows = 0.0, []
            largest = size == len(self.nodes) - 1
            for node in self.nodes[size]:
                cases, fewer = self.cases[node], self._fewer(node)
                seen = self._seen if largest else np.nonzero(cases)
                n = cases[seen].astype(np.int64)
                mean = np.broadcast_to(fewer, cases.shape)[seen]
                tables = seat(n, self.weight[size] * mean, self.generator)
                total += tables.sum()
                if not largest:  # whose cases never change
                    rows.append(cases.sum(axis=-1).ravel())
                self._pass_on(node, seen, tables, mean)
            known = self._largest if largest else self._normalizer(size, np.concatenate(rows))
            self._tables[size] = (total, known)
        root = self.cases[()].ravel()
        tables = seat(root.astype(np.int64), self.weight[0] / len(root), self.generator)
        self._tables[0] = (tables.sum(), self._normalizer(0, root.sum(keepdims=True)))

    def _normalizer(self, size: int, rows: Floats) -> Floats:
        """Return the sum of log Γ(k) / Γ(k + N) over rows of N cases, for each possible weight."""
        k = np.asarray(self.possible[size])[:, None]
        return np.asarray((gammaln(k) - gammaln(k + rows)).sum(axis=1))

    def _pass_on(
        self, node: Node, seen: tuple[NDArray[np.intp], ...], tables: Floats, mean: Floats
    ) -> None:
        """Make each table a case of one of the rows above, in proportion to what they give it."""
        above = self._above(node)
        left, share = tables, mean * len(above)
        for i, one in enumerate(above):
            part = left
            at = tuple(
                index if axis in one or axis == len(seen) - 1 else np.zeros_like(index)
                for axis, index in enumerate(seen)
            )
            if i < len(above) - 1:
                mine = self.rows[one][at]
                part = self.generator.binomial(
                    left.astype(np.int64), np.clip(mine / share, 0.0, 1.0)
                ).astype(np.float64)
                left, share = left - part, np.maximum(share - mine, LEAST)
            shape = self.cases[one].shape
            place = np.ravel_multi_index(at, shape)
            self.cases[one] += total_by(place, part, self.cases[one].size).reshape(shape)

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
                shape = self.cases[node] + self.weight[size] * self._fewer(node)
                self.rows[node] = normalized(shape if mean else draw_gamma(shape, self.generator))


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


def _sum_except(counts: Floats, node: Node) -> Floats:
    others = tuple(axis for axis in range(counts.ndim - 1) if axis not in node)
    return np.asarray(counts.sum(axis=others, keepdims=True))

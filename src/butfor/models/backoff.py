"""Tables with back-off: the prior mean of a row is the row with one parent fewer.

The parent that is dropped is always the last one; or each is dropped in turn, and the prior mean is
the mean of the rows without it. The data decide. The second hedges where a configuration was never
seen: all those that differ from it in one parent are asked, not only those with another last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.models.mdp import total_by
from butfor.threads import in_blocks
from butfor.types import Floats, Integers, Offsets

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # of the back-off, in cases: what the prior weighs
SEARCHED = (1.0, 3.0)  # strengths with which parents are searched for
LEAST_GAIN = 2.0  # of the log score, for a parent to be added
PAIR_COST = 1.0  # what two parents at once must gain beyond that
PARTNERS = 12  # a pair has one of this many best single parents
MOST_CELLS = 1 << 22  # of a table
MOST_DROPPED = 1 << 19  # of all tables with fewer parents, if each parent is dropped in turn
SMALL = 10_000_000  # counted cases below which threads take longer to start than to help


@dataclass(frozen=True, eq=False)
class Cases:
    """Distinct cases from which a table is learned: possible parents, a level, and how often."""

    names: tuple[str, ...]  # [V] of possible parents
    columns: Integers  # [V, m] their levels
    sizes: Offsets  # [V] their numbers of levels
    level: Integers  # [m] what is predicted
    levels: int
    weight: Floats  # [m] whole numbers
    # [m] the number behind the level, by name of the parent; cases with numbers are not merged
    logged: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Number of cases."""
        return float(self.weight.sum())

    def counts(self, parents: Sequence[int]) -> Floats:
        """Count the cases by the levels of these parents, then by level."""
        shape = (*(int(self.sizes[parent]) for parent in parents), self.levels)
        place = np.zeros(len(self.level), np.int64)
        for parent in parents:
            place = place * self.sizes[parent] + self.columns[parent]
        counts = total_by(place * self.levels + self.level, self.weight, math.prod(shape))
        return counts.reshape(shape)


@dataclass(frozen=True, eq=False)
class Backoff:
    """Parents in the order of back-off, which of them is dropped, and the strength of it."""

    parents: tuple[int, ...]
    strength: float
    score: float  # summed leave-one-out log score
    every: bool = False  # each parent is dropped in turn, not only the last

    def table(self, cases: Cases) -> Floats:
        """Return P(level | parents), [levels of parents …, levels]."""
        return backoff_table(cases.counts(self.parents), self.strength, every=self.every)


def make_cases(
    names: Sequence[str],
    columns: Sequence[NDArray[np.integer]],
    sizes: Sequence[int],
    level: NDArray[np.integer],
    levels: int,
    weight: NDArray[np.number],
    logged: Mapping[str, Floats] | None = None,
) -> Cases:
    """Return distinct cases with their total weights; too many columns to compare stay as given.

    Cases with logged numbers stay as given too.
    """
    key = np.arange(len(level))
    if math.prod(sizes) * levels < 2**63 and not logged:
        key = np.zeros(len(level), np.int64)
        for column, size in zip(columns, sizes, strict=True):
            key = key * size + column
        key = key * levels + level
    _, chosen, position = np.unique(key, return_index=True, return_inverse=True)
    return Cases(
        names=tuple(names),
        columns=np.array([column[chosen] for column in columns], np.int32).reshape(
            len(columns), len(chosen)
        ),
        sizes=np.array(sizes, np.int64),
        level=level[chosen].astype(np.int32),
        levels=levels,
        weight=total_by(position, weight.astype(np.float64), len(chosen)),
        logged=dict(logged or {}),
    )


def fit_counts(cases: Cases, *, strengths: Sequence[float] = SEARCHED) -> Backoff:
    """Choose the parents of a table, and its back-off, by leave-one-out log score.

    Beginning with none, the parent or the pair of parents is added that raises the score most. It
    stops when a parent gains less than 2, a pair less than 3. The score of a case is its
    probability in the table of all other cases. The search drops the last parent first; the
    back-off of the parents that it found is then chosen by `fit_given`.
    """
    found = [_Search(cases, [strength]).run() for strength in strengths]
    return fit_given(cases, max(found, key=lambda backoff: backoff.score).parents)


def fit_given(
    cases: Cases, parents: Sequence[int], *, strengths: Sequence[float] = STRENGTHS
) -> Backoff:
    """Choose the back-off where the parents are given: its strength, and which parent it drops."""
    search = _Search(cases, strengths)
    for parent in parents:
        search.add(parent)
    found = search.results()
    dropped = cases.levels * math.prod(int(cases.sizes[parent]) + 1 for parent in parents)
    if len(parents) > 1 and dropped <= MOST_DROPPED:
        scores = left_out_scores(cases.counts(parents), strengths)
        found += [
            Backoff(tuple(parents), strength, float(score), every=True)
            for strength, score in zip(strengths, scores, strict=True)
        ]
    return max(found, key=lambda backoff: backoff.score)


def backoff_table(counts: Floats, strength: float, *, every: bool = False) -> Floats:
    """Return P(level | parents) from counts [levels of parents …, levels], of the same shape.

    P(y | c) = (n + strength P'(y | c)) / (N + strength), where n of N cases with parents c have
    level y, and P' is P without the last parent; or, with `every`, the mean of P without the first,
    without the second, and so on. Without parents, P' is uniform.
    """

    def mean(n: Floats, fewer: Floats) -> Floats:
        return (n + strength * fewer) / (n.sum(axis=-1, keepdims=True) + strength)

    return build_table(counts[None], mean, every=every)[0]


def left_out_scores(counts: Floats, strengths: Sequence[float]) -> Floats:
    """Return the leave-one-out log score of a table that drops each parent in turn, by strength."""
    weight = np.array(strengths).reshape(-1, *(1,) * counts.ndim)

    def kept(n: Floats, fewer: Floats) -> Floats:
        rest = n.sum(axis=-1, keepdims=True) - 1 + weight
        # a row without cases is no part of the score
        return (n - 1 + weight * fewer) / np.where(rest > 0, rest, 1.0)

    tables, seen = build_table(counts[None], kept, every=True), counts > 0
    return np.asarray(np.log(tables[:, seen]) @ counts[seen])


def build_table(counts: Floats, row: Callable[[Floats, Floats], Floats], *, every: bool) -> Floats:
    """Build tables [B, levels of parents …, levels] from those without parents on.

    `row` makes rows of their counts and of the rows with one parent fewer. Counts have this shape,
    or B of them is 1; axes of parents that a table does not have are of length 1.
    """
    last = counts.ndim - 2
    uniform = np.full(counts.shape[-1], 1.0 / counts.shape[-1])
    by = _counts_by(counts, every=every)
    tables: dict[tuple[int, ...], Floats] = {(): row(by[()], uniform)}
    for known in range(1, last + 1):
        tables = {
            parents: row(by[parents], _fewer(tables, parents, every=every))
            for parents in _choices(last, known, every=every)
        }
    return tables[tuple(range(last))]


def _choices(last: int, known: int, *, every: bool) -> list[tuple[int, ...]]:
    """Return which of the parents a table of so many has."""
    return list(combinations(range(last), known)) if every else [tuple(range(known))]


def _counts_by(counts: Floats, *, every: bool) -> dict[tuple[int, ...], Floats]:
    """Return the counts by each choice of parents, each summed from one with a parent more."""
    last = counts.ndim - 2
    by = {tuple(range(last)): counts}
    for known in reversed(range(last)):
        for parents in _choices(last, known, every=every):
            more = next(parent for parent in range(last) if parent not in parents)
            wider = tuple(sorted((*parents, more)))
            by[parents] = by[wider].sum(axis=more + 1, keepdims=True)
    return by


def _fewer(
    tables: dict[tuple[int, ...], Floats], parents: tuple[int, ...], *, every: bool
) -> Floats:
    """Return the table with one parent fewer: without the last, or the mean over all of them."""
    if not every:
        return tables[parents[:-1]]
    total = tables[parents[1:]]
    for i in range(1, len(parents)):
        total = total + tables[parents[:i] + parents[i + 1 :]]
    return total / len(parents)


class _Search:
    """The parents chosen so far, and what each case scores when it is left out, by strength."""

    def __init__(self, cases: Cases, strengths: Sequence[float]) -> None:
        self.cases, self.strengths = cases, strengths
        self.parents: list[int] = []
        self.cell = np.zeros(len(cases.level), np.int64)  # [m] by the levels of the parents
        # [strengths, cells, levels] left out
        self.kept = np.full((len(strengths), 1, cases.levels), 1.0 / cases.levels)
        self.score = np.zeros(len(strengths))
        self._back_off(self.kept)

    def results(self) -> list[Backoff]:
        scores = zip(self.strengths, self.score.tolist(), strict=True)
        return [Backoff(tuple(self.parents), strength, score) for strength, score in scores]

    def run(self) -> Backoff:
        """Search for parents with the first strength."""
        while (best := self._best()) is not None:
            for parent in best:
                self.add(parent)
        return self.results()[0]

    def add(self, parent: int) -> None:
        """Add a parent behind the others."""
        self.parents.append(parent)
        # number the cells that occur, in order
        key = self.cell * self.cases.sizes[parent] + self.cases.columns[parent]
        occurs = np.zeros(self.kept.shape[1] * int(self.cases.sizes[parent]), bool)
        occurs[key] = True
        self.cell = (np.cumsum(occurs) - 1)[key]
        self._back_off(self.kept[:, np.flatnonzero(occurs) // self.cases.sizes[parent]])

    def _back_off(self, fewer: Floats) -> None:
        """Score the cases in their cells, given the rows with one parent fewer, by cell."""
        place = self.cell * self.cases.levels + self.cases.level
        counts = total_by(place, self.cases.weight, fewer[0].size).reshape(fewer[0].shape)
        total = counts.sum(axis=1, keepdims=True)
        seen = counts > 0
        strength = np.array(self.strengths)[:, None, None]
        kept = (counts - 1 + strength * fewer) / (total - 1 + strength)
        self.kept = np.where(seen, kept, 1.0)
        self.score = (counts[seen] * np.log(kept[:, seen])).sum(axis=1)

    def _best(self) -> tuple[int, ...] | None:
        """Return the parent or the pair to add next; None if nothing gains enough."""
        cells = self.cases.levels * math.prod(int(self.cases.sizes[p]) for p in self.parents)
        left = [v for v in range(len(self.cases.sizes)) if v not in self.parents]
        single = [(v, -1) for v in left if cells * self.cases.sizes[v] <= MOST_CELLS]
        gains = self._gains(single)
        useful = np.flatnonzero(np.isfinite(gains))
        # in a pair the better parent comes first, so that it is backed off to last
        ranked = [single[i][0] for i in useful[np.argsort(-gains[useful], kind="stable")]]
        pairs = [
            (u, v)
            for i, (u, v) in _ranked_pairs(ranked)
            if i < PARTNERS and cells * self.cases.sizes[u] * self.cases.sizes[v] <= MOST_CELLS
        ]
        options = single + pairs
        net = np.concatenate([gains, self._gains(pairs) - PAIR_COST])
        if len(net) == 0 or net.max() < LEAST_GAIN:
            return None
        return tuple(parent for parent in options[int(net.argmax())] if parent >= 0)

    def _gains(self, candidates: list[tuple[int, int]]) -> Floats:
        """Return what each candidate adds to the score, [C]."""
        scores = np.empty(len(candidates))
        if not candidates:
            return scores
        chosen = np.array(candidates, np.int64)

        def work(first: int, last: int) -> None:
            kernels.score_parents(
                first,
                last,
                chosen,
                self.cases.columns,
                self.cases.sizes,
                self.cell,
                self.kept.shape[1],
                self.cases.level,
                self.cases.levels,
                self.cases.weight,
                self.kept[0],
                self.strengths[0],
                scores,
            )

        if len(chosen) * len(self.cell) < SMALL:
            work(0, len(chosen))
        else:
            in_blocks(work, len(chosen))
        return scores - self.score[0]


def _ranked_pairs(ranked: list[int]) -> list[tuple[int, tuple[int, int]]]:
    """Return the pairs of ranked parents, each with the rank of its better one."""
    return [(i, (ranked[i], ranked[j])) for i, j in combinations(range(len(ranked)), 2)]

"""Search for counterexamples to counterfactual stability and monotonicity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from butfor.checks import check_distributions, check_whole
from butfor.mechanisms.protocol import Mechanism, check_mechanism, counterfactual_rows
from butfor.types import Floats

TOLERANCE = 1e-9  # ratios within this relative distance are tied; rarer moves do not count
SIZES = (2, 3, 4, 7)  # numbers of outcomes that a search tries
PAPER_EXAMPLE = ([0.25, 0.25, 0.3, 0.2], [0.0, 0.25, 0.25, 0.5])  # section 3.1 of the paper


@dataclass(frozen=True)
class Move:
    """The observed outcome under one row, and a possible outcome under the other."""

    factual: tuple[float, ...]
    counterfactual: tuple[float, ...]
    observed: int
    outcome: int
    probability: float  # of the outcome, given the observed one

    def __str__(self) -> str:
        rises = [
            _rise(self.factual[j], self.counterfactual[j]) for j in (self.outcome, self.observed)
        ]
        return (
            f"given outcome {self.observed} (counted from 0) under ({_join(self.factual)}), "
            f"outcome {self.outcome} has probability {self.probability:.6g} under "
            f"({_join(self.counterfactual)}), with q/p {rises[0]} against {rises[1]}"
        )


@dataclass(frozen=True)
class PropertyCheck:
    """The result of a search for a counterexample; true if none was found.

    Finding no counterexample is not a proof that the property holds.
    """

    mechanism: str
    property: str
    pairs: int  # pairs of rows examined
    counterexample: tuple[Move, ...] = ()  # one move, or two that contradict each other

    def __bool__(self) -> bool:
        return not self.counterexample

    def __str__(self) -> str:
        if self:
            pairs = "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"
            return f"{self.mechanism}: no counterexample to {self.property} in {pairs} of rows"
        moves = "; but ".join(map(str, self.counterexample))
        return f"{self.mechanism} breaks {self.property}: {moves}"


def is_stable(
    mechanism: Mechanism,
    factual: ArrayLike | None = None,
    counterfactual: ArrayLike | None = None,
    *,
    outcomes: int | None = None,
    trials: int = 200,
    seed: int = 0,
) -> PropertyCheck:
    """Search for a counterexample to counterfactual stability.

    Given k under p, another outcome j is possible under q only if its relative rise is larger:
    P(j | k) = 0 where q_k / p_k >= q_j / p_j.

    Parameters
    ----------
    factual, counterfactual : [n], optional
        The two rows to check, for every possible k. Without them, random pairs with and without
        zeros and ties are searched, starting with the paper's example.
    outcomes : optional
        Number of outcomes of random rows; by default several. A mechanism with a fixed order needs
        the number of outcomes that it orders.
    trials
        Number of random pairs.

    Notes
    -----
    Ratios within a relative 1e-9 of each other are tied, and P(j | k) up to 1e-9 counts as 0.
    """
    pairs = _pairs(factual, counterfactual, outcomes, trials, seed, _random_pair)
    return _search(mechanism, "counterfactual stability", pairs, _unstable_move)


def is_monotone(
    mechanism: Mechanism,
    factual: ArrayLike | None = None,
    counterfactual: ArrayLike | None = None,
    *,
    outcomes: int = 2,
    trials: int = 200,
    seed: int = 0,
) -> PropertyCheck:
    """Search for a counterexample to monotonicity: some noise moves up and other noise moves down.

    Outcomes are ordered by their numbers. Going from row p to row q, no two noises may move in
    opposite directions. For two outcomes this is the paper's definition: where the event becomes
    more likely, nobody who had it would lose it. It then follows from counterfactual stability, and
    determines all counterfactuals.

    Parameters
    ----------
    factual, counterfactual : [n], optional
        The two rows to check. Without them, random pairs are searched.
    outcomes
        Number of outcomes of random rows. With more than two, one row of each pair has the larger
        probability of every upper set: for other pairs every mechanism has to move both ways.
    trials
        Number of random pairs.

    Notes
    -----
    A move whose joint probability, with the observed outcome, is at most 1e-9 counts as 0.
    """
    pairs = _pairs(factual, counterfactual, outcomes, trials, seed, _ordered_pair)
    return _search(mechanism, "monotonicity", pairs, _opposite_moves)


Pair = tuple[Floats, Floats]


def _search(
    mechanism: Mechanism,
    name: str,
    pairs: Iterator[Pair],
    violation: Callable[[Floats, Floats, Floats], list[tuple[int, int]]],
) -> PropertyCheck:
    """Check pairs of rows up to the first violation, given as (observed, outcome)."""
    check_mechanism(mechanism)
    count = 0
    for p, q in pairs:
        count += 1
        possible = np.flatnonzero(p > 0)
        rows = np.zeros((len(p), len(p)))  # P(. | k), 0 where k is impossible
        rows[possible] = counterfactual_rows(mechanism, p, q, possible)
        found = violation(p, q, rows)
        if found:
            moves = tuple(
                Move(tuple(p.tolist()), tuple(q.tolist()), k, j, float(rows[k, j]))
                for k, j in found
            )
            return PropertyCheck(repr(mechanism), name, count, moves)
    return PropertyCheck(repr(mechanism), name, count)


def _unstable_move(p: Floats, q: Floats, rows: Floats) -> list[tuple[int, int]]:
    """Return the most probable move to an outcome whose ratio q / p is not larger."""
    rise = np.full(len(p), np.inf)
    with np.errstate(over="ignore"):  # infinity is correct here
        np.divide(q, p, out=rise, where=p > 0)
    forbidden = rise[:, None] >= rise[None, :] * (1 - TOLERANCE)
    np.fill_diagonal(forbidden, False)
    return _likeliest(np.where(forbidden, rows, 0.0))


def _opposite_moves(p: Floats, q: Floats, rows: Floats) -> list[tuple[int, int]]:
    """Return the most probable moves up and down, if there are both."""
    joint = p[:, None] * rows
    up, down = _likeliest(np.triu(joint, 1)), _likeliest(np.tril(joint, -1))
    return up + down if up and down else []


def _likeliest(move: Floats) -> list[tuple[int, int]]:
    k, j = np.unravel_index(int(move.argmax()), move.shape)
    return [(int(k), int(j))] if move[k, j] > TOLERANCE else []


def _pairs(
    factual: ArrayLike | None,
    counterfactual: ArrayLike | None,
    outcomes: int | None,
    trials: int,
    seed: int,
    draw: Callable[[int, np.random.Generator], Pair],
) -> Iterator[Pair]:
    """Return the given pair, or pairs to search."""
    if (factual is None) != (counterfactual is None):
        raise ValueError("give both rows, or neither to search random ones")
    check_whole(trials, "trials", 1, "a whole number of pairs")
    if factual is not None and counterfactual is not None:
        p = check_distributions(factual, "factual row")
        q = check_distributions(counterfactual, "counterfactual row")
        if p.ndim != 1 or p.shape != q.shape:
            raise ValueError(f"rows of shapes {p.shape} and {q.shape}: give two rows [n]")
        return iter([(p, q)])
    if outcomes is not None:
        check_whole(outcomes, "outcomes", 2, "the number of outcomes")
    return _draw_pairs(SIZES if outcomes is None else (outcomes,), trials, seed, draw)


def _draw_pairs(
    sizes: tuple[int, ...],
    trials: int,
    seed: int,
    draw: Callable[[int, np.random.Generator], Pair],
) -> Iterator[Pair]:
    if draw is _random_pair and len(PAPER_EXAMPLE[0]) in sizes:
        yield np.array(PAPER_EXAMPLE[0]), np.array(PAPER_EXAMPLE[1])
    generator = np.random.default_rng(seed)
    for trial in range(trials):
        yield draw(sizes[trial % len(sizes)], generator)


def _random_pair(size: int, generator: np.random.Generator) -> Pair:
    """Draw two rows: of small counts, with ties and zeros, or of any numbers; sometimes equal."""
    kind = generator.integers(4)
    if kind == 0:
        row = generator.dirichlet(np.ones(size))
        return row, row.copy()
    if kind == 1:
        p, q = generator.dirichlet(np.ones(size), 2)
        return p, q
    counts = generator.integers(4, size=(2, size)).astype(np.float64)
    counts[np.arange(2), generator.integers(size, size=2)] += 1
    p, q = counts / counts.sum(axis=1, keepdims=True)
    return p, q


def _ordered_pair(size: int, generator: np.random.Generator) -> Pair:
    """Draw two rows, one with the larger probability of every upper set."""
    sums = np.cumsum(_random_pair(size, generator), axis=1)
    highest, lowest = (np.diff(f(sums, axis=0), prepend=0.0) for f in (np.max, np.min))
    pair = [np.maximum(row, 0.0) / np.maximum(row, 0.0).sum() for row in (highest, lowest)]
    first = int(generator.integers(2))
    return pair[first], pair[1 - first]


def _join(row: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in row)


def _rise(p: float, q: float) -> str:
    return f"{q / p:.4g}" if p > 0 else "infinite"

"""Models drawn from the posterior: what the counts of a log leave open about its model.

The prior is a hierarchy: the row of a state and an action is Dirichlet around the row of the state,
that around the overall row, and that over everything that can occur at all, which is every next
state reached in the log and every outcome. How strongly each pulls, its weight in cases, is drawn
from its posterior too (see `Hierarchy`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor.checks import check_pseudo_count, check_whole
from butfor.log.episodes import Episodes
from butfor.models.backoff import STRENGTHS
from butfor.models.factored import AnyFactor, Factor, FactoredModel
from butfor.models.fit import Counted, count_transitions
from butfor.models.hierarchy import BETWEEN, BURN, WEIGHTS, Hierarchy, draw_gamma, normalized
from butfor.models.mdp import TabularMDP, assemble
from butfor.random import check_seed
from butfor.types import Floats, Offsets

MOST_NUMBERS = 300_000_000  # in the tables of all models
MOST_CELLS = 50_000_000  # states, actions and next states: the table of counts


class Drawn(NamedTuple):
    """One model drawn from the posterior."""

    probability: Floats  # [E] of the entries of the posterior
    around: Floats  # [S, K] the weighted row of each state, around which those of its pairs vary
    weight: Floats  # [3] of overall row, rows of states, rows of pairs
    seed: int  # of what `Posterior.elsewhere` draws


class Posterior:
    """The posterior of a log's model, whose models have one support.

    Entries are all K next states that can occur, in every row. If it is not `whole`, they are the
    outcomes and what was seen from the state under any action, and a last entry of each row, column
    K, is the probability of everything else; `elsewhere` divides it.
    """

    def __init__(
        self, episodes: Episodes, *, terminal: str = "visits", most: float = np.inf
    ) -> None:
        """Count the transitions of a log; it is whole if S K are at most so many."""
        counted = count_transitions(episodes, terminal=terminal, unseen="self-loop", prior=0.0)
        self.counted, self.columns = counted, _possible(counted)
        self.counts, self.reward = _tables(counted, self.columns)
        states, actions, size = self.counts.shape
        self.outside = np.zeros((states, size), dtype=bool)
        if states * size > most:
            self.outside = self.counts.sum(axis=1) == 0
            self.outside[:, self.columns >= states] = False
            # without outcomes, a state that was never left needs something to lead to
            nowhere = self.outside.all(axis=1)
            self.outside[nowhere, self.counts.sum(axis=(0, 1)).argmax()] = False
        inside = np.ones((states, size + 1), dtype=bool)
        inside[:, :size], inside[:, size] = ~self.outside, self.outside.any(axis=1)
        row, self.column = np.nonzero(np.repeat(inside, actions, axis=0))
        self.state = row // actions
        self.start: Offsets = np.append(0, np.cumsum(np.bincount(row, minlength=states * actions)))
        padded = np.concatenate([self.counts, np.zeros((states, actions, 1))], axis=2)
        self._cases = padded.reshape(states * actions, -1)[row, self.column]

    def draw(self, count: int, *, seed: int, weights: Floats | None = None) -> Iterator[Drawn]:
        """Draw models one after another, with these weights [3] if given.

        Model b depends on the seed and b only.
        """
        generator = np.random.default_rng(seed)
        hierarchy = self._hierarchy(generator, weights)
        hierarchy.run(BURN)
        for _ in range(count):
            hierarchy.run(BETWEEN)
            cases, around = self._cases_around(hierarchy)
            probability = self._normalized(draw_gamma(cases, generator))
            rest = int(generator.integers(2**63))
            yield Drawn(probability, around, hierarchy.weight.copy(), rest)

    def mean(self) -> TabularMDP:
        """Return the model of the mean rows, with weights in the middle of what is possible."""
        hierarchy = self._hierarchy(np.random.default_rng(0), None)
        return self.model(self._normalized(self._cases_around(hierarchy)[0]))

    def _hierarchy(self, generator: np.random.Generator, weights: Floats | None) -> Hierarchy:
        possible = [WEIGHTS] * 3 if weights is None else list(weights.reshape(3, 1))
        return Hierarchy(self.counts, possible=possible, generator=generator)

    def _cases_around(self, hierarchy: Hierarchy) -> tuple[Floats, Floats]:
        """Return the cases of each entry with those of the prior, [E], and the latter, [S, K]."""
        around = hierarchy.weight[-1] * hierarchy.base[:, 0]
        rest = np.where(self.outside, around, 0.0).sum(axis=1, keepdims=True)
        prior = np.concatenate([around, rest], axis=1)
        return self._cases + prior[self.state, self.column], around

    def _normalized(self, weight: Floats) -> Floats:
        total = np.add.reduceat(weight, self.start[:-1])
        return np.asarray(weight / np.repeat(total, np.diff(self.start)))

    def elsewhere(self, drawn: Drawn, states: NDArray[np.integer]) -> Floats:
        """Draw how the last entries of rows of these states are divided, [J, K]; 0 without one."""
        outside = self.outside[states]
        divided = np.zeros(outside.shape)
        generator = np.random.default_rng(drawn.seed)
        divided[outside] = draw_gamma(drawn.around[states][outside], generator)
        total = divided.sum(axis=1, keepdims=True)
        return divided / np.where(total > 0, total, 1.0)

    def model(self, probability: Floats) -> TabularMDP:
        """Return a model with the entries that are no rest."""
        states, actions, size = self.counts.shape
        kept = self.column < size
        row = np.repeat(np.arange(states * actions), np.diff(self.start))[kept]
        column = self.column[kept]
        counted = self.counted
        return assemble(
            row * (states + len(counted.outcomes)) + self.columns[column],
            probability[kept],
            self.reward.reshape(states * actions, size)[row, column],
            states=states,
            actions=actions,
            outcomes=counted.outcomes,
            labels=None,
            initial=counted.first / counted.first.sum(),
            counts=counted.counts,
            unseen=counted.made_up,
            terminal=counted.terminal,
            durations=counted.durations,
        )


@dataclass(frozen=True, eq=False)
class DrawnModels:
    """B models of one support."""

    mean: TabularMDP  # their mean, whose entries all of them have
    probability: Floats  # [E, B]
    weight: Floats  # [3, B]

    def model(self, b: int) -> TabularMDP:
        """Return model b."""
        return replace(self.mean, probability=np.ascontiguousarray(self.probability[:, b]))


def draw_models(
    episodes: Episodes,
    *,
    models: int = 200,
    prior: float | None = None,
    seed: int = 0,
    terminal: str = "visits",
) -> DrawnModels:
    """Draw models from the posterior of what a log tells, with every next state that can occur.

    Parameters
    ----------
    prior : number above 0, optional
        The weights of the hierarchy, in cases, if they are to be fixed; by default they are drawn.

    Notes
    -----
    Rows of pairs that were never seen are drawn around the row of their state, those of states that
    were never left around the overall row. A transition that was never seen earns the mean reward
    of the same move under other actions, else of arriving there from anywhere, else that of the
    outcome. Model b depends on the seed and b only.
    """
    check_whole(models, "models", 1, "a whole number")
    check_seed(seed)
    weights = fixed_weights(prior)
    check_cells(episodes)
    posterior = Posterior(episodes, terminal=terminal)
    check_memory(len(posterior.column), models)
    drawn = list(posterior.draw(models, seed=seed, weights=weights))
    probability = np.stack([one.probability for one in drawn], axis=1)
    mean = posterior.model(probability.mean(axis=1))
    return DrawnModels(mean, probability, np.stack([one.weight for one in drawn], axis=1))


def fixed_weights(prior: float | None) -> Floats | None:
    """Return the weights that a prior fixes; None if they are to be drawn."""
    if prior is None:
        return None
    if not 0 < prior < math.inf:
        raise ValueError(
            f"prior {prior}: give the weight of the prior in cases, a number above 0, or leave it "
            "out; with 0 a row seen once would be certain"
        )
    return np.full(3, check_pseudo_count(prior, "prior"))


def count_cells(episodes: Episodes) -> int:
    """Return the number of possible transitions."""
    return episodes.n_states * episodes.n_actions * (episodes.n_states + len(episodes.outcomes))


def check_cells(episodes: Episodes) -> None:
    """Refuse more states than the table of counts has memory for."""
    cells = count_cells(episodes)
    if cells > MOST_CELLS:
        raise ValueError(
            f"{episodes.n_states} states and {episodes.n_actions} actions: credible intervals of a "
            f"tabular model take at most {MOST_CELLS:,} transitions, and {cells:,} are possible; "
            "use fewer states, or a factored model"
        )


def check_memory(entries: int, models: int) -> None:
    """Refuse more models than fit into memory."""
    if entries * models > MOST_NUMBERS:
        raise ValueError(
            f"models {models}: with {entries} transitions there is memory for at most "
            f"{MOST_NUMBERS // entries}; draw fewer"
        )


def _possible(counted: Counted) -> NDArray[np.int64]:
    """Return the next states that can occur: all that were reached, and every outcome."""
    states = len(counted.counts)
    width = states + len(counted.outcomes)
    seen = ~counted.made_up.ravel()[counted.keys // width]
    return np.union1d(counted.keys[seen] % width, np.arange(states, width))


def _tables(counted: Counted, columns: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return counts and rewards, [S, A, K]."""
    states, actions = counted.counts.shape
    row, reached = np.divmod(counted.keys, states + len(counted.outcomes))
    seen = ~counted.made_up.ravel()[row]
    at = (row[seen] // actions, row[seen] % actions, np.searchsorted(columns, reached[seen]))
    counts = np.zeros((states, actions, len(columns)))
    counts[at] = counted.weight[seen]
    earned = np.zeros_like(counts)
    earned[at] = counted.weight[seen] * counted.reward[seen]
    value = np.zeros(len(columns))
    value[columns >= states] = [outcome.reward for outcome in counted.outcomes]
    reward = value[None, None]
    for axes in ((0, 1), 1):
        cases = counts.sum(axis=axes, keepdims=True)
        mean = earned.sum(axis=axes, keepdims=True) / np.maximum(cases, 1.0)
        reward = np.where(cases > 0, mean, reward)
    table = np.broadcast_to(reward, counts.shape).copy()
    table[at] = np.where(counts[at] > 0, earned[at] / np.maximum(counts[at], 1.0), table[at])
    return counts, table


@dataclass(frozen=True, eq=False)
class DrawnFactored:
    """B models with the same parents; tables that were not counted are the same in all."""

    mean: FactoredModel
    tables: tuple[Floats, ...]  # by factor: [B, levels of parents …, levels], or without B

    def model(self, b: int) -> FactoredModel:
        """Return model b."""
        factors = [
            replace(factor, table=table[b])
            if isinstance(factor, Factor) and table.ndim > factor.table.ndim
            else factor
            for factor, table in zip(self.mean.factors, self.tables, strict=True)
        ]
        return replace(self.mean, factors=tuple(factors))


def draw_factored(
    model: FactoredModel, count: int = 200, *, seed: int = 0, strength: float | None = None
) -> DrawnFactored:
    """Draw models from the posterior of the tables that were learned by counting.

    A row is Dirichlet around the row with one parent fewer (see `backoff_table`), itself drawn in
    the same way: what was never seen is drawn from there. The strength of a table's back-off is
    drawn too, or with `strength` fixed at so many times what was chosen. Parents, and which of them
    the back-off drops, stay as chosen, as do tables of classifiers, given tables, rewards and first
    states: intervals of these draws do not contain that uncertainty. Model b depends on the seed
    and b only.
    """
    check_whole(count, "count", 1, "a whole number of models")
    check_seed(seed)
    numbers = sum(factor.table.size for factor in model.factors if is_counted(factor))
    if numbers * count > MOST_NUMBERS:
        raise ValueError(
            f"count {count}: with tables of {numbers} numbers there is memory for at most "
            f"{MOST_NUMBERS // numbers}; draw fewer"
        )
    tables = [
        draw_tables(factor, count, np.random.default_rng([seed, i]), strength=strength)
        if is_counted(factor)
        else factor.table
        for i, factor in enumerate(model.factors)
    ]
    return DrawnFactored(model, tuple(tables))


def is_counted(factor: AnyFactor) -> bool:
    """Whether a table was learned by counting, so that it has a posterior."""
    return not math.isnan(factor.strength)


def draw_tables(
    factor: AnyFactor,
    count: int,
    generator: np.random.Generator,
    *,
    strength: float | None = None,
) -> Floats:
    """Draw tables with back-off from their posterior, [B, levels of parents …, levels]."""
    values = np.array(STRENGTHS) if strength is None else np.array([strength * factor.strength])
    hierarchy = Hierarchy(
        factor.counts,
        possible=[values] * factor.counts.ndim,
        generator=generator,
        every=factor.every,
        tied=True,
    )
    hierarchy.run(BURN)
    tables = np.empty((count, *factor.counts.shape))
    for table in tables:
        hierarchy.run(BETWEEN)
        cases = factor.counts + hierarchy.weight[-1] * hierarchy.base
        table[:] = normalized(draw_gamma(cases, generator))
    return tables

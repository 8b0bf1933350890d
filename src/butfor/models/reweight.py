"""Reweighting: the model that a log would have taught had some episodes counted less than others.

The structure of a model stays as it was learned from the whole log: the support of its rows, the
parents of its variables and their back-off. Only counts change, so that a model is learned again in
no time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from butfor.log.episodes import Episodes
from butfor.models.backoff import backoff_table
from butfor.models.factored import END, NEXT, AnyFactor, Factor, FactoredModel
from butfor.models.fit import count_transitions
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.policies import action_counts
from butfor.models.posterior import is_counted
from butfor.models.transitions import Transitions, logged_transitions
from butfor.types import Floats, Offsets

Reweight = Callable[[Floats], TabularMDP | FactoredModel]  # weights of transitions [m] -> model


def reweighting(model: Any, log: Episodes) -> Reweight | None:
    """Return what learns a model again from its log, given weights [n] of the episodes.

    None if the model was not learned from this log by counting: it was given, or learned from
    another log or by a classifier.
    """
    if log.combinations is not None or not np.array_equal(model.counts, action_counts(log)):
        return None
    rows = logged_transitions(log)
    again = reweight_transitions(model, rows, _constant(model, log))
    if again is None or not _agree(again(np.ones(len(rows.state))), model):
        return None
    episode = np.repeat(np.arange(len(log)), log.lengths)
    return lambda weights: again(weights[episode])


def _agree(one: Any, other: Any) -> bool:
    """Whether two models of the same structure have the same probabilities."""
    pairs = zip(_tables(one), _tables(other), strict=True)
    return all(np.allclose(mine, yours) for mine, yours in pairs)


def _tables(model: TabularMDP | FactoredModel) -> list[Floats]:
    if isinstance(model, TabularMDP):
        return [model.probability]
    return [factor.table for factor in model.factors if isinstance(factor, Factor)]


def reweight_transitions(
    model: Any, rows: Transitions, constant: Floats | None = None
) -> Reweight | None:
    """Return what learns a model again from transitions, given weights [m] instead of counts.

    `constant` [E] is what the entries of a tabular model weigh beside the transitions; by default
    its prior.
    """
    if isinstance(model, FactoredModel):
        cells = [_cells(factor, rows) for factor in model.factors]
        if any(isinstance(cell, str) for cell in cells):
            return None
        return _Factored(model, tuple(cells)).learn
    if not isinstance(model, TabularMDP) or model.prior is None:
        return None
    entry = _entries(model, rows)
    if constant is None:
        constant = np.full(len(model.probability), model.prior)
    return _Tabular(model, entry, rows.reward / rows.weight, constant).learn


@dataclass(frozen=True, eq=False)
class _Tabular:
    """Learns a tabular model again; pairs never seen keep their rule."""

    model: TabularMDP
    entry: Offsets  # [m] of each transition
    reward: Floats  # [m] mean
    constant: Floats  # [E]

    def learn(self, weights: Floats) -> TabularMDP:
        model, size = self.model, len(self.constant)
        logged = total_by(self.entry, weights, size)
        earned = total_by(self.entry, weights * self.reward, size)
        seen = ~model.unseen.ravel()[model.entry_row]
        counted = np.where(seen, logged + self.constant, model.probability)
        total = total_by(model.entry_row, counted, len(model.start) - 1)
        return replace(
            model,
            probability=counted / total[model.entry_row],
            # only where it was logged, and nothing else belongs to the entry
            reward=np.where(logged > 0, earned / np.maximum(logged, 1e-300), model.reward)
            if model.terminal == "visits"
            else model.reward,
        )


@dataclass(frozen=True, eq=False)
class _Factored:
    """Learns the counted tables of a factored model again; mean rewards stay."""

    model: FactoredModel
    cells: tuple[Any, ...]  # [m] of each transition in each table; None: the table is not counted

    def learn(self, weights: Floats) -> FactoredModel:
        pairs = zip(self.model.factors, self.cells, strict=True)
        factors = [
            factor if cell is None else _learn_table(factor, cell, weights)
            for factor, cell in pairs
        ]
        return replace(self.model, factors=tuple(factors))


def _learn_table(factor: AnyFactor, cell: Offsets, weights: Floats) -> Factor:
    assert isinstance(factor, Factor)
    used = cell >= 0
    counts = total_by(cell[used], weights[used], factor.table.size).reshape(factor.table.shape)
    table = backoff_table(counts, factor.strength, every=factor.every)
    return replace(factor, counts=counts, table=table)


def _cells(factor: AnyFactor, rows: Transitions) -> Offsets | str | None:
    """Return the cell of each transition in a counted table, -1 where it tells nothing."""
    if not isinstance(factor, Factor) or not is_counted(factor):
        return None if not factor.learned or factor.source == "given" else "not counted"
    codes = rows.codes
    level = rows.end if factor.variable == END else codes[NEXT + factor.variable]
    place = np.asarray(factor.place(codes, len(level)) * factor.levels + level)
    needed = factor.variable or any(parent.startswith(NEXT) for parent in factor.parents)
    return np.where((level >= 0) & (rows.next_state >= 0), place, -1) if needed else place


def _entries(model: TabularMDP, rows: Transitions) -> Offsets:
    """Return the entry of each transition among those of the model."""
    columns = model.n_states + len(model.outcomes)
    keys = model.entry_row * columns + model.next_state
    order = np.argsort(keys)
    ends = (rows.end < len(model.outcomes)) & (model.terminal == "visits")
    reached = np.where(ends, model.n_states + rows.end, rows.next_state)
    logged = (rows.state * model.n_actions + rows.action) * columns + reached
    place = np.searchsorted(keys, logged, sorter=order)
    return np.asarray(order[np.minimum(place, len(keys) - 1)])


def _constant(model: Any, log: Episodes) -> Floats | None:
    """Return what the entries of a model weigh beside logged transitions, with icml2019 ends."""
    if not isinstance(model, TabularMDP) or model.terminal == "visits" or model.prior is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about varying rewards, reported when it was learned
        counted = count_transitions(
            log, terminal=model.terminal, unseen="self-loop", prior=model.prior
        )
    columns = model.n_states + len(model.outcomes)
    keys = model.entry_row * columns + model.next_state
    seen = ~model.unseen.ravel()[model.entry_row]
    weight = np.zeros(len(keys))
    weight[seen] = counted.weight[np.searchsorted(counted.keys, keys[seen])]
    entry = _entries(model, logged_transitions(log))
    return weight - np.bincount(entry, minlength=len(keys))

"""Factored models drawn from the posterior: what the counts of a log leave open."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from butfor.checks import check_whole
from butfor.models.backoff import build_table
from butfor.models.factored import AnyFactor, Factor, FactoredModel
from butfor.models.posterior import LEAST, MOST_NUMBERS
from butfor.random import check_seed
from butfor.types import Floats


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


def draw_factored(model: FactoredModel, count: int = 200, *, seed: int = 0) -> DrawnFactored:
    """Draw models from the posterior of the tables that were learned by counting.

    A row is Dirichlet(n + strength P), where P is the row with one parent fewer (see
    `backoff_table`), itself drawn in the same way. Parents and back-off stay as chosen, as
    do tables of classifiers, given tables, rewards and first states: intervals of these draws do
    not contain that uncertainty. Model b depends on the seed and b only.
    """
    check_whole(count, "count", 1, "a whole number of models")
    check_seed(seed)
    numbers = sum(factor.table.size for factor in model.factors if is_counted(factor))
    if numbers * count > MOST_NUMBERS:
        raise ValueError(
            f"count {count}: with tables of {numbers} numbers there is memory for at most "
            f"{MOST_NUMBERS // numbers}"
        )
    generators = [np.random.default_rng([seed, b]) for b in range(count)]
    tables = [
        np.stack([draw_table(factor, one) for one in generators])
        if is_counted(factor)
        else factor.table
        for factor in model.factors
    ]
    return DrawnFactored(model, tuple(tables))


def is_counted(factor: AnyFactor) -> bool:
    """Whether a table was learned by counting, so that it has a posterior."""
    return not math.isnan(factor.strength)


def draw_table(factor: AnyFactor, generator: np.random.Generator) -> Floats:
    """Draw a table with back-off from its posterior, beginning without parents."""

    def drawn(n: Floats, fewer: Floats) -> Floats:
        gamma = np.maximum(generator.standard_gamma(n + factor.strength * fewer), LEAST)
        return np.asarray(gamma / gamma.sum(axis=-1, keepdims=True))

    return build_table(factor.counts[None], drawn, every=factor.every)[0]

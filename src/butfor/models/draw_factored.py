"""Factored models drawn from the posterior: what the counts of a log leave open."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from butfor.checks import check_whole
from butfor.models.backoff import STRENGTHS
from butfor.models.factored import AnyFactor, Factor, FactoredModel
from butfor.models.hierarchy import BETWEEN, BURN, Hierarchy, draw_gamma, normalized
from butfor.models.posterior import MOST_NUMBERS
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

"""A discrete SCM with its noise spelled out: a Gumbel vector for each variable, two worlds from it.

Draw the noise of every variable, work out the factual and the counterfactual world as functions of
that same noise, and keep the draws in which the factual world shows the evidence.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from tests.reference.gumbel import counterfactual_outcome, draw_gumbel


class Table(NamedTuple):
    """Rows of a variable by the values of its parents."""

    parents: Sequence[str]
    rows: Mapping[tuple[int, ...], Sequence[float]]


def count_counterfactuals(
    factual: Mapping[str, Table],
    counterfactual: Mapping[str, Table],
    evidence: Mapping[str, int],
    targets: Sequence[str],
    draws: int,
    random: Random,
) -> Counter[tuple[int, ...]]:
    """Count the targets' values in counterfactual worlds whose factual twin shows the evidence."""
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(draws):
        noise = draw_noise(factual, random)
        seen = world(factual, noise)
        if all(seen[name] == value for name, value in evidence.items()):
            other = world(counterfactual, noise)
            counts[tuple(other[name] for name in targets)] += 1
    return counts


def draw_noise(tables: Mapping[str, Table], random: Random) -> dict[str, list[float]]:
    """Draw independent Gumbel noise, one number for each value of each variable."""
    return {
        name: [draw_gumbel(random) for _ in next(iter(table.rows.values()))]
        for name, table in tables.items()
    }


def world(tables: Mapping[str, Table], noise: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """Return every variable's value: argmax of log p + g, parents before children."""
    values: dict[str, int] = {}

    def value(name: str) -> int:
        if name not in values:
            parents, rows = tables[name]
            row = rows[tuple(value(parent) for parent in parents)]
            values[name] = counterfactual_outcome(row, noise[name])
        return values[name]

    return {name: value(name) for name in tables}

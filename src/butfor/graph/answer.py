"""The answer to a query: probabilities and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from butfor.checks import check_choice, check_whole
from butfor.graph.tables import level_code
from butfor.graph.worlds import Key, Node, TooManyWorldsError, Worlds, draw_worlds, enumerate_worlds
from butfor.log.variables import Variable
from butfor.printed import Printed
from butfor.types import Floats

MOST_WORLDS = 2_000_000  # partial worlds that enumeration may hold in memory
METHODS = ("auto", "exact", "sampled")


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Printed):
    """Probabilities of the requested levels, or of an event: one number, `float(answer)`."""

    variables: tuple[Variable, ...]  # one per axis, none for an event
    probability: Floats  # [levels of each variable]; [] for an event
    standard_error: Floats  # of the same shape; 0 if exact, or if no draw or every draw hits
    exact: bool
    draws: int  # number of draws, 0 if exact

    def __float__(self) -> float:
        if self.variables:
            names = ", ".join(repr(variable.name) for variable in self.variables)
            raise ValueError(
                f"a distribution of {names} is not one number; select a level with answer[…]"
            )
        return float(self.probability)

    def __getitem__(self, levels: Any) -> float:
        """Return the probability of one level, or of a tuple with a level of each variable."""
        named = levels if isinstance(levels, tuple) else (levels,)
        if len(named) != len(self.variables):
            raise ValueError(
                f"{levels!r}: give one level for each of {len(self.variables)} variables"
            )
        pairs = zip(self.variables, named, strict=True)
        return float(self.probability[tuple(level_code(v, at, "answer") for v, at in pairs)])

    def frame(self) -> pd.DataFrame:
        """Return one row per combination of levels: its probability and standard error."""
        columns = {"probability": np.ravel(self.probability)}
        columns["standard error"] = np.ravel(self.standard_error)
        levels, names = [v.levels for v in self.variables], [v.name for v in self.variables]
        index = pd.MultiIndex.from_product(levels, names=names) if names else None
        return pd.DataFrame(columns, index=index)


def ask(
    nodes: Mapping[Key, Node],
    targets: Sequence[tuple[Variable, Key]],
    event: Sequence[Any] | None,
    *,
    method: str,
    draws: int,
    seed: int | np.random.Generator,
) -> Answer:
    """Return the distribution of nodes, or the probability that all are at the event's levels.

    `event` has one mask for each target. "auto" enumerates if that takes at most `MOST_WORLDS`
    partial worlds, and samples otherwise.
    """
    check_choice(method, "method", METHODS)
    draws = check_whole(draws, "draws", 2, "a number of draws")
    keys = [key for _, key in targets]
    cells = math.prod(len(variable.levels) for variable, _ in targets)
    if event is None and cells > MOST_WORLDS:
        raise ValueError(
            f"the joint distribution has {cells:,} cells, more than {MOST_WORLDS:,}; give fewer "
            "variables, or an event {name: level}"
        )
    exact = method != "sampled"
    if exact:
        try:
            worlds = enumerate_worlds(nodes, keys, MOST_WORLDS)
        except TooManyWorldsError:
            if method == "exact":
                raise
            exact = False
    if not exact:
        worlds = draw_worlds(nodes, keys, draws, np.random.default_rng(seed))
    variables: tuple[Variable, ...] = ()
    if event is None:
        variables = tuple(variable for variable, _ in targets)
        share, error = _shares(worlds, tuple(len(variable.levels) for variable in variables))
    else:
        hit = np.all([mask[at] for mask, at in zip(event, worlds.codes, strict=True)], axis=0)
        shares = _shares(Worlds([hit.astype(np.int64)], worlds.weight), (2,))
        share, error = (np.asarray(values[1]) for values in shares)
    return Answer(
        variables=variables,
        probability=share,
        standard_error=np.zeros_like(share) if exact else error,
        exact=exact,
        draws=0 if exact else draws,
    )


def _shares(worlds: Worlds, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the weighted shares of cells and their errors, sqrt(sum w^2 (x - share)^2) / sum w."""
    cell = np.ravel_multi_index(worlds.codes, shape)
    size = int(np.prod(shape))
    total = worlds.weight.sum()
    share = np.minimum(np.bincount(cell, worlds.weight, size) / total, 1.0)
    squares = np.bincount(cell, worlds.weight**2, size)
    # (x - share)^2 is (1 - share)^2 inside the cell and share^2 outside
    spread = squares * (1 - share) ** 2 + (squares.sum() - squares) * share**2
    return share.reshape(shape), (np.sqrt(spread) / total).reshape(shape)

"""Tables of a discrete SCM, counted from cases."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_pseudo_count
from butfor.graph.tables import MOST_CELLS, Network
from butfor.types import Floats


def count_tables(
    frame: pd.DataFrame, graph: nx.DiGraph | Iterable[tuple[str, str]], prior: float
) -> Network:
    """Return levels, parents and tables by variable."""
    check_pseudo_count(prior, "prior")
    arrows = graph if isinstance(graph, nx.DiGraph) else nx.DiGraph(list(graph))
    if not arrows.nodes:
        raise ValueError("the graph has no variables; give edges, or a DiGraph with nodes")
    if not nx.is_directed_acyclic_graph(arrows):
        path = " → ".join(repr(edge[0]) for edge in nx.find_cycle(arrows))
        raise ValueError(f"the graph makes a cycle: {path} and back; remove one of these arrows")
    if len(frame) == 0:
        raise ValueError("the frame has no rows; give at least one case")
    levels, codes = {}, {}
    for name in arrows.nodes:
        levels[name], codes[name] = _read_column(frame, name)
    parents = {name: list(arrows.predecessors(name)) for name in arrows.nodes}
    tables = {name: _count(name, parents[name], levels, codes, prior) for name in arrows.nodes}
    return levels, parents, tables


def _read_column(frame: pd.DataFrame, name: str) -> tuple[list[str], NDArray[np.int64]]:
    if name not in frame.columns:
        columns = ", ".join(map(repr, frame.columns))
        raise ValueError(f"the frame has no column {name!r}; it has {columns}")
    column = frame[name]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"the frame has two columns {name!r}; drop one of them")
    empty = column.isna().to_numpy()
    if empty.any():
        raise ValueError(
            f"row {int(empty.argmax())}: {name!r} is missing; fill it, drop the row, or give "
            "missing values their own level"
        )
    if isinstance(column.dtype, pd.CategoricalDtype):
        found: Any = column.cat
        return [str(level) for level in found.categories], found.codes.to_numpy(np.int64)
    found, values = pd.factorize(column, sort=True)
    return [str(level) for level in values], found.astype(np.int64)


def _count(
    name: str,
    parents: list[str],
    levels: dict[str, list[str]],
    codes: dict[str, NDArray[np.int64]],
    prior: float,
) -> Floats:
    shape = tuple(len(levels[variable]) for variable in (*parents, name))
    if math.prod(shape) > MOST_CELLS:
        raise ValueError(
            f"the table of {name!r} would have {math.prod(shape):,} cells, more than "
            f"{MOST_CELLS:,}; give it fewer parents, or give these fewer levels"
        )
    cell = np.ravel_multi_index([codes[variable] for variable in (*parents, name)], shape)
    counts = np.bincount(cell, minlength=math.prod(shape)).reshape(shape) + float(prior)
    totals = counts.sum(axis=-1, keepdims=True)
    unseen = np.argwhere(totals[..., 0] == 0)
    if len(unseen):
        at = zip(parents, unseen[0].tolist(), strict=True)
        shown = ", ".join(f"{parent} = {levels[parent][code]}" for parent, code in at)
        raise ValueError(
            f"{name!r}: no case with {shown} ({len(unseen)} such combinations); give prior=1 for "
            "uniform rows, merge levels, or drop a parent"
        )
    return counts / totals

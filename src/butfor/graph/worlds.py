"""The factual and the counterfactual world as one network, enumerated or sampled.

A node is a variable in one world. The parents of a counterfactual node are its counterfactual
parents, its factual twin and the twin's parents; its row is given by the mechanism. So abduction
(conditioning the factual nodes on evidence) and prediction (pushing probabilities through the
network) are one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from butfor.graph.tables import Masks, Table
from butfor.mechanisms.protocol import Mechanism, counterfactual_rows
from butfor.types import Floats

FACTUAL, COUNTERFACTUAL = 0, 1
Key = tuple[str, int]  # variable, world
Columns = dict[Key, NDArray[np.int64]]  # level codes, one per partial world
Rows = Callable[[Columns, int], Floats]  # from columns and their length: [worlds, levels]


class Node(NamedTuple):
    """One variable in one world."""

    parents: tuple[Key, ...]
    levels: int
    rows: Rows
    allowed: NDArray[np.bool_] | None = None  # [levels] by the evidence, None without evidence


class Worlds(NamedTuple):
    """Weighted combinations of the levels of some nodes."""

    codes: list[NDArray[np.int64]]  # [worlds] for each requested node
    weight: Floats  # [worlds]


class TooManyWorldsError(ValueError):
    """Enumeration would hold more partial worlds than it may."""


def graph_of(children: Mapping[str, Table] | Mapping[Key, Node]) -> nx.DiGraph:
    """Return the graph defined by the parents of tables or nodes."""
    graph = nx.DiGraph()
    graph.add_nodes_from(children)
    graph.add_edges_from((parent, key) for key, one in children.items() for parent in one.parents)
    return graph


# ------------------------------------------------------------------------------------- networks


def factual_nodes(tables: Mapping[str, Table], evidence: Masks) -> dict[Key, Node]:
    """Return the nodes of one world, with its evidence."""
    nodes = {}
    for name, table in tables.items():
        parents = [(parent, FACTUAL) for parent in table.parents]
        nodes[name, FACTUAL] = _plain_node(table, parents, evidence.get(name))
    return nodes


def twin_nodes(
    tables: Mapping[str, Table],
    evidence: Masks,
    action: Mapping[str, Table],
    mechanisms: Mapping[str, Mechanism],
) -> tuple[dict[Key, Node], dict[str, Key]]:
    """Return the nodes of both worlds, and each variable's node in the counterfactual one.

    A variable that no change reaches is the same in both worlds: it has one node.
    """
    nodes = factual_nodes(tables, evidence)
    after = graph_of(action)
    changed = [name for name in tables if action[name] is not tables[name]]
    reached = set(changed).union(*(nx.descendants(after, name) for name in changed))
    place = {name: (name, COUNTERFACTUAL if name in reached else FACTUAL) for name in tables}
    for name in (name for name in tables if name in reached):
        parents = [place[parent] for parent in action[name].parents]
        # where the levels of the parents determine the variable, the mechanism does not matter
        if (action[name].probability.max(axis=-1) == 1.0).all():
            node = _plain_node(action[name], parents, None)
        else:
            node = _twin_node(name, tables[name], action[name], parents, mechanisms[name])
        nodes[place[name]] = node
    return nodes, place


def _plain_node(table: Table, parents: Sequence[Key], allowed: NDArray[np.bool_] | None) -> Node:
    *shape, levels = table.probability.shape
    flat = table.probability.reshape(-1, levels)

    def rows(columns: Columns, count: int) -> Floats:
        return flat[_index(columns, parents, shape, count)]

    return Node(tuple(parents), levels, rows, allowed)


def _twin_node(
    name: str, table: Table, action: Table, parents: Sequence[Key], mechanism: Mechanism
) -> Node:
    """Return the node of P(counterfactual level | factual parents and level, new parents).

    Consistency comes first: the same parents with the same levels and an unchanged row give the
    factual level, whatever the mechanism.
    """
    own = (name, FACTUAL)
    before = [(parent, FACTUAL) for parent in table.parents]
    *shape, levels = table.probability.shape
    *other_shape, _ = action.probability.shape
    factual = table.probability.reshape(-1, levels)
    counterfactual = action.probability.reshape(-1, levels)
    comparable = table.parents == action.parents

    def rows(columns: Columns, count: int) -> Floats:
        p_at = _index(columns, before, shape, count)
        q_at = _index(columns, parents, other_shape, count)
        cases, case = np.unique(
            (p_at * levels + columns[own]) * len(counterfactual) + q_at, return_inverse=True
        )
        rest, q_at = np.divmod(cases, len(counterfactual))
        p_at, observed = np.divmod(rest, levels)
        p, q = factual[p_at], counterfactual[q_at]
        same = (p_at == q_at) & (p == q).all(axis=1) & comparable
        result = np.zeros((len(cases), levels))
        result[same, observed[same]] = 1.0
        if not same.all():
            result[~same] = counterfactual_rows(mechanism, p[~same], q[~same], observed[~same])
        return result[case]

    return Node((*before, own, *parents), levels, rows)


def _index(
    columns: Columns, keys: Sequence[Key], shape: Sequence[int], count: int
) -> NDArray[np.int64]:
    index = np.zeros(count, dtype=np.int64)
    for key, levels in zip(keys, shape, strict=True):
        index = index * levels + columns[key]
    return index


# ---------------------------------------------------------------------------------- computation


def enumerate_worlds(nodes: Mapping[Key, Node], targets: Sequence[Key], most: int) -> Worlds:
    """Return every combination of the targets' levels with its exact weight.

    Nodes are added one by one; partial worlds that agree in all nodes still needed are merged.
    """
    columns: Columns = {}
    weight = np.ones(1)
    for key, done in plan(nodes, targets):
        node = nodes[key]
        if len(weight) * node.levels > most:
            raise TooManyWorldsError(
                f"more than {most:,} partial worlds at {key[0]!r}; use method='sampled', or give "
                "more evidence"
            )
        rows = node.rows(columns, len(weight))
        if node.allowed is not None:
            rows = rows * node.allowed
        world, level = np.nonzero(rows)
        problem = f"the evidence has probability 0: no world remains at {key[0]!r}"
        weight = _scaled(weight[world] * rows[world, level], problem)
        columns = {other: codes[world] for other, codes in columns.items()} | {key: level}
        columns, weight = _merge(nodes, columns, weight, done)
    return Worlds([columns[key] for key in targets], weight)


def draw_worlds(
    nodes: Mapping[Key, Node], targets: Sequence[Key], draws: int, generator: np.random.Generator
) -> Worlds:
    """Return draws of the targets by likelihood weighting, without those of weight 0.

    A node with evidence is drawn among its allowed levels; the weight is their total probability.
    """
    columns: Columns = {}
    weight = np.ones(draws)
    for key, done in plan(nodes, targets):
        node = nodes[key]
        rows = node.rows(columns, len(weight))
        uniform = generator.random(len(weight))
        if node.allowed is not None:
            rows = rows * node.allowed
            weight = weight * rows.sum(axis=1)
            kept = weight > 0
            weight = _scaled(
                weight[kept],
                f"none of {draws:,} draws fits the evidence at {key[0]!r}: raise draws, or use "
                "method='exact'",
            )
            rows, uniform = rows[kept], uniform[kept]
            columns = {other: codes[kept] for other, codes in columns.items()}
        columns[key] = _draw(rows, uniform)
        for other in done:
            del columns[other]
    return Worlds([columns[key] for key in targets], weight)


def plan(nodes: Mapping[Key, Node], targets: Iterable[Key]) -> list[tuple[Key, tuple[Key, ...]]]:
    """Order the relevant nodes, parents first, so that few have to be kept at a time.

    Each comes with the nodes that are no longer needed afterwards. Only targets, evidence and their
    ancestors are relevant. The order is greedy: next comes the node after which the kept nodes have
    the fewest combinations of levels; among equals the one nearest to the roots of the graph, so
    that both worlds of a variable stay together.
    """
    graph, wanted = graph_of(nodes), set(targets)
    roots = wanted | {key for key, node in nodes.items() if node.allowed is not None}
    matter = roots.union(*(nx.ancestors(graph, key) for key in roots))
    children = {key: set(graph.successors(key)) & matter for key in matter}
    parents = {key: set(nodes[key].parents) for key in matter}
    size = {key: math.log(_free_levels(nodes[key])) for key in matter}
    # generations of the factual world before each variable
    factual = graph.subgraph([key for key in nodes if key[1] == FACTUAL])
    generations = enumerate(nx.topological_generations(factual))
    depth = {key[0]: place for place, generation in generations for key in generation}
    waiting = sorted((key for key in nodes if key in matter), key=lambda key: depth[key[0]])

    def finished(key: Key) -> tuple[Key, ...]:
        over = [p for p in parents[key] if p not in wanted and children[p] == {key}]
        return tuple(over) if children[key] or key in wanted else (*over, key)

    def growth(key: Key) -> float:
        return round(size[key] - math.fsum(size[other] for other in finished(key)), 9)

    steps = []
    added: set[Key] = set()
    while waiting:
        key = min((key for key in waiting if parents[key] <= added), key=growth)
        steps.append((key, finished(key)))
        added.add(key)
        waiting.remove(key)
        for parent in parents[key]:
            children[parent].discard(key)
    return steps


def _free_levels(node: Node) -> int:
    """Return an upper bound on the number of possible levels of a node."""
    possible = np.ones(node.levels, dtype=bool) if node.parents else node.rows({}, 1)[0] > 0
    return max(int((possible if node.allowed is None else possible & node.allowed).sum()), 1)


def _scaled(weight: Floats, problem: str) -> Floats:
    """Return weights relative to the largest, so that much evidence does not underflow."""
    if not weight.any():
        raise ValueError(f"{problem}; check whether its levels can occur together in the model")
    return weight / weight.max()


def _merge(
    nodes: Mapping[Key, Node], columns: Columns, weight: Floats, done: Sequence[Key]
) -> tuple[Columns, Floats]:
    """Drop finished nodes and sum the weights of worlds that have become equal."""
    if not done:
        return columns, weight
    columns = {key: codes for key, codes in columns.items() if key not in done}
    combination, combinations = np.zeros(len(weight), dtype=np.int64), 1
    for key, codes in columns.items():
        if combinations > 2**62 // nodes[key].levels:
            values, combination = np.unique(combination, return_inverse=True)
            combinations = len(values)
        combination = combination * nodes[key].levels + codes
        combinations *= nodes[key].levels
    _, first, merged = np.unique(combination, return_index=True, return_inverse=True)
    kept = {key: codes[first] for key, codes in columns.items()}
    return kept, np.bincount(merged, weights=weight).astype(np.float64)


def _draw(rows: Floats, uniform: Floats) -> NDArray[np.int64]:
    """Draw a level of each row by inverting its distribution, which need not sum to one."""
    below = rows.cumsum(axis=1)
    total = below[:, -1:]
    drawn = (below <= uniform[:, None] * total).sum(axis=1)
    return np.minimum(drawn, (below < total).sum(axis=1))  # do not pass the last one by rounding

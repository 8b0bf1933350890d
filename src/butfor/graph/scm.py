"""DiscreteSCM: a structural causal model of categorical variables on any acyclic graph.

Its tables are given, or counted from cases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import networkx as nx
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_pseudo_count, check_whole
from butfor.graph.answer import Answer, ask
from butfor.graph.tables import (
    MOST_CELLS,
    Network,
    Table,
    find_variable,
    read_intervention,
    read_levels,
    read_masks,
    read_network,
    read_table,
)
from butfor.graph.worlds import FACTUAL, Key, Node, draw_worlds, factual_nodes, graph_of, twin_nodes
from butfor.log.variables import Variable
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.protocol import Mechanism, check_mechanism
from butfor.printed import Printed
from butfor.types import Floats

Targets = str | Sequence[str] | Mapping[str, Any]  # names, or an event {name: level or levels}
Mechanisms = Mechanism | Mapping[str, Mechanism] | None
DRAWS = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteSCM(Printed):
    """Variables, a table for each given its parents, and the mechanism behind each table.

    Each variable has its own noise, independent of the others': everything that two variables
    share is in the graph. The tables alone give distributions and effects of interventions, which
    are causal if the graph is; counterfactuals also need the mechanisms, which no data can check.
    The default, `GumbelMax()`, is the paper's.
    """

    variables: Mapping[str, Variable]
    tables: Mapping[str, Table]
    mechanisms: Mapping[str, Mechanism]

    # ------------------------------------------------------------------------------ construction

    @classmethod
    def from_tables(
        cls,
        levels: Mapping[str, Iterable[Any]],
        tables: Mapping[str, Any],
        parents: Mapping[str, Sequence[str]] | None = None,
        *,
        mechanisms: Mechanisms = None,
    ) -> DiscreteSCM:
        """Make a model by hand.

        Parameters
        ----------
        levels : {variable: levels}
            They are converted to text: `1` and `"1"` are the same level.
        tables : {variable: table}
            An array [levels of each parent, levels of the variable], or a mapping
            {levels of the parents: distribution}, or a function of the parents' levels that
            returns a level or a distribution.
        parents : {variable: names}, optional
            In the order of the table's axes; variables left out have none.
        mechanisms : Mechanism or {variable: Mechanism}, optional
            By default `GumbelMax()`.
        """
        variables = read_levels(levels)
        for what, named in (("tables", tables), ("parents", parents or {})):
            for name in named:
                find_variable(variables, name, what)
        read = {}
        for name, variable in variables.items():
            if name not in tables:
                raise ValueError(f"no table for {name!r}; give one for each variable")
            names = (parents or {}).get(name, ())
            if isinstance(names, str):
                raise ValueError(f"parents of {name!r} are {names!r}: give a list of names")
            found = [find_variable(variables, p, f"parents of {name!r}") for p in names]
            read[name] = read_table(variable, found, tables[name])
        _check_acyclic(read, "the graph")
        return cls(variables, read, _read_mechanisms(variables, mechanisms))

    @classmethod
    def from_data(
        cls,
        frame: pd.DataFrame,
        graph: nx.DiGraph | Iterable[tuple[str, str]],
        *,
        prior: float = 0.0,
        mechanisms: Mechanisms = None,
    ) -> DiscreteSCM:
        """Estimate the tables by counting the rows of a data frame.

        Parameters
        ----------
        frame
            One row per case and a column for each variable of the graph, without missing values;
            other columns are ignored. Levels are those of a categorical column, in its order, or
            the sorted values that occur.
        graph : networkx.DiGraph or list of (parent, child)
            Assumed to be causal: data cannot check its directions.
        prior
            Added to the count of each cell. With 0, a combination of parents that never occurs is
            an error; otherwise its row is uniform.
        """
        levels, parents, tables = count_tables(frame, graph, prior)
        return cls.from_tables(levels, tables, parents, mechanisms=mechanisms)

    @classmethod
    def from_pgmpy(cls, network: Any, *, mechanisms: Mechanisms = None) -> DiscreteSCM:
        """Convert a Bayesian network of pgmpy; its arrows, those of its CPDs, are taken as causal.

        Parameters
        ----------
        network
            A `DiscreteBayesianNetwork`, or anything else with `nodes`, an iterable of names, and
            `get_cpds(name)`, which returns a node's `TabularCPD` or something with its `variables`
            (the node, then its parents), `state_names` {variable: levels} and `get_values()`, which
            returns [levels of the node, levels of all parents], the last parent's fastest.
        mechanisms : Mechanism or {variable: Mechanism}, optional
            By default `GumbelMax()`.
        """
        levels, parents, tables = read_network(network)
        return cls.from_tables(levels, tables, parents, mechanisms=mechanisms)

    @classmethod
    def from_bif(cls, path: object, *, mechanisms: Mechanisms = None) -> NoReturn:
        """Raise an error: `.bif` files are no longer read."""
        raise ValueError(
            f"{path}: butfor no longer reads .bif files; read it with pgmpy, and give its network: "
            "DiscreteSCM.from_pgmpy(pgmpy.readwrite.BIFReader(path).get_model())"
        )

    # ----------------------------------------------------------------------------------- queries

    @property
    def graph(self) -> nx.DiGraph:
        """The graph, as a new networkx.DiGraph."""
        return graph_of(self.tables)

    def do(self, interventions: Mapping[str, Any]) -> DiscreteSCM:
        """Return the model under interventions {variable: replacement of its table}.

        A replacement is one of:

        - a level: the variable is set to it;
        - a table (list, array or mapping) for the same parents;
        - a function: its parameters are the new parents, and it returns a level or a distribution;
        - a pair ([parents], table or function), for any parents.

        The variable keeps its mechanism and its noise, as the paper's action does under a target
        policy. So in a counterfactual a variable with a replaced table is not drawn anew: its level
        is the mechanism's counterfactual of the observed one, and unchanged rows repeat it.
        """
        tables = dict(self.tables)
        for name, given in interventions.items():
            find_variable(self.variables, name, "do")
            tables[name] = read_intervention(self.variables, name, self.tables[name], given)
        _check_acyclic(tables, "do")
        return replace(self, tables=tables)

    def sample(
        self, size: int, seed: int | np.random.Generator, *, do: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Draw cases: one row per case, one categorical column per variable."""
        size = check_whole(size, "size", 0, "a number of cases")
        nodes = factual_nodes(self.do(do or {}).tables, {})
        codes = draw_worlds(nodes, list(nodes), size, np.random.default_rng(seed)).codes
        columns = zip(self.variables.values(), codes, strict=True)
        return pd.DataFrame(
            {v.name: pd.Categorical.from_codes(code, list(v.levels)) for v, code in columns}
        )

    def distribution(
        self,
        targets: Targets,
        *,
        evidence: Mapping[str, Any] | None = None,
        do: Mapping[str, Any] | None = None,
        method: str = "auto",
        draws: int = DRAWS,
        seed: int | np.random.Generator = 0,
    ) -> Answer:
        """Return P(targets | evidence; do): what is observed, or would be after intervening.

        The evidence is about the world after the intervention. The result is causal if the graph is
        right and contains all common causes; mechanisms do not matter.

        Parameters
        ----------
        targets
            A name, names (joint distribution), or an event {name: level, or a list of levels}.
        evidence : {name: level, or a list of levels}, optional
        do : {name: intervention}, optional
            See `do`.
        method : "auto", "exact" or "sampled"
            "auto" enumerates if that takes at most 2,000,000 partial worlds at a time, and
            otherwise samples by likelihood weighting: see `exact` and `standard_error` of the
            answer.
        draws, seed
            For sampling.
        """
        nodes = factual_nodes(
            self.do(do or {}).tables, read_masks(self.variables, evidence, "evidence")
        )
        place = {name: (name, FACTUAL) for name in self.variables}
        return self._ask(nodes, place, targets, method, draws, seed)

    def counterfactual(
        self,
        targets: Targets,
        *,
        evidence: Mapping[str, Any],
        do: Mapping[str, Any],
        method: str = "auto",
        draws: int = DRAWS,
        seed: int | np.random.Generator = 0,
    ) -> Answer:
        """Return P(targets under `do` | evidence observed without it).

        Abduction: the factual worlds that fit the evidence. Action: the tables under `do`.
        Prediction: each variable given its factual level and parents, by its mechanism; where the
        table and the levels of the parents are the factual ones, so is the level.

        The result is causal if the graph contains all common causes and each variable is generated
        by its mechanism; the latter is an assumption, not a finding. Parameters are those of
        `distribution`; the evidence is about the factual world, on any of the variables.
        """
        abduction = read_masks(self.variables, evidence, "evidence")
        action = self.do(do).tables
        nodes, place = twin_nodes(self.tables, abduction, action, self.mechanisms)
        return self._ask(nodes, place, targets, method, draws, seed)

    def _ask(
        self,
        nodes: Mapping[Key, Node],
        place: Mapping[str, Key],
        targets: Targets,
        method: str,
        draws: int,
        seed: int | np.random.Generator,
    ) -> Answer:
        event = None
        if isinstance(targets, Mapping):
            event = list(read_masks(self.variables, targets, "targets").values())
        names = [targets] if isinstance(targets, str) else list(dict.fromkeys(targets))
        if not names:
            raise ValueError("targets: none given; give at least one variable")
        found = [find_variable(self.variables, name, "targets") for name in names]
        pairs = [(variable, place[variable.name]) for variable in found]
        return ask(nodes, pairs, event, method=method, draws=draws, seed=seed)


def _check_acyclic(tables: Mapping[str, Table], what: str) -> None:
    graph = graph_of(tables)
    if not nx.is_directed_acyclic_graph(graph):
        path = [edge[0] for edge in nx.find_cycle(graph)]
        circle = " → ".join(map(repr, [*path, path[0]]))
        raise ValueError(f"{what} makes a cycle: {circle}; remove one of these arrows")


def _read_mechanisms(variables: Mapping[str, Variable], given: Mechanisms) -> dict[str, Mechanism]:
    if isinstance(given, Mapping):
        for name in given:
            find_variable(variables, name, "mechanisms")
        return {name: check_mechanism(given.get(name, GumbelMax())) for name in variables}
    chosen = check_mechanism(GumbelMax() if given is None else given)
    return dict.fromkeys(variables, chosen)


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

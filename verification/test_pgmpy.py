"""Networks of pgmpy, where it is installed: the same tables, and the same answers to questions."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from butfor.graph import DiscreteSCM

LEVELS = {
    **{"age": ["young", "old"], "dose": ["none", "half", "full"], "ward": ["a", "b"]},
    **{"state": ["well", "ill", "worse", "dead"], "cost": ["low", "middle", "high"]},
}
PARENTS = {
    **{"age": [], "ward": ["dose", "age"], "dose": ["age"]},
    **{"state": ["ward", "age", "dose"], "cost": ["state"]},
}
CLOSE = 1e-12  # sums of at most 144 products of five probabilities, however they are ordered


@pytest.fixture(scope="module")
def pgmpy() -> SimpleNamespace:
    """What is used of pgmpy; warnings of what it imports are its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pgmpy", reason="pip install pgmpy")
        parts = "models", "factors.discrete", "factors.continuous", "inference", "readwrite"
        modules = [vars(importlib.import_module(f"pgmpy.{part}")) for part in parts]
    return SimpleNamespace(**{name: part[name] for part in modules for name in part})


def random_network(pgmpy: Any, seed: int) -> Any:
    """Return a network with random tables; levels are in random order."""
    generator = np.random.default_rng(seed)
    order = {name: generator.permutation(levels).tolist() for name, levels in LEVELS.items()}
    arrows = [(parent, name) for name, parents in PARENTS.items() for parent in parents]
    network = pgmpy.DiscreteBayesianNetwork(arrows)
    for name, parents in PARENTS.items():
        size = [len(LEVELS[variable]) for variable in (name, *parents)]
        values = generator.dirichlet(np.ones(size[0]), int(np.prod(size[1:]))).T
        states = {variable: order[variable] for variable in (name, *parents)}
        given = {"evidence": parents, "evidence_card": size[1:]} if parents else {}
        network.add_cpds(pgmpy.TabularCPD(name, size[0], values, **given, state_names=states))
    assert network.check_model()
    return network


def asked(network: Any, pgmpy: Any, name: str, **evidence: str) -> dict[str, float]:
    """Return pgmpy's answer by level."""
    found = pgmpy.VariableElimination(network).query([name], evidence=evidence, show_progress=False)
    return {level: float(found.get_value(**{name: level})) for level in LEVELS[name]}


def answered(scm: DiscreteSCM, name: str, **question: Any) -> dict[str, float]:
    return {level: float(scm.distribution({name: level}, **question)) for level in LEVELS[name]}


@pytest.mark.parametrize("seed", range(5))
def test_questions_have_the_answers_of_pgmpy(pgmpy: Any, seed: int) -> None:
    network = random_network(pgmpy, seed)
    scm = DiscreteSCM.from_pgmpy(network)
    assert set(scm.graph.edges) == set(network.edges())
    for name in LEVELS:
        assert answered(scm, name) == pytest.approx(asked(network, pgmpy, name), abs=CLOSE)
    seen = {"cost": "high", "age": "old"}
    found = answered(scm, "state", evidence=seen)
    assert found == pytest.approx(asked(network, pgmpy, "state", **seen), abs=CLOSE)
    assert found != pytest.approx(answered(scm, "state"), abs=1e-3)  # evidence matters
    set_to = {"dose": "half"}
    found = answered(scm, "state", do=set_to)
    done = network.do(["dose"])
    assert found == pytest.approx(asked(done, pgmpy, "state", **set_to), abs=CLOSE)


def test_a_bif_file_comes_by_way_of_pgmpy(pgmpy: Any, tmp_path: Path) -> None:
    """As the error of `from_bif` says."""
    network, path = random_network(pgmpy, 7), str(tmp_path / "net.bif")
    pgmpy.BIFWriter(network).write(path)
    scm = DiscreteSCM.from_pgmpy(network)
    read = DiscreteSCM.from_pgmpy(pgmpy.BIFReader(path).get_model())
    for name, parents in PARENTS.items():
        assert set(read.tables[name].parents) == set(parents)
        evidence = {parent: LEVELS[parent][0] for parent in parents}
        expected = answered(scm, name, evidence=evidence)
        assert answered(read, name, evidence=evidence) == pytest.approx(expected, abs=1e-9)


def test_a_network_without_all_its_tables_is_refused(pgmpy: Any) -> None:
    network = random_network(pgmpy, 0)
    network.remove_cpds("state")
    with pytest.raises(ValueError, match="node 'state' has no CPD; add one to the network"):
        DiscreteSCM.from_pgmpy(network)
    linear = pgmpy.LinearGaussianBayesianNetwork([("x", "y")])
    linear.add_cpds(
        pgmpy.LinearGaussianCPD("x", [0.0], 1.0),
        pgmpy.LinearGaussianCPD("y", [0.0, 2.0], 1.0, ["x"]),
    )
    with pytest.raises(ValueError, match="node 'x' is a LinearGaussianCPD, which has no table"):
        DiscreteSCM.from_pgmpy(linear)


def test_levels_that_do_not_match_are_refused(pgmpy: Any) -> None:
    network = pgmpy.DiscreteBayesianNetwork([("x", "y")])
    network.add_cpds(
        pgmpy.TabularCPD("x", 2, [[0.6], [0.4]], state_names={"x": ["mild", "bad"]}),
        pgmpy.TabularCPD("y", 2, [[0.5, 0.1], [0.5, 0.9]], ["x"], [2]),  # levels 0, 1
    )
    with pytest.raises(ValueError, match=r"'y' gives 'x' the levels \['0', '1'\], its own CPD"):
        DiscreteSCM.from_pgmpy(network)

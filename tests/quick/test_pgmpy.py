"""Networks of pgmpy, by stand-ins for its classes; `verification` uses the real ones."""

import numpy as np
import pytest

from butfor.graph import DiscreteSCM


class TabularCPD:
    """Has what pgmpy 1.1.2 has: values [own states, all others]."""

    def __init__(self, variable, values, evidence=(), **state_names):
        self.variable = variable
        self.variables = [variable, *evidence]
        self.state_names = state_names
        self.values = np.array(values)

    def get_values(self):
        return self.values  # the columns run through `variables[1:]`, the last one fastest

    def get_evidence(self):
        return self.variables[:0:-1]  # pgmpy lists them backwards


class Network:
    """Has what pgmpy's DiscreteBayesianNetwork has."""

    def __init__(self, *cpds, nodes=None):
        self.cpds = {cpd.variable: cpd for cpd in cpds}
        self.nodes = self.cpds if nodes is None else nodes

    def get_cpds(self, node):
        return self.cpds.get(node)


X, T = ["mild", "severe"], ["no", "yes"]
SEVERITY = TabularCPD("x", [[0.6], [0.4]], x=X)
TREATED = TabularCPD("t", [[0.5, 0.2], [0.5, 0.8]], ["x"], t=T, x=X)
CURED = TabularCPD(
    "y", [[0.5, 0.1, 0.6, 0.2], [0.5, 0.9, 0.4, 0.8]], ["t", "x"], y=[0, 1], t=T[::-1], x=X
)


def test_a_network_is_taken_over_whatever_the_order_of_its_states():
    scm = DiscreteSCM.from_pgmpy(Network(SEVERITY, TREATED, CURED))
    assert scm.variables["y"].levels == ("0", "1")
    assert set(scm.graph.edges) == {("x", "t"), ("t", "y"), ("x", "y")}
    assert scm.tables["y"].parents == ("t", "x")
    # the first column is t = yes, x = mild
    given = {"t": "yes", "x": "mild"}
    assert float(scm.distribution({"y": 0}, evidence=given)) == pytest.approx(0.5)
    np.testing.assert_allclose(
        scm.tables["y"].probability[..., 0], [[0.6, 0.2], [0.5, 0.1]], rtol=1e-14
    )
    # P(y = 0 | do(t = yes)) = .6 * .5 + .4 * .1
    assert float(scm.distribution({"y": 0}, do={"t": "yes"})) == pytest.approx(0.34)


class LinearGaussianCPD:
    variables = ("t", "x")


@pytest.mark.parametrize(
    ("cpds", "words"),
    [
        ([], "there are no variables; give at least one"),
        ([TREATED], "CPD of node 't' has the parent 'x', which is not a node; add it to the net"),
        (
            [TabularCPD("x", [[0.6], [0.4]], x=["mild", "bad"]), TREATED],
            r"'t' gives 'x' the levels \['mild', 'severe'\], its own CPD \['mild', 'bad'\]; give",
        ),
        (
            [SEVERITY, TabularCPD("t", TREATED.values, ["x"], t=T)],
            r"node 't' gives 'x' the levels \[\], its own CPD \['mild', 'severe'\]",
        ),
        (
            [TabularCPD("x", [[0.6], [0.4]])],
            "node 'x' has 2 values, but its state_names make 0 comb",
        ),
        ([TabularCPD("x", [[0.6], [0.4]], x=[1, "1"])], "levels of 'x': '1' appears twice"),
        ([TabularCPD("x", [[0.6], [0.3]], x=X)], "table of 'x': the row sums to 0.9, not to 1"),
        (
            [SEVERITY, TabularCPD("t", [[0.5, 0.2], [0.5, 0.9]], ["x"], t=T, x=X)],
            "table of 't': x 1 sums to 1.1, not to 1",
        ),
        (
            [SEVERITY, TabularCPD("t", [[0.5], [0.5]], ["x"], t=T, x=X)],
            "node 't' has 2 values, but its state_names make 4 combinations of levels; give one",
        ),
        (
            [TabularCPD("x", [[0.5, 0.2], [0.5, 0.8]], ["t"], t=T, x=X), TREATED],
            "the graph makes a cycle: 'x' → 't' → 'x'; remove one of these arrows",
        ),
    ],
)
def test_a_network_that_is_no_model_is_refused(cpds, words):
    with pytest.raises(ValueError, match=words):
        DiscreteSCM.from_pgmpy(Network(*cpds))


def test_a_node_without_a_table_is_named():
    with pytest.raises(ValueError, match="node 't' has no CPD; add one to the network"):
        DiscreteSCM.from_pgmpy(Network(SEVERITY, nodes=["x", "t"]))
    network = Network(SEVERITY, nodes=["x", "t"])
    network.cpds["t"] = LinearGaussianCPD()
    with pytest.raises(ValueError, match="CPD of node 't' is a LinearGaussianCPD, which has no ta"):
        DiscreteSCM.from_pgmpy(network)


def test_a_bif_file_is_refused_with_the_new_way():
    with pytest.raises(ValueError, match=r"net.bif: butfor no longer reads .bif .*from_pgmpy\("):
        DiscreteSCM.from_bif("net.bif")

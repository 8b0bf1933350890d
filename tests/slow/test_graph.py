"""Discrete SCMs on any graph: hand values, the paper's example, explicit noise, bad input."""

import itertools
from random import Random

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.graph import answer as answers
from tests.grids import few
from tests.reference import graph as reference
from tests.support import frequencies_agree

# The running example: covariate X, treatment T, outcome Y; X → T, X → Y, T → Y
LEVELS = {"X": ["mild", "severe"], "T": [0, 1], "Y": [0, 1]}
PARENTS = {"T": ["X"], "Y": ["X", "T"]}
TABLES = {
    "X": [0.6, 0.4],
    "T": [[0.5, 0.5], [0.2, 0.8]],
    "Y": [[[0.4, 0.6], [0.2, 0.8]], [[0.9, 0.1], [0.5, 0.5]]],  # treatment helps both groups
}
TREATMENT = {"cause": {"T": 1}, "alternative": {"T": 0}, "effect": {"Y": 1}}


def example(**changes):
    return bf.graph.DiscreteSCM.from_tables(LEVELS, {**TABLES, **changes}, PARENTS)


class InverseCDF:
    """The paper's f_ord: one uniform, intervals in a given order of the outcomes."""

    def __init__(self, order):
        self.order = order

    def counterfactual_rows(self, factual, counterfactual, observed):
        rows = np.zeros_like(factual)
        for row, p, q, k in zip(rows, factual, counterfactual, observed, strict=True):
            ends = [np.append(0, x[self.order].cumsum()) for x in (p, q)]
            at = self.order.index(k)
            low, high = ends[0][at], ends[0][at + 1]
            overlap = np.minimum(high, ends[1][1:]) - np.maximum(low, ends[1][:-1])
            row[self.order] = np.maximum(overlap, 0) / (high - low)
        return rows


class Redraw:
    """Nothing carries over from the factual outcome."""

    def counterfactual_rows(self, factual, counterfactual, observed):
        return counterfactual


def random_scm(seed, parents, *, mechanisms=None):
    """Return an SCM of three-valued variables with random tables, some cells of them 0."""
    generator = np.random.default_rng(seed)
    tables = {}
    for name, above in parents.items():
        rows = generator.dirichlet(np.ones(3), (3,) * len(above))
        if above:
            rows[generator.random(rows.shape) < 0.15] = 0.0
        rows[..., 0] += 0.1
        tables[name] = rows / rows.sum(axis=-1, keepdims=True)
    levels = {name: ["a", "b", "c"] for name in parents}
    return bf.graph.DiscreteSCM.from_tables(levels, tables, parents, mechanisms=mechanisms)


DIAMOND = {"A": [], "B": ["A"], "C": ["A"], "D": ["B", "C"]}


def plain(scm):
    """Return the tables as those of the reference."""
    return {
        name: reference.Table(
            table.parents,
            {at: table.probability[at].tolist() for at in np.ndindex(table.probability.shape[:-1])},
        )
        for name, table in scm.tables.items()
    }


# ----------------------------------------------------------------------- one world: distributions


def test_seeing_is_not_doing_by_hand():
    scm = example()
    # P(Y=1 | do(T=1)) = .6 * .8 + .4 * .5 = .68
    # P(Y=1 | T=1) = (.6 * .5 * .8 + .4 * .8 * .5) / (.6 * .5 + .4 * .8) = .4 / .62
    assert float(scm.distribution({"Y": 1}, do={"T": 1})) == pytest.approx(0.68, rel=1e-14)
    assert float(scm.distribution({"Y": 1}, evidence={"T": 1})) == pytest.approx(0.4 / 0.62)
    # a treatment by severity: .6 * .6 + .4 * .5 = .56
    policy = {"T": lambda X: 1 if X == "severe" else 0}
    assert float(scm.distribution({"Y": 1}, do=policy)) == pytest.approx(0.56, rel=1e-14)


def test_forms_of_an_intervention_agree():
    scm = example()
    rows = [[0.9, 0.1], [0.3, 0.7]]
    forms = [
        rows,
        np.array(rows),
        {"mild": {0: 0.9, 1: 0.1}, "severe": rows[1]},
        (["X"], rows),
        (["X"], lambda x: {"mild": rows[0], "severe": rows[1]}[x]),
        lambda X: {"1": 0.1, "0": 0.9} if X == "mild" else (0.3, 0.7),
    ]
    for form in forms:
        table = scm.do({"T": form}).tables["T"]
        assert table.parents == ("X",)
        np.testing.assert_allclose(table.probability, rows)
    assert scm.do({"T": ([], {1: 1.0})}).tables["T"].parents == ()
    assert scm.tables["T"].probability.tolist() == TABLES["T"]  # the model itself stays


def test_joint_distribution_has_its_axes_in_the_order_asked_for():
    scm = example()
    joint = scm.distribution(["Y", "X"], do={"T": 0})
    np.testing.assert_allclose(joint.probability, [[0.24, 0.36], [0.36, 0.04]], rtol=1e-14)
    assert joint["1", "mild"] == pytest.approx(0.36)
    assert joint.exact
    assert joint.draws == 0
    frame = joint.frame()
    assert frame.loc[("0", "severe"), "probability"] == pytest.approx(0.36)
    assert (frame["standard error"] == 0).all()


def test_evidence_may_allow_several_levels():
    scm = random_scm(0, DIAMOND)
    joint = scm.distribution(["A", "D"]).probability
    allowed = joint[:, [0, 2]].sum(axis=1)
    several = scm.distribution("A", evidence={"D": ["a", "c"]})
    np.testing.assert_allclose(several.probability, allowed / allowed.sum(), rtol=1e-12)
    sampled = scm.distribution("A", evidence={"D": {"a", "c"}}, method="sampled", seed=1)
    apart = np.abs(sampled.probability - several.probability)
    assert (apart < 5 * sampled.standard_error).all()  # 5 errors: two-sided 6e-7 a cell


def test_samples_follow_the_tables_before_and_after_an_intervention():
    scm = random_scm(1, DIAMOND)
    for do in (None, {"B": "c"}, {"C": lambda B: [0.1, 0.2, 0.7] if B == "a" else "b"}):
        frame = scm.sample(20_000, seed=3, do=do)
        joint = scm.distribution(["A", "B", "C", "D"], do=do).probability
        codes = [frame[name].cat.codes.to_numpy() for name in "ABCD"]
        counts = np.zeros(joint.shape, dtype=np.int64)
        np.add.at(counts, tuple(codes), 1)
        assert frequencies_agree(counts, joint, 20_000)
        assert not frequencies_agree(counts, joint[::-1], 20_000)
    assert scm.sample(5, seed=3).equals(scm.sample(5, seed=3))


# ----------------------------------------------------------------- two worlds: the paper's X, T, Y


def test_counterfactual_of_the_running_example_by_hand():
    scm = example()
    # mild, treated, well: P(Y=1) falls from .8 to .6, so well stays with .6 / .8 = .75
    mild = scm.counterfactual("Y", evidence={"X": "mild", "T": 1, "Y": 1}, do={"T": 0})
    np.testing.assert_allclose(mild.probability, [0.25, 0.75], rtol=1e-14)
    # severity not seen: mild weighs .6 * .5 * .8 = .24, severe .4 * .8 * .5 = .16 with .1 / .5
    either = scm.counterfactual("Y", evidence={"T": 1, "Y": 1}, do={"T": 0})
    assert either[1] == pytest.approx((0.24 * 0.75 + 0.16 * 0.2) / 0.4, rel=1e-14)


def test_two_levels_stability_is_monotonicity_in_either_direction():
    generator = np.random.default_rng(5)
    for _ in range(20):
        rows = generator.dirichlet([1, 1], (2, 2))
        scm = example(Y=rows)
        for x, seen, other in itertools.product((0, 1), repeat=3):
            raised = rows[x, other, 1] >= rows[x, seen, 1]
            evidence = {"X": LEVELS["X"][x], "T": seen, "Y": int(raised)}
            after = scm.counterfactual("Y", evidence=evidence, do={"T": other})
            assert after[int(raised)] == 1.0  # Y = 1 under the worse treatment stays 1


def test_probability_of_necessity_is_one_minus_the_ratio_in_each_group():
    for rows in (TABLES["Y"], [[[0.4, 0.6], [0.7, 0.3]], [[0.5, 0.5], [0.5, 0.5]]]):
        scm = example(Y=rows)
        for x, group in enumerate(LEVELS["X"]):
            p, q = rows[x][1][1], rows[x][0][1]
            necessity = bf.graph.probability_of_necessity(scm, **TREATMENT, given={"X": group})
            assert float(necessity) == pytest.approx(max(0, 1 - q / p), abs=1e-14)


def test_probabilities_of_causation_by_hand():
    scm = example()
    # PN: mild .25 and severe .8, weights .24 and .16 of .4: .47
    assert float(bf.graph.probability_of_necessity(scm, **TREATMENT)) == pytest.approx(0.47)
    # PS, seen T=0, Y=0: mild 1 - .2/.4 = .5 weighs .6 * .5 * .4 = .12,
    # severe 1 - .5/.9 = 4/9 weighs .4 * .2 * .9 = .072
    sufficient = bf.graph.probability_of_sufficiency(scm, **TREATMENT)
    assert float(sufficient) == pytest.approx((0.12 * 0.5 + 0.072 * 4 / 9) / 0.192)
    # PNS with monotone outcomes is the effect: .6 * .2 + .4 * .4 = .28
    both = bf.graph.probability_of_necessity_and_sufficiency(scm, **TREATMENT)
    assert float(both) == pytest.approx(0.28)
    assert float(bf.graph.conditional_effect(scm, **TREATMENT)) == pytest.approx(0.28)
    for group, effect in (("mild", 0.2), ("severe", 0.4)):
        for query in (
            bf.graph.conditional_effect,
            bf.graph.probability_of_necessity_and_sufficiency,
        ):
            assert float(query(scm, **TREATMENT, given={"X": group})) == pytest.approx(effect)
    # Tian and Pearl: PNS = P(T=1, Y=1) PN + P(T=0, Y=0) PS = .4 * .47 + .192 * PS
    assert 0.4 * 0.47 + 0.192 * float(sufficient) == pytest.approx(float(both))


def test_causation_with_a_mediator_and_more_than_two_levels():
    scm = random_scm(8, {"T": [], "M": ["T"], "Y": ["T", "M"]})
    query = {"cause": {"T": "b"}, "alternative": {"T": "a"}, "effect": {"Y": ["b", "c"]}}
    sufficient = bf.graph.probability_of_sufficiency(scm, **query)
    seen = scm.counterfactual({"Y": ["b", "c"]}, evidence={"T": "a", "Y": "a"}, do={"T": "b"})
    assert float(sufficient) == float(seen)
    # without confounding P(Y under do(T)) = P(Y | T): PNS = P(effect | cause) PN
    both = bf.graph.probability_of_necessity_and_sufficiency(scm, **query)
    under = scm.distribution({"Y": ["b", "c"]}, evidence={"T": "b"})
    necessary = bf.graph.probability_of_necessity(scm, **query)
    assert float(both) == pytest.approx(float(under) * float(necessary), rel=1e-12)
    # and PNS - (what goes the other way) is the effect
    other_way = bf.graph.probability_of_necessity_and_sufficiency(
        scm, cause={"T": "a"}, alternative={"T": "b"}, effect={"Y": ["b", "c"]}
    )
    effect = bf.graph.conditional_effect(scm, **query)
    assert float(both) - float(other_way) == pytest.approx(float(effect), rel=1e-12)


@pytest.mark.parametrize(("order", "certain"), [((1, 2, 3, 4), "3"), ((1, 2, 4, 3), "4")])
def test_two_orders_of_one_mechanism_give_two_certain_outcomes(order, certain):
    # under a: [0, .25) → 1, [.25, .5) → 2, so u is in [.25, .5); under a' 2 is [0, .25), and
    # [.25, .5) is all of 3 in the first order, part of 4's [.25, .75) in the second
    levels = {"A": ["a", "a'"], "S": [1, 2, 3, 4]}
    tables = {"A": [0.5, 0.5], "S": [[0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5]]}
    query = {"evidence": {"A": "a", "S": 2}, "do": {"A": "a'"}}
    mechanism = InverseCDF([place - 1 for place in order])
    scm = bf.graph.DiscreteSCM.from_tables(
        levels, tables, {"S": ["A"]}, mechanisms={"S": mechanism}
    )
    assert scm.counterfactual("S", **query)[certain] == 1.0
    # the Gumbel-Max mechanism, on the same tables: 2 stays with 1 / 1.3, the rest goes to 4
    scm = bf.graph.DiscreteSCM.from_tables(levels, tables, {"S": ["A"]})
    after = scm.counterfactual("S", **query).probability
    np.testing.assert_allclose(after, [0, 1 / 1.3, 0, 0.3 / 1.3], rtol=1e-14)
    # and what the data show is the same for all of them
    np.testing.assert_allclose(scm.distribution("S", do={"A": "a'"}).probability, tables["S"][1])


# ------------------------------------------------------------------------- against explicit noise

LARGER = {"A": [], "B": ["A"], "C": ["A", "B"], "D": ["C"], "E": ["B", "D"]}
QUERIES = {
    "all seen": (DIAMOND, {"A": "c", "B": "a", "C": "a", "D": "b"}, {"A": "b"}, ["B", "C", "D"]),
    "cause not seen": (DIAMOND, {"D": "a"}, {"B": "c"}, ["A", "D"]),
    "nothing seen": (DIAMOND, {}, {"A": "c"}, ["D"]),
    "mediator seen": (LARGER, {"C": "a", "E": "b"}, {"B": "a"}, ["D", "E"]),
    "replaced table": (
        LARGER,
        {"B": "a", "E": "a"},
        {"B": [[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4]]},
        ["B", "E"],
    ),
    "function of other parents": (
        LARGER,
        {"A": "a", "D": "a"},
        {"D": lambda A, B: "c" if A == B else [0.2, 0.5, 0.3]},
        ["D", "E"],
    ),
    "arrow turned round": (
        DIAMOND,
        {"B": "a", "D": "a"},
        {"A": (["B"], np.eye(3) * 0.7 + 0.1), "B": ([], [0.2, 0.3, 0.5])},
        ["A", "B", "D"],
    ),
    "cut off": (LARGER, {"E": "a"}, {"C": ([], {"a": 0.5, "b": 0.5})}, ["C", "E"]),
}


@pytest.mark.parametrize("case", few(QUERIES, 2))
def test_exact_answers_agree_with_worlds_of_explicit_noise(case):
    parents, evidence, do, targets = QUERIES[case]
    scm = random_scm(4, parents)
    exact = scm.counterfactual(targets, evidence=evidence, do=do)
    assert exact.exact
    seen = {name: "abc".index(level) for name, level in evidence.items()}
    counts = np.zeros(exact.probability.shape, dtype=np.int64)
    drawn = reference.count_counterfactuals(
        plain(scm), plain(scm.do(do)), seen, targets, 20_000, Random(9)
    )
    for cell, count in drawn.items():
        counts[cell] = count
    assert counts.sum() > 500
    assert frequencies_agree(counts, exact.probability, counts.sum())
    fresh = scm.distribution(targets, do=do).probability  # as if nothing had been seen
    assert frequencies_agree(counts, fresh, counts.sum()) == (case == "nothing seen")


# ------------------------------------------------------------------------------------- identities


@pytest.mark.parametrize("mechanism", [None, InverseCDF([2, 0, 1]), Redraw()])
def test_doing_what_was_done_anyway_gives_back_what_was_seen(mechanism):
    scm = random_scm(2, LARGER, mechanisms=mechanism)
    for _, case in scm.sample(20, seed=0).iterrows():
        evidence = case.to_dict()
        do = {name: scm.tables[name].probability * 1.0 for name in "BD"}
        do["C"] = (["B", "A"], scm.tables["C"].probability.swapaxes(0, 1))
        for same in (do, {"A": evidence["A"]}, {}):
            event = scm.counterfactual(evidence, evidence=evidence, do=same)
            assert float(event) == 1.0


def test_rows_that_a_replaced_table_keeps_keep_the_outcome():
    scm = random_scm(2, LARGER, mechanisms=Redraw())
    rows = scm.tables["B"].probability.copy()
    rows[2] = [0.2, 0.2, 0.6]
    kept = {"evidence": {"A": "a", "B": "a"}, "do": {"B": rows}}
    assert scm.counterfactual("B", **kept)["a"] == 1.0
    changed = {"evidence": {"A": "c", "B": "a"}, "do": {"B": rows}}
    np.testing.assert_allclose(scm.counterfactual("B", **changed).probability, rows[2])


@pytest.mark.parametrize("mechanism", [None, InverseCDF([2, 0, 1]), Redraw()])
@pytest.mark.parametrize(
    "do", [{"B": "b"}, {"C": lambda A: [0.2, 0.3, 0.5] if A == "a" else "c"}], ids=["set", "soft"]
)
def test_counterfactuals_average_to_the_intervention(mechanism, do):
    scm = random_scm(3, DIAMOND, mechanisms=mechanism)
    joint = scm.distribution(list("ABCD")).probability
    total = np.zeros(3)
    for at in np.argwhere(joint > 0):
        evidence = dict(zip("ABCD", ("abc"[code] for code in at), strict=True))
        total += joint[tuple(at)] * scm.counterfactual("D", evidence=evidence, do=do).probability
    np.testing.assert_allclose(total, scm.distribution("D", do=do).probability, rtol=1e-12)
    # and less evidence is the average over what was not seen
    some = scm.counterfactual("D", evidence={"D": "a"}, do=do).probability
    total = np.zeros(3)
    for at in np.argwhere(joint[..., 0] > 0):
        evidence = dict(zip("ABC", ("abc"[code] for code in at), strict=True)) | {"D": "a"}
        total += joint[(*at, 0)] * scm.counterfactual("D", evidence=evidence, do=do).probability
    np.testing.assert_allclose(some, total / joint[..., 0].sum(), rtol=1e-12)


# -------------------------------------------------------------------------------- size, sampling


def test_long_chains_and_much_evidence_stay_exact():
    size = 120
    levels = {f"v{i}": ["a", "b", "c"] for i in range(size)}
    rows = np.array([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    tables = {f"v{i}": rows if i else rows[0] for i in range(size)}
    chain = bf.graph.DiscreteSCM.from_tables(
        levels, tables, {f"v{i}": [f"v{i - 1}"] for i in range(1, size)}
    )
    answer = chain.counterfactual("v3", evidence={"v3": "b", f"v{size - 1}": "a"}, do={"v0": "c"})
    short = chain.counterfactual("v3", evidence={"v3": "b"}, do={"v0": "c"})
    assert answer.exact
    # v3 stands between v0..v2 and the rest: what comes later tells nothing more
    np.testing.assert_allclose(answer.probability, short.probability, rtol=1e-12)
    # 400 signs of probability .001, or that times 2^(1/400): 1e-1200, below the smallest number
    signs = [f"sign {i}" for i in range(400)]
    more = 0.001 * 2 ** (1 / 400)
    star = bf.graph.DiscreteSCM.from_tables(
        {"D": [0, 1]} | {sign: [0, 1] for sign in signs},
        {"D": [0.5, 0.5]} | {sign: [[0.999, 0.001], [1 - more, more]] for sign in signs},
        {sign: ["D"] for sign in signs},
    )
    # each sign changes the odds by 2^(1/400), all of them by 2
    ill = star.distribution({"D": 1}, evidence=dict.fromkeys(signs, 1))
    assert float(ill) == pytest.approx(2 / 3, rel=1e-9)


def test_what_is_too_large_is_sampled_and_says_so(monkeypatch):
    scm = random_scm(6, LARGER)
    query = {"evidence": {"E": "a", "C": "b"}, "do": {"A": "c"}}
    exact = scm.counterfactual("E", **query)
    monkeypatch.setattr(answers, "MOST_WORLDS", 20)
    sampled = scm.counterfactual("E", **query, draws=20_000, seed=2)
    assert not sampled.exact
    assert sampled.draws == 20_000
    assert (np.abs(sampled.probability - exact.probability) < 5 * sampled.standard_error).all()
    again = scm.counterfactual("E", **query, draws=20_000, seed=2)
    np.testing.assert_array_equal(again.probability, sampled.probability)
    with pytest.raises(ValueError, match=r"more than 20 partial worlds at '.'; use method='samp"):
        scm.counterfactual("E", **query, method="exact")
    with pytest.raises(ValueError, match="joint distribution has 27 cells, more than 20"):
        scm.distribution(["A", "B", "C"])


@pytest.mark.exhaustive
def test_stated_errors_cover_the_exact_answer_as_often_as_they_say():
    scm = random_scm(7, LARGER)
    query = {"evidence": {"E": "b", "C": "a"}, "do": {"B": "b"}}
    exact = scm.counterfactual("E", **query).probability
    repeats = 400
    inside = {1.0: 0, 0.5: 0, 2.0: 0}  # of errors as stated, and of wrong ones
    for seed in range(repeats):
        drawn = scm.counterfactual("E", **query, method="sampled", draws=2000, seed=seed)
        for factor in inside:
            wide = 1.959964 * factor * drawn.standard_error
            inside[factor] += abs(drawn.probability[0] - exact[0]) <= wide[0]
    covers = {
        factor: frequencies_agree(np.array([count]), np.array([0.95]), repeats)
        for factor, count in inside.items()
    }
    assert covers[1.0]
    assert not covers[0.5]
    assert not covers[2.0]


def test_evidence_at_the_roots_makes_draws_binomial():
    scm = random_scm(7, LARGER)
    query = {"evidence": {"A": "b"}, "do": {"B": "b"}}
    exact = scm.counterfactual("E", **query).probability
    drawn = scm.counterfactual("E", **query, method="sampled", draws=50_000, seed=1)
    counts = np.rint(drawn.probability * 50_000).astype(np.int64)
    assert frequencies_agree(counts, exact, 50_000)
    assert not frequencies_agree(counts, exact[::-1], 50_000)
    binomial = np.sqrt(drawn.probability * (1 - drawn.probability) / 50_000)
    np.testing.assert_allclose(drawn.standard_error, binomial, rtol=1e-9)


# -------------------------------------------------------------------------------------- data


def test_tables_are_counted_from_data():
    frame = pd.DataFrame({"x": [1, 1, 1, 0, 0], "y": list("bbaab"), "ignored": range(5)})
    scm = bf.graph.DiscreteSCM.from_data(frame, [("x", "y")])
    assert scm.variables["x"].levels == ("0", "1")
    np.testing.assert_allclose(scm.tables["x"].probability, [0.4, 0.6])
    np.testing.assert_allclose(scm.tables["y"].probability, [[1 / 2, 1 / 2], [1 / 3, 2 / 3]])
    # a prior of one case a cell: (1 + 1) / (3 + 2) and (2 + 1) / (3 + 2)
    scm = bf.graph.DiscreteSCM.from_data(frame, [("x", "y")], prior=1)
    np.testing.assert_allclose(scm.tables["y"].probability[1], [2 / 5, 3 / 5])


def test_levels_of_a_categorical_column_are_kept_and_unseen_ones_need_a_prior():
    frame = pd.DataFrame({"y": ["b", "a"], "x": pd.Categorical(["z", "w"], ["z", "v", "w"])})
    graph = nx.DiGraph([("x", "y")])
    with pytest.raises(ValueError, match=r"'y': no case with x = v .*give prior=1"):
        bf.graph.DiscreteSCM.from_data(frame, graph)
    scm = bf.graph.DiscreteSCM.from_data(frame, graph, prior=0.5)
    assert scm.variables["x"].levels == ("z", "v", "w")
    np.testing.assert_allclose(scm.tables["y"].probability[1], [0.5, 0.5])


def test_a_model_is_recovered_from_its_own_draws():
    scm = random_scm(5, DIAMOND)
    learned = bf.graph.DiscreteSCM.from_data(scm.sample(20_000, seed=4), scm.graph)
    counts = np.rint(learned.tables["A"].probability * 20_000).astype(np.int64)
    assert frequencies_agree(counts, scm.tables["A"].probability, 20_000)
    assert set(learned.graph.edges) == set(scm.graph.edges)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("levels", "tables", "parents", "words"),
    [
        ({}, {}, {}, "there are no variables; give at least one"),
        ({"X": []}, {"X": []}, {}, "'X' has no levels"),
        ({"X": "ab"}, {"X": [1, 0]}, {}, "levels of 'X' are 'ab': give a list"),
        ({3: "ab"}, {3: [1, 0]}, {}, "variable 3: give its name as text"),
        ({"X": [1, "1"]}, {"X": [1, 0]}, {}, "levels of 'X': '1' appears twice"),
        (LEVELS, {**TABLES, "Z": [1]}, PARENTS, "tables: there is no variable 'Z'; there are 'X'"),
        (LEVELS, {"X": [0.6, 0.4]}, PARENTS, "no table for 'T'"),
        (LEVELS, TABLES, {**PARENTS, "T": "X"}, "parents of 'T' are 'X': give a list"),
        (LEVELS, TABLES, {**PARENTS, "T": ["Z"]}, "parents of 'T': there is no variable 'Z'"),
        (LEVELS, TABLES, {**PARENTS, "T": ["T"]}, "'T' is its own parent"),
        (LEVELS, TABLES, {**PARENTS, "Y": ["X", "X"]}, "parents of 'Y': 'X' appears twice"),
        (LEVELS, {**TABLES, "X": [0.6, 0.3]}, PARENTS, "table of 'X': the row sums to 0.9, not to"),
        (LEVELS, {**TABLES, "T": [[1, 0], [1.5, -0.5]]}, PARENTS, r"'T': X 1 has probability -0.5"),
        (LEVELS, {**TABLES, "T": [0.5, 0.5]}, PARENTS, r"'T' has shape \(2,\), expected \(2, 2\)"),
        (LEVELS, {**TABLES, "T": [[1, 0], [1]]}, PARENTS, "'T' is not an array of numbers"),
        (LEVELS, {**TABLES, "T": {"mild": [1, 0]}}, PARENTS, r"'T': no row for \('severe',\); add"),
        (LEVELS, {**TABLES, "T": {"x": [1, 0]}}, PARENTS, "'X' has no level 'x'; it has 'mild'"),
        (LEVELS, {**TABLES, "T": {("mild", 1): [1]}}, PARENTS, "give one level for each of its 1"),
        (LEVELS, {**TABLES, "T": {"mild": 1}}, PARENTS, "row 1; give 2 probabilities"),
        (LEVELS, {**TABLES, "X": TABLES["T"]}, {**PARENTS, "X": ["T"]}, "cycle: 'X' → 'T' → 'X'"),
    ],
)
def test_bad_models_say_what_is_wrong(levels, tables, parents, words):
    with pytest.raises(ValueError, match=words):
        bf.graph.DiscreteSCM.from_tables(levels, tables, parents)


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ({"Z": 1}, "do: there is no variable 'Z'; there are 'X', 'T', 'Y'"),
        ({"T": 2}, "do: 'T' has no level 2; it has '0', '1'"),
        ({"X": (["Y"], [[0.5, 0.5], [0.5, 0.5]])}, "do makes a cycle: 'X' → .*remove one"),
        ({"T": lambda age: 1}, "do 'T', parents: there is no variable 'age'"),
        ({"T": lambda *levels: 1}, r"parameter '\*levels' is not a parent"),
        ({"T": dict.get}, "parameter 'self' is not a parent"),
        ({"T": lambda X: "much"}, "'T' has no level 'much'"),
        ({"T": lambda X: [0.5, 0.4]}, "table of 'T': X 0 sums to 0.9, not to 1"),
        ({"T": ("X", [1, 0])}, r"is not a pair \(\[parents\], table\)"),
        ({"T": [0.5, 0.5]}, r"expected \(2, 2\)"),
    ],
)
def test_bad_interventions_say_what_is_wrong(do, words):
    with pytest.raises(ValueError, match=words):
        example().counterfactual("Y", evidence={"Y": 1}, do=do)


@pytest.mark.parametrize(
    ("targets", "options", "words"),
    [
        ("Z", {}, "targets: there is no variable 'Z'"),
        ([], {}, "targets: none given"),
        ({"Y": 3}, {}, "targets: 'Y' has no level 3"),
        ("Y", {"evidence": {"Z": 1}}, "evidence: there is no variable 'Z'"),
        ("Y", {"evidence": {"X": "high"}}, "'X' has no level 'high'; it has 'mild', 'severe'"),
        ("Y", {"evidence": {"X": []}}, "evidence: no level of 'X' is allowed"),
        ("Y", {"method": "guess"}, "method 'guess': give one of 'auto', 'exact', 'sampled'"),
        ("Y", {"method": "sampled", "draws": 1}, "draws 1: give a number of draws, at least 2"),
    ],
)
def test_bad_queries_say_what_is_wrong(targets, options, words):
    with pytest.raises(ValueError, match=words):
        example().counterfactual(targets, **{"evidence": {}, "do": {"T": 1}, **options})


def test_impossible_evidence_is_refused():
    scm = example(T=[[1.0, 0.0], [0.2, 0.8]])
    evidence = {"X": "mild", "T": 1}
    with pytest.raises(ValueError, match="evidence has probability 0: no world remains at 'T'"):
        scm.counterfactual("Y", evidence=evidence, do={"T": 0})
    with pytest.raises(ValueError, match="none of 100,000 draws fits the evidence at 'T'"):
        scm.distribution("Y", evidence=evidence, method="sampled")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alternative": {"X": "mild"}}, "give levels of the same variables"),
        ({"cause": {}, "alternative": {}}, "give levels of the same variables"),
        ({"alternative": {"T": 1}}, "cause and alternative are both"),
        ({"cause": {"T": [0, 1]}}, "give one level per variable"),
        ({"effect": {"T": 1}}, "give levels of one variable, not of the cause"),
        ({"effect": {"Y": [0, 1]}}, "is certain; leave out at least one level"),
        ({"given": {"Y": 1}}, "given: 'Y' is part of cause or effect"),
        ({"given": {"Z": 1}}, "given: there is no variable 'Z'"),
        ({"cause": {"X": "mild"}, "alternative": {"X": "severe"}, "given": {"T": 1}},
         "given: 'T' comes after the cause"),
    ],
)  # fmt: skip
def test_bad_questions_of_causation_say_what_is_wrong(changes, words):
    with pytest.raises(ValueError, match=words):
        bf.graph.conditional_effect(example(), **{**TREATMENT, **changes})


@pytest.mark.parametrize(
    ("frame", "graph", "prior", "words"),
    [
        ({"x": [1]}, [("x", "y")], 0, "no column 'y'; it has 'x'"),
        ({"x": [1]}, [], 0, "the graph has no variables"),
        ({"x": [], "y": []}, [("x", "y")], 0, "the frame has no rows"),
        ({"x": [1, None], "y": [1, 1]}, [("x", "y")], 0, "row 1: 'x' is missing; fill it"),
        ({"x": [1], "y": [1]}, [("x", "y"), ("y", "x")], 0, "makes a cycle: 'x' → 'y' and back"),
        ({"x": [1], "y": [1]}, [("x", "y")], -1, "prior -1: give a number of cases"),
    ],
)
def test_bad_data_say_what_is_wrong(frame, graph, prior, words):
    with pytest.raises(ValueError, match=words):
        bf.graph.DiscreteSCM.from_data(pd.DataFrame(frame), graph, prior=prior)


def test_an_answer_with_several_numbers_is_no_float():
    answer = example().distribution("Y")
    with pytest.raises(ValueError, match="'Y' is not one number; select a level"):
        float(answer)
    with pytest.raises(ValueError, match="give one level for each of 1 variables"):
        answer["1", "mild"]
    with pytest.raises(ValueError, match="mechanisms: there is no variable 'Z'"):
        bf.graph.DiscreteSCM.from_tables(LEVELS, TABLES, PARENTS, mechanisms={"Z": Redraw()})
    assert example().distribution({"Y": 1}).frame().shape == (1, 2)


def test_mechanisms_and_their_answers_are_checked():
    class Half:
        def counterfactual_rows(self, factual, counterfactual, observed):
            return 0.5 * counterfactual

    levels = {"t": ["0", "1"], "y": ["0", "1"]}
    tables = {"t": [0.5, 0.5], "y": [[0.5, 0.5], [0.2, 0.8]]}
    made = {"levels": levels, "tables": tables, "parents": {"y": ["t"]}}
    for wrong in (bf.GumbelMax, "gumbel", ""):
        with pytest.raises(ValueError, match="mechanism"):
            bf.graph.DiscreteSCM.from_tables(**made, mechanisms=wrong)
    scm = bf.graph.DiscreteSCM.from_tables(**made, mechanisms=Half())
    with pytest.raises(ValueError, match=r"which sums to 0\.5"):
        scm.counterfactual("y", evidence={"t": "0", "y": "0"}, do={"t": "1"})

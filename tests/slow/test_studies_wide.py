"""The ward with thirty variables: its truth, clusters by hand, and the part of the article."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

import butfor as bf
from butfor.log.clusters import Clusters
from butfor.models.classifiers import add_products, make_logistic
from butfor.models.factored import NEXT, logged_codes
from butfor.models.fitted_q import fit_q
from butfor.studies.models.clustered import Clustered, cluster_states
from butfor.studies.models.experiment import ModelsSettings
from butfor.studies.models.wide import article, world
from butfor.studies.models.wide.experiment import WideExperiment
from tests.articles import SMALL_WARD as SMALL
from tests.articles import check_article, small_study

LIMIT = 5.5  # standard errors: two-sided 4e-8, times less than a hundred checks


@pytest.fixture(scope="module")
def log():
    return world.simulate(world.physicians, 1000, seed=5)


def misfits(log, change=lambda codes: codes):
    """How often each level of each variable comes up beyond its true chance, in standard errors."""
    codes = logged_codes(log)
    found = {}
    for factor in world.factors()[:-1]:
        rows = factor.rows(change(codes))
        excess = np.eye(factor.levels)[codes[NEXT + factor.variable]] - rows
        found[factor.variable] = np.abs(excess.sum(axis=0)) / np.sqrt((rows * (1 - rows)).sum(0))
    return {variable: z.max() for variable, z in found.items()}


# ------------------------------------------------------------------------------------ the truth


def test_levels_come_up_as_often_as_the_true_factors_say(log):
    assert max(misfits(log).values()) < LIMIT
    # a drug that does nothing does not fit
    off = misfits(log, lambda codes: codes | {"action.drug A": np.zeros_like(codes["organ 1"])})
    assert off["organ 1"] > LIMIT > off["organ 6"]


def test_ends_come_up_as_often_as_the_true_factor_says(log):
    rows = world.factors()[-1].rows(logged_codes(log))
    happened = np.bincount(log.outcome % 3, minlength=3)[:2]
    expected, spread = rows.sum(axis=0)[:2], np.sqrt((rows * (1 - rows)).sum(axis=0)[:2])
    assert (np.abs(happened - expected) < LIMIT * spread).all()


def test_there_are_thirty_variables_with_few_parents():
    assert len(world.STATES) == 30
    assert max(len(factor.parents) for factor in world.factors()) == 6
    model = world.true_model(world.first_states(50, 1))
    assert not model.enumerable
    assert model.initial.sum() == pytest.approx(1)


def test_another_policy_meets_the_same_patients_with_the_same_noise(log):
    again = world.simulate(world.physicians, 1000, seed=5)
    np.testing.assert_array_equal(again.state, log.state)
    other = world.simulate(world.fixed_rule, 1000, seed=5)
    first, here = (np.stack(list(one.codes(one.first_state).values())) for one in (log, other))
    np.testing.assert_array_equal(first, here)
    start, started = log.offsets[:-1], other.offsets[:-1]
    same = log.action[start] == other.action[started]
    before, after = (
        np.stack(list(one.codes(one.next_state[rows]).values()), axis=1)
        for one, rows in ((log, start), (other, started))
    )
    # the same drugs lead to the same state; other drugs change some organs, and no marker
    np.testing.assert_array_equal(before[same], after[same])
    assert (before[~same] != after[~same]).any(axis=1).mean() > 0.5
    np.testing.assert_array_equal(world.markers(before), world.markers(after))


def test_the_true_model_predicts_true_counterfactuals(log):
    few = np.arange(300)
    patients = log.select(few)
    model = world.true_model(world.first_states(1000, 5))
    found = bf.Replay(patients, model, world.fixed_rule).outcomes(draws=200, seed=1)
    truth = world.simulate(world.fixed_rule, 1000, seed=5).outcome[few] % 3
    happened = np.eye(3)[truth]
    p = found.probability
    # outcomes are drawn from p, which is itself a share of 200 draws
    spread = np.sqrt((p * (1 - p)).sum(axis=0) * (1 + 1 / 200))
    assert (np.abs((happened - p).sum(axis=0)) < LIMIT * spread).all()
    # the noise is the patient's own: others' outcomes fit far worse
    others = np.roll(happened, 1, axis=0)
    assert ((p - happened) ** 2).sum() < 0.75 * ((p - others) ** 2).sum()


def test_policies_by_hand():
    codes = np.zeros((3, 30), np.int64)
    codes[1, [0, 5]] = 1, 2  # organs 1 and 2 are ill
    codes[2, [0, 5, 15]] = 1, 2, 1
    codes[2, [4, 9]] = 1  # so are the markers of organs 1 and 2; organ 4 is ill
    np.testing.assert_array_equal(world.organ_levels(codes)[1], [1, 2, 0, 0, 0, 0])
    np.testing.assert_array_equal(world.markers(codes)[2], [1, 1, 0, 0, 0, 0])
    # off-off, B, A, both
    np.testing.assert_array_equal(
        world.fixed_rule(codes), [[1, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    )
    a, b = 0.55, 0.15
    expected = [(1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b]
    np.testing.assert_allclose(world.physicians(codes)[1], expected)
    assert [variable.name for variable in world.ACTIONS] == ["drug A", "drug B"]


# ----------------------------------------------------------------------------- clusters, planning


def test_clusters_by_hand():
    centers = np.array([[0.0], [1.0]])
    clusters = Clusters(("x",), np.zeros(1), np.ones(1), centers, np.array([3, 1]))
    clustered = Clustered(clusters, np.array([0, 0, 1], np.int32), np.array([3, 1, 0]))
    policy = np.array([[1.0, 0.0], [0.0, 1.0], [0.2, 0.8]])
    # three decisions in state 0, one in state 1; no decision in state 2, which has its own row
    np.testing.assert_allclose(clustered.reduce(policy), [[0.75, 0.25], [0.2, 0.8]], atol=1e-8)
    plan = np.array([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_array_equal(clustered.act(plan, np.array([[0], [1]])), plan)


def test_a_log_on_clusters_has_the_same_episodes(log):
    clustered = cluster_states(log, 40)
    shown = clustered.log(log)
    assert shown.n_states == len(clustered.clusters) == 40
    np.testing.assert_array_equal(shown.state, clustered.of_state[log.state])
    np.testing.assert_array_equal(shown.next_state, clustered.of_state[log.next_state])
    np.testing.assert_array_equal(shown.returns(), log.returns())
    few = log.select([0])
    distinct = len(np.unique(few.state))
    assert len(cluster_states(few, 40).clusters) == max(2, distinct // 2)


def test_fitted_q_on_a_log_learns_what_is_best():
    # action 1 earns 1 at once in state 1 and nothing in state 0, action 0 the other way round
    state = np.array([0, 0, 1, 1] * 10)
    action = np.array([0, 1, 0, 1] * 10)
    short = bf.Episodes.from_arrays(
        state,
        action,
        state,
        offsets=np.arange(41),
        states=2,
        actions=2,
        outcome=np.zeros(40, int),
        outcomes=["done"],
        reward=(state == action).astype(float),
    )

    found = fit_q(short, LinearRegression(), horizon=3)
    np.testing.assert_allclose(found.values(np.array([[0], [1]])), np.eye(2), atol=1e-6)


def test_products_with_the_last_features():
    features = np.array([[2.0, 3.0, 5.0]], np.float32)
    np.testing.assert_array_equal(add_products(features, 0), features)
    np.testing.assert_array_equal(add_products(features, 1), [[2, 3, 5, 10, 15, 25]])


def test_logistic_regression_learns_what_the_action_turns_around():
    drawn = np.random.default_rng(0).integers(2, size=(1000, 2))
    features = np.hstack([drawn, 1 - drawn[:, [1]]]).astype(np.float32)  # the action is last
    level = (drawn[:, 0] != drawn[:, 1]).astype(int)
    given = [
        make_logistic(crossed=crossed).fit(features, level).predict_proba(features)
        for crossed in (0, 2)
    ]
    assert [one[np.arange(1000), level].min() > 0.8 for one in given] == [False, True]


# ----------------------------------------------------------------------------------- the article


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of the article and the findings behind it, small and without boosting."""
    return small_study(tmp_path_factory, "models, wide")


@pytest.mark.exhaustive
def test_the_part_alone_is_an_article(written):
    folder, findings = written
    assert findings.sepsis is None
    check_article(folder, ["wide_patients", "wide_plans"])
    page = (folder / "index.html").read_text()
    assert "Thirty variables" in page
    assert "Glucose" not in page
    found = json.loads((folder / "results.json").read_text())
    assert found["wide"]["combinations"] == 2**24 * 3**6
    assert len(pd.read_csv(folder / "wide_plans_by_log.csv")) == 2 * (3 + 1 + 2)


@pytest.mark.exhaustive
def test_one_plan_agrees_with_the_public_functions(written):
    found = written[1].wide
    seed = ModelsSettings().base_seed(1, 2)
    log = world.simulate(world.physicians, SMALL.episodes, seed=seed)
    rows = found.plans[(found.plans["repeat"] == 1) & (found.plans["model"] == "The log itself")]
    plan = fit_q(log, Ridge(), horizon=world.HORIZON)
    true = world.simulate(plan, SMALL.judging, seed=seed + 1).returns().mean()
    usual = world.simulate(world.physicians, SMALL.judging, seed=seed + 1).returns().mean()
    assert rows["true"].item() == pytest.approx(true)
    assert rows["gain"].item() == pytest.approx(true - usual)
    codes = np.stack(list(log.codes(log.first_state).values()), axis=1)
    assert rows["claimed"].item() == pytest.approx(plan.values(codes).max(axis=1).mean())


def test_means_by_hand():
    place = {"repeat": [0, 0, 1, 1], "model": ["Counts", "True model"] * 2}
    scores = pd.DataFrame({**place, "brier": [0.5, 0.4, 0.7, 0.3], "base": 0.6, "cf": 0.1})
    plans = pd.DataFrame({**place, "gain": 0.1, "true": [0.1, 0.2, 0.3, 0.2], "claimed": 0.5})
    halves = pd.DataFrame({**place, "true": 0.1, "own": 0.4, "other": 0.0})
    made = WideExperiment(SMALL, scores.assign(true=0.2), plans, halves, -0.3)
    found = article.results(made)
    counts = found["patients"][0]
    assert counts["over_true"]["mean"] == pytest.approx(0.25)  # .1 and .4
    assert counts["over_true"]["se"] == pytest.approx(0.15)
    assert counts["over_base"]["mean"] == pytest.approx(0.0)
    assert counts["cf_bias"]["mean"] == pytest.approx(-0.1)
    assert found["plans"][0]["excess"]["mean"] == pytest.approx(0.3)  # .4 and .2
    half = found["halves"][0]
    assert half["own_excess"]["mean"] == pytest.approx(0.3)
    assert half["other_excess"]["mean"] == pytest.approx(-0.1)

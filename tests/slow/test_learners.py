"""Classifiers of scikit-learn as learners of a variable's distribution."""

from unittest import mock

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from butfor import Episodes, Variable, fit_factored, sepsis
from butfor.models import classifiers, learners
from butfor.models.backoff import make_cases
from butfor.models.factored import END
from butfor.models.learners import Predictor, fit_classifier, make_features
from tests.quick.test_fit_factored import DEATH, GIVEN, PULSE, ward


def some_cases(seed=0, count=400, levels=3):
    """Cases whose level is that of the first of two parents with probability .55 + .15."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(3, size=(2, count))
    level = np.where(rng.random(count) < 0.55, first, rng.integers(3, size=count))
    return make_cases(("x", "y"), [first, second], [3, 3], level, levels, np.ones(count))


def test_a_classifier_becomes_a_table_of_all_states_and_actions():
    model = fit_factored(ward(), LogisticRegression())
    pulse = model.factor("pulse")
    assert pulse.source == "LogisticRegression"
    assert pulse.parents == ("pulse", "drug", "action.given")
    assert pulse.counts.sum() == len(ward().state)
    assert model.factor("drug").source == "copies action.given"
    assert model.end.parents == ("next.pulse", "action.given")
    assert model.tabular().n_states == 4


def test_logistic_regression_learns_the_true_probabilities():
    # P(high) is .2 with the drug, otherwise .4 and .7; 8,000 episodes, 12,000 cases or more, so
    # that with interactions each is known to 4 standard errors of sqrt(.25 / 2000) at the most
    learner = make_pipeline(
        PolynomialFeatures(2, interaction_only=True), LogisticRegression(C=100, max_iter=1000)
    )
    log = ward(2, 8_000)
    pulse = fit_factored(log, learner, parents={"pulse": ["pulse", "action.given"]}).factor("pulse")
    counts = pulse.counts.sum(axis=-1)
    seen = counts > 0
    expected = np.array([[0.4, 0.2], [0.7, 0.2]])
    error = np.abs(pulse.table[..., 1] - expected)[seen]
    assert pulse.source == "Pipeline"
    assert (error < 4 * np.sqrt(0.25 / counts[seen]) + 0.002).all()


def test_different_variables_may_have_different_learners():
    model = fit_factored(ward(), {END: DecisionTreeClassifier(max_depth=2)})
    assert model.end.source == "DecisionTreeClassifier"
    assert model.factor("pulse").source == "counts"


def test_cross_fitting_tempers_a_classifier_that_is_too_sure():
    # a full tree on features that tell every case apart predicts 0 and 1
    rng = np.random.default_rng(1)
    columns = list(rng.integers(4, size=(5, 300)))
    level = np.where(rng.random(300) < 0.7, columns[0] // 2, rng.integers(2, size=300))
    cases = make_cases("abcde", columns, [4] * 5, level, 2, np.ones(300))
    learned = fit_classifier(cases, DecisionTreeClassifier(random_state=0))
    features = make_features(cases.columns, cases.sizes, [None] * 5)
    raw = DecisionTreeClassifier(random_state=0).fit(features, cases.level)
    sure = raw.predict_proba(features).max(axis=1)
    assert np.median(sure) == 1.0
    chosen = learned.table()[tuple(cases.columns)].max(axis=1)
    assert np.median(chosen) < 0.9
    assert learned.score > np.log(0.5) - 0.3


def test_what_is_well_calibrated_is_hardly_changed():
    cases = some_cases(count=5000)
    learned = fit_classifier(cases, LogisticRegression(C=100))
    true = 0.55 * np.eye(3)[:, None] + 0.15
    # 555 cases for each configuration, shared over the second parent by the linear model
    assert np.abs(learned.table() - true).max() < 4 * np.sqrt(0.25 / 555)


def test_every_level_stays_possible_even_one_that_was_never_logged():
    learned = fit_classifier(some_cases(levels=4), LogisticRegression())
    assert learned.table().shape == (3, 3, 4)
    assert (learned.table() > 0).all()
    np.testing.assert_allclose(learned.table().sum(axis=-1), 1)


@pytest.mark.parametrize("rare", [1, 2])
def test_a_level_that_some_folds_lack_is_handled(rare):
    x = np.arange(60) % 3
    level = np.where(np.arange(60) % 2 == 0, 0, 1)
    level[:rare] = 2
    cases = make_cases(("x",), [x], [3], level, 3, np.ones(60))
    learned = fit_classifier(cases, LogisticRegression())
    assert np.isfinite(learned.score)
    assert (learned.table() > 0).all()


def test_too_few_cases_for_folds_leave_a_classifier_uncalibrated():
    level = np.array([0] * 20 + [1])
    cases = make_cases(("x",), [np.arange(21) % 2], [2], level, 2, np.ones(21))
    learned = fit_classifier(cases, LogisticRegression())
    assert np.isnan(learned.score)
    assert (learned.table() > 0).all()


def test_a_variable_that_had_one_level_only_is_counted():
    # the pulse is always high afterwards: nothing to classify
    log = Episodes.from_arrays(
        [0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1], offsets=[0, 2, 4], states=[PULSE],
        actions=[GIVEN], outcome=[0, 0], outcomes=[DEATH],
    )  # fmt: skip
    model = fit_factored(log, LogisticRegression())
    assert model.factor("pulse").source == "counts"


def test_equal_calls_give_equal_tables():
    one, other = (fit_classifier(some_cases(), LogisticRegression()) for _ in range(2))
    np.testing.assert_array_equal(one.table(), other.table())


def test_a_classifier_without_probabilities_is_refused():
    with pytest.raises(ValueError, match="learner of 'pulse': SVC has no predict_proba"):
        fit_factored(ward(), SVC())


def test_too_many_configurations_are_predicted_on_demand_without_a_table():
    many = Variable("place", tuple(str(level) for level in range(2000)))
    log = Episodes.from_arrays(
        [0, 1, 2], [0, 1, 2], [1, 2, 0], offsets=[0, 3], actions=100, outcome=[0], outcomes=[DEATH],
        states=(many, Variable("x", ("a", "b", "c", "d", "e", "f"))),
    )  # fmt: skip
    model = fit_factored(log, {"x": LogisticRegression()})
    assert isinstance(model.factor("x"), Predictor)
    assert model.factor("x").shape == (2000, 6, 100, 6)
    with pytest.raises(ValueError, match="no table of all its states and actions: 'x' predicted"):
        model.tabular()


def many_cases(count=3000):
    """Cases of which few are distinct."""
    rng = np.random.default_rng(3)
    x, y = rng.integers(3, size=(2, count))
    level = (rng.random(count) < 0.2 + 0.2 * x).astype(int)
    return make_cases(("x", "y"), [x, y], [3, 3], level, 2, np.ones(count))


@pytest.mark.parametrize("learner", [BernoulliNB(), make_pipeline(BernoulliNB())])
def test_many_cases_are_given_with_weights(learner, monkeypatch):
    # naive Bayes only adds up: weights are exactly repetitions
    one_by_one = fit_classifier(many_cases(), learner)
    monkeypatch.setattr(learners, "MOST_CASES", 1000)
    weighted = fit_classifier(many_cases(), learner)
    asked = np.eye(6, dtype=np.float32)
    found, expected = (one.fitted.predict_proba(asked) for one in (weighted, one_by_one))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isfinite(weighted.score)


def test_more_distinct_cases_than_fit_at_once_are_given_in_batches(monkeypatch):
    at_once = fit_classifier(many_cases(), BernoulliNB())
    monkeypatch.setattr(learners, "MOST_CASES", 10)
    monkeypatch.setattr(learners, "BLOCK", 4)
    batches = fit_classifier(many_cases(), BernoulliNB())
    asked = np.eye(6, dtype=np.float32)
    found, expected = (one.fitted.predict_proba(asked) for one in (batches, at_once))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isfinite(batches.score)


def test_folds_share_out_every_level_evenly():
    level = np.array([0, 1, 0, 1, 1])
    times = np.array([7, 1, 4, 12, 3])
    folds = np.array(learners._folds(level, times))
    assert folds.sum(axis=0).tolist() == times.tolist()
    for one in (0, 1):
        own = folds[:, level == one].sum(axis=1)
        assert own.max() - own.min() <= 1


def test_too_many_cases_for_a_learner_without_weights_are_refused(monkeypatch):
    monkeypatch.setattr(learners, "MOST_CASES", 100)
    message = "3,000 cases: KNeighborsClassifier learns from at most 100, because its fit takes no"
    with pytest.raises(ValueError, match=message):
        fit_classifier(many_cases(), KNeighborsClassifier())


def test_too_many_distinct_cases_for_a_learner_without_batches_are_refused(monkeypatch):
    monkeypatch.setattr(learners, "MOST_CASES", 10)
    message = "18 distinct cases: LogisticRegression learns from at most 10, because it has no part"
    with pytest.raises(ValueError, match=message):
        fit_classifier(many_cases(), LogisticRegression())


def test_boosting_learns_the_sepsis_log():
    log = sepsis.simulate(sepsis.behavior_policy("corrected"), 150, seed=0)
    log = log.hide("glucose", "diabetes")
    learner = HistGradientBoostingClassifier(max_iter=10)
    boosted, counted = fit_factored(log, learner), fit_factored(log)
    assert boosted.end.source == "HistGradientBoostingClassifier"
    scores = boosted.describe()["log_score"] - counted.describe()["log_score"]
    # both predict cases that were left out about equally well
    assert (scores.dropna() > -0.2).all()


def test_classifiers_learn_what_two_features_decide_together():
    generator = np.random.default_rng(0)
    drawn = generator.integers(2, size=(1000, 4))
    features = np.hstack([drawn, 1 - drawn]).astype(np.float32)  # one for each level
    level = (drawn[:, 0] != drawn[:, 1]).astype(int)  # no single feature tells anything
    for name in classifiers.CLASSIFIERS:
        fitted = classifiers.make_classifier(name).fit(features, level)
        given = fitted.predict_proba(features)[np.arange(1000), level]
        assert given.min() > 0.8, name


def test_unknown_and_missing_classifiers_are_refused():
    with pytest.raises(ValueError, match="classifier 'forest': give one of logistic regression"):
        classifiers.make_classifier("forest")
    with (
        mock.patch.dict("sys.modules", {"sklearn.ensemble": None}),
        pytest.raises(ValueError, match=r"pip install 'butfor\[cluster\]'"),
    ):
        classifiers.make_classifier(classifiers.BOOSTING)

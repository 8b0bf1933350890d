"""Tabular and factored models of the sepsis simulator, over 20 logs of 1000 patients.

The numbers of `butfor study models`, decided by the limits that were set for it beforehand: with
nothing hidden, a thousand patients are enough for a factored model whose plan is truly good and
whose value is known; with glucose and diabetes hidden, confounding stays.
"""

from unittest import mock

import pytest

from butfor.studies.models import learned
from butfor.studies.models.experiment import (
    ON_STATES,
    ON_VARIABLES,
    OWN,
    RULE,
    TABULAR_PLAN,
    ModelsSettings,
    run_experiment,
)
from butfor.studies.models.learned import COUNTS, KNOWN_ENDS, TABULAR
from butfor.studies.models.tables import find, score_table, value_table
from butfor.studies.models.wide import experiment as thirty
from butfor.studies.models.wide.article import plan_means, score_means


@pytest.fixture(scope="module")
def experiment():
    with mock.patch.object(learned, "have_classifiers", return_value=False):
        return run_experiment(ModelsSettings(size=(1000,)))


@pytest.fixture(scope="module")
def value(experiment):
    table = value_table(experiment.values)
    print(table.to_string())

    def mean(measure, state, target, model=COUNTS):
        return find(table, measure, state=state, target=target, model=model)["mean"]

    return mean


@pytest.fixture(scope="module")
def score(experiment):
    table = score_table(experiment.scores)
    print(table.to_string())

    def mean(measure, state, target, model=COUNTS, noise=ON_VARIABLES):
        place = {"state": state, "target": target, "model": model, "noise": noise}
        return find(table, measure, **place)["mean"]

    return mean


def test_with_nothing_hidden_values_are_known(value):
    assert abs(value("bias", "full", OWN)) <= 0.04
    assert abs(value("bias", "full", TABULAR_PLAN)) <= 0.05
    assert value("bias", "full", OWN, model=TABULAR) > 0.5


def test_plans_are_truly_good(value, experiment):
    assert value("true", "full", OWN) >= 0.52 > experiment.physicians
    assert value("true", "hidden", OWN) >= 0.36
    assert value("true", "full", OWN, model=TABULAR) < 0.2
    assert value("true", "hidden", OWN, model=TABULAR) < 0


def test_single_patients_are_predicted_nearly_as_well_as_by_the_true_model(score):
    assert score("over_true", "full", TABULAR_PLAN) <= 0.02
    assert score("over_true", "full", RULE) <= 0.04
    # nearly all of what remains under a rule that physicians seldom follow is the model of ends
    assert score("over_true", "full", RULE, model=KNOWN_ENDS) <= 0.02


def test_with_hidden_variables_patients_are_predicted_no_better_than_by_frequencies(score):
    assert score("brier", "hidden", TABULAR_PLAN) <= 0.65
    assert score("brier", "hidden", TABULAR_PLAN, model=TABULAR, noise=ON_STATES) > 1
    for target in (TABULAR_PLAN, RULE):
        assert score("over_base", "hidden", target) > -0.01


def test_what_remains_with_hidden_variables_is_confounding(value):
    assert value("bias", "hidden", OWN) > 0.2
    assert value("confounding", "hidden", OWN) > 0.8 * value("bias", "hidden", OWN)


# ------------------------------------------------------------------------------ thirty variables
#
# Limits from an earlier prototype in another world of thirty variables: Brier scores of .015
# (logistic), .037 (counts), .091 (100 clusters) and .191 (500) more than the true model's; gains
# over the physicians of .340 (factored), .284 (the log itself) and .072 (100 clusters, claiming
# 1.13 too much) of a possible .380. Another world may be about twice as hard, but not turn this
# around. The study's planner (ridge regression) and its logistic regression with the drugs crossed
# were chosen after a look at one other log of this world.


@pytest.fixture(scope="module")
def wide():
    """The first three logs of the command, without boosting, which takes longest."""
    learners = (thirty.COUNTS, thirty.LOGISTIC, thirty.CROSSED)
    with mock.patch.object(thirty, "FACTORED", learners):
        return thirty.run_wide([ModelsSettings().base_seed(repeat, 2) for repeat in range(3)])


def test_thirty_variables_are_learned_one_by_one_but_not_in_clusters(wide):
    table = score_means(wide)
    print(table.to_string())
    over = {name: find(table, "over_true", model=name)["mean"] for name in set(table["model"])}
    assert over[thirty.CROSSED] <= 0.03
    assert over[thirty.COUNTS] <= 0.075
    few, many = (over[name] for name in thirty.CLUSTERS)
    assert over[thirty.COUNTS] < few < many


def test_plans_in_factored_models_come_close_to_the_best_and_those_on_clusters_do_not(wide):
    table = plan_means(wide)
    print(table.to_string())
    gain = {name: find(table, "gain", model=name)["mean"] for name in set(table["model"])}
    possible = gain[thirty.TRUE]
    assert possible > 0.3
    assert gain[thirty.CROSSED] >= 0.8 * possible
    assert gain[thirty.COUNTS] >= 0.6 * possible
    for name in thirty.CLUSTERS:
        assert gain[name] <= 0.4 * possible
        assert find(table, "excess", model=name)["mean"] > 0.5


def test_the_value_of_a_plan_is_known_in_factored_models(wide):
    table = plan_means(wide)
    for name in (thirty.COUNTS, thirty.CROSSED):
        assert abs(find(table, "excess", model=name)["mean"]) <= 0.15
    # the two simulators of the ward are one: three times 10,000 returns of size one in each, and
    # first states of 1000 patients in one of them, have a standard error of about .012
    assert abs(find(table, "excess", model=thirty.TRUE)["mean"]) <= 5 * 0.012

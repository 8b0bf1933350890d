"""Models of logs with thirty variables: what is learned, and what it predicts."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import butfor as bf
from butfor.models.backoff import make_cases
from butfor.models.factored import Factor
from butfor.models.learners import Predictor, fit_classifier
from butfor.models.transitions import count_distinct
from tests.wide import simulate


@pytest.fixture(scope="module")
def ward():
    return simulate(0, 200)


def test_counts_find_the_parents_among_thirty_variables():
    model = bf.fit_factored(simulate(1, 400).log, parents={"": ["next.x00"]})
    for j in (1, 2, 10):
        # the variable itself and the one before it; the drug where it acts
        expected = {f"x{j:02}", f"x{j - 1:02}"} | ({"action.drug"} if j % 2 == 0 else set())
        assert expected <= set(model.factor(f"x{j:02}").parents)


def test_a_classifier_of_all_variables_predicts_on_demand_as_its_table_would(ward):
    # two parents have a table; all 31 do not. With the same two, both give the same rows
    learner = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = bf.fit_factored(ward.log, {"x02": learner}, parents={"x02": ["x02", "action.drug"]})
        many = bf.fit_factored(ward.log, {"x02": learner})
    assert isinstance(few.factor("x02"), Factor)
    found = many.factor("x02")
    assert isinstance(found, Predictor)
    codes = many.codes(ward.log.state, ward.log.action)
    rows = found.rows(codes)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert (rows > 0).all()
    small = few.factor("x02")
    onto = Predictor("x02", small.parents, _learned(ward.log, learner), 0)
    np.testing.assert_allclose(onto.rows(codes), small.rows(codes), atol=1e-12)


def _learned(log, learner):
    """The classifier of x02 from x02 and the drug, as fit_factored learns it."""
    rows = count_distinct(log)
    columns = [rows.codes[name] for name in ("x02", "action.drug")]
    cases = make_cases(
        ("x02", "action.drug"), columns, (2, 2), rows.codes["next.x02"], 2, rows.weight
    )
    return fit_classifier(cases, learner)


def test_levels_may_enter_a_classifier_as_numbers(ward):
    learner = LogisticRegression(max_iter=300)
    model = bf.fit_factored(ward.log, {"x24": learner}, numbers=["x24", "x25"])
    # 24 binary and 4 ternary variables and the drug, by level; two as numbers
    assert model.factor("x24").learned_from.fitted.n_features_in_ == 24 * 2 + 4 * 3 + 2 + 2

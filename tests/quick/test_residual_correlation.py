"""Residual correlation: hand values, correlated noise that is seen, a derived false alarm rate."""

import numpy as np
import pytest
from scipy.stats import binom, multivariate_normal, norm

import butfor as bf
from butfor.evaluate.diagnostics.correlation import (
    FALSE_ALARM,
    check_correlation,
    level_scores,
    residual_correlations,
)
from tests.correlated import one_step, predictions, steps_of, ward_log


def test_the_score_of_a_level_is_the_mean_of_its_part_of_the_normal_distribution():
    # of two equal halves: -/+ sqrt(2 / pi); a level without probability has the score of a point
    rows = np.array([[0.5, 0.5, 0.0], [0.2, 0.5, 0.3]])
    scores = level_scores(rows)
    np.testing.assert_allclose(scores[0, :2], [-np.sqrt(2 / np.pi), np.sqrt(2 / np.pi)])
    assert np.isfinite(scores).all()
    low, high = norm.ppf([0.2, 0.7])
    middle = norm.expect(lambda z: z, lb=low, ub=high, conditional=True)
    np.testing.assert_allclose(scores[1, 1], middle, rtol=1e-8)
    np.testing.assert_allclose((rows * scores).sum(axis=1), 0, atol=1e-14)


def correlated_levels(correlation, first, second, count=20_000):
    """Two variables without parents whose noise is correlated, predicted by their true rows."""
    generator = np.random.default_rng(3)
    covariance = [[1, correlation], [correlation, 1]]
    drawn = norm.cdf(generator.multivariate_normal([0, 0], covariance, count))
    return [
        one_step(np.tile(row, (count, 1)), np.searchsorted(np.cumsum(row)[:-1], u), name)
        for name, row, u in zip(("pulse", "sugar"), (first, second), drawn.T, strict=True)
    ]


def expected_correlation(correlation, first, second):
    """The same from the probability of each pair of levels, cell by cell."""
    cuts = [np.append(-9.0, norm.ppf(np.cumsum(row)).clip(-9, 9)) for row in (first, second)]
    normal = multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    below = np.array([[normal.cdf([a, b]) for b in cuts[1]] for a in cuts[0]])
    cells = np.diff(np.diff(below, axis=0), axis=1)
    x, y = (level_scores(np.array([row]))[0] for row in (first, second))
    return x @ cells @ y / np.sqrt((first @ x**2) * (second @ y**2))


@pytest.mark.parametrize("correlation", [-0.4, 0.0, 0.3, 0.6])
def test_residuals_have_the_correlation_that_follows_from_that_of_the_noise(correlation):
    first, second = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.4])
    (pair,) = residual_correlations(steps_of(20_000), correlated_levels(correlation, first, second))
    tolerance = norm.isf(0.5e-6) * pair.error
    assert tolerance < 0.04
    assert abs(pair.value - expected_correlation(correlation, first, second)) < tolerance
    # another correlation of the noise would not pass
    assert abs(pair.value - expected_correlation(correlation + 0.2, first, second)) > tolerance


@pytest.mark.parametrize(("correlation", "light"), [(0.15, "amber"), (0.6, "red"), (-0.6, "red")])
def test_correlated_noise_is_seen_and_an_order_is_offered(correlation, light):
    log = ward_log(correlation)
    model = bf.fit_factored(log)
    _, value, found, sentence = check_correlation(log, predictions(log, model))
    assert found == light
    assert np.sign(value) == np.sign(correlation)
    assert 'of "pulse" and "pressure"' in sentence
    assert 'order=["pulse", "pressure"]' in sentence


def test_with_that_order_the_correlation_is_gone():
    log = ward_log(0.6)
    model = bf.fit_factored(log, order=["pulse", "pressure"])
    assert "next.pulse" in model.factor("pressure").parents
    row = check_correlation(log, predictions(log, model))  # the halves are learned in this order
    assert row[2] == "green"
    assert abs(row[1]) < 0.05


def test_independent_noise_raises_an_alarm_as_rarely_as_derived():
    # an alarm is a correlation beyond its margin, of any of 6 pairs: 1% of the logs, if the model
    # is right; of 20 logs, at most the 1 - 1e-6 quantile may do so
    alarms = 0
    for seed in range(20):
        log = ward_log(episodes=300, seed=seed)
        pairs = residual_correlations(log, predictions(log, bf.fit_factored(log)))
        assert len(pairs) == 6
        factor = norm.isf(FALSE_ALARM / 2 / len(pairs))
        alarms += any(abs(pair.value) > factor * pair.error for pair in pairs)
    assert alarms <= binom.isf(1e-6, 20, FALSE_ALARM)
    assert check_correlation(ward_log(), predictions(ward_log(), bf.fit_factored(log)))[2] == (
        "green"
    )


def test_a_variable_that_its_parents_decide_is_left_out():
    sure = one_step([[1 - 1e-4, 1e-4]] * 500, [0] * 499 + [1])
    other = one_step([[0.5, 0.5]] * 500, [0, 1] * 250, "sugar")
    assert residual_correlations(steps_of(500), [sure, other]) == []
    assert check_correlation(steps_of(500), [sure, other]) is None


def test_few_steps_cannot_rule_out_a_correlation():
    one = one_step([[0.5, 0.5]] * 80, [0, 1] * 40)
    other = one_step([[0.5, 0.5]] * 80, [0, 0, 1, 1] * 20, "sugar")
    row = check_correlation(steps_of(80), [one, other])
    assert abs(row[1]) < 1e-12
    assert row[2] == "amber"
    assert "too few data" in row[3]

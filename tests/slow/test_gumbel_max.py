"""The closed form of the Gumbel-Max counterfactual: hand values, invariants, its slow twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import butfor as bf
from tests.grids import few
from tests.reference import gumbel as reference
from tests.support import PROPERTY, row_pairs


def all_observed(p, q):
    """Counterfactual rows for every outcome that p allows, and those outcomes."""
    possible = np.flatnonzero(p > 0)
    return bf.counterfactual_distribution(p, q, possible), possible


def test_worked_example():
    # r = (inf, 1, 1.2, .4), k is the second: D(1) = .25 + .25 + .3 + .5 = 1.3, so it stays with
    # 1 / 1.3 = .769231; only the fourth has a smaller ratio and takes the rest
    result = bf.counterfactual_distribution([0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5], 1)
    np.testing.assert_allclose(result, [0, 1 / 1.3, 0, 0.3 / 1.3], rtol=1e-14)


def test_example_of_three_mechanisms():
    # D(5) = .5 + 2 + 2.5 = 5: stays with .2; D(.2) = 1, D(1) = .5 + .4 + .5 = 1.4.
    # F(5) - F(1) = 4 / 1.4 / 5, F(1) - F(.2) = .8 / 1.4
    result = bf.counterfactual_distribution([0.5, 0.4, 0.1], [0.1, 0.4, 0.5], observed=0)
    to_second = 0.4 * 4 / 1.4 / 5
    to_third = 0.5 * (4 / 1.4 / 5 + 0.8 / 1.4)
    np.testing.assert_allclose(result, [0.2, to_second, to_third], rtol=1e-14)
    np.testing.assert_allclose(result, [0.2, 0.229, 0.571], atol=5e-4)


@PROPERTY
@given(row_pairs())
def test_rows_sum_to_one_and_average_to_the_counterfactual_row(pair):
    p, q = pair
    rows, possible = all_observed(p, q)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(p[possible] @ rows, q, rtol=1e-12, atol=1e-14)


@PROPERTY
@given(row_pairs())
def test_the_same_row_gives_what_was_observed(pair):
    p, _ = pair
    rows, possible = all_observed(p, p)
    np.testing.assert_array_equal(rows, np.eye(len(p))[possible])


@PROPERTY
@given(row_pairs())
def test_stability_nothing_moves_to_an_outcome_that_gained_no_more(pair):
    p, q = pair
    rows, possible = all_observed(p, q)
    for row, k in zip(rows, possible, strict=True):
        for j in np.flatnonzero((p > 0) & (np.arange(len(p)) != k)):
            if q[k] / p[k] >= q[j] / p[j] * (1 + 1e-12):
                assert row[j] == 0


@PROPERTY
@given(row_pairs())
def test_disjoint_supports_give_the_counterfactual_row(pair):
    p, q = pair
    zeros = np.zeros(len(p))
    rows, possible = all_observed(np.concatenate([p, zeros]), np.concatenate([zeros, q]))
    expected = np.tile(np.concatenate([zeros, q]), (len(possible), 1))
    np.testing.assert_allclose(rows, expected, rtol=1e-14)


@PROPERTY
@given(st.floats(1e-300, 1.0, exclude_max=True), st.floats(1e-300, 1.0, exclude_max=True))
def test_two_outcomes_give_the_monotone_answer(p, q):
    result = bf.counterfactual_distribution([1 - p, p], [1 - q, q], 1)
    np.testing.assert_allclose(result[1], min(1.0, q / p), rtol=1e-12)
    # the probability of necessity: without the treatment the event would not have happened
    np.testing.assert_allclose(result[0], max(0.0, 1 - q / p), rtol=1e-9, atol=1e-15)


@PROPERTY
@given(row_pairs())
def test_kernel_equals_its_slow_twin(pair):
    p, q = pair
    rows, possible = all_observed(p, q)
    for row, k in zip(rows, possible, strict=True):
        twin = reference.counterfactual_distribution(p.tolist(), q.tolist(), int(k))
        # the integral of 1 / D^2 is at most 2: ratios equal up to rounding move it by that much
        assert (np.abs(row - twin) <= 1e-11 * np.array(twin) + 1e-14 * q).all()


@pytest.mark.parametrize("size", few([49, 50, 40, 300], 2))
def test_long_rows_equal_the_slow_twin(size):
    # lists of breaks shorter and longer than the limit between the two ways of sorting
    generator = np.random.default_rng(size)
    p, q = generator.dirichlet(np.full(size, 0.5), 2)
    observed = int((p / q).argmax())  # every other entry is a break below it
    twin = reference.counterfactual_distribution(p.tolist(), q.tolist(), observed)
    np.testing.assert_allclose(bf.counterfactual_distribution(p, q, observed), twin, rtol=1e-10)


@pytest.mark.parametrize(("scale", "size"), few([(0.02, 1000), (0.02, 2000), (1.0, 2000)], 1))
def test_thousands_of_entries_keep_the_invariants(scale, size):
    generator = np.random.default_rng(7)
    p, q = (row / row.sum() for row in generator.gamma(scale, size=(2, size)) + 1e-300)
    rows = bf.counterfactual_distribution(p, q, np.arange(size))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-11)
    np.testing.assert_allclose(p @ rows, q, rtol=1e-10, atol=1e-15)


def test_probabilities_of_1e_minus_300_keep_their_digits():
    tiny = 1e-300
    # the observed outcome becomes all but impossible: it stays with q_k / p_k
    result = bf.counterfactual_distribution([1.0, tiny], [tiny, 1.0], 0)
    np.testing.assert_allclose(result, [tiny, 1.0], rtol=1e-12)
    result = bf.counterfactual_distribution([1.0, tiny], [tiny, 1.0], 1)
    np.testing.assert_array_equal(result, [0.0, 1.0])


def test_many_rows_at_once_equal_one_at_a_time():
    generator = np.random.default_rng(3)
    p, q = generator.dirichlet(np.ones(6), (2, 50))
    observed = generator.integers(6, size=50)
    together = bf.counterfactual_distribution(p, q, observed)
    for i in range(50):
        alone = bf.counterfactual_distribution(p[i], q[i], int(observed[i]))
        np.testing.assert_array_equal(together[i], alone)
    shared = bf.counterfactual_distribution(p[0], q, 2)
    np.testing.assert_array_equal(shared[7], bf.counterfactual_distribution(p[0], q[7], 2))


@pytest.mark.parametrize(
    ("p", "q", "observed", "message"),
    [
        ([0.5, 0.4], [0.5, 0.5], 0, "sums to 0.9"),
        ([0.5, 0.5], [1.5, -0.5], 0, "-0.5"),
        ([0.5, float("nan")], [0.5, 0.5], 0, "nan"),
        ([0.0, 1.0], [0.5, 0.5], 0, "observed outcome 0 has probability 0"),
        ([0.5, 0.5], [0.5, 0.5], 2, r"outcome 2 is outside 0\.\.1"),
        ([0.5, 0.5], [0.5, 0.5], -1, r"outcome -1 is outside 0\.\.1"),
        ([0.5, 0.5], [0.2, 0.3, 0.5], 0, "same outcomes"),
        ([0.5, 0.5], [0.5, 0.5], 0.5, "counted from 0"),
        ([[0.5, 0.5]] * 2, [[0.5, 0.5]] * 3, 0, "do not fit together"),
        ([[0.5, 0.5], [0.5, 0.6]], [0.5, 0.5], 0, "row 1 sums to 1.1"),
    ],
)
def test_bad_rows_are_refused_with_their_value(p, q, observed, message):
    with pytest.raises(ValueError, match=message):
        bf.counterfactual_distribution(p, q, observed)

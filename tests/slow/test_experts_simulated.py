"""Simulated experts on the sepsis demonstration; `verification/test_experts.py` has all reviews."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from butfor.evaluate.experts import ReviewSample
from tests.experts import ever_missed, sepsis_ward, simulate_reviews

REVIEWS = 50


@pytest.fixture(scope="module")
def ward():
    return sepsis_ward()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["anchored", "perfect"])
def test_intervals_hold_the_experts_own_view(ward, kind):
    found = simulate_reviews(ward, kind, REVIEWS)
    # counts that 95% of coverage falls short of, or 5% of misses exceed, once in a million
    assert found["fixed covers"] * REVIEWS >= binom.ppf(1e-6, REVIEWS, 0.95)
    assert found["anytime missed"] * REVIEWS <= binom.isf(1e-6, REVIEWS, 0.05)
    assert abs(found["estimate - own view"]) < 5 * found["fixed width"] / 4 / np.sqrt(REVIEWS)
    assert found["fixed width"] < found["anytime width"] < 2 * found["fixed width"]


@pytest.mark.exhaustive
def test_a_perfect_expert_overturns_the_model(ward):
    generator = np.random.default_rng(1)
    answers = ward.answers("perfect", generator)
    found = [bf.expert_value(*ward.review(answers, generator)) for _ in range(REVIEWS)]
    assert found[0].observed < found[0].model - 0.5
    assert np.mean([one.high < one.observed for one in found]) >= 0.95


def test_an_order_that_is_not_random_is_noticed():
    # the same check fails if cases are sorted by their answers: it can tell
    generator = np.random.default_rng(0)
    size = 400
    truth = generator.choice([-1.0, 1.0], size)
    zeros = np.zeros(size)
    missed = 0
    for _ in range(10):
        case = generator.permutation(size)[:100]
        drawn = np.isin(np.arange(size), case)
        sample = ReviewSample(zeros, zeros.astype(int), drawn, case, truth[case], (-1.0, 1.0))
        best_first = case[np.argsort(-truth[case])]
        missed += ever_missed(truth, replace(sample, case=best_first, answer=truth[best_first]))
    assert missed == 10

"""Simulated experts review the sepsis demonstration: does their view come out right?

The model says +.97, the truth is -.41, what was observed +.32. Each review is of other patients,
whom the audit's own sampling design draws by strata: 40 beside the 40 that are flagged. Experts
give chances out of ten: perfect ones, those who guess in 10% of cases (noisy), who answer with what
happened in 20% (hindsight), or who move by 20% toward the model (anchored). Their own view is the
mean of what they would have answered about all patients: intervals are about that, and do not cover
what experts misjudge together.
"""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.evaluate.experts import sample_value
from tests.experts import KINDS, after, sepsis_ward, simulate_reviews

REVIEWS, SEEDS = 1000, 200


@pytest.fixture(scope="module")
def ward():
    return sepsis_ward()


@pytest.fixture(scope="module")
def table(ward):
    rows = {kind: simulate_reviews(ward, kind, REVIEWS, seed) for seed, kind in enumerate(KINDS)}
    found = pd.DataFrame(rows).T
    print(f"\n{found.round(3).to_string()}")
    return found


def test_the_estimate_is_unbiased_for_the_experts_own_view(table):
    # five standard errors of a mean over the reviews: a false alarm in 2 million
    error = table["fixed width"] / 4 / np.sqrt(REVIEWS)
    assert (table["estimate - own view"].abs() < 5 * error).all()


def test_what_experts_misjudge_together_is_not_covered(table):
    assert table["estimate - truth"]["hindsight"] > 0.1
    assert table["estimate - truth"]["anchored"] > 0.2


def test_fixed_intervals_cover_the_experts_own_view(table):
    assert table["fixed covers"].between(0.92, 0.98).all()


def test_anytime_intervals_watched_after_every_case_seldom_miss(table):
    assert (table["anytime missed"] <= 0.05).all()


def test_fixed_intervals_watched_after_every_case_miss_too_often(ward):
    generator = np.random.default_rng(0)
    answers, truth = ward.answers("perfect", generator), ward.value(ward.truth)
    missed = 0
    for _ in range(200):
        sample = bf.expert_value(*ward.review(answers, generator)).sample
        looks = (sample_value(after(sample, k), interval="fixed") for k in range(10, 81))
        # no interval while there are too few answers, which misses nothing
        missed += any(one.low > truth or one.high < truth for one in looks)
    print(f"fixed intervals watched after every case: {missed} of 200 reviews missed")
    assert missed > 20


def test_forty_cases_read_by_a_perfect_expert_overturn_the_model(ward):
    # the model promises more than what happened; the experts' interval lies below it
    generator = np.random.default_rng(1)
    answers = ward.answers("perfect", generator)
    reviews = [ward.review(answers, generator) for _ in range(SEEDS)]
    for interval in ("fixed", "anytime"):
        found = [bf.expert_value(*review, interval=interval) for review in reviews]
        assert found[0].model > found[0].observed + 0.5
        overturned = np.mean([one.high < one.observed for one in found])
        print(f"{interval}: {overturned:.1%} of {SEEDS} reviews overturn the model")
        assert overturned >= 0.95

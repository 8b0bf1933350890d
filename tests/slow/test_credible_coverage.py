"""Credible intervals hold 95% of what is true in worlds drawn from their prior; others do not.

The whole table, with longer logs, is made by verification/test_calibration_of_credible.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

import butfor as bf
from butfor.replay.credible import credible_of_models
from tests.worlds import coverage, drawn_world, make_case, summarize

EPISODES, LOGS, MODELS = 20, 30, 100


@pytest.fixture(scope="module")
def cases():
    return [make_case(drawn_world, EPISODES, seed) for seed in range(LOGS)]


def hierarchical(replay):
    return bf.credible_intervals(replay, models=MODELS, threads=1)


def counts_alone(replay):
    """Rows around what was counted, pairs never seen following a rule, as if that were certain."""
    mean = bf.fit_mdp(replay.episodes, prior=0.01)
    cases = np.maximum(mean.counts.ravel()[mean.entry_row], 1) * mean.probability
    fixed = mean.unseen.ravel()[mean.entry_row]
    drawn = []
    for seed in range(MODELS):
        gamma = np.maximum(np.random.default_rng(seed).standard_gamma(cases), 1e-300)
        total = np.add.reduceat(gamma, mean.start[:-1])[mean.entry_row]
        drawn.append(replace(mean, probability=np.where(fixed, mean.probability, gamma / total)))
    return credible_of_models(replay, drawn, threads=1)


def fewer_than_stated(cases, ask):
    """Whether coverage of single patients is below .95, with one false alarm in a thousand."""
    mean, error = summarize([coverage(case, ask, seed) for seed, case in enumerate(cases)])
    limit = t.isf(1e-3, LOGS - 1)
    return [share + limit * off < 0.95 for share, off in zip(mean[:2], error[:2], strict=True)]


@pytest.mark.exhaustive
def test_credible_intervals_hold_what_is_true_of_single_patients(cases):
    assert fewer_than_stated(cases, hierarchical) == [False, False]


@pytest.mark.exhaustive
def test_intervals_that_know_nothing_of_unseen_pairs_would_be_noticed(cases):
    assert fewer_than_stated(cases, counts_alone) == [True, True]

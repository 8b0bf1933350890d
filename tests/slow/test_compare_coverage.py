"""Paired intervals of differences between policies hold the true difference."""

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from butfor.evaluate.compare import COMPARED, compare_policies
from butfor.models.planning import policy_value
from butfor.models.simulate import simulate_model
from tests.builders import small_world

EPISODES, HORIZON = 200, 4


def check_differences(logs):
    """Check that intervals hold the true difference, and that narrower ones would be noticed."""
    world, usual = small_world(), np.full((3, 2), 0.5)
    one, other = np.full((3, 2), [0.8, 0.2]), np.full((3, 2), [0.3, 0.7])
    truth = policy_value(world, other, horizon=HORIZON) - policy_value(world, one, horizon=HORIZON)
    held = dict.fromkeys(COMPARED, 0)
    narrow = dict.fromkeys(COMPARED, 0)
    for seed in range(logs):
        log = simulate_model(world, usual, EPISODES, horizon=HORIZON, seed=seed)
        replay = bf.Replay(log, bf.fit_mdp(log), one)
        found = compare_policies(
            {"one": replay, "other": replay.ask(target=other)}, resamples=200, seed=seed
        )
        for row in found[found["policy"] == "other"].itertuples():
            held[row.estimator] += row.low <= truth <= row.high
            narrow[row.estimator] += abs(truth - row.difference) <= (row.high - row.low) / 4
    # at 95 % fewer than this many logs would be a one in ten thousand accident
    least = binom.ppf(1e-4, logs, 0.95)
    assert min(held.values()) >= least, held
    assert max(narrow.values()) < least, narrow  # intervals half as wide would be found out


@pytest.mark.exhaustive
def test_intervals_of_differences_hold_the_true_difference():
    check_differences(50)

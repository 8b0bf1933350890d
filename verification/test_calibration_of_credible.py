"""Calibration of credible intervals in simulated worlds whose truth is known.

In each state one of four actions is taken 3% of the time and one never, and the policy takes any of
them. If worlds are drawn from the prior, 95% intervals must hold 95%: of single patients' true
expected return had the policy treated them, and of the policy's value. Run with -s for the table.
"""

import pytest
from scipy.stats import binom

import butfor as bf
from butfor.replay import credible
from tests.worlds import coverage, drawn_world, factored_world, make_case, sparse_world, summarize

LOGS = 150  # 50 of factored models
HEAD = "worlds, episodes | patients | rare or never taken | closed intervals | MB"


def measure(name, make, episodes, logs):
    """Print and return coverages in so many logs, and their standard errors."""
    found = [
        coverage(
            make_case(make, episodes, seed),
            lambda replay, seed=seed: bf.credible_intervals(replay, seed=seed, threads=1),
            seed,
        )
        for seed in range(logs)
    ]
    mean, error = summarize(found)
    cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True))
    print(f"\n{HEAD}\n{name}, {episodes} | {' | '.join(cells)}")
    return mean


def by_chance(share, logs=LOGS):
    """Whether so many of the logs can hold the value if .95 of all do; false alarm 1 in 1000."""
    low, high = binom.interval(0.999, logs, 0.95)
    return low <= round(share * logs) <= high


@pytest.mark.parametrize("episodes", [20, 60, 300])
def test_intervals_hold_as_much_as_they_say_if_worlds_are_drawn_from_the_prior(episodes):
    mean = measure("drawn from the prior", drawn_world, episodes, LOGS)
    assert 0.93 <= mean.patients <= 0.97
    assert 0.93 <= mean.rare <= 0.97
    assert by_chance(mean.value)


@pytest.mark.parametrize("episodes", [20, 60, 300])
def test_rows_that_do_not_list_everything_cost_little_in_long_logs(episodes, monkeypatch):
    # as in large logs, whose rows list only what was seen from a state
    monkeypatch.setattr(credible, "MOST_WORK", 0.0)
    mean = measure("drawn from the prior, rows shortened", drawn_world, episodes, LOGS)
    if episodes == 300:
        assert 0.93 <= mean.patients <= 0.97
    assert by_chance(mean.value)


@pytest.mark.parametrize("episodes", [20, 60, 300])
def test_intervals_hold_nearly_as_much_in_worlds_that_the_prior_does_not_have(episodes):
    mean = measure("sparse", sparse_world, episodes, LOGS)
    assert min(mean.patients, mean.rare) >= 0.9
    assert mean.value >= 0.9


@pytest.mark.parametrize("episodes", [20, 60, 300])
def test_intervals_of_factored_models_hold_as_much_if_worlds_are_drawn_from_their_prior(episodes):
    mean = measure("factored, drawn from the prior", factored_world, episodes, LOGS // 3)
    assert 0.92 <= mean.patients <= 0.98
    assert by_chance(mean.value, LOGS // 3)

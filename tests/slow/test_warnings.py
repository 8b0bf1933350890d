"""Checks warn of a hidden cause and not of nothing, on a few logs; all in verification/."""

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from butfor.evaluate.diagnostics.lights import ALARMS
from butfor.evaluate.diagnostics.past import FALSE_ALARM, past_tests
from butfor.evaluate.past_counts import PastCounts
from tests.confounded import check_stays, simulate_stays
from tests.grids import few

LOGS, EPISODES, CHANCE = 10, 5000, 1e-6


@pytest.mark.parametrize(
    ("fit", "confounded", "rate"),
    few(
        [
            (bf.fit_mdp, True, 0.95),
            (bf.fit_factored, False, 0.10),
            (bf.fit_mdp, False, 0.10),
            (bf.fit_factored, True, 0.95),
        ],
        2,
    ),
)
def test_checks_warn_of_a_hidden_cause_and_not_of_nothing(fit, confounded, rate):
    # at least 95% of the logs with a hidden cause have an alarm, at most 10% of those without: what
    # is counted here would happen by chance once in a million times if the rate is at its limit
    warned = 0
    for seed in range(LOGS):
        checks = check_stays(simulate_stays(EPISODES, 500 + seed, confounded=confounded), fit)
        warned += checks["light"].isin(ALARMS).any()
        assert checks["light"].iloc[-1] == "unknown"
    if confounded:
        assert warned >= binom.ppf(CHANCE, LOGS, rate)
    else:
        assert warned <= binom.isf(CHANCE, LOGS, rate)


def sparse_log(seed):
    """Stays in one of 40 states, half of which are rare, under a policy and a course by state."""
    rng = np.random.default_rng(seed)
    episodes, steps, states, actions = 300, 6, 40, 3
    policy = rng.dirichlet(np.ones(actions), states)
    course = rng.dirichlet(np.where(np.arange(states) < 20, 0.5, 0.02), (states, actions))
    path, chosen = np.empty((episodes, steps + 1), int), np.empty((episodes, steps), int)
    path[:, 0] = rng.integers(20, size=episodes)
    for t in range(steps):
        here = path[:, t]
        chosen[:, t] = (rng.random((episodes, 1)) > policy[here].cumsum(1)[:, :-1]).sum(1)
        rows = course[here, chosen[:, t]]
        path[:, t + 1] = (rng.random((episodes, 1)) > rows.cumsum(1)[:, :-1]).sum(1)
    return bf.Episodes.from_arrays(
        path[:, :-1].ravel(),
        chosen.ravel(),
        path[:, 1:].ravel(),
        offsets=np.arange(0, episodes * steps + 1, steps),
        states=states,
        actions=actions,
    )


@pytest.mark.parametrize("logs", few([100, 300], 1))
def test_the_past_is_falsely_found_to_matter_as_seldom_as_stated(logs):
    # In logs in which only the state matters, one log in a hundred may have a test beyond its
    # limit, whatever its size: more logs than the limit below have one once in a million times.
    alarms, freedom = 0, 0
    for seed in range(logs):
        tests = list(past_tests(PastCounts.of_log(sparse_log(seed))))
        freedom += sum(test.freedom for *_, test in tests)
        alarms += any(test.chance < FALSE_ALARM / len(tests) for *_, test in tests)
    assert freedom > 10 * logs  # there was something to test
    assert alarms <= binom.isf(CHANCE, logs, FALSE_ALARM)

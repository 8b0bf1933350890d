"""Checks warn of a strong hidden cause, and not of nothing.

A frailty that lasts and nobody records drives the treatment (.8 against .2) and the course: at
least one check has to warn in 95 of 100 logs of 5000 stays. In logs of the same size without it
none may, in 90 of 100. What cannot be checked at all does not count as a warning.
"""

import pytest

import butfor as bf
from butfor.evaluate.diagnostics.lights import ALARMS
from tests.confounded import check_stays, simulate_stays

LOGS, EPISODES = 100, 5000


def count_alarms(fit, *, confounded):
    """Return how many logs have any alarm, after printing how many each check has."""
    alarms = {}
    warned = 0
    for seed in range(LOGS):
        checks = check_stays(simulate_stays(EPISODES, seed, confounded=confounded), fit)
        found = checks["check"][checks["light"].isin(ALARMS)].tolist()
        warned += bool(found)
        for check in found:
            alarms[check] = alarms.get(check, 0) + 1
    print(f"{fit.__name__}, confounded {confounded}: {warned} of {LOGS} logs; {alarms}")
    return warned


@pytest.mark.parametrize("fit", [bf.fit_mdp, bf.fit_factored])
def test_a_hidden_cause_is_warned_of(fit):
    assert count_alarms(fit, confounded=True) >= 95


@pytest.mark.parametrize("fit", [bf.fit_mdp, bf.fit_factored])
def test_nothing_hidden_is_not_warned_of(fit):
    assert count_alarms(fit, confounded=False) <= 10

"""Checks warn of a strong hidden cause, and not of nothing.

A frailty that lasts and nobody records drives the treatment (.8 against .2) and the course: at
least one check has to warn in 95 of 100 logs of 5000 stays. In logs of the same size without it
none may, in 90 of 100. What cannot be checked at all does not count as a warning.
"""

from collections import Counter

import pytest

import butfor as bf
from butfor.evaluate.diagnostics.lights import ALARMS
from tests.confounded import TARGET, check_stays, simulate_stays

LOGS, EPISODES = 100, 5000


def count_alarms(fit, *, confounded, episodes=EPISODES, target=TARGET):
    """Return how many logs have an alarm, and how many each check has; print both."""
    alarms = Counter()
    warned = 0
    for seed in range(LOGS):
        log = simulate_stays(episodes, seed, confounded=confounded)
        checks = check_stays(log, fit, target)
        found = checks["check"][checks["light"].isin(ALARMS)].tolist()
        alarms.update(found)
        warned += bool(found)
    print(f"{fit.__name__}, confounded {confounded}: {warned} of {LOGS} logs; {dict(alarms)}")
    return warned, alarms


@pytest.mark.parametrize("fit", [bf.fit_mdp, bf.fit_factored])
def test_a_hidden_cause_is_warned_of(fit):
    assert count_alarms(fit, confounded=True)[0] >= 95


@pytest.mark.parametrize("fit", [bf.fit_mdp, bf.fit_factored])
def test_nothing_hidden_is_not_warned_of(fit):
    assert count_alarms(fit, confounded=False)[0] <= 10


def test_at_low_overlap_the_weights_alarm_with_nothing_hidden():
    # 100 stays and a deterministic policy that few of them follow: the limit of this check. The
    # other two do not share it: each may be wrong in one log in a hundred.
    plain = (TARGET > 0.5).astype(float)
    _, alarms = count_alarms(bf.fit_mdp, confounded=False, episodes=100, target=plain)
    assert alarms["mean importance weight"] > LOGS / 22  # more than two standard errors allow
    assert alarms["estimators disagree"] <= 5
    assert alarms["the past still matters"] <= 5

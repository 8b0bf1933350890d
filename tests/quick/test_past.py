"""The past still matters: the test, what it is given, and what it says."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import butfor as bf
from butfor.evaluate.diagnostics.past import GTest, g_test, past_row
from butfor.evaluate.past_counts import PastCounts
from tests.builders import DEATH, HOME, patient_log
from tests.reference import past as plain


def counted(cases):
    """Counts of (stratum, row, column), as the test takes them."""
    distinct, number = np.unique(np.array(cases), axis=0, return_counts=True)
    return (*distinct.T, number)


def loyal_log(episodes, steps, keeps, seed):
    """Each patient is in one state, and gets the treatment of the step before with `keeps`."""
    rng = np.random.default_rng(seed)
    action = rng.integers(2, size=(episodes, steps))
    for t in range(1, steps):
        same = rng.random(episodes) < keeps
        action[:, t] = np.where(same, action[:, t - 1], 1 - action[:, t - 1])
    state = np.zeros(episodes * steps, int)
    return bf.Episodes.from_arrays(
        state,
        action.ravel(),
        state,
        offsets=np.arange(0, episodes * steps + 1, steps),
        states=1,
        actions=2,
    )


def test_one_table_gives_the_usual_statistic():
    # 30, 20 / 20, 30: every expected count is 25. G = 2 (60 log 1.2 + 40 log .8) = 4.0271; the
    # correction 1 + (100 / 50 + 100 / 50 - 1)^2 / 600 = 1.015. Open: 200 log 2.
    cases = [(0, 0, 0)] * 30 + [(0, 0, 1)] * 20 + [(0, 1, 0)] * 20 + [(0, 1, 1)] * 30
    found = g_test(*counted(cases))
    table = [[30, 20], [20, 30]]
    usual = chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
    assert found.statistic == pytest.approx(usual / 1.015, rel=1e-12)
    assert (found.freedom, found.cases) == (1, 100)
    assert found.open == pytest.approx(200 * np.log(2), rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_it_equals_its_plain_twin(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 400))
    cases = np.stack([rng.integers(top, size=size) for top in rng.integers(1, 9, 3)], axis=1)
    cases = np.minimum(cases, rng.integers(9, size=cases.shape))  # low levels are more frequent
    found = g_test(*counted(cases))
    statistic, freedom, open_, tested = plain.g_test([tuple(case) for case in cases.tolist()])
    assert (found.freedom, found.cases) == (freedom, tested)
    assert found.statistic == pytest.approx(statistic, rel=1e-9, abs=1e-9)
    assert found.open == pytest.approx(open_, rel=1e-9, abs=1e-9)


def test_what_is_told_is_a_share_of_what_is_open():
    test = GTest(statistic=12.0, freedom=2, open=100.0, cases=50)
    assert test.told == 0.1
    assert GTest(statistic=1.0, freedom=2, open=100.0, cases=50).told == 0.0
    # with 1 degree of freedom, 3.84 is exceeded in one case in twenty
    test = GTest(statistic=3.8414588, freedom=1, open=100.0, cases=50)
    assert test.chance == pytest.approx(0.05, rel=1e-6)
    assert test.detectable(0.05) == pytest.approx(0.028414588, rel=1e-6)


def test_what_precedes_a_step_is_counted():
    # Two patients in two states: 0 -a1-> 1 -a0-> end, 1 -a0-> home at once.
    log = bf.Episodes.from_arrays(
        [0, 1, 1], [1, 0, 0], [1, 0, 1], offsets=[0, 2, 3], states=2, actions=2,
        outcome=[0, 1], outcomes=[DEATH, HOME],
    )  # fmt: skip
    counts = PastCounts.of_log(log)
    columns = (counts.past, counts.state, counts.action, counts.follows, counts.number)
    # nothing before the first steps (0); then action 1 (2), and level 0 of variable 1
    assert sorted(zip(*(c.tolist() for c in columns), strict=True)) == [
        (0, 0, 1, 1, 1),
        (0, 1, 0, 3, 1),  # S + 1: home
        (2, 1, 0, 2, 1),
        (1 << 32, 1, 0, 2, 1),
    ]


def told_by_habit(keeps, decisions):
    """Share told of an action kept with `keeps` at four of five steps, and five standard errors.

    Each such step tells log2(2 keeps) bits or log2(2 - 2 keeps), 1 - H(keeps) on average.
    """
    bits = np.log2(2 * np.array([keeps, 1 - keeps]))
    mean = keeps * bits[0] + (1 - keeps) * bits[1]
    spread = np.sqrt(keeps * (1 - keeps)) * (bits[0] - bits[1])
    return 0.8 * mean, 5 * 0.8 * spread / np.sqrt(0.8 * decisions)


def test_a_habit_shows_with_its_size():
    name, share, light, said = past_row(PastCounts.of_log(loyal_log(2000, 5, 0.75, 0)))
    expected, margin = told_by_habit(0.75, 10_000)
    assert share == pytest.approx(expected, abs=margin)
    assert (name, light) == ("the past still matters", "red")
    assert said.startswith("Given the state, the action of the step before, if any, still predicts")


def test_no_habit_shows_nothing():
    _, share, light, said = past_row(PastCounts.of_log(loyal_log(2000, 5, 0.5, 1)))
    assert light == "green"
    assert share < 0.001
    assert "nothing about the step before" in said


def test_a_small_habit_in_a_large_log_is_no_alarm():
    # a correlation of .1 tells .6%, below the limit, though far beyond chance
    _, share, light, said = past_row(PastCounts.of_log(loyal_log(20_000, 5, 0.55, 2)))
    expected, margin = told_by_habit(0.55, 100_000)
    assert share == pytest.approx(expected, abs=margin)
    assert light == "green"
    assert "too little to matter much" in said


def test_too_few_cases_cannot_be_checked():
    _, share, light, said = past_row(PastCounts.of_log(patient_log()))
    assert light == "unknown"
    assert np.isnan(share)
    assert "could not be assessed" in said


def test_single_steps_have_no_past():
    assert past_row(PastCounts.of_log(loyal_log(50, 1, 0.5, 0))) is None


def test_a_state_that_contains_the_past_leaves_nothing_to_tell():
    # the same habit, with the action of the step before as the state
    log = loyal_log(2000, 5, 0.75, 3)
    before = np.where(log.time > 0, np.roll(log.action, 1) + 1, 0)
    known = bf.Episodes.from_arrays(
        before, log.action, log.action + 1, offsets=log.offsets, states=3, actions=2
    )
    assert past_row(PastCounts.of_log(known))[2] == "green"

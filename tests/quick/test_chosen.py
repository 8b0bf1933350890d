"""Credible intervals of some episodes: the same as in all of them, and the mean from a sample."""

import numpy as np
import pytest
from scipy.stats import binom

import butfor as bf
from butfor.audit import intervals
from butfor.audit.run import run_audit
from butfor.audit.sampling import SAMPLE, WHOLE, sample_size
from butfor.audit.settings import AuditSettings
from butfor.replay.credible import central, mean_of_sample

ENDS = [0.025, 0.975]
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def replay():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 30, seed=3).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return bf.Replay(log, model, bf.policy_iteration(model).table)


@pytest.fixture(scope="module")
def everyone(replay):
    return bf.credible_intervals(replay, models=8)


def test_intervals_of_some_are_those_of_all(replay, everyone):
    only = np.array([2, 3, 11, 29])
    some = bf.credible_intervals(replay, models=8, only=only, sample=[3, 29])
    others = np.setdiff1d(np.arange(30), only)
    for name in ("expected_return", "probability", "mean_return", "mean_weaker", "mean_stronger"):
        found, known = getattr(some, name), getattr(everyone, name)
        np.testing.assert_array_equal(found[only], known[only], err_msg=name)
        assert np.isnan(found[others]).all(), name
    pair = [one.estimates.set_index("estimator") for one in (some, everyone)]
    np.testing.assert_array_equal(pair[0].loc["MB"], pair[1].loc["MB"])
    assert some.frame().isna().all(axis=1).sum() == len(others)


def test_the_mean_of_a_sample_of_everyone_is_theirs(replay, everyone):
    all_of_them = np.arange(30)
    some = bf.credible_intervals(replay, models=8, only=all_of_them, sample=all_of_them)
    np.testing.assert_allclose(
        some.estimates[["value", "low", "high"]],
        everyone.estimates[["value", "low", "high"]],
        rtol=0,
        atol=1e-12,
    )


def test_positions_are_checked(replay):
    with pytest.raises(ValueError, match="from 0 to 29"):
        bf.credible_intervals(replay, models=2, only=[30])
    with pytest.raises(ValueError, match="also among those of only"):
        bf.credible_intervals(replay, models=2, only=[1], sample=[2])


def test_the_interval_from_a_sample_holds_the_mean_of_everyone():
    """One more model's mean over all episodes lies in 95% of the intervals.

    Each episode differs from the known return by its own amount, and reacts to the model by its
    own amount. Without the sampling error far too many intervals would miss.
    """
    generator = np.random.default_rng(0)
    trials, count, drawn, models = 2000, 120, 30, 60
    missed, missed_without = 0, 0
    for _ in range(trials):
        own, reaction = generator.normal(size=(2, count))
        theta = generator.normal(scale=0.2, size=models + 1)
        gap = own[:, None] + (1.0 + 0.5 * reaction[:, None]) * theta
        sampled = generator.choice(count, drawn, replace=False)
        truth = gap[:, -1].mean()
        _, low, high = mean_of_sample(gap[sampled, :-1], count, ENDS)
        missed += not low <= truth <= high
        low, high = central(gap[sampled, :-1].mean(axis=0), ENDS)
        missed_without += not low <= truth <= high
    # a normal error of estimated size is Student's: 29 degrees of freedom miss 6% instead of 5%
    assert missed <= binom.isf(FALSE_ALARM, trials, 0.06)
    assert missed >= binom.ppf(FALSE_ALARM, trials, 0.03)
    assert missed_without > binom.isf(FALSE_ALARM, trials, 0.06)


def test_a_small_log_is_its_own_sample():
    assert [sample_size(n, None) for n in (1, WHOLE, WHOLE + 1)] == [1, WHOLE, SAMPLE]
    assert [sample_size(100, asked) for asked in (0, 7, 1000)] == [0, 7, 100]


def test_fewer_models_are_drawn_where_each_is_much_work(replay, monkeypatch):
    def chosen(**options):
        return intervals.choose_models(replay, AuditSettings(**options))

    assert chosen() == (200, "")
    assert chosen(models=7) == (7, "")
    work = intervals._work_of_model(replay, AuditSettings())
    for models, room in ((100, 120), (50, 70), (0, 69)):
        monkeypatch.setattr(intervals, "MOST_WORK", room * work)
        found, told = chosen()
        assert found == models
        assert str(models) in told if models else "--models 50" in told
    assert chosen(models=200) == (200, "")


def test_an_audit_draws_models_for_those_shown_and_a_sample(replay):
    audit = run_audit(replay, flags=2, review_size=4, intervals=6, models=8, seed=1)
    table = audit.episodes
    known = table["low_credible"].notna()
    assert (known == table["low_any"].notna()).all()
    assert known[(table["rank"] > 0) | table["control"]].all()
    assert 6 <= known.sum() <= 10
    low, high = audit.meta.parameters.credible.these
    assert low < high


def test_a_step_takes_work_however_few_the_states(replay):
    # tables are computed step by step: 100,000 of them take a minute for 200 models of four states
    long = bf.Replay(replay.episodes, replay.model, replay.target, horizon=100_000)
    models, told = intervals.choose_models(long, AuditSettings())
    assert models == 0
    assert "--models 50" in told

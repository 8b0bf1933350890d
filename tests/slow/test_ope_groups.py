"""Estimates from sums over groups of episodes: the same values, and intervals up to chance."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from scipy.stats import norm

import butfor as bf
from butfor.audit.exact import ExactSums
from butfor.evaluate import refit
from butfor.evaluate.bootstrap import resample_weights
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import estimate_sample, estimate_values
from butfor.evaluate.estimators.columns import GROUPS as OF_SHARDS
from butfor.evaluate.estimators.columns import Columns, group_of
from butfor.evaluate.estimators.table import CONTINUED, CROSS_FITTED, ESTIMATORS, OnColumns
from butfor.evaluate.intervals import BY_MODEL, NOT_REFITTED, ONE
from butfor.evaluate.refit import group_episodes
from butfor.evaluate.warn import never_taken, of_censored, unsupported_mass
from butfor.random import episode_keys
from tests.builders import ward_log
from tests.support import FALSE_ALARM

OF_COLUMNS = {
    name: f.function
    for name, f in ESTIMATORS.items()
    if isinstance(f, OnColumns) and name != CONTINUED  # no episode is lost
}
SUMMED = [name for name in OF_COLUMNS if name != "MAGIC"]  # MAGIC judges its rows, not sums only
RESAMPLED = [name for name in SUMMED if name not in BY_MODEL]
GROUPS, RESAMPLES = 500, 1000


@pytest.fixture(scope="module")
def sepsis():
    """3000 patients under a policy near that of their clinicians, so that weights stay mild."""
    version = "icml2019"
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(version), 3000, seed=7, version=version)
    log = log.hide("glucose", "diabetes")
    model, behavior = bf.fit_mdp(log), bf.estimate_behavior(log)
    target = behavior**1.2
    target /= target.sum(axis=1, keepdims=True)
    replay = bf.Replay(log, model, target)
    sample = EpisodeColumns(replay)
    assert sample.effective > 1000  # bootstrap distributions are near the normal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refit, "MOST_ENTRIES", 0)  # MAGIC without an interval, which takes long
        table = estimate_values(replay, estimators=list(OF_COLUMNS), resamples=RESAMPLES)
    return SimpleNamespace(
        sample=sample,
        groups=group_episodes(sample, blend=False),
        table=by_name(table),
        hashed=(episode_keys(0, log.id, "groups") % GROUPS).astype(np.int64),
    )


class Grouped:
    """What is known about the episodes of a sample, with other rows to resample."""

    def __init__(self, sample, columns):
        full = columns.episodes > 0
        kept = Columns.from_matrix(columns.matrix()[full], columns.ratio.shape[1], columns.seed)
        self.columns = self.logged = replace(kept, group=columns.group)
        self.sample = sample

    def __len__(self):
        return len(self.columns)

    def __getattr__(self, name):
        return getattr(self.sample, name)


def by_name(table):
    return table.set_index("estimator")


def group_sums(columns, group, count, parts=1):
    """Sum the columns exactly by group, part after part."""
    matrix = columns.matrix()
    sums = ExactSums.make(count, matrix.shape[1])
    for part in np.array_split(np.arange(len(group)), parts):
        sums.add(group[part], matrix[part])
    return Columns.from_matrix(sums.values(), columns.ratio.shape[1], columns.seed)


def test_columns_come_back_from_their_matrix(sepsis):
    columns = replace(sepsis.sample.columns, group=None)
    again = Columns.from_matrix(columns.matrix(), columns.ratio.shape[1], columns.seed)
    for name, values in vars(columns).items():
        np.testing.assert_array_equal(getattr(again, name), values)
    with pytest.raises(ValueError, match=r"expected 86 columns for 20 steps"):
        Columns.from_matrix(columns.matrix()[:, 1:], columns.ratio.shape[1], 0)


def test_estimates_of_two_groups_by_hand():
    # group 0: two episodes, weights 2 + 1 = 3 at each of two steps, group 1: one with weight 1.
    # Observed (1 + 3) / 3, IS (2 + 3) / 3, WIS (2 + 3) / (3 + 1)
    # PDIS ((1 + 1) + (1 + 2) / 2) / 3 with discount 1/2, PDWIS (1 + 1) / 4 + (1 + 2) / 4 / 2
    # DR ((3 + 1) + (0 - 1) + ((1 + 0) + (2 + 1)) / 2) / 3
    # WDR 4 / 3 - 1 / 4 + ((1 + 0) / 4 + (2 + 1) / 4) / 2
    columns = Columns(
        episodes=np.array([2.0, 1.0]),
        recorded=np.array([1.0, 3.0]),
        returns=np.array([1.0, 3.0]),
        weighted_return=np.array([2.0, 3.0]),
        ratio=np.array([[3.0, 3.0], [1.0, 1.0]]),
        earned=np.array([[1.0, 0.5], [1.0, 1.0]]),
        base=np.array([[3.0, 0.5], [1.0, 0.0]]),
        surprise=np.array([[0.0, 1.0], [-1.0, 0.5]]),
        value=np.array([3.0, 1.0]),
        counterfactual=np.array([1.5, 0.0]),
        seed=0,
    )
    expected = {
        "Observed": 4 / 3,
        "IS": 5 / 3,
        "WIS": 5 / 4,
        "PDIS": 3.5 / 3,
        "PDWIS": 0.5 + 0.375,
        "DR": 5 / 3,
        "WDR": 4 / 3 - 0.25 + 0.5,
        "MB": 4 / 3,
        "CF": 0.5,
    }
    for name in SUMMED:
        value = OF_COLUMNS[name](columns, np.ones((1, 2)))[0]
        assert value == pytest.approx(expected[name], abs=1e-15), name


@pytest.mark.parametrize("name", OF_COLUMNS)
def test_groups_that_are_all_several_times_as_large_change_nothing(sepsis, name):
    columns = sepsis.sample.columns
    few = Columns.from_matrix(columns.matrix()[:200], columns.ratio.shape[1], columns.seed)
    large = Columns.from_matrix(4 * few.matrix(), few.ratio.shape[1], few.seed)
    weights = resample_weights(200, 3, 2)
    values = OF_COLUMNS[name](few, weights)
    np.testing.assert_allclose(OF_COLUMNS[name](large, weights), values, rtol=1e-9)


def test_groups_of_one_episode_give_the_table_of_the_episodes(sepsis):
    columns = sepsis.sample.columns
    sample = Grouped(sepsis.sample, columns)
    table = by_name(estimate_sample(sample, groups=sepsis.groups, resamples=RESAMPLES))
    pd.testing.assert_frame_equal(table, sepsis.table, rtol=1e-12, atol=0)


def test_values_of_groups_are_those_of_the_episodes(sepsis):
    groups = group_sums(sepsis.sample.columns, sepsis.hashed, GROUPS)
    table = by_name(estimate_sample(Grouped(sepsis.sample, groups), groups=sepsis.groups))
    for name in SUMMED:
        assert abs(table.value[name] - sepsis.table.value[name]) < 1e-12, name
    columns = ["episodes", "effective", "warning"]
    assert table[columns].equals(sepsis.table[columns])
    inside = sepsis.table.loc["WDR"]
    assert inside.low < table.value["MAGIC"] < inside.high


def test_magic_of_many_episodes_is_that_of_the_groups_of_shards(sepsis):
    columns, log = sepsis.sample.columns, sepsis.sample.replay.log
    assert len(columns) > OF_SHARDS
    group = group_of(episode_keys(0, log.unit, "shards"))
    groups = group_sums(columns, group, OF_SHARDS)
    kept = Grouped(sepsis.sample, groups).columns
    value = OF_COLUMNS["MAGIC"](kept, np.ones((1, len(kept))))[0]
    assert value == pytest.approx(sepsis.table.value["MAGIC"], abs=1e-12)


def widths_apart(sepsis, group):
    """Relative difference between the widths of intervals, and how large chance may make it.

    A quantile of B resampled values has the variance p (1 - p) / (B f^2), f the density there; two
    at p and 1 - p have the covariance p^2 / (B f^2). So a width, 2 z_p standard deviations of a
    normal distribution, has the relative variance q^2 = 2 p (1 - 2 p) / (B phi(z_p)^2 (2 z_p)^2);
    here are two of them. Episodes fall into one of G groups at random: the pairs that meet there
    add 2 z_i z_j to the variance sum z_i^2 of centred contributions, each pair with probability
    1 / G and independently of any other pair. Since sum z_i = 0, that takes 1 / G of the variance,
    and has a variance of its own below 2 / G of its square; a width has half of both.
    """
    tail = 0.025
    z = norm.isf(tail)
    quantiles = 2 * tail * (1 - 2 * tail) / (RESAMPLES * norm.pdf(z) ** 2 * (2 * z) ** 2)
    chance = ndtri(1 - FALSE_ALARM / len(RESAMPLED) / 2)
    allowed = chance * np.sqrt(2 * quantiles + 0.5 / GROUPS) + 0.5 / GROUPS
    groups = group_sums(sepsis.sample.columns, group, GROUPS)
    table = by_name(estimate_sample(Grouped(sepsis.sample, groups), resamples=RESAMPLES, seed=1))
    apart = (table.high - table.low) / (sepsis.table.high - sepsis.table.low) - 1
    return apart[RESAMPLED].abs(), allowed


def test_intervals_of_groups_are_as_wide_as_those_of_episodes(sepsis):
    apart, allowed = widths_apart(sepsis, sepsis.hashed)
    assert (apart < allowed).all(), (apart, allowed)


def test_intervals_of_groups_that_are_not_random_are_not(sepsis):
    # six neighbours in the order of their returns are nearly one episode: the width of their mean
    # is up to sqrt(6) times as large
    rank = np.argsort(np.argsort(sepsis.sample.returns, kind="stable"))
    apart, allowed = widths_apart(sepsis, rank // 6)
    assert apart["Observed"] > allowed


def test_neither_order_nor_parts_of_the_log_change_a_byte(sepsis):
    columns = sepsis.sample.columns
    order = np.random.default_rng(3).permutation(len(columns))
    shuffled = Columns.from_matrix(columns.matrix()[order], columns.ratio.shape[1], columns.seed)
    whole = group_sums(columns, sepsis.hashed, GROUPS).matrix()
    parts = group_sums(shuffled, sepsis.hashed[order], GROUPS, parts=7).matrix()
    assert whole.tobytes() == parts.tobytes()


def test_without_a_model_learned_again_its_estimates_have_no_interval(sepsis):
    table = by_name(estimate_sample(Grouped(sepsis.sample, sepsis.sample.columns), resamples=9))
    printed = np.isfinite(table[["low", "high"]]).all(axis=1)
    assert set(table.index[~printed]) == {"MB", "CF", "MAGIC"}
    assert table.warning[~printed].str.startswith(NOT_REFITTED).all()


@pytest.mark.parametrize("learned", [False, True])
def test_cross_fitted_values_are_averaged_over_splits_and_halves(sepsis, learned):
    both = np.random.default_rng(1).normal(scale=0.1, size=(2, 10, 2))
    crossed = CrossFitted(*both, *np.zeros((2, 10, 2)), learned=learned)
    sample = Grouped(sepsis.sample, sepsis.sample.columns)
    table = by_name(estimate_sample(sample, crossed, sepsis.groups, resamples=20))
    assert list(table.index) == [*OF_COLUMNS, *CROSS_FITTED]
    for name, values in zip(CROSS_FITTED, both, strict=True):
        assert table.value[name] == pytest.approx(values.mean(), abs=1e-12)
        ends = crossed.interval(values, 0.95)
        assert (table.low[name], table.high[name]) == pytest.approx(ends, abs=1e-12)
    printed = table.index[np.isfinite(table.low)]
    plain = ["Observed"] if learned else SUMMED
    assert printed.tolist() == [*plain, *CROSS_FITTED]


def test_one_group_has_no_interval(sepsis):
    group = np.zeros(len(sepsis.sample), np.int64)
    one = Grouped(sepsis.sample, group_sums(sepsis.sample.columns, group, 1))
    table = estimate_sample(one, resamples=9)
    assert table[["low", "high", "low_these", "high_these"]].isna().all(axis=None)
    assert table.warning.str.startswith(ONE).all()


def test_groups_are_checked(sepsis):
    columns = sepsis.sample.columns
    for wrong in ({"interval": "wide"}, {"confidence": 1.0}, {"resamples": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            estimate_sample(Grouped(sepsis.sample, columns), **wrong)


def test_counterfactuals_are_computed_only_for_estimators_that_look_at_them(sepsis, monkeypatch):
    asked = sepsis.sample.replay
    sample = EpisodeColumns(asked.ask(), seed=0)  # the same question, of which nothing is known

    def refuse(*_, **__):
        raise AssertionError("counterfactuals were computed")

    monkeypatch.setattr(type(asked.engine), "outcomes", refuse)
    ESTIMATORS["WIS"](sample, np.ones((1, len(sample))))
    assert unsupported_mass(sample, None, ["WIS"]) == {}
    assert np.isnan(sample.logged.counterfactual).all()
    with pytest.raises(AssertionError, match="were computed"):
        ESTIMATORS["CF"](sample, np.ones((1, len(sample))))


def test_what_warnings_about_the_ward_log_rest_on():
    # returns -1, 1, 0, -1 (spread sqrt(11) / 4), stay 2 breaks off. The target takes a1 in state 0,
    # which was done there, and a0 in state 1, which was not; nothing was decided in state 2
    log = ward_log()
    model = bf.fit_mdp(log)
    target = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    names = ["Observed", "MB", "CF"]
    replay = bf.Replay(log, model, target)
    sample = EpisodeColumns(replay)
    assert sample.spread == pytest.approx(11**0.5 / 4)
    assert (sample.episodes, sample.followers, sample.effective) == (4, 0, 0.0)
    assert of_censored("Observed", sample).startswith("1 episode stops before the horizon")
    assert of_censored("MB", sample) == ""
    assert never_taken(replay, replay.behavior_table).tolist() == [1]
    assert never_taken(replay, sample.decisions).tolist() == [1]
    assert set(unsupported_mass(sample, None, names)) == {"MB", "CF"}

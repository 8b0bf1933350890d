"""Off-policy evaluation: each estimator against its slow twin."""

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate import episode_columns
from butfor.evaluate.bootstrap import (
    resample_weights,
)
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators import columns, doubly_robust, model_based
from butfor.evaluate.estimators.doubly_robust import RIDGE
from butfor.evaluate.estimators.table import ESTIMATORS
from tests.builders import random_log
from tests.ope import DISCOUNT, HORIZON, TWINS, ask, make_setting, nobody_follows
from tests.ope import sepsis as sepsis
from tests.ope import setting as setting
from tests.reference import counterfactual as plain_counterfactual
from tests.reference import ope as reference
from tests.support import (
    reference_episodes,
    reference_model,
)

# -------------------------------------------------------------------------- against slow twins


def plain_world(replay):
    return reference.World(
        reference_model(replay.mdp),
        replay.target.tolist(),
        replay.behavior.tolist(),
        replay.horizon,
        replay.discount,
        None if replay.hazard is None else replay.hazard.tolist(),
    )


def plain_log(log):
    ended = np.zeros(len(log.state), dtype=bool)
    ended[log.offsets[1:] - 1] = log.outcome >= 0
    columns = zip(log.state, log.action, log.reward, log.next_state, ended, strict=True)
    rows = [
        reference.Step(int(s), int(a), float(r), None if end else int(x))
        for s, a, r, x, end in columns
    ]
    return [rows[a:b] for a, b in zip(log.offsets[:-1], log.offsets[1:], strict=True)]


@pytest.fixture(scope="module", params=["known", "known too", "visits", "icml2019", "lost"])
def small(request):
    """A short log of a known model, or of a walk in which pairs repeat, with either kind of end.

    Or one in which weights make up for those who were lost.
    """
    if request.param.startswith("known"):
        return make_setting(len(request.param), episodes=12).sample
    log = random_log(np.random.default_rng(28), episodes=14, longest=4)
    lost = request.param == "lost"
    model = bf.fit_mdp(log, terminal="visits" if lost else request.param)
    target = bf.soften(bf.policy_iteration(model).table, 0.3)
    hazard = bf.censoring_hazard(log, horizon=3) if lost else None
    return ask(log, model, target, horizon=3, discount=0.8, hazard=hazard)


@pytest.mark.parametrize("name", TWINS)
def test_estimators_equal_their_slow_twins(small, name):
    world, log = plain_world(small.replay), plain_log(small.replay.log)
    weights = resample_weights(len(small), 3, 5)
    values = ESTIMATORS[name](small, weights)
    for counts, value in zip(weights.tolist(), values, strict=True):
        np.testing.assert_allclose(value, TWINS[name](world, log, counts), atol=1e-10)


def test_magic_equals_its_slow_twin(small):
    world, log = plain_world(small.replay), plain_log(small.replay.log)
    n = len(small)
    slots = resample_weights(n, 50, small.seed, purpose="magic").astype(int).tolist()
    weights = np.vstack([np.ones(n), resample_weights(n, 1, 5)])
    values = ESTIMATORS["MAGIC"](small, weights)
    for counts, value in zip(weights.astype(int).tolist(), values, strict=True):
        expected = reference.magic(world, log, counts, slots, RIDGE)
        np.testing.assert_allclose(value, expected, atol=1e-6)  # the ridge is 1e-9 of the error


def test_magic_of_long_episodes_mixes_partial_returns_that_are_evenly_spaced(small, monkeypatch):
    # with two partial returns these are the model's and WDR's; with all there is nothing left out
    columns, n = small.logged, len(small)
    all_of_them = doubly_robust._partial_shares(columns, np.ones(n))
    monkeypatch.setattr(doubly_robust, "MOST_PARTIAL", 2)
    two = doubly_robust._partial_shares(columns, np.ones(n))
    np.testing.assert_array_equal(two, all_of_them[:, [0, -1]])
    ends = [ESTIMATORS[name](small, np.ones((1, n)))[0] for name in ("MB", "WDR")]
    assert two.sum(axis=0) == pytest.approx(ends, abs=1e-12)
    value = ESTIMATORS["MAGIC"](small, np.ones((1, n)))[0]
    assert min(ends) - 1e-12 <= value <= max(ends) + 1e-12


def test_magic_of_groups_equals_its_slow_twin(small, monkeypatch):
    monkeypatch.setattr(columns, "GROUPS", 7)
    monkeypatch.setattr(episode_columns, "GROUPS", 7)
    sample = EpisodeColumns(small.replay, small.seed)
    group = sample.group.tolist()
    assert 1 < len(set(group)) < len(sample)
    world, log = plain_world(small.replay), plain_log(small.replay.log)
    weights = np.vstack([np.ones(len(sample)), resample_weights(len(sample), 1, 5)])
    weights = np.vstack([weights, 1 - 0.5 * (np.arange(len(sample)) < 4)])
    values = ESTIMATORS["MAGIC"](sample, weights)
    for counts, value in zip(weights.tolist(), values, strict=True):
        counted = {g for g, count in zip(group, counts, strict=True) if count}
        slots = resample_weights(len(counted), 50, small.seed, purpose="magic")
        slots = slots.astype(int).tolist()
        expected = reference.magic_of_groups(world, log, counts, group, slots, RIDGE)
        np.testing.assert_allclose(value, expected, atol=1e-6)  # the ridge is 1e-9 of the error


def test_a_deterministic_target_in_a_log_nobody_follows_leaves_wdr_to_the_model():
    sample = nobody_follows()
    ones = np.ones((1, len(sample)))
    world, log = plain_world(sample.replay), plain_log(sample.replay.log)
    for name in ("DR", "WDR", "MAGIC", "MB"):
        value = ESTIMATORS[name](sample, ones)[0]
        assert value == pytest.approx(ESTIMATORS["MB"](sample, ones)[0], abs=1e-12)
    for name in ("WIS", "PDWIS"):
        assert np.isnan(ESTIMATORS[name](sample, ones)[0])
        assert np.isnan(TWINS[name](world, log, [1.0] * len(log)))
    assert ESTIMATORS["IS"](sample, ones)[0] == 0


def test_cf_is_the_mean_of_exact_expected_returns(setting):
    sample = setting.sample
    total = 0.0
    for episode in reference_episodes(setting.log):
        total += plain_counterfactual.exact_outcomes(
            reference_model(setting.model),
            episode,
            setting.behavior.tolist(),
            setting.target.tolist(),
            shared=True,
            horizon=HORIZON,
            discount=DISCOUNT,
        )[1]
    ones = np.ones((1, len(sample)))
    assert ESTIMATORS["CF"](sample, ones)[0] == pytest.approx(total / len(sample), abs=1e-12)
    given = ask(setting.log, setting.model, setting.target, horizon=HORIZON, discount=DISCOUNT)
    given.replay.keep(sample.replay.outcomes())
    assert ESTIMATORS["CF"](given, ones)[0] == ESTIMATORS["CF"](sample, ones)[0]


def test_fqe_is_the_value_in_the_counted_model_where_pairs_never_seen_earn_nothing(sepsis):
    # A deterministic target that meets a pair never seen stays there and earns nothing.
    log, _, target = sepsis
    loops = bf.fit_mdp(log, unseen="self-loop")
    for other in (target, np.roll(target, 1, axis=1)):
        sample = ask(log, bf.fit_mdp(log), other, discount=0.95)
        value = ESTIMATORS["FQE"](sample, np.ones((1, len(log))))[0]
        expected = bf.policy_value(loops, other, horizon=20, discount=0.95)
        assert value == pytest.approx(expected, abs=1e-12)


def test_fqe_does_not_depend_on_its_blocks(setting, monkeypatch):
    weights = resample_weights(len(setting.sample), 7, 0)
    whole = ESTIMATORS["FQE"](setting.sample, weights)
    monkeypatch.setattr(model_based, "BLOCK", 1)
    np.testing.assert_allclose(ESTIMATORS["FQE"](setting.sample, weights), whole, atol=1e-14)


def test_given_behavior_probabilities_enter_the_weights(setting):
    log, row = setting.log, np.arange(len(setting.log.state))
    given = 0.3 + 0.5 * (row % 3 == 0)
    sample = ask(log, setting.model, setting.target, behavior_probability=given, horizon=2)
    first = log.offsets[0]
    chosen = setting.target[log.state, log.action]
    ratio = chosen[first] / given[first]
    if log.lengths[0] > 1:
        ratio *= chosen[first + 1] / given[first + 1]
    assert sample.ratio[0, -1] == pytest.approx(ratio)
    np.testing.assert_allclose(sample.replay.behavior, bf.estimate_behavior(log))

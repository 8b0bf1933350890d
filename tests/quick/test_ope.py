"""Off-policy evaluation: one contract, exact values by enumeration, twins, intervals, words."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import butfor as bf
from butfor import kernels
from butfor.evaluate import bootstrap, crossfit, episode_columns, estimate, warn
from butfor.evaluate.bootstrap import (
    bca_interval,
    jackknife_weights,
    percentile_interval,
    resample_weights,
    weight_blocks,
)
from butfor.evaluate.crossfit import cross_fitted, evaluate_half, split_halves
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import COLUMNS, estimate_values
from butfor.evaluate.estimators import columns, doubly_robust, model_based
from butfor.evaluate.estimators.doubly_robust import RIDGE
from butfor.evaluate.estimators.table import CROSS_FITTED, DEFAULT, ESTIMATORS, NAMES
from butfor.evaluate.intervals import LEARNED, LEAST_EFFECTIVE, ONE
from butfor.models.fit import destinations
from butfor.models.planning import state_values, value_tables
from butfor.models.simulate import simulate_model
from butfor.random import numbered_keys, uniforms
from tests.builders import DEATH, HOME, random_log, ward_log
from tests.reference import counterfactual as plain_counterfactual
from tests.reference import ope as reference
from tests.support import (
    as_log,
    frequencies_agree,
    random_model,
    random_policy,
    reference_episodes,
    reference_model,
    simulate_log,
)

HORIZON, DISCOUNT = 4, 0.9
TWINS = {
    "Observed": reference.observed,
    "IS": reference.importance_sampling,
    "WIS": reference.weighted,
    "PDIS": reference.per_decision,
    "PDWIS": reference.per_decision_weighted,
    "DR": reference.doubly_robust,
    "WDR": reference.weighted_doubly_robust,
    "FQE": reference.fitted_q,
    "MB": reference.model_based,
}


@dataclass(frozen=True)
class Setting:
    """A log from a known model, and what estimators sum over it."""

    model: bf.TabularMDP
    behavior: np.ndarray
    target: np.ndarray
    log: bf.Episodes
    sample: EpisodeColumns


def make_setting(seed, *, episodes=30):
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[1] = np.eye(3)[2]  # deterministic in one state
    log = simulate_log(generator, model, behavior, episodes, HORIZON)
    return Setting(model, behavior, target, log, known(log, model, target, behavior))


def known(log, model, target, behavior):
    """A log with the behavior that made it, and five draws of each episode."""
    replay = bf.Replay(log, model, target, behavior=behavior, horizon=HORIZON, discount=DISCOUNT)
    return EpisodeColumns(replay, draws=replay.draws(5))


def ask(log, model, target, **options):
    """What estimators sum over the episodes of a question."""
    return EpisodeColumns(bf.Replay(log, model, target, **options))


@pytest.fixture(scope="module", params=range(3))
def setting(request):
    return make_setting(request.param)


def learn(log, terminal="visits"):
    model = bf.fit_mdp(log, terminal=terminal)
    return model, bf.policy_iteration(model)


def keep(target):
    """What learns a model, and gives the same target for any log."""
    return lambda log: (bf.fit_mdp(log), target)


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log of the published simulator, its model and the target planned on it."""
    version = "icml2019"
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(version), 300, seed=4, version=version)
    log = log.hide("glucose", "diabetes")
    return log, *learn(log)


@pytest.fixture(scope="module")
def near(sepsis):
    """The same log and model with a target near the behavior, so that weights stay mild."""
    log, model, _ = sepsis
    return log, model, sharpened(log, 1.2)


def sharpened(log, power):
    """The behavior of a log, with its usual actions taken more often."""
    target = bf.estimate_behavior(log) ** power
    return target / target.sum(axis=1, keepdims=True)


# --------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("name", ESTIMATORS)
def test_contract_of_every_estimator(setting, name):
    sample, function = setting.sample, ESTIMATORS[name]
    n = len(sample)
    weights = resample_weights(n, 6, 1)
    values = function(sample, weights)
    assert values.shape == (6,)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(function(sample, 2 * weights), values, atol=1e-12)
    np.testing.assert_allclose(function(sample, weights[3:4]), values[3], atol=1e-12)
    for row, value in zip(weights, values, strict=True):
        log = setting.log.select(np.repeat(np.arange(n), row.astype(int)))
        again = known(log, setting.model, setting.target, setting.behavior)
        np.testing.assert_allclose(function(again, np.ones((1, n)))[0], value, atol=1e-10)


@pytest.mark.parametrize("interval", ["percentile", "bca"])
@pytest.mark.parametrize("seed", range(3))
def test_one_call_gives_every_estimate_with_its_interval(seed, interval):
    setting = make_setting(seed, episodes=100)
    assert setting.sample.effective > LEAST_EFFECTIVE
    arguments = {
        "behavior": setting.behavior,
        "horizon": HORIZON,
        "discount": DISCOUNT,
        "interval": interval,
        "resamples": 300,
        "draws": setting.sample.draws,
        "learn": keep(setting.target),
        "truth": setting.log,
    }
    frame = estimate_values(
        setting.log, setting.model, setting.target, estimators=NAMES, **arguments
    )
    assert list(frame.columns) == COLUMNS
    assert frame["estimator"].tolist() == list(NAMES)
    assert np.isfinite(frame[["value", "low", "high", "effective"]]).all(axis=None)
    rows = frame.set_index("estimator")
    inside = (rows["low"] <= rows["value"]) & (rows["value"] <= rows["high"])
    assert inside.all()
    assert (rows["effective"] <= rows["episodes"] + 1e-9).all()
    for name, function in ESTIMATORS.items():
        one = function(setting.sample, np.ones((1, len(setting.log))))[0]
        assert rows.loc[name, "value"] == pytest.approx(one, abs=1e-12)
    assert rows.loc["True", "value"] == pytest.approx(rows.loc["Observed", "value"])
    usual = estimate_values(setting.log, setting.model, setting.target, **arguments)
    assert usual["estimator"].tolist() == [*DEFAULT, "CF (draws)", *CROSS_FITTED, "True"]


# -------------------------------------------------------------------------- exact by enumeration


@pytest.fixture(scope="module", params=range(3))
def enumerated(request):
    """Every episode of a model, its probability, and the exact value of the target."""
    generator = np.random.default_rng(50 + request.param)
    model = random_model(generator, states=3, actions=2)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[0] = np.eye(2)[1]
    drawn, probability = [], []
    for start in range(model.n_states):
        for episode, p in plain_counterfactual.every_episode(
            reference_model(model), behavior, start, 3
        ):
            drawn.append(episode)
            probability.append(p * model.initial[start])
    log = as_log(drawn, model, 3)
    exact = bf.policy_value(model, target, horizon=3, discount=DISCOUNT)
    sample = ask(log, model, target, behavior=behavior, discount=DISCOUNT)
    return sample, np.array(probability), exact


UNBIASED = ["IS", "PDIS", "DR", "WIS", "PDWIS", "WDR", "MAGIC", "FQE", "MB", "CF"]


@pytest.mark.parametrize("name", UNBIASED)
def test_every_episode_by_its_probability_gives_the_exact_value(enumerated, name):
    sample, probability, exact = enumerated
    value = ESTIMATORS[name](sample, probability[None])[0]
    assert value == pytest.approx(exact, abs=1e-10)


def test_every_episode_by_its_probability_gives_the_behaviors_value_as_observed(enumerated):
    sample, probability, _ = enumerated
    value = ESTIMATORS["Observed"](sample, probability[None])[0]
    replay = sample.replay
    exact = bf.policy_value(replay.mdp, replay.behavior, horizon=3, discount=DISCOUNT)
    assert value == pytest.approx(exact, abs=1e-10)


def test_the_right_model_makes_dr_vary_less_than_is(enumerated):
    # The weights that ask for one episode alone give what that episode contributes.
    sample, probability, exact = enumerated
    alone = np.eye(len(sample))
    variance = {
        name: probability @ (ESTIMATORS[name](sample, alone) - exact) ** 2
        for name in ("IS", "PDIS", "DR")
    }
    assert variance["DR"] < variance["PDIS"]
    assert variance["DR"] < 0.8 * variance["IS"]


@pytest.mark.parametrize("name", ["IS", "WIS", "PDIS", "PDWIS", "CF", "DR"])
def test_a_target_equal_to_the_behavior_earns_what_was_observed(setting, name):
    sample = known(setting.log, setting.model, setting.behavior, setting.behavior)
    weights = resample_weights(len(sample), 4, 0)
    observed = ESTIMATORS["Observed"](sample, weights)
    value = ESTIMATORS[name](sample, weights)
    if name == "DR":  # corrects for the luck of the log
        assert np.abs(value - observed).max() > 1e-3
    else:
        np.testing.assert_allclose(value, observed, atol=1e-12)


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
    log = random_log(np.random.default_rng(7), episodes=25, longest=4)
    lost = request.param == "lost"
    model = bf.fit_mdp(log, terminal="visits" if lost else request.param)
    target = bf.soften(bf.policy_iteration(model), 0.3)
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


def nobody_follows():
    """The ward log; the target takes the action that was not taken first."""
    log = ward_log()
    model = bf.fit_mdp(log)
    target = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    return ask(log.select([0, 1, 3]), model, target)


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


# ------------------------------------------------------------------------- draws from a model


def test_numbers_of_a_walk_are_those_of_the_kernels():
    keys = numbered_keys(3, 5, "model")
    for counter in (0, 1, 40):
        expected = [kernels.uniform(key, counter) for key in keys]
        np.testing.assert_array_equal(uniforms(keys, counter), expected)


def outcome_counts(log, size):
    return np.array([(log.outcome % size == o).sum() for o in range(size)])


def test_simulated_logs_have_the_models_law(setting):
    model, target = setting.model, setting.target
    drawn = simulate_model(model, target, 40_000, horizon=HORIZON, seed=2)
    law = model.initial @ value_tables(model, target, horizon=HORIZON)[1][-1]
    assert frequencies_agree(outcome_counts(drawn, len(law)), law, 40_000)
    pairs = np.zeros((model.n_states, model.n_actions), dtype=int)
    np.add.at(pairs, (drawn.state, drawn.action), 1)
    visits = np.broadcast_to(pairs.sum(axis=1, keepdims=True), pairs.shape)
    assert frequencies_agree(pairs, target, visits)
    rows = np.zeros((*pairs.shape, model.n_states + len(model.outcomes)), dtype=int)
    np.add.at(rows, (drawn.state, drawn.action, destinations(drawn, "visits")), 1)
    exact = np.zeros(rows.shape)
    exact[*np.divmod(model.entry_row, model.n_actions), model.next_state] = model.probability
    assert frequencies_agree(rows, exact, np.broadcast_to(pairs[..., None], rows.shape))
    firsts = np.bincount(drawn.first_state, minlength=model.n_states)
    assert frequencies_agree(firsts, model.initial, 40_000)
    other = simulate_model(model, setting.behavior, 40_000, horizon=HORIZON, seed=2)
    assert not frequencies_agree(outcome_counts(other, len(law)), law, 40_000)


def test_a_simulated_log_is_one_and_more_episodes_keep_the_first(setting):
    few, many = (
        simulate_model(setting.model, setting.target, count, horizon=HORIZON, initial=[0, 1, 0, 0])
        for count in (20, 50)
    )
    rows = few.offsets[-1]
    assert (many.state[:rows] == few.state).all()
    assert (many.next_state[:rows] == few.next_state).all()
    assert (many.first_state == 1).all()
    refit = bf.fit_mdp(many)
    entry = {
        (row, x): r
        for row, x, r in zip(
            setting.model.entry_row, setting.model.next_state, setting.model.reward, strict=True
        )
    }
    seen = ~refit.unseen.ravel()[refit.entry_row]
    for row, x, r in zip(
        refit.entry_row[seen], refit.next_state[seen], refit.reward[seen], strict=True
    ):
        assert r == pytest.approx(entry[row, x])


def test_sampled_estimates_agree_with_exact_ones_within_five_standard_errors():
    setting = make_setting(11, episodes=2500)
    sample = setting.sample
    alone = np.eye(len(sample))
    for sampled, exact in (("MB (sampled)", "MB"), ("CF (draws)", "CF")):
        gap = ESTIMATORS[sampled](sample, alone) - ESTIMATORS[exact](sample, alone)
        assert abs(gap.mean()) < 5 * gap.std(ddof=1) / np.sqrt(len(gap))
        assert gap.std() > 0.05  # so the check can fail: the other policy does
    other = known(setting.log, setting.model, setting.behavior, setting.behavior)
    gap = ESTIMATORS["MB (sampled)"](other, alone) - ESTIMATORS["MB"](sample, alone)
    assert abs(gap.mean()) > 5 * gap.std(ddof=1) / np.sqrt(len(gap))


# --------------------------------------------------------------------------------- intervals


def test_resamples_are_counts_that_depend_on_seed_and_number_only(monkeypatch):
    weights = resample_weights(50, 400, 3)
    assert (weights.sum(axis=1) == 50).all()
    np.testing.assert_array_equal(resample_weights(50, 7, 3), weights[:7])
    assert (resample_weights(50, 7, 4) != weights[:7]).any()
    monkeypatch.setattr(bootstrap, "BLOCK", 700)
    blocks = list(weight_blocks(50, 400, 3))
    assert max(len(block) for block in blocks) == 14
    np.testing.assert_array_equal(np.concatenate(blocks), weights)
    assert frequencies_agree(weights.sum(axis=0).astype(int), np.full(50, 1 / 50), 400 * 50)


def test_percentile_interval_reads_quantiles_and_leaves_undefined_values_out():
    values = np.append(np.arange(101.0), np.nan)
    assert percentile_interval(values) == pytest.approx((2.5, 97.5))
    assert percentile_interval(values, 0.5) == pytest.approx((25, 75))
    assert np.isnan(percentile_interval(np.full(3, np.nan))).all()


def test_bca_interval_is_the_percentile_interval_in_a_symmetric_case():
    values, jackknife = np.arange(101.0), np.array([-1.0, 0.0, 1.0])
    assert bca_interval(50.0, values, jackknife) == pytest.approx(percentile_interval(values))


def test_bca_interval_moves_as_worked_by_hand():
    # 62.5 of 101 values lie below 62 (its own counts half): z0 = Phi^-1(.6188) = .302; with
    # jackknife values -1, -1, 2, whose d is 1, 1, -2: a = -6 / (6 * 6^1.5) = -.0680. Then for
    # z = -1.96: z0 + z = -1.658, over 1 - .0680 * 1.658 it is -1.868, Phi(.302 - 1.868) = .0587;
    # for z = 1.96: 2.262, over 1 + .0680 * 2.262 it is 1.961, Phi(.302 + 1.961) = .9882.
    values, jackknife = np.arange(101.0), np.array([-1.0, -1.0, 2.0])
    levels = reference.bca_quantiles(62.5 / 101, jackknife.tolist(), 0.95)
    np.testing.assert_allclose(levels, [0.0587, 0.9882], atol=5e-5)
    assert bca_interval(62.0, values, jackknife) == pytest.approx(
        (100 * levels[0], 100 * levels[1])
    )


def test_bca_interval_equals_that_of_scipy():
    sample = np.random.default_rng(0).exponential(size=40)
    other = stats.bootstrap((sample,), np.mean, n_resamples=999, method="BCa", rng=1)
    weights = np.concatenate(list(jackknife_weights(40)))
    left_out = weights @ sample / weights.sum(axis=1)
    mine = bca_interval(sample.mean(), other.bootstrap_distribution, left_out)
    assert mine == pytest.approx(tuple(other.confidence_interval), abs=1e-10)


def test_jackknife_leaves_every_episode_out_once_in_at_most_200_groups(monkeypatch):
    np.testing.assert_array_equal(np.concatenate(list(jackknife_weights(3))), 1 - np.eye(3))
    monkeypatch.setattr(bootstrap, "BLOCK", 5000)
    weights = np.concatenate(list(jackknife_weights(1001)))
    assert weights.shape == (200, 1001)
    assert ((1 - weights).sum(axis=0) == 1).all()


def test_estimates_do_not_depend_on_the_blocks_of_resamples(setting, monkeypatch):
    arguments = (setting.log, setting.model, setting.target)
    whole = estimate_values(*arguments, resamples=40, horizon=HORIZON)
    monkeypatch.setattr(bootstrap, "BLOCK", 7 * len(setting.log))
    monkeypatch.setitem(estimate.MOST_RESAMPLES, "MAGIC", 40)
    calls = []
    blocks = estimate_values(
        *arguments, resamples=40, horizon=HORIZON, progress=lambda *call: calls.append(call)
    )
    assert calls == [(done, 40) for done in (7, 14, 21, 28, 35, 40)]
    for column in ("value", "low", "high"):
        np.testing.assert_allclose(blocks[column], whole[column], atol=1e-12)


def test_relearning_evaluates_what_each_resample_teaches(near):
    log, model, target = near
    names = ["WIS", "MB", "CF", "CF (cross-fitted)"]
    calls = []
    frame = estimate_values(
        log,
        model,
        target,
        estimators=names,
        learn=keep(target),
        relearn=True,
        resamples=4,
        seed=2,
        progress=lambda *call: calls.append(call),
    ).set_index("estimator")
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    found = {name: [] for name in ("WIS", "MB", "CF")}
    for counts in resample_weights(len(log), 4, 2).astype(int):
        again = log.select(np.repeat(np.arange(len(log)), counts))
        sample = ask(again, bf.fit_mdp(again), target)
        for name, values in found.items():
            values.append(ESTIMATORS[name](sample, np.ones((1, len(log))))[0])
    # Returns are -1 to 1, so pairs never seen may change a value by twice their probability; in
    # the model they lead to death, so that MB and CF can only rise.
    asked = ask(log, model, target)
    model_mass, mass = asked.unsupported_in_model, asked.unsupported
    room = {"WIS": (model_mass, model_mass), "MB": (0, model_mass), "CF": (0, mass)}
    assert 0 < mass < model_mass
    for name, values in found.items():
        low, high = percentile_interval(np.array(values))
        below, above = room[name]
        expected = low - 2 * below, high + 2 * above
        assert tuple(frame.loc[name, ["low", "high"]]) == pytest.approx(expected, abs=1e-12)
    fixed = estimate_values(log, model, target, estimators=names, learn=keep(target), seed=2)
    np.testing.assert_allclose(frame["value"], fixed["value"], atol=1e-12)


def test_a_target_learned_from_the_log_has_no_interval_even_if_it_is_relearned(sepsis):
    calls = []
    frame = estimate_values(
        *sepsis,
        estimators=["Observed", "WIS", "FQE", "MB", "CF", "MB (cross-fitted)"],
        learn=learn,
        relearn=True,
        resamples=4,
        progress=lambda *call: calls.append(call),
    ).set_index("estimator")
    assert calls == [(4, 4)]  # resamples of the episodes, for what was observed
    plain = frame.loc[["WIS", "FQE", "MB", "CF"]]
    assert plain[["low", "high", "low_these", "high_these"]].isna().all(axis=None)
    assert plain["warning"].str.startswith(LEARNED).all()
    printed = frame.loc[["Observed", "MB (cross-fitted)"]]
    assert (printed["low"] < printed["high"]).all()
    assert not printed["warning"].str.contains("no interval").any()


def test_relearning_keeps_given_probabilities_draws_and_action_noise(near):
    log, model, target = near
    given = bf.estimate_behavior(log)[log.state, log.action] ** np.linspace(0.9, 1, len(log.state))
    exact = bf.counterfactual_outcomes(log, model, target, action_noise="fresh")
    frame = estimate_values(
        log,
        model,
        target,
        estimators=["PDIS", "CF", "CF (draws)"],
        behavior_probability=given,
        draws=bf.sample_counterfactuals(log, model, target, action_noise="fresh"),
        counterfactuals=exact,
        learn=keep(target),
        relearn=True,
        resamples=1,
    ).set_index("estimator")
    index = np.repeat(np.arange(len(log)), resample_weights(len(log), 1, 0)[0].astype(int))
    again, refit = log.select(index), bf.fit_mdp(log.select(index))
    fresh = bf.counterfactual_outcomes(again, refit, target, action_noise="fresh")
    assert frame.loc["CF", "low"] == pytest.approx(fresh.expected_return.mean())
    drawn = bf.sample_counterfactuals(again, refit, target, action_noise="fresh")
    assert frame.loc["CF (draws)", "low"] == pytest.approx(drawn.returns().mean())
    rows = np.concatenate([np.arange(log.offsets[i], log.offsets[i + 1]) for i in index])
    sample = ask(again, refit, target, behavior_probability=given[rows])
    expected = ESTIMATORS["PDIS"](sample, np.ones((1, len(log))))[0]
    room = 2 * ask(log, model, target).unsupported_in_model
    assert frame.loc["PDIS", "low"] == pytest.approx(expected - room)


def test_what_is_learned_anew_is_learned_from_whole_episodes(sepsis):
    log, model, target = sepsis
    seen = []

    def recorded(part):
        seen.append(part.lengths.max())
        return keep(target)(part)

    estimate_values(
        log,
        model,
        target,
        estimators=["PDIS", "CF", *CROSS_FITTED],
        behavior_probability=np.full(len(log.state), 0.5),
        horizon=6,
        learn=recorded,
        relearn=True,
        resamples=1,
    )
    assert seen == [20] * (2 * 10 + 1)  # ten splits and a resample


# ----------------------------------------------------------------- cross-fitting and support


def test_cross_fitting_judges_each_half_by_the_target_of_the_other(sepsis, monkeypatch):
    log = sepsis[0]
    calls = []

    def recorded(half):
        calls.append((half, *learn(half)))
        return calls[-1][1:]

    question = bf.Replay(*sepsis, discount=0.97)
    monkeypatch.setattr(crossfit, "MOST_REPLAYED", len(log))
    result = cross_fitted(question, recorded, splits=2, seed=1)
    assert result.learned
    assert len(calls) == 4
    added = []
    for split, (first, second) in enumerate((calls[:2], calls[2:])):
        ids = [set(half.id.tolist()) for half, _, _ in (first, second)]
        assert not ids[0] & ids[1]
        assert ids[0] | ids[1] == set(range(len(log)))
        assert len(ids[0]) == len(log) // 2
        for mine, other in ((0, 1), (1, 0)):
            half, model, _ = (first, second)[mine]
            target = (first, second)[other][2]
            by_state = state_values(model, target, horizon=20, discount=0.97)
            value = by_state[half.first_state].mean()
            assert result.model_based[split, mine] == pytest.approx(value, abs=1e-12)
            outcomes = bf.counterfactual_outcomes(half, model, target, discount=0.97)
            if split == 0:  # in other splits no episode is replayed
                added.append(outcomes.expected_return.mean() - value)
    np.testing.assert_allclose(
        result.counterfactual - result.model_based, np.mean(added), atol=1e-12
    )
    for mass in (result.unsupported_model_based, result.unsupported_counterfactual):
        assert 0.01 < mass.mean() < 1


def test_cross_fitting_knows_whether_the_target_was_learned(sepsis):
    log, model, target = sepsis
    for function, learned in ((keep(target), False), (keep(target.copy()), False), (learn, True)):
        assert cross_fitted(bf.Replay(log, model, target), function, splits=1).learned == learned


def test_a_half_of_which_some_episodes_are_replayed_adds_what_these_differ_by(sepsis, monkeypatch):
    half = bf.Replay(*sepsis, discount=0.97)
    monkeypatch.setattr(crossfit, "MOST_REPLAYED", 3)
    value, path, mass, seen = evaluate_half(half, *sepsis, key=4)
    chosen = np.random.Generator(np.random.PCG64(4)).permutation(len(half))[:3]
    every = half.engine.first_values()
    some = half.outcomes().expected_return[chosen] - every[chosen]
    assert (value, path) == pytest.approx((every.mean(), every.mean() + some.mean()), abs=1e-12)
    assert abs(some.mean()) > 0.001  # replays do differ
    masses = half.engine.unsupported_in_model().mean(), half.support()[chosen].mean()
    assert (mass, seen) == pytest.approx(masses, abs=1e-12)


def test_halves_keep_episodes_of_one_id_together():
    log = ward_log().select([0, 1, 2, 3, 0, 1, 2, 3, 3])
    for key in range(20):
        first, second = split_halves(log, key)
        assert sorted([*first, *second]) == list(range(9))
        assert not set(log.id[first]) & set(log.id[second])


@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_unsupported_mass_equals_a_plain_forward_pass(terminal):
    log = random_log(np.random.default_rng(3), episodes=20, longest=4)
    model = bf.fit_mdp(log, terminal=terminal)
    target = random_policy(np.random.default_rng(1), model)
    assert model.unseen.any()
    question = bf.Replay(log, model, target, horizon=5)
    masses, new = question.support(), question.engine.unsupported_in_model()
    behavior = bf.estimate_behavior(log, terminal=terminal)
    world = reference.World(reference_model(model), target.tolist(), behavior.tolist(), 5, 1.0)
    unseen = {(int(s), int(a)) for s, a in np.argwhere(model.unseen)}
    for i, episode in enumerate(reference_episodes(log, terminal)):
        assert masses[i] == pytest.approx(
            reference.unsupported_mass(world, episode, unseen), abs=1e-12
        )
        assert new[i] == pytest.approx(
            reference.unsupported_mass(world, episode, unseen, observed=False), abs=1e-12
        )


@pytest.mark.parametrize("mechanism", [bf.GumbelMax(), bf.InverseCDF(), bf.MaximalCoupling()])
@pytest.mark.parametrize("horizon", [3, 6])
@pytest.mark.parametrize("unseen", ["death", "home", "uniform", "self-loop"])
def test_support_in_the_same_pass_is_that_of_a_pass_of_its_own(unseen, horizon, mechanism):
    log = random_log(np.random.default_rng(3), episodes=20, longest=4)
    model = bf.fit_mdp(log, unseen=unseen)
    target = random_policy(np.random.default_rng(1), model)
    options = {"mechanism": mechanism, "horizon": horizon}
    mass = bf.Replay(log, model, target, **options).support()  # without outcomes: its own pass
    assert mass.max() > 0.01
    plain = replace(model, unseen=np.zeros_like(model.unseen))  # nothing to be marked
    alone = bf.counterfactual_outcomes(log, plain, target, discount=0.9, **options)
    together = bf.Replay(log, model, target, discount=0.9, **options).compute()
    asked = bf.Replay(log, model, target, discount=0.9, **options)
    for replay in (together, asked):
        counterfactuals, unsupported = replay.outcomes(), replay.support()
        np.testing.assert_allclose(unsupported, mass, atol=1e-12)
        np.testing.assert_allclose(counterfactuals.probability, alone.probability, atol=1e-12)
        np.testing.assert_allclose(counterfactuals.probability.sum(axis=1), 1, atol=1e-12)
        assert counterfactuals.probability.min() >= 0
        assert counterfactuals.probability.max() <= max(1, alone.probability.max())
        np.testing.assert_allclose(
            counterfactuals.expected_return, alone.expected_return, atol=1e-12
        )
        assert counterfactuals.outcome_names == alone.outcome_names
    walked = bf.walk_through(log, model, target, **options)
    for name in ("influence", "mass", "earned", "evidence", "thin", "other", "apart"):
        np.testing.assert_array_equal(getattr(together.steps(), name), getattr(walked, name))


def test_support_in_the_same_pass_keeps_the_null_property_exactly():
    log = random_log(np.random.default_rng(3), episodes=20, longest=4)
    log = log.select(log.outcome >= 0)
    model, behavior = bf.fit_mdp(log), bf.estimate_behavior(log)
    assert model.unseen.any()
    replay = bf.Replay(log, model, behavior, horizon=4).compute()
    result, mass = replay.outcomes(), replay.support()
    np.testing.assert_array_equal(result.probability, np.eye(3)[log.outcome])
    np.testing.assert_array_equal(result.expected_return, result.observed_return)
    assert not mass.any()


def test_where_every_pair_was_seen_nothing_is_unsupported():
    log = random_log(np.random.default_rng(5), episodes=300, longest=6)
    model = bf.fit_mdp(log)
    target = random_policy(np.random.default_rng(1), model)
    assert not model.unseen.any()
    replay = bf.Replay(log, model, target).compute()
    assert not replay.support().any()
    alone = bf.counterfactual_outcomes(log, model, target)
    np.testing.assert_array_equal(replay.outcomes().probability, alone.probability)


def test_episodes_of_another_kind_are_refused_before_anything_is_marked(setting):
    model = bf.fit_mdp(random_log(np.random.default_rng(3), episodes=20, longest=4))
    with pytest.raises(ValueError, match="fit the model to episodes of the same kind"):
        bf.Replay(ward_log(), model, np.full((3, 2), 0.5))


def test_pairs_that_the_log_itself_uses_are_not_unsupported():
    log = ward_log()
    model = bf.fit_mdp(log.select([2, 3]))  # without the outcome home, or state 1 to state 0
    last = log.select([0]).truncate(1)
    assert model.unseen[1, 0]
    stay = np.tile([1.0, 0.0], (3, 1))
    assert bf.Replay(last, model, stay, horizon=2).support() == pytest.approx([1.0])
    taken = bf.Episodes.from_arrays(
        [1], [0], [2], offsets=[0, 1], states=3, actions=2, outcome=[0], outcomes=[DEATH, HOME]
    )
    assert bf.Replay(taken, model, stay, horizon=2).support() == pytest.approx([0.0])


def test_overlap_problems_are_visited_states_with_actions_never_taken():
    sample = nobody_follows()
    missing = warn.facts_of(sample, None, ()).missing
    assert missing.tolist() == [0, 1]  # state 2 was reached, never acted in
    even = EpisodeColumns(sample.replay.ask(target=sample.replay.behavior))
    assert warn.facts_of(even, None, ()).missing.tolist() == []


# ------------------------------------------------------------------------------------- words


def warnings_of(frame):
    return frame.set_index("estimator")["warning"].to_dict()


def test_few_followers_are_told_with_the_effective_sample_size(sepsis):
    log, model, target = sepsis
    frame = estimate_values(log, model, target, estimators=["Observed", "WIS", "MB"])
    ratio = ask(log, model, target).ratio[:, -1]
    row = frame.set_index("estimator").loc["WIS"]
    assert row["episodes"] == (ratio > 0).sum()
    assert row["effective"] == pytest.approx(ratio.sum() ** 2 / (ratio**2).sum())
    assert row["effective"] < LEAST_EFFECTIVE
    assert row["warning"].startswith(
        f"no interval: not enough data (effective sample size {row['effective']:.1f}, and below 10 "
    )
    assert row[["low", "high"]].isna().all()
    assert warnings_of(frame)["Observed"] == ""
    assert frame.set_index("estimator").loc["MB", "effective"] == 300
    row = estimate_values(log, model, sharpened(log, 3), estimators=["WIS"]).loc[0]
    assert LEAST_EFFECTIVE < row["effective"] < warn.FEW
    assert row["low"] < row["value"] < row["high"]
    assert row["warning"].startswith(
        "300 of 300 episodes follow the policy to their end; weighted, they count as "
        f"{row['effective']:.1f} (effective sample size)"
    )


def test_resamples_without_a_follower_are_counted():
    assert warn.of_undefined(np.array([0.5, np.nan, np.nan])).startswith(
        "in 2 of 3 resamples no episode follows the policy"
    )
    assert warn.of_undefined(np.array([0.5, 0.7])) == ""
    assert warn.of_undefined(np.full(2, np.nan)) == ""  # the estimate itself is undefined


def test_no_follower_and_no_overlap_are_told_for_each_estimator():
    sample = nobody_follows()
    frame = estimate_values(sample.replay, resamples=50)
    told = warnings_of(frame)
    rows = frame.set_index("estimator")
    for name in ("WIS", "PDWIS"):
        assert np.isnan(rows.loc[name, ["value", "low", "high"]].astype(float)).all()
        assert "no episode follows the policy to its end: undefined" in told[name]
        assert told[name].startswith("no interval: not enough data (effective sample size 0.0,")
    assert "every weight is 0, and so is the estimate" in told["IS"]
    assert rows.loc["IS", "episodes"] == rows.loc["IS", "effective"] == 0
    never = "the policy takes actions never seen in 2 visited states (0, 1): "
    assert never + "this estimate leaves them out" in told["IS"]
    assert never + "for these only the model counts" in told["DR"]
    assert never + "these count as 0" in told["FQE"]
    assert told["Observed"] == ""
    assert "33% of the probability passes through state-action pairs never seen" in told["MB"]


def test_the_models_luck_is_told_where_cross_fitting_parts_from_the_plain_estimate():
    # 100 states, 5 actions, 8 one-step episodes of each pair, which end well by a coin: every
    # policy has the value 0, and the actions that look best were only lucky
    pairs = np.tile(np.arange(500), 8)
    log = bf.Episodes.from_arrays(
        pairs // 5,
        pairs % 5,
        pairs // 5,
        offsets=np.arange(len(pairs) + 1),
        outcome=np.random.default_rng(0).integers(2, size=len(pairs)),
        outcomes=[DEATH, HOME],
        states=100,
        actions=5,
    )
    names = ["MB", "CF", *CROSS_FITTED]
    frame = estimate_values(log, *learn(log), estimators=names, learn=learn)
    rows, told = frame.set_index("estimator"), warnings_of(frame)
    for plain in ("MB", "CF"):
        crossed = rows.loc[f"{plain} (cross-fitted)"]
        assert rows.loc[plain, "value"] > 0.3
        assert crossed["low"] < 0 < crossed["high"] < 0.3
        values = f"{crossed['value']:+.2f}".replace("-", "−"), f"{rows.loc[plain, 'value']:+.2f}"
        assert (
            f"policies learned the same way on half of the log score {values[0]} in the model of "
            f"the other half, compared with {values[1]}"
        ) in crossed["warning"]
        assert "part of the plain estimate is overfitting" in crossed["warning"]
        assert told[plain] == LEARNED


def test_cross_fitting_that_mostly_uses_pairs_never_seen_does_not_tell_luck(sepsis):
    frame = estimate_values(*sepsis, estimators=["MB", "CF", *CROSS_FITTED], learn=learn)
    rows = frame.set_index("estimator")
    for plain in ("MB", "CF"):
        crossed = rows.loc[f"{plain} (cross-fitted)"]
        assert crossed["value"] < rows.loc[plain, "value"] - 0.5
        # the interval allows for any effect of these pairs
        assert crossed["high"] > rows.loc[plain, "value"]
        assert "never seen in the evaluating half" in crossed["warning"]
        assert "overfitting cannot be distinguished from that rule" in crossed["warning"]


@pytest.mark.parametrize(
    ("crossed", "told"),
    [
        ((0.2, 0.1, 0.3), True),
        ((0.4, 0.3, 0.8), False),  # the interval holds the other estimate, rule or not
        ((0.45, 0.44, 0.46), False),  # they do not, but by little against a spread of 2
        ((0.9, 0.8, 1.0), False),  # higher
        ((np.nan, np.nan, np.nan), False),
    ],
)
def test_luck_is_told_only_where_the_estimates_are_far_apart(crossed, told):
    assert bool(warn.of_luck(crossed, (0.6, 0.5, 0.7), spread=2.0, rule=0.1)) == told


def test_luck_is_claimed_only_where_the_rule_for_unseen_pairs_cannot_explain_the_gap():
    # without the rule for unseen pairs the interval would end at -.5
    plain = (0.9, 0.8, 1.0)
    assert "part of the plain estimate is overfitting" in warn.of_luck(
        (-0.6, -0.7, 0.3), plain, spread=1.0, rule=0.8
    )
    assert "overfitting cannot be distinguished from that rule" in warn.of_luck(
        (-0.6, -0.7, 1.1), plain, spread=1.0, rule=1.6
    )


def test_fitted_q_evaluation_lies_within_its_interval():
    # From state 0 to each of 40 states, and from each of them home, by one episode each: nearly
    # every resample would lose some of these steps, and FQE would then count 0 there.
    each = np.arange(1, 41)
    log = bf.Episodes.from_arrays(
        np.append(np.column_stack([0 * each, each]).ravel(), each),
        [0, 1] * 40 + [0] * 40,
        np.append(np.column_stack([each, each]).ravel(), each),
        offsets=np.append(np.arange(0, 80, 2), np.arange(80, 121)),
        outcome=[0] * 40 + [1] * 40,
        outcomes=[DEATH, HOME],
        states=41,
        actions=2,
    )
    target = np.tile([1.0, 0.0], (41, 1))
    frame = estimate_values(log, bf.fit_mdp(log), target, estimators=["FQE"])
    assert frame["value"][0] == pytest.approx(1)
    assert frame["low"][0] - 1e-9 <= frame["value"][0] <= frame["high"][0] + 1e-9
    assert "lies outside its interval" not in frame["warning"][0]


def test_one_episode_has_no_interval():
    log = ward_log().select([1])
    model = bf.fit_mdp(log)
    frame = estimate_values(log, model, bf.estimate_behavior(log), learn=learn, resamples=20)
    assert np.isnan(frame[["low", "high"]]).all(axis=None)
    rows = frame.set_index("estimator")
    plain = rows.drop(index=list(CROSS_FITTED))
    assert plain["warning"].str.startswith(ONE).all()
    assert (rows.loc[["Observed", "IS", "WIS", "PDIS", "PDWIS", "CF"], "value"] == 1).all()
    assert rows.loc["FQE", "value"] == pytest.approx(rows.loc["MB", "value"])
    for name in CROSS_FITTED:
        assert np.isnan(rows.loc[name, "value"])
        assert "one episode cannot be split into halves" in rows.loc[name, "warning"]


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("interval", ["percentile", "bca"])
def test_equal_returns_give_intervals_of_width_zero(reward, interval):
    same = [replace(outcome, reward=reward) for outcome in (DEATH, HOME)]
    log = ward_log(outcome=[0, 1, 0, 1], outcomes=same).select([0, 1, 2, 3] * 5)
    model = bf.fit_mdp(log)
    frame = estimate_values(
        log, model, bf.estimate_behavior(log), interval=interval, resamples=50, truth=log
    ).set_index("estimator")
    for name in ("Observed", "IS", "WIS", "True"):
        assert frame.loc[name, ["value", "low", "high"]].astype(float).tolist() == pytest.approx(
            [reward] * 3, abs=1e-12
        )
    assert np.isfinite(frame[["value", "low", "high"]]).all(axis=None)
    # in the model stays may last longer than the horizon, and then earn 0
    low, high = frame.loc["CF", ["low", "high"]]
    assert high == pytest.approx(reward, abs=1e-12)
    assert low < 1 if reward else low == 0


def test_an_exact_truth_has_neither_episodes_nor_an_interval(sepsis):
    row = estimate_values(*sepsis, estimators=["True"], truth=-0.25).iloc[0]
    assert row[["value", "episodes", "warning"]].tolist() == [-0.25, 0, ""]
    assert row[["low", "high"]].isna().all()


# --------------------------------------------------------------------------------- bad input

ROW = r"row 7 \(episode 2, step 4\)"


def with_value(size, value):
    array = np.full(size, 0.5)
    array[7] = value
    return array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"estimators": ["WIS", "wis"]}, "estimator 'wis': give one of 'Observed', 'IS', 'WIS'"),
        ({"estimators": []}, "no estimator given; choose from 'Observed'"),
        ({"estimators": ["True"]}, "'True' needs truth="),
        ({"estimators": ["CF (draws)"]}, r"'CF \(draws\)' needs draws="),
        ({"estimators": ["MB (cross-fitted)"]}, "needs learn="),
        ({"relearn": True}, "relearn=True needs learn="),
        ({"interval": "normal"}, "'normal'.*'percentile', 'bca'"),
        ({"resamples": 0}, "resamples 0"),
        ({"confidence": 95}, "confidence 95: give a number between 0 and 1"),
        ({"seed": -1}, "seed -1"),
        ({"horizon": 0}, "horizon 0"),
        ({"discount": 1.5}, r"discount 1\.5"),
        ({"target": np.full((144, 8), 0.1)}, "target: state 0 sums to 0.8"),
        ({"behavior": np.eye(8)[np.zeros(144, int)]}, r"takes action \d in state \d+, which the"),
        ({"behavior_probability": np.ones(3)}, r"shape \(3,\), expected \(\d+,\)"),
        ({"behavior_probability": 0.0}, rf"{ROW} is 0\.0; the probability of what was done"),
        ({"behavior_probability": 1.5}, rf"{ROW} is 1\.5"),
    ],
)
def test_bad_requests_are_refused(sepsis, arguments, message):
    log, model, target = sepsis
    given: dict[str, Any] = {"target": target} | arguments
    if isinstance(given.get("behavior_probability"), float):
        given["behavior_probability"] = with_value(len(log.state), given["behavior_probability"])
    with pytest.raises(ValueError, match=message):
        estimate_values(log, model, **given)


def test_counterfactuals_and_draws_of_something_else_are_refused(sepsis):
    log, model, target = sepsis
    part = log.select(np.arange(10))
    exact = bf.counterfactual_outcomes(part, model, target)
    drawn = bf.sample_counterfactuals(part, model, target, horizon=7)
    with pytest.raises(ValueError, match="the draws are of 10 episodes that differ"):
        EpisodeColumns(bf.Replay(log, model, target), draws=drawn)
    with pytest.raises(ValueError, match="the counterfactuals are of 10 episodes"):
        bf.Replay(log, model, target).keep(exact)
    with pytest.raises(ValueError, match="the draws have 7 steps, but the horizon is 20"):
        EpisodeColumns(bf.Replay(part, model, target), draws=drawn)
    with pytest.raises(ValueError, match=r"horizon 20 and discount 1.0, not 20 and 0.9"):
        bf.Replay(part, model, target, discount=0.9).keep(exact)
    with pytest.raises(ValueError, match="no draws to average"):
        ESTIMATORS["CF (draws)"](ask(part, model, target), np.ones((1, 10)))
    with pytest.raises(ValueError, match="1440 states"):
        ask(bf.sepsis.simulate(bf.sepsis.behavior_policy(), 5), model, target)


def test_what_cannot_be_split_or_simulated_is_refused(sepsis):
    log, model, target = sepsis
    with pytest.raises(ValueError, match="1 episode cannot be split"):
        split_halves(log.select([3]), 0)
    with pytest.raises(ValueError, match="splits 0"):
        cross_fitted(bf.Replay(*sepsis), learn, splits=0)
    assert np.isnan(cross_fitted(bf.Replay(*sepsis).part([3]), learn).counterfactual).all()
    for arguments, message in (
        ({"episodes": 0}, "episodes 0"),
        ({"horizon": 0}, "horizon 0"),
        ({"seed": -1}, "seed -1"),
        ({"initial": [1.0]}, r"initial has shape \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate_model(model, target, **({"horizon": 5} | arguments))


# ------------------------------------------------------------------------- logs that break off


def test_episodes_that_break_off_do_not_bias_estimates_that_have_a_model():
    # one state, one action, the end with chance .5 a step, four steps: the value is 1 - .5^4. Half
    # of the episodes are cut after one step; what the model knows makes up for it.
    rows = np.array([[[0.5, 0.5]]])
    model = bf.TabularMDP.from_arrays(rows, outcomes=[bf.Outcome("home", 1.0)])
    generator = np.random.default_rng(0)
    length = np.minimum(generator.geometric(0.5, size=4000), 4)
    ended = generator.random(4000) < np.where(length < 4, 1.0, 0.5)
    cut = (np.arange(4000) % 2 == 0) & (length > 1)
    length[cut] = 1
    ended[cut] = False
    log = bf.Episodes.from_arrays(
        np.zeros(length.sum(), int),
        np.zeros(length.sum(), int),
        np.zeros(length.sum(), int),
        offsets=np.concatenate([[0], np.cumsum(length)]),
        outcome=np.where(ended, 0, -1),
        outcomes=model.outcomes,
        states=1,
        actions=1,
        horizon=4,
    )
    found = estimate_values(log, model, np.ones((1, 1)), resamples=20).set_index("estimator")
    exact = 1 - 0.5**4
    # returns lie in 0..1: five standard errors of a mean of 4000
    for name in ("DR", "WDR", "MAGIC", "MB", "CF"):
        assert abs(found.loc[name, "value"] - exact) < 5 * 0.5 / 4000**0.5, name
        assert "without an outcome" not in found.loc[name, "warning"]
    for name in ("Observed", "IS", "WIS", "PDIS", "PDWIS"):
        assert f"{cut.sum()} episodes stop before the horizon" in found.loc[name, "warning"]


def test_fitted_q_tells_what_was_never_logged_even_if_the_behavior_is_given():
    log = bf.Episodes.from_arrays(
        [0, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
        offsets=[0, 1, 2, 3],
        outcome=[0, 0, 0],
        outcomes=[bf.Outcome("died", -1.0)],
        states=1,
        actions=2,
    )
    found = estimate_values(
        log,
        bf.fit_mdp(log),
        [[0.0, 1.0]],
        behavior=[[0.5, 0.5]],
        estimators=["FQE"],
        resamples=5,
    )
    assert "actions never seen in 1 visited state (0): these count as 0" in found.loc[0, "warning"]

"""Off-policy evaluation: intervals, cross-fitting, and what has no support."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

import butfor as bf
from butfor.evaluate import bootstrap, crossfit, estimate, warn
from butfor.evaluate.bootstrap import (
    bca_interval,
    jackknife_weights,
    percentile_interval,
    resample_weights,
    weight_blocks,
)
from butfor.evaluate.crossfit import cross_fitted, evaluate_half, split_halves
from butfor.evaluate.estimate import estimate_values
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS
from butfor.evaluate.intervals import LEARNED
from butfor.models.planning import state_values
from tests.builders import DEATH, HOME, random_log, ward_log
from tests.grids import each_value
from tests.ope import HORIZON, ask, keep, learn, nobody_follows
from tests.ope import near as near
from tests.ope import sepsis as sepsis
from tests.ope import setting as setting
from tests.reference import ope as reference
from tests.support import (
    frequencies_agree,
    random_policy,
    reference_episodes,
    reference_model,
)

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
    exact = bf.Replay(log, model, target, action_noise="fresh").outcomes()
    frame = estimate_values(
        log,
        model,
        target,
        estimators=["PDIS", "CF", "CF (draws)"],
        behavior_probability=given,
        draws=bf.Replay(log, model, target, action_noise="fresh").draws(),
        counterfactuals=exact,
        learn=keep(target),
        relearn=True,
        resamples=1,
    ).set_index("estimator")
    index = np.repeat(np.arange(len(log)), resample_weights(len(log), 1, 0)[0].astype(int))
    again, refit = log.select(index), bf.fit_mdp(log.select(index))
    fresh = bf.Replay(again, refit, target, action_noise="fresh").outcomes()
    assert frame.loc["CF", "low"] == pytest.approx(fresh.expected_return.mean())
    drawn = bf.Replay(again, refit, target, action_noise="fresh").draws()
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
            outcomes = bf.Replay(half, model, target, discount=0.97).outcomes()
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


@pytest.mark.parametrize(
    ("unseen", "horizon", "mechanism"),
    each_value(
        product(
            ["death", "home", "uniform", "self-loop"],
            [3, 6],
            [bf.GumbelMax(), bf.InverseCDF(), bf.MaximalCoupling()],
        )
    ),
)
def test_support_in_the_same_pass_is_that_of_a_pass_of_its_own(unseen, horizon, mechanism):
    log = random_log(np.random.default_rng(3), episodes=20, longest=4)
    model = bf.fit_mdp(log, unseen=unseen)
    target = random_policy(np.random.default_rng(1), model)
    options = {"mechanism": mechanism, "horizon": horizon}
    mass = bf.Replay(log, model, target, **options).support()  # without outcomes: its own pass
    assert mass.max() > 0.01
    plain = replace(model, unseen=np.zeros_like(model.unseen))  # nothing to be marked
    alone = bf.Replay(log, plain, target, discount=0.9, **options).outcomes()
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
    walked = bf.Replay(log, model, target, **options).steps()
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
    alone = bf.Replay(log, model, target).outcomes()
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
    missing = warn.never_taken(sample.replay, sample.replay.behavior_table)
    assert missing.tolist() == [0, 1]  # state 2 was reached, never acted in
    even = sample.replay.ask(target=sample.replay.behavior)
    assert warn.never_taken(even, even.behavior_table).tolist() == []

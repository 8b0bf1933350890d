"""Intervals: what each group of episodes adds to an estimate, and what is printed."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import butfor as bf
from butfor.evaluate.bootstrap import bootstrap_interval, resample_weights
from butfor.evaluate.crossfit import CrossFitted, cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import estimate_values
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS
from butfor.evaluate.influence import LESS, Influence
from butfor.evaluate.intervals import LEARNED, NOT_REFITTED, assumes_worst, possible_returns
from butfor.evaluate.refit import GROUPS, THESE, group_episodes
from butfor.evaluate.warn import WEIGHTED
from tests.builders import DEATH, HOME, random_log, ward_log
from tests.factored import clinic_model, simulate_factored
from tests.reference import ope as reference
from tests.support import random_policy, reference_model
from verification.coverage import HORIZON, designs

# ------------------------------------------------------------------------- influence by hand


def test_error_and_freedom_by_hand():
    # centered 1, -1, 0, 0: sum of squares 2, of fourth powers 2, four groups
    influence = Influence(np.array([3.0, 1.0, 2.0, 2.0]))
    assert influence.error == pytest.approx((2 * 4 / 3) ** 0.5)
    assert influence.freedom == pytest.approx(2.0)
    # with two degrees of freedom 95% of Student's t lie within 4.3027
    half = 4.302653 * (8 / 3) ** 0.5
    assert influence.interval(1.0, 0.95) == pytest.approx((1 - half, 1 + half), rel=1e-6)
    factor = 4.302653 / 1.959964
    assert influence.stretch(1.0, (0.5, 1.2), 0.95) == pytest.approx(
        (1 - 0.5 * factor, 1 + 0.2 * factor), rel=1e-6
    )


@pytest.mark.parametrize("matter", [2, 6, 20])
def test_equal_groups_among_others_that_do_not_matter_are_the_freedom(matter):
    values = np.zeros(50)
    values[:matter] = np.tile([0.3, -0.3], matter // 2)
    assert Influence(values).freedom == pytest.approx(matter)


def test_without_any_influence_the_interval_is_the_value():
    assert Influence(np.full(5, 0.2)).interval(0.7, 0.95) == (0.7, 0.7)
    assert Influence(np.array([0.2])).interval(0.7, 0.95) == (0.7, 0.7)


# ------------------------------------------------------------- groups that count half as much


def one_step(action, outcome, actions=2):
    """Episodes of one step in one state."""
    n = len(action)
    return bf.Episodes.from_arrays(
        np.zeros(n, int),
        np.asarray(action, int),
        np.zeros(n, int),
        offsets=np.arange(n + 1),
        outcome=np.asarray(outcome, int),
        outcomes=[DEATH, HOME],
        states=1,
        actions=actions,
    )


def columns_of(log, target, model=None, **options):
    return EpisodeColumns(bf.Replay(log, model or bf.fit_mdp(log), target, **options))


def test_of_a_mean_the_error_is_the_textbook_standard_error():
    # one action, one step: MB is the mean return. An episode of weight 1 - 1/2 takes
    # (x - mean) / (n - 1/2) of it, so the error is that of a mean times n / (n - 1/2).
    outcome = np.random.default_rng(0).integers(2, size=GROUPS)
    log = one_step(np.zeros(GROUPS), outcome, actions=1)
    found = group_episodes(columns_of(log, [[1.0]]), blend=False).influences()
    textbook = (2.0 * outcome - 1).std(ddof=1) / GROUPS**0.5
    assert found["MB"].error == pytest.approx(textbook * GROUPS / (GROUPS - LESS), rel=1e-9)


@pytest.fixture(scope="module")
def walk():
    log = random_log(np.random.default_rng(7), episodes=25, longest=4)
    model = bf.fit_mdp(log)
    target = random_policy(np.random.default_rng(1), model)
    return columns_of(log, target, model, horizon=3, discount=0.8)


def halved(replay, episode):
    """The model of a log in which all other episodes stand twice, and how often each stands."""
    counts = 2 - (np.arange(len(replay.log)) == episode)
    log = replay.episodes.select(np.repeat(np.arange(len(counts)), counts))
    return bf.fit_mdp(log), counts


def plain_value(replay, model, counts):
    world = reference.World(
        reference_model(model),
        replay.target.tolist(),
        replay.behavior.tolist(),
        replay.horizon,
        replay.discount,
    )
    firsts = [[reference.Step(state, 0, 0.0, None)] for state in replay.log.first_state.tolist()]
    return reference.model_based(world, firsts, counts.tolist())


def test_influence_on_mb_equals_a_model_fitted_with_an_episode_half_as_often(walk):
    replay = walk.replay
    found = group_episodes(walk, blend=True).influences()
    n = len(replay.log)
    value = plain_value(replay, replay.mdp, np.ones(n))
    expected, blended = [], []
    magic = ESTIMATORS["MAGIC"](walk, np.ones((1, n)))[0]
    for episode in range(n):
        model, counts = halved(replay, episode)
        expected.append((value - plain_value(replay, model, counts)) / LESS)
        asked = EpisodeColumns(replay.ask(model=model, behavior=replay.behavior))
        blended.append((magic - ESTIMATORS["MAGIC"](asked, counts[None] / 2)[0]) / LESS)
    # the order of groups is random
    np.testing.assert_allclose(np.sort(found["MB"].of_group), np.sort(expected), atol=1e-10)
    np.testing.assert_allclose(np.sort(found["MAGIC"].of_group), np.sort(blended), atol=1e-8)
    assert found["MB"].error > 0.05


def test_cf_varies_as_mb_and_for_these_episodes_without_their_own_part(walk):
    found = group_episodes(walk, blend=False).influences()
    np.testing.assert_array_equal(found["CF"].of_group, found["MB"].of_group)
    assert "MAGIC" not in found
    returns = walk.replay.outcomes().expected_return
    own = (returns - returns.mean()) / len(returns)
    taken = found["MB"].of_group - found[THESE].of_group
    np.testing.assert_allclose(np.sort(taken), np.sort(own), atol=1e-12)


def test_episodes_of_one_id_are_one_group_and_others_are_divided_evenly():
    log = random_log(np.random.default_rng(7), episodes=120, longest=3)
    target = bf.estimate_behavior(log)
    sizes = group_episodes(columns_of(log, target), blend=False).starts.sum(axis=1)
    assert sorted(sizes.tolist()) == [2] * 30 + [3] * 20
    twice = log.select([*range(30), 0])
    sizes = group_episodes(columns_of(twice, target), blend=False).starts.sum(axis=1)
    assert sorted(sizes.tolist()) == [1] * 29 + [2]


def test_of_a_factored_model_there_is_no_interval_about_these_episodes():
    generator = np.random.default_rng(3)
    world = clinic_model(generator)
    behavior = generator.dirichlet(np.ones(2), world.n_states)
    log = simulate_factored(generator, world, behavior, 60, 5)
    frame = estimate_values(
        log, bf.fit_factored(log), behavior, estimators=["MB", "CF", "MAGIC"], resamples=20
    )
    assert np.isfinite(frame[["low", "high"]]).all(axis=None)
    assert frame[["low_these", "high_these"]].isna().all(axis=None)


def test_a_model_of_another_log_has_no_interval():
    log = random_log(np.random.default_rng(7), episodes=40, longest=4)
    other = bf.fit_mdp(log.select([*range(40), 0]))
    sample = columns_of(log, bf.estimate_behavior(log), other)
    assert group_episodes(sample, blend=True) is None
    rows = estimate_values(sample.replay, resamples=20).set_index("estimator")
    refused = ["Observed, continued", "MB", "CF", "MAGIC"]
    assert rows.loc[refused, ["low", "high"]].isna().all(axis=None)
    assert rows.loc[refused, "warning"].str.startswith(NOT_REFITTED).all()
    assert np.isfinite(rows.drop(index=refused)[["low", "high"]]).all(axis=None)


# -------------------------------------------------------------------------- cross-fitting


def test_cross_fitted_interval_by_hand():
    def of(values):
        return CrossFitted(*[np.array(values)] * 4, learned=True).interval(np.array(values), 0.95)

    # differences of .2: .04 / 4; split means .1 and .2: variance .005; t of 2 is 4.3027
    half = 4.302653 * (0.01 + 0.005) ** 0.5
    assert of([[0.0, 0.2], [0.1, 0.3]]) == pytest.approx((0.15 - half, 0.15 + half), rel=1e-6)
    # one split: t of 1 is 12.7062
    half = 12.706205 * 0.1
    assert of([[0.0, 0.2]]) == pytest.approx((0.1 - half, 0.1 + half), rel=1e-6)


@pytest.fixture(scope="module")
def learned():
    design = designs("tabular", learned=True)[1]
    log = design.simulate(0)
    return design, bf.Replay(log, *design.learn(log), horizon=HORIZON)


def test_cross_fitted_intervals_of_all_seeds_overlap(learned):
    design, replay = learned
    found = {name: [] for name in CROSS_FITTED}
    for seed in range(8):
        crossed = cross_fitted(replay, design.learn, seed=seed)
        both = crossed.model_based, crossed.counterfactual
        for name, values in zip(CROSS_FITTED, both, strict=True):
            found[name].append(crossed.interval(values, 0.95))
    for ends in found.values():
        assert len(set(ends)) == 8
        for one, other in combinations(ends, 2):
            assert max(one[0], other[0]) < min(one[1], other[1])


def test_a_learned_target_has_cross_fitted_intervals_only_and_a_fixed_one_all(learned):
    design, replay = learned
    rows = estimate_values(replay, learn=design.learn, resamples=50).set_index("estimator")
    plain = rows.drop(index=["Observed", *CROSS_FITTED])
    assert plain[["low", "high", "low_these", "high_these"]].isna().all(axis=None)
    assert plain["warning"].str.startswith(LEARNED).all()
    printed = rows.loc[["Observed", *CROSS_FITTED]]
    assert (printed["low"] < printed["high"]).all()
    fixed = replay.ask(target=np.full_like(replay.target, 0.5))
    rows = estimate_values(
        fixed, learn=lambda log: (bf.fit_mdp(log), fixed.target), resamples=50
    ).set_index("estimator")
    assert (rows["low"] < rows["high"]).all()
    assert not rows["warning"].str.contains("no interval").any()
    cf = rows.loc["CF"]
    assert cf["low"] < cf["low_these"] < cf["value"] < cf["high_these"] < cf["high"]
    assert rows.drop(index="CF")[["low_these", "high_these"]].isna().all(axis=None)


# ------------------------------------------- what is possible, too little data, pairs never seen


def world(step):
    """Two states, one action; each step that does not end the episode earns `step`."""
    rows = np.tile([0.3, 0.3, 0.2, 0.2], (2, 1, 1))
    return bf.TabularMDP.from_arrays(
        rows, reward=np.tile([step, step, -1.0, 1.0], (2, 1, 1)), outcomes=[DEATH, HOME]
    )


@pytest.mark.parametrize(
    ("step", "horizon", "discount", "expected"),
    [
        (0.0, 1, 1.0, (-1.0, 1.0)),
        (0.2, 1, 1.0, (-1.0, 1.0)),
        (2.0, 1, 1.0, (-1.0, 2.0)),  # the last step need not be an end
        (0.2, 3, 1.0, (-1.0, 0.2 + 0.2 + 1.0)),
        (0.2, 3, 0.5, (-1.0, 1.0)),  # .2 + .5 is less than ending at once
        (-0.6, 3, 0.5, (-0.6 - 0.3 - 0.25, 1.0)),
        (-0.1, 3, 1.0, (-1.2, 1.0)),
    ],
)
def test_possible_returns_by_hand(step, horizon, discount, expected):
    model = world(step)
    log = bf.Episodes.from_arrays(
        [0], [0], [1], offsets=[0, 1], outcomes=[DEATH, HOME], states=2, actions=1
    )
    replay = bf.Replay(log, model, np.ones((2, 1)), horizon=horizon, discount=discount)
    assert possible_returns(replay) == pytest.approx(expected)


def test_possible_returns_of_a_factored_model_hold_those_of_its_log():
    generator = np.random.default_rng(3)
    model = clinic_model(generator)
    behavior = generator.dirichlet(np.ones(2), model.n_states)
    log = simulate_factored(generator, model, behavior, 300, 5)
    low, high = possible_returns(bf.Replay(log, model, behavior, discount=0.9))
    returns = log.returns(0.9)
    assert low <= returns.min() + 1e-12
    assert high >= returns.max() - 1e-12
    steps, ends = model.rewards.table[..., -1], model.rewards.table[..., :-1]
    assert high <= 5 * max(steps.max(), 0) + max(ends.max(), 1)


@pytest.mark.parametrize(
    ("unseen", "worst"),
    [("death", True), ("home", False), ("uniform", False), ("self-loop", False)],
)
def test_only_the_outcome_of_lowest_reward_is_the_worst(unseen, worst):
    log = ward_log()
    model = bf.fit_mdp(log, unseen=unseen)
    assert assumes_worst(bf.Replay(log, model, bf.estimate_behavior(log))) == worst


@pytest.mark.parametrize("relearn", [False, True])
def test_weighted_estimates_have_an_interval_from_an_effective_sample_size_of_ten(relearn):
    # one step, one state, a policy that always takes action 1: those who had it are the sample
    for followers in (9, 10):
        log = one_step(np.arange(40) < followers, np.arange(40) % 2)
        frame = estimate_values(
            log,
            bf.fit_mdp(log),
            [[0.0, 1.0]],
            estimators=[*WEIGHTED, "FQE", "MB"],
            learn=lambda part: (bf.fit_mdp(part), np.array([[0.0, 1.0]])),
            relearn=relearn,
            resamples=50,
        ).set_index("estimator")
        assert (frame.loc[list(WEIGHTED), "effective"] == followers).all()
        assert np.isfinite(frame.loc[["FQE", "MB"], ["low", "high"]]).all(axis=None)
        printed = np.isfinite(frame.loc[list(WEIGHTED), ["low", "high"]])
        assert printed.all(axis=None) if followers == 10 else not printed.any(axis=None)
        said = frame.loc[list(WEIGHTED), "warning"].str.startswith(
            f"no interval: not enough data (effective sample size {followers}.0, and below 10 "
        )
        assert (said == (followers < 10)).all()


def test_intervals_are_clipped_to_possible_returns_and_impossible_estimates_have_none():
    # 12 of 40 had action 1, and went home; with a given chance of .2 IS is 12 / 40 / .2 = 1.5
    action = np.arange(40) < 12
    rows = estimate_values(
        one_step(action, action),
        bf.fit_mdp(one_step(action, action)),
        [[0.0, 1.0]],
        behavior=[[0.8, 0.2]],
        estimators=["IS", "WIS", "MB"],
    ).set_index("estimator")
    assert rows.loc["IS", "value"] == pytest.approx(1.5)
    assert rows.loc["IS", ["low", "high"]].isna().all()
    assert "outside the possible returns" in rows.loc["IS", "warning"]
    assert rows.loc["WIS", ["low", "high"]].tolist() == [1, 1]


@pytest.mark.parametrize("unseen", ["death", "home"])
def test_intervals_allow_for_any_effect_of_pairs_never_seen(unseen):
    # action 2 was never taken, the policy takes it in 1 of 10: that is .1 of a range of 2
    generator = np.random.default_rng(0)
    log = one_step(generator.integers(2, size=100), generator.integers(2, size=100), actions=3)
    sample = columns_of(log, [[0.0, 0.9, 0.1]], bf.fit_mdp(log, unseen=unseen))
    rows = estimate_values(sample.replay, estimators=["WIS", "MB"]).set_index("estimator")
    influence = group_episodes(sample, blend=False).influences()["MB"]
    low, high = influence.interval(rows.loc["MB", "value"], 0.95)
    low -= 0.0 if unseen == "death" else 0.2  # it cannot be worse than death
    assert rows.loc["MB", ["low", "high"]].tolist() == pytest.approx([low, high + 0.2])

    def evaluate(weights):
        return ESTIMATORS["WIS"](sample, weights)

    resampled = evaluate(resample_weights(100, 1000, 0))
    value = rows.loc["WIS", "value"]
    low, high = bootstrap_interval(evaluate, value, resampled, 100, "percentile", 0.95)
    assert rows.loc["WIS", ["low", "high"]].tolist() == pytest.approx([low - 0.2, high + 0.2])


def test_bootstrap_intervals_are_widened_as_students_t():
    # the mean of two values of 1 among 40: only they matter
    values = np.zeros(40)
    values[:2] = [1.0, -1.0]

    def evaluate(weights):
        return weights @ values / weights.sum(axis=1)

    resampled = evaluate(resample_weights(40, 500, 0))
    found = bootstrap_interval(evaluate, 0.0, resampled, 40, "percentile", 0.95)
    factor = stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)
    expected = factor * np.quantile(resampled, [0.025, 0.975])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


# ------------------------------------------------------------------------------- what is possible


def shares(alive, of, target=None):
    """Stays of one step that end in death (0) or at home (1); the second action is never taken."""
    log = bf.Episodes.from_arrays(
        [0] * of, [0] * of, [0] * of, offsets=np.arange(of + 1), states=1, actions=2,
        outcome=[1] * alive + [0] * (of - alive), reward=[1.0] * alive + [0.0] * (of - alive),
        outcomes=[bf.Outcome("died", 0.0, bad=True), bf.Outcome("home", 1.0)],
    )  # fmt: skip
    return bf.Replay(log, bf.fit_mdp(log), [[1.0, 0.0]] if target is None else target)


def test_the_interval_of_a_share_stays_between_none_and_all():
    table = bf.estimate_values(shares(1, 2), estimators=["Observed"])
    assert table["value"].iloc[0] == 0.5
    assert 0.0 <= table["low"].iloc[0] < 0.5 < table["high"].iloc[0] <= 1.0


@pytest.mark.parametrize("of", [2, 3, 5])
def test_what_is_impossible_can_be_cut_off_without_losing_a_true_value(of):
    for alive in range(of + 1):
        replay = shares(alive, of)
        sample = EpisodeColumns(replay)
        evaluate = partial(ESTIMATORS["Observed"], sample)
        resampled = evaluate(resample_weights(of, 1000, 0))
        low, high = bootstrap_interval(evaluate, alive / of, resampled, of, "percentile", 0.95)
        row = bf.estimate_values(replay, estimators=["Observed"]).iloc[0]
        for true in np.linspace(0, 1, 101):
            assert (low <= true <= high) == (row["low"] <= true <= row["high"])


def test_an_impossible_estimate_has_no_interval():
    # 12 of 40 stays take an action that the given behavior hardly ever takes: weights of 20.
    log = bf.Episodes.from_arrays(
        [0] * 40, [1] * 12 + [0] * 28, [0] * 40, offsets=np.arange(41), states=1, actions=2,
        outcome=[1] * 20 + [0] * 20, reward=[1.0] * 20 + [0.0] * 20,
        outcomes=[bf.Outcome("died", 0.0, bad=True), bf.Outcome("home", 1.0)],
    )  # fmt: skip
    replay = bf.Replay(log, bf.fit_mdp(log), [[0.0, 1.0]], behavior=[[0.95, 0.05]])
    table = bf.estimate_values(replay).set_index("estimator")
    assert table.loc["IS", "value"] == pytest.approx(12 * 20 / 40)  # of at most 1
    assert table.loc["IS", ["low", "high"]].isna().all()
    assert "outside the possible returns" in table.loc["IS", "warning"]
    assert table.loc["WIS", "value"] == 1.0
    known = table["low"].notna()
    inside = (table["low"] <= table["value"] + 1e-9) & (table["value"] <= table["high"] + 1e-9)
    assert inside[known].all()

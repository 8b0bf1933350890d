"""Off-policy evaluation: one contract, exact values by enumeration, draws from a model."""

import numpy as np
import pytest

import butfor as bf
from butfor import kernels
from butfor.evaluate.bootstrap import (
    resample_weights,
)
from butfor.evaluate.estimate import COLUMNS, estimate_values
from butfor.evaluate.estimators.table import CONTINUED, CROSS_FITTED, ESTIMATORS, NAMES
from butfor.evaluate.intervals import LEAST_EFFECTIVE
from butfor.models.fit import destinations
from butfor.models.planning import value_tables
from butfor.models.simulate import simulate_model
from butfor.random import numbered_keys, uniforms
from tests.grids import few
from tests.ope import DISCOUNT, HORIZON, ask, keep, known, make_setting
from tests.ope import setting as setting
from tests.reference import counterfactual as plain_counterfactual
from tests.support import (
    as_log,
    frequencies_agree,
    random_model,
    random_policy,
    reference_model,
)

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


@pytest.mark.parametrize(
    ("seed", "interval"),
    few(zip([0, 1, 2, 0, 1, 2], ["percentile", "bca"] * 3, strict=True), 2),
)
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
    names = [name for name in NAMES if name != CONTINUED]  # no episode is lost
    frame = estimate_values(
        setting.log, setting.model, setting.target, estimators=names, **arguments
    )
    assert list(frame.columns) == COLUMNS
    assert frame["estimator"].tolist() == names
    assert np.isfinite(frame[["value", "low", "high", "effective"]]).all(axis=None)
    rows = frame.set_index("estimator")
    inside = (rows["low"] <= rows["value"]) & (rows["value"] <= rows["high"])
    assert inside.all()
    assert (rows["effective"] <= rows["episodes"] + 1e-9).all()
    for name in set(names) & set(ESTIMATORS):
        one = ESTIMATORS[name](setting.sample, np.ones((1, len(setting.log))))[0]
        assert rows.loc[name, "value"] == pytest.approx(one, abs=1e-12)
    assert rows.loc["True", "value"] == pytest.approx(rows.loc["Observed", "value"])
    usual = estimate_values(setting.log, setting.model, setting.target, **arguments)
    assert usual["estimator"].tolist() == [
        *(name for name in ESTIMATORS if name not in (CONTINUED, "MB (sampled)")),
        *CROSS_FITTED,
        "True",
    ]


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

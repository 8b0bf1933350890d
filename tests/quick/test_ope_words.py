"""Off-policy evaluation: what is said, what is refused, logs that break off."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate import warn
from butfor.evaluate.crossfit import cross_fitted, split_halves
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import estimate_values
from butfor.evaluate.estimators.table import CROSS_FITTED, ESTIMATORS
from butfor.evaluate.intervals import LEARNED, LEAST_EFFECTIVE, ONE
from butfor.models.simulate import simulate_model
from tests.builders import DEATH, HOME, ward_log
from tests.ope import ask, learn, nobody_follows, sharpened
from tests.ope import sepsis as sepsis

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
        (
            {"estimators": ["WIS", "wis"]},
            "estimator 'wis': give one of 'Observed', 'Observed, continued', 'IS'",
        ),
        ({"estimators": []}, "no estimator given; choose from 'Observed'"),
        ({"estimators": ["True"]}, "'True' needs truth="),
        ({"estimators": ["Observed, continued"]}, "needs censored episodes"),
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
    exact = bf.Replay(part, model, target).outcomes()
    drawn = bf.Replay(part, model, target, horizon=7).draws()
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

"""Mean importance weight and estimators that disagree: hand values, groups, and what is said."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.diagnostics.disagreement import differences, disagreement_row
from butfor.evaluate.diagnostics.weights import weight_row
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.columns import Columns
from tests.builders import DEATH, HOME, ward_log
from tests.confounded import TARGET, simulate_stays


class Summed:
    """A sample whose rows are sums over groups of episodes."""

    def __init__(self, sample, groups):
        group = np.arange(len(sample)) % groups
        sums = np.zeros((groups, sample.columns.matrix().shape[1]))
        np.add.at(sums, group, sample.columns.matrix())
        self.columns = Columns.from_matrix(sums, sample.columns.ratio.shape[1], 0)
        self.logged = self.columns
        self.episodes, self.effective = sample.episodes, sample.effective
        self.spread, self.followers = sample.spread, sample.followers
        self.censored, self.replay = sample.censored, sample.replay


@pytest.fixture(scope="module")
def stays():
    """By whether a hidden frailty drives the treatment: a sample of 2000 stays."""
    logs = {c: simulate_stays(2000, 1, confounded=c) for c in (False, True)}
    return {c: EpisodeColumns(bf.Replay(log, bf.fit_mdp(log), TARGET)) for c, log in logs.items()}


def fixed_hour_log(episodes, seed):
    """Stays that all end at the fourth step, about which the state says nothing."""
    rng = np.random.default_rng(seed)
    path = np.empty((episodes, 5), int)
    path[:, 0] = rng.integers(3, size=episodes)
    action = rng.integers(2, size=(episodes, 4))
    for t in range(4):
        better = rng.random(episodes) < 0.3 + 0.3 * action[:, t]
        worse = rng.random(episodes) < 0.4
        path[:, t + 1] = np.clip(path[:, t] - better + (worse & ~better), 0, 2)
    home = rng.random(episodes) < np.array([0.9, 0.5, 0.1])[path[:, 4]]
    return bf.Episodes.from_arrays(
        path[:, :4].ravel(),
        action.ravel(),
        path[:, 1:].ravel(),
        offsets=np.arange(0, 4 * episodes + 1, 4),
        states=3,
        actions=2,
        outcome=home.astype(int),
        outcomes=[DEATH, HOME],
    )


# -------------------------------------------------------------------------- mean importance weight


def test_the_mean_weight_and_its_standard_error():
    # Two actions at even odds, known, in 100 episodes of one step; the target takes the second. 60
    # took it: weights 2 and 0, mean 1.2, standard error sqrt(.96 / 99) = .098. 2.03 errors from 1.
    log = bf.Episodes.from_arrays(
        [0] * 100, [0] * 40 + [1] * 60, [0] * 100, offsets=np.arange(101), states=1, actions=2,
        outcome=[0] * 100, outcomes=[HOME],
    )  # fmt: skip
    replay = bf.Replay(log, bf.fit_mdp(log), [[0.0, 1.0]], behavior=[[0.5, 0.5]])
    name, mean, light, said = weight_row(EpisodeColumns(replay))
    assert (name, light) == ("mean importance weight", "amber")
    assert mean == pytest.approx(1.2, abs=1e-12)
    assert said.startswith("The importance weights average 1.20 (standard error 0.098);")
    assert "nothing hidden" in said
    estimated = bf.Replay(log, bf.fit_mdp(log), [[0.0, 1.0]])
    assert weight_row(EpisodeColumns(estimated))[1:3] == (pytest.approx(1.0), "green")


def test_the_standard_error_is_that_of_the_weights(stays):
    weight = stays[True].ratio[:, -1]
    error = weight.std(ddof=1) / np.sqrt(len(weight))
    assert f"(standard error {error:.2g})" in weight_row(stays[True])[3]


def test_few_weights_are_not_assessed():
    # 9 of 100 episodes took the second action, whose odds were even: their mean weight is .18
    log = bf.Episodes.from_arrays(
        [0] * 100, [0] * 91 + [1] * 9, [0] * 100, offsets=np.arange(101), states=1, actions=2,
        outcome=[0] * 100, outcomes=[HOME],
    )  # fmt: skip
    replay = bf.Replay(log, bf.fit_mdp(log), [[0.0, 1.0]], behavior=[[0.5, 0.5]])
    _, mean, light, said = weight_row(EpisodeColumns(replay))
    assert (mean, light) == (pytest.approx(0.18), "unknown")
    assert "effective sample size is below 10" in said
    ten = bf.Replay(log, bf.fit_mdp(log), [[0.02, 0.98]], behavior=[[0.5, 0.5]])
    assert EpisodeColumns(ten).effective > 10
    assert weight_row(EpisodeColumns(ten))[2] == "red"


def test_weights_that_all_vanish_are_not_assessed():
    replay = bf.Replay(ward_log(), bf.fit_mdp(ward_log()), [[1.0, 0.0]] * 3)
    _, mean, light, said = weight_row(EpisodeColumns(replay))
    assert (mean, light) == (0.0, "unknown")
    assert "effective sample size is below 10" in said


def test_a_hidden_cause_of_decisions_shows_in_the_weights(stays):
    assert weight_row(stays[False])[2] == "green"
    assert weight_row(stays[True])[2] == "red"


def test_groups_have_the_mean_of_their_episodes(stays):
    for sample in stays.values():
        one, summed = weight_row(sample), weight_row(Summed(sample, 50))
        assert summed[1] == pytest.approx(one[1], rel=1e-12)
        assert summed[2:] == one[2:]


# ----------------------------------------------------------------------------- estimators disagree


def test_estimates_that_agree_are_no_concern(stays):
    name, gap, light, said = disagreement_row(stays[False])
    assert (name, light) == ("estimators disagree", "green")
    assert 0 <= gap < 0.05
    assert "standard deviation" in said


def test_a_hidden_cause_makes_estimates_disagree(stays):
    assert disagreement_row(stays[True])[2] == "amber"


@pytest.fixture(scope="module")
def fixed_hour():
    log = fixed_hour_log(1000, 0)
    return EpisodeColumns(bf.Replay(log, bf.fit_mdp(log), np.tile([0.2, 0.8], (3, 1))))


def test_stays_that_end_at_a_fixed_hour_are_warned_of(fixed_hour):
    checks = bf.diagnose(fixed_hour.replay).set_index("check")["light"]
    assert checks["estimators disagree"] == "amber"
    assert checks["the past still matters"] == "red"


def test_differences_are_those_of_the_estimates(fixed_hour):
    found = bf.estimate_values(fixed_hour.replay, resamples=2).set_index("estimator")["value"]
    gaps = {name: gap for name, (gap, _) in differences(fixed_hour).items()}
    assert gaps == pytest.approx({name: found[name] - found["MB"] for name in ("CF", "WIS", "DR")})
    _, gap, _, said = disagreement_row(fixed_hour)
    assert "(CF)" in said
    assert gap == pytest.approx(abs(gaps["CF"]) / fixed_hour.spread, rel=1e-9)


def test_the_error_of_reweighted_episodes_is_that_of_resamples(fixed_hour):
    # WIS is a ratio. The spread of 2000 resamples is known to 1 / sqrt(4000) = 1.6%, five times
    # which is 8%; the error to first order leaves out terms of the order of 1 / sqrt(1000), 3%.
    columns, ratio = fixed_hour.columns, fixed_hour.ratio[:, -1]
    rng = np.random.default_rng(0)
    counts = rng.multinomial(1000, np.full(1000, 1e-3), size=2000).astype(float)
    gaps = counts @ columns.weighted_return / (counts @ ratio) - counts @ columns.value / 1000
    assert differences(fixed_hour)["WIS"][1] == pytest.approx(gaps.std(), rel=0.11)


def test_with_little_weight_only_the_model_is_compared_with_itself(stays):
    sample = Summed(stays[True], 2000)
    sample.effective = 20.0
    assert "(CF)" in disagreement_row(sample)[3]


def test_groups_say_the_same_up_to_chance(stays):
    for sample in stays.values():
        one, summed = disagreement_row(sample), disagreement_row(Summed(sample, 200))
        assert summed[1] == pytest.approx(one[1], rel=1e-9)
        assert summed[2] == one[2]


def test_equal_returns_have_nothing_to_disagree_about(stays):
    sample = Summed(stays[False], 100)
    sample.spread = 0.0
    assert disagreement_row(sample) is None
    sample.spread = 1.0
    sample.columns = replace(
        sample.columns,
        **{name: getattr(sample.columns, name)[:1] for name in (
            "episodes", "recorded", "returns", "weighted_return", "value", "counterfactual",
            "ratio", "earned", "base", "surprise",
        )},
    )  # fmt: skip
    assert disagreement_row(sample) is None

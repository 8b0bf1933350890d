"""Models and logs from other libraries: Gymnasium, ICU-Sepsis, Minari."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from butfor import Episodes, Outcome, policy_iteration, policy_value
from butfor.interop.gym import episodes_from_minari, model_from_gym, outcomes_by_reward
from butfor.interop.icu_sepsis import FEATURES, load_icu_sepsis, sample_hospital_log
from tests.processes import start

HOLE, GOAL = Outcome("hole", 0.0, bad=True), Outcome("goal", 1.0)


# Gymnasium


def table(**changes):
    """Two states: from 0, action 0 slips back or ends in 1 by two entries; action 1 ends in 1."""
    rows = {
        0: {0: [(0.5, 0, 0.0, False), (0.2, 1, 1.0, True), (0.3, 1, 1.0, True)], 1: [(1, 1, 3, 1)]},
        1: {0: [(1.0, 1, 0.0, True)], 1: [(1.0, 1, 0.0, True)]},
    }
    return SimpleNamespace(P={**rows, **changes.pop("P", {})}, **changes)


def test_entries_with_one_next_state_are_added():
    model = model_from_gym(table())
    # outcomes "ended with 1" (column 2) and "ended with 3" (column 3)
    assert model.row(0, 0) == pytest.approx({0: 0.5, 2: 0.5})
    assert model.row(0, 1) == {3: 1.0}
    assert [outcome.name for outcome in model.outcomes] == ["ended with 1", "ended with 3"]


def test_rewards_of_added_entries_are_averaged_by_probability():
    rows = {0: {0: [(0.25, 0, 4.0, False), (0.75, 0, 8.0, False)], 1: [(1, 1, 3, True)]}}
    model = model_from_gym(table(P=rows))
    # .25 * 4 + .75 * 8 = 7
    assert model.reward[model.entry_row == 0].tolist() == [7.0]


def test_a_final_states_own_loop_makes_no_outcome():
    # rewards of arrival are 1 and 3; the loops in state 1 earn 0
    assert {outcome.reward for outcome in model_from_gym(table()).outcomes} == {1.0, 3.0}


def test_a_loop_that_ends_is_an_outcome_where_the_state_is_visited():
    bandit = SimpleNamespace(P={0: {0: [(1.0, 0, 5.0, True)], 1: [(1.0, 0, 2.0, True)]}})
    model = model_from_gym(bandit)
    assert [outcome.reward for outcome in model.outcomes] == [2.0, 5.0]
    assert policy_value(model, [[0.5, 0.5]], horizon=3) == pytest.approx(3.5)


def test_the_user_names_outcomes_by_final_state():
    env = gymnasium.make("FrozenLake-v1")
    outcomes = {**dict.fromkeys((5, 7, 11, 12), HOLE), 15: GOAL}
    model = model_from_gym(env, outcomes=outcomes)
    assert model.outcomes == (HOLE, GOAL)
    assert model.row(14, 2) == pytest.approx({14: 1 / 3, 10: 1 / 3, 17: 1 / 3})
    assert model.initial.tolist() == [1.0] + [0.0] * 15


@pytest.mark.parametrize(
    ("name", "discount", "horizon", "value"),
    [
        ("FrozenLake-v", 0.99, None, 0.5420),  # the best policy of the slippery 4 x 4 lake
        ("CliffWalking-v", 1.0, 100, -13.0),  # up, eleven to the right, down
        ("Taxi-v", 1.0, 100, 7.93),  # the mean over the 300 starts, as published
    ],
)
def test_planning_on_a_gym_table_gives_the_known_value(name, discount, horizon, value):
    newest = max(known for known in gymnasium.registry if known.startswith(name))
    model = model_from_gym(gymnasium.make(newest))
    best = policy_iteration(model, discount=0.99)
    found = policy_value(model, best, horizon=horizon, discount=discount)
    assert found == pytest.approx(value, abs=5e-5)


def test_more_than_ten_last_rewards_make_one_outcome():
    outcomes, index = outcomes_by_reward(np.arange(11))
    assert outcomes == (Outcome("ended", 5.0),)
    assert index.tolist() == [0] * 11


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (gymnasium.make("Blackjack-v1"), "BlackjackEnv has no table P"),
        (table(P={0: {0: [(0.9, 0, 0, False)], 1: []}}), "state 0, action 0 sum to 0.9, not to 1"),
        (table(P={1: {0: [(1, 1, 0, True)]}}), "state 1 has 1 actions, state 0 has 2"),
        (table(P={1: {0: [(1, 1, 0, True)], 2: []}}), "P has no state 1, action 1"),
        (table(P={1: {0: [(1, 1, 0)], 1: []}}), "state 1, action 0 has the entry (1, 1, 0)"),
        (table(P={1: {0: [(1, 7, 0, True)], 1: []}}), "leads to state 7 outside 0..1"),
        (table(P={1: {0: [(-1, 1, 0, True)], 1: []}}), "has the probability -1"),
        (table(P={1: {0: [(1, 1, np.nan, True)], 1: []}}), "earns nan"),
        (SimpleNamespace(P={}), "states of P 0"),
        (table(initial_state_distrib=[0.5, 0.6]), "initial: the row sums to 1.1"),
    ],
)
def test_a_table_that_is_no_model_is_refused(env, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        model_from_gym(env)


def test_a_final_state_without_outcome_is_named():
    with pytest.raises(ValueError, match=r"state 5 is final and has none.*outcomes for 15"):
        model_from_gym(gymnasium.make("FrozenLake-v1"), outcomes={15: GOAL})


# ICU-Sepsis

icu = pytest.mark.skipif(
    find_spec("icu_sepsis") is None, reason="the package icu-sepsis is not installed"
)


@pytest.fixture(scope="module")
def sepsis():
    return load_icu_sepsis()


@icu
def test_survival_in_icu_sepsis_is_the_published_one(sepsis):
    # no discount, no horizon: the value is the probability of survival from d_0
    uniform = np.full((716, 25), 1 / 25)
    best = policy_iteration(sepsis.model, discount=0.999999)
    values = [policy_value(sepsis.model, p) for p in (sepsis.expert_policy, uniform, best)]
    assert values == pytest.approx([0.7818, 0.7801, 0.8751], abs=5e-5)


@icu
def test_icu_sepsis_keeps_its_numbers_of_states_and_ends_in_two_outcomes(sepsis):
    assert (sepsis.model.n_states, sepsis.model.n_actions) == (716, 25)
    assert sepsis.model.outcomes == (Outcome("died", 0.0, bad=True), Outcome("survived", 1.0))
    assert sepsis.model.row(713, 3) == {716: 1.0}
    assert sepsis.model.row(714, 3) == {717: 1.0}
    visited = sepsis.model.next_state[sepsis.model.entry_row < 713 * 25]
    assert not np.isin(visited, [713, 714, 715]).any()
    assert (sepsis.expert_policy[713:] == 1 / 25).all()


@icu
def test_actions_are_five_fluid_levels_times_five_vasopressor_levels(sepsis):
    # the state's own doses tell which digit is which
    fluid, vasopressor = np.divmod(np.arange(25), 5)
    expected = {"fluid": sepsis.expert_policy @ fluid, "vaso": sepsis.expert_policy @ vasopressor}
    doses = {name: sepsis.cluster_centers[:713, FEATURES.index(name)] for name in FEATURES}
    assert np.corrcoef(doses["input_4hourly"], expected["fluid"][:713])[0, 1] > 0.95
    assert np.corrcoef(doses["input_4hourly"], expected["vaso"][:713])[0, 1] < 0.6
    assert np.corrcoef(doses["max_dose_vaso"], expected["vaso"][:713])[0, 1] > 0.7
    assert np.corrcoef(doses["SOFA"], sepsis.sofa_scores[:713])[0, 1] > 0.99


@icu
def test_the_experts_mass_on_inadmissible_actions_is_as_the_docstring_says(sepsis):
    folder = Path(find_spec("icu_sepsis").submodule_search_locations[0])
    lines = (folder / "envs" / "assets" / "admissible_actions.txt").read_text().splitlines()[1:]
    allowed = np.zeros((716, 25), dtype=bool)
    for state, line in enumerate(lines):
        allowed[state, [int(action) for action in line.split()]] = True
    outside = np.where(allowed, 0, sepsis.expert_policy)[:713].sum(axis=1)
    assert outside.mean() == pytest.approx(0.156, abs=5e-4)
    log = sample_hospital_log(sepsis, 5000, seed=1)
    action = log["fluid_level"] * 5 + log["vasopressor_level"]
    centers = {tuple(row): state for state, row in enumerate(sepsis.cluster_centers[:713])}
    state = np.array([centers[tuple(row)] for row in log[list(FEATURES)].to_numpy()])
    # exact, weighted by visits: .1210; of 5000 stays the standard error is .0019 (a ratio of sums
    # over stays), and 4.9 of them, false alarm 1e-6, are .0093
    assert 1 - allowed[state, action].mean() == pytest.approx(0.1210, abs=0.0093)


@icu
def test_a_hospital_log_has_a_row_a_decision_and_the_outcome_on_the_last(sepsis):
    log = sample_hospital_log(sepsis, 2000, seed=0)
    assert list(log.columns) == [
        *("stay", "step", *FEATURES, "fluid_level", "vasopressor_level", "outcome")
    ]
    last = ~log["stay"].duplicated(keep="last")
    assert log["outcome"].notna().equals(last)
    assert (log["step"] == log.groupby("stay").cumcount()).all()
    assert log["fluid_level"].between(0, 4).all()
    assert log["vasopressor_level"].between(0, 4).all()
    # binomial quantiles of 2000 stays with .78184 at 5e-7 and 1 - 5e-7
    assert 1471 <= (log["outcome"] == "survived").sum() <= 1652


@icu
def test_a_hospital_log_depends_on_its_seed_only(sepsis):
    log = sample_hospital_log(sepsis, 50, seed=3)
    assert log.equals(sample_hospital_log(sepsis, 80, seed=3).iloc[: len(log)])
    assert not log.equals(sample_hospital_log(sepsis, 50, seed=4))


@icu
def test_loading_icu_sepsis_imports_nothing_of_it():
    code = (
        "import sys; from butfor.interop.icu_sepsis import load_icu_sepsis; load_icu_sepsis(); "
        "print([name for name in sys.modules if name.split('.')[0] in ('icu_sepsis', 'gym')])"
    )
    with start(code) as process:  # its parent has not imported it either
        assert process.stdout.read().strip() == "[]"


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr("butfor.interop.icu_sepsis.PACKAGE", "no_such_package")
    with pytest.raises(FileNotFoundError, match="pip install icu-sepsis"):
        load_icu_sepsis()


def write_text(path):
    path.write_text("state,action\n")


def write_one_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def write_half(path):
    np.savez(path, tx_mat=np.zeros((9, 9)))
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_text, "is not an .npz file"),
        (write_one_array, "one array without a name"),
        (write_half, "is not an .npz file"),
        (lambda path: np.savez(path, d_0=[1.0]), "no array 'tx_mat'"),
        (lambda path: np.savez(path, tx_mat=np.zeros((2, 2))), "tx_mat has shape (2, 2), expected"),
        (lambda path: np.savez(path, tx_mat=np.array(["a"])), "tx_mat is damaged"),
        (lambda path: np.savez(path, tx_mat=np.array([{}])), "tx_mat is damaged"),
    ],
)
def test_a_file_that_is_not_icu_sepsis_is_refused(tmp_path, write, message):
    path = tmp_path / "dynamics.npz"
    write(path)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_icu_sepsis(path)
    assert str(path) in str(caught.value)


# Minari


def recorded(id=0, observations=(0, 1, 2), actions=(0, 1), rewards=(0, 1), ended=True):
    over = np.zeros(len(rewards), dtype=bool)
    over[-1:] = True
    return SimpleNamespace(
        id=id,
        observations=np.array(observations),
        actions=np.array(actions),
        rewards=np.array(rewards),
        terminations=over & ended,
        truncations=over & (not ended),
    )


def dataset(*episodes, observation=None, action=None, limit=None):
    """What a Minari data set shows: spaces, the environment's limit, episodes."""
    return SimpleNamespace(
        observation_space=observation or spaces.Discrete(3),
        action_space=action or spaces.Discrete(2),
        env_spec=SimpleNamespace(max_episode_steps=limit),
        iterate_episodes=lambda: iter(episodes),
    )


def test_a_minari_log_has_outcomes_where_terminated_and_none_where_truncated():
    log = episodes_from_minari(
        dataset(
            recorded(4),
            recorded(7, observations=(1, 1), actions=(1,), rewards=(0,)),
            recorded(9, observations=(0, 0), actions=(0,), rewards=(0,), ended=False),
        )
    )
    assert log.state.tolist() == [0, 1, 1, 0]
    assert log.next_state.tolist() == [1, 2, 1, 0]
    assert log.action.tolist() == [0, 1, 1, 0]
    assert log.reward.tolist() == [0, 1, 0, 0]
    assert log.outcome.tolist() == [1, 0, -1]
    assert [outcome.name for outcome in log.outcomes] == ["ended with 0", "ended with 1"]
    assert log.id.tolist() == [4, 7, 9]
    assert log.horizon == 2


def test_the_step_limit_of_the_environment_is_the_horizon():
    assert episodes_from_minari(dataset(recorded(), limit=100)).horizon == 100


def test_minari_outcomes_can_be_named_by_final_state():
    log = episodes_from_minari(dataset(recorded()), outcomes={0: HOLE, 2: GOAL})
    assert log.outcomes == (HOLE, GOAL)
    assert log.outcome.tolist() == [1]


def test_spaces_that_start_elsewhere_and_spaces_of_several_variables_are_coded():
    log = episodes_from_minari(
        dataset(
            recorded(observations=(5, 6, 7), actions=((0, 2), (1, 0))),
            observation=spaces.Discrete(3, start=5),
            action=spaces.MultiDiscrete([2, 3]),
        )
    )
    assert log.state.tolist() == [0, 1]
    assert log.state_variables[0].levels == ("5", "6", "7")
    assert log.action.tolist() == [0 * 3 + 2, 1 * 3 + 0]
    assert log.n_actions == 6


@pytest.mark.filterwarnings("ignore::UserWarning")  # asks for an author, a permalink, ...
def test_a_data_set_written_by_minari_is_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari", reason="the package minari is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    buffer = minari.data_collector.EpisodeBuffer
    buffers = [
        buffer(
            id=i,
            observations=[0, 4, 4 + 4 * i],
            actions=[1, 1],
            rewards=[0.0, float(i)],
            terminations=[False, True],
            truncations=[False, False],
        )
        for i in range(2)
    ]
    written = minari.create_dataset_from_buffers(
        "lake/test-v0", buffers, env=gymnasium.make("FrozenLake-v1"), data_format="arrow"
    )
    log = episodes_from_minari(written)
    assert isinstance(log, Episodes)
    assert log.next_state.tolist() == [4, 4, 4, 8]
    assert log.outcome.tolist() == [0, 1]
    assert log.horizon == 100


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dataset(observation=spaces.Box(0, 1, (3,))), "the observation space is Box"),
        (dataset(action=spaces.Box(0, 1, (3,))), "the action space is Box"),
        (dataset(action=spaces.MultiBinary(3)), "the action space is MultiBinary"),
        (dataset(), "no episodes"),
        (dataset(recorded(3, observations=(0, 1))), "episode 3 has 2 observations and 2 rewards"),
        (dataset(recorded(3, actions=(1,))), "episode 3 has 1 actions and 2 rewards"),
        (dataset(recorded(3, actions=(1, 2))), "episode 3, step 1: 2 is outside the space"),
        (dataset(recorded(3, observations=(-1, 0, 0))), "step 0: -1 is outside the space"),
        (dataset(recorded(3, (0,), (), ())), "episode 3 has no steps"),
    ],
)
def test_a_data_set_that_cannot_be_a_log_is_refused(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        episodes_from_minari(given)


def test_an_episode_that_goes_on_after_its_end_is_refused():
    episode = recorded(3)
    episode.terminations[0] = True
    with pytest.raises(ValueError, match="episode 3 is terminated at step 0 of 2 and goes on"):
        episodes_from_minari(dataset(episode))

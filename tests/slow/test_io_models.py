"""Models and logs from other libraries: Gymnasium, ICU-Sepsis, Minari, Cassandra's files."""

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import butfor as bf
from butfor import Episodes, Outcome, policy_iteration, policy_value
from butfor.interop.gym import episodes_from_minari, model_from_gym, outcomes_by_reward
from butfor.interop.icu_sepsis import FEATURES, load_icu_sepsis, sample_hospital_log
from butfor.interop.pomdp_file import read_pomdp_file
from butfor.models.planning import state_values
from tests.grids import few
from tests.processes import start

DATA = Path(__file__).parents[1] / "data"
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


# Cassandra's files


def read(tmp_path, text):
    path = tmp_path / "model.pomdp"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_pomdp_file(path)


def test_the_tiger_is_read_as_published():
    tiger = read_pomdp_file(DATA / "tiger.pomdp")
    assert tiger.discount == 0.95
    assert tiger.states == ("tiger-left", "tiger-right")
    assert tiger.start.tolist() == [0.5, 0.5]
    # rows state * 3 + action: listening moves nothing, a door resets
    half = [0.5, 0.5]
    assert tiger.transition.toarray().tolist() == [[1, 0], half, half, [0, 1], half, half]
    seen = tiger.observation.toarray()
    assert seen[0].tolist() == [0.85, 0.15]
    assert seen[3].tolist() == [0.15, 0.85]
    model = tiger.mdp()
    # who sees the tiger opens the other door every time: 10 / (1 - .95) = 200
    best = policy_iteration(model, discount=tiger.discount)
    assert best.argmax(axis=1).tolist() == [2, 1]
    assert policy_value(model, best, discount=tiger.discount) == pytest.approx(200)
    listen = np.tile([1.0, 0, 0], (2, 1))
    assert policy_value(model, listen, discount=tiger.discount) == pytest.approx(-20)


def test_the_maze_has_the_utilities_of_the_textbook():
    maze = read_pomdp_file(DATA / "maze4x3.pomdp")
    model = maze.mdp({"s43": Outcome("goal", 1.0), "s42": Outcome("pit", -1.0, bad=True)})
    best = policy_iteration(model, discount=0.999999)
    values = dict(zip(maze.states, state_values(model, best), strict=True))
    # Russell & Norvig, figure 17.3
    published = {
        **{"s13": 0.812, "s23": 0.868, "s33": 0.918, "s12": 0.762, "s32": 0.660},
        **{"s11": 0.705, "s21": 0.655, "s31": 0.611, "s41": 0.388},
    }
    assert {name: values[name] for name in published} == pytest.approx(published, abs=6e-4)
    assert model.initial[maze.states.index("s11")] == 1


def test_the_hidden_tiger_remembers_whether_the_last_action_was_to_listen():
    model = read_pomdp_file(DATA / "tiger.pomdp").pomdp()
    assert model.state_variables[0].levels == ("tiger-left", "tiger-right")
    # both doors show the same, which is nothing: one kind of action
    assert model.state_variables[1].levels == ("listen", "open-left or open-right", "none yet")
    assert model.observation_variables[0].levels == ("hear-left", "hear-right", "nothing yet")
    assert model.action_variables[0].levels == ("listen", "open-left", "open-right")
    left, right = [[0.85, 0.15, 0], [0.5, 0.5, 0], [0, 0, 1]], [[0.15, 0.85, 0], [0.5, 0.5, 0]]
    assert model.emission.toarray().tolist() == [*left, *right, [0, 0, 1]]
    assert model.initial.tolist() == [0, 0, 0.5, 0, 0, 0.5]
    # after listening the tiger is where it was; after a door it is anywhere
    for memory in range(3):
        assert model.dynamics.row(memory, 0) == {0: 1.0}
        assert model.dynamics.row(3 + memory, 2) == {1: 0.5, 4: 0.5}
    # noise is on where the tiger is, not on the action that is remembered with it
    assert model.dynamics.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.reward_seen


def test_a_hidden_model_of_a_file_is_the_mdp_to_whom_sees_its_states():
    file = read_pomdp_file(DATA / "tiger.pomdp")
    best = [2, 1]  # opens the other door
    for choice in (best, [0, 0], [1, 0]):
        table = np.eye(3)[choice]
        by_state = bf.hidden.LatentPolicy(np.repeat(table, 3, axis=0))
        found = bf.hidden.pomdp_value(file.pomdp(), by_state, horizon=7, discount=0.9)
        expected = policy_value(file.mdp(), table, horizon=7, discount=0.9)
        assert found == pytest.approx(expected)


HEAD = "discount: 0.9\nvalues: reward\nstates: a b\nactions: x y\n"
SEEN = "observations: u v\nO: * uniform\n"
MOVES = "T: * identity\n"


def test_later_entries_overwrite_earlier_ones(tmp_path):
    file = read(tmp_path, HEAD + MOVES + "T: x : a\n0.25 0.75\nT: y : * : a 0\nT: y : * : b 1\n")
    assert file.transition.toarray().tolist() == [[0.25, 0.75], [0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("", [0.5, 0.5]),
        ("start: uniform\n", [0.5, 0.5]),
        ("start: 0.3 0.7\n", [0.3, 0.7]),
        ("start:\n0.3\n0.7 # two lines\n", [0.3, 0.7]),
        ("start: b\n", [0, 1]),
        ("start: 1\n", [0, 1]),
        ("start include: a\n", [1, 0]),
        ("start exclude: a\n", [0, 1]),
        ("start include: a b\n", [0.5, 0.5]),
    ],
)
def test_every_way_to_say_the_start_is_understood(tmp_path, entry, expected):
    file = read(tmp_path, HEAD + entry + MOVES)
    assert file.start.tolist() == expected
    assert file.mdp().initial.tolist() == expected


def test_reset_leads_back_to_the_start(tmp_path):
    file = read(tmp_path, HEAD + "start: b\n" + MOVES + "T: x : a reset\n")
    assert file.transition.toarray()[0].tolist() == [0, 1]


def test_rewards_of_an_mdp_come_as_numbers_rows_and_matrices(tmp_path):
    moves = "T: * uniform\n"
    text = HEAD + moves + "R: * : * : * 1\nR: x\n1 2\n3 4\nR: y : b\n5 6\nR: y : a : b 7\n"
    # rows (a, x), (a, y), (b, x), (b, y) by next state
    assert read(tmp_path, text).reward.toarray().tolist() == [[1, 2], [1, 7], [3, 4], [5, 6]]


def test_rewards_over_observations_are_averaged_by_what_is_seen_on_arrival(tmp_path):
    seen = "observations: u v\nT: * uniform\nO: * : a 0.9 0.1\nO: * : b 0.5 0.5\n"
    rewards = "R: x : a : a 10 20\nR: x : a : b : v 4\nR: y : b\n1 2\n3 4\nR: y : a : * : u 2\n"
    # x, a -> a: .9 * 10 + .1 * 20 = 11; -> b: .5 * 0 + .5 * 4 = 2
    # y, a -> a: .9 * 2; -> b: .5 * 2.   y, b -> a: .9 * 1 + .1 * 2; -> b: .5 * 3 + .5 * 4
    earned = read(tmp_path, HEAD + seen + rewards).reward.toarray()
    np.testing.assert_allclose(earned, [[11, 2], [1.8, 1], [0, 0], [1.1, 3.5]])


def test_costs_are_negative_rewards_of_the_model(tmp_path):
    text = HEAD.replace("reward", "cost") + MOVES + "R: * : * : * 3\n"
    file = read(tmp_path, text)
    assert file.reward.toarray()[0, 0] == 3
    assert policy_value(file.mdp(), np.full((2, 2), 0.5), horizon=2) == -6


def test_numbers_of_states_do_without_names(tmp_path):
    text = "discount: 1\nvalues: reward\nstates: 3\nactions: 2\nT: 1 identity\nT: 0 : * : 2 1.0\n"
    file = read(tmp_path, text)
    assert file.states == ("0", "1", "2")
    assert file.mdp({"2": GOAL}).row(0, 0) == {3: 1.0}


def test_actions_that_show_the_same_are_not_told_apart(tmp_path):
    model = read(tmp_path, HEAD + SEEN + MOVES).pomdp()
    assert model.state_variables[1].levels == ("any", "none yet")
    assert model.n_states == 4
    apart = read(tmp_path, HEAD + SEEN + MOVES + "O: y : b\n1 0\n").pomdp()
    assert apart.state_variables[1].levels == ("x", "y", "none yet")
    # states a and b after x, after y, before any action
    half, nothing = [0.5, 0.5, 0], [0, 0, 1]
    assert apart.emission.toarray().tolist() == [half, half, nothing, half, [1, 0, 0], nothing]


def test_hidden_costs_are_negative_rewards_and_named_states_are_ends(tmp_path):
    text = HEAD.replace("reward", "cost") + "start: a\n" + SEEN + "T: * : * : b 1\n"
    file = read(tmp_path, text + "R: * : * : b : * 3\n")
    model = file.pomdp({"b": GOAL})
    assert model.outcome.tolist() == [-1, -1, 0, 0]
    # from a, before any action, to b after one: state 1 to state 2
    assert model.dynamics.row(1, 0) == {2: 1.0}
    assert set(model.dynamics.reward) == {-3.0}
    assert len(model.dynamics.next_state) == 4  # a with both memories and both actions; ends: none
    with pytest.raises(ValueError, match="there is no state 'c'"):
        file.pomdp({"c": GOAL})


@pytest.mark.parametrize(
    ("entry", "seen", "earned"),
    [
        ("R: x : a : a : u 4\n", False, 2.0),  # seen half the time: a mean
        ("R: x : a : a : * 4\n", True, 4.0),
        ("R: x : a : a : * 4\nO: x : a\n1 0\nR: x : a : a : v 9\n", True, 4.0),  # v never
    ],
)
def test_rewards_by_what_is_seen_are_means_that_tell_nothing(tmp_path, entry, seen, earned):
    file = read(tmp_path, HEAD + SEEN + MOVES + entry)
    assert file.reward_by_observation is not seen
    model = file.pomdp()
    assert model.reward_seen is seen
    assert model.dynamics.reward.max() == earned


def test_rewards_that_do_not_depend_on_what_is_seen_are_kept_to_the_last_digit(tmp_path):
    odd = "observations: u v w\nO: *\n.1 .2 .7\n.3 .3 .4\n" + MOVES + "R: * : * : * : * .3\n"
    assert set(read(tmp_path, HEAD + odd).reward.data) == {0.3}


def test_a_file_without_observations_shows_its_states():
    file = read_pomdp_file(DATA / "maze4x3.pomdp")
    model = file.pomdp({"s43": GOAL})
    assert model.observation_variables[0].levels == file.states
    assert model.state_variables[0].levels == (*file.states, f"end: {GOAL.name}")
    assert model.hidden_variables == ()


MALFORMED = {
    "empty": ("", 1, "no 'discount'"),
    "no states": ("discount: 1\nvalues: reward\nactions: 2\nT: 0 uniform", 4, "no 'states'"),
    "no discount": (HEAD[14:] + MOVES, 4, "no 'discount' before T"),
    "unknown entry": (HEAD + "colour: red\n", 5, "'colour' is not an entry"),
    "no colon": ("discount 0.9\n", 1, "'0.9' after discount; put ':'"),
    "discount word": ("discount: high\n", 1, "'high' where the discount is expected"),
    "discount above 1": ("discount: 1.5\n", 1, "discount 1.5; give a number from 0 to 1"),
    "discount infinite": ("discount: 1e999\n", 1, "'1e999' where the discount"),
    "values": ("values: points\n", 1, "values 'points'; give reward or cost"),
    "twice": (HEAD + "discount: 1\n", 5, "'discount' appears twice"),
    "a state twice": ("\nstates: a b\n a\n", 3, "state 'a' appears twice"),
    "a bad name": ("states: a ?b\n", 1, "'?b' is not a name for states"),
    "no names": ("states:\nactions: x\n", 1, "no states"),
    "zero states": ("states: 0\n", 1, "0 states; give a whole number from 1"),
    "half a state": ("states: 2.5\n", 1, "2.5 states; give a whole number"),
    "absurdly many states": ("states: 1000000000\n", 1, "1000000000 states; give a whole number"),
    "absurd digits": (f"states: {'9' * 5000}\n", 1, "give a whole number from 1 to 200,000"),
    "absurdly many rows": (
        "discount: 1\nvalues: reward\nstates: 200000\nactions: 200000\nT: * identity\n",
        *(5, "40,000,000,000 rows, more than 300,000"),
    ),
    "absurdly many entries": (
        "discount: 1\nvalues: reward\nstates: 100000\nactions: 2\n\nT: * uniform\n",
        *(6, "T would hold more than 500,"),
    ),
    "unknown action": (HEAD + "T: z : a\n1 0\n", 5, "no action 'z'; there are 2: x, y"),
    "unknown state": (HEAD + "\nT: x : c\n1 0\n", 6, "no state 'c'; there are 2: a, b"),
    "a state out of range": (HEAD + "T: x : 2\n1 0\n", 5, "no state '2'"),
    "too many places": (HEAD + "T: x : a : b : a 1\n", 5, "a T entry has at most 3 places"),
    "a short row": (HEAD + "T: x : a\n1\nT: y identity\n", 6, "has 1 of 2 numbers in its row"),
    "a long row": (HEAD + "T: x : a\n1 0 0\n", 6, "'0' is not an entry"),
    "a word in a row": (HEAD + "T: x : a\n1 none\n", 6, "'none' where number 2 of 2 is expected"),
    "the file ends": (HEAD + "T: x : a\n1", 6, "the file ends where number 2 of 2 is expected"),
    "nothing after T": (HEAD + "T:", 5, "the file ends where the name or number of the action"),
    "above one": (HEAD + "T: x : a : b 1.5\n", 5, "probability 1.5; give a number from 0 to 1"),
    "below zero": (HEAD + "T: x : a\n-1 2\n", 6, "a number outside 0 to 1"),
    "a row sums to .9": (HEAD + MOVES + "T: x : b\n.4 .5\n", 6, "T: x : b sums to 0.9, not to 1"),
    "a row is missing": (HEAD + "T: x identity\n", 5, "there is no T: y : a in the file"),
    "no T at all": (HEAD, 4, "there is no T: x : a in the file"),
    "O without observations": (HEAD + MOVES + "O: x uniform\n", 6, "there are no observations"),
    "O sums to .9": (
        HEAD + MOVES.join(["observations: u v\n", "O: * uniform\nO: y : b\n.4 .5\n"]),
        *(8, "O: y : b sums to 0.9, not to 1"),
    ),
    "O is missing": (HEAD + "observations: 2\n" + MOVES, 6, "there is no O: x : a"),
    "identity on a row": (HEAD + "T: x : a identity\n", 5, "identity needs as many rows"),
    "late states": (HEAD + MOVES + "observations: 2\n", 6, "'observations' after the first T"),
    "start too early": ("start: uniform\n", 1, "'start' before 'states'"),
    "start sums to 2": (HEAD + "start: 1 1\n", 5, "start has numbers that sum to 2"),
    "start too long": (HEAD + "start: .5 .5 .5\n", 5, "more than 2 numbers"),
    "start nowhere": (HEAD + "start exclude: a b\n", 5, "no state is left to start in"),
    "start unknown": (HEAD + "start: c\n", 5, "no state 'c'"),
    "R without state": (HEAD + SEEN + MOVES + "R: x\n1 1\n1 1\n", 8, "name the state"),
    "R without number": (HEAD + MOVES + "R: x : a : b\n", 6, "the file ends where a reward"),
    "R nan": (HEAD + MOVES + "R: x : a : b nan\n", 6, "'nan' where a reward is expected"),
    "binary": (b"discount: 1\n\xff\xfe\x00", 2, "not UTF-8 text"),
}


@pytest.mark.parametrize(("text", "line", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, text, line, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'model.pomdp'}, line {line}: ")


@pytest.mark.parametrize("files", few([200, 600], 1))
def test_whatever_is_cut_out_of_a_file_it_is_read_or_refused_with_a_line(files, tmp_path):
    tokens = re.findall(r"\S+|\n", (DATA / "tiger.pomdp").read_text())
    rng = np.random.default_rng(0)
    words = ["*", ":", "T", "R", "identity", "-1", "7", "uniform", "start", "\n", "tiger-left"]
    messages = []
    for _ in range(files):
        broken = list(tokens)
        for _ in range(int(rng.integers(1, 3))):
            at = int(rng.integers(len(broken)))
            more = rng.choice(words, int(rng.integers(2))).tolist()
            broken[at : at + int(rng.integers(2))] = more
        try:
            read(tmp_path, " ".join(broken)).mdp()
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > files / 2
    assert [text for text in messages if not re.match(r".*pomdp, line \d+: ", text)] == []


def test_an_outcome_of_no_state_is_refused():
    with pytest.raises(ValueError, match="there is no state 'goal'"):
        read_pomdp_file(DATA / "maze4x3.pomdp").mdp({"goal": GOAL})

"""The sepsis environment: published values, its slow twin, simulation against exact rows."""

import random

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import butfor as bf
from butfor import sepsis
from butfor.models.policies import greedy
from butfor.random import numbered_keys
from tests.grids import few
from tests.reference import sepsis as reference
from tests.reference.counterfactual import uniform
from tests.support import frequencies_agree

VERSIONS = ["corrected", "icml2019"]
# no diabetes, heart rate and glucose high, vasopressors on
TREATED = reference.encode((0, 2, 1, 1, 3, 0, 1, 0))


# ------------------------------------------------------------------------------- exact dynamics


@pytest.mark.parametrize("version", VERSIONS)
def test_tensor_rows_sum_to_one(version):
    tensor = sepsis.transition_tensor(version)
    assert tensor.shape == (2, 8, 720, 720)
    np.testing.assert_allclose(tensor.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
    assert (tensor > 0).sum(axis=-1).max() == 54


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("every", few([7, 1], 1))
def test_tensor_equals_its_slow_twin(every, version):
    # 7 has no divisor in common with the number of levels of any variable
    tensor = sepsis.transition_tensor(version)
    for state in range(0, 1440, every):
        diabetes, rest = divmod(state, 720)
        twin = np.zeros((8, 720))
        for action in range(8):
            law = reference.next_state_distribution(state, action, version)
            twin[action, np.array(list(law)) % 720] = list(law.values())
        np.testing.assert_allclose(tensor[diabetes, :, rest], twin, rtol=0, atol=1e-14)


def test_versions_differ_only_without_diabetes_and_vasopressors():
    corrected, published = (sepsis.transition_tensor(version) for version in VERSIONS)
    differs = (corrected != published).any(axis=(2, 3))
    actions = np.arange(8)
    np.testing.assert_array_equal(differs[0], actions % 2 == 0)
    assert not differs[1].any()


def test_published_release_lets_glucose_rise_to_low_at_most():
    # state: no diabetes, all vital signs normal but glucose high (3), no treatment; action: none
    state = reference.encode((0, 1, 1, 1, 3, 0, 0, 0))
    up = np.full(13, 0.5)
    up[12] = 0.15  # glucose fluctuates up
    assert reference.decode(sepsis.step(state, 0, up, version="icml2019")).glucose == 1
    assert reference.decode(sepsis.step(state, 0, up, version="corrected")).glucose == 4


@pytest.mark.parametrize(("absorbing", "published"), [(False, 0.3118), (True, 0.3170)])
def test_the_physician_has_the_published_value(absorbing, published):
    policy = sepsis.behavior_policy("icml2019", absorbing=absorbing)
    value = bf.policy_value(sepsis.model("icml2019"), policy, horizon=20)
    assert round(value, 4) == published


def test_initial_distribution_equals_its_slow_twin():
    for prevalence in (0.0, 0.2, 0.7):
        twin = np.zeros(1440)
        for state, probability in reference.initial_distribution(prevalence).items():
            twin[state] = probability
        np.testing.assert_allclose(sepsis.initial_distribution(prevalence), twin, atol=1e-15)


def test_outcomes_equal_their_slow_twin():
    assert sepsis.outcome_of().tolist() == [reference.outcome(state) for state in range(1440)]


@pytest.mark.parametrize("version", VERSIONS)
def test_model_leads_to_the_outcome_of_the_state_reached(version):
    model, raw = sepsis.model(version), sepsis.model(version, absorbing=False)
    assert raw.outcomes == ()
    ends = sepsis.outcome_of()
    for state in (3, 480, 700, 1200):
        if ends[state] >= 0:
            continue
        for action in (0, 5):
            merged = {}
            for reached, probability in raw.row(state, action).items():
                place = 1440 + ends[reached] if ends[reached] >= 0 else reached
                merged[place] = merged.get(place, 0) + probability
            row = model.row(state, action)
            assert row.keys() == merged.keys()
            np.testing.assert_allclose([row[x] for x in row], [merged[x] for x in row], rtol=1e-14)


# ----------------------------------------------------------------------------------- explicit noise


@pytest.mark.parametrize("version", VERSIONS)
def test_step_equals_its_slow_twin(version):
    generator = np.random.default_rng(0)
    state, action = generator.integers(1440, size=20_000), generator.integers(8, size=20_000)
    noise = generator.random((20_000, 13))
    result = sepsis.step(state, action, noise, version=version)
    twin = [
        reference.step(int(s), int(a), u.tolist(), version)
        for s, a, u in zip(state, action, noise, strict=True)
    ]
    assert result.tolist() == twin
    assert int(sepsis.step(state[0], action[0], noise[0], version=version)) == twin[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1440, 0, np.zeros(13)), r"state .*1440.* outside 0\.\.1439"),
        ((0, 8, np.zeros(13)), r"action .*8.* outside 0\.\.7"),
        ((0, 0, np.zeros(12)), "13 uniforms"),
        ((0, 0, np.ones(13)), r"\[0, 1\)"),
    ],
)
def test_step_refuses_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        sepsis.step(*arguments)


# --------------------------------------------------------------------------------------- simulation


@pytest.mark.parametrize("version", VERSIONS)
def test_simulate_is_step_on_its_own_noise(version):
    log = sepsis.simulate(np.full((1440, 8), 1 / 8), 300, seed=4, version=version)
    for episode in range(0, 300, 7):
        rows = slice(log.offsets[episode], log.offsets[episode + 1])
        noise = sepsis.simulation_noise(4, episode)[: log.lengths[episode]]
        replayed = sepsis.step(log.state[rows], log.action[rows], noise, version=version)
        assert replayed.tolist() == log.next_state[rows].tolist()
        assert log.outcome[episode] == sepsis.outcome_of()[log.next_state[rows][-1]]


def test_simulate_equals_a_plain_replay_of_its_random_numbers():
    policy = sepsis.behavior_policy()
    log = sepsis.simulate(policy, 40, seed=9)
    keys = numbered_keys(9, 40, "sepsis")
    first = np.cumsum(sepsis.initial_distribution())
    for episode in range(40):
        key = int(keys[episode])
        state = int((first <= uniform(key, 0)).sum())
        for t in range(log.lengths[episode]):
            row = log.offsets[episode] + t
            action = int((np.cumsum(policy[state]) <= uniform(key, 1 + 14 * t)).sum())
            noise = [uniform(key, 2 + 14 * t + j) for j in range(13)]
            assert (log.state[row], log.action[row]) == (state, action)
            state = reference.step(state, action, noise, "corrected")
            assert log.next_state[row] == state
        assert log.outcome[episode] == reference.outcome(state)
        assert reference.outcome(state) >= 0 or log.lengths[episode] == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_simulated_frequencies_agree_with_the_exact_tensor(version):
    log = sepsis.simulate(np.full((1440, 8), 1 / 8), 200_000, seed=1, version=version)
    raw = sepsis.model(version, absorbing=False)
    pair = log.state.astype(np.int64) * 8 + log.action
    tried = np.bincount(pair, minlength=1440 * 8)
    keys = raw.entry_row * 1440 + raw.next_state
    order = np.searchsorted(keys, pair * 1440 + log.next_state)
    assert (keys[order] == pair * 1440 + log.next_state).all()  # nothing impossible happened
    seen = np.bincount(order, minlength=len(keys))
    assert frequencies_agree(seen, raw.probability, tried[raw.entry_row])
    first = np.bincount(log.first_state, minlength=1440)
    assert frequencies_agree(first, sepsis.initial_distribution(), len(log))


def test_simulated_actions_follow_the_policy():
    policy = sepsis.behavior_policy()
    log = sepsis.simulate(policy, 50_000, seed=2)
    taken = np.bincount(log.state.astype(int) * 8 + log.action, minlength=1440 * 8).reshape(1440, 8)
    assert frequencies_agree(taken, policy, taken.sum(axis=1, keepdims=True))


def test_the_wrong_version_fails_the_check_of_frequencies():
    log = sepsis.simulate(np.full((1440, 8), 1 / 8), 50_000, seed=1, version="corrected")
    raw = sepsis.model("icml2019", absorbing=False)
    pair = log.state.astype(np.int64) * 8 + log.action
    seen = np.zeros(len(raw.next_state), int)
    keys = raw.entry_row * 1440 + raw.next_state
    found = np.searchsorted(keys, pair * 1440 + log.next_state).clip(max=len(keys) - 1)
    np.add.at(seen, found[keys[found] == pair * 1440 + log.next_state], 1)
    tried = np.bincount(pair, minlength=1440 * 8)
    assert not frequencies_agree(seen, raw.probability, tried[raw.entry_row])


def test_simulated_value_agrees_with_the_exact_one():
    policy = sepsis.behavior_policy("icml2019")
    returns = sepsis.simulate(policy, 100_000, seed=6, version="icml2019").returns()
    exact = bf.policy_value(sepsis.model("icml2019"), policy, horizon=20)
    # five standard errors: a false alarm in under a million
    assert abs(returns.mean() - exact) < 5 * returns.std() / len(returns) ** 0.5


def test_plain_simulator_agrees_too():
    policy = sepsis.behavior_policy("icml2019")
    drawn = reference.simulate(policy.tolist(), 2000, random.Random(1), "icml2019")
    exact = bf.policy_value(sepsis.model("icml2019"), policy, horizon=20)
    returns = np.array([{-1: 0.0, 0: -1.0, 1: 1.0}[outcome] for *_, outcome in drawn])
    assert abs(returns.mean() - exact) < 5 * returns.std() / len(returns) ** 0.5


def test_an_episode_depends_on_the_seed_and_its_number_only():
    policy = sepsis.behavior_policy()
    many = sepsis.simulate(policy, 20_000, seed=5, threads=2)
    fewer = sepsis.simulate(policy, 100, seed=5, threads=1)
    np.testing.assert_array_equal(many.select(np.arange(100)).state, fewer.state)
    np.testing.assert_array_equal(many.select(np.arange(100)).action, fewer.action)
    other = sepsis.simulate(policy, 100, seed=6)
    assert other.state.tolist() != fewer.state.tolist()


def test_simulated_logs_pass_the_checks_of_episodes():
    log = sepsis.simulate(sepsis.behavior_policy(), 500, seed=1)
    checked = bf.Episodes.from_arrays(
        log.state,
        log.action,
        log.next_state,
        offsets=log.offsets,
        outcome=log.outcome,
        outcomes=log.outcomes,
        states=log.state_variables,
        actions=log.action_variables,
        horizon=20,
    )
    np.testing.assert_array_equal(checked.reward, log.reward)


def test_a_policy_on_reduced_states_ignores_what_it_does_not_see():
    generator = np.random.default_rng(0)
    reduced = greedy(generator.random((144, 8)))
    full = sepsis.full_policy(reduced)
    log = sepsis.simulate(reduced, 300, seed=0)
    hidden = log.hide("glucose", "diabetes")
    assert (reduced[hidden.state, hidden.action] == 1).all()
    assert (full[log.state, log.action] == 1).all()


def test_prevalence_is_an_option():
    log = sepsis.simulate(sepsis.behavior_policy(), 200, prevalence=1.0)
    assert (log.state >= 720).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 0}, "episodes 0"),
        ({"horizon": 0}, "horizon 0"),
        ({"version": "new"}, "'new'.*'corrected', 'icml2019'"),
        ({"seed": -3}, "seed -3"),
        ({"prevalence": 2.0}, r"prevalence 2\.0"),
        ({"policy": np.full((100, 8), 1 / 8)}, r"\(100, 8\).*\(144, 8\)"),
        ({"policy": np.full((144, 8), 0.2)}, "state 0 sums to 1.6"),
    ],
)
def test_simulate_refuses_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        sepsis.simulate(**({"policy": sepsis.behavior_policy()} | arguments))


# --------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize("options", [{}, {"hidden": ("glucose", "diabetes"), "prevalence": 0.5}])
def test_environment_passes_the_checker_of_gymnasium(options):
    environment = gymnasium.make("butfor/Sepsis-v0", **options)
    check_env(environment.unwrapped, skip_render_check=False)


def test_environment_has_the_exact_law():
    environment = gymnasium.make("butfor/Sepsis-v0", version="icml2019").unwrapped
    raw = sepsis.model("icml2019", absorbing=False).row(TREATED, 3)
    environment.reset(seed=0)
    counts = dict.fromkeys(raw, 0)
    for _ in range(4000):
        environment.reset(options={"state": TREATED})
        counts[int(environment.step(3)[0])] += 1
    assert frequencies_agree(np.array(list(counts.values())), np.array(list(raw.values())), 4000)


def test_environment_ends_with_an_outcome_or_after_twenty_steps():
    environment = gymnasium.make("butfor/Sepsis-v0", hidden=("glucose", "diabetes"))
    assert environment.observation_space.n == 144
    ends = set()
    for episode in range(60):
        observation, info = environment.reset(seed=episode)
        for steps in range(1, 21):
            observation, reward, terminated, truncated, info = environment.step(steps % 8)
            assert environment.observation_space.contains(observation)
            if terminated or truncated:
                break
        ends.add(info["outcome"])
        assert reward == {"died": -1.0, "discharged": 1.0, None: 0.0}[info["outcome"]]
        assert terminated == (info["outcome"] is not None)
        assert terminated or steps == 20
    assert len(ends) >= 2


def test_environment_refuses_bad_input():
    with pytest.raises(ValueError, match="'pulse'"):
        gymnasium.make("butfor/Sepsis-v0", hidden=("pulse",))
    environment = gymnasium.make("butfor/Sepsis-v0").unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(0)
    environment.reset(seed=0)
    with pytest.raises(ValueError, match="action 9"):
        environment.step(9)


def test_environment_renders_the_patient_as_text():
    environment = gymnasium.make("butfor/Sepsis-v0", render_mode="ansi").unwrapped
    environment.reset(seed=0, options={"state": TREATED})
    assert environment.render().startswith("diabetes no, heart rate high, blood pressure normal")


def test_the_true_factored_model_has_the_rows_of_the_simulator():
    factored, tabular = sepsis.factored_model().tabular(), sepsis.model()
    going = np.flatnonzero(sepsis.outcome_of() < 0)
    for state in going[:: len(going) // 40]:
        for action in range(8):
            assert factored.row(state, action) == pytest.approx(tabular.row(state, action))
    # another version of the simulator is another model
    other = sepsis.factored_model("icml2019").tabular()
    differ = [
        factored.row(state, action) != pytest.approx(other.row(state, action))
        for state in going[:: len(going) // 40]
        for action in range(8)
    ]
    assert any(differ)

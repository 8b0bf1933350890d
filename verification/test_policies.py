"""Policies of d3rlpy and Stable-Baselines3, trained by the real libraries, as targets and behavior.

python -m pip install d3rlpy stable-baselines3
"""

import gymnasium
import numpy as np
import pytest

import butfor as bf
from butfor.interop import behavior_from_predict, rows_from_predict
from butfor.models.row_policy import row_policy

HORIZON, HELPS = 4, 0.35


class Ward(gymnasium.Env):
    """A patient with one number: treatment lowers it, and nobody leaves before the fourth day."""

    observation_space = gymnasium.spaces.Box(-3.0, 3.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sick, self.day = float(self.np_random.uniform(-1, 1)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.sick, self.day / HORIZON], np.float32)

    def step(self, action):
        noise = float(self.np_random.normal(0, 0.3))
        self.sick = float(np.clip(self.sick + noise - HELPS * (2 * int(action) - 1), -3, 3))
        self.day += 1
        return self.seen(), -float(self.sick > 0), self.day == HORIZON, False, {}


@pytest.fixture(scope="module")
def ward():
    """A log of random decisions, and what was seen at each of them."""
    world, generator = Ward(), np.random.default_rng(0)
    rows = {"state": [], "action": [], "next_state": [], "reward": []}
    features = []
    for episode in range(300):
        seen, _ = world.reset(seed=episode)
        done = False
        while not done:
            action = int(generator.random() < 1 / (1 + np.exp(-2 * seen[0])))
            features.append(seen)
            rows["state"].append(int(seen[0] > 0))
            rows["action"].append(action)
            seen, reward, done, *_ = world.step(action)
            rows["next_state"].append(int(seen[0] > 0))
            rows["reward"].append(reward)
    offsets = np.arange(0, 300 * HORIZON + 1, HORIZON)
    log = bf.Episodes.from_arrays(**rows, offsets=offsets, states=2, actions=2)
    return log, np.array(features, np.float32)


def audit_weights(log, rows):
    """The importance sampling estimate by the rows, and the same by hand."""
    carried = log.with_target_probability(rows)
    replay = bf.Replay(carried, bf.fit_mdp(log, unseen="uniform"), row_policy(carried))
    table = bf.estimate_values(replay, estimators=["IS"])
    behavior = bf.estimate_behavior(log)[log.state, log.action]
    taken = rows[np.arange(len(log.state)), log.action] / behavior
    weights = np.multiply.reduceat(taken, log.offsets[:-1])
    return table["value"].iloc[0], (weights * log.returns()).mean()


def check_rows(log, rows):
    assert rows.shape == (len(log.state), 2)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    by_rows, by_hand = audit_weights(log, rows)
    assert by_rows == pytest.approx(by_hand, abs=1e-10)


def softmax(logits):
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


# --------------------------------------------------------------------------- Stable-Baselines3


@pytest.fixture(scope="module")
def sb3():
    return pytest.importorskip("stable_baselines3", reason="pip install stable-baselines3")


@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_stochastic_policies_of_stable_baselines3(sb3, ward, name):
    torch = pytest.importorskip("torch")
    log, features = ward
    options = {"n_steps": 64} if name == "PPO" else {}
    model = getattr(sb3, name)("MlpPolicy", Ward(), seed=0, device="cpu", **options)
    model.learn(512)
    rows = rows_from_predict(model, features, log, deterministic=False)
    check_rows(log, rows)
    with torch.no_grad():  # the network itself, layer by layer
        policy, seen = model.policy, torch.as_tensor(features)
        logits = policy.action_net(policy.mlp_extractor.policy_net(seen)).numpy()
    np.testing.assert_allclose(rows, softmax(logits.astype(np.float64)), atol=1e-6)
    greedy = rows_from_predict(model, features, log)
    np.testing.assert_array_equal(
        greedy.argmax(axis=1), model.predict(features, deterministic=True)[0]
    )
    np.testing.assert_array_equal(greedy.argmax(axis=1), rows.argmax(axis=1))
    behavior = behavior_from_predict(model, features, log)
    np.testing.assert_allclose(behavior, rows[np.arange(len(rows)), log.action])
    check_sampling(model, features, rows)


def check_sampling(model, features, rows):
    """What the model draws has these probabilities, within five standard errors."""
    drawn = np.mean([model.predict(features, deterministic=False)[0] for _ in range(50)], axis=0)
    chance = rows[:, 1]
    error = np.sqrt((chance * (1 - chance)).sum() / 50) / len(rows)
    assert abs(drawn.mean() - chance.mean()) < 5 * error


def test_dqn_of_stable_baselines3_is_greedy(sb3, ward):
    log, features = ward
    model = sb3.DQN("MlpPolicy", Ward(), learning_starts=50, seed=0, device="cpu")
    model.learn(300)
    rows = rows_from_predict(model, features, log)
    check_rows(log, rows)
    np.testing.assert_array_equal(
        rows.argmax(axis=1), model.predict(features, deterministic=True)[0]
    )
    with pytest.raises(ValueError, match="DQN has no predict_proba"):
        behavior_from_predict(model, features, log)


def test_several_action_variables_of_stable_baselines3(sb3, ward):
    class Doses(Ward):
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])

        def step(self, action):
            return super().step(action[0])

    log, features = ward
    drugs = [bf.Variable("drug", ("no", "yes")), bf.Variable("dose", ("low", "middle", "high"))]
    log = bf.Episodes.from_arrays(
        log.state, log.action * 3, log.next_state, reward=log.reward, offsets=log.offsets,
        states=2, actions=drugs,
    )  # fmt: skip
    model = sb3.PPO("MlpPolicy", Doses(), n_steps=64, seed=0, device="cpu")
    rows = rows_from_predict(model, features, log, deterministic=False)
    assert rows.shape == (len(log.state), 6)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    drug = np.mean(
        [model.predict(features, deterministic=False)[0] for _ in range(50)], axis=(0, 1)
    )
    expected = rows.reshape(-1, 2, 3).mean(axis=0)
    assert drug[0] == pytest.approx(expected[1].sum(), abs=0.02)
    assert drug[1] == pytest.approx(expected.sum(axis=0) @ [0, 1, 2], abs=0.04)


# -------------------------------------------------------------------------------------- d3rlpy


@pytest.fixture(scope="module")
def d3rlpy():
    return pytest.importorskip("d3rlpy", reason="pip install d3rlpy")


def train(d3rlpy, kind, log, features, **options):
    terminals = np.zeros(len(log.state))
    terminals[log.offsets[1:] - 1] = 1
    dataset = d3rlpy.dataset.MDPDataset(features, log.action, log.reward, terminals)
    algorithm = getattr(d3rlpy.algos, f"{kind}Config")(batch_size=32, **options).create("cpu:0")
    algorithm.build_with_dataset(dataset)
    algorithm.fit(dataset, n_steps=100, n_steps_per_epoch=100, show_progress=False, save_interval=9,
                  logger_adapter=d3rlpy.logging.NoopAdapterFactory())  # fmt: skip
    return algorithm


@pytest.mark.parametrize("kind", ["DQN", "DiscreteCQL"])
def test_greedy_policies_of_d3rlpy(d3rlpy, ward, kind):
    log, features = ward
    model = train(d3rlpy, kind, log, features)
    rows = rows_from_predict(model, features, log, deterministic=False)
    check_rows(log, rows)
    values = np.stack(
        [model.predict_value(features, np.full(len(features), a)) for a in (0, 1)], axis=1
    )
    np.testing.assert_array_equal(rows.argmax(axis=1), values.argmax(axis=1))
    with pytest.raises(ValueError, match="has no predict_proba"):
        behavior_from_predict(model, features, log)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", ["DiscreteSAC", "DiscreteBC"])
def test_stochastic_policies_of_d3rlpy(d3rlpy, ward, kind, scaled):
    log, features = ward
    scaler = d3rlpy.preprocessing.StandardObservationScaler() if scaled else None
    model = train(d3rlpy, kind, log, features, observation_scaler=scaler)
    rows = rows_from_predict(model, features, log, deterministic=False)
    check_rows(log, rows)
    assert 0 < rows.min() < rows.max() < 1
    np.testing.assert_array_equal(rows.argmax(axis=1), model.predict(features))
    behavior = behavior_from_predict(model, features, log)
    np.testing.assert_allclose(behavior, rows[np.arange(len(rows)), log.action])
    if kind == "DiscreteSAC":
        drawn = np.mean([model.sample_action(features) for _ in range(50)], axis=0)
        chance = rows[:, 1]
        error = np.sqrt((chance * (1 - chance)).sum() / 50) / len(rows)
        assert abs(drawn.mean() - chance.mean()) < 5 * error

"""Bounds under hidden causes: against linear programs, closed forms and explicit confounders."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import butfor as bf
from butfor import kernels
from butfor.replay.confounding import CAVEAT, tilt_of
from butfor.replay.observed import ObservedEngine
from tests.grids import few
from tests.reference import confounding as reference
from tests.support import (
    random_model,
    random_policy,
    reference_episodes,
    reference_model,
    simulate_log,
    vary_rewards,
)

GAMMAS = [1.0, 1.5, 2.0, 3.0, 5.0]
HORIZON = 3


class Problem(NamedTuple):
    model: bf.TabularMDP
    behavior: NDArray[np.float64]
    replay: bf.Replay


def random_problem(seed: int, *, stochastic: bool = False, episodes: int = 5) -> Problem:
    """A small model, a log of its behavior, and a target."""
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior = random_policy(generator, model)
    log = vary_rewards(simulate_log(generator, model, behavior, episodes, HORIZON))
    target = random_policy(generator, model)
    if not stochastic:
        target = np.eye(model.n_actions)[target.argmax(axis=1)]
    noise = "fresh" if stochastic else "shared"
    replay = bf.Replay(
        log, model, target, behavior=behavior, action_noise=noise, discount=0.9, horizon=HORIZON
    )
    return Problem(model, behavior, replay)


def one_step(seed: int, gamma: float, size: int = 60):
    """Rows of many states, each with its bounds over one step: rows, rewards, b, [S, 2]."""
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.full(5, 0.7), (size, 2))
    rows[generator.random(rows.shape) < 0.2] = 0.0
    rows[..., 0] += 1e-3
    rows /= rows.sum(axis=-1, keepdims=True)
    reward = generator.integers(0, 4, rows.shape) / 3 + generator.normal(size=rows.shape) * (
        generator.random((size, 2, 1)) < 0.5
    )
    model = bf.TabularMDP.from_arrays(
        np.concatenate([np.zeros((size, 2, size)), rows], axis=2),
        reward=np.concatenate([np.zeros((size, 2, size)), reward], axis=2),
        outcomes=[bf.Outcome(f"end {o}", 0.0) for o in range(5)],
    )
    b = generator.uniform(0.02, 0.98, size)
    behavior = np.column_stack([1 - b, b])
    log = bf.Episodes.from_arrays(
        [0], [0], [0], offsets=[0, 1], outcome=[0], outcomes=model.outcomes, states=size, actions=2
    )
    target = np.tile([0.0, 1.0], (size, 1))
    engine = ObservedEngine(bf.Replay(log, model, target, behavior=behavior))
    values = np.zeros((2, size, 2 * 7))
    kernels.confounded_values(engine.problem, tilt_of(behavior, gamma), np.ones(size), values)
    return rows[:, 1], reward[:, 1], b, values[1, :, :2]


# ------------------------------------------------------------------------------------------- rows


def test_a_row_by_hand():
    # b = 1/2 and gamma = 3: weights lie between 1/2 + 1/6 = 2/3 and 1/2 + 3/2 = 2. Entries of
    # probability Q take at most min(2 Q, 2/3 Q + 1/3), which is 2/3 at Q = 1/2. So of v = (0, 1)
    # with probability 1/2 each, 0 takes 2/3 at worst: the mean is 1/3.
    model = bf.TabularMDP.from_arrays(
        [[[0, 0.5, 0.5], [0, 0.5, 0.5]]], outcomes=[bf.Outcome("a", 0), bf.Outcome("b", 1)]
    )
    log = bf.Episodes.from_arrays(
        [0, 0],
        [0, 1],
        [0, 0],
        offsets=[0, 1, 2],
        outcome=[0, 1],
        outcomes=model.outcomes,
        states=1,
        actions=2,
    )
    replay = bf.Replay(log, model, np.array([[0.0, 1.0]]))
    found = bf.confounding_bounds(replay, [1, 3])
    np.testing.assert_allclose(found.value, [[1 / 2, 1 / 2], [1 / 3, 2 / 3]], atol=1e-15)
    # The first patient got action 0, with p_k = 1/2. Under action 1 each of 0 and 1 can take
    # (1/2) / (1/2) = 1 even at gamma 1. The second did what the target does.
    np.testing.assert_allclose(found.expected_return[0], [[0, 1], [1, 1]], atol=1e-15)


@pytest.mark.parametrize("gamma", few([1.0, 2.0, 5.0, 1.5, 3.0], 3))
def test_rows_equal_the_linear_program_and_the_closed_form(gamma):
    rows, reward, b, found = one_step(int(10 * gamma), gamma)
    for q, value, taken, (low, high) in zip(rows, reward, b, found, strict=True):
        weights = reference.limits(taken, gamma)
        for sign, end in ((1, low), (-1, high)):
            program = sign * reference.lowest(q, sign * value, *weights).mean
            closed = sign * reference.closed_form(q.tolist(), sign * value, taken, gamma)
            assert end == pytest.approx(program, abs=1e-9)
            assert end == pytest.approx(closed, abs=1e-12)


def test_without_a_limit_the_other_patients_get_the_worst():
    rows, reward, b, found = one_step(7, np.inf)
    mean = (rows * reward).sum(axis=1)
    for sign, end in ((1, 0), (-1, 1)):
        worst = sign * np.where(rows > 0, sign * reward, np.inf).min(axis=1)
        np.testing.assert_allclose(found[:, end], b * mean + (1 - b) * worst, atol=1e-12)


# --------------------------------------------------------------------------- values and episodes


@pytest.mark.parametrize(
    ("seed", "stochastic", "gammas"),
    few([(0, False, [1.7]), (2, True, [4.0]), (2, True, [1.7]), (1, False, [1.7, 4.0])], 2),
)
def test_values_and_episodes_equal_nested_programs(seed, stochastic, gammas):
    model, behavior, replay = random_problem(seed, stochastic=stochastic)
    plain, target = reference_model(model), replay.target_table.tolist()
    for gamma in gammas:
        found = bf.confounding_bounds(replay, [gamma])
        tables = reference.values(plain, behavior.tolist(), target, gamma, HORIZON, 0.9)
        first = replay.log.first_state.tolist()
        for end, sign in enumerate((1, -1)):
            expected = np.mean([tables[HORIZON][s, (0, sign)] for s in first])
            assert found.value[0, end] == pytest.approx(expected, abs=1e-9)
        episodes = reference_episodes(replay.log)
        for i in (1, 3):  # one as long as the horizon, one that ended before
            episode = episodes[i]
            after = tables[HORIZON - len(episode.states)]
            expected = reference.episode_bounds(
                plain, episode, behavior.tolist(), target, gamma, after, 0.9
            )
            for (quantity, sign), bound in expected.items():
                end = (1 - sign) // 2
                got = (
                    found.probability[0, i, quantity - 1, end]
                    if quantity
                    else found.expected_return[0, i, end]
                )
                assert got == pytest.approx(bound, abs=1e-8)
        assert found.sharp == (not stochastic)


@pytest.mark.parametrize("seed", range(4))
def test_at_gamma_1_nothing_is_hidden(seed):
    model, _, replay = random_problem(seed, episodes=20)
    found = bf.confounding_bounds(replay, [1])
    first = np.bincount(replay.log.first_state, minlength=model.n_states) / len(replay.log)
    value = bf.policy_value(model, replay.target, horizon=HORIZON, discount=0.9, initial=first)
    np.testing.assert_allclose(found.value[0], value, atol=1e-12, rtol=0)
    bounds = replay.bounds()
    np.testing.assert_allclose(found.expected_return[0], bounds.expected_return[0], atol=1e-12)
    np.testing.assert_allclose(found.probability[0], bounds.probability[0], atol=1e-12)


def test_bounds_grow_with_gamma():
    for seed in range(4):
        _, _, replay = random_problem(seed, episodes=20)
        found = bf.confounding_bounds(replay, [*GAMMAS, np.inf])
        for bounds in (found.value, found.expected_return, found.probability):
            assert (np.diff(bounds[..., 0], axis=0) <= 1e-12).all()
            assert (np.diff(bounds[..., 1], axis=0) >= -1e-12).all()
        assert (np.diff(np.ptp(found.value, axis=1)) > 1e-3).all()


# ------------------------------------------------------------------------- explicit hidden causes


@pytest.mark.parametrize("sign", [1, -1])
def test_a_hidden_cause_attains_the_bounds_of_a_value(sign):
    model, behavior, replay = random_problem(3)
    gamma, discount, end = 2.5, 0.9, (1 - sign) // 2
    plain = reference_model(model)
    value = np.zeros(model.n_states)  # under the hidden causes, by state
    for _ in range(HORIZON):
        following = np.empty_like(value)
        for s in range(model.n_states):
            a = int(replay.target_table[s].argmax())
            row = plain.rows[s, a]
            after = np.array([discount * value[x] if x < model.n_states else 0.0 for x in row])
            earned = after + [reward for _, reward in row.values()]
            q, b = np.array([p for p, _ in row.values()]), behavior[s, a]
            # The hidden cause u is the state that action a would lead to. Other actions lead
            # anywhere, whatever u.
            u = reference.lowest(q, sign * earned, *reference.limits(b, gamma)).tilted
            takes = b * q / u  # probability of action a, given u
            others = np.delete(behavior[s], a)[:, None] / (1 - b) * (1 - takes)
            given_u = np.insert(others, a, takes, axis=0)
            # it explains the log ...
            np.testing.assert_allclose(given_u @ u, behavior[s], atol=1e-9)
            np.testing.assert_allclose(u * takes / (u @ takes), q, atol=1e-9)
            # ... and is as weak as claimed
            odds = given_u / behavior[s][:, None]
            assert (odds.max(axis=0) / odds.min(axis=0)).max() <= gamma + 1e-9
            following[s] = u @ earned  # action a for everyone
        value = following
    found = bf.confounding_bounds(replay, [gamma])
    assert found.value[0, end] == pytest.approx(value[replay.log.first_state].mean(), abs=1e-9)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_hidden_cause_attains_the_bounds_of_a_patient(sign):
    generator = np.random.default_rng(5)
    gamma, b = 2.0, np.array([0.3, 0.7])
    p, q = generator.dirichlet(np.ones(4), 2)
    value, k = generator.normal(size=4), 1
    # u is where action 1 would lead; patients who got action 0 have it with probability r
    _, r, x = reference.lowest(q, sign * value, 1 / gamma, gamma, p[k])
    u = b[0] * r + b[1] * q
    takes = b[0] * r / u
    odds = takes / (1 - takes) / (b[0] / b[1])
    assert odds.max() <= gamma + 1e-9
    assert odds.min() >= 1 / gamma - 1e-9
    seen = p[k] * x / r  # probability of k after action 0, given u
    assert seen.max() <= 1 + 1e-9
    np.testing.assert_allclose([r @ seen, u @ takes], [p[k], b[0]], atol=1e-9)
    of_patient = r * seen / (r @ seen)  # u, having got action 0 and seen k

    rows = np.zeros((1, 2, 5))
    rows[0, :, 1:] = p, q
    reward = np.zeros((1, 2, 5))
    reward[..., 1:] = value
    ends = [bf.Outcome(f"end {o}", 0.0) for o in range(4)]
    model = bf.TabularMDP.from_arrays(rows, reward=reward, outcomes=ends)
    log = bf.Episodes.from_arrays(
        [0],
        [0],
        [0],
        reward=[value[k]],
        offsets=[0, 1],
        outcome=[k],
        outcomes=ends,
        states=1,
        actions=2,
    )
    replay = bf.Replay(log, model, np.array([[0.0, 1.0]]), behavior=b[None])
    found = bf.confounding_bounds(replay, [gamma]).expected_return[0, 0, (1 - sign) // 2]
    assert found == pytest.approx(of_patient @ value, abs=1e-9)


class Confounded(NamedTuple):
    """A world with a hidden cause of its own at each step; noise n belongs to cause n // 4."""

    chance: NDArray[np.float64]  # [N] of each noise
    acts: NDArray[np.float64]  # [S, A, N] behavior, given the noise
    leads: NDArray[np.int64]  # [S, A, N] next state

    @property
    def behavior(self):
        return self.acts @ self.chance

    @property
    def gamma(self):
        odds = self.acts / self.behavior[:, :, None]
        return float((odds.max(axis=1) / odds.min(axis=1)).max())

    def model(self, reward):
        states, actions, _ = self.acts.shape
        rows = np.zeros((states, actions, states + 2))
        for s, a in np.ndindex(states, actions):
            np.add.at(rows[s, a], self.leads[s, a], self.chance * self.acts[s, a])
        rows /= self.behavior[:, :, None]
        ends = [bf.Outcome("bad", -1.0), bf.Outcome("good", 1.0)]
        return bf.TabularMDP.from_arrays(rows, reward=reward, outcomes=ends)


def confounded_world(generator) -> Confounded:
    states, actions, size = 3, 3, 12
    strength = generator.uniform(0.2, 1.2)
    causes = np.exp(strength * generator.normal(size=(states, actions, size // 4)))
    acts = np.repeat(causes, 4, axis=2)
    acts /= acts.sum(axis=1, keepdims=True)
    leads = generator.integers(0, states + 2, (states, actions, size))
    return Confounded(generator.dirichlet(np.ones(size)), acts, leads)


def truth(world, target, reward, steps, horizon, discount):
    """Expected return of a patient under the target, given the noise that each step reveals."""
    states = len(target)
    value = np.zeros(states + 2)
    for t in reversed(range(horizon)):
        weight = world.chance
        if t < len(steps):
            s_t, a_t, k = steps[t]
            weight = weight * world.acts[s_t, a_t] * (world.leads[s_t, a_t] == k)
        weight = weight / weight.sum()
        value = np.append(
            [
                weight @ (reward[s, a, world.leads[s, a]] + discount * value[world.leads[s, a]])
                for s, a in enumerate(target.argmax(axis=1))
            ],
            [0.0, 0.0],
        )
    return value


def test_bounds_contain_the_truth_of_confounded_worlds():
    generator = np.random.default_rng(11)
    counted, outside = 0, 0  # outside: of the bounds that ignore the hidden causes
    for _ in range(20):
        world = confounded_world(generator)
        reward = generator.normal(size=(3, 3, 5))
        model = world.model(reward)
        target = np.eye(3)[generator.integers(0, 3, 3)]
        log = simulate_log(generator, model, world.behavior, 40, HORIZON)
        replay = bf.Replay(log, model, target, behavior=world.behavior, discount=0.9)
        found = bf.confounding_bounds(replay, [1, world.gamma])
        anyone = truth(world, target, reward, [], HORIZON, 0.9)
        value = anyone[log.first_state].mean()
        assert found.value[1, 0] - 1e-9 <= value <= found.value[1, 1] + 1e-9
        steps = reference_episodes(log)
        for i, episode in enumerate(steps):
            patient = list(zip(*episode[:3], strict=True))
            real = truth(world, target, reward, patient, HORIZON, 0.9)[log.first_state[i]]
            low, high = found.expected_return[1, i]
            assert low - 1e-9 <= real <= high + 1e-9
            counted += 1
            outside += not found.expected_return[0, i, 0] <= real <= found.expected_return[0, i, 1]
    assert counted == 800
    assert outside > 20  # so the test would notice bounds that are too narrow


# -------------------------------------------------------------------------------- what is refused


def sepsis_log(episodes: int = 60) -> bf.Episodes:
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes=episodes, seed=0)
    return log.hide("glucose", "diabetes")


def test_prior_0_is_refused():
    log = sepsis_log()
    target = bf.policy_iteration(bf.fit_mdp(log)).table
    with pytest.raises(ValueError, match=r"counted with prior 0.*use fit_mdp\(log, prior=1\)"):
        bf.confounding_bounds(bf.Replay(log, bf.fit_mdp(log), target))
    bf.confounding_bounds(bf.Replay(log, bf.fit_mdp(log, prior=0.5), target), [2])


def test_other_refusals_name_the_remedy():
    model, behavior, replay = random_problem(0, stochastic=True)
    shared = bf.Replay(replay.log, model, replay.target, behavior=behavior)
    with pytest.raises(ValueError, match="action_noise='fresh'"):
        bf.confounding_bounds(shared)
    for wrong in ([], [0.5], [2, np.nan]):
        with pytest.raises(ValueError, match="at least 1"):
            bf.confounding_bounds(replay, wrong)
    pomdp = bf.sepsis.pomdp()
    log = sepsis_log(2)
    target = np.eye(8)[np.zeros(144, int)]
    with pytest.raises(ValueError, match="already says what is hidden"):
        bf.confounding_bounds(bf.Replay(log, pomdp, target))


def test_a_factored_model_is_bounded_by_its_rows():
    log = sepsis_log(20)
    model = bf.fit_factored(log)
    target = bf.policy_iteration(model).table
    found = bf.confounding_bounds(bf.Replay(log, model, target), [1, 2])
    rows = bf.confounding_bounds(bf.Replay(log, model.tabular(), target), [1, 2])
    np.testing.assert_array_equal(found.value, rows.value)
    np.testing.assert_array_equal(found.expected_return, rows.expected_return)
    narrower = bf.Replay(log, model, target).bounds().expected_return[0]
    assert (found.expected_return[0, :, 0] <= narrower[:, 0] + 1e-9).all()
    assert (found.expected_return[0, :, 1] >= narrower[:, 1] - 1e-9).all()


def test_tables_show_the_evidence_beside_the_bounds():
    _, _, replay = random_problem(1)
    seen = []
    found = bf.confounding_bounds(replay, [1, 2], progress=lambda *done: seen.append(done))
    assert seen == [(1, 2), (2, 2)]
    table = found.frame()
    assert table["gamma"].tolist() == [1, 2]
    np.testing.assert_array_equal(table[["low", "high"]], found.value)
    assert table["observed"].iloc[0] == replay.observed_return.mean()
    assert (np.diff(table["decided"]) <= 0).all()
    episodes = found.episodes()
    assert len(episodes) == 2 * len(replay)
    last = episodes.iloc[-1]
    assert (last["gamma"], last["id"]) == (2, replay.log.id[-1])
    assert last["p_end 1_high"] == found.probability[1, -1, 1, 1]
    assert last["evidence_min"] == replay.steps().evidence_min[-1]
    assert found.caveat == CAVEAT
    assert "persists" in CAVEAT

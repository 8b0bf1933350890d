"""What an end pays where its reward depends on the state that it reaches."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.models.factored import END, FactoredModel, Rewards
from butfor.replay.credible import credible_of_models
from butfor.replay.particles import ParticleEngine
from butfor.replay.replay import Replay
from tests.factored import (
    ACTIONS,
    as_log,
    given,
    plain,
    seen_steps,
    simulate_factored,
    tiny_model,
    without_finals,
)
from tests.reference.counterfactual import Episode, action_law
from tests.reference.factored_bounds import episode_bounds
from tests.reference.factored_replay import (
    Seen,
    best_value,
    exact_outcomes,
    pair_law,
    reward_of,
)
from tests.support import FALSE_ALARM, vary_rewards

HORIZON, DISCOUNT = 3, 0.9
PAYS = ("pulse", "action.dose", "next.pulse", "next.sugar")


def ward_of(generator, end):
    """A model, a log of it whose rewards vary, its behavior and a stochastic target."""
    model = tiny_model(generator, end=end)
    model = replace(model, rewards=Rewards(PAYS, generator.normal(size=(2, 2, 2, 2, 3))))
    behavior, target = generator.dirichlet(np.full(2, 1.5), (2, 16))
    log = vary_rewards(simulate_factored(generator, model, behavior, 12, HORIZON))
    return model, log, behavior, target


@pytest.fixture(scope="module")
def ward():
    return ward_of(np.random.default_rng(11), ("next.pulse", "sugar"))


def ask(ward, **changes):
    model, log, behavior, target = ward
    return Replay(log, model, target, **{"behavior": behavior, "discount": DISCOUNT} | changes)


def twin(ward, episode, first=0):
    """Outcome probabilities and the return from an observed step on, if the target starts there."""
    model, log, behavior, target = ward
    return exact_outcomes(
        plain(model),
        seen_steps(log, episode)[first:],
        behavior,
        target,
        shared=True,
        horizon=HORIZON - first,
        discount=DISCOUNT,
    )


# ----------------------------------------------------------------------------------- hand values


def one_step():
    """x: P(1 | dose 0) = .5, P(1 | dose 1) = .25; every step ends and pays 1 where x became 1."""
    model = FactoredModel(
        (bf.Variable("x", ("0", "1")),),
        ACTIONS,
        (bf.Outcome("home", 0.0),),
        (
            given("x", ("action.dose",), np.array([[0.5, 0.5], [0.75, 0.25]])),
            given(END, (), np.array([1.0, 0.0])),
        ),
        Rewards(("next.x",), np.array([[0.0, 0.0], [1.0, 0.0]])),
        np.full(2, 0.5),
        np.zeros((2, 2), np.int64),
    )
    seen = [([Seen(0, 0, reached, 0)], 0) for reached in (0, 1)]
    return model, as_log(seen, model, 1)


def test_what_the_record_says_of_the_state_reached_decides_what_the_end_pays():
    # with two levels every stable mechanism gives P(x = 1) = .25 / .5 = .5 where x was 1, and 0
    # where it was 0. Without stability x = 0 may have taken all of the .25: .25 / .5 = .5
    model, log = one_step()
    replay = Replay(log, model, np.tile([0.0, 1.0], (2, 1)))
    np.testing.assert_allclose(replay.outcomes().expected_return, [0, 0.5], atol=1e-15)
    np.testing.assert_allclose(replay.contributions(), [0, -0.5], atol=1e-15)
    expected = [[[0, 0.5], [0, 0.5]], [[0, 0], [0.5, 0.5]]]
    np.testing.assert_allclose(replay.bounds().expected_return, expected, atol=1e-15)
    # in the model alone, and with noise on whole states, an end pays the mean of its row
    np.testing.assert_array_equal(model.tabular().reward, [0.5, 0.25, 0.5, 0.25])
    np.testing.assert_array_equal(replay.engine.first_values(), [0.25, 0.25])
    state = Replay(log, model, np.tile([0.0, 1.0], (2, 1)), noise="state")
    np.testing.assert_array_equal(state.outcomes().expected_return, [0.25, 0.25])


# ------------------------------------------------------------------------------------- the twins


def test_returns_equal_the_slow_twin(ward):
    found = ask(ward).outcomes()
    for episode in range(6):
        law, value = twin(ward, episode)
        np.testing.assert_allclose(found.probability[episode], law, atol=1e-13)
        assert found.expected_return[episode] == pytest.approx(value, abs=1e-13)


def test_bounds_equal_the_slow_twin(ward):
    model, log, behavior, target = ward
    bounds = ask(ward, continuation=False).bounds()
    for episode in range(2):
        steps = seen_steps(log, episode)
        taken = Episode([one.state for one in steps], [one.action for one in steps], [])
        found = episode_bounds(
            plain(model),
            steps,
            lambda t, state, taken=taken: action_law(taken, t, state, behavior, target, True),
            discount=DISCOUNT,
        )
        for (quantity, stable, sign), value in found.items():
            mine = bounds.expected_return[int(stable), episode]
            if quantity > 0:
                mine = bounds.probability[int(stable), episode, quantity - 1]
            assert mine[int(sign < 0)] == pytest.approx(value, abs=1e-12)


def test_step_values_equal_the_slow_twin(ward):
    _, log, *_ = ward
    found = ask(ward).contributions()
    for episode in np.flatnonzero((log.lengths > 1) & (log.outcome >= 0))[:2]:
        first, steps = log.offsets[episode], seen_steps(log, episode)
        value = [twin(ward, episode, t)[1] for t in range(len(steps))] + [0.0]
        for t, step in enumerate(steps):
            added = DISCOUNT**t * (value[t] - step.reward - DISCOUNT * value[t + 1])
            assert found[first + t] == pytest.approx(added, abs=1e-13)


def test_fewest_changes_equal_the_slow_twin(ward):
    model, log, *_ = ward
    found = ask(ward, action_noise="fresh").fewest_changes(2)
    for episode in range(3):
        steps = seen_steps(log, episode)
        best = [best_value(plain(model), steps, k, discount=DISCOUNT) for k in range(3)]
        np.testing.assert_allclose(found.value[episode], best, atol=1e-12)
    np.testing.assert_allclose(found.probability.sum(axis=2), 1.0, atol=1e-12)


def test_final_states_that_were_not_logged_pay_what_was_logged():
    ward = ward_of(np.random.default_rng(12), ("pulse", "sugar"))
    model, log, behavior, target = ward
    lost = model, without_finals(log), behavior, target
    found = ask(lost).outcomes().expected_return
    for episode in np.flatnonzero(log.outcome >= 0)[:4]:
        assert found[episode] == pytest.approx(twin(lost, episode)[1], abs=1e-13)
    null = ask((*lost[:3], behavior), continuation=False)
    np.testing.assert_allclose(null.outcomes().difference, 0.0, atol=1e-12)


# ------------------------------------------------------------------------------- all other answers


def test_all_that_is_not_about_rewards_stays_the_same(ward):
    model, *others = ward
    alike = ask((replace(model, rewards=Rewards((), np.array([1.0, 2.0, 0.0]))), *others))
    steps, same = ask(ward).steps(probability=True), alike.steps(probability=True)
    for name in ("influence", "mass", "evidence", "thin", "other", "apart", "probability"):
        np.testing.assert_allclose(getattr(steps, name), getattr(same, name), atol=1e-13)
    assert steps.influence.max() > 0.1
    np.testing.assert_allclose(ask(ward).courses(), alike.courses(), atol=1e-13)
    bounds, same_bounds = ask(ward).bounds(), alike.bounds()
    np.testing.assert_allclose(bounds.probability, same_bounds.probability, atol=1e-13)
    drawn, same_drawn = (one.draws(300, seed=2).state for one in (ask(ward), alike))
    assert (drawn.max(), drawn.min()) == (same_drawn.max(), same_drawn.min()) == (17, -1)


def test_draws_pay_the_reward_of_the_state_reached(ward):
    model, log, *_ = ward
    replay, count = ask(ward), 4000
    draws = replay.draws(count, seed=3)
    earned = draws.reward @ DISCOUNT ** np.arange(HORIZON)
    largest = max(np.abs(log.reward).max(), np.abs(model.rewards.table).max()) * HORIZON
    # Hoeffding: a mean of returns, each within the sum of the largest rewards
    wide = 2 * largest * np.sqrt(np.log(2 * len(log) / FALSE_ALARM) / (2 * count))
    exact = replay.outcomes().expected_return
    np.testing.assert_allclose(earned.mean(axis=1), exact, rtol=0, atol=wide)
    # ends pay rewards of the model or of the log, never a mean
    paid = draws.reward[(draws.state[:, :, 1:] >= 16) & (draws.action >= 0)]
    gaps = np.abs(np.unique(paid)[:, None] - [*model.rewards.table.ravel(), *log.reward])
    assert gaps.min(axis=1).max() < 1e-12


def test_particles_agree_with_the_exact_engine(ward):
    replay = ask(ward)
    exact = replay.outcomes()
    found = ParticleEngine(replay).outcomes(draws=4000, seed=1, threads=None, progress=None)
    # the standardized error of 12 returns is about normal: its largest exceeds 5.6 by a chance of
    # 12 * 2.1e-8 < FALSE_ALARM
    free = found.return_error > 1e-9
    z = (found.expected_return - exact.expected_return)[free] / found.return_error[free]
    assert np.abs(z).max() < 5.6
    assert free.sum() > 5


def test_drawn_models_pay_alike(ward):
    found = credible_of_models(ask(ward), [ward[0]], confidence=0.5)
    exact = ask(ward).outcomes().expected_return
    np.testing.assert_allclose(found.mean_return, exact, atol=1e-4)


def test_counterfactuals_of_the_behavior_repeat_the_record(ward):
    replay = ask((*ward[:3], ward[2]), continuation=False)
    np.testing.assert_allclose(replay.outcomes().difference, 0.0, atol=1e-12)


def divided(model, log):
    """The model as a table with an outcome for each outcome, pulse and sugar; the log with these.

    Outcome o after pulse p and sugar s is 4 o + 2 p + s.
    """
    moved, pays = (np.zeros((16, 2, 16 + 2 * 4)) for _ in range(2))
    world = plain(model)
    for state, action in np.ndindex(16, 2):
        for (reached, end), mass in pair_law(world, None, state, action).items():
            place = reached if end == 2 else 16 + 4 * end + reached // 4
            moved[state, action, place] += mass
            pays[state, action, place] = reward_of(world, state, action, reached, end)
    outcomes = tuple(bf.Outcome(f"{n}", 0.0) for n in range(8))
    final = log.next_state[log.offsets[1:] - 1]
    ended = np.where(log.outcome < 0, -1, 4 * log.outcome + final // 4)
    ended = replace(log, outcome=ended.astype(log.outcome.dtype), outcomes=outcomes)
    return bf.TabularMDP.from_arrays(moved, reward=pays, outcomes=outcomes), ended


def test_hidden_causes_may_choose_among_the_states_that_an_end_reaches(ward):
    # the same question of a table in which what an end reached is part of the outcome
    model, log, behavior, target = ward
    target = np.eye(2)[target.argmax(axis=1)]
    found = bf.confounding_bounds(ask((model, log, behavior, target)), [1.0, 2.0])
    table, ended = divided(model, log)
    expected = bf.confounding_bounds(ask((table, ended, behavior, target)), [1.0, 2.0])
    np.testing.assert_allclose(found.value, expected.value, atol=1e-12)
    np.testing.assert_allclose(found.expected_return, expected.expected_return, atol=1e-12)
    assert (np.diff(found.expected_return[0]) > 1e-3).any()
    for outcome in range(2):  # its probability is the return where it alone pays 1
        pays = np.concatenate([np.zeros(16), np.repeat(np.arange(2) == outcome, 4)])
        last = np.zeros(len(log.state))
        last[log.offsets[1:] - 1] = log.outcome == outcome
        alone = replace(table, reward=pays[table.next_state])
        asked = ask((alone, replace(ended, reward=last), behavior, target), discount=1.0)
        expected = bf.confounding_bounds(asked, [1.0, 2.0]).expected_return
        np.testing.assert_allclose(found.probability[:, :, outcome], expected, atol=1e-12)


def test_bounds_under_hidden_causes_by_hand():
    # nothing is hidden (gamma 1). x became 1, of probability .5: what had .25 gets at most .25 / .5
    # of it. Where the final state was not logged, nothing was observed: the mean .25 remains
    model, log = one_step()
    for one, expected in ((log, [[0, 0.5], [0, 0.5]]), (without_finals(log), [[0.25, 0.25]] * 2)):
        replay = Replay(one, model, np.tile([0.0, 1.0], (2, 1)))
        found = bf.confounding_bounds(replay, [1.0]).expected_return[0]
        np.testing.assert_allclose(found, expected, atol=1e-15)

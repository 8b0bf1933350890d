"""Factored models against their slow twins: joint noise, every mechanism, linear programs."""

from itertools import product

import numpy as np
import pytest

import butfor as bf
from butfor.replay.replay import Replay
from tests.factored import clinic_model, plain, seen_steps, simulate_factored, tiny_model
from tests.grids import each_value, few
from tests.reference.counterfactual import Episode, action_law
from tests.reference.factored_bounds import episode_bounds
from tests.reference.factored_replay import abduct, exact_outcomes
from tests.reference.gumbel import counterfactual_distribution
from tests.reference.mechanisms import independent, inverse_cdf, maximal
from tests.support import vary_rewards

HORIZON, DISCOUNT = 3, 0.9
RULES = {
    bf.GumbelMax(): counterfactual_distribution,
    bf.InverseCDF(): inverse_cdf,
    bf.MaximalCoupling(): maximal,
    bf.Independent(): independent,
}


@pytest.mark.parametrize(
    ("mechanism", "noise"), each_value(product(RULES, ["shared", "fresh"])), ids=repr
)
def test_outcomes_equal_the_slow_twin_under_every_mechanism(mechanism, noise):
    generator = np.random.default_rng(18)
    model = clinic_model(generator)
    behavior, target = generator.dirichlet(np.full(2, 1.5), (2, model.n_states))
    log = vary_rewards(simulate_factored(generator, model, behavior, 2, HORIZON))
    assert log.outcome.tolist() == [-1, 1]  # one goes on, one ends before the horizon
    assert log.lengths.tolist() == [3, 2]
    found = Replay(
        log,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=noise,
        discount=DISCOUNT,
    ).outcomes()
    for episode in range(len(log)):
        law, value = exact_outcomes(
            plain(model),
            seen_steps(log, episode),
            behavior,
            target,
            shared=noise == "shared",
            horizon=HORIZON,
            discount=DISCOUNT,
            rule=RULES[mechanism],
        )
        np.testing.assert_allclose(found.probability[episode], law, atol=1e-13)
        assert found.expected_return[episode] == pytest.approx(value, abs=1e-13)


def test_rows_equal_the_replay_of_the_whole_joint_noise():
    # abduction taken literally: every noise of every factor that gives the observed transition
    generator = np.random.default_rng(8)
    model = clinic_model(generator)
    behavior = np.full((24, 2), 0.5)
    log = vary_rewards(simulate_factored(generator, model, behavior, 3, 1))
    for dose in range(2):
        always = np.tile(np.eye(2)[dose], (24, 1))
        replay = Replay(log, model, always, behavior=behavior, mechanism=bf.InverseCDF())
        place = replay.steps(probability=True).probability[:, 1]
        for episode in range(len(log)):
            seen = seen_steps(log, episode)[0]
            law = abduct(plain(model), seen, seen.state, dose)
            expected = np.zeros(26)
            expected[list(law)] = list(law.values())
            np.testing.assert_allclose(place[episode], expected, atol=1e-12)


@pytest.mark.parametrize("finals", few([False, True], 1), ids=["no final states", "final states"])
def test_bounds_equal_linear_programs_nested_by_variable(finals):
    generator = np.random.default_rng(13)
    model = tiny_model(generator, end=("pulse", "sugar"))
    behavior = np.full((16, 2), 0.5)
    target = np.eye(2)[generator.integers(2, size=16)]
    log = vary_rewards(simulate_factored(generator, model, behavior, 8, 2))
    if not finals:
        following = log.next_state.copy()
        following[(log.offsets[1:] - 1)[log.outcome >= 0]] = -1
        log = bf.Episodes.from_arrays(
            log.state,
            log.action,
            following,
            reward=log.reward,
            offsets=log.offsets,
            outcome=log.outcome,
            outcomes=log.outcomes,
            states=log.state_variables,
            actions=log.action_variables,
            horizon=log.horizon,
        )
    bounds = Replay(
        log, model, target, behavior=behavior, discount=DISCOUNT, continuation=False
    ).bounds()
    apart = 0
    for episode in range(len(log)):
        steps = seen_steps(log, episode)
        taken = Episode([one.state for one in steps], [one.action for one in steps], [])
        found = episode_bounds(
            plain(model),
            steps,
            lambda t, state, taken=taken: action_law(taken, t, state, behavior, target, True),
            discount=DISCOUNT,
        )
        for (quantity, stable, sign), value in found.items():
            table = bounds.expected_return if quantity == 0 else bounds.probability
            mine = table[int(stable), episode]
            mine = mine if quantity == 0 else mine[quantity - 1]
            assert mine[int(sign < 0)] == pytest.approx(value, abs=1e-8)
        apart += found[0, False, -1] - found[0, False, 1] > 1e-3
    assert apart > 3

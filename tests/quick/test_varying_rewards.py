"""Rewards that vary: what was earned is earned again where a step repeats, the mean elsewhere.

The logs with which kernels are compared with their twins have such rewards, too.
"""

import numpy as np
import pytest

import butfor as bf
from tests import support, wide


@pytest.fixture(scope="module")
def question():
    """A log whose rewards vary, its model, behavior and a target."""
    generator = np.random.default_rng(3)
    model = support.random_model(generator)
    behavior, target = (support.random_policy(generator, model) for _ in range(2))
    log = support.simulate_log(generator, model, behavior, 30, 6)
    return support.vary_rewards(log), model, behavior, target


def replays(question):
    """The question, of the model and of the same model as one whose hidden state is seen."""
    log, model, behavior, target = question
    for one in (model, bf.hidden.TabularPOMDP.from_mdp(model)):
        yield bf.Replay(log, one, target, behavior=behavior, horizon=8, discount=0.9)


def test_the_log_has_rewards_that_the_model_does_not_know(question):
    log, model, *_ = question
    rows = support.reference_model(model).rows
    steps = zip(log.state, log.action, support.destinations(log, "visits"), strict=True)
    assert all(rows[s, a][x][1] != r for (s, a, x), r in zip(steps, log.reward, strict=True))


def test_hidden_and_observed_states_earn_the_same(question):
    observed, hidden = replays(question)
    for one, other in (
        (observed.outcomes().expected_return, hidden.outcomes().expected_return),
        (observed.bounds().expected_return, hidden.bounds().expected_return),
        (observed.contributions(), hidden.contributions()),
        (observed.steps().earned, hidden.steps().earned),
    ):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_every_draw_earns_again_what_it_repeats(question):
    log, model, _, _ = question
    rows = support.reference_model(model).rows
    repeats = others = 0
    for replay in replays(question):
        drawn = replay.draws(20, seed=1)
        for i, d, t in np.argwhere(drawn.action >= 0):
            state, action = int(drawn.state[i, d, t]), int(drawn.action[i, d, t])
            step = log.offsets[i] + t
            if step < log.offsets[i + 1] and (state, action) == (log.state[step], log.action[step]):
                assert drawn.reward[i, d, t] == log.reward[step]
                repeats += 1
            else:
                reached = int(drawn.state[i, d, t + 1])
                assert drawn.reward[i, d, t] == rows[state, action][reached][1]
                others += 1
    assert min(repeats, others) > 1000


def test_a_particle_earns_again_what_it_repeats():
    log = support.vary_rewards(wide.simulate(0, 20).log)
    model = bf.fit_factored(log)
    drawn = bf.Replay(log, model, lambda codes: wide.cautious(np.asarray(codes))).draws(5)
    same = 0
    for i in range(len(log)):
        steps = slice(log.offsets[i], log.offsets[i + 1])
        length = int(log.lengths[i])
        repeats = (drawn.state[i, :, :length] == log.state[steps]) & (
            drawn.action[i, :, :length] == log.action[steps]
        )
        equal = drawn.reward[i, :, :length] == log.reward[steps]
        assert (equal == repeats).all()
        same += int(repeats.sum())
    assert same > 50


def test_drawn_models_give_back_what_was_earned(question):
    log, model, behavior, _ = question
    replay = bf.Replay(log, model, behavior, behavior=behavior)
    with pytest.warns(UserWarning, match="varies for the same state"):
        found = bf.credible_intervals(replay, models=20)
    ended = log.outcome >= 0
    for end in range(2):
        np.testing.assert_allclose(found.expected_return[ended, end], log.returns(1.0)[ended])

"""Bounds with a hidden state: against linear programs, every mechanism inside, consistent."""

import numpy as np
import pytest

import butfor as bf
from tests.grids import few
from tests.hidden import plain_agent, plain_model, random_agents
from tests.reference import pomdp_bounds as reference
from tests.reference.pomdp import Seen
from tests.slow.test_pomdp import HORIZON, KINDS, MODELS, seen_under
from tests.slow.test_pomdp import problem as problem
from tests.support import random_model, random_policy, simulate_log

MECHANISMS = [
    (bf.GumbelMax(), 1),
    (bf.MaximalCoupling(), 1),
    (bf.InverseCDF(), 0),
    (bf.Independent(), 0),
]


def worlds_of(log, model):
    """The episodes of a log as the reference takes them."""
    for i in range(len(log)):
        rows = slice(log.offsets[i], log.offsets[i + 1])
        yield Seen(
            (*log.state[rows].tolist(), int(log.next_state[rows][-1])),
            tuple(log.action[rows].tolist()),
            tuple(log.reward[rows].tolist()) if model.reward_seen else (),
            int(log.outcome[i]),
        )


QUESTIONS = [("seen", True), ("latent", True), ("controller", False)]


@pytest.mark.parametrize(
    ("problem", "kind", "shared"),
    # each question of one model, then of all others
    few([(m, *QUESTIONS[(m + turn) % 3]) for turn in range(3) for m in range(len(MODELS))], 3),
    indirect=["problem"],
)
def test_bounds_equal_nested_programs(problem, kind, shared):
    model, behaviors, targets = problem
    check_programs(model, behaviors["latent"], targets[kind], shared)


@pytest.mark.parametrize("shown", [[0, 1, 1, 1, 1], [0, 1, 0, 1, 0]])
def test_a_step_without_common_labels_hands_both_bounds_on(shown):
    # the actions of the first step lead to different states; then three ends have three ratios
    generator = np.random.default_rng(1)
    rows = np.zeros((8, 2, 8))
    rows[0, 0, [1, 2]] = rows[0, 1, [3, 4]] = 0.3, 0.7
    rows[1:5, :, 5:] = generator.dirichlet(np.ones(3), (4, 2))
    rows[5:, :] = np.eye(8)[5:, None]
    model = bf.hidden.TabularPOMDP.from_arrays(
        rows,
        [*shown, 0, 0, 0],
        initial=np.eye(8)[0],
        outcome=[-1] * 5 + [0, 1, 2],
        outcomes=[bf.Outcome(f"end {o}", float(o)) for o in range(3)],
        reward_seen=False,
    )
    agents = random_agents(generator, model)
    stable = check_programs(model, agents["latent"], agents["controller"], True, episodes=3)
    assert stable > 0.01


def check_programs(model, behavior, target, shared, episodes=2):
    """Compare some of the longest episodes with the reference; return what stability rules out."""
    log, _ = seen_under(model, behavior)
    longest = np.flatnonzero(log.lengths == log.lengths.max())
    chosen = np.random.default_rng(0).permutation(longest)[:episodes]
    log = log.select(np.sort(chosen))
    found = bf.Replay(
        log,
        model,
        target,
        behavior=behavior,
        action_noise="shared" if shared else "fresh",
        discount=0.9,
    ).bounds()
    agents = plain_agent(behavior), plain_agent(target)
    for i, seen in enumerate(worlds_of(log, model)):
        expected = reference.episode_bounds(
            plain_model(model), seen, *agents, shared=shared, horizon=HORIZON, discount=0.9
        )
        for (quantity, stable, sign), bound in expected.items():
            place = int(stable), i, (1 - sign) // 2
            got = found.expected_return[place]
            if quantity:
                got = found.probability[place[0], i, quantity - 1, place[2]]
            assert got == pytest.approx(bound, abs=1e-8)
    any_one, stable = np.ptp(found.probability, axis=-1)
    return (any_one - stable).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("continuation", [True, False])
def test_every_mechanism_lies_inside_and_much_is_ruled_out(problem, kind, continuation):
    model, behaviors, targets = problem
    log, _ = seen_under(model, behaviors["latent"])
    options = {"behavior": behaviors["latent"], "continuation": continuation}
    bounds = bf.Replay(log, model, targets[kind], **options).bounds()
    for mechanism, least in MECHANISMS:
        result = bf.Replay(log, model, targets[kind], mechanism=mechanism, **options).outcomes()
        for c in range(least + 1):
            low, high = np.moveaxis(bounds.expected_return[c], -1, 0)
            assert (low <= result.expected_return + 1e-9).all()
            assert (high >= result.expected_return - 1e-9).all()
            low, high = np.moveaxis(bounds.probability[c], -1, 0)
            assert (low <= result.probability + 1e-9).all()
            assert (high >= result.probability - 1e-9).all()
    any_one, stable = bounds.probability
    assert (stable[..., 0] >= any_one[..., 0] - 1e-9).all()
    assert (stable[..., 1] <= any_one[..., 1] + 1e-9).all()
    # whatever happens, an outcome has a probability between 0 and 1: these bounds tell more
    assert np.ptp(any_one, axis=-1).mean() < 0.75
    assert np.ptp(stable, axis=-1).mean() < np.ptp(any_one, axis=-1).mean() - 0.01
    assert not bounds.tight


@pytest.mark.parametrize("kind", ["seen", "latent"])
def test_the_null_target_leaves_nothing_open(problem, kind):
    model, behaviors, _ = problem
    log, _ = seen_under(model, behaviors[kind])
    bounds = bf.Replay(log, model, behaviors[kind], behavior=behaviors[kind]).bounds()
    observed = np.zeros_like(bounds.probability[0, ..., 0])
    observed[np.arange(len(log)), log.outcome] = 1.0
    for c, end in np.ndindex(2, 2):
        np.testing.assert_allclose(bounds.probability[c, ..., end], observed, atol=1e-9)


def test_with_nothing_hidden_they_are_those_of_the_observed_states():
    generator = np.random.default_rng(3)
    for _ in range(3):
        model = random_model(generator)
        behavior, target = random_policy(generator, model), random_policy(generator, model)
        log = simulate_log(generator, model, behavior, 12, 4)
        hidden = bf.hidden.TabularPOMDP.from_mdp(model)
        expected = bf.Replay(log, model, target, behavior=behavior, discount=0.9).bounds()
        found = bf.Replay(log, hidden, target, behavior=behavior, discount=0.9).bounds()
        np.testing.assert_allclose(found.expected_return, expected.expected_return, atol=1e-9)
        np.testing.assert_allclose(found.probability, expected.probability, atol=1e-9)

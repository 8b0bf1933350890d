"""Simulated logs of hidden states: frequencies, seeds, side columns; the tiger worked through."""

from collections import Counter

import numpy as np
import pytest

import butfor as bf
from tests.hidden import plain_agent, plain_model, random_agents, random_pomdp, tiger
from tests.reference import pomdp as reference
from tests.support import frequencies_agree

DRAWS = 20_000
KINDS = ("seen", "latent", "controller")
LISTEN, LEFT, RIGHT = np.eye(3)


def seen_in(log, model, episode):
    """What a log tells of an episode, as the reference has it."""
    rows = slice(log.offsets[episode], log.offsets[episode + 1])
    return reference.Seen(
        (*log.state[rows].tolist(), int(log.next_state[rows][-1])),
        tuple(log.action[rows].tolist()),
        tuple(log.reward[rows].tolist()) if model.reward_seen else (),
        int(log.outcome[episode]),
    )


def expected_frequencies(model, policy):
    weight = Counter()
    for seen, _, _, mass in reference.every_world(plain_model(model), plain_agent(policy), 2):
        weight[seen] += mass
    return weight


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("silent", [False, True])
def test_every_episode_is_drawn_as_often_as_the_model_says(kind, silent):
    generator = np.random.default_rng(4)
    model = random_pomdp(generator, silent=silent, reward_seen=not silent)
    policy = random_agents(generator, model)[kind]
    expected = expected_frequencies(model, policy)
    log = bf.hidden.simulate_pomdp(model, policy, DRAWS, horizon=2, seed=1)
    found = Counter(seen_in(log, model, episode) for episode in range(DRAWS))
    assert set(found) <= set(expected)
    counts = np.array([found[seen] for seen in expected])
    assert frequencies_agree(counts, np.array(list(expected.values())), DRAWS)
    other = expected_frequencies(model, random_agents(generator, model)[kind])
    assert not frequencies_agree(counts, np.array([other[seen] for seen in expected]), DRAWS)


def test_a_policy_on_beliefs_is_asked_for_what_can_be_known():
    """With states that always show the same, a belief tells what was seen last."""
    generator = np.random.default_rng(8)
    model = random_pomdp(generator, certain=True)
    table = random_agents(generator, model)["seen"]
    shown = model.emission.toarray()
    beliefs = bf.hidden.BeliefPolicy(lambda belief: (belief @ shown) @ table)
    found, expected = (
        bf.hidden.simulate_pomdp(model, policy, 500, horizon=4, seed=2)
        for policy in (beliefs, table)
    )
    np.testing.assert_array_equal(found.action, expected.action)
    np.testing.assert_array_equal(found.state, expected.state)


def test_an_episode_depends_on_the_seed_and_its_number_only():
    generator = np.random.default_rng(5)
    model = random_pomdp(generator)
    policy = random_agents(generator, model)["controller"]
    few, many, other = (
        bf.hidden.simulate_pomdp(model, policy, size, horizon=3, seed=seed)
        for size, seed in ((20, 7), (50, 7), (50, 8))
    )
    first = many.select(np.arange(20))
    for name in ("state", "action", "reward", "outcome"):
        np.testing.assert_array_equal(getattr(few, name), getattr(first, name))
    assert not np.array_equal(many.outcome, other.outcome)


def test_what_is_hidden_stands_in_side_columns():
    model = bf.sepsis.pomdp()
    policy = bf.hidden.LatentPolicy(bf.sepsis.behavior_policy())
    log = bf.hidden.simulate_pomdp(model, policy, 50, horizon=5, seed=1)
    assert list(log.side) == ["diabetes", "glucose"]
    assert len(log.side) == len(log.state) + len(log)
    posterior = bf.hidden.latent_posterior(log, model, behavior=policy)
    rows = np.concatenate(
        [np.append(np.arange(*log.offsets[i : i + 2]), len(log.state) + i) for i in range(len(log))]
    )
    for name in log.side:
        level = log.side[name].cat.codes.to_numpy()[rows]
        assert (posterior.marginal(name)[np.arange(len(rows)), level] > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "episodes 0"),
        ({"horizon": 0}, "horizon 0"),
        ({"policy": np.ones((5, 2)) / 2}, r"give LatentPolicy\(table\)"),
    ],
)
def test_bad_input_is_refused(change, message):
    generator = np.random.default_rng(5)
    model = random_pomdp(generator)
    given = {"policy": np.full((2, 2), 0.5), "episodes": 5, "horizon": 2, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        bf.hidden.simulate_pomdp(model, **given)


# ----------------------------------------------------------------------------------- the tiger


def careful():
    """Listens until one side was heard twice more often than the other, then opens the other."""
    actions = [RIGHT, LISTEN, LISTEN, LISTEN, LEFT]  # by how much more often right: -2 .. 2
    following = [[2, 2, 2], [0, 2, 2], [1, 3, 2], [2, 4, 2], [2, 2, 2]]
    return bf.hidden.FiniteController.from_arrays(actions, following, first=2)


def tiger_value(lead, steps):
    """Expected return of `careful` with this many steps left and the tiger on the left."""
    if steps == 0:
        return 0.0
    if abs(lead) == 2:
        return (10 if lead == -2 else -100) + tiger_value(0, steps - 1)
    heard = 0.85 * tiger_value(lead - 1, steps - 1) + 0.15 * tiger_value(lead + 1, steps - 1)
    return -1 + heard


def test_the_tiger_under_the_careful_controller_is_worth_what_its_chain_says():
    # by symmetry the tiger is on the left; after a door it is reset, and so is the memory
    model = tiger()
    log = bf.hidden.simulate_pomdp(model, careful(), 400, horizon=12, seed=3)
    assert bf.hidden.pomdp_value(model, careful(), horizon=12) == pytest.approx(
        tiger_value(0, 12), abs=1e-12
    )
    same = bf.Replay(log, model, careful(), behavior=careful()).outcomes()
    np.testing.assert_allclose(same.expected_return, log.returns(), atol=1e-9)


def test_who_sees_the_tiger_has_the_value_of_the_mdp():
    """Listening leaves it, a door places it again: two observed states, rows [state, action]."""
    stay, again = np.eye(2), np.full((2, 2), 0.5)
    seen = bf.TabularMDP.from_arrays(
        np.stack([stay, again, again], axis=1),
        reward=[[-1, -100, 10], [-1, 10, -100]],
        initial=[0.5, 0.5],
    )
    # who sees the tiger opens the other door every time: 10 / (1 - .95) = 200
    best = bf.policy_iteration(seen, discount=0.95)
    assert best.argmax(axis=1).tolist() == [2, 1]
    assert bf.policy_value(seen, best, discount=0.95) == pytest.approx(200)
    listen = np.tile(LISTEN, (2, 1))
    assert bf.policy_value(seen, listen, discount=0.95) == pytest.approx(-20)
    for table in (best, listen, np.stack([LEFT, LISTEN])):
        by_state = bf.hidden.LatentPolicy(np.repeat(table, 3, axis=0))
        found = bf.hidden.pomdp_value(tiger(), by_state, horizon=7, discount=0.9)
        assert found == pytest.approx(bf.policy_value(seen, table, horizon=7, discount=0.9))

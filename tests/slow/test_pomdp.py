"""Hidden states: identities by enumeration, twins, draws, posteriors, errors."""

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

import butfor as bf
from butfor.hidden.chain import walk_hidden
from butfor.models.policies import action_counts
from tests.grids import each_value, few
from tests.hidden import (
    OUTCOMES,
    log_of,
    noisy_problem,
    plain_agent,
    plain_model,
    random_agents,
    random_pomdp,
    remembering,
)
from tests.reference import pomdp as reference
from tests.support import frequencies_agree, labelled_model, random_policy, simulate_log

HORIZON = 2
KINDS = ("seen", "latent", "controller")
MODELS = [  # six tiny models
    {"certain": False, "labels": False, "reward_seen": True},
    {"certain": False, "labels": True, "reward_seen": False, "silent": True},
    {"certain": True, "labels": False, "reward_seen": False, "silent": True},
    {"certain": True, "labels": True, "reward_seen": True},
    {"certain": False, "labels": True, "reward_seen": True},
    {"certain": True, "labels": False, "reward_seen": True},
]


@pytest.fixture(scope="module", params=few(range(len(MODELS)), 3))
def problem(request):
    """A model, two sets of policies of every kind."""
    generator = np.random.default_rng(request.param)
    model = random_pomdp(generator, **MODELS[request.param])
    return model, random_agents(generator, model), random_agents(generator, model)


def enumerated(model, behavior, target, shared, discount=1.0):
    """What can be seen, and the reference's answer, under a behavior."""
    found = reference.exact_outcomes(
        plain_model(model),
        plain_agent(behavior),
        plain_agent(target),
        shared=shared,
        horizon=HORIZON,
        discount=discount,
    )
    worlds = list(found)
    weight, probability, expected = (
        np.array([found[seen][part] for seen in worlds]) for part in range(3)
    )
    return log_of(worlds, model, HORIZON), weight, probability, expected


def noise(shared):
    return "shared" if shared else "fresh"


def seen_under(model, behavior):
    """All that can be seen under a behavior, as a log, with the probability of each."""
    weight = Counter()
    for seen, _, _, mass in reference.every_world(
        plain_model(model), plain_agent(behavior), HORIZON
    ):
        weight[seen] += mass
    return log_of(list(weight), model, HORIZON), np.array(list(weight.values()))


# --------------------------------------------------------------------------- twins and identities


# a model, the kind of the behavior, and whether noise of actions is shared
QUESTIONS = list(product(range(len(MODELS)), ["latent", "controller"], [True, False]))
CHEAP = [
    (0, "latent", True),
    (1, "controller", False),
    (2, "latent", False),
    (2, "controller", True),
]


@pytest.mark.parametrize(
    ("problem", "kind", "shared"),
    few(sorted(QUESTIONS, key=lambda question: question not in CHEAP), len(CHEAP)),
    indirect=["problem"],
)
def test_exact_chain_is_the_mean_over_every_hidden_path(problem, kind, shared):
    model, behaviors, targets = problem
    behavior = behaviors[kind]
    target = targets[KINDS[len(plain_model(model).rows) % 3 if shared else -1]]
    log, _, probability, expected = enumerated(model, behavior, target, shared, 0.9)
    result = bf.Replay(
        log, model, target, behavior=behavior, action_noise=noise(shared), discount=0.9
    ).outcomes()
    np.testing.assert_allclose(result.probability, probability, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.expected_return, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_noisy_cells_summed_by_row_are_those_moved_one_by_one(shared):
    # a policy that remembers the last observation in its nodes is moved cell by cell
    model, log, behavior, target = noisy_problem(8)
    log = log.select([0, 4, 5])  # one goes on, one dies, one goes home
    assert log.outcome.tolist() == [-1, 0, 1]
    assert model.shows is None
    options = {"behavior": behavior, "action_noise": noise(shared), "horizon": 8}
    one, other = (
        bf.Replay(log, model, policy, **options) for policy in (target, remembering(target))
    )
    outcomes, steps = (one.outcomes(), other.outcomes()), (one.steps(), other.steps())
    for results, parts in (
        (outcomes, ("probability", "expected_return")),
        (steps, ("influence", "mass", "thin_share")),
    ):
        for part in parts:
            found, expected = (getattr(result, part) for result in results)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("behavior_kind", "target_kind", "shared"),
    each_value(
        [(one, other, shared) for one in KINDS for other in KINDS for shared in (True, False)]
    ),
)
def test_mean_over_every_episode_is_the_law_of_the_target(
    problem, behavior_kind, target_kind, shared
):
    model, behaviors, targets = problem
    behavior, target = behaviors[behavior_kind], targets[target_kind]
    log, weight = seen_under(model, behavior)
    result = bf.Replay(log, model, target, behavior=behavior, action_noise=noise(shared)).outcomes()
    law = np.zeros(len(model.outcomes) + 1)
    for seen, _, _, mass in reference.every_world(plain_model(model), plain_agent(target), HORIZON):
        law[seen.outcome] += mass
    np.testing.assert_allclose(weight.sum(), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weight @ result.probability, law, rtol=0, atol=1e-12)
    if model.reward_seen:  # otherwise the log tells of none, and pays 0 where a step repeats
        value = bf.hidden.pomdp_value(model, target, horizon=HORIZON)
        np.testing.assert_allclose(weight @ result.expected_return, value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_null_target_equal_to_behavior_gives_back_every_episode(problem, kind):
    model, behaviors, _ = problem
    log, _ = seen_under(model, behaviors[kind])
    result = bf.Replay(log, model, behaviors[kind], behavior=behaviors[kind]).outcomes()
    observed = np.zeros_like(result.probability)
    observed[np.arange(len(log)), log.outcome] = 1.0
    np.testing.assert_allclose(result.probability, observed, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.difference, 0.0, rtol=0, atol=1e-12)


def test_ignoring_a_behavior_that_saw_the_state_breaks_the_decomposition(problem):
    model, behaviors, targets = problem
    log, weight = seen_under(model, behaviors["latent"])
    right, wrong = (
        bf.Replay(log, model, targets["seen"], behavior=behavior, action_noise="fresh").outcomes()
        for behavior in (behaviors["latent"], None)
    )
    assert np.abs(weight @ (right.probability - wrong.probability)).max() > 1e-4


@pytest.mark.parametrize(
    ("count", "kinds", "shared"),
    few(
        [
            *product([8_000], [("latent", "controller")], [True, False]),
            *product([40_000], [("latent", "controller"), ("seen", "seen")], [True, False]),
        ],
        2,
    ),
)
def test_exact_chain_is_what_worlds_with_real_gumbel_noise_do(count, kinds, shared):
    generator = np.random.default_rng(5)
    model = random_pomdp(generator, reward_seen=False)
    behavior, target = (random_agents(generator, model)[kind] for kind in kinds)
    plain, agents = plain_model(model), (plain_agent(behavior), plain_agent(target))
    random = Random(7)
    together = Counter(
        reference.gumbel_worlds(plain, *agents, shared=shared, horizon=2, uniform=random.random)
        for _ in range(count)
    )
    often = Counter()
    for (seen, _), times in together.items():
        often[seen] += times
    worlds = [seen for seen, times in often.items() if times >= count * 3 // 400]
    assert len(worlds) > 10
    result = bf.Replay(
        log_of(worlds, model, 2), model, target, behavior=behavior, action_noise=noise(shared)
    ).outcomes()
    counts = np.array([[together[seen, o] for o in (0, 1, -1)] for seen in worlds])
    draws = np.array([[often[seen]] for seen in worlds])
    assert frequencies_agree(counts, result.probability, draws)
    assert not frequencies_agree(counts, result.probability[::-1], draws)


@pytest.mark.parametrize(
    "mechanism", [None, bf.MaximalCoupling(), bf.Independent(), bf.InverseCDF()]
)
@pytest.mark.parametrize("action_noise", ["shared", "fresh"])
def test_model_in_which_all_is_seen_gives_the_answer_of_the_mdp(mechanism, action_noise):
    generator = np.random.default_rng(3)
    model = labelled_model(generator, np.array([0, 0, 1, 2]))
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log = simulate_log(generator, model, behavior, 60, 6)
    options = {"mechanism": mechanism, "action_noise": action_noise, "behavior": behavior}
    plain = bf.Replay(log, model, target, discount=0.9, **options).outcomes()
    hidden = bf.Replay(
        log, bf.hidden.TabularPOMDP.from_mdp(model), target, discount=0.9, **options
    ).outcomes()
    np.testing.assert_allclose(hidden.probability, plain.probability, rtol=0, atol=1e-14)
    np.testing.assert_allclose(hidden.expected_return, plain.expected_return, rtol=0, atol=1e-13)


def test_walk_is_the_mean_over_every_hidden_path(problem):
    model, behaviors, targets = problem
    kind = KINDS[int(model.dynamics.reward.sum()) % 3]
    found = reference.walk(
        plain_model(model),
        plain_agent(behaviors["latent"]),
        plain_agent(targets[kind]),
        shared=True,
        horizon=HORIZON,
        thin=5.0,
    )
    log = log_of(list(found), model, HORIZON)
    engine = bf.Replay(log, model, targets[kind], behavior=behaviors["latent"]).engine
    steps = walk_hidden(engine.chain, 5.0, probability=True)
    going = steps.mass > 1e-12  # below, whether anything is left is a matter of rounding
    for name in ("mass", "influence", "earned", "evidence", "thin"):
        expected = np.array([getattr(walk, name) for walk in found.values()])[going]
        given = getattr(steps, name)[going]
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-10, err_msg=name)
    shown, latent, ended = (
        np.array([getattr(walk, name) for walk in found.values()])
        for name in ("shown", "latent", "ended")
    )
    np.testing.assert_allclose(steps.seen[:, 1:], shown, rtol=0, atol=1e-12)
    np.testing.assert_allclose(steps.latent[:, :-1], latent, rtol=0, atol=1e-12)
    np.testing.assert_allclose(steps.ended[:, 1:], ended, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(steps.seen[np.arange(len(log)), 0, log.first_state], 1.0)


@pytest.mark.parametrize(
    ("problem", "kind"),
    few([(m, KINDS[(m + turn) % 3]) for turn in range(3) for m in range(len(MODELS))], 3),
    indirect=["problem"],
)
def test_contributions_of_steps_are_what_is_gained_by_taking_over_earlier(problem, kind):
    model, behaviors, targets = problem
    target = targets[kind]
    log, _ = seen_under(model, behaviors["latent"])
    options = {"behavior": behaviors["latent"], "discount": 0.9}
    found = bf.Replay(log, model, target, **options).contributions()
    plain = plain_model(model), plain_agent(behaviors["latent"]), plain_agent(target)
    values = [
        reference.exact_outcomes(*plain, shared=True, horizon=HORIZON, discount=0.9, since=since)
        for since in range(HORIZON + 1)
    ]
    expected = []
    for seen, rewards in zip(values[0], np.split(log.reward, log.offsets[1:-1]), strict=True):
        for t, reward in enumerate(rewards):
            here, after = values[t][seen][2], values[t + 1][seen][2]
            expected.append(0.9**t * (here - reward - 0.9 * after))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


SPARSE = np.array(  # of four states two are ends; rows of state 0 have nothing in common
    [
        [[0.3, 0.0, 0.7, 0.0], [0.0, 0.6, 0.0, 0.4]],
        [[0.0, 0.5, 0.5, 0.0], [0.2, 0.0, 0.0, 0.8]],
        [[0.0, 0.0, 1.0, 0.0]] * 2,
        [[0.0, 0.0, 0.0, 1.0]] * 2,
    ]
)


@pytest.mark.parametrize(
    "mechanism", [None, bf.MaximalCoupling(), bf.Independent(), bf.InverseCDF()]
)
@pytest.mark.parametrize("emission", [[0, 1, 0, 1], [[0.8, 0.2], [0.3, 0.7], [1, 0], [0, 1]]])
def test_rows_that_have_no_label_in_common_are_coupled_as_the_mechanism_says(mechanism, emission):
    model = bf.hidden.TabularPOMDP.from_arrays(
        SPARSE, emission, initial=[0.4, 0.6, 0, 0], outcome=[-1, -1, 0, 1], outcomes=OUTCOMES
    )
    agents = random_agents(np.random.default_rng(2), model)
    log, weight = seen_under(model, agents["latent"])
    options = {"behavior": agents["latent"], "mechanism": mechanism}
    exact = bf.Replay(log, model, agents["controller"], **options).outcomes()
    draws = bf.Replay(log, model, agents["controller"], **options).draws(2000)
    counts = np.stack([(draws.outcome == o).sum(axis=1) for o in (0, 1, -1)], axis=1)
    assert frequencies_agree(counts, exact.probability, 2000)
    value = bf.hidden.pomdp_value(model, agents["controller"], horizon=HORIZON)
    np.testing.assert_allclose(weight @ exact.expected_return, value, rtol=0, atol=1e-12)


def test_long_episodes_do_not_sink_below_floating_point():
    """A kind of patient that cannot be would explain the record ever so much better."""
    model = bf.hidden.TabularPOMDP.from_arrays(
        np.eye(2)[:, None, :],
        [[0.05, 0.95], [0.95, 0.05]],
        initial=[1.0, 0.0],
        states=[bf.Variable("kind", ("a", "b"), static=True)],
    )
    zeros = np.zeros(600, int)
    log = bf.Episodes.from_arrays(zeros, zeros, zeros, offsets=[0, 600], states=2, actions=1)
    posterior = bf.hidden.latent_posterior(log, model)
    np.testing.assert_array_equal(posterior.of(0), np.tile([1.0, 0.0], (601, 1)))
    assert posterior.log_evidence[0] == pytest.approx(601 * np.log(0.05))


# ----------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize("kind", KINDS)
def test_draws_agree_with_the_exact_chain(problem, kind):
    model, behaviors, targets = problem
    log, _ = seen_under(model, behaviors["latent"])
    some = log.select(np.arange(12))
    exact = bf.Replay(some, model, targets[kind], behavior=behaviors["latent"]).outcomes()
    draws = bf.Replay(some, model, targets[kind], behavior=behaviors["latent"]).draws(4000, seed=1)
    counts = np.stack([(draws.outcome == o).sum(axis=1) for o in (0, 1, -1)], axis=1)
    assert frequencies_agree(counts, exact.probability, 4000)
    assert draws.latent.shape == draws.state.shape
    gap = draws.returns().mean(axis=1) - exact.expected_return
    # rewards are 0 or 1, three of them: Hoeffding with range 3, false alarm 1e-6 over 12 means
    assert np.abs(gap).max() < 3 * np.sqrt(np.log(2 * 12 / 1e-6) / 2 / 4000)


def test_draws_do_not_depend_on_threads_or_other_episodes(problem):
    model, behaviors, targets = problem
    log, _ = seen_under(model, behaviors["latent"])
    replay = bf.Replay(log, model, targets["controller"], behavior=behaviors["latent"])
    all_of_them = replay.draws(3, seed=2, threads=1)
    again = replay.draws(3, seed=2, threads=2)
    alone = replay.part([5]).draws(3, seed=2)
    np.testing.assert_array_equal(all_of_them.latent, again.latent)
    np.testing.assert_array_equal(all_of_them.latent[5:6], alone.latent)


def test_behavior_on_beliefs_is_worked_out_from_the_history():
    generator = np.random.default_rng(9)
    model = random_pomdp(generator, certain=True)
    table = random_agents(generator, model)["seen"]
    shown = model.emission.toarray()
    target = random_agents(generator, model)["controller"]
    log, _ = seen_under(model, table)
    behavior = bf.hidden.BeliefPolicy(lambda beliefs: (beliefs @ shown) @ table)
    result, expected = (
        bf.Replay(log, model, target, behavior=made).outcomes() for made in (behavior, table)
    )
    np.testing.assert_allclose(result.probability, expected.probability, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------- posteriors


@pytest.mark.parametrize("kind", KINDS)
def test_posterior_is_that_of_enumeration(problem, kind):
    model, behaviors, _ = problem
    expected = reference.posterior(plain_model(model), plain_agent(behaviors[kind]), HORIZON)
    found = bf.hidden.latent_posterior(
        log_of(list(expected), model, HORIZON), model, behavior=behaviors[kind]
    )
    for episode, table in enumerate(expected.values()):
        np.testing.assert_allclose(found.of(episode), table, atol=1e-12)
    totals = np.add.reduceat(found.probability, found.start[:-1])
    np.testing.assert_allclose(totals, 1.0, atol=1e-12)


def test_evidence_is_the_probability_of_what_was_seen(problem):
    model, behaviors, _ = problem
    log, weight = seen_under(model, behaviors["latent"])
    found = bf.hidden.latent_posterior(log, model, behavior=behaviors["latent"])
    np.testing.assert_allclose(np.exp(found.log_evidence), weight, rtol=1e-12)


def test_sampled_paths_follow_the_posterior(problem):
    model, behaviors, _ = problem
    log, _ = seen_under(model, behaviors["latent"])
    some = log.select(np.arange(8))
    found = bf.hidden.latent_posterior(some, model, behavior=behaviors["latent"])
    path = found.sample(4000, seed=3)
    for episode in range(len(some)):
        table = found.of(episode)
        drawn = path[episode, :, : len(table)]
        counts = np.stack([(drawn == h).sum(axis=0) for h in range(model.n_states)], axis=1)
        assert frequencies_agree(counts, table, 4000)


def test_entropy_and_marginals_of_a_model_in_which_all_is_seen():
    generator = np.random.default_rng(3)
    model = labelled_model(generator, None)
    log = simulate_log(generator, model, random_policy(generator, model), 10, 4)
    found = bf.hidden.latent_posterior(log, bf.hidden.TabularPOMDP.from_mdp(model))
    going = np.concatenate([np.append(np.ones(n, bool), False) for n in log.lengths])
    np.testing.assert_array_equal(found.entropy[going], 0.0)
    np.testing.assert_array_equal(found.pair_counts()[:4], action_counts(log))


def test_probabilities_that_vanish_in_floating_point_do_no_harm():
    """Mass of 1e-300 times 1e-300 is 0: it must not be listed again and again."""
    generator = np.random.default_rng(4)
    model = random_pomdp(generator, certain=True)
    behavior = bf.hidden.LatentPolicy(np.tile([1.0, 1e-300], (model.n_states, 1)))
    target = np.tile([1.0, 1e-300], (model.n_observations, 1))
    log, _ = seen_under(model, bf.hidden.LatentPolicy(np.tile([1.0, 0.0], (model.n_states, 1))))
    long = log.truncate(40)
    for noise_of in ("shared", "fresh"):
        result = bf.Replay(long, model, target, behavior=behavior, action_noise=noise_of).outcomes()
        np.testing.assert_allclose(result.probability.sum(axis=1), 1.0, atol=1e-12)

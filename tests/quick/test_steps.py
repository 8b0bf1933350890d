"""Influence: hand values, invariants, the slow twin, threads, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import butfor as bf
from butfor import kernels
from butfor.kernels import chain
from butfor.kernels.evidence import weighted_median
from butfor.models.policies import action_counts
from butfor.replay.replay import Replay
from butfor.replay.steps import Steps
from tests.grids import few
from tests.hidden import random_pomdp
from tests.reference import steps as reference
from tests.support import (
    random_model,
    random_policy,
    reference_episodes,
    reference_model,
    simulate_log,
    vary_rewards,
)


@pytest.fixture(scope="module", params=few(range(4), 2))
def problem(request):
    """A model, with plain or mixed labels, a behavior, a target and a log."""
    generator = np.random.default_rng(50 + request.param)
    model = random_model(generator, labels=[None, np.array([2, 0, 3, 1])][request.param % 2])
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[0] = np.eye(3)[1]  # deterministic in one state
    return model, behavior, target, vary_rewards(simulate_log(generator, model, behavior, 30, 6))


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log, its model and the target planned on it."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 200, seed=21).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


def one_step(rows, *, seen, action=0, horizon=1):
    """One state and two actions with these rows over (state, end 0, end 1); one observed step."""
    model = bf.TabularMDP.from_arrays(
        np.array([rows]), outcomes=[bf.Outcome("bad", -1.0), bf.Outcome("good", 1.0)]
    )
    log = bf.Episodes.from_arrays(
        [0],
        [action],
        [0],
        offsets=[0, 1],
        outcome=[seen - 1],
        outcomes=model.outcomes,
        states=1,
        actions=2,
        horizon=horizon,
    )
    return log, model


EVEN = np.array([[0.5, 0.5]])
STEPS = ("influence", "mass", "earned", "evidence", "thin", "other", "apart", "probability")
TWINS = ("influence", "mass", "earned", "other", "apart")  # as the slow twin returns them


# ------------------------------------------------------------------------------------ hand values


def test_one_step_under_another_action_has_the_total_variation_of_its_rows():
    # p = (.5, .4, .1), q = (.1, .4, .5), the first seen: K = (.2, .229, .571), so that
    # TV(K, q) = (|.2 - .1| + |.229 - .4| + |.571 - .5|) / 2 = .171 = .4 - .229, all of it one way.
    log, model = one_step([[0.5, 0.4, 0.1], [0.1, 0.4, 0.5]], seen=0)
    result = Replay(log, model, [[0.0, 1.0]], behavior=EVEN).steps()
    law = bf.counterfactual_distribution([0.5, 0.4, 0.1], [0.1, 0.4, 0.5], observed=0)
    np.testing.assert_allclose(result.influence, [[0.4 - law[1]]], atol=1e-14)
    np.testing.assert_allclose(result.influence, [[0.171]], atol=5e-4)


def test_the_same_action_in_the_same_state_has_influence_one_less_its_probability():
    log, model = one_step([[0.5, 0.4, 0.1], [0.1, 0.4, 0.5]], seen=2)
    result = Replay(log, model, [[1.0, 0.0]], behavior=EVEN).steps()
    np.testing.assert_allclose(result.influence, [[0.9]], atol=1e-15)


def test_mass_and_earnings_go_on_by_the_model_past_the_observed_end():
    # Seen: action 0 leads to end 0. Under action 1, q = (.5, .25, .25); p is certain, so K = q and
    # the influence is 0. The state is left with chance .5 a step: mass 1, .5, .25, and each step
    # earns |-1| or |+1| with chance .5 of that mass.
    log, model = one_step([[0.0, 1.0, 0.0], [0.5, 0.25, 0.25]], seen=1, horizon=3)
    result = Replay(log, model, [[0.0, 1.0]], behavior=EVEN).steps()
    np.testing.assert_allclose(result.influence, [[0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(result.mass, [[1, 0.5, 0.25]], atol=1e-15)
    np.testing.assert_allclose(result.earned, [[0.5, 0.25, 0.125]], atol=1e-15)
    assert result.dies_at.tolist() == [0]
    assert result.share_after.tolist() == [1.0]
    assert result.share_about.tolist() == [0.0]


def test_it_dies_after_the_last_step_that_is_not_negligible():
    # Episode 0: alive at 0 and again at 2, dead from 3 on: .3 + .1 of its .5 is earned by then.
    # Episode 1 never lives; it earns nothing, so that all of its steps come after.
    # Episode 2 never dies.
    result = Steps(
        influence=np.array([[0.4, 0.01, 0.05, 0.0], [0.04, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]]),
        mass=np.array([[1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]),
        earned=np.array([[0.0, 0.3, 0.1, 0.1], [0.0] * 4, [0.0, 0.0, 0.0, 1.0]]),
        evidence=np.ones((3, 4)),
        thin=np.zeros((3, 4)),
        other=np.zeros((3, 4)),
        apart=np.zeros((3, 4)),
        probability=np.zeros((0, 5, 1)),
    )
    assert result.dies_at.tolist() == [3, 0, 4]
    np.testing.assert_allclose(result.share_after, [0.2, 1.0, 0.0], atol=1e-15)
    # 1 + .5 of 3 expected steps, none of 2, all of 4
    np.testing.assert_allclose(result.share_about, [0.5, 0.0, 1.0], atol=1e-15)


# ------------------------------------------------------------------------------------- invariants


def test_target_equal_to_behavior_walks_the_observed_path(problem):
    # the counterfactual is the episode itself: every observed step has influence 1 - P(observed)
    model, behavior, _, log = problem
    result = Replay(log, model, behavior, behavior=behavior, horizon=8).steps()
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)):
        steps = zip(*episode[:3], strict=True)
        expected = [1 - plain.rows[s, a][x][0] for s, a, x in steps]
        length = len(expected)
        np.testing.assert_allclose(result.influence[i, :length], expected, atol=1e-12)
        np.testing.assert_allclose(result.mass[i, :length], 1.0, atol=1e-12)
        assert (result.influence[i, length:] == 0).all()
        if log.outcome[i] >= 0:
            np.testing.assert_allclose(result.mass[i, length:], 0.0, atol=1e-12)


def test_disjoint_supports_have_no_influence():
    # under action 1 nothing can happen that could happen under action 0: K = q
    log, model = one_step([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], seen=0)
    result = Replay(log, model, [[0.0, 1.0]], behavior=EVEN).steps()
    assert result.influence.max() == 0
    assert (result.other.sum(), result.apart.sum(), result.share_apart) == (1, 1, 1)


def test_no_pair_of_rows_is_met_where_the_counterfactual_is_the_episode():
    log, model = one_step([[0.5, 0.4, 0.1], [0.1, 0.4, 0.5]], seen=2)
    result = Replay(log, model, [[1.0, 0.0]], behavior=EVEN).steps()
    assert result.other.sum() == 0
    assert np.isnan(result.share_apart)


def test_a_deterministic_model_has_no_influence_anywhere():
    generator = np.random.default_rng(4)
    rows = np.eye(6)[generator.integers(0, 6, (4, 3))]
    model = bf.TabularMDP.from_arrays(rows, outcomes=[bf.Outcome("a", 0.0), bf.Outcome("b", 1.0)])
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log = vary_rewards(simulate_log(generator, model, behavior, 20, 5))
    assert Replay(log, model, target, behavior=behavior).steps().influence.max() == 0


def test_influence_is_a_probability_and_ends_with_the_observed_episode(sepsis):
    log, model, target = sepsis
    result = Replay(log, model, bf.soften(target, 0.1)).steps()
    assert (result.influence >= 0).all()
    assert (result.influence <= 1).all()
    assert (result.influence[np.arange(20) >= log.lengths[:, None]] == 0).all()
    assert (np.diff(result.mass, axis=1) <= 1e-12).all()
    assert (result.dies_at <= log.lengths).all()
    for share in (result.share_after, result.share_about):
        assert ((share >= 0) & (share <= 1 + 1e-12)).all()


def test_what_is_earned_adds_up_to_the_outcomes_that_are_reached(sepsis):
    # both outcomes of sepsis have a reward of size one, and nothing else has any
    log, model, target = sepsis
    exact = bf.Replay(log, model, target).outcomes()
    result = Replay(log, model, target).steps()
    np.testing.assert_allclose(
        result.earned.sum(axis=1), exact.probability[:, :-1].sum(axis=1), atol=1e-12
    )


# --------------------------------------------------------------------------- slow twin and threads


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("horizon", [3, 9])
def test_influence_equals_its_slow_twin(problem, shared, horizon):
    model, behavior, target, log = problem
    noise = "shared" if shared else "fresh"
    result = Replay(
        log, model, target, behavior=behavior, action_noise=noise, horizon=horizon
    ).steps()
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log.truncate(horizon))):
        twin = reference.influence(
            plain,
            episode,
            behavior.tolist(),
            target.tolist(),
            shared=shared,
            horizon=horizon,
        )
        for name, slow in zip(TWINS, twin, strict=True):
            np.testing.assert_allclose(getattr(result, name)[i], slow, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("horizon", [3, 9])
def test_evidence_and_probabilities_equal_their_slow_twin(problem, shared, horizon):
    model, behavior, target, log = problem
    noise = "shared" if shared else "fresh"
    result = Replay(
        log, model, target, behavior=behavior, action_noise=noise, horizon=horizon
    ).steps(probability=True)
    plain = reference_model(model)
    cut = log.truncate(horizon)
    whole = reference_episodes(log)
    for i, episode in enumerate(reference_episodes(cut)):
        medians, thin, places = reference.evidence(
            plain,
            episode,
            behavior.tolist(),
            target.tolist(),
            action_counts(log).tolist(),
            list(zip(whole[i].states, whole[i].actions, strict=True)),
            shared=shared,
            horizon=horizon,
        )
        np.testing.assert_array_equal(result.evidence[i], medians)
        np.testing.assert_allclose(result.thin[i], thin, atol=1e-12)
        for t, place in enumerate(places):
            dense = np.zeros(result.probability.shape[2])
            dense[list(place)] = list(place.values())
            np.testing.assert_allclose(result.probability[i, t], dense, atol=1e-12)
    exact = bf.Replay(
        log, model, target, behavior=behavior, action_noise=noise, horizon=horizon
    ).outcomes()
    ends = result.probability[:, -1, model.n_states :]
    np.testing.assert_allclose(ends, exact.probability[:, :-1], atol=1e-12)


def test_similar_past_cases_leave_the_episode_itself_out():
    # Two episodes of one step take action 0 in state 0, one takes action 1. Under "always 0" the
    # first two rest on one other case each, the third, which did not take it, on two.
    log = bf.Episodes.from_arrays(
        [0, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
        offsets=[0, 1, 2, 3],
        outcome=[0, 0, 0],
        outcomes=[bf.Outcome("end", 1.0)],
        states=1,
        actions=2,
        horizon=1,
    )
    result = Replay(log, bf.fit_mdp(log), [[1.0, 0.0]]).steps()
    assert result.evidence.tolist() == [[1.0], [1.0], [2.0]]
    assert result.evidence_min.tolist() == [1.0, 1.0, 2.0]
    assert result.thin_share.tolist() == [1.0, 1.0, 1.0]
    alone = Replay(
        log.select([2]), bf.fit_mdp(log), [[1.0, 0.0]], counts=action_counts(log)
    ).steps()
    assert alone.evidence.tolist() == [[2.0]]


def test_counts_that_are_not_those_of_the_whole_log_are_refused():
    log, model = one_step([[0.5, 0.4, 0.1], [0.1, 0.4, 0.5]], seen=0)
    with pytest.raises(ValueError, match=r"expected whole numbers of shape \(1, 2\)"):
        Replay(log, model, [[0.0, 1.0]], counts=np.zeros((3, 2), int)).steps()
    with pytest.raises(ValueError, match="0 at state 0, action 0, but these episodes alone have 1"):
        Replay(log, model, [[0.0, 1.0]], counts=np.zeros((1, 2), int)).steps()


def test_steps_with_little_mass_do_not_count_for_the_least_evidence():
    shape = (1, 3)
    result = Steps(
        influence=np.zeros(shape),
        mass=np.array([[1.0, 0.05, 0.04]]),
        earned=np.zeros(shape),
        evidence=np.array([[40.0, 7.0, 0.0]]),
        thin=np.array([[0.0, 0.05, 0.04]]),
        other=np.zeros(shape),
        apart=np.zeros(shape),
        probability=np.zeros((0, 4, 1)),
    )
    assert result.evidence_min.tolist() == [7.0]
    np.testing.assert_allclose(result.thin_share, [0.09 / 1.09])


def test_icml2019_ends_equal_the_slow_twin():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 60, seed=8).hide("glucose", "diabetes")
    model = bf.fit_mdp(log, terminal="icml2019")
    target = bf.soften(bf.policy_iteration(model).table, 0.2)
    behavior = bf.estimate_behavior(log, terminal="icml2019")
    result = Replay(log, model, target).steps()
    plain = reference_model(model)
    episodes = reference_episodes(log, "icml2019")
    some = [1, 3, 14]
    assert set(log.outcome[some]) == {-1, 0, 1}
    for i in some:
        twin = reference.influence(
            plain, episodes[i], behavior.tolist(), target.tolist(), shared=True, horizon=20
        )
        for name, slow in zip(TWINS, twin, strict=True):
            np.testing.assert_allclose(getattr(result, name)[i], slow, atol=1e-12)


def test_results_do_not_depend_on_threads_and_one_episode_replays_alone(sepsis):
    log, model, target = sepsis
    behavior = bf.estimate_behavior(log)
    one, two = (
        Replay(log, model, bf.soften(target, 0.1), behavior=behavior).steps(
            probability=True, threads=threads
        )
        for threads in (1, 2)
    )
    assert_same(one, two, STEPS)
    alone = Replay(
        log.select([17]),
        model,
        bf.soften(target, 0.1),
        behavior=behavior,
        counts=action_counts(log),
    ).steps(probability=True)
    for name in STEPS:
        np.testing.assert_array_equal(getattr(alone, name)[0], getattr(one, name)[17], name)


# ---------------------------------------------------------------------------------------- one pass


def assert_same(one, two, names):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("horizon", [1, 3, 6, 9])
def test_one_pass_finds_what_two_do_bit_for_bit(problem, shared, horizon):
    model, behavior, target, log = problem
    options = {
        "behavior": behavior,
        "action_noise": "shared" if shared else "fresh",
        "horizon": horizon,
    }
    replay = bf.Replay(log, model, target, discount=0.9, **options).compute()
    result, steps = replay.outcomes(), replay.steps()
    alone = bf.Replay(log, model, target, discount=0.9, **options).outcomes()
    assert_same(result, alone, ("probability", "expected_return", "observed_return"))
    assert (result.horizon, result.discount) == (horizon, 0.9)
    assert_same(steps, Replay(log, model, target, **options).steps(), STEPS[:-1])
    placed = Replay(log, model, target, **options).steps(probability=True)
    assert_same(steps, placed, STEPS[:-1])
    np.testing.assert_allclose(placed.probability.sum(axis=2), 1.0, atol=1e-12)


def test_where_the_state_is_hidden_both_are_returned_too():
    model = random_pomdp(np.random.default_rng(3))
    log = bf.hidden.simulate_pomdp(model, np.full((2, 2), 0.5), 20, horizon=4, seed=1)
    target = np.array([[0.9, 0.1], [0.2, 0.8]])
    replay = bf.Replay(log, model, target, discount=0.9).compute()
    result, steps = replay.outcomes(), replay.steps()
    alone = bf.Replay(log, model, target, discount=0.9).outcomes()
    assert_same(result, alone, ("probability", "expected_return"))
    assert_same(steps, Replay(log, model, target).steps(), STEPS[:-1])


@pytest.mark.parametrize("bytes_kept", [0, 5000])
def test_results_do_not_depend_on_the_rows_that_are_kept(sepsis, monkeypatch, bytes_kept):
    log, model, target = sepsis
    soft = bf.soften(target, 0.1)
    twice = log.select(np.tile(np.arange(100), 2))  # so that rows are asked for again
    found = [bf.Replay(twice, model, soft).compute()]
    changes = [bf.Replay(twice, model, soft).fewest_changes(1)]
    draws = [bf.Replay(twice, model, soft).draws()]
    monkeypatch.setattr(chain, "MOST_KEPT", bytes_kept)
    found.append(bf.Replay(twice, model, soft).compute(threads=1))
    changes.append(bf.Replay(twice, model, soft).fewest_changes(1, threads=1))
    draws.append(bf.Replay(twice, model, soft).draws(threads=1))
    assert_same(found[0].outcomes(), found[1].outcomes(), ("probability", "expected_return"))
    assert_same(found[0].steps(), found[1].steps(), STEPS)
    assert_same(*changes, ("value", "probability", "changed"))
    assert_same(*draws, ("state", "action", "reward"))


def test_rows_that_are_asked_for_again_are_kept(sepsis):
    log, model, target = sepsis
    engine = bf.Replay(log.select([0]), model, target).engine
    work = kernels.make_work(engine.problem)
    first = expected_with(engine, work)
    kept = np.count_nonzero(work.kept.key[:, 0])
    np.testing.assert_array_equal(expected_with(engine, work), first)
    assert np.count_nonzero(work.kept.key[:, 0]) > kept
    np.testing.assert_array_equal(expected_with(engine, work), first)
    # each has a place of its own, and the first places are taken first
    cached = work.kept.key[work.kept.key[:, 0] > 0]
    assert sorted(cached[:, 2]) == list(range(len(cached)))


def expected_with(engine, work):
    """Return the outcome probabilities of the first episode, by this working space."""
    values, outcomes = engine.values
    probability = np.zeros((1, outcomes.shape[2]))
    judged = kernels.Judged(engine.discounts, values, outcomes, probability, np.zeros(1))
    kernels.exact_outcomes(0, 1, engine.problem, work, judged, 0.0)
    return probability


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), min_size=1, max_size=30),
)
def test_the_weighted_median_is_the_least_value_with_half_of_the_mass_up_to_it(pairs):
    value, mass = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    half = mass.sum() / 2
    expected = min(v for v in value if mass[value <= v].sum() >= half)
    assert weighted_median(value, mass, len(pairs), half) == expected


# --------------------------------------------------------------------------------------- bad input


def test_a_transition_of_probability_zero_is_refused_with_its_place(sepsis):
    log, _, target = sepsis
    model = bf.fit_mdp(log.select(np.arange(100)))
    with pytest.raises(ValueError, match=r"episode 1\d\d, step \d+ goes from state \d+ by action"):
        Replay(log, model, target).steps()


def test_an_action_that_the_behavior_never_takes_is_refused(sepsis):
    log, model, target = sepsis
    with pytest.raises(ValueError, match=r"takes action \d in state \d+, which the behavior"):
        Replay(log, model, target, behavior=target).steps()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_noise": "new"}, "'new'.*'shared', 'fresh'"),
        ({"horizon": 0}, "horizon 0"),
        ({"target": np.full((143, 8), 1 / 8)}, r"\(143, 8\), expected \(144, 8\)"),
        ({"behavior": np.full((8, 144), 1 / 144)}, "behavior has shape"),
    ],
)
def test_bad_requests_are_refused(sepsis, arguments, message):
    log, model, target = sepsis
    with pytest.raises(ValueError, match=message):
        Replay(log, model, **{"target": target} | arguments)

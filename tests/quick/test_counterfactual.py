"""Counterfactuals of episodes: identities by enumeration, slow twins, draws, labels, ends."""

import numpy as np
import pytest

import butfor as bf
from butfor.models.planning import state_values, value_tables
from butfor.random import episode_keys
from butfor.replay.outcomes import Counterfactuals
from tests.grids import few
from tests.reference import counterfactual as reference
from tests.support import (
    LABELS,
    enumerated,
    frequencies_agree,
    labelled_model,
    random_policy,
    reference_episodes,
    reference_model,
    simulate_log,
    vary_rewards,
)


@pytest.fixture(scope="module", params=few(range(4), 2))
def problem(request):
    """A model, with plain or shared labels, a behavior, a target and a log."""
    generator = np.random.default_rng(request.param)
    model = labelled_model(generator, LABELS[request.param % 2])
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[0] = np.eye(3)[1]  # deterministic in one state
    return model, behavior, target, vary_rewards(simulate_log(generator, model, behavior, 40, 6))


# ------------------------------------------------------------------------------- identities


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_null_target_equal_to_behavior_gives_back_every_episode(problem, discount):
    model, behavior, _, log = problem
    result = bf.Replay(log, model, behavior, behavior=behavior, discount=discount).outcomes()
    observed = np.zeros_like(result.probability)
    observed[np.arange(len(log)), log.outcome] = 1.0  # -1, the last column, is none
    np.testing.assert_allclose(result.probability, observed, atol=1e-12)
    np.testing.assert_allclose(result.difference, 0.0, atol=1e-12)


def test_null_holds_for_the_estimated_model_and_behavior():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 500, seed=3).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    result = bf.Replay(log, model, bf.estimate_behavior(log)).outcomes()
    np.testing.assert_allclose(result.difference, 0.0, atol=1e-12)


def test_fresh_action_noise_fails_the_null_test(problem):
    model, behavior, _, log = problem
    result = bf.Replay(log, model, behavior, behavior=behavior, action_noise="fresh").outcomes()
    assert np.abs(result.difference).max() > 0.01


@pytest.mark.parametrize("action_noise", ["shared", "fresh"])
@pytest.mark.parametrize("discount", [1.0, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_decomposition_counterfactual_values_average_to_the_target_value(
    seed, action_noise, discount
):
    generator = np.random.default_rng(100 + seed)
    model = labelled_model(generator, LABELS[seed % 2])
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log, weight, first = enumerated(model, behavior, horizon=3)
    result = bf.Replay(
        log, model, target, behavior=behavior, action_noise=action_noise, discount=discount
    ).outcomes()
    by_state = state_values(model, target, horizon=3, discount=discount)
    outcome_tables = value_tables(model, target, horizon=3)[1][-1]
    for state in range(model.n_states):  # conditional on the first observation
        mine = first == state
        np.testing.assert_allclose(weight[mine].sum(), 1.0, rtol=1e-12)
        np.testing.assert_allclose(
            weight[mine] @ result.expected_return[mine], by_state[state], atol=1e-12
        )
        np.testing.assert_allclose(
            weight[mine] @ result.probability[mine], outcome_tables[state], atol=1e-12
        )
    overall = (weight * model.initial[first]) @ result.expected_return
    value = bf.policy_value(model, target, horizon=3, discount=discount)
    np.testing.assert_allclose(overall, value, atol=1e-12)


def test_probabilities_sum_to_one(problem):
    model, behavior, target, log = problem
    result = bf.Replay(log, model, target, behavior=behavior, horizon=15).outcomes()
    np.testing.assert_allclose(result.probability.sum(axis=1), 1.0, rtol=1e-12)


# ------------------------------------------------------------------------- against slow twins


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("continuation", [True, False])
def test_exact_pass_equals_its_slow_twin(problem, shared, continuation):
    model, behavior, target, log = problem
    result = bf.Replay(
        log,
        model,
        target,
        behavior=behavior,
        action_noise="shared" if shared else "fresh",
        horizon=9,
        discount=0.93,
        continuation=continuation,
    ).outcomes()
    for i, episode in enumerate(reference_episodes(log)):
        probability, expected = reference.exact_outcomes(
            reference_model(model),
            episode,
            behavior.tolist(),
            target.tolist(),
            shared=shared,
            horizon=9,
            discount=0.93,
            continuation=continuation,
        )
        np.testing.assert_allclose(result.probability[i], probability, atol=1e-12)
        np.testing.assert_allclose(result.expected_return[i], expected, atol=1e-12)


@pytest.mark.parametrize("continuation", [True, False])
@pytest.mark.parametrize("negligible", [0.02, 0.2])
def test_a_pass_that_leaves_faint_states_to_the_model_equals_its_slow_twin(
    problem, negligible, continuation
):
    model, behavior, target, log = problem
    options = {"behavior": behavior, "horizon": 9, "continuation": continuation}
    replay = bf.Replay(log, model, target, **options)
    masses, returns = replay.engine.push(negligible, threads=1)
    for i, episode in enumerate(reference_episodes(log)):
        probability, expected = reference.exact_outcomes(
            reference_model(model),
            episode,
            behavior.tolist(),
            target.tolist(),
            shared=True,
            horizon=9,
            continuation=continuation,
            negligible=negligible,
        )
        np.testing.assert_allclose(masses[i], probability, atol=1e-12)
        np.testing.assert_allclose(returns[i], expected, atol=1e-12)
    exact = replay.outcomes().probability
    assert np.abs(masses - exact).max() > 0
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(replay.engine.push(0.0, threads=1)[0], exact)


@pytest.mark.parametrize("shared", [True, False])
def test_contributions_equal_their_slow_twin(problem, shared):
    """Taking over at step t instead of t + 1, by passes through what remains of an episode."""
    model, behavior, target, log = problem
    noise = "shared" if shared else "fresh"
    replay = bf.Replay(
        log, model, target, behavior=behavior, action_noise=noise, horizon=9, discount=0.93
    )
    found = np.split(replay.contributions(), log.offsets[1:-1])
    rewards = np.split(log.reward, log.offsets[1:-1])
    for i, episode in enumerate(reference_episodes(log)):
        values = []
        for t in range(len(episode.actions) + 1):
            rest = reference.Episode(*(list(part[t:]) for part in episode))
            if t == len(episode.actions):
                rest = rest._replace(states=[episode.reached[-1]])
            ended = rest.states[0] >= model.n_states
            known = (reference_model(model), rest, behavior.tolist(), target.tolist())
            given = {"shared": shared, "horizon": 9 - t, "discount": 0.93}
            values.append(0.0 if ended else reference.exact_outcomes(*known, **given)[1])
        here, after = np.array(values[:-1]), np.array(values[1:])
        expected = 0.93 ** np.arange(len(here)) * (here - rewards[i] - 0.93 * after)
        np.testing.assert_allclose(found[i], expected, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_draws_equal_their_slow_twin(problem, shared):
    model, behavior, target, log = problem
    noise = "shared" if shared else "fresh"
    drawn = bf.Replay(log, model, target, behavior=behavior, action_noise=noise, horizon=8).draws(
        3, seed=5
    )
    keys = episode_keys(5, log.id, "counterfactual")
    for i, episode in enumerate(reference_episodes(log)):
        for number in range(3):
            states, actions = reference.draw(
                reference_model(model),
                episode,
                behavior.tolist(),
                target.tolist(),
                shared=shared,
                horizon=8,
                key=int(keys[i]),
                number=number,
            )
            padded = states + [-1] * (9 - len(states))
            assert drawn.state[i, number].tolist() == padded
            assert drawn.action[i, number].tolist() == actions + [-1] * (8 - len(actions))


def test_icml2019_ends_equal_the_slow_twin():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 60, seed=8).hide("glucose", "diabetes")
    model = bf.fit_mdp(log, terminal="icml2019")
    target = bf.soften(bf.policy_iteration(model).table, 0.2)
    behavior = bf.estimate_behavior(log, terminal="icml2019")
    result = bf.Replay(log, model, target).outcomes()
    plain = reference_model(model)
    episodes = reference_episodes(log, "icml2019")
    some = [0, 1, 3, 14]
    assert set(log.outcome[some]) == {-1, 0, 1}
    for i in some:
        probability, expected = reference.exact_outcomes(
            plain, episodes[i], behavior.tolist(), target.tolist(), shared=True, horizon=20
        )
        np.testing.assert_allclose(result.probability[i], probability, atol=1e-12)
        np.testing.assert_allclose(result.expected_return[i], expected, atol=1e-12)


# --------------------------------------------------------------------------------------- draws


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log, its model and the target planned on it."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 200, seed=21)
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


def test_draws_have_the_exact_law(problem):
    model, behavior, target, log = problem
    draws = 20_000
    drawn = bf.Replay(log, model, target, behavior=behavior, horizon=6).draws(draws, seed=1)
    exact = bf.Replay(log, model, target, behavior=behavior, horizon=6).outcomes()
    size = exact.probability.shape[1]
    counts = np.stack([(drawn.outcome % size == o).sum(axis=1) for o in range(size)], axis=1)
    assert frequencies_agree(counts, exact.probability, draws)


def test_draws_of_another_policy_fail_that_check(problem):
    model, behavior, target, log = problem
    drawn = bf.Replay(log, model, target, behavior=behavior, action_noise="fresh", horizon=6).draws(
        20_000
    )
    exact = bf.Replay(log, model, target, behavior=behavior, horizon=6).outcomes()
    counts = (drawn.outcome == 0).sum(axis=1)
    assert not frequencies_agree(counts, exact.probability[:, 0], 20_000)


def test_every_draw_is_the_observed_episode_up_to_the_first_different_action(sepsis):
    log, model, target = sepsis
    softened = bf.soften(target, 0.3)
    drawn = bf.Replay(log, model, softened).draws(20)
    shared_steps = 0
    for i, episode in enumerate(reference_episodes(log)):
        for states, actions in zip(drawn.state[i], drawn.action[i], strict=True):
            for t, action in enumerate(episode.actions):
                assert states[t] == episode.states[t]
                if actions[t] != action:
                    break
                assert states[t + 1] == episode.reached[t]
                shared_steps += 1
    assert shared_steps > 1000


def test_returns_of_draws_are_sums_of_their_rewards(problem):
    model, behavior, target, log = problem
    drawn = bf.Replay(log, model, target, behavior=behavior).draws(2)
    plain, episodes = reference_model(model), reference_episodes(log)
    for i in (0, 3):
        states, actions = drawn.state[i, 1], drawn.action[i, 1]
        taken = (actions >= 0).sum()
        rewards = [
            reference.pays(plain, episodes[i], t, states[t], actions[t], states[t + 1])
            for t in range(taken)
        ]
        expected = sum(0.9**t * reward for t, reward in enumerate(rewards))
        np.testing.assert_allclose(drawn.returns(0.9)[i, 1], expected, atol=1e-12)


def test_results_do_not_depend_on_threads_and_one_episode_replays_alone(sepsis):
    log, model, target = sepsis
    target = bf.soften(target, 0.1)
    behavior = bf.estimate_behavior(log)
    one, two = (
        bf.Replay(log, model, target, behavior=behavior).draws(seed=9, threads=threads)
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.state, two.state)
    alone = bf.Replay(log.select([17]), model, target, behavior=behavior).draws(seed=9)
    np.testing.assert_array_equal(alone.state[0], one.state[17])
    exact_one, exact_two = (
        bf.Replay(log, model, target).outcomes(threads=threads) for threads in (1, 2)
    )
    np.testing.assert_array_equal(exact_one.probability, exact_two.probability)
    alone = bf.Replay(log.select([17]), model, target, behavior=behavior).outcomes()
    np.testing.assert_array_equal(alone.probability[0], exact_one.probability[17])


def test_more_draws_keep_the_first_ones(sepsis):
    log, model, target = sepsis
    few, many = (bf.Replay(log, model, target).draws(d, seed=2) for d in (3, 7))
    np.testing.assert_array_equal(few.state, many.state[:, :3])


def test_progress_reaches_the_number_of_episodes(sepsis):
    log, model, target = sepsis
    for method in (bf.Replay.outcomes, bf.Replay.draws):
        calls = []
        method(
            bf.Replay(log, model, target),
            progress=lambda done, total, calls=calls: calls.append((done, total)),
        )
        assert calls[-1] == (200, 200)
        assert [done for done, _ in calls] == sorted(done for done, _ in calls)


# -------------------------------------------------------------------------- labels, ends, results


def test_labels_carry_the_patient_over_where_states_are_disjoint():
    # Two actions write their flag into the next state, 2 * vital + flag: rows of different actions
    # share no state. On states nothing carries over (K = q); on the vital sign the patient who got
    # better keeps getting better, because q raises that chance.
    rows = np.zeros((4, 2, 4))
    rows[:, 0, [0, 2]] = [0.5, 0.5]
    rows[:, 1, [1, 3]] = [0.2, 0.8]
    log = bf.Episodes.from_arrays([0], [0], [2], offsets=[0, 1], states=4, actions=2)
    treat = np.tile([0.0, 1.0], (4, 1))
    laws = []
    for labels in (None, [0, 0, 1, 1]):
        model = bf.TabularMDP.from_arrays(rows, labels=labels)
        drawn = bf.Replay(
            log, model, treat, behavior=np.full((4, 2), 0.5), continuation=False
        ).draws(4000)
        laws.append((drawn.state[0, :, 1] == 3).sum())
    assert frequencies_agree(np.array([laws[0]]), np.array([0.8]), 4000)
    assert laws[1] == 4000


def test_past_the_observed_end_the_model_takes_over():
    # One state, action 0 ends at once, action 1 ends with chance .5 a step. Observed: action 0.
    # Two actions share no noise that matters: after one observed step the rest is P, so with
    # horizon 3 the chance of an end under action 1 is first the counterfactual, then .5 a step.
    rows = np.array([[[0.0, 1.0], [0.5, 0.5]]])
    model = bf.TabularMDP.from_arrays(rows, outcomes=[bf.Outcome("end", 1.0)])
    log = bf.Episodes.from_arrays(
        [0], [0], [0], offsets=[0, 1], outcome=[0], outcomes=model.outcomes, states=1, actions=2
    )
    wait = np.array([[0.0, 1.0]])
    known = {"behavior": np.array([[0.5, 0.5]]), "horizon": 3}
    first = bf.counterfactual_distribution([0, 1], [0.5, 0.5], 1)[1]  # .5: q_k / p_k
    result = bf.Replay(log, model, wait, **known).outcomes()
    np.testing.assert_allclose(result.probability[0, 0], 1 - (1 - first) * 0.25, rtol=1e-14)
    stopped = bf.Replay(log, model, wait, continuation=False, **known).outcomes()
    np.testing.assert_allclose(stopped.probability[0, 0], first, rtol=1e-14)


def test_a_horizon_shorter_than_an_episode_cuts_what_was_observed(problem):
    model, behavior, target, log = problem
    result = bf.Replay(log, model, target, behavior=behavior, horizon=2).outcomes()
    cut = log.lengths > 2
    assert cut.any()
    assert (result.episodes.outcome[cut] == -1).all()
    np.testing.assert_allclose(result.observed_return, log.truncate(2).returns())


def test_the_table_counts_every_episode_once(sepsis):
    log, model, target = sepsis
    result = bf.Replay(log, model, target).outcomes()
    observed = [(log.outcome == o).sum() for o in (0, 1, -1)]
    assert result.table().sum(axis=1).tolist() == observed
    np.testing.assert_allclose(result.table(expected=True).sum(axis=1), observed, rtol=1e-12)
    assert list(result.table().columns) == ["died", "discharged", "still in ICU"]


def test_the_frame_has_a_row_for_each_episode(sepsis):
    log, model, target = sepsis
    frame = bf.Replay(log, model, target).outcomes().frame()
    assert list(frame.columns) == [
        "id",
        "length",
        "observed_outcome",
        "usual_outcome",
        "observed_return",
        "usual_return",
        "p_died",
        "p_discharged",
        "p_none",
        "expected_return",
        "difference",
        "most_likely",
    ]
    assert len(frame) == len(log)
    np.testing.assert_allclose(frame.filter(like="p_").sum(axis=1), 1.0, rtol=1e-12)


def test_a_tie_goes_to_the_earlier_outcome_and_none_comes_last():
    log = bf.Episodes.from_arrays(
        [0, 0],
        [0, 0],
        [0, 0],
        offsets=[0, 1, 2],
        outcomes=[bf.Outcome("bad", -1), bf.Outcome("good", 1)],
        states=1,
        actions=1,
    )
    probability = np.array([[0.4, 0.4, 0.2], [0.3, 0.2, 0.5]])
    none = np.zeros(2)
    usual = {"usual_return": none, "usual_outcome": log.outcome}
    result = Counterfactuals(log, probability, none, none, 1, 1.0, "shared", **usual)
    assert result.most_likely.tolist() == [0, -1]
    assert result.frame()["most_likely"].tolist() == ["bad", "no outcome"]


# --------------------------------------------------------------------------------------- bad input


def test_a_transition_of_probability_zero_is_refused_with_its_place(sepsis):
    log, _, target = sepsis
    model = bf.fit_mdp(log.select(np.arange(100)))
    with pytest.raises(ValueError, match=r"episode 1\d\d, step \d+ goes from state \d+ by action"):
        bf.Replay(log, model, target).outcomes()


def test_an_action_that_the_behavior_never_takes_is_refused(sepsis):
    log, model, target = sepsis
    with pytest.raises(ValueError, match=r"takes action \d in state \d+, which the behavior"):
        bf.Replay(log, model, target, behavior=target).outcomes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_noise": "new"}, "'new'.*'shared', 'fresh'"),
        ({"horizon": 0}, "horizon 0"),
        ({"target": np.full((143, 8), 1 / 8)}, r"\(143, 8\), expected \(144, 8\)"),
        ({"target": np.full((144, 8), 0.1)}, "state 0 sums to 0.8"),
        ({"behavior": np.full((8, 144), 1 / 144)}, "behavior has shape"),
        ({"mechanism": "gumbel"}, "'gumbel'"),
    ],
)
def test_bad_questions_are_refused(sepsis, arguments, message):
    log, model, target = sepsis
    with pytest.raises(ValueError, match=message):
        bf.Replay(log, model, **({"target": target} | arguments))


@pytest.mark.parametrize(
    "method",
    [
        bf.Replay.outcomes,
        bf.Replay.steps,
        bf.Replay.bounds,
        bf.Replay.draws,
        bf.Replay.fewest_changes,
    ],
)
def test_no_threads_are_refused(sepsis, method):
    with pytest.raises(ValueError, match="threads 0"):
        method(bf.Replay(*sepsis), threads=0)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"draws": 0}, "draws 0"), ({"seed": -1}, "seed -1")]
)
def test_bad_draws_and_seeds_are_refused(sepsis, arguments, message):
    with pytest.raises(ValueError, match=message):
        bf.Replay(*sepsis).draws(**arguments)


def test_a_bad_discount_is_refused(sepsis):
    with pytest.raises(ValueError, match=r"discount 1\.5"):
        bf.Replay(*sepsis, discount=1.5)


def test_episodes_of_another_kind_than_the_model_are_refused(sepsis):
    _, model, target = sepsis
    full = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 5)
    with pytest.raises(ValueError, match="1440 states"):
        bf.Replay(full, model, target).outcomes()


# ------------------------------------------------------------------------- the step that matters


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_contributions_of_steps_add_up_to_the_difference(problem, discount):
    model, behavior, target, log = problem
    replay = bf.Replay(log, model, target, behavior=behavior, discount=discount)
    sums = np.add.reduceat(replay.contributions(), log.offsets[:-1])
    np.testing.assert_allclose(sums, replay.outcomes().difference, atol=1e-12)


def test_a_contribution_is_the_value_of_taking_over_one_step_earlier(problem):
    model, behavior, target, log = problem
    contribution = bf.Replay(log, model, target, behavior=behavior, horizon=9).contributions()
    plain, plain_model = reference_episodes(log), reference_model(model)
    for position in (0, 5, 11):
        steps = plain[position]
        values = []
        for t in range(len(steps.states)):
            rest = reference.Episode(*(column[t:] for column in steps))
            _, value = reference.exact_outcomes(
                plain_model, rest, behavior.tolist(), target.tolist(), shared=True, horizon=9 - t
            )
            values.append(value)
        final = steps.reached[-1]
        after = 0.0
        if final < model.n_states:
            left = 9 - len(steps.states)
            after = state_values(model, target, horizon=left)[final]
        rows = slice(log.offsets[position], log.offsets[position + 1])
        expected = np.array(values) - log.reward[rows] - np.array([*values[1:], after])
        np.testing.assert_allclose(contribution[rows], expected, atol=1e-12)


def test_steps_at_which_nothing_differs_contribute_nothing(problem):
    model, behavior, _, log = problem
    contribution = bf.Replay(log, model, behavior, behavior=behavior).contributions()
    np.testing.assert_allclose(contribution, 0.0, atol=1e-12)

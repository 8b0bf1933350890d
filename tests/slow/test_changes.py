"""Fewest changes: hand values, every policy tried, the slow twin, limits, results, bad input."""

from dataclasses import dataclass

import numpy as np
import pytest

import butfor as bf
from tests.grids import few
from tests.reference import changes as reference
from tests.reference import gumbel as gumbel_reference
from tests.reference import mechanisms as mechanisms_reference
from tests.reference.counterfactual import next_law, pays
from tests.support import (
    LABELS,
    labelled_model,
    random_model,
    random_policy,
    reference_episodes,
    reference_model,
    simulate_log,
    vary_rewards,
)


@dataclass(frozen=True)
class HalfAndHalf:
    """A mechanism of a user's own, which kernels do not know."""

    def counterfactual_rows(self, factual, counterfactual, observed):
        coupled = bf.MaximalCoupling().counterfactual_rows(factual, counterfactual, observed)
        return (coupled + counterfactual) / 2


def half_and_half(p, q, k):
    return [(a + b) / 2 for a, b in zip(mechanisms_reference.maximal(p, q, k), q, strict=True)]


MECHANISMS = {
    "gumbel-max": (bf.GumbelMax(), gumbel_reference.counterfactual_distribution),
    "inverse cdf": (bf.InverseCDF(), mechanisms_reference.inverse_cdf),
    "maximal": (bf.MaximalCoupling(), mechanisms_reference.maximal),
    "independent": (bf.Independent(), mechanisms_reference.independent),
    "half and half": (HalfAndHalf(), half_and_half),
}


@pytest.fixture(scope="module", params=["states", "labels"])
def problem(request):
    """A model with noise on states or on labels, and a log."""
    generator = np.random.default_rng(len(request.param))
    model = labelled_model(generator, LABELS[request.param == "labels"])
    log = simulate_log(generator, model, random_policy(generator, model), 25, 5)
    return model, vary_rewards(log)


@pytest.fixture(scope="module")
def sepsis():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 100, seed=4).hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(3)


def two_steps():
    """Two observed steps of action 0, from state 0 to state 1 to a bad end.

    Action 1 in state 0 leads to the good end with chance .5, in state 1 with chance .8; action 0
    never does. No outcome of action 1 is one that action 0 allows, so that nothing carries over.
    """
    rows = np.zeros((2, 2, 5))
    rows[0, 0, 1] = rows[1, 0, 2] = 1.0
    rows[0, 1, [3, 4]] = 0.5
    rows[1, 1, [3, 4]] = 0.8, 0.2
    outcomes = [bf.Outcome("bad", -1.0), bf.Outcome("good", 1.0), bf.Outcome("so so", 0.0)]
    model = bf.TabularMDP.from_arrays(rows, outcomes=outcomes)
    log = bf.Episodes.from_arrays(
        [0, 1],
        [0, 0],
        [1, 1],
        offsets=[0, 2],
        outcome=[0],
        outcomes=outcomes,
        states=2,
        actions=2,
        id=["a"],
    )
    return log, model


def test_worked_example_one_change_at_the_second_step_is_best():
    log, model = two_steps()
    found = bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(2)
    # unchanged -1; the first changed .5; the second changed .8; a second change adds nothing
    np.testing.assert_allclose(found.value, [[-1.0, 0.8, 0.8]], atol=1e-15)
    np.testing.assert_allclose(found.gain, [[0.0, 1.8, 1.8]], atol=1e-15)
    np.testing.assert_allclose(found.probability[0, 1], [0, 0.8, 0.2, 0], atol=1e-15)
    assert found.first_step.tolist() == [[-1, 1, 1]]
    frame = found.frame()
    assert frame["instead"].tolist() == [-1, 1, 1]
    assert frame["given"].tolist() == [-1, 0, 0]
    steps = found.steps()
    assert steps["step"].tolist() == [1, 1]
    assert steps["changes"].tolist() == [1, 2]
    assert steps["probability"].tolist() == [1.0, 1.0]
    discounted = bf.Replay(log, model, bf.estimate_behavior(log), discount=0.5).fewest_changes(1)
    np.testing.assert_allclose(discounted.value, [[-0.5, 0.5]])  # now .5 at once beats .8 / 2
    assert discounted.first_step.tolist() == [[-1, 0]]


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_no_policy_with_so_few_changes_does_better(seed):
    generator = np.random.default_rng(seed)
    model = random_model(generator, states=2, actions=3, outcomes=2)
    log = vary_rewards(simulate_log(generator, model, random_policy(generator, model), 60, 3))
    long = np.flatnonzero(log.lengths == 3)[:3]
    found = bf.Replay(
        log.select(long), model, bf.estimate_behavior(log.select(long))
    ).fewest_changes(3)
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log.select(long))):
        for changes in range(4):
            best = reference.best_of_every_policy(plain, episode, changes)
            np.testing.assert_allclose(found.value[i, changes], best, atol=1e-9)


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_values_equal_the_slow_twin(problem, kind, discount):
    model, log = problem
    mechanism, rule = MECHANISMS[kind]
    found = bf.Replay(
        log, model, bf.estimate_behavior(log), mechanism=mechanism, discount=discount
    ).fewest_changes(2)
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)[:10]):
        for changes in range(3):
            best = reference.best_value(plain, episode, changes, discount=discount, rule=rule)
            np.testing.assert_allclose(found.value[i, changes], best, atol=1e-9)


def test_no_change_gives_what_was_observed(problem):
    model, log = problem
    for kind in MECHANISMS:
        found = bf.Replay(
            log, model, bf.estimate_behavior(log), mechanism=MECHANISMS[kind][0]
        ).fewest_changes(0)
        np.testing.assert_allclose(found.value[:, 0], log.returns(), atol=1e-12)
        np.testing.assert_array_equal(found.probability[:, 0], np.eye(3)[log.outcome])
        assert (found.changed == 0).all()
        assert (found.first_step == -1).all()


def test_more_changes_never_do_worse_and_enough_do_the_best(problem):
    model, log = problem
    found = bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(
        6
    )  # no episode has more than five steps
    assert (np.diff(found.value, axis=1) >= -1e-12).all()
    assert (found.gain >= 0).all()
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)):
        best = dict.fromkeys(range(model.n_states), 0.0)
        for t in reversed(range(len(episode.states))):
            best = {
                s: max(
                    sum(
                        moved * (pays(plain, episode, t, s, a, x) + best.get(x, 0.0))
                        for x, moved in next_law(plain, episode, t, s, a).items()
                    )
                    for a in range(model.n_actions)
                )
                for s in range(model.n_states)
            }
        np.testing.assert_allclose(found.value[i, -1], best[episode.states[0]], atol=1e-9)
        np.testing.assert_allclose(found.value[i, len(episode.states)], found.value[i, -1])


def check_plans(log, found):
    """Whether probabilities are such, and no more is changed than allowed."""
    budget = found.value.shape[1]
    np.testing.assert_allclose(found.probability.sum(axis=2), 1.0, rtol=1e-12)
    by_step = found.changed.sum(axis=2)
    assert (found.changed >= 0).all()
    assert (by_step <= 1 + 1e-12).all()
    assert (found.changed[np.arange(len(log.action)), :, log.action] == 0).all()
    expected = np.add.reduceat(by_step, log.offsets[:-1], axis=0)
    assert (expected <= np.arange(budget) + 1e-12).all()
    # up to the first change nothing is changed, and there it is changed for certain
    first = found.first_step
    for i in range(len(log)):
        for c in range(budget):
            mine = found.changed[log.offsets[i] : log.offsets[i + 1], c]
            assert (first[i, c] < 0) == (found.gain[i, c] <= 1e-12) == (mine.max() == 0)
            if first[i, c] >= 0:
                assert (mine[: first[i, c]] == 0).all()
                np.testing.assert_allclose(mine[first[i, c]].max(), 1.0, atol=1e-12)


def test_plans_change_no_more_than_allowed_and_their_first_change_is_certain(problem, sepsis):
    model, log = problem
    check_plans(log, bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(3))
    check_plans(sepsis[0], sepsis[2])
    assert (sepsis[2].first_step[:, 1] >= 0).sum() > 10


def test_where_rewards_come_with_outcomes_only_the_value_is_their_chance(sepsis):
    _, model, found = sepsis
    reward = np.array([*(outcome.reward for outcome in model.outcomes), 0.0])
    np.testing.assert_allclose(found.probability @ reward, found.value, atol=1e-12)


def test_one_change_is_a_replay_that_takes_another_action_once(problem):
    # follow the plan for one change by hand: the observed action at every other step
    model, log = problem
    found = bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(1)
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)):
        first = found.first_step[i, 1]
        if first < 0:
            continue
        actions = list(episode.actions)
        actions[first] = int(found.changed[log.offsets[i] + first, 1].argmax())
        present, earned = {episode.states[0]: 1.0}, 0.0
        for t, action in enumerate(actions):
            following = {}
            for s, mass in present.items():
                for x, moved in next_law(plain, episode, t, s, action).items():
                    earned += mass * moved * pays(plain, episode, t, s, action, x)
                    if x < model.n_states:
                        following[x] = following.get(x, 0.0) + mass * moved
            present = following
        np.testing.assert_allclose(found.value[i, 1], earned, atol=1e-9)


def test_frames_have_a_row_for_each_episode_and_number_of_changes(sepsis):
    log, _, found = sepsis
    frame = found.frame()
    assert list(frame.columns) == [
        "id",
        "changes",
        "value",
        "gain",
        "p_died",
        "p_discharged",
        "p_none",
        "first_step",
        "given",
        "instead",
        "first_change",
    ]
    assert len(frame) == 4 * len(log)
    assert frame["changes"].tolist()[:5] == [0, 1, 2, 3, 0]
    helped = frame[frame["first_step"] >= 0]
    row = log.offsets[:-1][helped["id"].to_numpy()] + helped["first_step"]
    np.testing.assert_array_equal(helped["given"], log.action[row])
    assert (helped["given"] != helped["instead"]).all()
    steps = found.steps()
    assert list(steps.columns) == ["id", "changes", "step", "given", "instead", "probability"]
    assert (steps["probability"] >= 0.005).all()
    assert (steps["given"] != steps["instead"]).all()
    certain = steps[steps["changes"] == 1].groupby("id")["probability"].max()
    np.testing.assert_allclose(certain, 1.0, atol=1e-12)  # one change is the first change


def test_changes_do_not_depend_on_threads_or_on_other_episodes(sepsis):
    log, model, found = sepsis
    calls = []
    one = bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(
        threads=1, progress=lambda done, total: calls.append((done, total))
    )
    assert calls[-1] == (100, 100)
    np.testing.assert_array_equal(one.value, found.value)
    np.testing.assert_array_equal(one.changed, found.changed)
    alone = bf.Replay(
        log.select([17]), model, bf.estimate_behavior(log.select([17]))
    ).fewest_changes()
    np.testing.assert_array_equal(alone.value[0], found.value[17])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (-1, "changes -1: give a whole number, at least 0"),
        (1.5, r"changes 1\.5"),
    ],
)
def test_bad_numbers_of_changes_are_refused(sepsis, changes, message):
    log, model, _ = sepsis
    with pytest.raises(ValueError, match=message):
        bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(changes)


def test_a_model_whose_outcomes_come_after_the_observed_end_is_refused(sepsis):
    log = sepsis[0]
    with pytest.raises(ValueError, match=r"'icml2019' ends.*fit it with terminal='visits'"):
        bf.Replay(
            log, bf.fit_mdp(log, terminal="icml2019"), bf.estimate_behavior(log)
        ).fewest_changes()


def test_a_transition_of_probability_zero_is_refused_with_its_place(sepsis):
    log = sepsis[0]
    model = bf.fit_mdp(log.select(np.arange(50)))
    with pytest.raises(ValueError, match=r"episode \d\d, step \d+ goes from state \d+ by action"):
        bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes()

"""Replay: a question checked once, its answers kept, and other questions made of it."""

import gc
import weakref
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.replay.replay import as_replay, refuse_hidden
from tests.builders import random_log, ward_log
from tests.hidden import random_pomdp

OPTIONS = {
    "mechanism": bf.MaximalCoupling(),
    "action_noise": "fresh",
    "horizon": 4,
    "discount": 0.9,
    "continuation": False,
}
STEPS = ("influence", "mass", "earned", "evidence", "thin", "other", "apart")


@pytest.fixture(scope="module")
def question():
    """A log in which some pairs were never seen, its model and a random target."""
    log = random_log(np.random.default_rng(3), episodes=20, longest=5)
    model = bf.fit_mdp(log)
    assert model.unseen.any()
    return log, model, bf.soften(bf.policy_iteration(model).table, 0.3)


@pytest.fixture(scope="module")
def hidden():
    model = random_pomdp(np.random.default_rng(3))
    log = bf.hidden.simulate_pomdp(model, np.full((2, 2), 0.5), 12, horizon=4, seed=1)
    return log, model, np.array([[0.9, 0.1], [0.2, 0.8]])


def assert_same(one, other, names):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# ------------------------------------------------------------------------------ checked once


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": np.ones((12, 2)) / 2}, r"target has shape \(12, 2\), expected \(12, 3\)"),
        ({"target": np.full((12, 3), 0.5)}, r"target: state 0 sums to 1\.5, not to 1"),
        ({"behavior": np.ones((3, 12))}, r"behavior has shape \(3, 12\)"),
        ({"behavior": bf.hidden.LatentPolicy(np.ones((2, 1)))}, "needs a TabularPOMDP"),
        ({"model": "a model"}, "TabularMDP"),
        ({"mechanism": bf.GumbelMax}, "give one of GumbelMax"),
        ({"action_noise": "new"}, "action_noise 'new': give one of 'shared', 'fresh'"),
        ({"horizon": 0}, "horizon 0"),
        ({"discount": 1.5}, r"discount 1\.5"),
        ({"behavior_probability": [0.5]}, r"has shape \(1,\), expected \(\d+,\)"),
        ({"counts": np.zeros((12, 3))}, r"whole numbers of shape \(12, 3\), got float64"),
        ({"counts": np.zeros((12, 3), int)}, "these episodes alone have"),
        ({"episodes": ward_log()}, "the episodes have 3 states and 2 actions, the model 12 and 3"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_what_is_wrong(question, wrong, message):
    log, model, target = question
    with pytest.raises(ValueError, match=message):
        bf.Replay(**({"episodes": log, "model": model, "target": target} | wrong))


def test_a_probability_that_cannot_be_is_refused_with_its_row(question):
    log = question[0]
    probability = np.full(len(log.state), 0.5)
    probability[7] = 0.0
    with pytest.raises(ValueError, match=r"behavior_probability of row 7 \(.*\) is 0\.0"):
        bf.Replay(*question, behavior_probability=probability)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda replay: replay.draws(0), "draws 0"),
        (lambda replay: replay.fewest_changes(-1), "changes -1"),
        (lambda replay: replay.outcomes(threads=0), "threads 0"),
        (lambda replay: replay.posterior(), "the state of this model is observed"),
        (lambda replay: replay.pomdp, "TabularPOMDP"),
    ],
)
def test_answers_that_make_no_sense_are_refused(question, call, message):
    with pytest.raises(ValueError, match=message):
        call(bf.Replay(*question))


def test_a_question_does_not_change(question):
    replay = bf.Replay(*question)
    for name in ("mechanism", "horizon", "target", "behavior_given"):
        with pytest.raises(FrozenInstanceError):
            setattr(replay, name, None)


def test_defaults_are_those_of_the_log(question):
    log, model, target = question
    replay = bf.Replay(log, model, target.tolist())
    assert replay.mechanism == bf.GumbelMax()
    assert (replay.action_noise, replay.discount) == ("shared", 1.0)
    assert replay.horizon == log.horizon
    assert not replay.behavior_given
    assert not replay.hidden
    assert len(replay) == len(log)
    np.testing.assert_array_equal(replay.behavior, bf.estimate_behavior(log))
    assert replay.counts.sum() == len(log.state)


def test_episodes_are_cut_at_the_horizon(question):
    log = question[0]
    replay = bf.Replay(*question, horizon=2)
    assert replay.episodes is log
    assert replay.log.lengths.max() == 2
    np.testing.assert_array_equal(replay.observed_return, log.truncate(2).returns(1.0))


# ---------------------------------------------------------------------------- answers are kept


@pytest.mark.parametrize(
    "method", ["outcomes", "steps", "support", "bounds", "contributions", "actions"]
)
def test_an_answer_is_computed_once(question, method):
    replay = bf.Replay(*question)
    assert getattr(replay, method)() is getattr(replay, method)()


@pytest.mark.parametrize("kind", ["question", "hidden"])
def test_a_question_is_freed_as_soon_as_nobody_asks_it(kind, request):
    gc.collect()
    gc.disable()  # many questions about parts of a log would pile up until it runs
    try:
        replay = bf.Replay(*request.getfixturevalue(kind)).compute()
        replay.draws(2)
        known = weakref.ref(replay.log), weakref.ref(replay.engine)
        del replay
        assert [one() for one in known] == [None, None]
    finally:
        gc.enable()


def test_other_ways_to_ask_are_other_answers(question):
    replay = bf.Replay(*question)
    assert replay.steps(probability=True) is not replay.steps()


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "with options"])
@pytest.mark.parametrize("kind", ["question", "hidden"])
def test_one_pass_gives_what_each_answer_gives_alone(kind, options, request):
    asked = request.getfixturevalue(kind)
    replay = bf.Replay(*asked, **options)
    assert replay.compute() is replay
    outcomes = bf.Replay(*asked, **options).outcomes()
    assert_same(replay.outcomes(), outcomes, ("probability", "expected_return", "observed_return"))
    assert_same(replay.steps(), bf.Replay(*asked, **options).steps(), STEPS)
    # the support that outcomes found on their way is that of the one pass
    alone = bf.Replay(*asked, **options)
    alone.outcomes()
    np.testing.assert_array_equal(replay.support(), alone.support())
    np.testing.assert_allclose(
        replay.support(), bf.Replay(*asked, **options).support(), rtol=0, atol=1e-14
    )


def test_computing_again_does_not_replace_what_is_known(question):
    replay = bf.Replay(*question).compute()
    known = replay.outcomes(), replay.steps(), replay.support()
    replay.compute()
    assert (replay.outcomes(), replay.steps(), replay.support()) == known


def test_outcomes_that_are_given_are_kept_if_they_are_of_this_question(question):
    outcomes = bf.Replay(*question).outcomes()
    assert bf.Replay(*question).keep(outcomes).outcomes() is outcomes
    with pytest.raises(ValueError, match="are of 20 episodes that differ from the 3 given"):
        bf.Replay(*question).part([0, 1, 2]).keep(outcomes)
    with pytest.raises(ValueError, match=r"horizon 5 and discount 1\.0, not 5 and 0\.5"):
        bf.Replay(*question, discount=0.5).keep(outcomes)


# ------------------------------------------------------------------------------ other questions


def test_another_log_gets_its_own_estimated_behavior_but_keeps_a_given_one(question):
    log, model, target = question
    half = log.select(np.arange(10))
    found = bf.Replay(*question).ask(episodes=half)
    np.testing.assert_array_equal(found.behavior, bf.estimate_behavior(half))
    given = bf.soften(bf.estimate_behavior(log), 0.2)
    found = bf.Replay(log, model, target, behavior=given).ask(episodes=half)
    np.testing.assert_allclose(found.behavior, given, rtol=1e-15)
    pinned = bf.Replay(*question).pin_behavior().ask(episodes=half)
    np.testing.assert_allclose(pinned.behavior, bf.estimate_behavior(log), rtol=1e-15)


def test_another_question_keeps_every_option(question):
    log, _, target = question
    replay = bf.Replay(*question, **OPTIONS)
    rolled = np.roll(target, 1, axis=1)
    for other in (
        replay.ask(episodes=log.select(np.arange(10))),
        replay.ask(target=rolled),
        replay.ask(model=bf.fit_mdp(log, prior=0.1)),
        replay.part([3, 5]),
        replay.pin_behavior(),
    ):
        for name, value in OPTIONS.items():
            assert getattr(other, name) == value, name
    np.testing.assert_allclose(replay.ask(target=rolled).target, rolled, rtol=1e-15)


def test_a_part_has_behavior_and_counts_of_the_whole_log(question):
    probability = np.linspace(0.1, 0.9, len(question[0].state))
    replay = bf.Replay(*question, behavior_probability=probability).compute()
    chosen = [2, 11, 17]
    part = replay.part(chosen)
    np.testing.assert_allclose(part.behavior, replay.behavior, rtol=1e-15)
    np.testing.assert_array_equal(part.counts, replay.counts)
    rows = replay.episodes.rows_of(chosen)
    np.testing.assert_array_equal(part.log.behavior_probability, probability[rows])
    assert part.log.id.tolist() == replay.log.id[chosen].tolist()
    for name in ("expected_return", "probability"):
        whole = getattr(replay.outcomes(), name)[chosen]
        np.testing.assert_allclose(getattr(part.outcomes(), name), whole, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(
        part.steps().evidence_min, replay.steps().evidence_min[np.array(chosen)]
    )
    drawn, whole = part.draws(3, seed=1), replay.draws(3, seed=1)
    np.testing.assert_array_equal(drawn.state, whole.state[chosen])


def test_parts_that_share_what_does_not_depend_on_them_find_the_same(question):
    log, model, target = question
    lasting = {}
    whole = bf.Replay(log, model, target, behavior=bf.estimate_behavior(log))
    for chosen in (np.arange(12), np.arange(12, 20), np.arange(12)):
        alone, part = whole.part(chosen).compute(), whole.part(chosen).share(lasting).compute()
        again = part.part(np.arange(3, len(chosen))).compute()
        assert_same(part.steps(), alone.steps(), STEPS)
        for found in ("probability", "expected_return"):
            known = getattr(alone.outcomes(), found)
            np.testing.assert_array_equal(getattr(part.outcomes(), found), known)
            np.testing.assert_array_equal(getattr(again.outcomes(), found), known[3:])
    assert lasting.get("marked spaces") or lasting.get("spaces")
    other = bf.policy_iteration(model).table  # another question shares nothing
    known = whole.part(chosen).ask(target=other).outcomes().probability
    np.testing.assert_array_equal(part.ask(target=other).outcomes().probability, known)


def test_probabilities_travel_with_the_log(question):
    log, model, target = question
    given = np.linspace(0.1, 0.9, len(log.state))
    known = log.with_behavior_probability(given)
    expected = EpisodeColumns(bf.Replay(*question, behavior_probability=given)).ratio
    assert not np.allclose(EpisodeColumns(bf.Replay(*question)).ratio, expected)
    replay = bf.Replay(known, model, target)
    np.testing.assert_array_equal(EpisodeColumns(replay).ratio, expected)
    np.testing.assert_array_equal(EpisodeColumns(replay.ask(target=target)).ratio, expected)
    cut = bf.Replay(known, model, target, horizon=2)
    np.testing.assert_array_equal(EpisodeColumns(cut).ratio, expected[:, :2])
    chosen = [5, 0, 5]
    several = replay.ask(episodes=known.select(chosen))
    np.testing.assert_array_equal(EpisodeColumns(several).ratio, expected[chosen])
    other = replay.ask(episodes=log)  # which has none
    assert other.log.behavior_probability is None


def test_functions_take_a_question_or_what_it_is_made_of(question):
    asked = bf.Replay(*question, **{n: v for n, v in OPTIONS.items() if n != "continuation"})
    loose = {name: OPTIONS[name] for name in ("mechanism", "action_noise", "horizon")}
    whole = bf.estimate_values(asked, resamples=5)
    assert whole.equals(bf.estimate_values(*question, discount=0.9, **loose, resamples=5))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"target": np.full((12, 3), 1 / 3)}, "target"),
        ({"behavior": np.full((12, 3), 1 / 3)}, "behavior"),
        ({"behavior_probability": [0.5]}, "behavior_probability"),
        ({"mechanism": bf.GumbelMax()}, "mechanism"),
        ({"action_noise": "fresh"}, "action_noise"),
        ({"horizon": 5}, "horizon"),
        ({"discount": 0.9}, "discount"),
    ],
)
def test_beside_a_question_nothing_else_is_asked(question, given, name):
    replay = bf.Replay(*question)
    assert as_replay(replay, None, None) is replay
    for function in (bf.estimate_values, bf.run_audit):
        with pytest.raises(ValueError, match=f"{name} is part of the question"):
            function(replay, **given)


def test_half_a_question_is_refused(question):
    log, model, _ = question
    with pytest.raises(ValueError, match="a log with its model and the target"):
        as_replay(log, model, None)


# -------------------------------------------------------------------------------- hidden states


def test_with_a_hidden_state_what_has_no_meaning_is_refused(hidden):
    log = hidden[0]
    replay = bf.Replay(*hidden)
    assert replay.hidden
    assert not replay.support().any()
    assert replay.posterior() is replay.posterior()
    with pytest.raises(
        ValueError, match="behavior_probability: not available for a model with a hidden"
    ):
        bf.Replay(*hidden, behavior_probability=np.full(len(log.state), 0.5))
    with pytest.raises(ValueError, match="counts: with a hidden state they follow from"):
        bf.Replay(*hidden, counts=np.full((2, 2), 100))
    with pytest.raises(ValueError, match="fewest_changes: not available with a hidden state"):
        replay.fewest_changes(1)
    with pytest.raises(ValueError, match="values of states are not available"):
        replay.engine.logged_values()
    with pytest.raises(ValueError, match="TabularMDP"):
        _ = replay.mdp
    with pytest.raises(ValueError, match="learn: not available for a model with a hidden"):
        refuse_hidden(replay, draws=None, relearn=False, learn=bf.fit_mdp)


def test_a_target_that_sees_the_hidden_state_has_no_table(hidden):
    log, model, _ = hidden
    target = bf.hidden.LatentPolicy(np.full((model.n_states, 2), 0.5))
    replay = bf.Replay(log, model, target)
    assert len(replay.outcomes().expected_return) == len(log)
    with pytest.raises(
        ValueError,
        match="only a policy on the last observation is accepted here, not a LatentPolicy",
    ):
        _ = replay.target_table

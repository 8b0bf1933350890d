"""Hidden states: what is wrong with an input is said, with its place and what to do."""

import numpy as np
import pytest

import butfor as bf
from tests.hidden import OUTCOMES, random_agents, random_pomdp
from tests.support import labelled_model

MOVES = np.array([[[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]], [[0.0, 0.0, 1.0]]])
SHOWN = np.array([[1.0, 0.0], [0.25, 0.75], [0.0, 0.0]])
GIVEN = {
    "transition": MOVES,
    "emission": SHOWN,
    "initial": [0.5, 0.5, 0.0],
    "outcome": [-1, -1, 1],
    "outcomes": OUTCOMES,
}


def made(**changes):
    return bf.hidden.TabularPOMDP.from_arrays(**(GIVEN | changes))


def changed(array, place, value):
    copy = np.array(array)
    copy[place] = value
    return copy


def log_of(state, next_state, **changes):
    given = {
        "action": [0] * len(state),
        "offsets": [0, len(state)],
        "states": 2,
        "actions": 1,
        "outcome": [-1],
        "outcomes": OUTCOMES,
    }
    return bf.Episodes.from_arrays(state=state, next_state=next_state, **(given | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"emission": changed(SHOWN, (1, 1), 0.5)}, "row of state 1 sums to 0.75, not to 1"),
        (
            {"emission": changed(SHOWN, (0, 0), -1.0)},
            "state 0 has probability -1.0 of observation 0",
        ),
        ({"emission": changed(SHOWN, (0, 0), np.nan)}, "probability nan of observation 0"),
        ({"emission": SHOWN[:2]}, "expected \\(3, observations\\)"),
        ({"emission": [0, -1, -1]}, "state 1 shows observation -1; number them from 0"),
        ({"emission": [0, 1.5, 1]}, "expected a whole number"),
        ({"outcome": [-1, -1, 2]}, "outcome of state 2 is 2, but there are 2 outcomes"),
        ({"outcome": [-1, 1]}, "expected \\(3,\\), one per state"),
        ({"initial": [0.0, 0.5, 0.5]}, "state 2 is an end"),
        ({"initial": [0.5, 0.2, 0.0]}, "initial: .* sums to 0.7"),
        ({"transition": MOVES[:, :, :2]}, "ends are states too"),
        ({"transition": changed(MOVES, (0, 0, 0), 0.7)}, "state 0, action 0 sums to 1.2"),
        ({"labels": [0, 0, 1]}, "have the same label"),
        ({"states": [bf.Variable("x", ("a", "b"))]}, "2 combinations of levels, but there are 3"),
        (
            {"states": [bf.Variable("x", ("a", "b", "c"), static=True)]},
            "x should never change, but state 0 can go to state 1",
        ),
        (
            {"outcome": [-1, 0, 1], "initial": [1.0, 0.0, 0.0]},
            "the end 2 shows nothing, other ends show something",
        ),
    ],
)
def test_models_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([[1.0]], [[1, 0]], 0), "following names node 1, but there are 1"),
        (([[1.0]], [[0, 0]], 3), "first names node 3"),
        (([[0.4]], [[0, 0]], 0), "node 0 sums to 0.4"),
        (([[1.0]], [0, 0], 0), "following has shape"),
        (([[1.0]], [[0, 0]], [0, 0, 0]), "first has shape"),
    ],
)
def test_controllers_that_cannot_be_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        bf.hidden.FiniteController.from_arrays(*given)


def test_policies_for_other_models_are_refused():
    model, log = made(), log_of([0, 1], [1, 1])
    unknown = bf.hidden.FiniteController.from_arrays([[1.0]], [[0, 0, 0]])
    with pytest.raises(ValueError, match="has 3 observations, the model 2"):
        bf.Replay(log, model, unknown).outcomes()
    more = bf.hidden.FiniteController.from_arrays([[0.5, 0.5]], [[0, 0]])
    with pytest.raises(ValueError, match="the controller has 2 actions, the model 1"):
        bf.Replay(log, model, more).outcomes()
    with pytest.raises(ValueError, match="give LatentPolicy"):
        bf.Replay(log, model, np.ones((3, 1))).outcomes()
    with pytest.raises(ValueError, match="target on hidden states has shape"):
        bf.Replay(log, model, bf.hidden.LatentPolicy(np.ones((2, 1)))).outcomes()
    policy = bf.hidden.BeliefPolicy(lambda beliefs: np.ones((len(beliefs), 2)))
    with pytest.raises(ValueError, match="returned shape"):
        bf.hidden.simulate_pomdp(model, policy, 3, horizon=2)


def test_a_policy_on_beliefs_is_no_target_but_simulates_and_can_be_the_behavior():
    model, log = made(), log_of([0, 1], [1, 1])
    policy = bf.hidden.BeliefPolicy(lambda beliefs: np.ones((len(beliefs), 1)))
    words = "a policy on beliefs has infinitely many .*; give a FiniteController, or simulate it"
    for refused in (
        lambda: bf.Replay(log, model, policy),
        lambda: bf.run_audit(log, model, policy),
        lambda: bf.hidden.pomdp_value(model, policy, horizon=3),
    ):
        with pytest.raises(ValueError, match=words):
            refused()
    assert len(bf.hidden.simulate_pomdp(model, policy, 3, horizon=2)) == 3
    assert len(bf.Replay(log, model, np.ones((2, 1)), behavior=policy).outcomes().probability) == 1


def test_hidden_policies_need_a_hidden_state():
    log = log_of([0, 1], [1, 1])
    model = bf.TabularMDP.from_arrays(np.full((2, 1, 4), 0.25), outcomes=log.outcomes)
    for policy in (bf.hidden.LatentPolicy(np.ones((2, 1))), bf.hidden.BeliefPolicy(lambda b: b)):
        with pytest.raises(ValueError, match="needs a TabularPOMDP"):
            bf.Replay(log, model, policy).outcomes()


def test_an_impossible_episode_is_an_error_that_names_the_step():
    model = made()
    target = np.ones((2, 1))
    never = log_of([0, 1, 0], [1, 0, 0], id=["stay 7"])  # from observation 1, state 1, never back
    possible = log_of([0, 0, 1], [0, 1, 1])
    bf.Replay(possible, model, target).outcomes()
    only = made(emission=[0, 1, -1])
    with pytest.raises(ValueError, match=r"episode stay 7, step 2: .* observation 0 after act"):
        bf.Replay(never, only, target).outcomes()
    ended = log_of([0], [0], outcome=[1], reward=[1.0])
    first = made(initial=[1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"step 1: .* outcome 'home'"):
        bf.hidden.latent_posterior(ended, first)
    paid = log_of([0, 1], [1, 1], reward=[0.0, 3.0])
    with pytest.raises(ValueError, match=r"step 2: .* reward 3 .*reward_seen=False"):
        bf.hidden.latent_posterior(paid, model)
    assert np.isfinite(bf.hidden.latent_posterior(paid, made(reward_seen=False)).log_evidence).all()


def test_actions_that_a_behavior_never_takes_are_refused():
    generator = np.random.default_rng(1)
    model = random_pomdp(generator)
    agents = random_agents(generator, model)
    log = bf.Episodes.from_arrays(
        [0], [1], [0], offsets=[0, 1], states=2, actions=2, outcomes=OUTCOMES, reward=[0.0]
    )
    never = np.array([[1.0, 0.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match="episode 0, step 0 takes action 1, which the behavior"):
        bf.Replay(log, model, agents["seen"], behavior=never).outcomes()
    latent = bf.hidden.LatentPolicy(np.tile([1.0, 0.0], (model.n_states, 1)))
    with pytest.raises(ValueError, match=r"step 0: .* action 1 of a behavior that sees the state"):
        bf.Replay(log, model, agents["seen"], behavior=latent).outcomes()


def test_logs_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="3 observations, 1 actions and 2 outcomes, the model 2"):
        bf.hidden.latent_posterior(log_of([0], [1], states=3), made())


def test_mechanisms_that_kernels_do_not_know_are_refused():
    class Own:
        def counterfactual_rows(self, factual, counterfactual, observed):
            return counterfactual

    with pytest.raises(ValueError, match="a mechanism with a method `coupling`"):
        bf.Replay(log_of([0], [1]), made(), np.ones((2, 1)), mechanism=Own()).outcomes()


def test_estimators_by_weighting_are_refused_where_the_state_is_hidden():
    with pytest.raises(ValueError, match="'WIS' is not available for a model with a hidden state"):
        bf.estimate_values(log_of([0], [1]), made(), np.ones((2, 1)), estimators=["WIS"])


def test_models_that_count_ends_otherwise_are_refused():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 50).hide("glucose", "diabetes")
    with pytest.raises(ValueError, match="terminal='visits'"):
        bf.hidden.TabularPOMDP.from_mdp(bf.fit_mdp(log, terminal="icml2019"))


def test_models_of_the_other_kind_are_refused_by_name():
    hidden, log = made(), log_of([0, 1], [1, 1])
    plain = labelled_model(np.random.default_rng(0), None)
    one = np.ones((2, 1))
    for call in (
        lambda: bf.policy_iteration(hidden),
        lambda: bf.policy_value(hidden, one, horizon=2),
        lambda: bf.Replay(log, hidden, one).mdp,
    ):
        with pytest.raises(ValueError, match="a TabularPOMDP, expected a TabularMDP"):
            call()
    for call in (
        lambda: bf.hidden.latent_posterior(log, plain),
        lambda: bf.hidden.pomdp_value(plain, one, horizon=2),
        lambda: bf.hidden.fit_latent_behavior(log, plain),
    ):
        with pytest.raises(ValueError, match="a TabularMDP, expected a TabularPOMDP"):
            call()
    with pytest.raises(ValueError, match="behavior is a str; give an array"):
        bf.Replay(log, hidden, one, behavior="clinician").outcomes()


def test_arguments_that_mean_nothing_with_a_hidden_state_are_refused():
    model, log, target = made(), log_of([0, 1], [1, 1]), np.ones((2, 1))
    with pytest.raises(ValueError, match="learn: not available for a model with a hidden state"):
        bf.run_audit(log, model, target, learn=lambda log: (model, target))
    with pytest.raises(ValueError, match="behavior_probability: not available for a model"):
        bf.Replay(log, model, target, behavior_probability=[1.0, 1.0])
    with pytest.raises(ValueError, match="'True' needs truth"):
        bf.estimate_values(log, model, target, estimators="True")
    with pytest.raises(ValueError, match="resamples -3"):
        bf.estimate_values(log, model, target, resamples=-3)
    swapped = log_of([0, 1], [1, 1], outcomes=OUTCOMES[::-1])
    with pytest.raises(ValueError, match="outcomes of the log are home, death"):
        bf.Replay(swapped, model, target).outcomes()


def test_a_model_too_large_is_refused_before_memory_is_taken():
    size = 700
    row = np.full(size, 1 / size)
    model = bf.hidden.TabularPOMDP.from_arrays(
        np.tile(row, (size, 1, 1)), np.tile(row, (size, 1)), initial=row
    )
    with pytest.raises(ValueError, match="more than 30,000,000"):
        bf.hidden.pomdp_value(model, np.ones((size, 1)), horizon=1)


def test_hiding_all_or_one_by_its_name():
    names = [variable.name for variable in bf.sepsis.STATES]
    with pytest.raises(ValueError, match="leave at least one observed"):
        bf.sepsis.pomdp(hidden=names)
    model = bf.sepsis.pomdp(hidden="glucose")
    assert [variable.name for variable in model.hidden_variables] == ["glucose"]


def test_all_seen_means_that_nothing_is_hidden():
    plain = labelled_model(np.random.default_rng(0), None)
    model = bf.hidden.TabularPOMDP.from_mdp(
        plain, states=[bf.Variable("ward", ("a", "b", "c", "d"))]
    )
    assert model.hidden_variables == ()


@pytest.mark.parametrize("name", ["PomdpFile", "read_pomdp_file"])
def test_readers_of_files_that_are_gone_name_the_new_way(name):
    words = f"butfor.interop.{name} is gone: .* from arrays: TabularPOMDP.from_arrays, or Tabu"
    with pytest.raises(ImportError, match=words):
        getattr(bf.interop, name)
    with pytest.raises(ImportError, match=words):
        exec(f"from butfor.interop import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'read_file'"):
        _ = bf.interop.read_file

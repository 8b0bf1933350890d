"""The inverse CDF in the order of values: its order, and that no coupling changes values less."""

import numpy as np
import pytest
from scipy.optimize import linprog

import butfor as bf
from tests.reference.counterfactual import Episode, exact_outcomes
from tests.support import random_model, random_policy, reference_model, simulate_log

HORIZON = 4


def random_problem(seed):
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    return model, behavior, target, simulate_log(generator, model, behavior, 30, HORIZON)


@pytest.mark.parametrize("seed", range(4))
def test_next_states_are_ordered_by_their_value_under_the_target(seed):
    model, behavior, target, log = random_problem(seed)
    known = {"behavior": behavior, "discount": 0.9}
    uniform = [[1 / model.n_actions] * model.n_actions] * model.n_states
    value = [
        exact_outcomes(
            reference_model(model),
            Episode([state], [], []),  # nothing was observed
            uniform,
            target.tolist(),
            shared=False,
            horizon=HORIZON,
            discount=0.9,
        )[1]
        for state in range(model.n_states)
    ]
    order = np.argsort([*value, -1.0, 0.0])  # then the two outcomes
    assert not (np.diff(order) == 1).all()
    found = bf.Replay(log, model, target, mechanism=bf.InverseCDF("value"), **known)
    listed = bf.Replay(log, model, target, mechanism=bf.InverseCDF(order.tolist()), **known)
    plain = bf.Replay(log, model, target, mechanism=bf.InverseCDF(), **known)
    for replay in (found, listed):
        replay.compute()
    np.testing.assert_array_equal(found.outcomes().probability, listed.outcomes().probability)
    np.testing.assert_array_equal(found.steps().influence, listed.steps().influence)
    np.testing.assert_array_equal(found.draws(3).state, listed.draws(3).state)
    np.testing.assert_array_equal(found.contributions(), listed.contributions())
    assert np.abs(found.outcomes().probability - plain.outcomes().probability).max() > 0.01


def smallest_change(p, q, value):
    """Solve for the coupling of two rows with the smallest mean change in value."""
    size = len(p)
    cost = np.abs(value[:, None] - value).ravel()
    givers, takers = np.kron(np.eye(size), np.ones(size)), np.kron(np.ones(size), np.eye(size))
    found = linprog(cost, A_eq=np.vstack([givers, takers[:-1]]), b_eq=[*p, *q[:-1]])
    assert found.status == 0
    return found.fun


def mean_change(p, q, value, mechanism):
    rows = bf.counterfactual_distribution(p, q, np.arange(len(p)), mechanism=mechanism)
    return float((p[:, None] * rows * np.abs(value[:, None] - value)).sum())


def test_no_coupling_changes_the_value_less():
    generator = np.random.default_rng(0)
    more = dict.fromkeys((bf.GumbelMax(), bf.MaximalCoupling(), bf.Independent()), 0)
    for _ in range(50):
        p, q = generator.dirichlet(np.ones(5), 2)
        value = generator.normal(size=5)
        least = smallest_change(p, q, value)
        ordered = bf.InverseCDF(np.argsort(value).tolist())
        assert mean_change(p, q, value, ordered) == pytest.approx(least, abs=1e-9)
        for other in more:
            assert mean_change(p, q, value, other) > least - 1e-9
            more[other] += mean_change(p, q, value, other) > least + 1e-6
    assert min(more.values()) > 25  # the others do change it more, mostly


def test_it_is_refused_where_next_states_have_no_value():
    mechanism = bf.InverseCDF("value")
    assert repr(mechanism) == "InverseCDF(order='value')"
    with pytest.raises(ValueError, match="elsewhere list the outcomes"):
        bf.counterfactual_distribution([0.5, 0.5], [0.2, 0.8], 0, mechanism=mechanism)
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes=40, seed=0)
    log = log.hide("glucose", "diabetes")
    factored = bf.fit_factored(log)
    target = bf.policy_iteration(factored).table
    with pytest.raises(ValueError, match="noise='state'"):
        bf.Replay(log, factored, target, mechanism=mechanism).outcomes()
    on_states = bf.Replay(log, factored, target, mechanism=mechanism, noise="state")
    rows = bf.Replay(log, factored.tabular(), target, mechanism=mechanism)
    np.testing.assert_array_equal(
        on_states.outcomes().expected_return, rows.outcomes().expected_return
    )
    labelled = bf.fit_mdp(log).with_labels(np.arange(144)[::-1])
    with pytest.raises(ValueError, match="a model without labels"):
        bf.Replay(log, labelled, target, mechanism=mechanism).outcomes()
    with pytest.raises(ValueError, match="elsewhere list the outcomes"):
        bf.Replay(log, bf.sepsis.pomdp(), target, mechanism=mechanism).outcomes()

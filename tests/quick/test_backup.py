"""Expectations over the next step, worked out variable by variable."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.models import lookahead
from butfor.models.backup import Backup
from butfor.models.planning import state_values
from tests.factored import clinic_model, tiny_model
from tests.quick.test_fit_factored import ward
from tests.reference.factored_rows import row

MODELS = {
    "next-step parents": lambda: clinic_model(np.random.default_rng(1)),
    "parents that are always the same": lambda: clinic_model(
        np.random.default_rng(3), end=("next.sex", "sex", "next.dose", "action.dose", "next.pulse")
    ),
    "tiny": lambda: tiny_model(np.random.default_rng(2)),
    "learned, with a flag that copies the action": lambda: bf.fit_factored(ward()),
}


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    return MODELS[request.param]()


def enumerated(model, values):
    """Mean next value and reward, and ends, by going through every next state, [S, A, …]."""
    after = np.zeros((model.n_states, model.n_actions))
    earned = np.zeros_like(after)
    ends = np.zeros((*after.shape, len(model.outcomes) + 1))
    for state, action in np.ndindex(after.shape):
        for reached, (p, reward) in row(model, state, action).items():
            earned[state, action] += p * reward
            if reached < model.n_states:
                after[state, action] += p * values[reached]
                ends[state, action, -1] += p
            else:
                ends[state, action, reached - model.n_states] += p
    return after, earned, ends


def test_expectations_are_those_of_all_next_states(model):
    values = np.random.default_rng(3).normal(size=model.n_states)
    backup = Backup(model)
    found = (backup.after(values), backup.rewards, backup.ends)
    for mine, expected in zip(found, enumerated(model, values), strict=True):
        # sums of fewer than a hundred terms of size 1
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-13)


def test_a_wrong_factor_would_be_noticed():
    model = MODELS["next-step parents"]()
    values = np.arange(model.n_states, dtype=float)
    first = model.factors[0]
    wrong = replace(
        model, factors=(replace(first, table=first.table[..., ::-1]), *model.factors[1:])
    )
    assert not np.allclose(Backup(wrong).after(values), enumerated(model, values)[0])


def test_planning_by_factors_is_planning_by_rows(model):
    policy = bf.policy_iteration(model, discount=0.95)
    np.testing.assert_array_equal(policy, bf.policy_iteration(model.tabular(), discount=0.95))


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_values_by_factors_are_values_by_rows(model, discount):
    policy = np.random.default_rng(5).dirichlet(np.ones(model.n_actions), model.n_states)
    asked = {"horizon": 7, "discount": discount}
    np.testing.assert_allclose(
        state_values(model, policy, **asked),
        state_values(model.tabular(), policy, **asked),
        rtol=0,
        atol=1e-12,
    )


def test_a_solution_that_is_not_exact_enough_is_not_used(monkeypatch):
    model = MODELS["next-step parents"]()
    expected = bf.policy_iteration(model)
    monkeypatch.setattr(lookahead, "bicgstab", lambda left, right, **options: (right, 1))
    np.testing.assert_array_equal(bf.policy_iteration(model), expected)

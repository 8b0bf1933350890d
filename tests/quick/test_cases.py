"""Similar past cases of factored models, against a count by hand and in plain Python."""

import numpy as np
import pytest

import butfor as bf
from butfor.models.cases import logged_cases, similar_cases
from tests.factored import clinic_model, simulate_factored
from tests.reference import cases as slow


@pytest.fixture(scope="module")
def learned():
    generator = np.random.default_rng(5)
    log = simulate_factored(generator, clinic_model(generator), np.full((24, 2), 0.5), 30, 6)
    return log, bf.fit_factored(log, order=["sugar", "pulse"])


def test_cases_of_each_state_and_action_equal_those_counted_one_by_one(learned):
    _, model = learned
    found = similar_cases(model)
    for state in range(model.n_states):
        for action in range(model.n_actions):
            expected = slow.cases_of_pair(model, state, action)
            assert found[state, action] == pytest.approx(expected, rel=1e-12)


def test_cases_of_each_logged_step_equal_those_counted_one_by_one(learned):
    log, model = learned
    found = logged_cases(model, log)
    assert found.tolist() == [slow.cases_of_step(model, log, i) for i in range(len(log.state))]


def test_a_model_that_was_not_learned_has_no_limit_to_its_evidence():
    model = clinic_model(np.random.default_rng(0))
    assert np.isinf(similar_cases(model)).all()


def test_two_episodes_by_hand():
    # pulse 0 and dose 0 twice in episode 0 and once in episode 1: a step of episode 0 has the one
    # of episode 1 as its only similar case, that of episode 1 has two; dose 1 was given once
    log = bf.Episodes.from_arrays(
        [0, 0, 2, 0],
        [0, 0, 1, 0],
        [0, 2, 2, 0],
        offsets=[0, 3, 4],
        states=(bf.Variable("pulse", ("0", "1")), bf.Variable("rate", ("0", "1"))),
        actions=(bf.Variable("dose", ("0", "1")),),
        outcome=[0, -1],
        outcomes=(bf.Outcome("home", 1.0),),
    )
    parents = {"pulse": ["pulse", "action.dose"], "": []}
    model = bf.fit_factored(log, parents=parents)
    assert model.factor("rate").source == "static"
    assert logged_cases(model, log).tolist() == [1, 1, 0, 2]

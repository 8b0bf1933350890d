"""Rehearsals on logs of the sepsis simulator, whose plans have known true values.

A rehearsal asks for a gain larger than what hiding the worst variable could make up. With glucose
and diabetes hidden the promised gain is not real, and it says so; with nothing hidden it is real
but smaller than that, so it warns too: a warning, not a verdict.
"""

import numpy as np
import pytest

import butfor as bf

LOGS = 8
HORIZON = 20


def learn(log):
    model = bf.fit_factored(log)
    return model, bf.policy_iteration(model)


@pytest.fixture(scope="module", params=["full", "hidden"])
def rehearsals(request):
    """By log: gain promised, worst error, and the true gain of the plan of the whole log."""
    truth = bf.sepsis.model("corrected")
    physician = bf.sepsis.behavior_policy("corrected")
    usual = bf.policy_value(truth, physician, horizon=HORIZON)
    found = []
    for seed in range(LOGS):
        log = bf.sepsis.simulate(physician, 1000, seed=200 + seed)
        if request.param == "hidden":
            log = log.hide("glucose", "diabetes")
        rehearsal = bf.rehearse(log, learn, horizon=HORIZON)
        plan = bf.sepsis.full_policy(learn(log)[1])
        true = bf.policy_value(truth, plan, horizon=HORIZON) - usual
        found.append((rehearsal.gain, rehearsal.worst, true))
    gains = np.array(found)
    print(f"{request.param}: gain, worst error, true gain = {gains.mean(axis=0).round(3)}")
    return request.param, gains


def test_a_promise_made_up_by_what_is_hidden_does_not_pass(rehearsals):
    state, gains = rehearsals
    promised, worst, true = gains.T
    if state == "hidden":
        assert true.mean() < 0 < promised.mean()
    else:
        assert true.mean() > 0
    assert (promised < worst).all()

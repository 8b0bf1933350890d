"""Like for like: a policy that changes nothing differs from no episode, censored or not."""

import numpy as np
import pytest

import butfor as bf
from butfor.replay.outcomes import rank_flags
from tests import clinic, factored, support

SHARE = 0.4  # of the episodes are cut off


def lose(log: bf.Episodes, seed: int = 0) -> bf.Episodes:
    """Cut off a share of the episodes after any of their steps but the last."""
    rng = np.random.default_rng(seed)
    long = rng.permutation(np.flatnonzero(log.lengths > 1))[: round(SHARE * len(log))]
    steps = np.full(len(log), log.horizon)
    steps[long] = 1 + rng.integers(0, log.lengths[long] - 1)
    return log.cut(steps)


def tabular_case():
    rng = np.random.default_rng(0)
    model = support.random_model(rng)
    behavior = support.random_policy(rng, model)
    return support.simulate_log(rng, model, behavior, 60, 8), model, behavior


def factored_case():
    model = factored.clinic_model(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    behavior = rng.dirichlet(np.ones(model.n_actions), size=model.n_states)
    return factored.simulate_factored(rng, model, behavior, 60, 8), model, behavior


def hidden_case():
    model = clinic.clinic().model()
    behavior = bf.hidden.LatentPolicy(clinic.clinician(model))
    return clinic.simulate(model, behavior.table, 60, horizon=6), model, behavior


CASES = {"tabular": tabular_case, "factored": factored_case, "hidden": hidden_case}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("censored", ["continue", "cut"])
def test_a_policy_that_changes_nothing_differs_from_no_episode(kind, censored):
    log, model, behavior = CASES[kind]()
    lost = lose(log)
    replay = bf.Replay(lost, model, behavior, behavior=behavior, censored=censored)
    assert replay.stopped.mean() == pytest.approx(SHARE)
    found = replay.outcomes()
    assert np.abs(found.difference).max() < 1e-12
    assert (found.most_likely == found.compared).all()
    assert not rank_flags(found, 10).any()

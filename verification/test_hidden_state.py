"""The paper's example with its hidden state in the model, over ten fresh logs of 1000 patients.

The physician sees diabetes and glucose, the log does not. Decided by standard errors: with the
right posterior the mean counterfactual is the true value of the policy learned on each log;
ignoring what the physician knew shows in z, and the reduced model, which z does not show, is wrong
by more than 1. Each patient's prediction is scored against the simulator's own counterfactual.
"""

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor import sepsis

VERSION, HIDDEN = "icml2019", ("diabetes", "glucose")
REDUCED, IGNORED, LEARNED, RIGHT = "reduced model", "knowledge ignored", "learned", "right"


def judge(seed):
    """Judge the policy learned from one log by each model: value, error, z and Brier score."""
    physician = bf.hidden.LatentPolicy(sepsis.behavior_policy(VERSION))
    log = sepsis.simulate(physician.table, 1000, seed=seed, version=VERSION).hide(*HIDDEN)
    reduced, hidden = bf.fit_mdp(log), sepsis.pomdp(VERSION, hidden=HIDDEN)
    target = bf.policy_iteration(reduced, discount=0.99)
    everything = sepsis.full_policy(target)
    true = bf.policy_value(sepsis.model(VERSION), everything, horizon=20)
    # noise belongs to patient and step, so the same seed treats the same patients differently
    outcome = sepsis.simulate(everything, 1000, seed=seed, version=VERSION).outcome
    happened = np.eye(3)[outcome]  # none, -1, is the last
    rows = [
        {"method": "observed", "value": log.returns().mean()},
        {"method": "true", "value": true},
    ]
    learned = bf.hidden.fit_latent_behavior(log, hidden).policy
    for method, model, behavior in (
        (REDUCED, reduced, None),
        (IGNORED, hidden, None),
        (LEARNED, hidden, learned),
        (RIGHT, hidden, physician),
    ):
        said = bf.Replay(log, model, target, behavior=behavior).outcomes()
        own = bf.policy_value(reduced, target, horizon=20) if model is reduced else true
        returns = said.expected_return
        z = (returns.mean() - own) / (returns.std(ddof=1) / len(log) ** 0.5)
        brier = ((said.probability - happened) ** 2).sum(axis=1).mean()
        rows.append({"method": method, "value": returns.mean(), "z": z, "brier": brier})
    frequencies = ((happened.mean(axis=0) - happened) ** 2).sum(axis=1).mean()
    return pd.DataFrame(rows).assign(
        error=lambda table: table["value"] - true, frequencies=frequencies
    )


@pytest.fixture(scope="module")
def estimates():
    found = pd.concat([judge(seed) for seed in range(1_000_003, 1_000_013)])
    grouped = found.groupby("method", sort=False)
    print(grouped.mean().assign(error_se=grouped["error"].sem()).round(3).to_string())
    return found.set_index("method")


@pytest.mark.parametrize("method", [RIGHT, LEARNED])
def test_the_hidden_state_puts_the_mean_right(estimates, method):
    errors = estimates.loc[method, "error"].to_numpy()
    standard_error = errors.std(ddof=1) / len(errors) ** 0.5
    assert abs(errors.mean()) < 4 * standard_error


def test_the_reduced_model_is_wrong_by_more_than_one(estimates):
    assert estimates.loc[REDUCED, "error"].mean() > 1


def test_z_tells_of_what_is_ignored_and_not_of_a_wrong_model(estimates):
    assert estimates.loc[IGNORED, "z"].mean() > 3
    assert np.abs(estimates.loc[RIGHT, "z"]).max() < 4
    assert np.abs(estimates.loc[REDUCED, "z"]).mean() < 3


def test_single_patients_are_predicted_better_than_by_frequencies_only_with_the_hidden_state(
    estimates,
):
    mean = estimates.groupby("method")[["brier", "frequencies"]].mean()
    assert mean.loc[RIGHT, "brier"] < mean.loc[RIGHT, "frequencies"] < mean.loc[REDUCED, "brier"]

"""The paper's example with its hidden state in the model, over fresh logs.

Decided by standard errors: with the right posterior the mean counterfactual is the true value of
the policy learned on each log; ignoring what the physician knew shows in z, and the reduced model,
which z does not show, is wrong by more than 1.
"""

import numpy as np
import pytest

from butfor.studies.hidden_state.experiment import (
    CF,
    IGNORED,
    LEARNED,
    RIGHT,
    HiddenStateSettings,
    run_experiment,
    summarize,
)


@pytest.fixture(scope="module")
def estimates():
    found = run_experiment(HiddenStateSettings(repeats=10, seed=1, simulator="icml2019")).estimates
    print(summarize(found).to_string())
    return found.set_index("method")


@pytest.mark.parametrize("method", [RIGHT, LEARNED])
def test_the_hidden_state_puts_the_mean_right(estimates, method):
    errors = estimates.loc[method, "error"].to_numpy()
    standard_error = errors.std(ddof=1) / len(errors) ** 0.5
    assert abs(errors.mean()) < 4 * standard_error


def test_the_reduced_model_is_wrong_by_more_than_one(estimates):
    assert estimates.loc[CF, "error"].mean() > 1


def test_z_tells_of_what_is_ignored_and_not_of_a_wrong_model(estimates):
    assert estimates.loc[IGNORED, "z"].mean() > 3
    assert np.abs(estimates.loc[RIGHT, "z"]).max() < 4
    assert np.abs(estimates.loc[CF, "z"]).mean() < 3

"""Checks of a factored model whose variables are learned by classifiers."""

import numpy as np
import pytest

import butfor as bf
from tests.correlated import ward_log
from tests.quick.test_diagnostics_factored import CHECKS


def test_classifiers_are_compared_with_counts_and_their_extrapolation_is_reported():
    linear = pytest.importorskip("sklearn.linear_model")
    log = ward_log(episodes=60)

    def learn(part):
        model = bf.fit_factored(part, linear.LogisticRegression(max_iter=50, tol=0.01))
        return model, np.full((27, 2), 0.5)

    model, target = learn(log)
    found = bf.diagnose(bf.Replay(log, model, target), learn=learn).set_index("check")
    assert found.index.tolist() == [*CHECKS[:12], "extrapolation", *CHECKS[12:]]
    assert "learned by counts with back-off" in found["sentence"]["learners agree"]
    assert 0 < found["value"]["extrapolation"] < 1

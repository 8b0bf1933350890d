"""The paper's experiment, log after log, against means of an earlier, independent computation.

Each published mean comes with its standard error; ours has one too. A difference is accepted if it
is below 4.5 combined standard errors: all eight together raise a false alarm in fewer than
one of 10,000 runs.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import butfor as bf

LIMIT = 4.5
LOGS = 300


@dataclass(frozen=True)
class Means:
    """What each of the logs gave."""

    observed: np.ndarray
    model_based: np.ndarray
    counterfactual: np.ndarray
    true: np.ndarray


@pytest.fixture(scope="module", params=["icml2019", "visits"])
def means(request) -> tuple[str, Means]:
    terminal = request.param
    behavior = bf.sepsis.behavior_policy("icml2019")
    truth = bf.sepsis.model("icml2019")
    rows = []
    for seed in range(LOGS):
        log = bf.sepsis.simulate(behavior, 1000, seed=seed, version="icml2019")
        log = log.hide("glucose", "diabetes")
        model = bf.fit_mdp(log, terminal=terminal)
        target = bf.policy_iteration(model)
        rows.append(
            (
                log.returns().mean(),
                bf.policy_value(model, target, horizon=20),
                bf.Replay(log, model, target).outcomes().expected_return.mean(),
                bf.policy_value(truth, bf.sepsis.full_policy(target), horizon=20),
            )
        )
    return terminal, Means(*np.array(rows).T)


def z(ours: np.ndarray, published: float, published_error: float) -> float:
    error = np.hypot(ours.std(ddof=1) / len(ours) ** 0.5, published_error)
    return float((ours.mean() - published) / error)


# Reported mean, half of its last digit, and the number of logs behind it. Its standard error
# follows from the spread between our own logs.
PUBLISHED = {
    "icml2019": [
        ("model_based", 0.774, 0.0005, 300),
        ("true", -0.253, 0.0005, 300),
        ("counterfactual", 0.799, 0.0005, 25),
        ("true", -0.226, 0.0005, 25),
    ],
    "visits": [
        ("model_based", 0.92, 0.005, 300),
        ("true", -0.43, 0.005, 300),
        ("counterfactual", 0.929, 0.0005, 25),
        ("true", -0.425, 0.0005, 25),
    ],
}


def test_means_agree_with_the_published_ones(means):
    terminal, ours = means
    for name, mean, rounding, logs in PUBLISHED[terminal]:
        drawn = getattr(ours, name)
        score = z(drawn, mean, np.hypot(drawn.std(ddof=1) / logs**0.5, rounding))
        print(f"{terminal} {name}: {drawn.mean():+.4f}, published {mean:+.3f}, z {score:+.2f}")
        assert abs(score) < LIMIT, (name, drawn.mean(), mean, score)


def test_observed_mean_agrees_with_the_exact_value_of_the_physician(means):
    _, ours = means
    exact = bf.policy_value(
        bf.sepsis.model("icml2019"), bf.sepsis.behavior_policy("icml2019"), horizon=20
    )
    assert abs(z(ours.observed, exact, 0.0)) < LIMIT


def test_model_and_counterfactual_look_better_than_observed_in_every_log(means):
    _, ours = means
    assert (ours.model_based > ours.observed).all()
    assert (ours.counterfactual > ours.observed).all()


def test_the_target_is_worse_than_observed_in_truth(means):
    _, ours = means
    assert ours.true.mean() < ours.observed.mean() - 0.3

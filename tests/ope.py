"""Logs, models and targets on which estimators of values are tested."""

from dataclasses import dataclass

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.episode_columns import EpisodeColumns
from tests.builders import ward_log
from tests.reference import ope as reference
from tests.support import (
    random_model,
    random_policy,
    simulate_log,
)

HORIZON, DISCOUNT = 4, 0.9
TWINS = {
    "Observed": reference.observed,
    "Observed, continued": reference.continued,
    "IS": reference.importance_sampling,
    "WIS": reference.weighted,
    "PDIS": reference.per_decision,
    "PDWIS": reference.per_decision_weighted,
    "DR": reference.doubly_robust,
    "WDR": reference.weighted_doubly_robust,
    "FQE": reference.fitted_q,
    "MB": reference.model_based,
}


@dataclass(frozen=True)
class Setting:
    """A log from a known model, and what estimators sum over it."""

    model: bf.TabularMDP
    behavior: np.ndarray
    target: np.ndarray
    log: bf.Episodes
    sample: EpisodeColumns


def make_setting(seed, *, episodes=30):
    generator = np.random.default_rng(seed)
    model = random_model(generator)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[1] = np.eye(3)[2]  # deterministic in one state
    log = simulate_log(generator, model, behavior, episodes, HORIZON)
    return Setting(model, behavior, target, log, known(log, model, target, behavior))


def known(log, model, target, behavior):
    """A log with the behavior that made it, and five draws of each episode."""
    replay = bf.Replay(log, model, target, behavior=behavior, horizon=HORIZON, discount=DISCOUNT)
    return EpisodeColumns(replay, draws=replay.draws(5))


def ask(log, model, target, **options):
    """What estimators sum over the episodes of a question."""
    return EpisodeColumns(bf.Replay(log, model, target, **options))


@pytest.fixture(scope="module", params=range(3))
def setting(request):
    return make_setting(request.param)


def learn(log, terminal="visits"):
    model = bf.fit_mdp(log, terminal=terminal)
    return model, bf.policy_iteration(model).table


def keep(target):
    """What learns a model, and gives the same target for any log."""
    return lambda log: (bf.fit_mdp(log), target)


@pytest.fixture(scope="module")
def sepsis():
    """A reduced sepsis log of the published simulator, its model and the target planned on it."""
    version = "icml2019"
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(version), 300, seed=4, version=version)
    log = log.hide("glucose", "diabetes")
    return log, *learn(log)


@pytest.fixture(scope="module")
def near(sepsis):
    """The same log and model with a target near the behavior, so that weights stay mild."""
    log, model, _ = sepsis
    return log, model, sharpened(log, 1.2)


def sharpened(log, power):
    """The behavior of a log, with its usual actions taken more often."""
    target = bf.estimate_behavior(log) ** power
    return target / target.sum(axis=1, keepdims=True)


def nobody_follows():
    """The ward log; the target takes the action that was not taken first."""
    log = ward_log()
    model = bf.fit_mdp(log)
    target = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    return ask(log.select([0, 1, 3]), model, target)

"""Reweighting: a log in which some episodes count less, or more, teaches another model."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import butfor as bf
from butfor.models.factored import END
from butfor.models.posterior import is_counted
from butfor.models.reweight import reweighting
from tests.builders import random_log, ward_log
from tests.factored import clinic_model, simulate_factored
from tests.reference import backoff

TABULAR = [
    {},
    {"prior": 0.5},
    {"unseen": "uniform"},
    {"unseen": "uniform", "prior": 0.5},
    {"terminal": "icml2019"},
    {"terminal": "icml2019", "prior": 0.5, "unseen": "self-loop"},
]


def fit(log, **options):
    """Learn a tabular model of rewards that vary."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bf.fit_mdp(log, **options)


def walk(options):
    """A log in which pairs repeat; rewards vary unless ends have a rule of their own."""
    generator = np.random.default_rng(7)
    log = random_log(generator, episodes=40, longest=4)
    if "terminal" in options:
        return log
    return replace(log, reward=generator.normal(size=len(log.state)))


def same_models(one, other, entries=slice(None)):
    """Compare two models; of their rewards, some entries."""
    np.testing.assert_array_equal(one.next_state, other.next_state)
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-12)
    np.testing.assert_allclose(one.reward[entries], other.reward[entries], atol=1e-12)


def logged_entries(model, log):
    """Which entries of a model of visits were logged, rather than added by a prior or a rule."""
    ended = np.zeros(len(log.state), bool)
    ended[log.offsets[1:] - 1] = log.outcome >= 0
    last = np.repeat(log.outcome, log.lengths)
    reached = np.where(ended, model.n_states + last, log.next_state)
    logged = set(
        zip((log.state * model.n_actions + log.action).tolist(), reached.tolist(), strict=True)
    )
    entries = zip(model.entry_row.tolist(), model.next_state.tolist(), strict=True)
    return np.array([entry in logged for entry in entries])


@pytest.mark.parametrize("options", TABULAR)
def test_weights_of_one_give_the_same_model(options):
    log = walk(options)
    model = fit(log, **options)
    assert model.unseen.any() or "terminal" in options  # there, every final state has an action
    same_models(reweighting(model, log)(np.ones(len(log))), model)


@pytest.mark.parametrize("options", TABULAR)
def test_weights_of_two_give_the_model_of_a_log_with_these_episodes_twice(options):
    log = walk(options)
    model = fit(log, **options)
    weights = 1.0 + (np.arange(len(log)) % 3 == 0)
    again = reweighting(model, log)(weights)
    assert np.abs(again.probability - model.probability).max() > 0.01
    twice = fit(log.select(np.repeat(np.arange(len(log)), weights.astype(int))), **options)
    if "terminal" in options:
        same_models(again, twice)
        return
    # what an entry that was never logged earns stays as it was
    logged = logged_entries(model, log)
    same_models(again, twice, logged)
    np.testing.assert_array_equal(again.reward[~logged], model.reward[~logged])


def test_halves_by_hand():
    # From state 0 with a0: stays 0 and 1 go to 1, stay 1 then ends well, stay 2 goes to 1. With
    # half of stay 1: to state 1 weigh 1 + .5 + 1, to the outcome .5.
    log = ward_log()
    again = reweighting(bf.fit_mdp(log), log)(np.array([1.0, 0.5, 1.0, 1.0]))
    assert again.row(0, 0) == pytest.approx({1: 2.5 / 3, 4: 0.5 / 3})
    # from state 1 with a1: stays 0 and 3 die, half of stay 1 goes to state 0
    assert again.row(1, 1) == pytest.approx({0: 0.5 / 2.5, 3: 2 / 2.5})


@pytest.fixture(scope="module")
def clinic():
    generator = np.random.default_rng(3)
    world = clinic_model(generator)
    behavior = generator.dirichlet(np.ones(2), world.n_states)
    log = simulate_factored(generator, world, behavior, 60, 5)
    return log, bf.fit_factored(log)


def test_weights_of_one_give_the_same_factored_model(clinic):
    log, model = clinic
    again = reweighting(model, log)(np.ones(len(log)))
    assert any(is_counted(factor) for factor in model.factors)
    for mine, factor in zip(again.factors, model.factors, strict=True):
        np.testing.assert_allclose(mine.table, factor.table, atol=1e-12)
        np.testing.assert_allclose(mine.counts, factor.counts, atol=1e-12)


def plain_cases(log, factor, weights):
    """The cases of a factor, each as often as it counts: levels of the parents, and the level."""
    sizes = [len(variable.levels) for variable in log.state_variables]
    names = [variable.name for variable in log.state_variables]
    cases = []
    for episode in range(len(log)):
        for row in range(log.offsets[episode], log.offsets[episode + 1]):
            before = dict(zip(names, np.unravel_index(log.state[row], sizes), strict=True))
            after = dict(zip(names, np.unravel_index(log.next_state[row], sizes), strict=True))
            codes = before | {f"next.{name}": code for name, code in after.items()}
            codes["action.dose"] = log.action[row]
            last = row == log.offsets[episode + 1] - 1 and log.outcome[episode] >= 0
            end = log.outcome[episode] if last else len(log.outcomes)
            level = end if factor.variable == END else after[factor.variable]
            case = tuple(int(codes[parent]) for parent in factor.parents), int(level)
            cases += [case] * int(weights[episode])
    return cases


def test_weights_of_two_give_the_tables_of_a_log_with_these_episodes_twice(clinic):
    log, model = clinic
    weights = 1 + (np.arange(len(log)) % 3 == 0)
    again = reweighting(model, log)(weights.astype(float))
    counted = [f for f in again.factors if is_counted(f)]
    assert {END, "pulse", "sugar"} == {f.variable for f in counted}
    assert max(len(f.parents) for f in counted) > 1
    for factor in counted:
        cases = plain_cases(log, factor, weights)
        for place in np.ndindex(factor.table.shape):
            expected = backoff.probability(
                cases,
                (place[:-1], place[-1]),
                range(len(factor.parents)),
                factor.levels,
                factor.strength,
                every=factor.every,
            )
            assert factor.table[place] == pytest.approx(expected, abs=1e-12)
        assert np.abs(factor.table - model.factor(factor.variable).table).max() > 1e-3


def test_what_was_not_learned_from_the_log_by_counting_cannot_be_learned_again(clinic):
    log = random_log(np.random.default_rng(7), episodes=40, longest=4)
    model = bf.fit_mdp(log)
    given = replace(model, prior=None)
    assert reweighting(given, log) is None
    assert reweighting(model, log.select(np.arange(39))) is None
    # another log with as many decisions of each kind, and another model with the same counts
    assert reweighting(model, replace(log, outcome=log.outcome[::-1].copy())) is None
    other = replace(model, probability=np.full(len(model.probability), 0.5))
    assert reweighting(other, log) is None
    log, model = clinic
    assert reweighting(model, log) is not None
    assert reweighting(clinic_model(np.random.default_rng(3)), log) is None
    learner = {"pulse": LogisticRegression()}
    assert reweighting(bf.fit_factored(log, learner), log) is None

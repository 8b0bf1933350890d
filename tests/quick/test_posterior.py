"""Uncertainty of the model: what is drawn, all models at once against one by one, intervals."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

import butfor as bf
from butfor.models.fit import count_transitions
from butfor.models.planning import state_values
from butfor.models.posterior import MOST_NUMBERS, draw_models
from butfor.replay import credible
from tests.builders import ward_log
from tests.reference import posterior as reference
from tests.support import FALSE_ALARM, labelled_model, random_policy, simulate_log


@dataclass(frozen=True)
class Plain:
    """Another mechanism behind the protocol's one method: kernels have to take its table."""

    mechanism: bf.GumbelMax

    def counterfactual_rows(self, factual, counterfactual, observed):
        return self.mechanism.counterfactual_rows(factual, counterfactual, observed)


@pytest.fixture(scope="module")
def small():
    """A log of a small random model, and a target."""
    generator = np.random.default_rng(2)
    world = labelled_model(generator, None)
    log = simulate_log(generator, world, random_policy(generator, world), 30, 5)
    target = random_policy(generator, world)
    target[0] = np.eye(3)[1]
    return log, target


@pytest.fixture(scope="module")
def sepsis():
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), 200, seed=21).hide("glucose", "diabetes")
    return log, bf.policy_iteration(bf.fit_mdp(log))


# ---------------------------------------------------------------------------------- what is drawn


def test_rows_have_the_means_and_variances_of_their_dirichlet(small):
    log, _ = small
    count = 4000
    drawn = draw_models(log, models=count, prior=0.5, seed=3)
    mean = drawn.mean
    weight = count_transitions(log, terminal="visits", unseen=None, prior=0.5).weight
    row = mean.entry_row
    total = np.bincount(row, weight, minlength=len(mean.start) - 1)[row]
    seen = ~mean.unseen.ravel()[row] & (weight < total)
    a, a0 = weight[seen], total[seen]
    m = a / a0
    variance = m * (1 - m) / (a0 + 1)
    x = drawn.probability[seen]
    # central limit: 1e-6 over all checks, the fourth moment of a Beta for the variance
    z = norm.isf(FALSE_ALARM / (4 * len(a)))
    np.testing.assert_allclose(mean.probability[seen], m, rtol=1e-12)
    assert (np.abs(x.mean(axis=1) - m) <= z * np.sqrt(variance / count)).all()
    b = a0 - a
    excess = 6 * ((a - b) ** 2 * (a0 + 1) - a * b * (a0 + 2)) / (a * b * (a0 + 2) * (a0 + 3))
    spread = variance * np.sqrt((excess + 2) / count)
    squares = ((x - m[:, None]) ** 2).mean(axis=1)
    assert (np.abs(squares - variance) <= z * spread).all()
    # rows drawn from half of the counts would fail both
    wrong = m * (1 - m) / (a0 / 2 + 1)
    assert (np.abs(squares - wrong) > z * spread).any()


def test_every_model_is_one(small):
    drawn = draw_models(small[0], models=5)
    for b in range(5):
        model = drawn.model(b)
        rows = np.bincount(model.entry_row, model.probability)
        np.testing.assert_allclose(rows, 1.0, rtol=1e-12)
        assert (model.probability > 0).all()
        np.testing.assert_array_equal(model.probability, drawn.probability[:, b])


@pytest.mark.parametrize("unseen", [None, "uniform", "self-loop", "end 1"])
@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_unseen_rows_keep_their_rule_and_the_mean_is_that_of_fit_mdp(unseen, terminal):
    generator = np.random.default_rng(6)
    world = labelled_model(generator, None)
    log = simulate_log(generator, world, random_policy(generator, world), 8, 4)
    drawn = draw_models(log, models=3, terminal=terminal, unseen=unseen)
    model = bf.fit_mdp(log, terminal=terminal, unseen=unseen, prior=0.01)
    np.testing.assert_array_equal(drawn.mean.probability, model.probability)
    np.testing.assert_array_equal(drawn.mean.next_state, model.next_state)
    made_up = model.unseen.ravel()[model.entry_row]
    assert made_up.any()
    np.testing.assert_array_equal(
        drawn.probability[made_up], np.tile(model.probability[made_up, None], 3)
    )
    assert (np.ptp(drawn.probability[~made_up], axis=1) > 0).any()


def test_a_model_depends_on_the_seed_and_its_number_only(small):
    log, _ = small
    few, many = (draw_models(log, models=b, seed=4) for b in (3, 7))
    np.testing.assert_array_equal(few.probability, many.probability[:, :3])
    other = draw_models(log, models=3, seed=5)
    assert (few.probability != other.probability).any()
    assert not np.array_equal(many.probability[:, 0], many.probability[:, 1])


def test_a_row_seen_once_is_uncertain():
    # in the ward log action 1 in state 0 was taken once and led to state 0
    log = ward_log()
    model = bf.fit_mdp(log)
    assert model.row(0, 1) == {0: 1.0}
    drawn = draw_models(log, models=500, prior=1.0)
    chance = np.array([drawn.model(b).row(0, 1)[0] for b in range(500)])
    # (0, 1, death, home) is Dirichlet(2, 1, 1, 1), so that the chance of 0 is Beta(2, 3): mean .4,
    # standard deviation .2, that of the mean of 500 is .2 / 500 ** .5
    assert abs(chance.mean() - 0.4) < norm.isf(FALSE_ALARM / 2) * 0.2 / 500**0.5
    assert chance.max() < 1.0


# ------------------------------------------------------------------ all at once against one by one


OPTIONS = [
    {},
    {"action_noise": "fresh", "discount": 0.9, "horizon": 8},
    {"mechanism": bf.MaximalCoupling(), "horizon": 3},
    {"mechanism": bf.InverseCDF()},
    {"mechanism": bf.Independent()},
    {"mechanism": Plain(bf.GumbelMax())},
]


def pushed(log, drawn, target, **options):
    """What the fast pass says of every model: outcomes [n, O + 1, B], returns [n, B], values."""
    replay = bf.Replay(log, drawn.mean, target, **options)
    push = credible._Push(replay.engine, drawn)
    return *push(0, len(log)), push.values[replay.horizon]


@pytest.fixture
def all_of_it(monkeypatch):
    """Leave nothing out."""
    monkeypatch.setattr(credible, "NEGLIGIBLE", 0.0)


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize("options", OPTIONS[:-1], ids=str)
def test_all_models_at_once_equal_one_after_the_other(small, options):
    log, target = small
    drawn = draw_models(log, models=3, prior=0.3)
    masses, returns, values = pushed(log, drawn, target, **options)
    expected_masses, expected_returns = reference.outcomes_by_model(log, drawn, target, **options)
    np.testing.assert_allclose(masses, expected_masses, atol=1e-12)
    np.testing.assert_allclose(returns, expected_returns, atol=1e-12)
    horizon, discount = options.get("horizon", log.horizon), options.get("discount", 1.0)
    for b in range(3):
        alone = state_values(drawn.model(b), target, horizon=horizon, discount=discount)
        np.testing.assert_allclose(values[:, b], alone, atol=1e-12)


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize("prior", [0.01, 1.0])
@pytest.mark.parametrize(
    ("softness", "terminal"), [(0.0, "visits"), (0.3, "visits"), (0.0, "icml2019")]
)
def test_sepsis_models_at_once_equal_one_after_the_other(sepsis, prior, softness, terminal):
    log, target = sepsis
    log, target = log.select(np.arange(60)), bf.soften(target, softness)
    drawn = draw_models(log, models=3, prior=prior, terminal=terminal)
    masses, returns, _ = pushed(log, drawn, target)
    expected_masses, expected_returns = reference.outcomes_by_model(log, drawn, target)
    np.testing.assert_allclose(masses, expected_masses, atol=1e-11)
    np.testing.assert_allclose(returns, expected_returns, atol=1e-11)


@pytest.mark.parametrize("prior", [0.01, 1.0])
def test_what_is_left_out_is_less_than_it_may_be(sepsis, prior):
    # a row and its counterfactual differ by at most twice what is left out, at each step in each of
    # the rows that the policy uses; one number decides at most all of the outcome
    log, target = sepsis
    log = log.select(np.arange(60))
    drawn = draw_models(log, models=3, prior=prior)
    masses, _, _ = pushed(log, drawn, target)
    expected_masses, _ = reference.outcomes_by_model(log, drawn, target)
    at_most = 2 * credible.NEGLIGIBLE * log.horizon * (target > 0).sum()
    assert np.abs(masses - expected_masses).max() < at_most
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, atol=at_most)


# --------------------------------------------------------------------------------------- intervals


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_intervals_are_quantiles_of_what_the_models_say(small, options):
    log, target = small
    found = bf.credible_intervals(
        log, target, models=12, prior=0.3, seed=9, confidence=0.8, **options
    )
    drawn = draw_models(log, models=12, prior=0.3, seed=9)
    masses, returns = reference.outcomes_by_model(log, drawn, target, **options)
    for end, level in enumerate((0.1, 0.9)):
        np.testing.assert_allclose(
            found.expected_return[:, end], np.quantile(returns, level, axis=1), atol=1e-6
        )
        np.testing.assert_allclose(
            found.probability[:, :, end], np.quantile(masses, level, axis=2), atol=1e-6
        )
    np.testing.assert_allclose(found.mean_return, returns.mean(axis=1), atol=1e-6)
    horizon, discount = options.get("horizon", log.horizon), options.get("discount", 1.0)
    values = {
        "MB": reference.values_by_model(log, drawn, target, horizon=horizon, discount=discount),
        "CF": returns.mean(axis=0),
    }
    assert list(found.estimates.columns) == ["estimator", "value", "low", "high"]
    for name, value, low, high in found.estimates.itertuples(index=False):
        expected = [np.mean(values[name]), *np.quantile(values[name], [0.1, 0.9])]
        np.testing.assert_allclose([value, low, high], expected, atol=1e-6)
    assert (found.models, found.prior, found.confidence) == (12, 0.3, 0.8)


@pytest.mark.usefixtures("all_of_it")
def test_a_mechanism_of_ones_own_gives_what_the_compiled_one_gives(small):
    log, target = small
    own = bf.credible_intervals(log, target, models=5, mechanism=Plain(bf.GumbelMax()))
    compiled = bf.credible_intervals(log, target, models=5)
    np.testing.assert_allclose(own.probability, compiled.probability, atol=1e-6)
    np.testing.assert_allclose(own.expected_return, compiled.expected_return, atol=1e-6)


def test_intervals_shrink_as_the_log_grows(small):
    # sixteen times the same counts: standard deviations of rows, and of what is smooth in them,
    # are about a quarter
    log, target = small
    widths = []
    for times in (1, 16):
        repeated = log.select(np.tile(np.arange(len(log)), times))
        found = bf.credible_intervals(repeated, target, models=100)
        widths.append(np.ptp(found.expected_return[: len(log)], axis=1))
    assert 0.15 < widths[1].sum() / widths[0].sum() < 0.4


def test_more_confidence_is_wider_and_the_mean_lies_inside(small):
    log, target = small
    narrow, wide = (
        bf.credible_intervals(log, target, models=40, prior=0.5, confidence=c) for c in (0.5, 0.99)
    )
    assert (wide.expected_return[:, 0] <= narrow.expected_return[:, 0]).all()
    assert (wide.expected_return[:, 1] >= narrow.expected_return[:, 1]).all()
    assert (wide.expected_return[:, 0] <= wide.mean_return + 1e-12).all()
    assert (wide.expected_return[:, 1] >= wide.mean_return - 1e-12).all()


def test_episodes_that_stay_as_they_were_are_certain_in_every_model(sepsis):
    log, target = sepsis
    same = np.logical_and.reduceat(target[log.state, log.action] == 1, log.offsets[:-1])
    same &= log.outcome >= 0
    assert same.sum() > 5
    found = bf.credible_intervals(log, target, models=5)
    observed = np.repeat(log.returns()[same, None], 2, axis=1)
    np.testing.assert_allclose(found.expected_return[same], observed, atol=1e-12)


def test_intervals_do_not_depend_on_threads(sepsis):
    log, target = sepsis
    calls = []
    one, two = (
        bf.credible_intervals(
            log,
            target,
            models=4,
            threads=threads,
            progress=lambda done, total: calls.append((done, total)),
        )
        for threads in (1, 2)
    )
    assert calls[-1] == (200, 200)
    np.testing.assert_array_equal(one.probability, two.probability)
    assert one.estimates.equals(two.estimates)


def test_the_frame_has_a_row_for_each_episode(sepsis):
    log, target = sepsis
    found = bf.credible_intervals(log, target, models=3)
    frame = found.frame()
    assert len(frame) == len(log)
    names = ["", "p_died_", "p_discharged_", "p_none_"]
    ends = ["low_credible", "high_credible"]
    assert list(frame.columns) == [name + end for name in names for end in ends]
    np.testing.assert_array_equal(frame["p_none_high_credible"], found.probability[:, 2, 1])


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("prior", [0, -1.0, np.nan, np.inf])
def test_a_prior_that_is_not_above_zero_is_refused_with_its_reason(small, prior):
    with pytest.raises(ValueError, match="above 0; without one a row seen once would be certain"):
        draw_models(small[0], prior=prior)
    with pytest.raises(ValueError, match="a row seen once would be certain"):
        bf.credible_intervals(*small, prior=prior)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": 0}, "models 0"),
        ({"models": 2.5}, r"models 2\.5"),
        ({"seed": -1}, "seed -1"),
        ({"confidence": 1.0}, "confidence 1"),
        ({"discount": 2.0}, r"discount 2\.0"),
        ({"terminal": "new"}, "terminal 'new'"),
        ({"unseen": "nowhere"}, "unseen 'nowhere'"),
        ({"mechanism": "gumbel"}, "'gumbel'"),
        ({"threads": 0}, "threads 0"),
    ],
)
def test_bad_requests_are_refused(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        bf.credible_intervals(*small, **({"models": 2} | arguments))


def test_too_many_models_are_refused_with_the_number_that_fits(small):
    log, _ = small
    size = len(draw_models(log, models=1).mean.probability)
    most = MOST_NUMBERS // size
    message = rf"models {most + 1}: with {size} transitions there is memory for at most {most}"
    with pytest.raises(ValueError, match=message):
        draw_models(log, models=most + 1)

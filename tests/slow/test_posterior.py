"""Uncertainty of the model: what is drawn, all models at once against one by one, intervals."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

import butfor as bf
from butfor.models.fit import destinations
from butfor.models.hierarchy import line_up, seat
from butfor.models.planning import state_values
from butfor.models.posterior import MOST_NUMBERS, Posterior, draw_models
from butfor.replay import drawn as replay_drawn
from butfor.replay.drawn import Push
from butfor.replay.observed import ObservedEngine
from tests.builders import ward_log
from tests.grids import few
from tests.reference import posterior as reference
from tests.support import FALSE_ALARM, labelled_model, random_model, random_policy, simulate_log


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
    return log, bf.policy_iteration(bf.fit_mdp(log)).table


# ---------------------------------------------------------------------------------- what is drawn


def test_tables_are_as_many_as_cases_that_sit_down_alone():
    # with weight w the i-th case takes a new table with probability w / (w + i): for w = 2 and
    # 3 cases 1 + 2/3 + 2/4 on average, with variance 2/9 + 1/4
    generator = np.random.default_rng(0)
    tables = seat(line_up(np.full(20_000, 3.0)), 2.0, generator)
    assert set(tables) == {1, 2, 3}
    off = abs(tables.mean() - (1 + 2 / 3 + 2 / 4))
    assert off < norm.isf(FALSE_ALARM / 2) * ((2 / 9 + 1 / 4) / 20_000) ** 0.5


def test_every_model_is_one(small):
    drawn = draw_models(small[0], models=5)
    for b in range(5):
        model = drawn.model(b)
        rows = np.bincount(model.entry_row, model.probability)
        np.testing.assert_allclose(rows, 1.0, rtol=1e-12)
        assert (model.probability > 0).all()
        np.testing.assert_array_equal(model.probability, drawn.probability[:, b])


@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_unseen_rows_are_drawn_over_everything_that_can_occur(terminal):
    generator = np.random.default_rng(6)
    world = labelled_model(generator, None)
    log = simulate_log(generator, world, random_policy(generator, world), 8, 4)
    drawn = draw_models(log, models=20, terminal=terminal)
    made_up = drawn.mean.unseen.ravel()[drawn.mean.entry_row]
    assert made_up.any()
    reached = set(destinations(log, terminal).tolist())
    for row in range(12):
        entries = slice(*drawn.mean.start[row : row + 2])
        assert set(drawn.mean.next_state[entries].tolist()) == reached | {4, 5}
    assert (np.ptp(drawn.probability[made_up], axis=1) > 0.1).any()


def test_what_was_never_earned_is_that_of_the_same_move_else_of_arrivals_else_of_the_outcome():
    log = bf.Episodes.from_arrays(
        [0, 1, 1],
        [0, 0, 1],
        [1, -1, 1],
        reward=[1.0, 10.0, 3.0],
        offsets=[0, 2, 3],
        outcome=[1, -1],
        outcomes=[bf.Outcome("bad", -1.0), bf.Outcome("good", 2.0)],
        states=3,
        actions=2,
    )
    posterior = Posterior(log)
    assert posterior.columns.tolist() == [1, 3, 4]  # 0 and 2 were never reached
    by_pair = posterior.reward.reshape(6, 3)
    # into state 1: from 0 it earned 1, from 1 it earned 3, on average 2
    np.testing.assert_array_equal(by_pair[:, 0], [1, 1, 3, 3, 2, 2])
    np.testing.assert_array_equal(by_pair[:, 1], -1.0)
    np.testing.assert_array_equal(by_pair[:, 2], 10.0)


def test_a_model_depends_on_the_seed_and_its_number_only(small):
    log, _ = small
    three, many = (draw_models(log, models=b, seed=4) for b in (3, 7))
    np.testing.assert_array_equal(three.probability, many.probability[:, :3])
    other = draw_models(log, models=3, seed=5)
    assert (three.probability != other.probability).any()
    assert not np.array_equal(many.probability[:, 0], many.probability[:, 1])


def test_a_row_seen_once_is_uncertain():
    # in the ward log action 1 in state 0 was taken once and led to state 0
    log = ward_log()
    assert bf.fit_mdp(log).row(0, 1) == {0: 1.0}
    drawn = draw_models(log, models=200)
    chance = np.array([drawn.model(b).row(0, 1)[0] for b in range(200)])
    assert chance.std() > 0.05
    assert chance.max() < 1.0


def test_a_fixed_prior_fixes_the_weights_and_a_strong_one_makes_rows_alike(small):
    log, _ = small
    weak, strong = (draw_models(log, models=50, prior=k) for k in (0.5, 500.0))
    assert (weak.weight == 0.5).all()
    assert (strong.weight == 500.0).all()
    spread = [
        np.ptp(one.mean.probability.reshape(4, 3, -1), axis=1).mean() for one in (weak, strong)
    ]
    assert spread[1] < 0.2 * spread[0]
    assert len(np.unique(draw_models(log, models=50).weight)) > 3


# ------------------------------------------------------------------ all at once against one by one


OPTIONS = [
    {},
    {"action_noise": "fresh", "discount": 0.9, "horizon": 8},
    {"mechanism": bf.MaximalCoupling(), "horizon": 3},
    {"mechanism": bf.InverseCDF()},
    {"mechanism": bf.Independent()},
    {"mechanism": Plain(bf.GumbelMax())},
]


def pushed(log, target, *, models=3, terminal="visits", most=np.inf, **options):
    """What the fast pass says of every model: outcomes [n, O + 1, B], returns [n, B], values."""
    posterior = Posterior(log, terminal=terminal, most=most)
    replay = bf.Replay(log, posterior.mean(), target, **options)
    drawn = list(posterior.draw(models, seed=0))
    push = Push(ObservedEngine(replay), posterior, drawn, models)
    return posterior, drawn, (*push(0, len(log)), push.values[replay.horizon])


@pytest.fixture
def all_of_it(monkeypatch):
    """Leave nothing out."""
    monkeypatch.setattr(replay_drawn, "NEGLIGIBLE", 0.0)


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize("options", OPTIONS[:-1], ids=str)
def test_all_models_at_once_equal_one_after_the_other(small, options):
    log, target = small
    _, _, (masses, returns, values) = pushed(log, target, **options)
    drawn = draw_models(log, models=3)
    expected_masses, expected_returns = reference.outcomes_by_model(log, drawn, target, **options)
    np.testing.assert_allclose(masses, expected_masses, atol=1e-12)
    np.testing.assert_allclose(returns, expected_returns, atol=1e-12)
    horizon, discount = options.get("horizon", log.horizon), options.get("discount", 1.0)
    for b in range(3):
        alone = state_values(drawn.model(b), target, horizon=horizon, discount=discount)
        np.testing.assert_allclose(values[:, b], alone, atol=1e-12)


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize(
    ("softness", "terminal"), [(0.0, "visits"), (0.3, "visits"), (0.0, "icml2019")]
)
def test_sepsis_models_at_once_equal_one_after_the_other(sepsis, softness, terminal):
    log, target = sepsis
    log, target = log.select(np.arange(12)), bf.soften(target, softness)
    _, _, (masses, returns, _) = pushed(log, target, terminal=terminal)
    drawn = draw_models(log, models=3, terminal=terminal)
    expected_masses, expected_returns = reference.outcomes_by_model(log, drawn, target)
    np.testing.assert_allclose(masses, expected_masses, atol=1e-11)
    np.testing.assert_allclose(returns, expected_returns, atol=1e-11)


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
@pytest.mark.parametrize("options", [{}, {"discount": 0.9, "horizon": 7}], ids=str)
def test_what_rows_do_not_list_continues_by_the_model_alone(terminal, options):
    generator = np.random.default_rng(8)
    world = random_model(generator, states=7, actions=2)
    log = simulate_log(generator, world, random_policy(generator, world), 6, 4)
    target = random_policy(generator, world)
    target[:4] = np.eye(2)[[0, 1, 1, 0]]
    posterior, drawn, found = pushed(
        log, target, most=0.0, terminal=terminal, action_noise="fresh", **options
    )
    assert 0.2 < posterior.outside.mean() < 0.9
    for b, one in enumerate(drawn):
        expected = reference.outcomes_elsewhere(
            log, posterior, one, target, **({"horizon": log.horizon, "discount": 1.0} | options)
        )
        for values, alone in zip(found, expected, strict=True):
            np.testing.assert_allclose(values[..., b], alone, atol=1e-12)


def test_what_is_left_out_is_less_than_it_may_be(sepsis):
    # a row and its counterfactual differ by at most twice what is left out, at each step in each of
    # the rows that the policy uses; one number decides at most all of the outcome
    log, target = sepsis
    log = log.select(np.arange(30))
    _, _, (masses, _, _) = pushed(log, target)
    expected_masses, _ = reference.outcomes_by_model(log, draw_models(log, models=3), target)
    assert 0 < np.abs(masses - expected_masses).max() < 10 * replay_drawn.NEGLIGIBLE
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, atol=1e-9)


# --------------------------------------------------------------------------------------- intervals


@pytest.mark.usefixtures("all_of_it")
@pytest.mark.parametrize(
    "options", few([OPTIONS[1], OPTIONS[-1], OPTIONS[0], *OPTIONS[2:-1]], 2), ids=str
)
def test_intervals_are_quantiles_of_what_the_models_say(small, options):
    log, target = small
    found = bf.credible_intervals(
        log, target, models=12, prior=0.3, seed=9, confidence=0.8, **options
    )
    drawn = draw_models(log, models=12, prior=0.3, seed=9)
    # twelve draws make thirteen gaps: level p lies at place 13 p, counted from 1
    masses, returns = reference.outcomes_by_model(log, drawn, target, **options)
    for end, level in enumerate((0.1, 0.9)):
        np.testing.assert_allclose(
            found.expected_return[:, end],
            np.quantile(returns, level, axis=1, method="weibull"),
            atol=1e-6,
        )
        np.testing.assert_allclose(
            found.probability[:, :, end],
            np.quantile(masses, level, axis=2, method="weibull"),
            atol=1e-6,
        )
    np.testing.assert_allclose(found.mean_return, returns.mean(axis=1), atol=1e-6)
    horizon, discount = options.get("horizon", log.horizon), options.get("discount", 1.0)
    values = {
        "MB": reference.values_by_model(log, drawn, target, horizon=horizon, discount=discount),
        "CF (these patients)": returns.mean(axis=0),
    }
    assert list(found.estimates.columns) == ["estimator", "value", "low", "high"]
    for name, value, low, high in found.estimates.itertuples(index=False):
        expected = [np.mean(values[name]), *np.quantile(values[name], [0.1, 0.9], method="weibull")]
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
    # sixteen times the same counts: standard deviations of rows are about a quarter, but those of
    # rows that always led to the same state a sixteenth; if the target does what was done
    log, target = small
    target = target * (bf.fit_mdp(log).counts > 0)
    target /= target.sum(axis=1, keepdims=True)
    widths = []
    for times in (4, 64):
        repeated = log.select(np.tile(np.arange(len(log)), times))
        found = bf.credible_intervals(repeated, target, models=100)
        widths.append(np.ptp(found.expected_return[: len(log)], axis=1))
    assert 1 / 16 < widths[1].sum() / widths[0].sum() < 0.4


def test_a_pair_that_was_never_seen_stays_uncertain_as_the_log_grows(small):
    log, _ = small
    counts = bf.fit_mdp(log).counts
    state, action = np.argwhere(counts == 0)[0]
    target = np.eye(3)[counts.argmax(axis=1)]
    target[state] = np.eye(3)[action]
    repeated = log.select(np.tile(np.arange(len(log)), 16))
    found = bf.credible_intervals(repeated, target, models=40)
    there = np.flatnonzero(repeated.first_state == state)
    assert np.ptp(found.expected_return[there], axis=1).min() > 0.5


def test_means_of_weaker_and_stronger_priors_are_those_of_their_models(small):
    log, target = small
    found = bf.credible_intervals(log, target, models=10, prior=2.0, seed=3)
    for prior, mean in ((0.5, found.mean_weaker), (8.0, found.mean_stronger)):
        drawn = draw_models(log, models=10, prior=prior, seed=3)
        _, returns = reference.outcomes_by_model(log, drawn, target)
        np.testing.assert_allclose(mean, returns.mean(axis=1), atol=10 * replay_drawn.NEGLIGIBLE)


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
    log = log.select(np.arange(60))
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
    assert calls[-1] == (60, 60)
    np.testing.assert_array_equal(one.probability, two.probability)
    assert one.estimates.equals(two.estimates)


def test_the_frame_has_a_row_for_each_episode(sepsis):
    log, target = sepsis
    log = log.select(np.arange(20))
    found = bf.credible_intervals(log, target, models=3)
    frame = found.frame()
    assert len(frame) == len(log)
    names = ["p_died_", "p_discharged_", "p_none_"]
    ends = ["low_credible", "high_credible"]
    means = ["mean_credible", "mean_credible_weaker", "mean_credible_stronger"]
    expected = [*ends, *means, *(name + end for name in names for end in ends)]
    assert list(frame.columns) == expected
    np.testing.assert_array_equal(frame["p_none_high_credible"], found.probability[:, 2, 1])


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("prior", [0, -1.0, np.nan, np.inf])
def test_a_prior_that_is_not_above_zero_is_refused_with_its_reason(small, prior):
    with pytest.raises(ValueError, match="above 0, or leave it out; with 0 a row seen once would"):
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
    size = len(Posterior(log).column)
    most = MOST_NUMBERS // size
    message = rf"models {most + 1}: with {size} transitions there is memory for at most {most}"
    with pytest.raises(ValueError, match=message):
        draw_models(log, models=most + 1)


def test_more_states_than_can_be_counted_are_refused(small, monkeypatch):
    monkeypatch.setattr("butfor.models.posterior.MOST_CELLS", 10)
    with pytest.raises(ValueError, match=r"4 states and 3 actions: .* at most 10 transitions"):
        bf.credible_intervals(*small)

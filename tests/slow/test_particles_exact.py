"""Particles against the exact engine, and against what truly would have happened."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import butfor as bf
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.doubly_robust import doubly_robust
from butfor.replay.particles import VALUE_DRAWS, ParticleEngine
from tests.factored import clinic_model, simulate_factored
from tests.grids import each_value
from tests.support import FALSE_ALARM, frequencies_agree
from tests.wide import always, cautious, simulate

DRAWS = 4000
SAMPLED = 200  # draws of results that do not say how many
MECHANISMS = [bf.GumbelMax(), bf.InverseCDF(), bf.MaximalCoupling(), bf.Independent()]


def question(seed, *, end=("next.pulse", "next.sugar", "dose"), lost=False, **options):
    """A question that the exact engine answers too, with random rewards on every step."""
    generator = np.random.default_rng(seed)
    model = clinic_model(generator, end=end)
    behavior, target = generator.dirichlet([1.5, 1.5], (2, 24))
    log = simulate_factored(generator, model, behavior, 25, 4)
    if lost:
        reached = log.next_state.copy()
        reached[log.offsets[1:][log.outcome >= 0] - 1] = -1
        log = replace(log, next_state=reached)
    return bf.Replay(log, model, target, behavior=behavior, horizon=6, **options)


def sample(replay, seed=0):
    return ParticleEngine(replay).outcomes(draws=DRAWS, seed=seed, threads=None, progress=None)


def agree(exact, found):
    """Whether shares of draws fit the exact probabilities."""
    counts = np.round(found.probability * DRAWS).astype(np.int64)
    return frequencies_agree(counts, exact.probability, DRAWS)


@pytest.mark.parametrize(
    ("mechanism", "action_noise"), each_value(product(MECHANISMS, ["shared", "fresh"])), ids=repr
)
def test_particles_agree_with_the_exact_engine(mechanism, action_noise):
    replay = question(0, mechanism=mechanism, action_noise=action_noise, discount=0.9)
    exact, found = replay.outcomes(), sample(replay)
    assert agree(exact, found)
    # Hoeffding: a mean of DRAWS returns, each within the sum of the largest rewards
    largest = np.abs(replay.factored.rewards.table).max() * sum(0.9**t for t in range(6))
    wide = 2 * largest * np.sqrt(np.log(2 * len(replay) / FALSE_ALARM) / (2 * DRAWS))
    np.testing.assert_allclose(found.expected_return, exact.expected_return, rtol=0, atol=wide)


def test_particles_agree_where_final_states_were_not_logged():
    replay = question(1, end=("pulse", "dose"), lost=True)
    assert agree(replay.outcomes(), sample(replay))


def test_particles_agree_without_continuation():
    replay = question(2, continuation=False)
    assert agree(replay.outcomes(), sample(replay))


def test_standard_errors_are_those_of_the_means():
    # the standardized error of 25 returns is about normal: its largest exceeds 5.6 by a chance of
    # 25 * 2.1e-8 < FALSE_ALARM; errors that were half as large would exceed 2 often
    replay = question(3)
    exact, found = replay.outcomes(), sample(replay)
    free = found.return_error > 1e-9  # others are the same in every draw, up to rounding
    z = (found.expected_return - exact.expected_return)[free] / found.return_error[free]
    assert np.abs(z).max() < 5.6
    assert free.sum() > 10


def course_counts(engine):
    return np.round(engine.courses() * SAMPLED).astype(np.int64)


def test_courses_agree_with_the_exact_engine():
    replay = question(4)
    exact = replay.courses()
    assert frequencies_agree(course_counts(ParticleEngine(replay)), exact, SAMPLED)
    factors = {one.variable: one for one in replay.factored.factors}
    factors["sugar"] = replace(factors["sugar"], table=0.2 * factors["sugar"].table + 0.4)
    model = replace(replay.factored, factors=tuple(factors.values()))
    wrong = ParticleEngine(replay.ask(model=model))
    assert not frequencies_agree(course_counts(wrong), exact, SAMPLED)


def test_steps_agree_with_the_exact_engine():
    # every variable depends on the state and the action alone, so that the cases of a draw do too
    replay = question(5, end=("pulse", "dose"))
    replay = replay.ask(model=bf.fit_factored(replay.episodes, parents={"": ["pulse", "dose"]}))
    exact, found = replay.steps(), ParticleEngine(replay).everything(threads=None, progress=None)[1]
    assert 0 < exact.thin.sum() < exact.mass.sum()
    for name in ("mass", "thin", "other"):
        counts = np.round(getattr(found, name) * SAMPLED).astype(np.int64)
        assert frequencies_agree(counts, getattr(exact, name), SAMPLED), name
    # the lower median of draws is at most that of the law if half of the mass is at or below it
    sure = (exact.mass == 1) & (found.mass == 1) & (exact.thin == 0)
    assert (found.evidence[sure] >= 10).all()


def close(found, exact, share, largest):
    """Whether a weighted sum of means over draws of returns is as near as Hoeffding allows.

    `share` is the weight of each draw, [m, K] or [m, 1]; returns are within `largest` of 0.
    """
    wide = 2 * largest * np.sqrt((share**2).sum() * np.log(2 / FALSE_ALARM) / 2)
    return abs(found - exact) < wide


def largest_return(replay):
    most = np.abs(replay.factored.rewards.table).max()
    return most * sum(replay.discount**t for t in range(replay.horizon))


def test_influence_agrees_with_the_exact_engine():
    # no episode ends: where one does, particles tell apart the states in which it ended
    replay = question(6)
    factors = {one.variable: one for one in replay.factored.factors}
    never = np.zeros_like(factors[""].table)
    never[..., -1] = 1.0
    factors[""] = replace(factors[""], table=never)
    model = replace(replay.factored, factors=tuple(factors.values()))
    log = simulate_factored(np.random.default_rng(1), model, replay.behavior_table, 60, 4)
    replay = replay.ask(episodes=log, model=model)
    exact, found = replay.steps(), ParticleEngine(replay).everything(threads=None, progress=None)[1]
    # Hoeffding: a mean of 60 * SAMPLED numbers from 0 to 1, at each of six steps
    wide = np.sqrt(np.log(2 * 6 / FALSE_ALARM) / (2 * 60 * SAMPLED))
    gap = np.abs(found.influence.mean(axis=0) - exact.influence.mean(axis=0))
    assert (gap < wide).all()
    other = ParticleEngine(replay.ask(model=replay.factored, target=replay.behavior_table))
    same = other.everything(threads=None, progress=None)[1]
    assert (np.abs(same.influence.mean(axis=0) - exact.influence.mean(axis=0)) > wide).any()


def test_values_in_the_model_agree_with_the_exact_engine():
    replay = question(7, discount=0.9)
    largest, engine = largest_return(replay), ParticleEngine(replay)
    n, exact = len(replay), replay.engine.logged_values()
    share = np.full((n * SAMPLED, 1), 1 / (n * SAMPLED))
    mean = replay.engine.first_values().mean()
    assert close(engine.first_values().mean(), mean, share, largest)
    found, steps = engine.logged_values(), len(replay.log.state)
    share = np.full((steps * VALUE_DRAWS, 1), 1 / (steps * VALUE_DRAWS))
    for name in ("state", "action"):
        one, other = getattr(found, name).mean(), getattr(exact, name).mean()
        assert close(one, other, share, largest), name
    assert not close(found.state.mean(), exact.state.mean() + 0.3 * largest, share, largest)


def test_doubly_robust_estimates_are_unbiased():
    # DR is linear in the values of states and actions, which are means over draws
    replay = question(8, discount=0.9)
    columns = EpisodeColumns(replay)
    base, surprise = columns._corrections(ParticleEngine(replay).logged_values())
    drawn = replace(columns.logged, base=base, surprise=surprise)
    ones = np.ones((1, len(replay)))
    exact, found = (doubly_robust(one, ones)[0] for one in (columns.logged, drawn))
    weight = np.stack([columns.ratio_before, columns.ratio]) * columns.discounts / len(replay)
    share = np.repeat(weight.reshape(-1, 1) / VALUE_DRAWS, VALUE_DRAWS)
    assert found != exact
    assert close(found, exact, share, largest_return(replay))


def test_contributions_agree_with_the_exact_engine():
    # a sum with random signs, since their plain sum is that of the first value alone
    replay = question(9, discount=0.9)
    found, exact = ParticleEngine(replay).contributions(threads=None), replay.contributions()
    sign = np.random.default_rng(0).choice([-1.0, 1.0], len(found))
    # each value counts in its own step and in the one before
    share = np.full((len(found) * SAMPLED, 1), 2 / SAMPLED)
    assert close(sign @ found, sign @ exact, share, largest_return(replay))
    assert not close(sign @ exact, sign @ exact + len(found), share, largest_return(replay))


def test_a_wrong_factor_fails():
    replay = question(0)
    model = replay.factored
    factors = {one.variable: one for one in model.factors}
    table = 0.9 * factors[""].table + 0.1 / 3
    factors[""] = replace(factors[""], table=table)
    wrong = replay.ask(model=replace(model, factors=tuple(factors.values())))
    assert agree(wrong.outcomes(), sample(wrong))
    assert not agree(replay.outcomes(), sample(wrong))


def test_noise_of_another_mechanism_fails():
    gumbel = question(0)
    assert not agree(gumbel.outcomes(), sample(question(0, mechanism=bf.Independent())))


def test_patients_of_thirty_variables_are_predicted_better_than_by_frequencies():
    # the same patients with the same noise, had all been given the drug
    log, truth = simulate(7, 1000).log, simulate(7, 1000, policy=always).log
    true = np.eye(3)[truth.outcome]
    model = bf.fit_factored(log)
    found = bf.Replay(log, model, always, behavior=cautious).outcomes(draws=60)

    def brier(predicted):
        return ((predicted - true) ** 2).sum(axis=1)

    # even against the frequencies of what truly would have happened, which nobody knows
    gain = brier(true.mean(axis=0)) - brier(found.probability)
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))


def test_particles_agree_where_every_step_has_costs():
    # what a treatment costs, the heart rate before and the pressure reached: at an end, too
    log = bf.sepsis.simulate(np.full((1440, 8), 1 / 8), 300, seed=0).hide("glucose", "diabetes")
    before, after = log.codes(log.state), log.codes(log.next_state)
    cost = 0.1 * (log.action % 2) + 0.05 * before["heart rate"] + 0.2 * after["blood pressure"]
    log = replace(log, reward=log.reward - cost)
    model = bf.fit_factored(log)
    assert "next.blood pressure" in model.rewards.parents
    target = bf.policy_iteration(model, discount=0.99)
    replay = bf.Replay(log, model, target, continuation=False).part(np.arange(100))
    draws, exact = 20_000, replay.outcomes()
    found = ParticleEngine(replay).outcomes(draws=draws, seed=1, threads=None, progress=None)
    # empirical Bernstein (Maurer and Pontil): returns are 19 rewards of steps and one of an end
    table = model.rewards.table
    spread = 19 * np.ptp([*table[..., -1].ravel(), 0.0]) + np.ptp([*table.ravel(), 0.0])
    log_chance = np.log(4 * len(replay) / FALSE_ALARM)
    wide = found.return_error * np.sqrt(2 * log_chance)
    wide += 7 * spread * log_chance / (3 * (draws - 1))
    gap = np.abs(found.expected_return - exact.expected_return)
    print(f"largest z {np.nanmax(gap / np.maximum(found.return_error, 1e-9)):.1f}")
    assert (gap < wide).all()

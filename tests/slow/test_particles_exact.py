"""Particles against the exact engine, and against what truly would have happened."""

from dataclasses import replace

import numpy as np
import pytest

import butfor as bf
from butfor.replay.particles import ParticleEngine
from tests.factored import clinic_model, simulate_factored
from tests.support import FALSE_ALARM, frequencies_agree
from tests.wide import always, cautious, simulate

DRAWS = 4000
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
    return ParticleEngine(replay).outcomes(
        negligible=0.0, draws=DRAWS, seed=seed, threads=None, progress=None
    )


def agree(exact, found):
    """Whether shares of draws fit the exact probabilities."""
    counts = np.round(found.probability * DRAWS).astype(np.int64)
    return frequencies_agree(counts, exact.probability, DRAWS)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("action_noise", ["shared", "fresh"])
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
    found = bf.Replay(log, model, always, behavior=cautious).outcomes(draws=200)

    def brier(predicted):
        return ((predicted - true) ** 2).sum(axis=1)

    # even against the frequencies of what truly would have happened, which nobody knows
    gain = brier(true.mean(axis=0)) - brier(found.probability)
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))

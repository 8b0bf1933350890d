"""Samplers of the Gumbel noise given what was observed, against the closed form."""

import random

import numpy as np
import pytest
from scipy.stats import gumbel_r, kstest

import butfor as bf
from tests.reference import gumbel as reference
from tests.support import FALSE_ALARM, frequencies_agree

METHODS = ["top-down", "race", "rejection"]
TWINS = [reference.noise_top_down, reference.noise_by_race, reference.noise_by_rejection]
P = np.array([0.3, 0.25, 0.0, 0.25, 0.2])
Q = np.array([0.1, 0.2, 0.3, 0.0, 0.4])
DRAWS = 40_000


def winners(row, noise):
    with np.errstate(divide="ignore"):
        return (np.log(row) + noise).argmax(axis=-1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("observed", [0, 1, 3, 4])
def test_noise_replays_what_was_observed_and_draws_the_exact_counterfactual(method, observed):
    noise = bf.GumbelMax().sample_noise(P, observed, size=DRAWS, seed=11, method=method)
    assert (winners(P, noise) == observed).all()
    exact = bf.counterfactual_distribution(P, Q, observed)
    counts = np.bincount(winners(Q, noise), minlength=len(Q))
    assert frequencies_agree(counts, exact, DRAWS)


@pytest.mark.parametrize("twin", TWINS)
def test_plain_samplers_draw_the_exact_counterfactual_too(twin):
    generator = random.Random(5)
    drawn = [
        reference.counterfactual_outcome(Q, twin(P.tolist(), 1, generator)) for _ in range(4000)
    ]
    exact = bf.counterfactual_distribution(P, Q, 1)
    assert frequencies_agree(np.bincount(drawn, minlength=len(Q)), exact, 4000)


def test_the_check_of_frequencies_catches_a_wrong_sampler():
    # noise from its prior, as if nothing had been observed, gives q instead
    noise = np.random.default_rng(11).gumbel(size=(DRAWS, len(P)))
    exact = bf.counterfactual_distribution(P, Q, 1)
    counts = np.bincount(winners(Q, noise), minlength=len(Q))
    assert not frequencies_agree(counts, exact, DRAWS)
    assert frequencies_agree(counts, Q, DRAWS)


@pytest.mark.parametrize("method", ["prior", *METHODS])
@pytest.mark.parametrize("observed", [0, 1, 3, 4])
def test_maximum_is_standard_gumbel_whatever_the_argmax(method, observed):
    generator = np.random.default_rng(2)
    if method == "prior":
        noise = generator.gumbel(size=(4 * DRAWS, len(P)))
        noise = noise[winners(P, noise) == observed]
    else:
        noise = bf.GumbelMax().sample_noise(P, observed, size=DRAWS, seed=generator, method=method)
    possible = P > 0
    maximum = (np.log(P[possible]) + noise[:, possible]).max(axis=1)
    assert kstest(maximum, gumbel_r.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("method", METHODS)
def test_impossible_outcomes_keep_their_prior_noise(method):
    noise = bf.GumbelMax().sample_noise(P, 0, size=DRAWS, seed=4, method=method)
    assert kstest(noise[:, 2], gumbel_r.cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("method", METHODS)
def test_noise_depends_on_the_seed_only(method):
    first, second, other = (
        bf.GumbelMax().sample_noise(P, 1, size=8, seed=seed, method=method) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


@pytest.mark.parametrize("method", ["top-down", "race"])
def test_a_nearly_impossible_observation_is_no_trouble(method):
    p = [1 - 1e-12, 1e-12]
    noise = bf.GumbelMax().sample_noise(p, 1, size=100, method=method)
    assert (winners(p, noise) == 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observed": 2}, "probability 0"),
        ({"observed": 9}, "observed 9"),
        ({"observed": 0, "method": "magic"}, "'magic'.*top-down"),
    ],
)
def test_bad_requests_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bf.GumbelMax().sample_noise(P, **arguments)


def test_hopeless_rejection_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="top-down"):
        bf.GumbelMax().sample_noise([1 - 1e-9, 1e-9], 1, method="rejection")

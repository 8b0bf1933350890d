"""Returns and their bounds where the state that an end reaches decides what it pays.

200 random factored worlds with costs of every step against a plain enumeration of all next states:
both kinds of action noise, every mechanism, logged rewards that differ from the model's, final
states that were logged or not. Of the bounds every extreme coupling of each row is tried.
"""

from functools import cache
from itertools import product

import numpy as np
import pytest

import butfor as bf
from tests.factored import plain, random_world, seen_steps, simulate_factored, without_finals
from tests.reference.counterfactual import Episode, action_law
from tests.reference.factored_bounds import episode_bounds
from tests.reference.factored_replay import exact_outcomes
from tests.reference.gumbel import counterfactual_distribution
from tests.reference.mechanisms import independent, inverse_cdf, maximal
from tests.support import vary_rewards

WORLDS, HORIZON, DISCOUNT, TOLERANCE = 200, 3, 0.9, 1e-12
RULES = (
    (bf.GumbelMax(), counterfactual_distribution),
    (bf.MaximalCoupling(), maximal),
    (bf.InverseCDF(), inverse_cdf),
    (bf.Independent(), independent),
)
NOISES = ("shared", "fresh")


@pytest.fixture(scope="module")
def differences():
    """The greatest difference of the returns and of the bounds in each world."""
    found = np.array([differences_in(np.random.default_rng([7, n])) for n in range(WORLDS)])
    print(f"greatest difference: returns {found[:, 0].max():.1e}, bounds {found[:, 1].max():.1e}")
    return found


def test_returns_equal_the_enumeration(differences):
    assert differences[:, 0].max() < TOLERANCE


def test_bounds_equal_the_enumeration(differences):
    assert differences[:, 1].max() < TOLERANCE


def differences_in(generator):
    model = random_world(generator)
    behavior, target = generator.dirichlet(np.full(2, 1.5), (2, model.n_states))
    log = simulate_factored(generator, model, behavior, len(RULES) * len(NOISES), HORIZON)
    if generator.random() < 0.5:
        log = vary_rewards(log)
    if generator.random() < 0.5 and not any(one.startswith("next.") for one in model.end.parents):
        log = without_finals(log)
    world, returns, bounds = plain(model), [0.0], [0.0]
    for episode, ((mechanism, rule), noise) in enumerate(product(RULES, NOISES)):
        options = {"mechanism": mechanism, "action_noise": noise, "discount": DISCOUNT}
        asked = bf.Replay(log, model, target, behavior=behavior, **options)
        steps, shared = seen_steps(log, episode), noise == "shared"
        law, value = exact_outcomes(
            world,
            steps,
            behavior,
            target,
            shared=shared,
            horizon=HORIZON,
            discount=DISCOUNT,
            rule=remembered(rule),
        )
        found = asked.outcomes()
        returns.append(abs(found.expected_return[episode] - value))
        returns.append(np.abs(found.probability[episode] - law).max())
        if mechanism == RULES[0][0]:
            short = bf.Replay(log, model, target, behavior=behavior, continuation=False, **options)
            bounds.append(difference_of_bounds(short, episode, world, shared))
    return max(returns), max(bounds)


def remembered(rule):
    """The same rule, which computes nothing twice."""

    @cache
    def answer(p, q, k):
        return rule(list(p), list(q), k)

    return lambda p, q, k: answer(tuple(p), tuple(q), k)


def difference_of_bounds(asked, episode, world, shared):
    bounds, steps = asked.bounds(), seen_steps(asked.log, episode)
    taken = Episode([one.state for one in steps], [one.action for one in steps], [])
    found = episode_bounds(
        world,
        steps,
        lambda t, state: action_law(
            taken, t, state, asked.behavior_table, asked.target_table, shared
        ),
        discount=DISCOUNT,
    )
    gaps = []
    for (quantity, stable, sign), value in found.items():
        mine = bounds.expected_return[int(stable), episode]
        if quantity > 0:
            mine = bounds.probability[int(stable), episode, quantity - 1]
        gaps.append(abs(mine[int(sign < 0)] - value))
    return max(gaps)

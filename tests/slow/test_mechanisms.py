"""One contract for every mechanism: rows, episodes, properties, bad input. Add yours to `KINDS`."""

import itertools
import random
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import given

import butfor as bf
from butfor.mechanisms import properties
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.planning import state_values
from tests.grids import few
from tests.reference import counterfactual as episodes_reference
from tests.reference import gumbel as gumbel_reference
from tests.reference import mechanisms as reference
from tests.support import (
    LABELS,
    PROPERTY,
    enumerated,
    frequencies_agree,
    labelled_model,
    random_policy,
    reference_episodes,
    reference_model,
    row_pairs,
    simulate_log,
    vary_rewards,
)

EPSILON = np.finfo(float).eps
PAPER = [0.25, 0.25, 0.3, 0.2], [0.0, 0.25, 0.25, 0.5]


@dataclass(frozen=True)
class HalfAndHalf:
    """A mechanism as a user would write it, with nothing but the protocol's one method.

    A coin, thrown once for all rows, says whether noise is coupled maximally or not at all.
    """

    def counterfactual_rows(self, factual, counterfactual, observed):
        coupled = bf.MaximalCoupling().counterfactual_rows(factual, counterfactual, observed)
        return (coupled + counterfactual) / 2


@dataclass(frozen=True)
class Plain:
    """Another mechanism behind the protocol's one method: kernels have to take its table."""

    mechanism: Mechanism

    def counterfactual_rows(self, factual, counterfactual, observed):
        return self.mechanism.counterfactual_rows(factual, counterfactual, observed)


def shuffled(size):
    return np.random.default_rng(size).permutation(size).tolist()


def half_and_half(p, q, k):
    pair = zip(reference.maximal(p, q, k), reference.independent(p, q, k), strict=True)
    return [(a + b) / 2 for a, b in pair]


# how to make each over a number of outcomes, and its slow twin
KINDS = {
    "gumbel-max": (
        lambda size: bf.GumbelMax(),
        lambda size: gumbel_reference.counterfactual_distribution,
    ),
    "inverse cdf": (lambda size: bf.InverseCDF(), lambda size: reference.inverse_cdf),
    "inverse cdf, shuffled": (
        lambda size: bf.InverseCDF(shuffled(size)),
        lambda size: lambda p, q, k: reference.inverse_cdf(p, q, k, shuffled(size)),
    ),
    "maximal": (lambda size: bf.MaximalCoupling(), lambda size: reference.maximal),
    "independent": (lambda size: bf.Independent(), lambda size: reference.independent),
    "half and half": (lambda size: HalfAndHalf(), lambda size: half_and_half),
}
BUILT_IN = [kind for kind in KINDS if kind != "half and half"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, size):
    return KINDS[kind][0](size)


def twin(kind, size):
    return KINDS[kind][1](size)


def all_observed(kind, p, q):
    """Counterfactual rows for every outcome that p allows, and those outcomes."""
    possible = np.flatnonzero(np.asarray(p) > 0)
    mechanism = make(kind, len(p))
    return bf.counterfactual_distribution(p, q, possible, mechanism=mechanism), possible


def check_rows(kind, p, q):
    """The contract: distributions, within the support of q, that average to q."""
    rows, possible = all_observed(kind, p, q)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-11)
    assert (rows[:, q == 0] == 0).all()
    # sums of n numbers up to 1 are off by less than n epsilon, and there are four of them
    np.testing.assert_allclose(p[possible] @ rows, q, rtol=1e-10, atol=4 * len(p) * EPSILON)


# -------------------------------------------------------------------------------------- rows


@every_kind
@PROPERTY
@given(row_pairs())
def test_rows_are_distributions_on_the_support_of_q_that_average_to_q(kind, pair):
    check_rows(kind, *pair)


@every_kind
@PROPERTY
@given(row_pairs())
def test_rows_equal_the_slow_twin(kind, pair):
    p, q = pair
    rows, possible = all_observed(kind, p, q)
    for row, k in zip(rows, possible, strict=True):
        expected = twin(kind, len(p))(p.tolist(), q.tolist(), int(k))
        # what is off by rounding is the probability of both outcomes together
        assert (p[k] * np.abs(row - expected) <= 8 * len(p) * EPSILON).all()


@every_kind
@pytest.mark.parametrize("size", few([60, 150], 1))
def test_long_rows_equal_the_slow_twin(kind, size):
    p, q = np.random.default_rng(size).dirichlet(np.full(size, 0.5), 2)
    for k in (int(p.argmax()), int((p / q).argmax()), int((q / p).argmax())):
        expected = twin(kind, size)(p.tolist(), q.tolist(), k)
        found = bf.counterfactual_distribution(p, q, k, mechanism=make(kind, size))
        assert (p[k] * np.abs(found - expected) <= 8 * size * EPSILON).all()


@every_kind
@pytest.mark.parametrize(("scale", "size"), few([(0.02, 1000), (0.02, 2000), (1.0, 2000)], 1))
def test_thousands_of_entries_keep_the_contract(kind, scale, size):
    generator = np.random.default_rng(7)
    p, q = (row / row.sum() for row in generator.gamma(scale, size=(2, size)) + 1e-300)
    check_rows(kind, p, q)


@every_kind
@pytest.mark.parametrize("tiny", few([5e-324, 1e-17, 1e-310, 1e-300], 2))
def test_outcomes_too_rare_to_see_beside_one_keep_the_contract(kind, tiny):
    for p in ([1.0, tiny, 0.0], [0.5, tiny, 0.5], [tiny, 0.3, 0.7], [0.7, 0.3, tiny]):
        for q in (p[::-1], [tiny, tiny, 1.0], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]):
            check_rows(kind, np.array(p), np.array(q))


@every_kind
def test_one_hot_and_disjoint_rows(kind):
    first, last = np.eye(4)[0], np.eye(4)[3]
    for p, q in ((first, last), (first, first), (first, np.full(4, 0.25))):
        rows, _ = all_observed(kind, p, q)
        np.testing.assert_allclose(rows[0], q)  # all noise gives `first`, so nothing was learned
    rows, _ = all_observed(kind, np.full(4, 0.25), last)
    np.testing.assert_array_equal(rows, np.tile(last, (4, 1)))
    check_rows(kind, np.array([0.3, 0.7, 0, 0]), np.array([0, 0, 0.4, 0.6]))


@pytest.mark.parametrize("kind", ["gumbel-max", "inverse cdf", "inverse cdf, shuffled", "maximal"])
@PROPERTY
@given(row_pairs())
def test_the_same_row_gives_exactly_what_was_observed(kind, pair):
    rows, possible = all_observed(kind, pair[0], pair[0])
    np.testing.assert_array_equal(rows, np.eye(len(pair[0]))[possible])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # D(5) = 5, D(1) = 1.4, D(.2) = 1: see the tests of Gumbel-Max
        ("gumbel-max", [0.2, 0.4 * 4 / 7, 0.5 * (4 / 7 + 4 / 7)]),
        ("maximal", [0.2, 0.0, 0.8]),  # .1 / .5 stays; q exceeds p at the third only
        ("inverse cdf", [0.2, 0.8, 0.0]),  # [0, .5] is [0, .1] and [.1, .5] under q
        ("independent", [0.1, 0.4, 0.5]),
        ("half and half", [0.15, 0.2, 0.65]),
    ],
)
def test_worked_example_of_every_mechanism(kind, expected):
    p, q = [0.5, 0.4, 0.1], [0.1, 0.4, 0.5]
    found = bf.counterfactual_distribution(p, q, 0, mechanism=make(kind, 3))
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_the_order_decides_the_paper_example():
    # given the second, U is in [.25, .5): the third's interval in one order, the fourth's next
    for order, outcome in (([0, 1, 2, 3], 2), ([0, 1, 3, 2], 3), (None, 2)):
        found = bf.counterfactual_distribution(*PAPER, 1, mechanism=bf.InverseCDF(order))
        np.testing.assert_array_equal(found, np.eye(4)[outcome])


@pytest.mark.parametrize("order", [None, (2, 0, 3, 1)])
def test_one_uniform_number_draws_the_rows_of_the_inverse_cdf(order, monkeypatch):
    p, q = (0.1, 0.4, 0.3, 0.2), (0.35, 0.15, 0.2, 0.3)
    # the twin would work out the same intervals, in fractions, for each of the draws
    monkeypatch.setattr(reference, "intervals", cache(reference.intervals))
    generator = random.Random(3)
    for k in range(4):
        noise = [reference.noise_of_interval(p, k, order, generator) for _ in range(3000)]
        assert {reference.outcome_of_noise(p, u, order) for u in noise} == {k}
        drawn = [reference.outcome_of_noise(q, u, order) for u in noise]
        exact = bf.counterfactual_distribution(p, q, k, mechanism=bf.InverseCDF(order))
        assert frequencies_agree(np.bincount(drawn, minlength=4), exact, 3000)
        wrong = np.roll(exact, 1)
        assert not frequencies_agree(np.bincount(drawn, minlength=4), wrong, 3000)


def test_an_interval_too_short_to_see_keeps_its_place():
    # each of these was lost to rounding when intervals were measured from 0
    found = bf.counterfactual_distribution(
        [0.7, 0.3, 1e-20], [0.2, 0.8, 2e-20], 2, mechanism=bf.InverseCDF()
    )
    np.testing.assert_array_equal(found, [0, 0, 1])
    found = bf.counterfactual_distribution(
        [0.5, 2e-20, 0.5], [0.5, 1e-20, 0.5], 1, mechanism=bf.InverseCDF()
    )
    np.testing.assert_allclose(found, [0, 0.5, 0.5], rtol=1e-12)


def test_maximal_coupling_has_a_place_to_go_where_the_excess_is_lost_in_rounding():
    # the third outcome vanishes, and no other is more likely: by rounding all are a little less so
    p = np.array([0.7294509, 0.2705491, 1e-300])
    q = np.append(np.nextafter(p[:2], 0), 0.0)
    mechanism = bf.MaximalCoupling()
    found = mechanism.counterfactual_rows(p[None], q[None], np.array([2]))
    np.testing.assert_allclose(found, [[*p[:2], 0.0]], rtol=1e-12)
    found = bf.counterfactual_distribution([2e-300, 1.0], [1e-300, 1.0], 0, mechanism=mechanism)
    np.testing.assert_allclose(found, [0.5, 0.5], rtol=1e-12)


# ----------------------------------------------------------------------------------- episodes


@pytest.fixture(scope="module", params=["states", "labels"])
def problem(request):
    """A model with noise on states or on labels, a behavior, a target and a log."""
    labels = LABELS[request.param == "labels"]
    generator = np.random.default_rng(len(request.param))
    model = labelled_model(generator, labels)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[0] = np.eye(3)[1]  # deterministic in one state
    return model, behavior, target, vary_rewards(simulate_log(generator, model, behavior, 25, 5))


def labels_of(model):
    return int(model.labels.max()) + 1


@every_kind
def test_null_target_equal_to_behavior_gives_back_every_episode(kind, problem):
    model, behavior, _, log = problem
    known = {"behavior": behavior, "mechanism": make(kind, labels_of(model))}
    result = bf.Replay(log, model, behavior, **known).outcomes()
    observed = np.zeros_like(result.probability)
    observed[np.arange(len(log)), log.outcome] = 1.0
    np.testing.assert_allclose(result.probability, observed, atol=1e-12)
    np.testing.assert_allclose(result.difference, 0.0, atol=1e-12)
    drawn = bf.Replay(log, model, behavior, **known).draws(3)
    for i, episode in enumerate(reference_episodes(log)):
        taken = len(episode.actions)
        assert (drawn.action[i, :, :taken] == episode.actions).all()
        assert (drawn.state[i, :, 1 : taken + 1] == episode.reached).all()


@every_kind
@pytest.mark.parametrize("labels", LABELS, ids=["states", "labels"])
@pytest.mark.parametrize("action_noise", ["shared", "fresh"])
def test_decomposition_counterfactual_values_average_to_the_target_value(
    kind, labels, action_noise
):
    generator = np.random.default_rng(31)
    model = labelled_model(generator, labels)
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    log, weight, first = enumerated(model, behavior, horizon=2)
    result = bf.Replay(
        log,
        model,
        target,
        behavior=behavior,
        mechanism=make(kind, labels_of(model)),
        action_noise=action_noise,
        discount=0.9,
    ).outcomes()
    by_state = state_values(model, target, horizon=2, discount=0.9)
    for state in range(model.n_states):
        mine = first == state
        mean = weight[mine] @ result.expected_return[mine]
        np.testing.assert_allclose(mean, by_state[state], atol=1e-12)


@every_kind
def test_exact_pass_equals_its_slow_twin(kind, problem):
    model, behavior, target, log = problem
    size = labels_of(model)
    result = bf.Replay(
        log, model, target, behavior=behavior, mechanism=make(kind, size), horizon=6, discount=0.9
    ).outcomes()
    for i, episode in enumerate(reference_episodes(log)[:8]):
        probability, expected = episodes_reference.exact_outcomes(
            reference_model(model),
            episode,
            behavior.tolist(),
            target.tolist(),
            shared=True,
            horizon=6,
            discount=0.9,
            rule=twin(kind, size),
        )
        np.testing.assert_allclose(result.probability[i], probability, atol=1e-12)
        np.testing.assert_allclose(result.expected_return[i], expected, atol=1e-12)


@every_kind
def test_draws_have_the_exact_law_and_steps_add_up(kind, problem):
    model, behavior, target, log = problem
    known = {"behavior": behavior, "mechanism": make(kind, labels_of(model))}
    drawn = bf.Replay(log, model, target, **known).draws(8000, seed=1)
    exact = bf.Replay(log, model, target, **known).outcomes()
    size = exact.probability.shape[1]
    counts = np.stack([(drawn.outcome % size == o).sum(axis=1) for o in range(size)], axis=1)
    assert frequencies_agree(counts, exact.probability, 8000)
    added = np.add.reduceat(
        bf.Replay(log, model, target, **known).contributions(), log.offsets[:-1]
    )  # nothing follows the end: each has an outcome or is as long as the horizon
    np.testing.assert_allclose(added, exact.difference, atol=1e-12)


def test_draws_of_another_mechanism_fail_that_check(problem):
    model, behavior, target, log = problem
    drawn = bf.Replay(log, model, target, behavior=behavior, mechanism=bf.Independent()).draws(8000)
    exact = bf.Replay(log, model, target, behavior=behavior).outcomes()
    assert not frequencies_agree((drawn.outcome == 0).sum(axis=1), exact.probability[:, 0], 8000)


@every_kind
def test_influence_lies_between_none_and_all(kind, problem):
    model, behavior, target, log = problem
    size = labels_of(model)
    found = bf.Replay(log, model, target, behavior=behavior, mechanism=make(kind, size)).steps()
    assert (found.influence >= 0).all()
    assert (found.influence <= 1 + 1e-12).all()
    independent = bf.Replay(
        log, model, target, behavior=behavior, mechanism=bf.Independent()
    ).steps()
    if kind != "independent":
        assert found.influence[:, 1:].sum() > independent.influence[:, 1:].sum()


@every_kind
def test_audits_and_unsupported_mass_take_every_mechanism(kind):
    generator = np.random.default_rng(5)
    world = labelled_model(generator, None)
    log = simulate_log(generator, world, random_policy(generator, world), 12, 4)
    model = bf.fit_mdp(log)
    assert model.unseen.any()
    target = random_policy(generator, model)
    mechanism = make(kind, labels_of(model))
    mass = bf.Replay(log, model, target, mechanism=mechanism).support()
    assert (mass >= 0).all()
    assert (mass <= 1 + 1e-12).all()
    assert mass.max() > 0
    audit = bf.run_audit(
        log, model, target, mechanism=mechanism, flags=2, draws=2, estimators=["Observed", "CF"]
    )
    assert audit.meta.parameters.mechanism == repr(mechanism)
    exact = bf.Replay(log, model, target, mechanism=mechanism).outcomes()
    value = audit.estimates.set_index("estimator")["value"]["CF"]
    np.testing.assert_allclose(value, exact.expected_return.mean(), rtol=1e-12)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_kernels_and_tables_give_the_same(kind, problem):
    model, behavior, target, log = problem
    mechanism = make(kind, labels_of(model))
    assert isinstance(mechanism, Compiled)
    assert not isinstance(Plain(mechanism), Compiled)
    pairs = []
    for chosen in (mechanism, Plain(mechanism)):
        known = {"behavior": behavior, "mechanism": chosen}
        exact = bf.Replay(log, model, target, **known).outcomes()
        pairs.append(
            [
                exact.probability,
                exact.expected_return,
                bf.Replay(log, model, target, **known).steps().influence,
                bf.Replay(log, model, target, **known).contributions(),
                bf.Replay(log, model, target, **known).draws(20).state,
            ]
        )
    for compiled_route, table_route in zip(*pairs, strict=True):
        np.testing.assert_allclose(compiled_route, table_route, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------- properties


def test_three_rows_can_have_no_noise_that_makes_every_pair_maximal():
    rows = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    pairs = list(itertools.combinations(range(3), 2))
    agreeing = 0.0
    for a, b in pairs:
        for k in np.flatnonzero(rows[a]):
            found = bf.counterfactual_distribution(
                rows[a], rows[b], k, mechanism=bf.MaximalCoupling()
            )
            agreeing += rows[a, k] * found[k]
    assert agreeing == 1.5  # pairs that agree, on average
    possible = itertools.product(*map(np.flatnonzero, rows))
    assert max(sum(y[a] == y[b] for a, b in pairs) for y in possible) == 1


def test_the_inverse_cdf_breaks_stability_on_the_paper_example():
    found = bf.mechanisms.is_stable(bf.InverseCDF(), *PAPER)
    assert not found
    (move,) = found.counterexample
    # the third outcome became rarer, the second did not: .25 / .3 against 1
    assert (move.factual, move.counterfactual) == tuple(map(tuple, PAPER))
    assert (move.observed, move.outcome, move.probability) == (1, 2, 1.0)
    assert str(found) == (
        "InverseCDF(order=None) breaks counterfactual stability: given outcome 1 (counted "
        "from 0) under (0.25, 0.25, 0.3, 0.2), outcome 2 has probability 1 under "
        "(0, 0.25, 0.25, 0.5), with q/p 0.8333 against 1"
    )
    # in the other order the second becomes the fourth, which rose the most; other rows break that
    other = bf.InverseCDF([0, 1, 3, 2])
    assert bf.mechanisms.is_stable(other, *PAPER)
    assert not bf.mechanisms.is_stable(other, outcomes=4)


@pytest.mark.parametrize("mechanism", [bf.GumbelMax(), bf.MaximalCoupling()])
def test_gumbel_max_and_maximal_coupling_are_stable(mechanism):
    found = bf.mechanisms.is_stable(mechanism, trials=1000, seed=4)
    assert found
    assert found.counterexample == ()
    assert (
        str(found)
        == f"{mechanism!r}: no counterexample to counterfactual stability in 1001 pairs of rows"
    )


@pytest.mark.parametrize("mechanism", [bf.InverseCDF(), bf.Independent(), HalfAndHalf()])
def test_others_are_not_stable(mechanism):
    assert not bf.mechanisms.is_stable(mechanism)
    assert not bf.mechanisms.is_stable(mechanism, outcomes=3)


def test_equal_rows_are_ties_so_that_all_must_stay():
    row = [0.2, 0.3, 0.5]
    assert bf.mechanisms.is_stable(bf.InverseCDF(), row, row)
    assert not bf.mechanisms.is_stable(bf.Independent(), row, row)
    # a difference within the tolerance is a tie, in which next to nothing moves
    near = [0.2, 0.3 + 1e-11, 0.5 - 1e-11]
    for mechanism in (bf.GumbelMax(), bf.MaximalCoupling()):
        assert bf.mechanisms.is_stable(mechanism, row, near)


@pytest.mark.parametrize("mechanism", [bf.GumbelMax(), bf.MaximalCoupling()])
@PROPERTY
@given(row_pairs())
def test_stable_rows_keep_the_outcome_of_the_largest_ratio(mechanism, pair):
    p, q = pair
    assert bf.mechanisms.is_stable(mechanism, p, q)
    q = np.where(p > 0, q, 0)  # an outcome that p never gives has an infinite ratio
    if q.sum() < 1e-3:
        return
    q /= q.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        top = int(np.nanargmax(np.where(p > 0, q / p, np.nan)))
    found = bf.counterfactual_distribution(p, q, top, mechanism=mechanism)
    np.testing.assert_allclose(found[top], 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "mechanism", [bf.GumbelMax(), bf.MaximalCoupling(), bf.InverseCDF(), bf.InverseCDF([1, 0])]
)
@PROPERTY
@given(row_pairs(size=2))
def test_for_two_outcomes_stability_monotonicity_and_the_probability_of_necessity(mechanism, pair):
    p, q = pair
    assert bf.mechanisms.is_stable(mechanism, p, q)
    assert bf.mechanisms.is_monotone(mechanism, p, q)
    if p[1] > 1e-6:  # rounding of 1e-16 divided by less would show
        found = bf.counterfactual_distribution(p, q, 1, mechanism=mechanism)
        np.testing.assert_allclose(found[0], max(0.0, 1 - q[1] / p[1]), atol=1e-9)


def test_a_threshold_on_uniform_noise_has_the_same_necessity_given_every_covariate():
    # Y = 1{U <= g(x, t)}: having had the event under t = 1, it needed t with max(0, 1 - g0 / g1)
    treated, untreated = np.array([0.9, 0.5, 0.2]), np.array([0.3, 0.6, 0.0])  # by covariate
    rows = [np.stack([1 - g, g], axis=1) for g in (treated, untreated)]
    expected = [1 - 0.3 / 0.9, 0.0, 1.0]
    for mechanism in (bf.InverseCDF([1, 0]), bf.InverseCDF(), bf.GumbelMax()):
        found = bf.counterfactual_distribution(*rows, [1, 1, 1], mechanism=mechanism)
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-15)


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_for_two_outcomes_a_stable_mechanism_is_monotone(seed):
    for kind in KINDS:
        mechanism = make(kind, 2)
        stable = bool(bf.mechanisms.is_stable(mechanism, outcomes=2, seed=seed))
        assert stable == bool(bf.mechanisms.is_monotone(mechanism, seed=seed))
        assert stable == (kind not in ("independent", "half and half"))


def test_contradictory_moves_are_told():
    found = bf.mechanisms.is_monotone(bf.Independent(), [0.5, 0.5], [0.25, 0.75])
    assert not found
    up, down = found.counterexample
    assert (up.observed, up.outcome, up.probability) == (0, 1, 0.75)
    assert (down.observed, down.outcome, down.probability) == (1, 0, 0.25)
    assert str(found).startswith("Independent() breaks monotonicity: given outcome 0")
    assert "; but given outcome 1" in str(found)


@pytest.mark.parametrize(
    ("mechanism", "monotone"),
    [
        (bf.InverseCDF(), True),  # quantiles of the larger row are larger
        (bf.InverseCDF([3, 2, 1, 0]), True),
        (bf.InverseCDF([1, 0, 3, 2]), False),
        (bf.GumbelMax(), False),  # knows no order
        (bf.MaximalCoupling(), False),
        (bf.Independent(), False),
    ],
)
def test_with_more_outcomes_only_their_own_order_is_monotone(mechanism, monotone):
    assert bool(bf.mechanisms.is_monotone(mechanism, outcomes=4)) == monotone


def test_ordered_pairs_are_ordered():
    generator = np.random.default_rng(0)
    for _ in range(50):
        p, q = properties._ordered_pair(5, generator)
        gap = np.cumsum(p - q)
        assert (gap > -1e-12).all() or (gap < 1e-12).all()


@pytest.mark.parametrize("check", [bf.mechanisms.is_stable, bf.mechanisms.is_monotone])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factual": [0.5, 0.5]}, "give both rows"),
        ({"factual": [0.5, 0.5], "counterfactual": [1.0]}, r"\(2,\) and \(1,\)"),
        ({"factual": [0.5, 0.6], "counterfactual": [0.5, 0.5]}, r"sums to 1\.1"),
        ({"trials": 0}, "trials 0"),
        ({"outcomes": 1}, "outcomes 1"),
        ({"mechanism": bf.GumbelMax}, "mechanism <class"),
    ],
)
def test_bad_checks_are_refused(check, arguments, message):
    with pytest.raises(ValueError, match=message):
        check(**({"mechanism": bf.GumbelMax()} | arguments))


def test_a_search_names_the_number_that_an_order_needs():
    with pytest.raises(ValueError, match="order lists 3 outcomes, but there are 2"):
        bf.mechanisms.is_monotone(bf.InverseCDF([2, 0, 1]))


# ----------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "order", [[0, 0, 1], [0.0, 1.0, 2.0], [0, 2, 3], [1, 2, 3], [-1, 0, 1], [[0, 1]], 2, "012", []]
)
def test_an_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="is not a permutation"):
        bf.InverseCDF(order)


def test_an_order_of_another_length_is_refused(problem):
    model, behavior, target, log = problem
    mechanism = bf.InverseCDF([1, 0])
    with pytest.raises(ValueError, match="lists 2 outcomes, but there are 3"):
        bf.counterfactual_distribution([0.2, 0.3, 0.5], [0.2, 0.3, 0.5], 0, mechanism=mechanism)
    with pytest.raises(ValueError, match=f"lists 2 outcomes, but there are {labels_of(model)}"):
        bf.Replay(log, model, target, behavior=behavior, mechanism=mechanism).outcomes()


@pytest.mark.parametrize("mechanism", [bf.GumbelMax, "gumbel", "", 0, bf.MaximalCoupling, object()])
def test_what_is_no_mechanism_is_refused(mechanism, problem):
    model, behavior, target, log = problem
    with pytest.raises(ValueError, match="give one of GumbelMax"):
        bf.counterfactual_distribution([0.5, 0.5], [0.5, 0.5], 0, mechanism=mechanism)
    with pytest.raises(ValueError, match="give one of GumbelMax"):
        bf.Replay(log, model, target, behavior=behavior, mechanism=mechanism).outcomes()


def uniform_rows(p, q, k):
    return np.full_like(q, 1 / q.shape[1])


BAD_ANSWERS = {
    "sum": (lambda p, q, k: q * 0.9, r"sums to 0\.9"),
    "support": (uniform_rows, "outcomes that the counterfactual row allows"),
    "negative": (lambda p, q, k: 2 * np.eye(q.shape[1])[q.argmax(1)] - q, "must be distributions"),
    "not a number": (lambda p, q, k: q * np.nan, "sums to nan"),
    "shape": (lambda p, q, k: q[:, :-1], "returned shape"),
}


@pytest.mark.parametrize("flaw", BAD_ANSWERS)
def test_a_mechanism_whose_rows_are_no_distributions_is_refused(flaw, problem):
    answer, message = BAD_ANSWERS[flaw]

    class Flawed:
        def counterfactual_rows(self, factual, counterfactual, observed):
            return answer(factual, counterfactual, observed)

    with pytest.raises(ValueError, match=message):
        bf.counterfactual_distribution([0.5, 0.3, 0.2], [0.4, 0.6, 0], 0, mechanism=Flawed())
    model, behavior, target, log = problem
    for method in (bf.Replay.outcomes, bf.Replay.draws, bf.Replay.steps):
        with pytest.raises(ValueError, match=message):
            method(bf.Replay(log, model, target, behavior=behavior, mechanism=Flawed()))


def test_a_mechanism_that_needs_too_large_a_table_is_refused(problem, monkeypatch):
    model, behavior, target, log = problem
    monkeypatch.setattr("butfor.replay.observed.MOST_TABLED", 100)
    with pytest.raises(ValueError, match=r"need a table of \d+ numbers; give the mechanism a meth"):
        bf.Replay(log, model, target, behavior=behavior, mechanism=HalfAndHalf()).outcomes()

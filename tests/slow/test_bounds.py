"""Bounds over mechanisms: against linear programs, every mechanism inside, sharp, consistent."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given

import butfor as bf
from butfor.replay.bounds import Bounds
from tests.grids import few
from tests.reference import bounds as reference
from tests.support import (
    LABELS,
    PROPERTY,
    labelled_model,
    random_policy,
    reference_episodes,
    reference_model,
    row_pairs,
    simulate_log,
    vary_rewards,
)

EPSILON = np.finfo(float).eps
P, Q = [0.5, 0.4, 0.1], [0.1, 0.4, 0.5]


def mechanisms(size):
    """Every mechanism over this many outcomes, and whether it is stable."""
    return [
        (bf.GumbelMax(), True),
        (bf.MaximalCoupling(), True),
        (bf.InverseCDF(), False),
        (bf.InverseCDF(list(range(size))[::-1]), False),
        (bf.InverseCDF(np.random.default_rng(size).permutation(size).tolist()), False),
        (bf.Independent(), False),
    ]


# ------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("outcome", "any_one", "stable"),
    [
        # Any: x_j <= q_j / p_k, which is (.2, .8, 1). The others can always take all of it.
        # Stable: q / p is (.2, 1, 5), so nothing comes to the first and q_1 / p_1 = .2 stays. The
        # other .8 may go to the second, which then hands its own .4 on to the third, or straight
        # to the third.
        (0, [0.0, 0.2], [0.2, 0.2]),
        (1, [0.0, 0.8], [0.0, 0.8]),
        (2, [0.0, 1.0], [0.0, 0.8]),
    ],
)
def test_worked_example(outcome, any_one, stable):
    found = bf.mechanisms.row_bounds(P, Q, 0, np.eye(3)[outcome])
    np.testing.assert_allclose(found.any, any_one, atol=1e-15)
    np.testing.assert_allclose(found.stable, stable, atol=1e-15)


def test_entries_of_one_ratio_hand_nothing_to_each_other():
    # q / p is (1/2, 1/2, 2): given the first, the second may not take over, though it has room
    found = bf.mechanisms.row_bounds([1 / 3] * 3, [1 / 6, 1 / 6, 2 / 3], [0, 0, 0], np.eye(3))
    assert found.stable.shape == (3, 2)
    np.testing.assert_allclose(found.stable, [[0.5, 0.5], [0, 0], [0.5, 0.5]], atol=1e-15)
    np.testing.assert_allclose(found.any, [[0, 0.5], [0, 0.5], [0, 1]], atol=1e-15)


def random_rows(kind, generator):
    """One pair of rows of this kind, what was seen, and a value."""
    size = int(generator.integers(2, 9))
    if kind == "dense":
        p, q = generator.dirichlet(np.ones(size), 2)
    elif kind == "counts, ties and zeros":
        p, q = generator.integers(0, 4, (2, size)).astype(float)
        p[generator.integers(size)] += 1
        q[generator.integers(size)] += 1
    elif kind == "counts, mostly ties":
        p, q = generator.integers(1, 3, (2, size)).astype(float)
    elif kind == "disjoint and one-hot":
        apart = generator.permutation(size) < generator.integers(1, size)
        p, q = generator.integers(0, 3, (2, size)) * np.array([apart, ~apart])
        p[np.flatnonzero(apart)[0]] += 1
        q[np.flatnonzero(~apart)[0] if generator.random() < 0.8 else 0] += 1
    else:
        p, q = generator.choice([1e-4, 1e-3, 1.0, 2.0], (2, size))
    p, q = p / p.sum(), q / q.sum()
    value = generator.normal(size=size)
    if generator.random() < 0.5:
        value = generator.integers(0, 3, size).astype(float)  # ties of value too
    return p, q, int(generator.choice(np.flatnonzero(p))), value


@pytest.mark.parametrize("count", few([200, 800], 1))
@pytest.mark.parametrize(
    "kind",
    [
        "dense",
        "counts, ties and zeros",
        "counts, mostly ties",
        "disjoint and one-hot",
        "probabilities down to 1e-5",  # smaller ones are out of the solver's reach
    ],
)
def test_rows_equal_the_program_over_all_couplings(kind, count):
    generator = np.random.default_rng(len(kind))
    rows = [random_rows(kind, generator) for _ in range(count)]
    expected = reference.row_bounds(rows)
    for row, (any_one, stable) in zip(rows, expected, strict=True):
        found = bf.mechanisms.row_bounds(*row)
        np.testing.assert_allclose(found.any, any_one, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.stable, stable, rtol=1e-9, atol=1e-9)


@PROPERTY
@given(row_pairs())
def test_every_mechanism_lies_inside_down_to_the_rarest_probabilities(pair):
    p, q = pair
    size = len(p)
    possible = np.flatnonzero(p > 0)
    for outcome in range(size):
        found = bf.mechanisms.row_bounds(p, q, possible, np.eye(size)[outcome])
        # what is off by rounding is the probability of both outcomes together
        slack = 8 * size * EPSILON / p[possible]
        for mechanism, stable in mechanisms(size):
            x = bf.counterfactual_distribution(p, q, possible, mechanism=mechanism)[:, outcome]
            for low, high in [found.any.T, found.stable.T] if stable else [found.any.T]:
                assert (low <= x + slack).all()
                assert (high >= x - slack).all()
        low, high = found.stable.T
        assert (low >= found.any[:, 0] - slack).all()  # a widening class never narrows
        assert (high <= found.any[:, 1] + slack).all()


def test_limits_lost_in_rounding_do_not_let_an_outcome_take_more_than_it_has():
    # half of the first stays, half goes to the third; the second, tied with it, is 1e82 times
    # larger, so that what the first has to send up is lost beside what the second has to
    found = bf.mechanisms.row_bounds([5e-83, 1.0, 0.0], [2.5e-83, 0.5, 0.5], [0, 0, 0], np.eye(3))
    np.testing.assert_allclose(found.stable, [[0.5, 0.5], [0, 0], [0.5, 0.5]], atol=1e-15)


def test_the_same_row_leaves_nothing_open_to_stable_mechanisms():
    value = [3.0, -1.0, 2.0]
    found = bf.mechanisms.row_bounds(P, P, [0, 1, 2], value)
    np.testing.assert_array_equal(found.stable, np.array([value, value]).T)
    assert (found.any[:, 0] < found.any[:, 1]).all()


def test_many_rows_equal_one_at_a_time():
    generator = np.random.default_rng(1)
    p, q = generator.dirichlet(np.ones(60), (2, 20))  # long enough for the other sort
    k, value = generator.integers(0, 60, 20), generator.normal(size=(20, 60))
    many = bf.mechanisms.row_bounds(p, q, k, value)
    for i in range(20):
        one = bf.mechanisms.row_bounds(p[i], q[i], int(k[i]), value[i])
        np.testing.assert_array_equal(many.any[i], one.any)
        np.testing.assert_array_equal(many.stable[i], one.stable)
    expected = np.array(reference.row_bounds([(p[i], q[i], int(k[i]), value[i]) for i in range(4)]))
    np.testing.assert_allclose(np.stack([many.any, many.stable], 1)[:4], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [1.0, 2.0],
            r"value has shape \(2,\), expected a finite number for each of the 3 outcomes",
        ),
        (np.ones((2, 3)), r"value has shape \(2, 3\)"),
        (1.0, r"value has shape \(\)"),
        ([1.0, np.nan, 0.0], "expected a finite number"),
        ([1.0, np.inf, 0.0], "expected a finite number"),
    ],
)
def test_a_bad_value_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        bf.mechanisms.row_bounds(P, Q, 0, value)


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="sums to"):
        bf.mechanisms.row_bounds([0.5, 0.4], [0.5, 0.5], 0, [0, 1])
    with pytest.raises(ValueError, match="observed outcome 1 has probability 0"):
        bf.mechanisms.row_bounds([1.0, 0.0], [0.5, 0.5], 1, [0, 1])


# --------------------------------------------------------------------------------------- episodes


@pytest.fixture(scope="module", params=few(range(4), 2))
def problem(request):
    """A model, with plain or shared labels, a behavior, a target and a log."""
    generator = np.random.default_rng(70 + request.param)
    model = labelled_model(generator, LABELS[request.param % 2])
    behavior, target = random_policy(generator, model), random_policy(generator, model)
    target[0] = np.eye(3)[1]  # deterministic in one state
    return model, behavior, target, vary_rewards(simulate_log(generator, model, behavior, 40, 5))


def sepsis_log(episodes, seed):
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(), episodes, seed=seed)
    return log.hide("glucose", "diabetes")


@pytest.fixture(scope="module")
def sepsis():
    log = sepsis_log(200, 21)
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


def check_inside(found, exact, stable):
    """Whether what a mechanism gives lies between the lowest and the highest."""
    for c in (0, 1) if stable else (0,):
        low, high = np.moveaxis(found.expected_return[c], -1, 0)
        assert (low <= exact.expected_return + 1e-10).all()
        assert (high >= exact.expected_return - 1e-10).all()
        low, high = np.moveaxis(found.probability[c], -1, 0)
        assert (low <= exact.probability + 1e-10).all()
        assert (high >= exact.probability - 1e-10).all()


def check_nested(found):
    """Whether the class of all mechanisms is at least as wide, and all is in order."""
    for bounds in (found.expected_return, found.probability):
        (low, high), (stable_low, stable_high) = np.moveaxis(bounds, -1, 1)
        assert (low <= stable_low + 1e-10).all()
        assert (stable_low <= stable_high + 1e-10).all()
        assert (stable_high <= high + 1e-10).all()
    assert (found.probability >= -1e-12).all()
    assert (found.probability <= 1 + 1e-12).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"action_noise": "fresh", "horizon": 8},
        {"discount": 0.9, "horizon": 8},
        {"continuation": False, "horizon": 8},
        {"horizon": 3},
    ],
    ids=str,
)
def test_every_mechanism_lies_inside_the_bounds_of_episodes(problem, options):
    model, behavior, target, log = problem
    known = {"behavior": behavior, **options}
    found = bf.Replay(log, model, target, **known).bounds()
    check_nested(found)
    for mechanism, stable in mechanisms(int(model.labels.max()) + 1):
        exact = bf.Replay(log, model, target, mechanism=mechanism, **known).outcomes()
        check_inside(found, exact, stable)
    np.testing.assert_array_equal(found.usual_return, exact.usual_return)


@pytest.mark.parametrize("terminal", ["visits", "icml2019"])
def test_every_mechanism_lies_inside_the_bounds_of_sepsis_episodes(sepsis, terminal):
    log = sepsis[0].select(np.arange(60))
    model = bf.fit_mdp(log, terminal=terminal)
    target = bf.soften(bf.policy_iteration(model).table, 0.1)
    for options in ({}, {"action_noise": "fresh", "discount": 0.95, "continuation": False}):
        found = bf.Replay(log, model, target, **options).bounds()
        check_nested(found)
        for mechanism, stable in mechanisms(int(model.labels.max()) + 1):
            exact = bf.Replay(log, model, target, mechanism=mechanism, **options).outcomes()
            check_inside(found, exact, stable)


def test_labels_of_sepsis_are_bounded_too(sepsis):
    log, _, target = sepsis
    labels = log.state_labels("heart rate", "blood pressure", "oxygen")
    model = bf.fit_mdp(log, labels=labels)
    found = bf.Replay(log, model, target).bounds()
    check_nested(found)
    check_inside(found, bf.Replay(log, model, target).outcomes(), True)


@pytest.mark.parametrize(
    ("shared", "continuation"),
    few([(True, True), (False, False), (True, False), (False, True)], 2),
)
def test_bounds_of_episodes_equal_the_slow_twin(problem, shared, continuation):
    model, behavior, target, log = problem
    found = bf.Replay(
        log,
        model,
        target,
        behavior=behavior,
        action_noise="shared" if shared else "fresh",
        horizon=7,
        discount=0.93,
        continuation=continuation,
    ).bounds()
    plain = reference_model(model)
    for i, episode in enumerate(reference_episodes(log)[:5]):
        expected = reference.episode_bounds(
            plain,
            episode,
            behavior.tolist(),
            target.tolist(),
            shared=shared,
            horizon=7,
            discount=0.93,
            continuation=continuation,
        )
        for (quantity, stable, sign), bound in expected.items():
            place = int(stable), i, int(sign < 0)
            mine = found.expected_return[place]
            if quantity > 0:
                mine = found.probability[place[0], i, quantity - 1, place[2]]
            np.testing.assert_allclose(mine, bound, atol=1e-9)


def test_icml2019_ends_equal_the_slow_twin():
    log = sepsis_log(60, 8)
    model = bf.fit_mdp(log, terminal="icml2019")
    target = bf.policy_iteration(model).table
    behavior = bf.estimate_behavior(log, terminal="icml2019")
    found = bf.Replay(log, model, target, continuation=False).bounds()
    short = [5, 14]  # one of which something is open, one who died at once
    assert np.ptp(found.expected_return[0, 5]) > 0.5
    assert (log.lengths[14], log.outcome[14]) == (1, 0)
    plain = reference_model(model)
    for i in short:
        expected = reference.episode_bounds(
            plain,
            reference_episodes(log, "icml2019")[i],
            behavior.tolist(),
            target.tolist(),
            shared=True,
            horizon=20,
            continuation=False,
        )
        mine = [expected[0, stable, sign] for stable in (False, True) for sign in (1, -1)]
        np.testing.assert_allclose(found.expected_return[:, i].ravel(), mine, atol=1e-9)


# ------------------------------------------------------------------------- consistency, sharpness


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_null_target_equal_to_behavior_leaves_nothing_open(problem, discount):
    model, behavior, _, log = problem
    found = bf.Replay(
        log, model, behavior, behavior=behavior, discount=discount, horizon=log.horizon
    ).bounds()
    ended = log.outcome >= 0
    seen = np.eye(3)[log.outcome]  # -1, the last column, is none
    for c in (0, 1):
        for end in (0, 1):
            np.testing.assert_allclose(
                found.expected_return[c, :, end], log.returns(discount), atol=1e-12
            )
            np.testing.assert_allclose(found.probability[c, ended, :, end], seen[ended], atol=1e-12)


def test_episodes_in_which_the_target_never_differs_have_nothing_open(sepsis):
    log, model, target = sepsis
    same = np.logical_and.reduceat(target[log.state, log.action] == 1, log.offsets[:-1])
    same &= log.outcome >= 0
    found = bf.Replay(log, model, target).bounds()
    assert same.sum() > 5
    np.testing.assert_allclose(
        found.expected_return[:, same], np.tile(log.returns()[same, None], (2, 1, 2)), atol=1e-12
    )
    assert (found.survives[same] == "").all()
    width = np.ptp(found.expected_return[:, ~same], axis=-1)
    assert width[0].mean() > width[1].mean() > 0.01


@dataclass(frozen=True)
class ByTable:
    """The mechanism of one pair of rows that is given by its table of both outcomes."""

    table: tuple[tuple[float, ...], ...]

    def counterfactual_rows(self, factual, counterfactual, observed):
        table = np.array(self.table)
        np.testing.assert_allclose(table.sum(axis=1), P, atol=1e-15)
        np.testing.assert_allclose(table.sum(axis=0), Q, atol=1e-15)
        pair = (np.abs(factual[:, 1:] - P) < 1e-12).all(1) & (
            np.abs(counterfactual[:, 1:] - Q) < 1e-12
        ).all(1)
        moved = np.zeros_like(counterfactual)
        moved[:, 1:] = table[observed - 1] / np.array(P)[observed - 1, None]
        return np.where(pair[:, None], moved, counterfactual)


@pytest.mark.parametrize(
    ("kind", "end", "table", "expected"),
    [
        # values -1, 0, 1 of the three outcomes, the first seen
        ("any", 0, ((0.1, 0.4, 0.0), (0.0, 0.0, 0.4), (0.0, 0.0, 0.1)), -0.2),
        ("any", 1, ((0.0, 0.0, 0.5), (0.0, 0.4, 0.0), (0.1, 0.0, 0.0)), 1.0),
        ("stable", 0, ((0.1, 0.4, 0.0), (0.0, 0.0, 0.4), (0.0, 0.0, 0.1)), -0.2),
        ("stable", 1, ((0.1, 0.0, 0.4), (0.0, 0.4, 0.0), (0.0, 0.0, 0.1)), 0.6),
    ],
)
def test_the_bounds_of_one_step_are_reached_by_a_mechanism(kind, end, table, expected):
    model = bf.TabularMDP.from_arrays(
        np.array([[[0.0, *P], [0.0, *Q]]]),
        outcomes=[bf.Outcome("bad", -1.0), bf.Outcome("so so", 0.0), bf.Outcome("good", 1.0)],
    )
    log = bf.Episodes.from_arrays(
        [0], [0], [0], offsets=[0, 1], outcome=[0], outcomes=model.outcomes, states=1, actions=2
    )
    known = {"behavior": np.array([[0.5, 0.5]])}
    treat = np.array([[0.0, 1.0]])
    found = bf.Replay(log, model, treat, **known).bounds()
    reached = bf.Replay(log, model, treat, mechanism=ByTable(table), **known).outcomes()
    np.testing.assert_allclose(reached.expected_return, expected, atol=1e-12)
    bound = found.expected_return[["any", "stable"].index(kind), 0, end]
    np.testing.assert_allclose(bound, expected, atol=1e-12)


# ---------------------------------------------------------------------------------------- results


def test_survives_names_the_widest_class_that_keeps_the_sign():
    low_high = [
        # all mechanisms, stable ones; observed 0
        ([0.1, 0.9], [0.2, 0.8], "any"),
        ([-0.9, -0.1], [-0.2, -0.2], "any"),
        ([-0.1, 0.9], [0.1, 0.8], "stable"),
        ([-0.9, 0.0], [-0.8, -0.1], "stable"),
        ([-0.1, 0.9], [0.0, 0.8], ""),
        ([0.0, 0.0], [0.0, 0.0], ""),
        ([1e-12, 1.0], [1e-12, 1.0], ""),  # rounding is no sign
    ]
    bounds = Bounds(
        expected_return=np.array([[row[c] for row in low_high] for c in (0, 1)]) + 5.0,
        probability=np.zeros((2, len(low_high), 1, 2)),
        usual_return=np.full(len(low_high), 5.0),
        outcome_names=["none"],
    )
    assert bounds.survives.tolist() == [row[2] for row in low_high]


def test_a_difference_that_survives_keeps_its_sign_in_every_mechanism(sepsis):
    log, model, target = sepsis
    found = bf.Replay(log, model, target).bounds()
    for mechanism, stable in mechanisms(int(model.labels.max()) + 1):
        exact = bf.Replay(log, model, target, mechanism=mechanism).outcomes()
        sure = found.survives == "any"
        if stable:
            sure |= found.survives == "stable"
        gumbel = bf.Replay(log, model, target).outcomes().difference
        assert sure.sum() > 5
        assert (np.sign(exact.difference[sure]) == np.sign(gumbel[sure])).all()


def test_the_frame_has_a_row_for_each_episode(sepsis):
    log, model, target = sepsis
    found = bf.Replay(log, model, target).bounds()
    frame = found.frame()
    assert len(frame) == len(log)
    ends = ["low_any", "high_any", "low_stable", "high_stable"]
    names = ["p_died_", "p_discharged_", "p_none_"]
    assert list(frame.columns) == ends + [name + end for name in names for end in ends]
    np.testing.assert_array_equal(frame["high_stable"], found.expected_return[1, :, 1])
    np.testing.assert_array_equal(frame["p_discharged_low_any"], found.probability[0, :, 1, 0])


def test_bounds_do_not_depend_on_threads_or_on_other_episodes(sepsis):
    log, model, target = sepsis
    behavior = bf.estimate_behavior(log)
    calls = []
    one, two = (
        bf.Replay(log, model, target, behavior=behavior).bounds(
            threads=threads, progress=lambda done, total: calls.append((done, total))
        )
        for threads in (1, 2)
    )
    assert calls[-1] == (200, 200)
    np.testing.assert_array_equal(one.probability, two.probability)
    alone = bf.Replay(log.select([17]), model, target, behavior=behavior).bounds()
    np.testing.assert_array_equal(alone.expected_return[:, 0], one.expected_return[:, 17])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_noise": "new"}, "'new'.*'shared', 'fresh'"),
        ({"horizon": 0}, "horizon 0"),
        ({"discount": 1.5}, r"discount 1\.5"),
        ({"target": np.full((143, 8), 1 / 8)}, r"\(143, 8\), expected \(144, 8\)"),
    ],
)
def test_bad_requests_are_refused(sepsis, arguments, message):
    log, model, target = sepsis
    with pytest.raises(ValueError, match=message):
        bf.Replay(log, model, **{"target": target} | arguments)


def test_a_transition_of_probability_zero_is_refused_with_its_place(sepsis):
    log, _, target = sepsis
    model = bf.fit_mdp(log.select(np.arange(100)))
    with pytest.raises(ValueError, match=r"episode 1\d\d, step \d+ goes from state \d+ by action"):
        bf.Replay(log, model, target).bounds()

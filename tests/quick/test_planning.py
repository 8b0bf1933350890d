from itertools import product

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from butfor import Caution, Outcome, TabularMDP, policy_iteration, policy_value
from butfor.models import lookahead
from butfor.models.lookahead import expected_rewards
from butfor.models.planning import state_values, value_tables
from tests.builders import DEATH, HOME, random_rows
from tests.grids import few
from tests.reference import planning as twin
from tests.support import PROPERTY

# Values are sums of at most a few hundred terms of size 1 and at most 1 / (1 - discount) = 10, so
# rounding stays under 1e-12; value iteration stops with discount^sweeps = .9^400 < 1e-18 missing.
DISCOUNT, SWEEPS, CLOSE = 0.9, 400, 1e-11


def random_problem(seed, *, states=4, actions=3, outcomes=2):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, states=states, actions=actions, outcomes=outcomes)
    reward = rng.normal(size=rows.shape)
    counts = rng.integers(0, 3, size=(states, actions))
    ends = [Outcome(f"end {number}", 0.0) for number in range(outcomes)]
    initial = rng.dirichlet(np.ones(states))
    model = TabularMDP.from_arrays(
        rows, reward=reward, outcomes=ends, counts=counts, initial=initial
    )
    return model, rows.tolist(), reward.tolist(), rng.dirichlet(np.ones(actions), size=states)


def one_state(rows, *, counts=None, outcomes=(DEATH, HOME), **options):
    """A model of one state: each action's row lists staying, then the outcomes."""
    return TabularMDP.from_arrays([rows], outcomes=outcomes, counts=counts, **options)


# the slow twin itself


def test_the_slow_twin_knows_a_geometric_sum():
    # one state, one action: stay w.p. 1/2, end w.p. 1/2, each step earns 1.
    # Without discount 1 + 1/2 + 1/4 + ... = 2; three steps 1.75; discount 1/2: 1 / (1 - 1/4).
    rows, reward, always = [[[0.5, 0.5]]], [[[1.0, 1.0]]], [[1.0]]
    assert twin.values_without_end(rows, reward, always, 1.0, 100) == [2.0]
    assert twin.value_of(rows, reward, always, 1.0, 3, 0) == 1.75
    assert twin.optimal_values(rows, reward, 0.5, 100) == pytest.approx([4 / 3], abs=1e-15)
    assert twin.outcomes_of(rows, always, 3, 0) == [0.875, 0.125]


def test_the_slow_twin_breaks_ties_by_seen_then_lowest():
    # three actions that all end at once with 1
    rows, reward = [[[0.0, 1.0]] * 3], [[[0.0, 1.0]] * 3]
    assert twin.best_actions(rows, reward, 0.9, 5, [[False, False, False]]) == [0]
    assert twin.best_actions(rows, reward, 0.9, 5, [[False, True, True]]) == [1]


# policy iteration


def test_planning_looks_beyond_the_next_reward():
    # from state 0: action 0 ends at once with .5; action 1 earns nothing and moves to state 1,
    # where every action ends with 1. Discount .9: .9 > .5; discount .4: .4 < .5.
    rows = [[[0, 0, 1.0], [0, 1.0, 0]], [[0, 0, 1.0], [0, 0, 1.0]]]
    reward = [[[0, 0, 0.5], [0, 0, 0]], [[0, 0, 1.0], [0, 0, 1.0]]]
    model = TabularMDP.from_arrays(rows, reward=reward, outcomes=[HOME])
    assert policy_iteration(model, discount=0.9).tolist() == [[0, 1], [1, 0]]
    assert policy_iteration(model, discount=0.4).tolist() == [[1, 0], [1, 0]]


def maze():
    """Russell & Norvig, chapter 17: .8 ahead, .1 to each side; a wall at (2, 2); -.04 a step."""
    places = [(x, y) for y in (1, 2, 3) for x in (1, 2, 3, 4) if (x, y) != (2, 2)]
    ends = [(4, 3), (4, 2)]
    places = [place for place in places if place not in ends] + ends
    ways = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    rows = np.zeros((9, 4, 11))
    for state, (x, y) in enumerate(places[:9]):
        for action in range(4):
            for turn, share in ((0, 0.8), (1, 0.1), (-1, 0.1)):
                right, up = ways[(action + turn) % 4]
                reached = (x + right, y + up)
                rows[state, action, places.index(reached if reached in places else (x, y))] += share
    model = TabularMDP.from_arrays(
        rows,
        reward=[-0.04] * 9 + [0.96, -1.04],
        outcomes=[Outcome("goal", 1.0), Outcome("pit", -1.0, bad=True)],
    )
    return model, places[:9]


def test_the_maze_has_the_utilities_of_the_textbook():
    model, places = maze()
    best = policy_iteration(model, discount=0.999999)
    # Russell & Norvig, figure 17.3
    published = {
        **{(1, 3): 0.812, (2, 3): 0.868, (3, 3): 0.918, (1, 2): 0.762, (3, 2): 0.660},
        **{(1, 1): 0.705, (2, 1): 0.655, (3, 1): 0.611, (4, 1): 0.388},
    }
    found = dict(zip(places, state_values(model, best), strict=True))
    assert found == pytest.approx(published, abs=6e-4)


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_policy_iteration_agrees_with_value_iteration(seed, states, actions, outcomes):
    model, rows, reward, _ = random_problem(seed, states=states, actions=actions, outcomes=outcomes)
    policy = policy_iteration(model, discount=DISCOUNT)
    np.testing.assert_allclose(
        state_values(model, policy, discount=DISCOUNT),
        twin.optimal_values(rows, reward, DISCOUNT, SWEEPS),
        rtol=0,
        atol=CLOSE,
    )
    best = twin.best_actions(rows, reward, DISCOUNT, SWEEPS, (model.counts > 0).tolist())
    assert policy.argmax(axis=1).tolist() == best


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_policy_iteration_agrees_with_value_iteration_where_actions_are_tied(seed):
    # few distinct rows, drawn again and again, give many exact ties
    rng = np.random.default_rng(seed)
    kinds = random_rows(rng, states=4, actions=2, outcomes=2).reshape(8, 6)[:3]
    rows = kinds[rng.integers(3, size=(4, 4))]
    counts = rng.integers(0, 2, size=(4, 4))
    model = TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME], counts=counts)
    reward = np.broadcast_to([0, 0, 0, 0, -1.0, 1.0], rows.shape)
    best = twin.best_actions(
        rows.tolist(), reward.tolist(), DISCOUNT, SWEEPS, (counts > 0).tolist()
    )
    assert policy_iteration(model, discount=DISCOUNT).argmax(axis=1).tolist() == best


def test_a_planned_policy_takes_one_action_in_each_state():
    policy = policy_iteration(random_problem(0)[0])
    assert policy.shape == (4, 3)
    assert set(policy.ravel().tolist()) == {0.0, 1.0}
    assert policy.sum(axis=1).tolist() == [1.0] * 4


def test_among_tied_actions_the_seen_one_comes_first():
    rows = [[0.0, 0.5, 0.5]] * 3
    assert policy_iteration(one_state(rows, counts=[[0, 0, 2]])).tolist() == [[0, 0, 1]]


def test_among_tied_and_equally_seen_actions_the_lowest_index_comes_first():
    rows = [[0.0, 0.5, 0.5]] * 3
    assert policy_iteration(one_state(rows)).tolist() == [[1, 0, 0]]
    assert policy_iteration(one_state(rows, counts=[[0, 3, 9]])).tolist() == [[0, 1, 0]]


def test_a_better_action_beats_a_seen_one():
    rows = [[0.0, 0.5, 0.5], [0.0, 0.4, 0.6]]
    assert policy_iteration(one_state(rows, counts=[[5, 0]])).tolist() == [[0, 1]]


def test_values_within_a_billionth_are_tied():
    # 2e-10 and 2e-8 more probability of home than of death: worth 4e-10 (tied) and 4e-8 (better)
    for gain, expected in ((2e-10, [[1, 0]]), (2e-8, [[0, 1]])):
        rows = [[0.0, 0.5, 0.5], [0.0, 0.5 - gain, 0.5 + gain]]
        assert policy_iteration(one_state(rows)).tolist() == expected


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6, 1e12])
def test_planning_settles_whatever_the_size_of_the_rewards(scale):
    rng = np.random.default_rng(7)
    kinds = random_rows(rng, states=12, actions=1, outcomes=2).reshape(12, 14)[:5]
    rows = kinds[rng.integers(5, size=(12, 6))]  # many ties, which rounding breaks when large
    ends = [Outcome("death", -scale), Outcome("home", scale)]
    model = TabularMDP.from_arrays(rows, outcomes=ends)
    policy = policy_iteration(model, discount=0.99)
    reward = np.broadcast_to([0.0] * 12 + [-1.0, 1.0], rows.shape).tolist()
    # every row ends w.p. .1 at least, so after 500 sweeps (.891)^500 < 1e-24 is missing
    best = twin.optimal_values(rows.tolist(), reward, 0.99, 500)
    np.testing.assert_allclose(
        state_values(model, policy, discount=0.99) / scale, best, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("discount", [0.95, 0.99])
@pytest.mark.parametrize("scale", [1e6, 1e8, 1e9, 1e12])
@pytest.mark.parametrize("counts", [None, [[0, 1], [1, 1], [1, 0], [1, 1]]])
def test_planning_settles_where_rounding_is_larger_than_a_tie(counts, scale, discount):
    # Whatever is done, the patient dies w.p. 1/2 at each step: every policy is worth
    # -scale / 2 / (1 - discount / 2), and only rounding tells the two kinds of rows apart.
    kinds = np.array([[0.25, 0, 0.25, 0, 0.5], [0, 0, 0.5, 0, 0.5]])
    rows = kinds[[[0, 1], [1, 0], [0, 0], [1, 0]]]
    model = TabularMDP.from_arrays(rows, outcomes=[Outcome("death", -scale)], counts=counts)
    policy = policy_iteration(model, discount=discount)
    values = state_values(model, policy, discount=discount)
    np.testing.assert_allclose(values, -scale / 2 / (1 - discount / 2), rtol=1e-12)


# values


@PROPERTY
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 4), st.sampled_from([0.0, 0.7, 1])
)
def test_values_for_a_horizon_are_those_of_the_tree(seed, states, horizon, discount):
    model, rows, reward, policy = random_problem(seed, states=states, actions=2)
    expected = [
        twin.value_of(rows, reward, policy.tolist(), discount, horizon, state)
        for state in range(states)
    ]
    values = state_values(model, policy, horizon=horizon, discount=discount)
    np.testing.assert_allclose(values, expected, rtol=0, atol=CLOSE)
    value = policy_value(model, policy, horizon=horizon, discount=discount)
    assert value == pytest.approx(model.initial @ np.array(expected), abs=CLOSE)


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_values_without_horizon_are_the_limit_of_the_recursion(seed, discount):
    # every row ends w.p. .1 at least, so without discount .9^400 < 1e-18 is missing too
    model, rows, reward, policy = random_problem(seed)
    expected = twin.values_without_end(rows, reward, policy.tolist(), discount, SWEEPS)
    np.testing.assert_allclose(
        state_values(model, policy, discount=discount), expected, rtol=0, atol=CLOSE
    )
    value = policy_value(model, policy, discount=discount)
    assert value == pytest.approx(model.initial @ np.array(expected), abs=CLOSE)


def test_a_value_by_hand():
    # stay w.p. 1/2, death 1/8, home 3/8: each step earns (3 - 1) / 8 = 1/4 while it lasts.
    # Three steps: 1/4 (1 + 1/2 + 1/4) = 7/16; without end 1/2; discount 1/2: 1/4 / (1 - 1/4) = 1/3.
    model = one_state([[0.5, 0.125, 0.375]])
    assert policy_value(model, [[1.0]], horizon=3) == 7 / 16
    assert policy_value(model, [[1.0]]) == pytest.approx(1 / 2, abs=1e-15)
    assert policy_value(model, [[1.0]], discount=0.5) == pytest.approx(1 / 3, abs=1e-15)
    assert policy_value(model, [[1.0]], horizon=2, discount=0.5) == 1 / 4 + 1 / 16


def test_a_policy_that_chooses_at_random_is_worth_the_mean():
    model = one_state([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert policy_value(model, [[0.25, 0.75]], horizon=1) == 0.5


def test_the_first_states_can_be_given():
    rows = [[[0.0, 0.0, 1.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]]
    model = TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME])
    always = [[1.0], [1.0]]
    assert policy_value(model, always) == 0.0
    assert policy_value(model, always, initial=[0.25, 0.75]) == 0.5
    assert policy_value(model, always, horizon=1, initial=[1.0, 0.0]) == -1.0


def test_expected_rewards_are_those_of_each_row():
    # 1/8 of -1 and 3/8 of +1; all of -1
    model = one_state([[0.5, 0.125, 0.375], [0.0, 1.0, 0.0]])
    assert expected_rewards(model).tolist() == [0.25, -1.0]


# outcomes


def test_outcome_probabilities_by_hand():
    # stay 1/2, death 1/8, home 3/8. Nothing left: none. One step: 1/8, 3/8, 1/2.
    # Two: 1/8 + 1/16 = 3/16, 9/16, 1/4.
    values, outcomes = value_tables(one_state([[0.5, 0.125, 0.375]]), [[1.0]], horizon=2)
    assert outcomes[:, 0].tolist() == [[0, 0, 1], [1 / 8, 3 / 8, 1 / 2], [3 / 16, 9 / 16, 1 / 4]]
    assert values[:, 0].tolist() == [0, 1 / 4, 3 / 8]


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3))
def test_outcome_tables_are_those_of_the_tree_and_sum_to_one(seed, states, horizon, ends):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, states=states, actions=2, outcomes=ends)
    outcomes = [Outcome(f"end {number}", 0.0) for number in range(ends)]
    model = TabularMDP.from_arrays(rows, outcomes=outcomes)
    policy = rng.dirichlet(np.ones(2), size=states)
    _, table = value_tables(model, policy, horizon=horizon)
    assert table.shape == (horizon + 1, states, ends + 1)
    np.testing.assert_allclose(table.sum(axis=-1), 1.0, rtol=0, atol=1e-13)
    for left in range(horizon + 1):
        for state in range(states):
            expected = twin.outcomes_of(rows.tolist(), policy.tolist(), left, state)
            np.testing.assert_allclose(table[left, state], expected, rtol=0, atol=CLOSE)


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_where_only_outcomes_pay_the_value_is_their_expected_reward(seed):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, states=5, actions=2, outcomes=2)
    model = TabularMDP.from_arrays(rows, outcomes=[DEATH, HOME])
    policy = rng.dirichlet(np.ones(2), size=5)
    values, outcomes = value_tables(model, policy, horizon=6)
    np.testing.assert_allclose(values, outcomes @ [-1.0, 1.0, 0.0], rtol=0, atol=1e-13)


# what has no value


def test_an_undiscounted_return_that_never_ends_is_refused():
    # action 0 stays for ever, action 1 goes home
    model = one_state([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match=r"from state 0.*horizon.*discount"):
        policy_value(model, [[1.0, 0.0]])
    assert policy_value(model, [[0.0, 1.0]]) == 1.0
    assert policy_value(model, [[0.5, 0.5]]) == pytest.approx(1.0, abs=1e-15)  # ends for certain
    assert policy_value(model, [[1.0, 0.0]], horizon=9) == 0.0
    assert policy_value(model, [[1.0, 0.0]], discount=0.9) == 0.0


def test_a_loop_that_only_some_states_fall_into_is_found():
    # 0 -> 1 -> 2 -> 1: states 1 and 2 go round; state 0 also ends half of the time
    rows = np.zeros((3, 1, 4))
    rows[0, 0, [1, 3]] = 0.5
    rows[1, 0, 2] = rows[2, 0, 1] = 1.0
    model = TabularMDP.from_arrays(rows, outcomes=[HOME])
    with pytest.raises(ValueError, match="from state 1"):
        policy_value(model, np.ones((3, 1)))


def test_a_long_way_to_the_end_is_an_end():
    # a chain of 60 states, each to the next, the last goes home
    rows = np.zeros((60, 1, 61))
    rows[np.arange(60), 0, np.arange(1, 61)] = 1.0
    model = TabularMDP.from_arrays(rows, outcomes=[HOME])
    assert state_values(model, np.ones((60, 1))).tolist() == [1.0] * 60


def test_a_loop_that_no_first_state_leads_into_does_not_matter():
    # state 0 goes home, state 1 stays for ever
    rows = np.zeros((2, 1, 3))
    rows[0, 0, 2] = rows[1, 0, 1] = 1.0
    model = TabularMDP.from_arrays(rows, outcomes=[HOME], initial=[1.0, 0.0])
    assert policy_value(model, np.ones((2, 1))) == 1.0
    with pytest.raises(ValueError, match="from state 1"):
        policy_value(model, np.ones((2, 1)), initial=[0.5, 0.5])
    with pytest.raises(ValueError, match="from state 1"):
        state_values(model, np.ones((2, 1)))


# large models


def random_graph(states, *, outcomes=2, chance=0.05, durations=None):
    """A model without structure, which elimination fills: each row leads to eight states."""
    rng, actions, width = np.random.default_rng(states), 3, 8
    ends = [Outcome(f"end {number}", 1.0 - number) for number in range(outcomes)]
    column = rng.integers(states, size=(states * actions, width))
    if outcomes:
        column[:, 0] = states + rng.integers(outcomes, size=states * actions)
    weight = rng.dirichlet(np.ones(width - 1), states * actions) * (1 - chance)
    weight = np.column_stack([np.full(len(weight), chance), weight])
    start = np.arange(len(weight) + 1) * width
    shape = (states * actions, states + outcomes)
    rows = sparse.csr_array((weight.ravel(), column.ravel(), start), shape)
    reward = rng.normal(size=(states, actions))
    model = TabularMDP.from_arrays(
        rows, actions=actions, outcomes=ends, reward=reward, durations=durations
    )
    return model, rows, reward


def eliminate(monkeypatch):
    monkeypatch.setattr(lookahead, "SMALL", 10**9)


@pytest.mark.parametrize(
    ("states", "outcomes", "semi"),
    few([(300, 2, True), (300, 0, False), *product([1200], [2, 0], [True, False])], 2),
)
def test_iteration_and_elimination_plan_the_same_policy(monkeypatch, states, outcomes, semi):
    if states < lookahead.SMALL:  # the same with less to eliminate
        monkeypatch.setattr(lookahead, "SMALL", states - 1)
    assert states > lookahead.SMALL
    durations = np.random.default_rng(1).uniform(0.1, 3, size=states) if semi else None
    model, _, _ = random_graph(states, outcomes=outcomes, durations=durations)
    monkeypatch.setattr(lookahead, "splu", None)  # which would be called if iteration failed
    found = policy_iteration(model)
    values = state_values(model, found, discount=0.99)
    cautious = policy_iteration(model, caution=Caution()) if outcomes else None
    monkeypatch.undo()
    eliminate(monkeypatch)
    monkeypatch.setattr(lookahead, "bicgstab", None)
    assert (policy_iteration(model) == found).all()
    exact = state_values(model, found, discount=0.99)
    np.testing.assert_allclose(values, exact, rtol=0, atol=1e-11 * np.abs(exact).max())
    if outcomes:
        assert (policy_iteration(model, caution=Caution()) == cautious).all()


@pytest.mark.parametrize("chance", [0.3, 1e-4])
def test_undiscounted_values_of_large_models_are_those_of_elimination(monkeypatch, chance):
    model, rows, reward = random_graph(1200, chance=chance)
    policy = np.eye(3)[np.random.default_rng(2).integers(3, size=1200)]
    monkeypatch.setattr(lookahead, "splu", None)
    found = state_values(model, policy)
    moves = rows.toarray()[np.arange(1200) * 3 + policy.argmax(axis=1), :1200]
    exact = np.linalg.solve(np.eye(1200) - moves, (policy * reward).sum(axis=1))
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-9 * np.abs(exact).max())


def test_where_iteration_is_not_exact_equations_are_eliminated(monkeypatch):
    # a walk of 3000 states, each forth or back with equal chance, and an end at one side only: the
    # expected number of steps is 3000 * 3001 from the far side, and errors are as much larger
    states = 3000
    state = np.arange(states)
    places = np.tile(state, 2), np.concatenate([state + 1, np.maximum(state - 1, 0)])
    rows = sparse.csr_array((np.full(2 * states, 0.5), places), (states, states + 1))
    model = TabularMDP.from_arrays(rows, actions=1, outcomes=[HOME], reward=np.ones((states, 1)))
    values = state_values(model, np.ones((states, 1)))
    assert values[0] == pytest.approx(states * (states + 1), rel=1e-9)
    monkeypatch.setattr(lookahead, "splu", None)
    with pytest.raises(TypeError):  # it was needed
        state_values(model, np.ones((states, 1)))

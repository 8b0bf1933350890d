import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from butfor.checks import check_distributions, check_policy
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.policies import (
    action_counts,
    estimate_behavior,
    final_states,
    greedy,
    soften,
)
from tests.builders import DEATH, HOME, patient_log, random_log, ward_log
from tests.support import PROPERTY


def round_trip_log(**changes):
    """Two stays of one step: 0 -a0-> 1, home; 1 -a1-> 0, death; state 2 is never seen."""
    given = {"offsets": [0, 1, 2], "states": 3, "actions": 2, "outcome": [1, 0]}
    return Episodes.from_arrays(
        [0, 1], [0, 1], [1, 0], outcomes=[DEATH, HOME], **{**given, **changes}
    )


# counts


def test_decisions_are_counted_by_state_and_action():
    # ward_log: (0, a0) in stays 0, 1, 1, 2; (0, a1) in stay 2; (1, a1) in stays 0, 1, 3
    assert action_counts(ward_log()).tolist() == [[4, 1], [0, 3], [0, 0]]


def test_a_final_state_counts_once_for_each_outcome_however_often_it_was_visited():
    # stays 0, 3 (death) and 1 (home) end in state 2; stay 2 has no outcome
    assert final_states(ward_log()).tolist() == [[0, 0], [0, 0], [1, 1]]


def test_unreduced_final_states_are_told_apart():
    log = ward_log(final_key=[20, 21, 5, 22])
    assert final_states(log).tolist() == [[0, 0], [0, 0], [2, 1]]


def test_final_states_of_hidden_logs_follow_the_final_key():
    # w, x, y die; hiding sugar: w and x in (0, 2) = 2 with other sugar, y in (1, 2) = 5
    assert final_states(patient_log().hide("sugar"))[:, 0].tolist() == [0, 0, 2, 0, 0, 1]
    # hiding sex: w and y are one final state, pulse 2 and sugar 1 = 5; x ends in 4
    assert final_states(patient_log().hide("sex"))[:, 0].tolist() == [0, 0, 0, 0, 1, 1]


# the behavior policy


def test_behavior_is_the_share_of_each_action_in_each_state():
    # counts 4 and 1; 0 and 3; state 2 never visited: uniform
    assert estimate_behavior(ward_log()).tolist() == [[0.8, 0.2], [0.0, 1.0], [0.5, 0.5]]


def test_a_prior_is_added_to_every_action_of_visited_states():
    # (4 + 1) / 7, (1 + 1) / 7; 1 / 5, 4 / 5
    policy = estimate_behavior(ward_log(), prior=1.0)
    np.testing.assert_allclose(policy, [[5 / 7, 2 / 7], [0.2, 0.8], [0.5, 0.5]], atol=1e-15)


def test_icml2019_behavior_counts_each_final_state_once_for_every_action():
    # counts [1, 0] in state 0 and [0, 1] in state 1; each is a final state too, so plus 1
    policy = estimate_behavior(round_trip_log(), terminal="icml2019")
    np.testing.assert_allclose(policy, [[2 / 3, 1 / 3], [1 / 3, 2 / 3], [1 / 2, 1 / 2]], atol=1e-15)


def test_icml2019_behavior_ignores_final_states_without_outcome():
    log = round_trip_log(outcome=[1, -1])  # only state 1 ended with an outcome
    policy = estimate_behavior(log, terminal="icml2019")
    np.testing.assert_allclose(policy, [[1, 0], [1 / 3, 2 / 3], [1 / 2, 1 / 2]], atol=1e-15)


@PROPERTY
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["visits", "icml2019"]),
    st.sampled_from([0.0, 0.5]),
)
def test_estimated_behavior_is_a_policy(seed, terminal, prior):
    log = random_log(np.random.default_rng(seed))
    policy = estimate_behavior(log, terminal=terminal, prior=prior)
    assert policy.shape == (12, 3)
    assert (policy >= 0).all()
    np.testing.assert_allclose(policy.sum(axis=1), 1.0, rtol=0, atol=1e-15)


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_every_logged_action_has_positive_probability(seed):
    log = random_log(np.random.default_rng(seed))
    for terminal in ("visits", "icml2019"):
        policy = estimate_behavior(log, terminal=terminal)
        assert (policy[log.state, log.action] > 0).all()


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_behavior_and_model_agree_on_what_was_seen(seed):
    log = random_log(np.random.default_rng(seed))
    visited = action_counts(log).sum(axis=1) > 0
    seen = fit_mdp(log).counts > 0
    np.testing.assert_array_equal((estimate_behavior(log) > 0)[visited], seen[visited])


# greedy


def test_greedy_takes_the_highest_value():
    assert greedy([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]]).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_greedy_takes_the_lowest_index_among_ties():
    assert greedy([[1.0, 2.0, 2.0]]).tolist() == [[0, 1, 0]]
    assert greedy([[1.0, 2.0 - 1e-10, 2.0]]).tolist() == [[0, 1, 0]]
    assert greedy([[1.0, 2.0 - 1e-8, 2.0]]).tolist() == [[0, 0, 1]]


def test_greedy_takes_preferred_actions_first_among_ties_only():
    values = [[2.0, 2.0, 1.0]]
    assert greedy(values, prefer=[[False, True, True]]).tolist() == [[0, 1, 0]]
    assert greedy(values, prefer=[[False, False, True]]).tolist() == [[1, 0, 0]]


def test_greedy_bears_values_without_bound():
    assert greedy([[-np.inf, 0.0], [-np.inf, -np.inf]]).tolist() == [[0, 1], [1, 0]]


# soften


def test_softening_hands_the_given_share_to_the_other_actions_alike():
    # .05 over the seven others, as in the paper's behavior policy
    policy = soften(np.eye(8)[[2]], 0.05)
    expected = np.full(8, 0.05 / 7)
    expected[2] = 0.95
    np.testing.assert_allclose(policy, [expected], rtol=0, atol=1e-15)


def test_softening_a_random_policy_softens_each_of_its_actions():
    # (.75, .25): .8 * .75 + .2 * .25 = .65
    np.testing.assert_allclose(soften([[0.75, 0.25]], 0.2), [[0.65, 0.35]], rtol=0, atol=1e-15)


def test_softening_by_nothing_changes_nothing():
    assert soften([[0.75, 0.25]], 0.0).tolist() == [[0.75, 0.25]]


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0, 1))
def test_a_softened_policy_is_a_policy(seed, actions, epsilon):
    policy = np.random.default_rng(seed).dirichlet(np.ones(actions), size=4)
    soft = soften(policy, epsilon)
    assert (soft >= 0).all()
    np.testing.assert_allclose(soft.sum(axis=1), 1.0, rtol=0, atol=1e-14)


# checks


def test_a_good_policy_comes_back_as_floats():
    policy = check_policy([[1, 0], [0, 1]], 2, 2)
    assert policy.dtype == np.float64
    assert policy.tolist() == [[1, 0], [0, 1]]


def test_rows_off_by_rounding_are_scaled_to_one():
    policy = check_policy([[0.3333333, 0.3333333, 0.3333333]], 1, 3)
    np.testing.assert_allclose(policy, [[1 / 3] * 3], rtol=0, atol=1e-15)


def test_checking_leaves_the_given_array_alone():
    given_rows = np.array([[0.3333333, 0.3333333, 0.3333333]])
    check_policy(given_rows, 1, 3)
    assert given_rows.tolist() == [[0.3333333] * 3]


@pytest.mark.parametrize(
    ("rows", "index", "place"),
    [
        ([0.5, 0.6], ("row",), "the row sums to 1.1"),
        ([[1.0, 0.0], [0.5, 0.6]], ("state",), "state 1 sums to 1.1"),
        ([[[0.5, 0.5]], [[0.5, 0.6]]], ("state", "action"), "state 1, action 0 sums to 1.1"),
    ],
)
def test_the_place_of_a_bad_row_is_named_by_its_axes(rows, index, place):
    with pytest.raises(ValueError, match=place):
        check_distributions(rows, "rows", index)

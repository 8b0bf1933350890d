import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given
from hypothesis import strategies as st

from butfor import Outcome, TabularMDP
from butfor.models import given as given_module
from tests.builders import DEATH, HOME, random_rows
from tests.support import PROPERTY

# Two states, two actions, death = 2, home = 3.
ROWS = np.array(
    [
        [[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.0, 0.75]],
    ]
)
ENDS = [DEATH, HOME]


def reward_of(model, state, action):
    entries = slice(*model.start[state * model.n_actions + action :][:2])
    return dict(
        zip(model.next_state[entries].tolist(), model.reward[entries].tolist(), strict=True)
    )


def assert_same_rows(one, other):
    for name in ("start", "next_state", "probability", "reward", "labels"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# rows


def test_row_lists_what_can_happen_and_nothing_else():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS)
    assert (model.n_states, model.n_actions) == (2, 2)
    assert model.row(0, 0) == {0: 0.5, 1: 0.25, 2: 0.25}
    assert model.row(0, 1) == {1: 1.0}
    assert model.row(1, 0) == {2: 0.5, 3: 0.5}
    assert model.row(1, 1) == {0: 0.25, 3: 0.75}


def test_entries_know_their_row():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS)
    assert model.start.tolist() == [0, 3, 4, 6, 8]
    assert model.entry_row.tolist() == [0, 0, 0, 1, 2, 2, 3, 3]
    assert model.entry_label.tolist() == model.next_state.tolist()


def test_a_model_without_outcomes_is_a_model():
    model = TabularMDP.from_arrays([[[0.0, 1.0]], [[0.5, 0.5]]])
    assert model.outcomes == ()
    assert model.row(1, 0) == {0: 0.5, 1: 0.5}


def test_a_sparse_matrix_gives_the_model_of_its_dense_twin():
    flat = sparse.csr_array(ROWS.reshape(4, 4))
    assert_same_rows(
        TabularMDP.from_arrays(flat, actions=2, outcomes=ENDS),
        TabularMDP.from_arrays(ROWS, outcomes=ENDS),
    )


@pytest.mark.parametrize("form", [sparse.coo_array, sparse.csc_array, sparse.csr_matrix])
def test_every_sparse_form_is_taken(form):
    flat = form(ROWS.reshape(4, 4))
    assert TabularMDP.from_arrays(flat, actions=2, outcomes=ENDS).row(1, 1) == {0: 0.25, 3: 0.75}


def test_entries_of_a_sparse_matrix_given_twice_are_added():
    # row 0: 1/4 + 1/4 to state 0 and 1/2 to the outcome; row 1 all to the outcome
    row, column, value = [0, 0, 0, 1], [0, 0, 2, 2], [0.25, 0.25, 0.5, 1.0]
    flat = sparse.coo_array((value, (row, column)), shape=(2, 3))
    assert TabularMDP.from_arrays(flat, actions=1, outcomes=[DEATH]).row(0, 0) == {0: 0.5, 2: 0.5}


def test_the_given_sparse_matrix_is_left_alone():
    # row 0 holds the entry (0, 0) twice, and a stored zero at (0, 1)
    value, column, start = [0.5, 0.5, 0.0, 1.0], [0, 0, 1, 2], [0, 3, 4]
    flat = sparse.csr_array(
        (np.array(value), np.array(column), np.array(start)), shape=(2, 3), copy=True
    )
    TabularMDP.from_arrays(flat, actions=1, outcomes=[DEATH])
    assert flat.data.tolist() == value
    assert flat.indices.tolist() == column
    assert flat.indptr.tolist() == start


def test_rows_off_by_rounding_are_scaled_to_one():
    third = [[[0.3333333, 0.3333333, 0.3333333]], [[0.0, 0.0, 1.0]]]
    model = TabularMDP.from_arrays(third, outcomes=[DEATH])
    # three equal numbers over their sum
    assert list(model.row(0, 0).values()) == pytest.approx([1 / 3] * 3, abs=1e-15)


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_dense_rows_come_back_from_the_sparse_model(seed, states, actions, ends):
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, states=states, actions=actions, outcomes=ends)
    outcomes = [DEATH, HOME, Outcome("moved", 0.0)][:ends]
    model = TabularMDP.from_arrays(rows, outcomes=outcomes)
    back = np.zeros_like(rows).reshape(states * actions, -1)
    back[model.entry_row, model.next_state] = model.probability
    np.testing.assert_allclose(back.reshape(rows.shape), rows, rtol=0, atol=1e-15)
    assert (model.probability > 0).all()


# rewards


def test_by_default_an_outcome_s_reward_is_earned_on_arrival():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS)
    assert reward_of(model, 0, 0) == {0: 0.0, 1: 0.0, 2: -1.0}
    assert reward_of(model, 1, 1) == {0: 0.0, 3: 1.0}


def test_rewards_of_arrival_go_by_the_next_state():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, reward=[1.0, 2.0, 3.0, 4.0])
    assert reward_of(model, 0, 0) == {0: 1.0, 1: 2.0, 2: 3.0}
    assert reward_of(model, 1, 1) == {0: 1.0, 3: 4.0}


def test_rewards_of_state_and_action_are_the_same_whatever_follows():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, reward=[[1.0, 2.0], [3.0, 4.0]])
    assert reward_of(model, 0, 0) == {0: 1.0, 1: 1.0, 2: 1.0}
    assert reward_of(model, 1, 1) == {0: 4.0, 3: 4.0}


def test_rewards_of_transitions_are_taken_one_by_one():
    reward = np.arange(16.0).reshape(2, 2, 4)  # (state 2 + action) 4 + next
    dense = TabularMDP.from_arrays(ROWS, outcomes=ENDS, reward=reward)
    assert reward_of(dense, 0, 0) == {0: 0.0, 1: 1.0, 2: 2.0}
    assert reward_of(dense, 1, 1) == {0: 12.0, 3: 15.0}
    flat = sparse.csr_array(reward.reshape(4, 4))
    thin = TabularMDP.from_arrays(
        sparse.csr_array(ROWS.reshape(4, 4)), actions=2, outcomes=ENDS, reward=flat
    )
    assert_same_rows(dense, thin)


def test_a_transition_that_cannot_happen_needs_no_reward():
    reward = np.where(ROWS > 0, 1.0, np.nan)
    assert TabularMDP.from_arrays(ROWS, outcomes=ENDS, reward=reward).reward.tolist() == [1.0] * 8


# absorbing states


def test_what_leads_to_an_absorbing_state_leads_to_its_outcome():
    # state 1 is death: of row (0, 0) the 1/4 to state 1 joins the 1/4 to death
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, absorbing={1: 0})
    assert model.row(0, 0) == {0: 0.5, 2: 0.5}
    assert model.row(0, 1) == {2: 1.0}
    assert reward_of(model, 0, 0) == {0: 0.0, 2: -1.0}


def test_an_absorbing_state_s_own_rows_end_at_once_and_earn_nothing():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, absorbing={1: 0})
    for action in (0, 1):
        assert model.row(1, action) == {2: 1.0}
        assert reward_of(model, 1, action) == {2: 0.0}


def test_a_given_reward_of_entering_an_absorbing_state_is_kept():
    # into state 1 w.p. 1/4 for 2, into death w.p. 1/4 for 3: together the mean, 2.5
    model = TabularMDP.from_arrays(
        ROWS, outcomes=ENDS, absorbing={1: 0}, reward=[1.0, 2.0, 3.0, 4.0]
    )
    assert reward_of(model, 0, 0) == {0: 1.0, 2: 2.5}


# large models


@pytest.mark.parametrize("absorbing", [None, {1: 0, 4: 1}])
@pytest.mark.parametrize("reward", [None, "pairs", "sparse"])
def test_blocks_of_rows_give_the_same_model(monkeypatch, absorbing, reward):
    rng = np.random.default_rng(5)
    rows = random_rows(rng, states=6, actions=3, outcomes=2)
    earned = {
        None: None,
        "pairs": rng.normal(size=(6, 3)),
        "sparse": sparse.csr_array(rng.normal(size=(18, 8))),
    }
    options = {"outcomes": ENDS, "absorbing": absorbing, "reward": earned[reward]}
    whole = TabularMDP.from_arrays(rows, **options)
    monkeypatch.setattr(given_module, "BLOCK", 5)
    blocks = list(given_module.row_blocks(whole.start))
    assert len(blocks) > 3
    assert blocks[0][0] == 0
    assert blocks[-1][1] == 18
    parts = TabularMDP.from_arrays(rows, **options)
    for name in ("start", "next_state", "probability", "reward"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_a_large_model_is_made_in_two_and_a_half_times_its_memory():
    states, actions, width = 5_000, 10, 40
    rng = np.random.default_rng(0)
    column = np.tile(np.arange(width, dtype=np.int32) * (states // width), (states * actions, 1))
    column += rng.integers(states // width, size=column.shape, dtype=np.int32)
    start = np.arange(len(column) + 1, dtype=np.int32) * width
    weight = np.full(column.size, 1 / width)
    rows = sparse.csr_array((weight, column.ravel(), start), (len(column), states))
    reward = rng.normal(size=(states, actions))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    model = TabularMDP.from_arrays(rows, actions=actions, reward=reward)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(values.nbytes for values in model.stored_arrays().values())
    assert size > 40e6  # next state, probability and reward of two million entries
    assert peak - before < 2.5 * size


# labels


def test_noise_belongs_to_the_next_state_by_default():
    assert TabularMDP.from_arrays(ROWS, outcomes=ENDS).labels.tolist() == [0, 1, 2, 3]


def test_labels_are_numbered_from_0_and_each_outcome_has_one_of_its_own():
    rows = np.zeros((3, 1, 5))
    rows[:, 0, 3] = 1.0
    model = TabularMDP.from_arrays(rows, outcomes=ENDS, labels=[70, 30, 70])
    assert model.labels.tolist() == [1, 0, 1, 2, 3]
    named = TabularMDP.from_arrays(rows, outcomes=ENDS, labels=["up", "down", "up", "d", "h"])
    assert named.labels.tolist() == [1, 0, 1, 2, 3]


def test_entries_stand_in_the_order_of_their_labels():
    # labels: state 0 -> 1, state 1 -> 0, so that state 1 comes first in row (0, 0)
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, labels=[1, 0])
    assert list(model.row(0, 0).items()) == [(1, 0.25), (0, 0.5), (2, 0.25)]
    assert model.entry_label[:3].tolist() == [0, 1, 2]


def test_two_next_states_of_one_row_must_not_share_a_label():
    # (0, 0) leads to states 0 and 1
    with pytest.raises(ValueError, match=r"state 0, action 0.* 0 and 1 have the same label"):
        TabularMDP.from_arrays(ROWS, outcomes=ENDS, labels=[5, 5])
    with pytest.raises(ValueError, match="state 0, action 0"):
        TabularMDP.from_arrays(ROWS, outcomes=ENDS).with_labels([5, 5])


def test_next_states_of_different_rows_may_share_a_label():
    rows = np.zeros((2, 2, 3))
    rows[:, 0, 0] = rows[:, 1, 1] = rows[..., 2] = 0.5
    model = TabularMDP.from_arrays(rows, outcomes=[DEATH], labels=[0, 0])
    assert model.entry_label.tolist() == [0, 1] * 4


def test_with_labels_changes_labels_and_order_only():
    plain = TabularMDP.from_arrays(
        ROWS, outcomes=ENDS, initial=[0.25, 0.75], counts=[[1, 2], [3, 4]]
    )
    labelled = plain.with_labels([1, 0])
    for state in (0, 1):
        for action in (0, 1):
            assert labelled.row(state, action) == plain.row(state, action)
            assert reward_of(labelled, state, action) == reward_of(plain, state, action)
    for name in ("initial", "counts", "unseen"):
        np.testing.assert_array_equal(getattr(labelled, name), getattr(plain, name))
    assert labelled.terminal == plain.terminal
    assert plain.labels.tolist() == [0, 1, 2, 3]  # the first model stays as it was


def test_with_no_labels_noise_belongs_to_the_next_state_again():
    plain = TabularMDP.from_arrays(ROWS, outcomes=ENDS)
    assert_same_rows(plain.with_labels([1, 0]).with_labels(None), plain)


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_relabelling_never_touches_a_probability(seed):
    rng = np.random.default_rng(seed)
    plain = TabularMDP.from_arrays(
        random_rows(rng, states=6, actions=2, outcomes=1), outcomes=[DEATH]
    )
    relabelled = plain.with_labels(rng.permutation(6))
    for state in range(6):
        for action in range(2):
            assert relabelled.row(state, action) == plain.row(state, action)


# first states and counts


def test_first_states_are_uniform_unless_given():
    assert TabularMDP.from_arrays(ROWS, outcomes=ENDS).initial.tolist() == [0.5, 0.5]
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, initial=[0.25, 0.75])
    assert model.initial.tolist() == [0.25, 0.75]
    assert model.with_initial([1, 0]).initial.tolist() == [1.0, 0.0]
    assert model.initial.tolist() == [0.25, 0.75]


def test_counts_are_kept_and_nothing_counts_as_made_up():
    model = TabularMDP.from_arrays(ROWS, outcomes=ENDS, counts=[[1, 2], [3, 4]])
    assert model.counts.tolist() == [[1, 2], [3, 4]]
    assert not model.unseen.any()
    assert TabularMDP.from_arrays(ROWS, outcomes=ENDS).counts.tolist() == [[0, 0], [0, 0]]

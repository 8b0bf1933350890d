"""Logs of so many variables that only the states that occur are numbered, and models of them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import audit_into
from butfor.log.combinations import find_states, number_combinations
from butfor.models.transitions import count_distinct, merge_transitions
from tests.support import PROPERTY
from tests.wide import COUNT, DRUG, OUTCOMES, SIZES, VARIABLES, simulate


@pytest.fixture(scope="module")
def ward():
    return simulate(0, 200)


def codes_of(log, state):
    return np.stack(list(log.codes(state).values()), axis=1)


def small_log(**changes):
    """One episode over two variables: states (0, 1), (1, 0), then (1, 2) at its end."""
    given = {
        "state": [[0, 1], [1, 0]],
        "action": [0, 1],
        "next_state": [[1, 0], [1, 2]],
        "offsets": [0, 2],
        "states": [bf.Variable("a", ("0", "1")), bf.Variable("b", ("0", "1", "2"))],
        "actions": DRUG,
        "outcome": [1],
        "outcomes": OUTCOMES,
    }
    return bf.Episodes.from_codes(**{**given, **changes})


# numbers of states


def test_states_of_a_wide_log_are_the_combinations_that_occur_in_order():
    log = small_log(wide=True)
    np.testing.assert_array_equal(log.combinations, [[0, 1], [1, 0], [1, 2]])
    assert (log.n_states, log.state.tolist(), log.next_state.tolist()) == (3, [0, 1], [1, 2])


def test_wide_and_combinations_are_refused_where_they_would_say_nothing():
    with pytest.raises(ValueError, match=r"wide was given with a state of shape \(2,\)"):
        small_log(state=[1, 3], next_state=[3, 5], wide=True)
    with pytest.raises(ValueError, match=r"combinations was given with a state of shape \(2, 2\)"):
        small_log(combinations=[[0, 1], [1, 0], [1, 2]])


def test_a_log_with_few_combinations_numbers_all_of_them():
    # mixed radix: 3 a + b
    log = small_log()
    assert log.combinations is None
    assert (log.n_states, log.state.tolist(), log.next_state.tolist()) == (6, [1, 3], [3, 5])


@pytest.mark.parametrize(("count", "wide"), [(23, False), (24, True)])
def test_a_log_is_wide_from_ten_million_combinations_on(count, wide):
    # 2^23 are 8.4 million, 2^24 are 16.8 million
    row = np.zeros((1, count), int)
    log = bf.Episodes.from_codes(
        row, [0], row + 1, offsets=[0, 1], states=VARIABLES[:count], actions=DRUG
    )
    assert (log.combinations is not None) == wide
    assert log.next_state[0] == (1 if wide else 2**23 - 1)


def test_a_log_of_thirty_variables_gives_back_its_codes(ward):
    assert ward.log.combinations is not None
    np.testing.assert_array_equal(codes_of(ward.log, ward.log.state), ward.state)
    np.testing.assert_array_equal(codes_of(ward.log, ward.log.next_state), ward.reached)
    assert ward.log.n_states == len(np.unique(np.concatenate([ward.state, ward.reached]), axis=0))


@PROPERTY
@given(st.integers(0, 2**32), st.integers(1, 20), st.floats(0, 1))
def test_combinations_beyond_one_integer_are_numbered_as_numpy_sorts_them(seed, count, often):
    # 3^45 combinations need 72 bits; rows differ in few places or in many
    generator = np.random.default_rng(seed)
    differs = generator.random((count, 45)) < often
    codes = np.where(differs, generator.integers(0, 3, (count, 45)), 1)
    variables = [bf.Variable(f"v{j}", ("0", "1", "2")) for j in range(45)]
    table, number = number_combinations(variables, codes)
    expected, place = np.unique(codes, axis=0, return_inverse=True)
    np.testing.assert_array_equal(table, expected)
    np.testing.assert_array_equal(number, place.reshape(-1))
    np.testing.assert_array_equal(find_states(variables, table, codes), number)
    absent = np.full((1, 45), 1)
    wanted = number[(codes == 1).all(axis=1)]
    assert find_states(variables, table, absent)[0] == (wanted[0] if len(wanted) else -1)


# round trips


def test_a_selection_keeps_the_numbers_of_states(ward):
    part = ward.log.select([3, 1])
    assert part.n_states == ward.log.n_states
    first, last = ward.log.offsets[3:5]
    np.testing.assert_array_equal(part.state[: last - first], ward.log.state[first:last])


def test_a_log_that_was_cut_ends_where_the_next_row_began(ward):
    cut = ward.log.truncate(2)
    assert cut.lengths.max() == 2
    long = np.flatnonzero(ward.log.lengths > 2)
    np.testing.assert_array_equal(
        cut.next_state[cut.offsets[1:] - 1][long], ward.log.state[ward.log.offsets[long] + 2]
    )


def test_a_wide_log_is_read_back_from_a_file(ward, tmp_path):
    study = bf.write_episodes(ward.log, tmp_path / "log.parquet")
    again = bf.read_episodes(tmp_path / "log.parquet", study)
    for name in ("combinations", "state", "action", "next_state", "outcome", "reward", "offsets"):
        np.testing.assert_array_equal(getattr(again, name), getattr(ward.log, name), name)


def test_a_wide_log_is_read_from_a_frame_with_one_column_per_variable(ward):
    log = ward.log
    finals = log.offsets[1:] - 1
    rows = np.concatenate([log.state, log.next_state[finals]])
    frame = pd.DataFrame(codes_of(log, rows), columns=[v.name for v in VARIABLES])
    frame["episode"] = np.concatenate([np.repeat(log.id, log.lengths), log.id])
    frame["time"] = np.concatenate([log.time, log.lengths])
    frame["action"] = np.concatenate([log.action, np.full(len(log), np.nan)])
    ends = np.array(["died", "home", None], dtype=object)
    frame["outcome"] = np.concatenate([np.full(len(log.state), None), ends[log.outcome]])
    names = [v.name for v in VARIABLES]
    again = bf.Episodes.from_frame(
        frame.sample(frac=1.0, random_state=0), time="time", state=names, outcomes=OUTCOMES,
        states={name: range(size) for name, size in zip(names, SIZES, strict=True)},
    ).select(log.id.argsort())  # fmt: skip
    where = np.argsort(again.id)
    again = again.select(where)
    np.testing.assert_array_equal(again.combinations, log.combinations)
    np.testing.assert_array_equal(again.state, log.state)
    np.testing.assert_array_equal(again.next_state, log.next_state)


def test_hiding_variables_leaves_a_wide_log_or_a_narrow_one(ward):
    log = ward.log
    wide = log.hide("x00")
    np.testing.assert_array_equal(codes_of(wide, wide.state), ward.state[:, 1:])
    assert wide.combinations is not None
    assert wide.n_states < log.n_states or wide.n_states == len(wide.combinations)
    narrow = wide.hide(*(f"x{j:02}" for j in range(1, 27)))
    assert (narrow.combinations, narrow.n_states) == (None, 27)
    np.testing.assert_array_equal(narrow.state, ward.state[:, 27:] @ [9, 3, 1])


def test_hiding_a_static_variable_numbers_final_states_without_it(ward):
    still = (bf.Variable("x00", ("0", "1"), static=True), *VARIABLES[1:])
    log = bf.Episodes.from_codes(
        np.where(np.arange(COUNT) == 0, 0, ward.state), ward.log.action,
        np.where(np.arange(COUNT) == 0, 0, ward.reached), offsets=ward.log.offsets,
        states=still, actions=DRUG, outcome=ward.log.outcome, outcomes=OUTCOMES,
    )  # fmt: skip
    finals = ward.reached[log.offsets[1:] - 1, 1:]
    _, expected = np.unique(finals, axis=0, return_inverse=True)
    key = log.hide("x00").final_key
    assert len(np.unique(np.stack([key, expected.reshape(-1)]), axis=1).T) == len(np.unique(key))


def test_labels_of_states_combine_the_named_variables(ward):
    labels = ward.log.state_labels("x29", "x24")
    np.testing.assert_array_equal(labels, ward.log.combinations[:, [24, 29]] @ [3, 1])


# what is refused


def test_codes_out_of_range_are_refused_with_their_row():
    with pytest.raises(ValueError, match=r"row 1: 'b' has the code 3, outside 0\.\.2"):
        small_log(state=[[0, 1], [1, 3]])


def test_codes_of_the_wrong_shape_are_refused():
    with pytest.raises(
        ValueError, match=r"state has shape \(2, 3\), expected one dimension, or \(rows, 2\)"
    ):
        small_log(state=np.zeros((2, 3), int))


def test_a_state_given_twice_is_refused():
    with pytest.raises(ValueError, match="row 0 appears twice"):
        bf.Episodes.from_arrays(
            [0], [0], [1], offsets=[0, 1], states=VARIABLES[:1], actions=DRUG,
            combinations=[[1], [1]],
        )  # fmt: skip


def test_a_variable_with_too_many_levels_is_refused():
    levels = tuple(map(str, range(2**15)))
    with pytest.raises(ValueError, match=r"'a' has 32,768 levels; .* allows 32,767"):
        small_log(states=[bf.Variable("a", levels), bf.Variable("b", levels)], wide=True)


def test_a_final_state_of_a_wide_log_may_be_unknown():
    log = small_log(next_state=[[1, 0], [-1, -1]], wide=True)
    assert log.next_state.tolist() == [1, -1]


def test_levels_for_a_column_that_is_no_state_are_refused():
    frame = pd.DataFrame({"episode": [0], "a": [0], "b": [0], "action": [0], "outcome": ["home"]})
    with pytest.raises(ValueError, match="'c' is not in state="):
        bf.Episodes.from_frame(frame, state=["a", "b"], states={"c": [0, 1]})
    with pytest.raises(ValueError, match="2 columns have their own levels"):
        bf.Episodes.from_frame(frame, state=["a", "b"], states=[0, 1])


def test_a_table_of_whole_states_is_refused_for_a_wide_log(ward):
    with pytest.raises(ValueError, match="give a function of level codes"):
        bf.interop.target_from_table(pd.DataFrame({"state": [0], "action": [0]}), ward.log)


def test_a_narrow_log_can_be_made_wide(ward):
    log = ward.log.hide(*(f"x{j:02}" for j in range(4, COUNT)))
    lost = log.next_state.copy()
    lost[log.offsets[1:][log.outcome >= 0] - 1] = -1
    log = replace(log, next_state=lost)
    wide = log.widen()
    assert log.combinations is None
    assert len(wide.combinations) <= 16
    for name in ("state", "next_state"):
        one, other = getattr(wide, name), getattr(log, name)
        np.testing.assert_array_equal(one < 0, other < 0)
        before, after = log.codes(other[other >= 0]), wide.codes(one[one >= 0])
        for variable in log.state_variables:
            np.testing.assert_array_equal(before[variable.name], after[variable.name])
    assert wide.widen() is wide


# models of wide logs


def test_a_wide_model_does_not_depend_on_how_its_log_numbers_states():
    # the same episodes over four variables, wide and narrow
    ward = simulate(2, 100)
    log = ward.log.hide(*(f"x{j:02}" for j in range(4, COUNT)))
    parts = log.state_variables
    wide = bf.Episodes.from_codes(
        ward.state[:, :4], log.action, ward.reached[:, :4], offsets=log.offsets, states=parts,
        actions=DRUG, outcome=log.outcome, outcomes=OUTCOMES, wide=True,
    )  # fmt: skip
    for one, other in zip(bf.fit_factored(wide).factors, bf.fit_factored(log).factors, strict=True):
        assert one.parents == other.parents
        np.testing.assert_array_equal(one.table, other.table)


def test_a_model_that_cannot_be_enumerated_has_no_table_of_states(ward):
    model = bf.fit_factored(ward.log)
    assert not model.enumerable
    with pytest.raises(ValueError, match=r"12,230,590,464 possible states. Replay.outcomes"):
        model.tabular()


def test_a_predictor_says_that_it_has_no_table(ward):
    tree = DecisionTreeClassifier(max_depth=2)
    found = bf.fit_factored(ward.log, {"x02": tree}).factor("x02")
    with pytest.raises(ValueError, match="'x02' is predicted by a DecisionTreeClassifier from 31"):
        _ = found.table


def test_wide_logs_do_not_add_up():
    parts = [count_distinct(simulate(seed, 5).log) for seed in (0, 1)]
    with pytest.raises(ValueError, match="number their states differently"):
        merge_transitions(parts)


def test_an_audit_of_a_wide_log_in_summary_detail_is_refused(ward, tmp_path):
    study = bf.write_episodes(ward.log, tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"12,230,590,464 .*use --detail full"):
        audit_into(
            tmp_path / "log.parquet", study, tmp_path / "audit", AuditSettings(detail="summary")
        )

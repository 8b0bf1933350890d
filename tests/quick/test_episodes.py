import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from butfor import Episodes, Outcome, Variable, fit_mdp, read_episodes
from butfor.log.variables import project
from tests.builders import DEATH, HOME, PATIENT, patient_log, patient_state, random_log, ward_log
from tests.support import PROPERTY


def partition(keys):
    """Which entries are equal to which, whatever their values."""
    return (np.asarray(keys)[:, None] == np.asarray(keys)).tolist()


def assert_same(one, other):
    for name in ("state", "action", "next_state", "reward", "offsets", "outcome", "id"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.final_key, other.final_key)
    assert one.horizon == other.horizon
    assert one.state_variables == other.state_variables
    assert one.side_variables == other.side_variables
    if one.side is None or other.side is None:
        assert one.side is other.side
    else:
        pd.testing.assert_frame_equal(one.side, other.side)


# from_arrays


def test_without_rewards_an_episode_earns_its_outcome_on_its_last_row():
    # stays end on rows 1 (death), 4 (home), 6 (none), 7 (death)
    assert ward_log().reward.tolist() == [0, -1, 0, 0, 1, 0, 0, -1]


def test_given_rewards_are_kept():
    reward = [0.5, 1, 2, 3, 4, 5, 6, 7]
    assert ward_log(reward=reward).reward.tolist() == reward


def test_an_outcome_given_by_name_takes_the_mean_last_reward_of_its_episodes():
    # deaths end on rows 1 and 7 with -1 and -3: mean -2; home on row 4 with 10; nobody is moved
    reward = [0, -1, 0, 0, 10, 0, 0, -3]
    outcomes = ward_log(reward=reward, outcomes=["death", "home", "moved"]).outcomes
    assert outcomes == (Outcome("death", -2.0), Outcome("home", 10.0), Outcome("moved", 0.0))


def test_a_log_without_outcomes_has_none_anywhere():
    log = ward_log(outcome=None, outcomes=())
    assert log.outcome.tolist() == [-1, -1, -1, -1]
    assert log.reward.tolist() == [0] * 8


def test_the_final_key_is_the_final_state_unless_given():
    assert ward_log().final_key.tolist() == [2, 2, 1, 2]
    assert ward_log(final_key=[7, 8, 9, 7]).final_key.tolist() == [7, 8, 9, 7]


def test_the_horizon_is_the_longest_episode_unless_given():
    assert ward_log().horizon == 3
    assert ward_log(horizon=20).horizon == 20


def test_sizes_follow_from_the_variables():
    log = patient_log()
    assert (len(log), log.n_states, log.n_actions) == (4, 12, 2)
    assert ward_log().state_variables == (Variable("state", ("0", "1", "2")),)


def test_lengths_first_states_and_times_follow_from_the_offsets():
    log = ward_log()
    assert log.lengths.tolist() == [2, 3, 2, 1]
    assert log.first_state.tolist() == [0, 0, 0, 1]
    assert log.time.tolist() == [0, 1, 0, 1, 2, 0, 1, 0]


def test_an_unknown_final_state_is_allowed_where_there_is_an_outcome():
    assert ward_log(next_state=[1, -1, 1, 0, 2, 0, 1, -1]).next_state[[1, 7]].tolist() == [-1, -1]


def test_whole_numbers_stored_as_floats_are_taken():
    log = ward_log(state=np.array([0, 1, 0, 1, 0, 0, 0, 1], dtype=float))
    assert log.state.dtype == np.int32


def test_side_rows_are_numbered_from_0_whatever_the_index_of_the_frame():
    side = pd.DataFrame({"age": range(12)}, index=range(100, 112))
    assert ward_log(side=side).side.index.tolist() == list(range(12))
    assert side.index[0] == 100


# returns


def test_returns_sum_the_rewards_of_each_episode():
    assert ward_log().returns().tolist() == [-1, 1, 0, -1]


def test_returns_discount_from_the_first_step_of_each_episode():
    # rewards 1, 2 | 4, 8, 16 | 3, 5 | 7; discount 1/2:
    # 1 + 1 = 2 | 4 + 4 + 4 = 12 | 3 + 2.5 = 5.5 | 7
    log = ward_log(reward=[1, 2, 4, 8, 16, 3, 5, 7])
    assert log.returns(0.5).tolist() == [2, 12, 5.5, 7]
    assert log.returns(0.0).tolist() == [1, 4, 3, 7]


# select


def test_select_keeps_the_order_asked_for():
    log = ward_log().select([3, 1])
    assert log.id.tolist() == [3, 1]
    assert log.offsets.tolist() == [0, 1, 4]
    assert log.state.tolist() == [1, 0, 1, 0]
    assert log.action.tolist() == [1, 0, 1, 0]
    assert log.next_state.tolist() == [2, 1, 0, 2]
    assert log.reward.tolist() == [-1, 0, 0, 1]
    assert log.outcome.tolist() == [0, 1]
    assert log.final_key.tolist() == [2, 2]
    assert log.horizon == 3


def test_select_takes_an_episode_as_often_as_it_is_named():
    assert ward_log().select([0, 0]).state.tolist() == [0, 1, 0, 1]


def test_select_takes_a_mask():
    assert_same(ward_log().select([True, False, True, False]), ward_log().select([0, 2]))


def test_select_counts_negative_positions_from_the_end():
    assert_same(ward_log().select([-1]), ward_log().select([3]))


def test_select_takes_the_side_rows_of_its_episodes_and_of_their_final_states():
    # eight rows, then four final ones, numbered 0..11: stay 3 is row 7 and final 11, stay 0 is
    # rows 0 and 1 and final 8
    side = pd.DataFrame({"number": range(12)})
    assert ward_log(side=side).select([3, 0]).side["number"].tolist() == [7, 0, 1, 11, 8]


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_selecting_a_permutation_and_its_inverse_gives_the_log_back(seed):
    rng = np.random.default_rng(seed)
    log = random_log(rng).hide("sugar")
    order = rng.permutation(len(log))
    assert_same(log.select(order).select(np.argsort(order)), log)


# truncate


def test_truncate_cuts_after_the_horizon_and_takes_the_outcome_of_what_it_cut():
    log = ward_log().truncate(2)
    assert log.offsets.tolist() == [0, 2, 4, 6, 7]
    assert log.state.tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert log.next_state.tolist() == [1, 2, 1, 0, 0, 1, 2]
    assert log.reward.tolist() == [0, -1, 0, 0, 0, 0, -1]
    assert log.outcome.tolist() == [0, -1, -1, 0]  # only stay 1 had three steps
    assert log.final_key.tolist() == [2, -1, 1, 2]  # of what was cut it is not known
    assert log.horizon == 2


def test_truncate_beyond_the_longest_episode_changes_the_horizon_only():
    log = ward_log().truncate(5)
    assert_same(log, ward_log(horizon=5))


def test_truncate_takes_the_side_row_of_the_state_at_the_cut_as_the_final_one():
    # stay 1 is rows 2, 3, 4; cut after two steps it ends in the state of row 4
    side = pd.DataFrame({"number": range(12)})
    number = ward_log(side=side).truncate(2).side["number"].tolist()
    assert number[:7] == [0, 1, 2, 3, 5, 6, 7]
    assert number[7:] == [8, 4, 10, 11]


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_truncating_and_hiding_commute(seed, horizon):
    log = random_log(np.random.default_rng(seed))
    one, other = log.truncate(horizon).hide("sugar"), log.hide("sugar").truncate(horizon)
    np.testing.assert_array_equal(one.state, other.state)
    np.testing.assert_array_equal(one.next_state, other.next_state)
    pd.testing.assert_frame_equal(one.side, other.side)
    ended = one.outcome >= 0  # final keys are asked for where there is an outcome only
    np.testing.assert_array_equal(one.final_key[ended], other.final_key[ended])


# hide


def test_hiding_takes_a_variable_out_of_the_state():
    log = patient_log().hide("sugar")
    assert [variable.name for variable in log.state_variables] == ["sex", "pulse"]
    assert log.n_states == 6
    # sex * 3 + pulse along w, x, y, z
    assert log.state.tolist() == [1, 1, 1, 3, 4, 4]
    assert log.next_state.tolist() == [1, 2, 2, 4, 5, 3]


def test_hidden_variables_become_side_columns_of_rows_and_then_of_final_states():
    side = patient_log().hide("sugar").side
    rows = ["normal", "high", "normal", "high", "high", "normal"]
    finals = ["high", "normal", "high", "normal"]
    assert side["sugar"].tolist() == rows + finals
    assert side["sugar"].cat.categories.tolist() == ["normal", "high"]


def test_hiding_keeps_the_side_columns_that_were_there():
    side = pd.DataFrame({"age": range(10)})
    log = patient_log(side=side).hide("sugar")
    assert log.side.columns.tolist() == ["age", "sugar"]
    assert log.side["age"].tolist() == list(range(10))
    assert side.columns.tolist() == ["age"]  # the frame that was given stays as it was


def test_hiding_a_moving_variable_keeps_it_in_the_final_key():
    # w and x end with the same sex and pulse, but with other sugar
    log = patient_log().hide("sugar")
    finals = [(0, 2, 1), (0, 2, 0), (1, 2, 1), (1, 0, 0)]
    assert partition(log.final_key) == partition([patient_state(*final) for final in finals])


def test_hiding_a_static_variable_drops_it_from_the_final_key():
    # w and y end alike but for their sex
    log = patient_log().hide("sex")
    assert partition(log.final_key) == partition(["high high", "high", "high high", "low"])


def test_a_static_variable_that_is_seen_stays_in_the_final_key():
    log = patient_log().hide("pulse")
    assert log.final_key[0] != log.final_key[2]


def test_hiding_both_kinds_keeps_the_moving_one_only():
    log = patient_log().hide("sugar", "sex")
    assert log.n_states == 3
    assert partition(log.final_key) == partition(["high high", "high", "high high", "low"])


def test_hiding_one_after_the_other_is_hiding_both():
    together = patient_log().hide("sex", "sugar")
    for first, second in (("sex", "sugar"), ("sugar", "sex")):
        chained = patient_log().hide(first).hide(second)
        np.testing.assert_array_equal(chained.state, together.state)
        np.testing.assert_array_equal(chained.next_state, together.next_state)
        assert chained.state_variables == together.state_variables
        assert partition(chained.final_key) == partition(together.final_key)
        pd.testing.assert_frame_equal(chained.side[["sex", "sugar"]], together.side)


@PROPERTY
@given(st.integers(0, 2**32 - 1), st.permutations(["sex", "pulse", "sugar"]))
def test_the_order_of_hiding_does_not_change_the_model(seed, names):
    log = random_log(np.random.default_rng(seed))
    together = fit_mdp(log.hide(*names[:2]), terminal="icml2019")
    chained = fit_mdp(log.hide(names[0]).hide(names[1]), terminal="icml2019")
    np.testing.assert_array_equal(together.start, chained.start)
    np.testing.assert_array_equal(together.next_state, chained.next_state)
    np.testing.assert_array_equal(together.probability, chained.probability)


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_what_was_hidden_can_be_put_back_together(seed):
    log = random_log(np.random.default_rng(seed))
    hidden = log.hide("pulse")  # leaves sex * 2 + sugar
    pulse = hidden.side["pulse"].cat.codes.to_numpy()[: len(log.state)]
    sex, sugar = np.divmod(hidden.state, 2)
    np.testing.assert_array_equal(patient_state(sex, pulse, sugar), log.state)


def test_hiding_leaves_actions_rewards_and_outcomes_alone():
    before, after = patient_log(), patient_log().hide("sugar")
    for name in ("action", "reward", "offsets", "outcome", "id", "horizon"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))


# state_labels


def test_state_labels_number_the_combinations_of_the_named_variables():
    # state = (sex * 3 + pulse) * 2 + sugar; by pulse and sugar: pulse * 2 + sugar
    assert patient_log().state_labels("pulse", "sugar").tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert patient_log().state_labels("sex").tolist() == [0] * 6 + [1] * 6


def test_labels_take_the_order_of_the_variables_not_of_the_names():
    assert (
        project(PATIENT, "sugar", "pulse").tolist() == project(PATIENT, "pulse", "sugar").tolist()
    )


# from_frame


def frame(rows, columns=("stay", "ward", "drug", "end")):
    return pd.DataFrame(rows, columns=list(columns))


NAMES = {"episode": "stay", "state": "ward", "action": "drug", "outcome": "end"}


def test_a_last_row_without_action_gives_the_final_state():
    table = frame(
        [
            ("w", "a", "yes", None),
            ("w", "b", "no", None),
            ("w", "c", None, "death"),
            ("x", "b", "yes", None),
            ("x", "a", None, None),
        ]
    )
    log = Episodes.from_frame(table, outcomes=[DEATH, HOME], **NAMES)
    assert log.state.tolist() == [0, 1, 1]
    assert log.action.tolist() == [1, 0, 1]  # sorted: no, yes
    assert log.next_state.tolist() == [1, 2, 0]
    assert log.offsets.tolist() == [0, 2, 3]
    assert log.outcome.tolist() == [0, -1]
    assert log.id.tolist() == ["w", "x"]
    assert log.reward.tolist() == [0, -1, 0]
    assert log.state_variables == (Variable("ward", ("a", "b", "c")),)
    assert log.action_variables == (Variable("drug", ("no", "yes")),)


def test_an_outcome_on_the_last_decision_leaves_the_final_state_unknown():
    table = frame([("w", "a", "yes", None), ("w", "b", "no", "home")])
    log = Episodes.from_frame(table, outcomes=[DEATH, HOME], **NAMES)
    assert log.state.tolist() == [0, 1]
    assert log.next_state.tolist() == [1, -1]
    assert log.outcome.tolist() == [1]


def test_a_last_decision_without_anything_after_it_is_no_transition():
    table = frame([("w", "a", "yes", None), ("w", "b", "no", None)])
    log = Episodes.from_frame(table, outcomes=[DEATH], **NAMES)
    assert log.state.tolist() == [0]
    assert log.next_state.tolist() == [1]
    assert log.outcome.tolist() == [-1]


def test_rows_are_sorted_by_time_within_an_episode():
    table = frame(
        [
            (1, "c", None, 2, "death"),
            (2, "a", 1, 0, None),
            (1, "a", 0, 0, None),
            (2, "b", None, 9, None),
            (1, "b", 1, 1, None),
        ],
        columns=("stay", "ward", "drug", "hour", "end"),
    )
    log = Episodes.from_frame(table, time="hour", outcomes=[DEATH], **NAMES)
    assert log.id.tolist() == [1, 2]
    assert log.state.tolist() == [0, 1, 0]
    assert log.action.tolist() == [0, 1, 1]
    assert log.next_state.tolist() == [1, 2, 1]


def test_without_a_time_rows_keep_their_order_even_where_episodes_are_mixed():
    table = frame(
        [(1, "a", 0, None), (2, "b", 1, None), (1, "b", 1, "death"), (2, "a", 0, "death")]
    )
    log = Episodes.from_frame(table, outcomes=[DEATH], **NAMES)
    assert log.state.tolist() == [0, 1, 1, 0]
    assert log.next_state.tolist() == [1, -1, 0, -1]


def test_the_given_labels_fix_the_numbers():
    table = frame([("w", "b", "yes", "death")])
    log = Episodes.from_frame(
        table, states=["c", "b", "a"], actions=["yes", "no"], outcomes=[HOME, DEATH], **NAMES
    )
    assert (log.state.tolist(), log.action.tolist(), log.outcome.tolist()) == ([1], [0], [1])
    assert (log.n_states, log.n_actions) == (3, 2)


def test_rewards_come_from_their_column_and_a_final_row_s_goes_to_the_transition_before():
    # stay 1: 1 and then 2 + 10 from its final row; stay 2: 3, nothing on its final row
    table = frame(
        [
            (1, "a", 0, 1.0, None),
            (1, "a", 0, 2.0, None),
            (1, "b", None, 10.0, "death"),
            (2, "a", 0, 3.0, None),
            (2, "b", None, None, None),
        ],
        columns=("stay", "ward", "drug", "pay", "end"),
    )
    log = Episodes.from_frame(table, reward="pay", **NAMES)
    assert log.reward.tolist() == [1, 12, 3]
    assert log.outcomes == (Outcome("death", 12.0),)


def test_a_frame_may_have_no_outcome_column():
    table = frame([("w", "a", "yes"), ("w", "b", None)], columns=("stay", "ward", "drug"))
    log = Episodes.from_frame(table, **{**NAMES, "outcome": None})
    assert log.outcomes == ()
    assert log.outcome.tolist() == [-1]


def test_a_final_row_does_not_turn_whole_number_actions_into_decimals():
    # the empty cell makes pandas store the column as floats
    table = frame([("w", "a", 0, None), ("w", "a", 1, None), ("w", "b", None, "death")])
    log = Episodes.from_frame(table, outcomes=[DEATH], **NAMES)
    assert log.action_variables[0].levels == ("0", "1")


def test_all_problems_of_a_frame_are_reported_together():
    table = frame([("w", "a", None, None), ("w", "?", "no", "death"), ("x", "b", "yes", None)])
    with pytest.raises(ValueError, match="the frame: 3 problems") as caught:
        Episodes.from_frame(table, states=["a", "b"], outcomes=[DEATH], **NAMES)
    message = str(caught.value)
    assert "missing_action: 1 row has no 'drug'" in message
    assert "unknown_levels: 1 row has a 'ward' that is not one of its levels: '?'" in message
    assert "no_transition: 1 episode" in message
    assert "row 2 (episode x)" in message
    assert "[problems]" not in message  # there is no study file to change
    assert 'problems={"no_transition": "drop"}' in message


# A table with one defect each, and the settlement that leaves something of it.
TIMED = ("stay", "hour", "ward", "drug", "pay", "end")
DEFECTS = {
    "duplicates": (
        [("w", 0, "a", "yes", 0, None), ("w", 0, "b", "no", 0, None), ("w", 1, "a", "no", 0, "x")],
        "drop",
    ),
    "lost_reward": ([("w", 0, "a", "yes", 1, None), ("w", 1, "b", "no", 5, None)], "drop"),
    "missing_reward": (
        [("w", 0, "a", "yes", None, None), ("w", 1, "b", "no", 1.0, "x")],
        "fill",
    ),
    "not_numbers": (
        [("w", 0, "a", "yes", "much", "x"), ("x", 0, "a", "no", "1", "x")],
        "drop",
    ),
    "missing_action": (
        [("w", 0, "a", None, 0, None), ("w", 1, "b", "no", 0, "x"), ("x", 0, "a", "yes", 0, "x")],
        "drop",
    ),
    "differing_outcomes": (
        [("w", 0, "a", "yes", 0, "y"), ("w", 1, "b", "no", 0, "x")],
        "last",
    ),
    "beyond_horizon": (
        [(1, 0, "a", "no", 0, None), (1, 1, "a", "yes", 0, None), (1, 2, "a", "no", 0, "x")],
        "cut",
    ),
}


def both_readings(rows, **problems):
    """What a frame is read as, by `from_frame` and by `read_episodes`: an error or episodes."""
    table = frame(rows, TIMED)
    ends = sorted({row[-1] for row in rows if row[-1]})
    study = {
        "columns": {"episode": "stay", "time": "hour", "reward": "pay", "outcome": "end"},
        "state": {"ward": {"levels": ["a", "b"]}},
        "action": {"drug": {"levels": ["no", "yes"]}},
        "outcome": {end: {"reward": 0} for end in ends or ["x"]},
        "evaluation": {"horizon": 2},
        "problems": {"order": "sort", "no_outcome": "keep"} | problems,
    }
    options = {"states": ["a", "b"], "actions": ["no", "yes"], "horizon": 2}
    outcomes = [Outcome(end, 0.0) for end in ends or ["x"]]
    for read in (
        lambda: Episodes.from_frame(
            *(table,), time="hour", reward="pay", outcomes=outcomes, problems=problems or None,
            **NAMES, **options,
        ),
        lambda: read_episodes(table, study),
    ):  # fmt: skip
        try:
            yield read()
        except ValueError as error:
            yield str(error)


@pytest.mark.parametrize("kind", DEFECTS)
def test_a_frame_has_the_problems_and_settlements_of_a_log_with_a_study(kind):
    rows, settlement = DEFECTS[kind]
    refusals = list(both_readings(rows))
    found = [re.search(rf"- {kind}: [^(]*[(][^)]*[)]", text).group() for text in refusals]
    assert found[0] == found[1]
    assert f'problems={{"{kind}": "{settlement}"}}' in refusals[0]
    assert f'{kind} = "{settlement}"' in refusals[1]
    one, other = both_readings(rows, **{kind: settlement, "drop_at_most": 1.0})
    assert_same(one, other)


def test_times_that_are_text_are_read_as_numbers_and_not_sorted_as_text():
    table = frame(
        [
            ("w", "10", "c", None, "death"),
            ("w", "2", "b", "no", None),
            ("w", "1", "a", "yes", None),
        ],
        columns=("stay", "hour", "ward", "drug", "end"),
    )
    log = Episodes.from_frame(table, time="hour", outcomes=[DEATH], **NAMES)
    assert (log.state.tolist(), log.next_state.tolist()) == ([0, 1], [1, 2])
    words = table.assign(hour=["late", "soon", "now"])
    with pytest.raises(ValueError, match="neither a number nor a date"):
        Episodes.from_frame(words, time="hour", outcomes=[DEATH], **NAMES)


def test_unknown_problems_of_a_frame_are_refused():
    table = frame([("w", "a", "yes", "death")])
    with pytest.raises(ValueError, match="problems= duplicate: no such key; did you mean dupl"):
        Episodes.from_frame(table, outcomes=[DEATH], problems={"duplicate": "drop"}, **NAMES)


def test_the_final_state_of_an_episode_with_an_outcome_may_be_unknown():
    table = frame([("w", "a", "yes", None), ("w", None, None, "death")])
    log = Episodes.from_frame(table, outcomes=[DEATH], **NAMES)
    assert (log.next_state.tolist(), log.outcome.tolist()) == ([-1], [0])


def test_the_index_of_the_frame_does_not_matter():
    table = frame([("w", "a", "yes", None), ("w", "b", "no", "death")])
    shifted = table.set_index(pd.Index([7, 7]))
    assert_same(
        Episodes.from_frame(table, outcomes=[DEATH], **NAMES),
        Episodes.from_frame(shifted, outcomes=[DEATH], **NAMES),
    )


@PROPERTY
@given(st.integers(0, 2**32 - 1))
def test_a_log_written_as_a_frame_is_read_back_as_it_was(seed):
    rng = np.random.default_rng(seed)
    log = random_log(rng)
    rows = []
    for position in range(len(log)):
        first, stop = log.offsets[position : position + 2]
        end = log.outcome[position]
        rows += [
            (log.id[position], row - first, log.state[row], log.action[row], None)
            for row in range(first, stop)
        ]
        name = None if end < 0 else log.outcomes[end].name
        rows.append((log.id[position], stop - first, log.next_state[stop - 1], None, name))
    table = frame(rows, columns=("episode", "time", "state", "action", "outcome"))
    shuffled = table.iloc[rng.permutation(len(table))]
    read = Episodes.from_frame(
        shuffled, time="time", states=range(12), actions=range(3), outcomes=[DEATH, HOME]
    )
    back = read.select(np.argsort(read.id))
    for name in ("state", "action", "next_state", "reward", "offsets", "outcome", "final_key"):
        np.testing.assert_array_equal(getattr(back, name), getattr(log, name), err_msg=name)


@pytest.mark.parametrize("build", [ward_log, patient_log])
def test_arrays_have_the_documented_types(build):
    log = build()
    assert {log.state.dtype, log.action.dtype, log.next_state.dtype} == {np.dtype(np.int32)}
    assert {log.offsets.dtype, log.final_key.dtype} == {np.dtype(np.int64)}
    assert log.reward.dtype == np.float64


def test_hiding_a_variable_that_changes_keeps_a_final_key_given_by_hand():
    log = patient_log(final_key=[91, 92, 93, 94])
    assert log.hide("sugar").final_key.tolist() == [91, 92, 93, 94]


def test_a_side_column_is_not_overwritten_by_hiding():
    log = patient_log()
    side = pd.DataFrame({"sugar": range(len(log.state) + len(log))})
    with pytest.raises(ValueError, match=r"already a side column 'sugar'; rename"):
        patient_log(side=side).hide("sugar")


def test_two_episodes_of_one_id_are_refused():
    with pytest.raises(ValueError, match=r"id: 'a' appears twice"):
        ward_log(id=["a", "b", "a", "c"])

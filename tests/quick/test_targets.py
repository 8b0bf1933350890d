"""Target policies from tables, functions and learned models."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from butfor import Episodes, Variable, run_audit
from butfor.interop import target_from_function, target_from_predict, target_from_table
from butfor.models.fit import fit_mdp
from tests.builders import DEATH, HOME, PATIENT, patient_log, patient_state, ward_log

DRUGS = (Variable("drug", ("none", "full")), Variable("pump", ("off", "on")))


def drug_log():
    """One patient, states over sex, pulse and sugar, actions over drug and pump."""
    return patient_log(actions=DRUGS)


def ward_table(**changes):
    table = {"state": [0, 0, 1, 2], "action": [0, 1, 1, 0], "probability": [0.25, 0.75, 1, 1]}
    return pd.DataFrame({**table, **changes})


WARD = [[0.25, 0.75], [0, 1], [1, 0]]


# tables


def test_a_table_of_numbers_gives_its_probabilities():
    assert target_from_table(ward_table(), ward_log()).tolist() == WARD


def test_the_order_and_index_of_a_table_do_not_matter():
    shuffled = ward_table().iloc[[3, 1, 0, 2]]
    assert target_from_table(shuffled, ward_log()).tolist() == WARD


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_can_be_a_file(tmp_path, suffix):
    path = tmp_path / f"target.{suffix}"
    table = ward_table()
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    assert target_from_table(path, ward_log()).tolist() == WARD
    assert target_from_table(str(path), ward_log()).tolist() == WARD


def test_a_table_can_be_any_arrow_frame():
    assert target_from_table(pa.table(ward_table()), ward_log()).tolist() == WARD


def test_without_probabilities_each_state_has_its_one_action():
    table = pd.DataFrame({"state": [0, 1, 2], "action": [1, 0, 1]})
    assert target_from_table(table, ward_log()).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_a_table_may_name_levels_of_variables(tmp_path):
    # "none" and "NA" are levels here, not missing values
    variables = [Variable("pulse", ("none", "NA"))]
    log = Episodes.from_arrays([0], [0], [1], offsets=[0, 1], states=variables, actions=DRUGS)
    path = tmp_path / "target.csv"
    path.write_text(
        "pulse,drug,pump,probability\nnone,full,on,1\nNA,none,off,0.5\nNA,full,off,.5\n"
    )
    # actions: drug * 2 + pump
    assert target_from_table(path, log).tolist() == [[0, 0, 0, 1], [0.5, 0, 0.5, 0]]


def test_numbers_that_stand_for_levels_are_read_as_levels():
    log = ward_log(states=[Variable("score", ("1", "2", "3"))])
    table = pd.DataFrame({"score": [1.0, 2.0, 3.0], "action": [0, 1, 1]})
    assert target_from_table(table, log).tolist() == [[1, 0], [0, 1], [0, 1]]


def test_states_that_a_table_leaves_out_are_uniform_on_request():
    table = ward_table().iloc[:2]
    assert target_from_table(table, ward_log(), missing="uniform").tolist() == [
        *([0.25, 0.75], [0.5, 0.5], [0.5, 0.5])
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (ward_table().iloc[:3], "leaves out 1 of 3 states (0 of them in the log), first"),
        (ward_table().iloc[:2], "leaves out 2 of 3 states (1 of them in the log), first"),
        (ward_table(probability=[0.5, 0.75, 1, 1]), "of state 0 (state=0) sum to 1.25, not to 1"),
        (
            ward_table(state=[0, 0, 3, 2]),
            "row 2, counted from 0: state '3' is not one of its levels",
        ),
        (
            ward_table(state=[0, 0, None, 2]),
            "row 2, counted from 0: state 'None' is not one of its levels",
        ),
        (
            ward_table(action=[0, 1, 9, 0]),
            "row 2, counted from 0: action '9' is not one of its levels",
        ),
        (
            ward_table(action=[0, 0, 1, 0]),
            "row 1, counted from 0: state 0 (state=0), action 0 is given again, after row 0",
        ),
        (
            ward_table(probability=[0.25, -1, 1, 1]),
            "row 1, counted from 0: probability '-1' is not a number from 0 to 1",
        ),
        (
            ward_table(probability=[0.25, "a", 1, 1]),
            "row 1, counted from 0: probability 'a' is not a number",
        ),
        (
            ward_table(probability=[0.25, np.nan, 1, 1]),
            "row 1, counted from 0: probability 'None' is not a number",
        ),
        (ward_table().drop(columns="action"), "neither the columns 'action' nor a column 'action'"),
        (ward_table().iloc[:0], "has no rows"),
        (pd.concat([ward_table()] * 2, axis=1), "two columns are called 'state'; rename one"),
        ([[0, 1]], "a table of type list; give a path"),
    ],
)
def test_a_table_that_is_no_policy_is_refused_with_its_row(table, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        target_from_table(table, ward_log())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": [0, 12]}, "row 1, counted from 0: state '12' is not a number from 0 to 11"),
        ({"state": [0, 1.5]}, "row 1, counted from 0: state '1.5' is not a number from 0 to 11"),
        (
            {"state": ["0", "low"]},
            "row 1, counted from 0: state 'low' is not a number from 0 to 11",
        ),
    ],
)
def test_a_number_of_a_state_of_several_variables_is_checked(change, message):
    table = pd.DataFrame({"state": [0, 1], "action": [0, 1], **change})
    with pytest.raises(ValueError, match=re.escape(message)):
        target_from_table(table, patient_log())


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "target.parquet"
    path.write_text("no parquet")
    with pytest.raises(ValueError, match="damaged, or not Parquet") as caught:
        target_from_table(path, ward_log())
    assert str(path) in str(caught.value)
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(ValueError, match=r"empty\.csv: the file is empty"):
        target_from_table(empty, ward_log())
    with pytest.raises(FileNotFoundError):
        target_from_table(tmp_path / "none.csv", ward_log())
    with pytest.raises(ValueError, match="missing 'skip'"):
        target_from_table(ward_table(), ward_log(), missing="skip")


def test_a_rule_matches_every_level_of_what_it_leaves_open(tmp_path):
    log = patient_log(actions=[Variable("drug", ("none", "full"))])
    path = tmp_path / "rules.csv"
    # by default nothing; with a high pulse all; but not if the sugar is high, too
    path.write_text("pulse,sugar,drug\n*,,none\nhigh,,full\nhigh,high,none\n")

    def rule(state):
        return "full" if state["pulse"] == "high" and state["sugar"] != "high" else "none"

    np.testing.assert_array_equal(target_from_table(path, log), target_from_function(rule, log))
    wide = target_from_table(path, log.widen())
    codes = np.stack(list(log.codes(np.arange(log.n_states)).values()), axis=1)
    np.testing.assert_array_equal(wide(codes), target_from_function(rule, log))


@given(seed=st.integers(0, 1000))
def test_of_the_rules_that_match_the_one_with_most_levels_counts(seed):
    generator = np.random.default_rng(seed)
    log = drug_log()
    sizes = [len(variable.levels) for variable in PATIENT]
    rules = {}
    for _ in range(generator.integers(1, 8)):
        levels = tuple(int(generator.integers(-1, size)) for size in sizes)
        if all(level < 0 for level in levels):
            continue
        rules[levels] = int(generator.integers(4))
    rules[-1, -1, -1] = 3
    table = pd.DataFrame(
        [
            {v.name: "*" if c < 0 else v.levels[c] for v, c in zip(PATIENT, levels, strict=True)}
            | {"action": action}
            for levels, action in rules.items()
        ]
    )
    codes = log.codes(np.arange(log.n_states))
    chosen, torn = [], False
    for state in range(log.n_states):
        own = [int(codes[v.name][state]) for v in PATIENT]
        matching = [
            levels
            for levels in rules
            if all(c in (-1, mine) for c, mine in zip(levels, own, strict=True))
        ]
        most = max(sum(c >= 0 for c in levels) for levels in matching)
        best = {rules[levels] for levels in matching if sum(c >= 0 for c in levels) == most}
        torn |= len(best) > 1 and most < 3
        chosen.append(min(best))
    if torn:
        with pytest.raises(
            ValueError, match="different actions; add a row with the levels of both"
        ):
            target_from_table(table, log)
        return
    policy = target_from_table(table, log)
    np.testing.assert_array_equal(policy.argmax(axis=1), chosen)


def test_rules_that_disagree_are_settled_by_a_row_for_both():
    table = pd.DataFrame({"pulse": ["high", "*"], "sugar": ["*", "high"], "action": [0, 1]})
    default = pd.DataFrame({"pulse": ["*"], "sugar": ["*"], "action": [0]})
    both = pd.DataFrame({"pulse": ["high"], "sugar": ["high"], "action": [2]})
    with pytest.raises(
        ValueError, match=r"both .*sex=\*, pulse=\*, sugar=high .*sex=\*, pulse=high"
    ):
        target_from_table(pd.concat([table, default]), drug_log())
    policy = target_from_table(pd.concat([table, default, both]), drug_log())
    assert policy[patient_state(0, 2, 1)].tolist() == [0, 0, 1, 0]


# functions


def test_a_function_sees_the_labels_of_every_state():
    seen = []
    target_from_function(lambda state: seen.append(state) or 0, patient_log())
    assert len(seen) == 12
    assert seen[patient_state(1, 2, 0)] == {"sex": "male", "pulse": "high", "sugar": "normal"}
    assert list(seen[0]) == [variable.name for variable in PATIENT]


@pytest.mark.parametrize(
    "answer",
    [
        2,
        np.int64(2),
        ("full", "off"),
        {"drug": "full", "pump": "off"},
        {("full", "off"): 1.0},
        {2: 0.5, ("full", "off"): 0.5},
        [0, 0, 1, 0],
        (0.0, 0.0, 1.0, 0.0),
        np.array([0, 0, 1, 0]),
    ],
    ids=repr,
)
def test_a_function_may_answer_in_every_form(answer):
    policy = target_from_function(lambda state: answer, drug_log())
    assert policy.tolist() == [[0, 0, 1, 0]] * 12


def test_one_action_variable_needs_its_level_only():
    log = patient_log(actions=[Variable("drug", ("none", "full"))])

    def rule(state):
        if state["pulse"] == "high":
            return "full"
        return {"none": 0.75, "full": 0.25} if state["sugar"] == "high" else "none"

    policy = target_from_function(rule, log)
    assert policy[patient_state(0, 2, 1)].tolist() == [0, 1]
    assert policy[patient_state(0, 1, 1)].tolist() == [0.75, 0.25]
    assert policy[patient_state(1, 0, 0)].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (4, "action 4 outside 0..3"),
        (True, "True is not an action"),
        (None, "None is not an action"),
        (1.0, "1.0 is not an action"),
        ("full", "'full' is not an action; return its number, or levels of drug, pump"),
        (("half", "on"), "'half' is not a level of drug ('none', 'full')"),
        ({"drug": "full"}, "'drug' is not an action"),
        ({0: 0.5}, "is not a distribution"),
        ({0: "all"}, "state 0 (sex=female, pulse=low, sugar=normal)"),
        ([0.5, 0.5], "shape (2,), expected 4"),
        ([2, -1, 0, 0], "is not a distribution"),
        ([np.nan, 1, 0, 0], "is not a distribution"),
    ],
    ids=repr,
)
def test_an_answer_that_is_no_action_is_refused_with_its_state(answer, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        target_from_function(lambda state: answer, drug_log())
    assert "state 0 (sex=female, pulse=low, sugar=normal)" in str(caught.value)


def test_an_error_inside_the_function_says_in_which_state():
    with pytest.raises(KeyError) as caught:
        target_from_function(lambda state: state["pulse rate"], patient_log())
    assert "in state 0: {'sex': 'female'" in caught.value.__notes__[0]


# models that predict


def test_predictions_are_averaged_over_the_rows_of_a_state():
    # rows of state 0: 0, 2, 4, 5, 6; of state 1: 1, 3, 7; state 2 is never left
    model = SimpleNamespace(predict=lambda x: (x[:, 0] > 0.5).astype(int))
    features = np.array([[0.9], [0.1], [0.9], [0.1], [0.1], [0.1], [0.9], [0.9]])
    # four of eight rows keep their action where it is likeliest: .6 of 5 rows, .67 of 3
    said = r"something else in 46.7 % of the logged decisions.*probability 0.62 instead of 1.00"
    with pytest.warns(UserWarning, match=said):
        policy = target_from_predict(model, features, ward_log())
    np.testing.assert_allclose(policy, [[2 / 5, 3 / 5], [2 / 3, 1 / 3], [0.5, 0.5]])


def test_a_model_that_also_returns_its_state_is_asked_without_chance():
    asked = []

    def predict(observation, state=None, deterministic=False):
        asked.append(deterministic)
        return np.ones((len(observation), 1)), None

    model = SimpleNamespace(predict=predict)
    policy = target_from_predict(model, pd.DataFrame({"x": range(8)}), ward_log())
    target_from_predict(model, np.zeros(8), ward_log(), deterministic=False)
    assert policy[:2].tolist() == [[0, 1], [0, 1]]
    assert asked == [True, False]


def test_a_model_may_predict_one_level_for_each_action_variable():
    model = SimpleNamespace(predict=lambda x: np.tile([1, 0], (len(x), 1)))
    policy = target_from_predict(model, np.zeros((6, 2)), drug_log())
    visited = np.unique(drug_log().state)
    assert policy[visited].tolist() == [[0, 0, 1, 0]] * len(visited)


@pytest.mark.parametrize(
    ("predict", "features", "message"),
    [
        (None, np.zeros((8, 1)), "SimpleNamespace has no predict"),
        (len, np.zeros((9, 1)), "features has shape (9, 1), expected 8 rows"),
        (len, 3.0, "features has shape (), expected 8 rows"),
        (len, [[np.nan]] * 8, "features of row 0 (episode 0, step 0) have a nan"),
        (lambda x: 1, np.zeros(8), "predict returned shape ()"),
        (lambda x: np.zeros(7), np.zeros(8), "predict returned shape (7,), expected (8,)"),
        (lambda x: np.zeros((8, 3)), np.zeros(8), "predict returned shape (8, 3)"),
        (lambda x: np.full(8, 2), np.zeros(8), "row 0 (episode 0, step 0): predicted action 2"),
        (lambda x: np.full(8, 0.5), np.zeros(8), "is 0.5, expected a whole number"),
    ],
)
def test_predictions_that_are_no_actions_are_refused(predict, features, message):
    model = SimpleNamespace(predict=predict)
    with pytest.raises(ValueError, match=re.escape(message)):
        target_from_predict(model, features, ward_log())


def test_a_target_from_elsewhere_can_be_audited():
    log = ward_log(outcomes=[DEATH, HOME])
    target = target_from_function(lambda state: 0 if state["state"] == "0" else 1, log)
    audit = run_audit(log, fit_mdp(log), target, flags=1, draws=1)
    assert len(audit.episodes) == len(log)


def test_an_unknown_column_is_refused():
    log = Episodes.from_arrays([0], [0], [1], offsets=[0, 1], states=2, actions=2)
    table = pd.DataFrame({"state": [0, 1], "action": [0, 1], "prob": [0.3, 1.0]})
    with pytest.raises(ValueError, match="an unknown column 'prob'"):
        target_from_table(table, log)


def test_a_column_of_an_unreadable_type_is_refused():
    table = pa.table({"state": [[0], [1], [2]], "action": [0, 1, 0]})
    with pytest.raises(ValueError, match="the target table: the column 'state' has the type list"):
        target_from_table(table, ward_log())

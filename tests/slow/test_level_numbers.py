"""Numbers behind levels: classifiers learn from the number, models know levels only."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.source import UNUSED, audit_into
from butfor.log.study import read_study
from butfor.log.write import write_toml
from butfor.models.backoff import make_cases
from butfor.models.learners import POINTS, fit_classifier, level_numbers, make_features
from butfor.replay.engine import fit_again

STUDY = {
    "columns": {"episode": "stay", "time": "hour", "outcome": "end"},
    "state": {
        "lactate": {"cuts": [3.0, 5.0], "number": True},
        "age": {"cuts": [60.0], "number": True, "static": True, "name": "years"},
    },
    "action": {"drug": {"levels": ["off", "on"]}},
    "outcome": {"died": {"reward": -1.0, "bad": True}, "home": {"reward": 1.0}},
}
ROWS = pd.DataFrame(
    [
        ("a", 0, 2.9, 71.5, "off", None),
        ("a", 1, 3.0, 71.5, "on", None),
        ("a", 2, 6.5, 71.5, None, "died"),
        ("b", 0, 5.5, 40.0, "on", None),
        ("b", 1, 4.5, 40.0, "off", "home"),
    ],
    columns=["stay", "hour", "lactate", "age", "drug", "end"],
)


def study_with(**changes):
    return STUDY | changes


def ward(episodes=400, seed=0):
    """Lactate falls with the drug; old patients with high lactate die."""
    rng = np.random.default_rng(seed)
    rows = []
    for stay in range(episodes):
        lactate, age = rng.uniform(1, 8), round(rng.uniform(30, 90), 1)
        for hour in range(4):
            drug = rng.random() < 0.5
            rows.append((stay, hour, round(lactate, 2), age, "on" if drug else "off", None))
            lactate = max(lactate + rng.normal(0.4 - 1.2 * drug, 0.5), 0.2)
        died = rng.random() < 1 / (1 + np.exp(9 - lactate - age / 15))
        rows.append((stay, 4, round(lactate, 2), age, None, "died" if died else "home"))
    return pd.DataFrame(rows, columns=ROWS.columns)


def test_levels_are_those_of_the_cuts_and_the_numbers_stay_beside_them():
    log = bf.read_episodes(ROWS, STUDY)
    plain = {k: {"cuts": v["cuts"], "name": v.get("name", k)} for k, v in STUDY["state"].items()}
    cut = bf.read_episodes(ROWS, study_with(state=plain))
    assert log.state.tolist() == cut.state.tolist()
    assert log.next_state.tolist() == cut.next_state.tolist()
    assert cut.numbers is None
    assert list(log.numbers) == ["lactate", "years"]
    # four transitions, then both final states, the second of which the log does not have
    np.testing.assert_array_equal(log.numbers["lactate"], [2.9, 3.0, 5.5, 4.5, 6.5, np.nan])
    assert log.following.tolist() == [1, 4, 3, 5]


def test_a_cell_that_is_filled_in_carries_its_number_forward():
    gap = ROWS.copy()
    gap.loc[1, "lactate"] = np.nan
    log = bf.read_episodes(gap, study_with(problems={"missing_state": "fill"}))
    assert log.numbers["lactate"].tolist()[:2] == [2.9, 2.9]
    assert log.codes(log.state)["lactate"].tolist()[:2] == [0, 0]
    with pytest.raises(ValueError, match="1 row has no 'lactate'"):
        bf.read_episodes(gap, STUDY)


def test_numbers_follow_the_episodes_that_are_taken():
    log = bf.read_episodes(ROWS, STUDY)
    assert log.select([1]).numbers["lactate"].tolist()[:2] == [5.5, 4.5]
    # after the cut, the row that follows describes the final state
    assert log.truncate(1).numbers["lactate"].tolist() == [2.9, 5.5, 3.0, 4.5]
    assert list(log.select([0]).hide("lactate").numbers) == ["years"]


def test_a_level_is_stood_for_by_quantiles_of_its_numbers():
    # of 0 … 6 the seven quantiles are 3/7, 9/7, … 39/7; nothing was logged with level 1
    level = np.array([0] * 7 + [2] * 2)
    logged = np.array([*range(7), 10.0, 10.0])
    points = level_numbers(level, logged, 3)
    low = (np.arange(POINTS) + 0.5) / POINTS * 6
    np.testing.assert_allclose(points, np.stack([low, (low + 10) / 2, np.full(7, 10.0)], axis=1))
    for place in range(POINTS - 1):
        other = level_numbers(level, logged, 3, place)
        np.testing.assert_allclose(np.sort(other[:, 0]), low)
        assert place == 0 or not np.allclose(other, points)


def test_features_are_logged_numbers_when_learning_and_those_of_levels_later():
    columns, sizes = np.array([[0, 1], [1, 0]]), np.array([2, 2])
    numbers = [np.array([2.5, 7.5]), None]
    of_levels = make_features(columns, sizes, numbers)
    assert of_levels.tolist() == [[2.5, 0, 1], [7.5, 1, 0]]
    logged = make_features(columns, sizes, numbers, [np.array([1.0, 9.0]), None])
    assert logged.tolist() == [[1, 0, 1], [9, 1, 0]]


def test_a_table_is_the_mean_over_the_numbers_of_a_level():
    # y is certain from x, which is even in 0 … 10, cut at 5: y is 1 above 7.5
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 4000)
    y = (x > 7.5).astype(int)
    cases = make_cases(("x",), [(x > 5).astype(int)], [2], y, 2, np.ones(4000), {"x": x})
    learned = fit_classifier(cases, DecisionTreeClassifier())
    assert learned.fitted.get_depth() == 1  # one cut of the number; two levels would not do
    # seven quantiles know a share to half a seventh; the least share of frequencies is .0001
    assert learned.table()[0, 1] < 1e-3
    assert abs(learned.table()[1, 1] - 0.5) < 1 / 14 + 1e-3


def test_a_model_with_numbers_is_exact_and_answers_like_any_other():
    log = bf.read_episodes(ward(), STUDY)
    model = bf.fit_factored(log, LogisticRegression(max_iter=1000))
    assert model.enumerable
    assert model.factor("years").source == "static"
    assert model.factor("lactate").table.shape == (3, 2, 2, 3)
    flat = bf.fit_factored(replace(log, numbers=None), LogisticRegression(max_iter=1000))
    assert not np.allclose(model.factor("lactate").table, flat.factor("lactate").table)
    behavior = bf.estimate_behavior(log)
    found = bf.Replay(log, model, behavior, behavior=behavior).outcomes()
    # the policy that was followed explains what happened: nothing would have changed
    np.testing.assert_allclose(found.expected_return, log.returns(), atol=1e-9)


def test_counts_do_not_use_numbers():
    log = bf.read_episodes(ward(100), STUDY)
    with_numbers, without = (bf.fit_factored(one) for one in (log, replace(log, numbers=None)))
    for mine, theirs in zip(with_numbers.factors, without.factors, strict=True):
        np.testing.assert_array_equal(mine.table, theirs.table)


def test_a_model_is_learned_again_in_the_same_way():
    log = bf.read_episodes(ward(), STUDY)
    parents = {"lactate": ["lactate", "action.drug"]}
    learner = {"lactate": LogisticRegression(max_iter=1000)}
    model = bf.fit_factored(log, learner, parents=parents)
    half = log.select(np.arange(200))
    again = fit_again(model, half)
    assert again.factor("lactate").source == "LogisticRegression"
    assert again.factor("lactate").parents == ("lactate", "action.drug")
    assert again.end.source == "counts"
    expected = bf.fit_factored(half, learner, parents=parents).factor("lactate").table
    np.testing.assert_array_equal(again.factor("lactate").table, expected)
    counted = fit_again(model, half, learner="counts")
    assert counted.factor("lactate").source == "counts"


def test_numbers_that_do_not_fit_the_log_are_refused():
    log = bf.read_episodes(ROWS, STUDY)
    with pytest.raises(ValueError, match="numbers: no state variable 'pulse'; there are 'lactate'"):
        log.with_numbers(pd.DataFrame({"pulse": np.ones(6)}))
    with pytest.raises(ValueError, match="numbers has 4 rows, expected 6"):
        log.with_numbers(pd.DataFrame({"lactate": np.ones(4)}))
    with pytest.raises(ValueError, match="row 0: 'lactate' is nan; give a finite number"):
        log.with_numbers(pd.DataFrame({"lactate": [np.nan, 1, 1, 1, 1, 1]}))
    with pytest.raises(ValueError, match="row 4: 'lactate' is inf"):  # a final state that is known
        log.with_numbers(pd.DataFrame({"lactate": [1, 1, 1, 1, np.inf, 1]}))
    assert log.with_numbers(pd.DataFrame({"lactate": [1, 1, 1, 1, 1, np.nan]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": {"drug": {"levels": ["a"], "number": True}}}, "number: true, but there are no"),
        ({"state": {"age": {"cuts": [60], "number": 3}}}, "number: 3: expected true or false"),
        (
            {"side": {"age": {"number": True}}},
            r"number: true, but no model sees a side column.*sta",
        ),
        ({"action": {"drug": {"cuts": [1], "number": True}}}, "number: no such key"),
    ],
)
def test_a_study_with_numbers_that_cannot_be_used_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_study(study_with(**changes))


@pytest.mark.parametrize("parent", ["age", "side.age"])
def test_a_side_column_as_a_parent_is_refused_with_the_remedy(parent):
    state = {"lactate": STUDY["state"]["lactate"]}
    log = bf.read_episodes(ROWS, study_with(state=state, side={"age": {"type": "number"}}))
    message = f"'lactate': '{parent}' is a side column.*\\[state.age\\] with cuts and number = true"
    with pytest.raises(ValueError, match=message):
        bf.fit_factored(log, LogisticRegression(), parents={"lactate": ["lactate", parent]})


def audit_with(tmp_path, learner, **settings):
    ward(60).to_csv(tmp_path / "log.csv", index=False)
    study = study_with(model={"kind": "factored", "learner": learner})
    (tmp_path / "study.toml").write_text(write_toml(study))
    few = {"flags": 2, "review_size": 4, "draws": 1, "models": 0, "intervals": 2}
    chosen = AuditSettings(**few, rehearsal=False, **settings)
    return audit_into(tmp_path / "log.csv", tmp_path / "study.toml", tmp_path / "out", chosen)


def test_an_audit_says_that_counts_had_no_use_for_numbers(tmp_path):
    assert UNUSED in audit_with(tmp_path, "counts").meta.warnings


def test_an_audit_learns_by_a_classifier_from_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("butfor.evaluate.crossfit.SPLITS_SLOW", 1)  # not 3: each learns twice
    audit = audit_with(tmp_path, "logistic")
    assert UNUSED not in audit.meta.warnings
    assert audit.model.factor("lactate").source == "Pipeline"


def test_a_summary_refuses_classifiers_of_numbers_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"lactate number: summary detail .* use --detail full"):
        audit_with(tmp_path, "logistic", detail="summary")

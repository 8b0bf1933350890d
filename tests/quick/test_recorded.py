"""What readers see behind levels: when rows were recorded, their numbers, what was filled in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.log.read import read_log
from butfor.log.study import read_study
from tests.audits import unseal
from tests.quick.test_grid import IRREGULAR, STUDY, study, table
from tests.ward import write_ward


def as_text(frame: pd.DataFrame, column: str) -> list[str]:
    return frame[column].astype(str).tolist()


def test_numbers_of_the_grid_are_kept_and_those_filled_in_are_marked() -> None:
    # steps from hour 10, every 4: the mean of 50 and 110; 90; no rows; 70; the final state
    log = read_log(IRREGULAR, study(time={"take": {"pulse": "mean", "dose": "sum"}})).episodes
    assert log.recorded["time"].tolist() == [10, 14, 18, 22, 26]
    assert log.recorded["raw.pulse"].tolist() == [80, 90, 90, 70, 65]
    assert log.recorded["filled.pulse"].tolist() == [False, False, True, False, False]
    # a step without a record of the dose had none; the final state has no action
    np.testing.assert_array_equal(log.recorded["raw.dose"], [4, 0, 0, 1, np.nan])
    assert log.recorded["filled.dose"].tolist() == [False, True, True, False, False]


def test_dates_are_kept_as_logged(tmp_path) -> None:
    hours = pd.to_timedelta(IRREGULAR["hour"], "h")
    dated = IRREGULAR.assign(hour=pd.Timestamp("2024-05-31") + hours)
    dated.to_csv(tmp_path / "log.csv", index=False)
    dated.to_parquet(tmp_path / "log.parquet")
    moments = ["2024-05-31 10:00:00", "2024-05-31 14:00:00", "2024-05-31 18:00:00"]
    for source in (dated, tmp_path / "log.csv", tmp_path / "log.parquet"):
        found = read_log(source, study(time={"every": "4h"})).episodes.recorded
        assert as_text(found, "time")[:3] == moments
    zoned = dated.assign(hour=dated["hour"].dt.tz_localize("Europe/Berlin"))
    found = read_log(zoned, study(time={"every": "4h"})).episodes.recorded
    assert as_text(found, "time")[0] == "2024-05-31 10:00:00+02:00"
    lasted = IRREGULAR.assign(hour=hours)
    found = read_log(lasted, study(time={"every": "4h"})).episodes.recorded
    assert found["time"].tolist()[:2] == [pd.Timedelta("10h"), pd.Timedelta("14h")]


VISITS = table(
    """stay,day,bilirubin,albumin,sex,drug,end
    a,0,1.25,,f,no,
    a,12,,3.5,f,yes,
    a,30,2.5,3.25,f,no,died
    b,0,0.5,4,m,no,
    b,9,0.75,,m,,"""
)
CLUSTERS = {
    "columns": {"episode": "stay", "time": "day", "outcome": "end"},
    "cluster": {"columns": ["bilirubin", "albumin"], "count": 2},
    "action": {"drug": {"levels": ["no", "yes"]}},
    "missing": {"albumin": {"fill": 4.0}},
    "side": {"bilirubin": {"type": "number", "name": "Bilirubin (mg/dl)"}, "sex": {}, "drug": {}},
    "outcome": {"died": {"reward": -1.0}},
    "problems": {"missing_state": "fill", "no_outcome": "keep"},
}


def test_clustered_columns_are_kept_under_the_name_of_their_side_column() -> None:
    log = read_log(VISITS, CLUSTERS).episodes
    # three decisions of a, one of b, then the final states, of which only b's is logged
    found = log.recorded
    assert found["time"].tolist()[:4] == [0, 12, 30, 0]
    assert found["raw.Bilirubin (mg/dl)"].tolist()[:4] == [1.25, 1.25, 2.5, 0.5]
    assert found["filled.Bilirubin (mg/dl)"].tolist() == [False, True, *[False] * 4]
    assert found["raw.albumin"].tolist()[:4] == [4, 3.5, 3.25, 4]
    assert found["filled.albumin"].tolist() == [True, False, False, False, False, True]
    last = found.iloc[4:]
    assert last["time"].isna().tolist() == [True, False]
    assert last["raw.Bilirubin (mg/dl)"].tolist()[1] == 0.75
    # what the model was given is not "never given", even if it is listed as side information
    assert log.side_given == ("Bilirubin (mg/dl)", "drug")


def test_what_is_recorded_follows_selections_and_cuts() -> None:
    log = read_log(VISITS, CLUSTERS).episodes
    other = log.select([1])
    assert other.recorded["time"].tolist() == [0, 9]
    short = log.cut([1, 1])
    assert short.recorded["time"].tolist() == [0, 0, 12, 9]


def test_a_hidden_variable_is_not_shown_as_part_of_the_state() -> None:
    cut = {**STUDY["state"], "age": {"cuts": [50]}}
    frame = IRREGULAR.assign(age=71)
    log = read_log(frame, {**STUDY, "state": cut}).episodes
    assert {"raw.age", "filled.age"} <= set(log.recorded)
    left = set(log.hide("age").recorded)
    assert left == {"time", "raw.pulse", "filled.pulse", "raw.dose", "filled.dose"}


def test_a_treatment_that_the_state_records_is_shown_once() -> None:
    frame = IRREGULAR.assign(running=[0, 0, 2, 2, 2, 1])
    state = {"running": {"cuts": [1, 3], "names": ["none", "some", "much"], "name": "dose"}}
    log = read_log(frame, {**STUDY, "state": {**STUDY["state"], **state}}).episodes
    np.testing.assert_array_equal(log.recorded["raw.dose"], [2, 2, 2, 2, 1])


def test_a_variable_and_a_clustered_column_must_not_share_a_name() -> None:
    twice = {"state": {"sex": {"levels": ["f", "m"], "name": "albumin"}}}
    with pytest.raises(ValueError, match="two variables are called 'albumin'"):
        read_study({**CLUSTERS, **twice})


def test_logs_without_times_and_numbers_have_nothing_recorded() -> None:
    levels = {
        "columns": {"episode": "stay", "outcome": "end"},
        "state": {"sex": {"levels": ["f", "m"]}},
        "action": {"drug": {"levels": ["no", "yes"]}},
        "outcome": {"died": {"reward": -1.0}},
        "problems": {"no_outcome": "keep"},
    }
    assert read_log(VISITS, levels).episodes.recorded is None


def test_steps_of_an_audit_have_it_in_memory_and_in_shards(tmp_path) -> None:
    log, file = write_ward(tmp_path)
    audit = audit_log(log, file, models=0, rehearsal=False)
    audit.save(tmp_path / "saved")
    audit_shards(tmp_path / "parts", file, tmp_path / "summary", AuditSettings(rehearsal=False))
    assert audit.meta.variables.side_given == ("lactate",)
    lactate = "Lactate (mmol/l)"
    columns = ["id", "step", "time", f"raw.{lactate}", "raw.age", f"filled.{lactate}", "side.beds"]
    known = audit.steps[columns]
    assert known[f"filled.{lactate}"].sum() > 20
    assert str(known["time"].dtype) == "datetime64[us]"
    for folder in ("saved", "summary"):
        found = Audit.load(tmp_path / folder)
        assert found.meta.variables == audit.meta.variables
        pd.testing.assert_frame_equal(found.steps[columns], known, check_dtype=False)
        pd.testing.assert_frame_equal(found.log().recorded, bf.read_episodes(log, file).recorded)


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("time", "soon", "the column 'time' has the type"),
        ("raw.age", "old", "the column 'raw.age' has the type"),
        ("filled.age", 1, "the column 'filled.age' has the type"),
        ("filled.weight", True, "has a column 'filled.weight', but no values of it"),
    ],
)
def test_a_damaged_record_is_refused(column, values, problem, saved) -> None:
    path = saved / "steps.parquet"
    whole = pd.read_parquet(path)
    whole.assign(**{column: values}).to_parquet(path)
    try:
        with pytest.raises(ValueError, match=problem):
            Audit.load(saved)
    finally:
        whole.to_parquet(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    audit = audit_log(*write_ward(folder), models=0, rehearsal=False)
    return unseal(audit.save(folder / "audit"))

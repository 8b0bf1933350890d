"""Audits of events: the same as those of the events as a table, and however they are cut."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from butfor.audit.audit import Audit
from butfor.audit.settings import SUMMARY, AuditSettings
from butfor.audit.source import audit_into
from butfor.cli.main import app
from butfor.log.read import read_log
from tests.meds_data import STUDY, write_data
from tests.shard_logs import check_same

FEW = AuditSettings(flags=5, review_size=12, intervals=10, models=0, rehearsal=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meds") / "data set"
    write_data(folder, subjects=160, shards=3)
    return folder


def as_csv(folder, path):
    """Write the events as a table: one row per event, and the end of each stay's last step."""
    files = sorted((folder / "data").rglob("*.parquet"))
    events = pd.concat([pq.read_table(file).to_pandas() for file in files])
    gender = events[events.code.str.startswith("GENDER")].set_index("subject_id").code.str[-1]
    starts = events[events.code.str.startswith("ICU_ADMISSION")][["subject_id", "time"]]
    starts["stay"] = (
        starts.subject_id.astype(str)
        + "-"
        + (starts.groupby("subject_id").cumcount() + 1).astype(str)
    )
    timed = pd.merge_asof(
        events.dropna(subset="time").sort_values("time", kind="stable"),
        starts.assign(start=starts.time).sort_values("time"),
        on="time",
        by="subject_id",
    ).dropna(subset="stay")
    names = {
        "VITAL//HEART_RATE": "heart_rate",
        "LAB//LACTATE//mmol/L": "lactate",
        "INFUSION//NOREPINEPHRINE": "norepinephrine",
    }
    rows = timed[["stay", "start", "time", "subject_id"]].copy()
    for code, name in names.items():
        number = timed.numeric_value.map(lambda one: f"{one:.4f}")
        rows[name] = number.where(timed.code == code)
    died = timed[timed.code == "MEDS_DEATH"].stay
    left = timed.code.str.startswith("ICU_DISCHARGE")
    rows["outcome"] = np.where(timed.stay.isin(died), "died", "discharged")
    rows["outcome"] = rows.outcome.where(left)
    step = pd.Timedelta("4h")
    whole = rows.start - ((rows.start - rows.time) // step) * step  # the end of the step
    rows["time"] = rows.time.where(~left, whole)
    rows["gender"] = rows.subject_id.map(gender)
    kept = timed.code.isin(names) | left | timed.code.str.startswith("ICU_ADMISSION")
    order = rows.assign(last=left)[kept].sort_values(["stay", "time", "last"], kind="stable")
    order.drop(columns=["last", "start"]).to_csv(path, index=False)


def test_the_same_events_as_a_table_give_the_same_audit(data, tmp_path):
    as_csv(data, tmp_path / "log.csv")
    study = STUDY.read_text()
    kept = study[study.index("[time]") :]
    columns = ['episode = "stay"', 'subject = "subject_id"', 'time = "time"', 'outcome = "outcome"']
    (tmp_path / "study.toml").write_text("\n".join(["[columns]", *columns, "", kept]))
    settings = replace(FEW, models=5, seed=1)
    ours = audit_into(data, STUDY, tmp_path / "ours", settings)
    theirs = audit_into(
        tmp_path / "log.csv", tmp_path / "study.toml", tmp_path / "theirs", settings
    )
    check_same(tmp_path / "ours", tmp_path / "theirs")
    assert ours.meta.digest == theirs.meta.digest


def test_shards_do_not_matter(data, tmp_path):
    whole = tmp_path / "whole"
    (whole / "data").mkdir(parents=True)
    files = sorted((data / "data").rglob("*.parquet"))
    pq.write_table(pa.concat_tables(map(pq.read_table, files)), whole / "data" / "all.parquet")
    settings = replace(FEW, detail=SUMMARY, seed=1)
    for source in (data, whole):
        audit_into(source, STUDY, tmp_path / f"audit of {source.name}", settings)
    check_same(tmp_path / "audit of data set", tmp_path / "audit of whole")
    assert read_log(whole, STUDY).done == read_log(data, STUDY).done


def test_cross_fitting_by_splits_is_the_same_in_shards(data, tmp_path):
    study = STUDY.read_text().replace("[source]\n", '[source]\nfirst_half = ["train"]\n')
    (tmp_path / "study.toml").write_text(study + '\n[model]\nkind = "tabular"\n')
    values = []
    for detail in ("full", "summary"):
        settings = replace(FEW, detail=detail)
        audit = audit_into(data, tmp_path / "study.toml", tmp_path / detail, settings)
        values.append(audit.estimates.set_index("estimator").value)
    name = "MB (cross-fitted)"
    assert values[0][name] == pytest.approx(values[1][name], abs=1e-12)


def test_the_commands_lead_from_a_data_set_to_an_audit_without_an_edit(data, tmp_path):
    study, out = tmp_path / "study.toml", tmp_path / "audit"
    drafted = CliRunner().invoke(app, ["init", str(data), "--out", str(study)])
    assert drafted.exit_code == 0, drafted.output
    assert "INFUSION//NOREPINEPHRINE" in drafted.output
    command = ["audit", str(data), "--study", str(study), "--out", str(out), "--models", "0"]
    command += ["--flags", "5", "--intervals", "10", "--no-rehearsal"]
    audited = CliRunner().invoke(app, [*command, "--time-step", "8h"])
    assert audited.exit_code == 0, audited.output
    admissions = [
        pq.read_table(path, filters=[("code", "=", "ICU_ADMISSION//MEDICAL")]).num_rows
        for path in (data / "data").rglob("*.parquet")
    ]
    audit = Audit.load(out)
    assert len(audit.episodes) == sum(admissions)
    assert audit.episodes.length.max() == 6  # 48 hours

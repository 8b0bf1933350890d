"""Audit folders of earlier versions are read."""

from pathlib import Path

import pandas as pd

import butfor as bf
from butfor.audit.audit import Audit

FOLDER = Path(__file__).parents[1] / "data" / "audit-0.1.0"


def test_an_audit_of_version_0_1_0_is_read_and_saved_again(tmp_path):
    audit = Audit.load(FOLDER)
    assert audit.meta.butfor == "0.1.0"
    assert len(audit.episodes) == audit.meta.counts.episodes == 12
    assert len(audit.flagged) == 3
    assert audit.meta.design is None
    assert (audit.episodes["stratum"] == -1).all()
    assert audit.episodes["probability"].isna().all()
    again = Audit.load(audit.save(tmp_path / "again"))
    assert again.meta == audit.meta
    pd.testing.assert_frame_equal(again.episodes, audit.episodes, check_dtype=False)


def test_its_question_can_be_asked_again():
    audit = Audit.load(FOLDER)
    again = bf.Replay(audit.log(), audit.model, audit.target, behavior=audit.behavior).outcomes()
    pd.testing.assert_series_equal(
        pd.Series(again.expected_return, name="expected_return"),
        audit.episodes["expected_return"],
        atol=1e-12,
    )


def test_a_report_is_written_from_it(tmp_path):
    path = bf.write_report(Audit.load(FOLDER), tmp_path / "report.html")
    assert "discharged" in Path(path).read_text()

"""Logs as strangers bring them, audited with the study file as `butfor init` drafts it."""

import pytest

from butfor.audit.source import audit_log
from butfor.log.draft import draft
from butfor.log.study import read_study
from tests import found_logs

LOGS = {
    "codes": lambda: found_logs.sepsis_codes(40, states=30, actions=8),
    "labs": lambda: found_logs.many_labs(40, labs=4, telling=("lab_01", "lab_02", "lab_03")),
    "bandit": lambda: found_logs.bandit(200),
    "permits": lambda: found_logs.permits(40),
    "lake": lambda: found_logs.frozen_lake(150),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_draft_is_audited_as_it_is(name, tmp_path):
    log = LOGS[name]()
    path = tmp_path / "study.toml"
    path.write_text(draft(log).text, encoding="utf-8")
    audit = audit_log(log, path, flags=1, draws=2, models=2, intervals=5)
    assert audit.meta.counts.episodes == log[read_study(path).columns.episode].nunique()
    assert audit.estimates["value"].notna().any()

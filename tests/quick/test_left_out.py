"""No episode vanishes unseen while a log is read: limits, what is told, and what keeps them."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy.stats import fisher_exact

import butfor as bf
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.cli.summary import print_audit
from butfor.log.draft import draft
from butfor.log.left_out import _chance, check_left_out
from butfor.log.read import read_log
from butfor.present.report.content import header
from butfor.present.stays import Stays
from tests.audits import trade_audit

STUDY = {
    "columns": {"episode": "id", "time": "tstart", "reward": "gain"},
    "state": {"dose": {"levels": ["0", "1"]}},
    "action": {"treat": {"levels": ["placebo", "drug"]}},
}
DROP = {"no_transition": "drop", "lost_reward": "drop"}
TOML = """
[columns]
episode = "id"
time = "tstart"
reward = "gain"
[state.dose]
levels = ["0", "1"]
[action.treat]
levels = ["placebo", "drug"]
[problems]
"""


def trial(patients=120, seed=0):
    """A trial in the start–stop format: a new row begins with each infection, the last is open."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        infections = int(rng.choice([0, 0, 0, 1, 2, 3]))
        starts = np.append(0, np.sort(rng.choice(np.arange(10, 300), infections, replace=False)))
        for number, start in enumerate(starts.tolist()):
            gain = -1 if number < infections else 0
            arm, dose = ("drug", "placebo")[patient % 2], int(rng.random() < 0.5)
            rows.append((patient, start, dose, arm, gain))
    return pd.DataFrame(rows, columns=["id", "tstart", "dose", "treat", "gain"])


def test_a_trial_in_the_start_stop_format_is_refused_or_kept_whole():
    log = trial()
    alone = int((log.groupby("id").size() == 1).sum())
    with pytest.raises(ValueError, match="would be left out") as caught:
        read_log(log, STUDY | {"problems": DROP})
    message = str(caught.value)
    assert f"{alone} of 120 episodes" in message
    assert f"no_transition: episodes dropped: {alone}" in message
    assert f"left out: {alone} episodes of 1.0 rows" in message
    assert f"kept: {120 - alone} episodes of " in message
    assert 'no_transition = "keep"' in message
    kept = read_log(log, STUDY | {"problems": {"no_transition": "keep"}})
    assert len(kept.episodes) == 120
    assert len(kept.episodes.state) == len(log)  # every interval is a decision
    assert kept.episodes.returns().mean() == log["gain"].sum() / 120
    assert {kept.episodes.outcome_names[end] for end in kept.episodes.outcome} == {
        "lost to follow-up"
    }
    assert kept.done == {"no_transition: episodes kept as lost to follow-up": 120}
    same = bf.Episodes.from_frame(
        log, episode="id", time="tstart", state="dose", action="treat", reward="gain",
        outcome=None, actions=["placebo", "drug"], problems={"no_transition": "keep"},
    )  # fmt: skip
    np.testing.assert_array_equal(same.returns(), kept.episodes.returns())


def test_a_log_of_kept_decisions_is_written_and_read_back(tmp_path):
    log = read_log(trial(), STUDY | {"problems": {"no_transition": "keep"}}).episodes
    bf.write_episodes(log, tmp_path / "log.csv", tmp_path / "study.toml")
    again = bf.read_episodes(tmp_path / "log.csv", tmp_path / "study.toml")
    for name in ("state", "action", "next_state", "reward", "outcome"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))


def test_a_limit_in_the_study_file_overrules_the_usual_one():
    log = trial()
    alone = int((log.groupby("id").size() == 1).sum())
    found = read_log(log, STUDY | {"problems": DROP | {"drop_at_most": 0.9}})
    assert len(found.episodes) == 120 - alone
    assert found.done["no_transition: episodes dropped"] == alone
    with pytest.raises(ValueError, match="more than 10%"):
        read_log(log, STUDY | {"problems": DROP | {"drop_at_most": 0.1}})
    with pytest.raises(ValueError, match=r"drop_at_most: 1\.5: expected a number of at most 1"):
        read_log(log, STUDY | {"problems": {"drop_at_most": 1.5}})


def wards(alike):
    """200 stays, 4 of them with a missing cell: those who died, or as many of each outcome."""
    rows = []
    for stay in range(200):
        died = stay % 10 == 0
        wrong = stay in ((5, 15, 20, 25) if alike else (10, 20, 30, 40))
        rows += [(stay, 0, "1", "none", None), (stay, 1, None if wrong else "0", "none", None)]
        rows += [(stay, 2, "1", None, "died" if died else "home")]
    return pd.DataFrame(rows, columns=["stay", "hour", "dose", "treat", "end"])


@pytest.mark.parametrize("alike", [True, False])
def test_a_few_may_be_left_out_unless_they_differ_from_the_others(alike):
    study = {
        "columns": {"episode": "stay", "time": "hour", "outcome": "end"},
        "state": {"dose": {"levels": ["0", "1"]}},
        "action": {"treat": {"levels": ["none"]}},
        "outcome": {"died": {"reward": -1}, "home": {"reward": 1}},
        "problems": {"missing_state": "drop"},
    }
    if alike:
        assert len(read_log(wards(alike), study).episodes) == 196
        return
    with pytest.raises(ValueError, match=r"4 of 200 .*differ from the others by more") as caught:
        read_log(wards(alike), study)
    assert "left out: 4 episodes of 3.0 rows on average (died 4" in str(caught.value)


def test_the_test_of_a_difference_is_that_of_fisher():
    rng = np.random.default_rng(1)
    for _ in range(30):
        kept, left = (int(n) for n in rng.integers(2, 60, 2))
        both = [int(rng.integers(0, kept + 1)), int(rng.integers(0, left + 1))]
        table = [both, [kept - both[0], left - both[1]]]
        assert _chance(both, kept, left) == pytest.approx(fisher_exact(table).pvalue, abs=1e-9)


def test_parts_are_judged_together():
    """Two parts lose 4 % and 10 %: together 5.5 %, which is refused."""
    parts = [{} for _ in range(2)]
    for part, (kept, left) in zip(parts, ((72, 3), (18, 2)), strict=True):
        for fate, number in (("kept", kept), ("left out", left)):
            for key in ("all\tepisodes", "all\trows", "outcome\tno outcome", "rows\tup to 1"):
                part[f"recorded\t{key}\t{fate}"] = number
    total = {key: parts[0][key] + parts[1][key] for key in parts[0]}
    assert check_left_out(parts[0], None, "log") == {}
    with pytest.raises(ValueError, match=r"5 of 95 episodes \(5.3%\)"):
        check_left_out(total, None, "log")


def test_outcomes_may_have_tabs_in_their_names_and_rewards_may_cancel_out():
    log = trial()
    log["gain"] = np.where(np.arange(len(log)) % 2, 1e7, -1e7) + 1e-3
    log["end"] = np.where(log.duplicated("id", keep="last"), None, "moved\taway")
    study = STUDY | {
        "columns": STUDY["columns"] | {"outcome": "end"},
        "outcome": {"moved\taway": {"reward": 0}},
        "time": {"every": 50},
        "missing": {"treat": {"carry": True}},
    }
    assert len(read_log(log, study).episodes) == 120
    assert len(read_log(log, study | {"problems": {"missing_state": "drop"}}).episodes) == 120


@pytest.fixture
def files(tmp_path):
    log = trial()
    (tmp_path / "log").mkdir()
    for part, rows in enumerate((log["id"] < 60, log["id"] >= 60)):
        log[rows].to_csv(tmp_path / "log" / f"{part}.csv", index=False)
    return tmp_path


def test_logs_in_shards_are_refused_alike(files):
    settings = AuditSettings(flags=2, review_size=2, intervals=5, rehearsal=False, models=0)
    (files / "study.toml").write_text(
        TOML + "".join(f'{kind} = "{settlement}"\n' for kind, settlement in DROP.items())
    )
    with pytest.raises(ValueError, match=r"of 120 episodes .*would be left out"):
        audit_shards(files / "log", files / "study.toml", files / "refused", settings)
    (files / "study.toml").write_text(TOML + 'no_transition = "keep"\n')
    audit_shards(files / "log", files / "study.toml", files / "audit", settings)
    audit = bf.Audit.load(files / "audit")
    observed = audit.estimates.set_index("estimator").loc["Observed", "value"]
    assert audit.meta.counts.episodes == 120
    assert observed == pytest.approx(trial()["gain"].sum() / 120)
    assert audit.meta.problems == {"no_transition: episodes kept as lost to follow-up": 120}
    assert "lost to follow-up" not in audit.conclusion.sentence  # all are: no result of a policy
    assert "average return" in audit.conclusion.sentence


def test_what_was_left_out_stands_on_the_first_screens():
    audit = trade_audit()
    done = {"no_transition: episodes dropped": 3, "lost_reward: rows dropped": 1, "gaps: x": 2}
    audit = replace(audit, meta=audit.meta.model_copy(update={"problems": done}))
    total = audit.meta.counts.episodes + 3
    for noun_free in (
        "3 of ",
        f"{total}",
        "Left out while reading the log: 3 of",
        "no_transition 3",
    ):
        file = io.StringIO()
        print_audit(Console(width=300, file=file), audit)
        assert noun_free in file.getvalue()
        assert noun_free in header(Stays(audit))["first"][0]
    assert "what it earned: 1 last decision." in header(Stays(audit))["first"][0]


def test_a_draft_keeps_episodes_that_would_vanish(tmp_path):
    log = trial().rename(columns={"dose": "lactate"}).drop(columns="gain")
    log["lactate"] = np.random.default_rng(2).gamma(2, size=len(log)).round(2)
    last = ~log.duplicated("id", keep="last")
    log["end"] = np.where(last & (log["id"] < 60), np.where(log["id"] < 20, "died", "home"), "")
    log.to_csv(tmp_path / "log.csv", index=False)
    drafted = draft(tmp_path / "log.csv")
    assert 'no_transition = "keep"' in drafted.text
    assert drafted.undecided == ""

"""`butfor init` on logs as strangers bring them: what it takes each column for, and why."""

import io
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

import butfor as bf
from butfor.cli.main import app
from butfor.cli.summary import print_audit
from butfor.log import sources
from butfor.log.draft import draft
from butfor.log.guess.states import entropy, mutual_information
from butfor.log.guess.words import good_or_bad, meaning, parts
from butfor.log.study import read_study
from butfor.log.write import write_toml
from tests import found_logs


def roles_of(drafted):
    return {finding.column: finding.role for finding in drafted.findings}


def why(drafted, column):
    return next(finding.why for finding in drafted.findings if finding.column == column)


def content_of(drafted):
    return tomllib.loads(drafted.text)


def test_integer_codes_are_ready_made_states_and_actions():
    log = found_logs.sepsis_codes()
    drafted = draft(log)
    columns = content_of(drafted)["columns"]
    assert columns["state"] == "state"
    assert columns["action"] == "action"
    assert columns["reward"] == "reward"
    assert roles_of(drafted)["Unnamed: 0"] == "left out"
    assert drafted.undecided == ""
    episodes = bf.read_episodes(log, content_of(drafted))
    assert episodes.n_states > 600
    assert episodes.n_actions == log["action"].max() + 1
    assert episodes.reward.sum() == log["reward"].sum()
    assert len(episodes.state) == len(log)


def test_codes_are_recognized_without_a_name_and_amounts_are_not():
    log = found_logs.sepsis_codes().rename(columns={"state": "x"})
    assert content_of(draft(log))["columns"]["state"] == "x"
    unnamed = content_of(draft(log.rename(columns={"action": "y"})))["columns"]
    assert (unnamed["state"], unnamed["action"]) == ("x", "y")
    # a count that drifts by one from row to row is an amount, though it has as many values
    log["x"] = 300 + log.groupby("episode")["x"].transform(
        lambda x: (
            np.random.default_rng(x.iloc[0]).integers(-9, 10, len(x)).cumsum() + x.iloc[0] % 300
        )
    )
    log["x"] -= log["x"].min()
    drafted = content_of(draft(log))
    assert "state" not in drafted["columns"]
    assert "cuts" in drafted["state"]["x"]


def test_the_columns_that_tell_most_are_chosen_out_of_forty_five():
    log = found_logs.many_labs()
    drafted = draft(log)
    content = content_of(drafted)
    assert {"lab_07", "lab_31", "lab_44"} <= set(content["state"])
    assert content["model"]["kind"] == "factored"
    assert content["action"]["vasopressor_dose"]["names"] == ["none", "low", "high"]
    assert content["outcome"]["1"] == {
        "name": "hospital_expire_flag", "reward": -1.0, "bad": True
    }  # fmt: skip
    assert content["outcome"]["0"]["reward"] == 1.0
    assert "too many states" in why(drafted, "lab_00")
    assert drafted.undecided == ""


def test_the_clusters_that_are_offered_can_be_used():
    log = found_logs.many_labs(stays=40)
    drafted = draft(log)
    lines = [line.removeprefix("# ") for line in drafted.text.splitlines()]
    start = lines.index("[cluster]")
    offered = tomllib.loads("\n".join(lines[start : start + 3]))
    content = content_of(drafted)
    for section in ("state", "model", "side"):
        del content[section]
    assert len(offered["cluster"]["columns"]) == 45
    study = read_study(content | offered)
    assert study.cluster.count == 6


def test_follow_up_looks_into_the_future_and_codes_of_outcomes_are_not_guessed():
    log = found_logs.liver_trial()
    drafted = draft(log)
    assert roles_of(drafted) == {
        "rownames": "left out",
        "id": "episode",
        "futime": "left out",
        "status": "outcome",
        "trt": "action",
        "age": "state",
        "sex": "state",
        "day": "time",
        "edema": "state",
        "bili": "state",
        "albumin": "state",
    }
    # with a time of follow-up, 0 is the code of those who were lost from sight
    assert content_of(drafted)["problems"]["no_outcome"] == "keep"
    assert "'status' = '0' count as cut short" in drafted.text
    assert "reward" not in content_of(drafted)["outcome"]["2"]
    assert "[outcome.2] reward: missing" in drafted.undecided
    with pytest.raises(ValueError, match="reward: missing"):
        read_study(content_of(drafted))
    # one edit, and the log is read
    edited = content_of(drafted) | {"outcome": {str(i): {"reward": -i / 2} for i in (1, 2)}}
    episodes = bf.read_episodes(log, edited)
    status = log.groupby("id")["status"].first()
    assert [(episodes.outcome == place).sum() for place in (0, 1)] == [
        (status == 1).sum(), (status == 2).sum()
    ]  # fmt: skip


def test_follow_up_is_recognized_under_any_name_and_age_is_not_taken_for_it():
    log = found_logs.liver_trial().rename(columns={"futime": "x"})
    drafted = draft(log)
    assert "correlated with" in why(drafted, "x")
    assert roles_of(drafted)["age"] == "state"
    # a number that counts down to the end, and a copy of the outcome
    log["y"] = log.groupby("id")["day"].transform("max") - log["day"]
    log["z"] = np.where(log["status"] == 0, "p", np.where(log["status"] == 1, "q", "r"))
    drafted = draft(log)
    assert "counts down" in why(drafted, "y")
    assert "tells 'status'" in why(drafted, "z")


def test_each_row_of_a_bandit_log_is_an_episode():
    log = found_logs.bandit()
    drafted = draft(log)
    columns = content_of(drafted)["columns"]
    assert columns["episode"] == "Unnamed: 0"
    assert columns["action"] == "item_id"
    assert columns["behavior_probability"] == "propensity_score"
    assert content_of(drafted)["model"] == {"kind": "tabular"}
    assert content_of(drafted)["outcome"] == {
        "0": {"name": "not click", "reward": 0.0},
        "1": {"name": "click", "reward": 1.0},
    }
    episodes = bf.read_episodes(log, content_of(drafted))
    assert len(episodes) == len(log)
    assert episodes.reward.sum() == log["click"].sum()


def test_a_bandit_log_without_a_number_of_rows_is_told_by_its_times():
    log = found_logs.bandit().drop(columns="Unnamed: 0")
    assert content_of(draft(log))["columns"]["episode"] == "timestamp"


def test_a_number_as_reward_of_each_row_needs_an_outcome_besides():
    log = found_logs.bandit().rename(columns={"click": "reward"})
    log["reward"] = np.random.default_rng(0).normal(size=len(log))
    assert "add a column with the same word in every row" in draft(log).undecided
    log["end"] = "done"
    drafted = draft(log)
    assert drafted.undecided == ""
    assert bf.read_episodes(log, content_of(drafted)).reward.sum() == pytest.approx(
        log["reward"].sum()
    )


def test_dates_of_admission_are_shown_and_dates_of_discharge_are_not():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    admission = pd.Timestamp("2150-01-01") + pd.to_timedelta(100 * log["stay_id"], "h")
    lasts = log.groupby("stay_id")["hour"].transform("max")
    log["hour"] = admission + pd.to_timedelta(log["hour"], "h")
    log["begin"] = admission
    log["left"] = admission + pd.to_timedelta(lasts + 2, "h")
    log["subject_id"] = 7 * log["stay_id"] + 1000
    drafted = draft(log)
    assert roles_of(drafted)["begin"] == "side"
    assert "a date after the last row" in why(drafted, "left")
    assert roles_of(drafted)["subject_id"] == "left out"
    assert content_of(drafted)["columns"]["time_step"] == "4h"


def test_an_outcome_that_turns_yes_on_the_last_row():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    last = ~log["stay_id"].duplicated(keep="last")
    log["died"] = (log.pop("hospital_expire_flag").astype(bool) & last).astype(int)
    drafted = draft(log)
    assert content_of(drafted)["outcome"] == {
        "0": {"name": "not died", "reward": 1.0},
        "1": {"name": "died", "reward": -1.0, "bad": True},
    }
    assert "lost from sight" in drafted.text
    episodes = bf.read_episodes(log, content_of(drafted))
    assert (episodes.outcome == 1).sum() == log["died"].sum()
    assert (episodes.outcome == 0).sum() == 60 - log["died"].sum()
    # a name that says nothing may mark any event, and those without it may have been lost
    renamed = draft(log.rename(columns={"died": "event"}))
    assert list(content_of(renamed)["outcome"]) == ["1"]


def test_the_amount_behind_a_level_of_treatment_is_left_out():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    log["vaso_level"] = np.digitize(log["vasopressor_dose"], [0.01, 1])
    drafted = draft(log)
    assert list(content_of(drafted)["action"]) == ["vaso_level"]
    assert why(drafted, "vasopressor_dose") == "the amount behind the action vaso_level"


def test_an_unsorted_log_is_sorted():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    content = content_of(draft(log.sample(frac=1, random_state=0)))
    assert content["problems"] == {"order": "sort"}
    assert len(bf.read_episodes(log, content)) == 60


def test_activities_of_permit_cases_are_actions():
    log = found_logs.permits()
    drafted = draft(log)
    assert roles_of(drafted) == {
        "id": "left out",
        "case:concept:name": "episode",
        "concept:name": "action",
        "time:timestamp": "time",
        "org:resource": "state",
        "case:Amount": "state",
        "org:group": "left out",
        "case:result": "outcome",
    }
    rewards = {value: one["reward"] for value, one in content_of(drafted)["outcome"].items()}
    assert rewards == {"granted": 1.0, "rejected": -1.0}
    assert drafted.undecided == ""


def test_rows_that_share_a_time_are_read_in_the_order_of_the_log():
    log = found_logs.permits()
    log["time:timestamp"] = log["time:timestamp"].dt.floor("30D")
    drafted = draft(log)
    assert "time" not in content_of(drafted)["columns"]
    assert roles_of(drafted)["time:timestamp"] == "side"
    assert drafted.undecided == ""


def test_the_flags_and_the_next_state_of_frozen_lake():
    log = found_logs.frozen_lake()
    drafted = draft(log)
    assert roles_of(drafted)["next_state"] == "left out"
    assert roles_of(drafted)["terminated"] == "outcome"
    renamed = draft(log.rename(columns={"next_state": "x"}))
    assert "the next row's 'state'" in why(renamed, "x")
    episodes = bf.read_episodes(log, content_of(drafted))
    assert len(episodes.state) == len(log)
    assert episodes.reward.sum() == log["reward"].sum() > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("died_in_hospital", -1),
        ("not died", 1),
        ("Discharged home", 1),
        ("readmission", -1),
        ("no readmission", 1),
        ("remission", 1),
        ("did not survive", -1),
        ("hospice", 0),
        ("nursing home", 0),
        ("discharged dead", 0),
        ("diet", 0),
        ("2", 0),
    ],
)
def test_what_outcomes_are_called_says_whether_they_are_good(text, expected):
    assert meaning(text) == expected


def test_yes_and_no_mean_what_the_column_is_called():
    assert good_or_bad("died", ("no", "yes")) == [1, -1]
    assert good_or_bad("survived", ("0", "1")) == [-1, 1]
    assert good_or_bad("status", ("0", "1")) == [0, 0]
    assert good_or_bad("status", ("alive", "dead", "moved")) == [1, -1, 0]
    assert parts("icuStayID") == ["icu", "stay", "id"]


def test_censored_episodes_are_kept_as_such():
    log = found_logs.liver_trial()
    log["status"] = log["status"].map({0: "censored", 1: "transplant", 2: "died"})
    content = content_of(draft(log))
    assert set(content["outcome"]) == {"died", "transplant"}
    assert content["problems"]["unknown_levels"] == "fill"
    assert content["problems"]["no_outcome"] == "keep"
    assert content["outcome"]["died"]["reward"] == -1.0
    assert "reward" not in content["outcome"]["transplant"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "folder", "frame"])
def test_of_a_long_log_the_first_rows_are_looked_at(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("butfor.log.draft.ROWS", 1000)
    monkeypatch.setattr(sources, "HEAD", 20_000)
    log = found_logs.sepsis_codes(stays=600)
    source = tmp_path / f"log.{kind}"
    if kind == "parquet":
        log.to_parquet(source)
    elif kind == "folder":
        source.mkdir()
        for part in range(6):
            log[log["episode"] % 6 == part].to_parquet(source / f"{part}.parquet")
    elif kind == "frame":
        source = log
    else:
        log.to_csv(source, index=False)
    drafted = draft(source)
    assert "(its first " in drafted.text
    content = content_of(drafted)
    assert "horizon" not in content["evaluation"]
    assert "no_outcome" not in content["problems"]
    assert len(bf.read_episodes(log, content)) == 600


def test_a_row_cut_in_a_quoted_cell_is_left_out(tmp_path, monkeypatch):
    text = "stay,note,dose,died\n" + 'a,"one\ntwo",low,\n' * 50
    (tmp_path / "log.csv").write_text(text)
    for size in range(300, 320):
        monkeypatch.setattr(sources, "HEAD", size)
        table = sources.load_first_rows(tmp_path / "log.csv", 1000).table
        assert set(table["note"].to_pylist()) == {"one\ntwo"}
        assert table.num_rows >= (size - 20) // 17 - 1


def test_columns_that_are_mostly_empty_are_only_shown():
    log = found_logs.many_labs(stays=60, labs=45)
    log.loc[log.index % 2 == 0, "lab_07"] = None
    log.loc[log.index % 50 == 1, "lab_31"] = None
    drafted = draft(log)
    assert why(drafted, "lab_07") == "empty in 50% of the rows"
    content = content_of(drafted)
    assert content["missing"]["lab_31"]["carry"] is True
    assert "problems" not in content
    assert drafted.undecided == ""
    assert len(bf.read_episodes(log, content)) == 60


def test_irregular_visits_are_put_on_a_grid_of_their_typical_interval():
    log = found_logs.liver_trial()
    drafted = draft(log)
    content = content_of(drafted)
    median = log.groupby("id")["day"].diff().median()
    assert content["time"]["every"] == pytest.approx(median, rel=0.05)
    assert content["missing"]["trt"] == {"carry": True}  # nobody changes the arm of a trial
    assert "put on a grid" in why(drafted, "day")
    assert content["words"]["time"] == "day"
    # events whose intervals have no typical length stay decisions of their own
    permits = draft(found_logs.permits())
    assert "time" not in content_of(permits)
    assert "[time] every = ... would put them on a grid" in permits.text


def test_steps_without_a_dose_have_none_unless_it_goes_on():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    log = log.drop(index=log.index[7::9])  # gaps
    content = content_of(draft(log))
    assert content["time"] == {"every": 4.0}
    assert "vasopressor_dose" not in content.get("missing", {})
    log["vasopressor_dose"] = np.where(log["stay_id"] % 2, "high", "low")
    assert content_of(draft(log))["missing"]["vasopressor_dose"] == {"carry": True}


def test_gaps_before_the_first_value_get_a_usual_one():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    first = ~log["stay_id"].duplicated()
    log.loc[first & (log["stay_id"] < 9), "lab_01"] = None
    drafted = draft(log)
    content = content_of(drafted)
    assert content["missing"]["lab_01"] == {"carry": True, "fill": log["lab_01"].median()}
    assert "see [missing]" in why(drafted, "lab_01")
    assert "problems" not in content
    assert len(bf.read_episodes(log, content)) == 60


def diary(people=40, seed=0):
    """Days with and without a headache; some days are missing, and one was written twice."""
    rng = np.random.default_rng(seed)
    rows = [
        (person, day, rng.choice(["no", "yes"]), ("none", "reduced")[person % 2], rng.integers(9))
        for person in range(people)
        for day in range(12)
        if rng.random() < 0.9
    ]  # fmt: skip
    log = pd.DataFrame(rows, columns=["id", "day", "headache", "medication", "airq"])
    return pd.concat([log, log.iloc[[5]]]).sort_values(["id", "day"], ignore_index=True)


def test_a_diary_of_days_that_sound_bad_has_a_reward():
    log = diary()
    drafted = draft(log)
    content = content_of(drafted)
    assert drafted.undecided == ""
    assert content["columns"]["reward"] == "headache"
    assert content["reward"] == {"values": {"no": 0.0, "yes": -1.0}}
    assert content["state"]["headache"] == {"levels": ["no", "yes"]}
    episodes = bf.read_episodes(log, content)
    # each day is worth what was written last; the days that nobody wrote earn nothing
    written = log.groupby(["id", "day"])["headache"].last()
    worth = [
        -1.0 if written.get((person, day)) == "yes" else 0.0
        for person, mine in log.groupby("id")["day"]
        for day in range(mine.min(), mine.max() + 1)
    ]
    np.testing.assert_array_equal(episodes.reward, worth)


def test_a_constant_propensity_is_one():
    log = found_logs.bandit().assign(propensity_score=1 / 12)
    columns = content_of(draft(log))["columns"]
    assert columns["behavior_probability"] == "propensity_score"
    assert columns["action"] == "item_id"


def test_each_state_and_action_of_a_bandit_has_rows():
    log = found_logs.bandit()
    for place in range(20):
        log[f"affinity_{place}"] = np.random.default_rng([1, place]).integers(0, 3, len(log))
    drafted = draft(log)
    states = [len(section["levels"]) for section in content_of(drafted)["state"].values()]
    assert np.prod(states) * 12 <= len(log)
    assert sum("too few rows" in finding.why for finding in drafted.findings) >= 15


def test_a_coarser_copy_of_the_outcome_looks_into_the_future():
    log = found_logs.liver_trial()
    log["x"] = (log["status"] == 2).astype(int)
    assert "tells 'status'" in why(draft(log), "x")


def test_amounts_behind_a_level_are_known_by_other_words():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    log["fluid_level"] = np.digitize(log["lab_02"], [-1, 0, 1])
    log["input_4hourly"] = log["fluid_level"] + 0.1 * log["lab_03"]
    log["input_total"] = log["lab_01"] * 100
    drafted = draft(log)
    assert why(drafted, "input_4hourly") == "the amount behind the action fluid_level"
    assert "action" not in roles_of(drafted)["input_total"]


def test_what_a_policy_would_do_is_recognized_by_name_and_levels():
    log = found_logs.many_labs(stays=60, labs=4, telling=("lab_01", "lab_02", "lab_03"))
    log["vasopressor_dose"] = np.where(log["vasopressor_dose"] > 0.5, "high", "low")
    log["policy_vasopressor_dose"] = np.where(log["lab_02"] > 0, "high", "low")
    drafted = draft(log)
    assert content_of(drafted)["columns"]["target_action"] == "policy_vasopressor_dose"
    assert list(content_of(drafted)["action"]) == ["vasopressor_dose"]
    assert bf.read_episodes(log, content_of(drafted)).target_probability is not None
    log["fluid"] = np.where(log["lab_01"] > 0, "yes", "no")
    log["policy_fluid"] = "no"
    content = content_of(draft(log))
    assert content["columns"]["target_action"] == {
        "vasopressor_dose": "policy_vasopressor_dose", "fluid": "policy_fluid"
    }  # fmt: skip
    # a column of other values is no policy
    log["policy_fluid"] = "maybe"
    assert "target_action" not in content_of(draft(log))["columns"]


def test_mutual_information_by_hand():
    same = np.array([0, 1] * 500)
    # one bit, minus (2 - 1)(2 - 1) / (2 * 1000) nats
    assert mutual_information(same, same) == pytest.approx(1 - 1 / (2000 * np.log(2)))
    assert mutual_information(same, np.repeat([0, 1], 500)) == pytest.approx(
        -1 / (2000 * np.log(2))
    )
    assert entropy(np.array([0, 1, 2, 3, -1])) == pytest.approx(2)


def test_init_prints_what_each_column_was_taken_for(tmp_path):
    found_logs.liver_trial(40).to_csv(tmp_path / "log.csv", index=False)
    result = CliRunner().invoke(
        app, ["init", str(tmp_path / "log.csv"), "--out", str(tmp_path / "study.toml")]
    )
    assert result.exit_code == 0, result.output
    assert "taken for" in result.output
    assert "looks into the future" in " ".join(result.output.split())
    assert "[outcome.1] reward: missing" in result.output
    assert "irregular, so put on a grid" in " ".join(result.output.split())


def test_outcomes_that_are_all_worth_the_same_are_refused():
    study = {
        "columns": {"episode": "e", "state": "s", "action": "a", "outcome": "o"},
        "outcome": {"home": {"reward": 1.0}, "died": {"reward": 1.0}},
    }
    with pytest.raises(ValueError, match=r"all 2 outcomes have the reward 1, .* higher reward"):
        read_study(study)
    read_study(study | {"outcome": {"home": {"reward": 1.0}}})
    read_study(study | {"columns": study["columns"] | {"reward": "r"}})


def test_every_kind_of_table_is_drafted_alike():
    log = found_logs.liver_trial(40)
    assert draft(log).text == draft(pa.Table.from_pandas(log)).text


def test_outcomes_are_found_in_an_empty_looking_log():
    log = pd.DataFrame({"id": [1, 1, 2], "x": [None] * 3, "drug": ["on", "off", "on"]})
    assert draft(log).findings[1].why == "it is empty"


def unit(*, fixed, stays=200, hours=6):
    """Stays in a ward: most end before the last hour, or each has its result there."""
    rng = np.random.default_rng(0)
    rows = []
    for stay in range(stays):
        level = int(rng.integers(3))
        for hour in range(hours):
            drug, last = int(rng.integers(2)), hour == hours - 1
            if fixed:
                end = rng.choice(["well", "ill"]) if last else ""
            else:
                end = rng.choice(["died", "home", "in ICU" if last else ""], p=[0.1, 0.1, 0.8])
            rows.append((stay, hour, ("low", "mid", "high")[level], ("off", "on")[drug], end))
            if end:
                break
            level = int(np.clip(level + rng.integers(-1, 2), 0, 2))
    return pd.DataFrame(rows, columns=["stay_id", "hour", "lactate", "drug", "status"])


def test_a_label_of_the_last_possible_row_is_the_end_of_follow_up(tmp_path):
    log = unit(fixed=False)
    drafted = draft(log)
    content = content_of(drafted)
    assert set(content["outcome"]) == {"died", "home"}
    assert content["words"]["none"] == "in ICU"
    assert drafted.undecided == ""
    log.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "study.toml").write_text(drafted.text)
    audit = bf.audit_log(tmp_path / "log.csv", tmp_path / "study.toml", models=0, rehearsal=False)
    assert audit.meta.outcome_names == ["died", "home", "in ICU"]
    counts = log.loc[log["status"] != "", "status"].value_counts()
    assert audit.outcome_table().sum(axis=1).to_dict() == counts.to_dict()


def without_homes(label):
    """Return a log in which those who went home have this label instead."""
    return unit(fixed=False).replace({"status": {"home": label}})


def test_the_same_reward_in_every_row_is_a_reward_where_lengths_differ():
    content = content_of(draft(unit(fixed=False).assign(cost=1.0, reward=-1.0)))
    assert content["columns"]["reward"] == "reward"
    assert all("reward" not in section for section in content["outcome"].values())
    for log in (
        unit(fixed=True).assign(reward=-1.0),
        unit(fixed=False).assign(reward=0.0),
        unit(fixed=False).assign(reward=-1.0).drop(columns="status"),
    ):
        drafted = draft(log)
        assert "reward" not in content_of(drafted)["columns"]
        assert roles_of(drafted)["reward"] == "left out"


def test_a_cost_of_the_treatment_is_no_state():
    log = unit(fixed=False).rename(columns={"drug": "treated"})
    log["cost"] = 1 + 2 * (log["treated"] == "on")
    drafted = draft(log)
    assert roles_of(drafted)["treated"] == "action"
    assert roles_of(drafted)["cost"] == "side"
    assert list(content_of(drafted)["state"]) == ["lactate"]


@pytest.mark.parametrize("label", ["lost", ""])
def test_who_was_lost_early_is_not_said_to_have_reached_the_end_of_follow_up(tmp_path, label):
    log = without_homes(label)
    log = log[log["stay_id"].duplicated(keep=False)]
    log.loc[~log["stay_id"].duplicated(keep="last"), "drug"] = ""  # rows that give final states
    drafted = draft(log)
    assert content_of(drafted)["words"]["none"] == "in ICU or lost"
    assert drafted.undecided == ""
    log.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "study.toml").write_text(drafted.text)
    read = bf.read_episodes(tmp_path / "log.csv", tmp_path / "study.toml")
    assert read.outcome_names == ["died", "in ICU or lost"]
    assert (read.outcome == 0).sum() <= log["status"].eq("died").sum()
    assert (read.lengths[read.outcome == -1] < read.horizon).any()


@pytest.mark.parametrize("label", ["home", "lost", ""])
def test_who_decides_at_the_end_of_follow_up_is_not_said_to_be_lost(tmp_path, label):
    log = without_homes(label)
    log["reward"] = -1.0
    drafted = draft(log)
    content = content_of(drafted)
    assert "in ICU" in content["outcome"]
    assert "none" not in content["words"]
    assert content["evaluation"]["by_step"]
    assert drafted.undecided == ""
    log.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "study.toml").write_text(drafted.text)
    audit = bf.audit_log(tmp_path / "log.csv", tmp_path / "study.toml", models=0, rehearsal=False)
    counts = log["status"].value_counts()
    found = audit.episodes["observed_outcome"].value_counts()
    assert {name: found[name] for name in ("died", "in ICU")} == dict(counts[["died", "in ICU"]])
    assert label != "home" or audit.episodes["p_none"].mean() < 0.001
    assert content_of(draft(log.drop(columns="reward")))["words"].get("none") == (
        "in ICU" if label == "home" else None
    )


def test_results_at_the_end_of_a_trial_of_fixed_length_are_results(tmp_path):
    log = unit(fixed=True)
    content = content_of(draft(log))
    assert set(content["outcome"]) == {"well", "ill"}
    assert "none" not in content["words"]
    assert content["evaluation"]["by_step"]
    content["outcome"] = {"well": {"reward": 1.0}, "ill": {"reward": 0.0}}
    log.to_csv(tmp_path / "log.csv", index=False)
    (tmp_path / "study.toml").write_text(write_toml(content))
    audit = bf.audit_log(tmp_path / "log.csv", tmp_path / "study.toml", models=0, rehearsal=False)
    assert audit.all_end
    file = io.StringIO()
    print_audit(Console(width=200, file=file), audit, verbose=True)
    assert "well" in file.getvalue()
    assert "no outcome" not in file.getvalue()


def test_an_outcome_that_is_rare_at_the_greatest_length_stays_an_outcome():
    log = unit(fixed=False)
    log.loc[log["status"].eq("in ICU") & (log["stay_id"] % 10 > 0), "status"] = "home"
    assert set(content_of(draft(log))["outcome"]) == {"died", "home", "in ICU"}


def test_several_outcomes_of_the_greatest_length_are_results_that_need_the_step():
    log = unit(fixed=False)
    late = log["status"].eq("in ICU")
    log.loc[late, "status"] = np.where(log.loc[late, "stay_id"] % 3 > 0, "ill", "well")
    drafted = draft(log)
    assert set(content_of(drafted)["outcome"]) == {"died", "home", "well", "ill"}
    assert "none" not in content_of(drafted)["words"]
    assert "Write horizon = 6 and by_step = true in [evaluation]" in drafted.text


def visits(**columns):
    """Forty patients with three visits each, and no column that looks like an action."""
    rng = np.random.default_rng(3)
    log = pd.DataFrame({"patient": np.repeat(range(40), 3), "visit": np.tile(range(3), 40)})
    log["lactate"] = rng.gamma(2, size=120).round(2)
    log["end"] = np.where(log["visit"] == 2, np.repeat(rng.choice(["home", "died"], 40), 3), "")
    return log.assign(**columns)


GROUP = np.repeat(np.arange(40) % 3, 3)  # constant within every episode
DROPOUT = np.where(np.tile(range(3), 40) == 2, np.repeat(np.arange(40) % 2, 3), 0)


def test_what_never_changes_within_an_episode_is_no_action(tmp_path):
    log = visits(center=GROUP, drop=DROPOUT).drop(columns="lactate")
    with pytest.raises(ValueError, match=r"no column looks like an action; .*--action COLUMN"):
        draft(log)
    log.to_csv(tmp_path / "log.csv", index=False)
    command = ["init", str(tmp_path / "log.csv"), "--out", str(tmp_path / "study.toml")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "no column looks like an action" in done.output
    assert not (tmp_path / "study.toml").exists()
    done = CliRunner().invoke(app, [*command, "--action", "center"])
    assert done.exit_code == 0, done.output
    drafted = tomllib.loads((tmp_path / "study.toml").read_text())
    assert list(drafted["action"]) == ["center"]
    done = CliRunner().invoke(app, [*command, "--action", "centre", "--overwrite"])
    assert done.exit_code == 2
    assert "--action: no column 'centre'; did you mean 'center'?" in done.output


@pytest.mark.parametrize("flag", [DROPOUT, np.repeat(np.arange(40) % 2, 3)])
def test_a_dropout_flag_is_no_action(flag):
    with pytest.raises(ValueError, match="no column looks like an action"):
        draft(visits(drop=flag))
    found = roles_of(draft(visits(drop=flag), ["lactate"]))
    assert (found["drop"], found["lactate"]) == ("left out", "action")


def test_the_three_rows_of_the_quick_start_are_one_stay(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "quick-start.md").read_text()
    (tmp_path / "icu.csv").write_text(page.split("```")[3].strip() + "\n")
    assert roles_of(draft(tmp_path / "icu.csv")) == {
        "stay_id": "episode",
        "hour": "time",
        "lactate": "state",
        "sofa": "state",
        "vasopressor_dose": "action",
        "discharge_status": "outcome",
    }

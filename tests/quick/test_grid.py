"""Irregular rows on a grid of time, and missing values: carried, filled in, counted."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import butfor as bf
from butfor.audit.audit import Audit
from butfor.audit.settings import AuditSettings
from butfor.audit.shards.run import audit_shards
from butfor.audit.source import audit_log
from butfor.cli.main import app
from butfor.log.grid import ADDED, put_on_grid
from butfor.log.read import read_log
from butfor.log.study import read_study
from tests.reference import grid as slow

# pulse is normal from 60 to 100; a dose is none, some (above 0 to below 3) or much
STUDY: dict[str, Any] = {
    "columns": {"episode": "stay", "time": "hour", "reward": "reward"},
    "state": {"pulse": {"cuts": [60, 80, 100], "normal": [60, 100], "number": True}},
    "action": {"dose": {"cuts": [1, 3], "names": ["none", "some", "much"]}},
    "time": {"every": 4},
}


def study(**sections: Any) -> dict[str, Any]:
    return {**STUDY, **{key: {**STUDY.get(key, {}), **value} for key, value in sections.items()}}


def table(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), skipinitialspace=True)


IRREGULAR = table(
    """stay,hour,pulse,dose,reward
    a,10,50,0,1
    a,11,110,2,1
    a,12,,2,1
    a,14.5,90,,0
    a,23,70,1,2
    a,23.5,65,,5"""
)
IRREGULAR["stay"] = "a"


def pulses(log) -> list[float]:
    """Return the numbers of all decisions, and of the final states."""
    return log.numbers["pulse"].tolist()


# Steps from hour 10: [10, 14), [14, 18), [18, 22), [22, 26). The last row has no action, so it is
# the final state. 50 and 110 are both 10 away from normal, so the later one is the worst.
@pytest.mark.parametrize(
    ("take", "pulse"),
    [("last", 110), ("mean", 80), ("min", 50), ("max", 110), ("worst", 110), ("sum", 160)],
)
def test_rows_of_a_step_are_merged_as_on_paper(take: str, pulse: float) -> None:
    reading = read_log(IRREGULAR, study(time={"take": {"pulse": take, "dose": "sum"}}))
    log = reading.episodes
    assert pulses(log) == [pulse, 90, 90, 70, 65]  # the third step has no rows
    assert log.action.tolist() == [2, 0, 0, 1]  # 0 + 2 + 2, none twice, 1
    assert log.reward.tolist() == [3, 0, 0, 7]  # that of the final state is earned before it
    assert reading.done == {
        "time: rows merged with another row of the same step": 2,
        "time: steps with a state measured after an action of the step": 1,
        "time: steps added where there were no rows": 1,
        "pulse: cells carried forward": 1,
        "dose: cells filled with 0": 2,
    }


DIARY = table(
    """stay,hour,head,dose
    1,0,yes,0
    1,1,yes,0
    1,4,no,0
    2,0,no,0
    2,3,yes,0"""
)
WORDS: dict[str, Any] = {
    "columns": {"episode": "stay", "time": "hour", "reward": "head"},
    "state": {"head": {"levels": ["no", "yes"]}},
    "action": {"dose": {"levels": ["0"]}},
    "reward": {"values": {"no": 0.0, "yes": -1.0}},
    "missing": {"dose": {"carry": True}},
    "problems": {"no_transition": "keep"},
}


def test_steps_that_a_grid_adds_earn_nothing_unless_the_study_says_so() -> None:
    reading = read_log(DIARY, {**WORDS, "time": {"every": 1}})
    assert reading.episodes.reward.tolist() == [-1, -1, 0, 0, 0, 0, 0, 0, -1]
    assert reading.episodes.codes(reading.episodes.state)["head"].tolist() == [
        *(1, 1, 1, 1, 0),  # what is carried forward is the state only
        *(0, 0, 0, 1),
    ]
    words = {**WORDS, "reward": {**WORDS["reward"], "added": True}}
    reading = read_log(DIARY, {**words, "time": {"every": 1}})
    assert reading.episodes.reward.tolist() == [-1, -1, -1, -1, 0, 0, 0, 0, -1]
    assert reading.done["reward: added steps that earn what their state is worth"] == 2


def test_merged_steps_that_earn_by_their_state_are_named() -> None:
    reading = read_log(DIARY, {**WORDS, "time": {"every": 2}})  # 0 and 1 are one step: twice yes
    assert reading.episodes.reward.tolist() == [-1, 0, 0, 0, -1]
    assert reading.done["reward: merged steps that earn what their state is worth"] == 1


def test_a_grid_that_changed_sums_would_be_refused(monkeypatch) -> None:
    def pay_twice(rows, *given):
        added = put_on_grid(rows, *given)
        rows.numbers["reward"] = rows.numbers["reward"] * 2
        return added

    monkeypatch.setattr("butfor.log.rows.put_on_grid", pay_twice)
    with pytest.raises(ValueError, match="add up to 20 instead of 10"):
        read_log(IRREGULAR, study())


def test_filled_gaps_have_their_own_times() -> None:
    log = read_log(
        DIARY,
        {
            **{key: part for key, part in WORDS.items() if key != "missing"},
            "columns": {**WORDS["columns"], "time_step": 1},
            "problems": {"gaps": "fill", "no_transition": "keep"},
        },
    ).episodes
    assert log.recorded["time"][: len(log.state)].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert log.reward.tolist() == [-1, -1, 0, 0, 0, 0, 0, 0, -1]


def test_filled_gaps_belong_to_the_subject_of_their_episode() -> None:
    log = read_log(
        DIARY.assign(person=["p", "p", "p", "q", "q"]),
        {
            **{key: part for key, part in WORDS.items() if key != "missing"},
            "columns": {**WORDS["columns"], "time_step": 1, "subject": "person"},
            "problems": {"gaps": "fill", "no_transition": "keep"},
        },
    ).episodes
    assert log.subject.tolist() == ["p", "q"]


def test_what_dropping_and_cutting_lose_is_named() -> None:
    steps = {"columns": {**WORDS["columns"], "time_step": 1}, "missing": {}}
    dropped = {"gaps": "drop", "no_transition": "keep", "drop_at_most": 1}
    lone = DIARY[DIARY["stay"] == 2].assign(stay=3, hour=[0, 1])
    done = read_log(pd.concat([DIARY, lone]), {**WORDS, **steps, "problems": dropped}).done
    assert done["rewards of rows left out"] == 3  # of the five days with a headache, two are left
    cut = {"no_transition": "keep", "beyond_horizon": "cut"}
    reading = read_log(DIARY, {**WORDS, "problems": cut, "evaluation": {"horizon": 1}})
    assert reading.done["rewards of rows left out"] == 2
    assert reading.done["outcomes of episodes left out"] == 2


def test_any_is_the_last_action_given_within_a_step() -> None:
    frame = IRREGULAR.assign(dose=[5, 2, 0, None, 0, None])
    log = read_log(frame, study(time={"take": {"dose": "any"}})).episodes
    assert log.action.tolist() == [1, 0, 0, 0]
    assert read_log(frame, STUDY).episodes.action.tolist() == [0, 0, 0, 0]


def test_a_regular_log_is_read_as_it_is() -> None:
    frame = IRREGULAR.assign(hour=[0, 4, 8, 12, 16, 20], pulse=70, dose=[0, 1, 2, 0, 1, None])
    plain = {key: value for key, value in STUDY.items() if key != "time"}
    ours, theirs = (read_log(frame, one) for one in (STUDY, plain))
    for name in ("state", "action", "next_state", "reward", "offsets"):
        assert getattr(ours.episodes, name).tolist() == getattr(theirs.episodes, name).tolist()
    assert ours.done == {}


def test_dates_are_put_on_a_grid_as_numbers_are(tmp_path) -> None:
    dated = IRREGULAR.assign(hour=pd.Timestamp("2024-05-31") + pd.to_timedelta(IRREGULAR.hour, "h"))
    dated.to_csv(tmp_path / "log.csv", index=False)
    dated.to_parquet(tmp_path / "log.parquet")
    expected = read_log(IRREGULAR, STUDY)
    for source in (dated, tmp_path / "log.csv", tmp_path / "log.parquet"):
        found = read_log(source, study(time={"every": "240min"}))
        assert pulses(found.episodes) == pulses(expected.episodes)
        assert found.done == expected.done
    with pytest.raises(ValueError, match=r"\[time\] every: the column 'hour' has dates"):
        read_log(dated, STUDY)


def test_steps_are_told_in_their_unit() -> None:
    assert read_study(study(time={"every": "4h"})).clock() == ("hour", 4)
    assert read_study(study(words={"time": "hour"})).clock() == ("hour", 4)


numbers = st.none() | st.integers(0, 200).map(float)
visit = st.tuples(st.sampled_from([0, 0.5, 1, 3, 4, 6.5, 9, 17]), numbers, numbers | st.just(0.0))
TAKES = ("last", "mean", "min", "max", "worst", "sum")


@settings(deadline=None)
@given(
    stays=st.lists(st.lists(visit, min_size=2, max_size=9), min_size=1, max_size=3),
    every=st.sampled_from([0.5, 2.0, 4.0, 7.0]),
    take=st.sampled_from(TAKES),
    given_as=st.sampled_from(["last", "sum", "any"]),
    limit=st.sampled_from([1, 3, True]),
    fill=st.sampled_from([77.0, 130.0]),
)
def test_the_grid_is_that_of_the_slow_twin(stays, every, take, given_as, limit, fill) -> None:
    takes, normals = {"pulse": take, "dose": given_as}, {"pulse": (60, 100)}
    rows, expected, carried, filled = [], [], 0, 0
    for name, visits in enumerate(stays):
        hours = np.cumsum([hour for hour, _, _ in visits])
        mine = [
            {"stay": name, "time": float(hour), "pulse": pulse, "dose": dose, "reward": 1.0}
            for hour, (_, pulse, dose) in zip(hours, visits, strict=True)
        ]
        mine[0]["dose"], mine[-1]["dose"] = 1.0, None  # a decision and a final state
        rows += mine
        steps = slow.put_on_grid(mine, every, takes, normals, "dose")
        slow.fill_column(steps, "dose", 0, 0.0, last_too=False)
        counts = slow.fill_column(steps, "pulse", np.inf if limit is True else limit, fill)
        carried, filled = carried + counts[0], filled + counts[1]
        expected.append(steps)
    reading = read_log(
        pd.DataFrame(rows),
        study(
            columns={"time": "time"},
            time={"every": every, "take": takes},
            missing={"pulse": {"carry": limit, "fill": fill}},
        ),
    )
    log = reading.episodes
    decisions = [step for steps in expected for step in steps[:-1]]
    last = [steps[-1] for steps in expected]
    np.testing.assert_allclose(
        pulses(log), [step["pulse"] for step in decisions + last], rtol=1e-12
    )
    levels = np.searchsorted([1, 3], [step["dose"] for step in decisions], side="right")
    assert log.action.tolist() == levels.tolist()
    assert log.reward.sum() == len(rows)
    done = reading.done
    assert done.get("pulse: cells carried forward", 0) == carried
    assert sum(n for words, n in done.items() if "pulse: cells" in words) == carried + filled


LABS = table(
    """stay,hour,lactate,drug,reward
    a,0,,none,0
    a,4,1.0,full,0
    a,8,,none,0
    a,12,,none,0
    a,16,5.0,,1
    b,0,3.0,none,0
    b,4,,,1"""
)
LABS["stay"] = [*"aaaaabb"]
LACTATE: dict[str, Any] = {
    "columns": {"episode": "stay", "time": "hour", "reward": "reward"},
    "state": {"lactate": {"cuts": [2, 4], "names": ["low", "raised", "high"], "normal": "low"}},
    "action": {"drug": {"levels": ["none", "full"]}},
}


def labs(**keys: Any):
    """Read LABS with a rule for lactate; return its levels by decision, then at the ends."""
    reading = read_log(LABS, {**LACTATE, "missing": {"lactate": keys}})
    log = reading.episodes
    state = np.append(log.state, log.next_state[log.offsets[1:] - 1])
    return [
        log.state_variables[0].levels[code] for code in log.codes(state)["lactate"]
    ], reading.done


def test_values_are_carried_within_a_limit_and_filled_beyond_it() -> None:
    # the numbers logged are 1, 5 and 3, so the median is 3
    levels, done = labs(carry=1, fill="median")
    assert levels == ["raised", "low", "low", "raised", "raised", "high", "raised"]
    assert done == {
        "lactate: cells carried forward": 2,
        "lactate: cells filled with the median, 3": 1,
        "lactate: cells before the first value filled with the median, 3": 1,
    }
    assert labs(within=4, fill="median")[0] == levels
    levels, done = labs(carry=False, fill="normal")
    assert levels == ["low", "low", "low", "low", "raised", "high", "low"]
    assert done["lactate: cells filled with 2"] == 3
    assert labs(carry=False, fill=4)[0] == ["high", "low", "high", "high", "raised", "high", "high"]


def test_missing_can_be_a_level_or_an_indicator() -> None:
    levels, done = labs(carry=1, fill="missing")
    assert levels == ["missing", "low", "low", "missing", "raised", "high", "raised"]
    assert done["lactate: cells before the first value filled with missing"] == 1
    told = {"lactate": {"fill": "median", "indicator": True}}
    log = read_log(LABS, {**LACTATE, "missing": told}).episodes
    assert [variable.name for variable in log.state_variables] == ["lactate", "lactate missing"]
    assert log.codes(log.state)["lactate missing"].tolist() == [1, 0, 0, 0, 0]


def test_what_no_rule_fills_is_a_problem_of_the_log() -> None:
    with pytest.raises(ValueError, match="missing_state: 1 row has no 'lactate'"):
        labs(carry=True)
    rule = {"missing": {"lactate": {"carry": 1}}, "problems": {"missing_state": "fill"}}
    with pytest.raises(ValueError, match=r"Add fill = ... to \[missing.lactate\]"):
        read_log(LABS, {**LACTATE, **rule})
    settled = {"missing_state": "drop", "drop_at_most": 0.5}
    dropped = {"missing": {"lactate": {}}, "problems": settled}
    assert read_log(LABS, {**LACTATE, **dropped}).episodes.id.tolist() == ["b"]


def test_clusters_are_found_with_indicators() -> None:
    seen = {}

    def cluster(values, columns, count):
        seen.update(zip(columns, values.T.tolist(), strict=True))
        return np.zeros(len(values), dtype=int)

    content = {
        **{key: LACTATE[key] for key in ("columns", "action")},
        "cluster": {"columns": ["lactate"], "count": 2},
        "missing": {"lactate": {"carry": False, "fill": "median", "indicator": True}},
    }
    read_log(LABS, content, clusterer=cluster)
    assert seen == {
        "lactate": [3, 1, 3, 3, 5, 3, 3],
        "lactate missing": [1, 0, 1, 1, 0, 0, 1],
    }


def test_models_learn_where_values_were_missing() -> None:
    told = {"lactate": {"fill": "median", "indicator": True}}
    state = {"lactate": {**LACTATE["state"]["lactate"], "number": True}}
    log = read_log(LABS, {**LACTATE, "state": state, "missing": told}).episodes
    assert log.numbers["lactate"].tolist() == [3, 1, 1, 1, 3, 5, 3]
    assert "lactate missing" in bf.fit_factored(log).describe()["variable"].tolist()


def test_times_may_be_rounded() -> None:
    # 0.3 / 0.1 is less than 3 by rounding
    frame = IRREGULAR.assign(
        hour=[0, 0.1, 0.2, 0.3, 0.6, 0.7], pulse=70, dose=[0, 0, 0, 0, 0, None]
    )
    done = read_log(frame, study(time={"every": 0.1})).done
    assert done["time: steps added where there were no rows"] == 2
    assert "time: rows merged with another row of the same step" not in done


def test_rows_of_the_same_time_are_merged_unless_dropped() -> None:
    frame = IRREGULAR.assign(hour=[10, 10, 12, 14.5, 23, 23.5])
    merged = study(time={"take": {"pulse": "min"}})
    assert pulses(read_log(frame, merged).episodes)[0] == 50
    reading = read_log(frame, {**merged, "problems": {"duplicates": "drop"}})
    assert reading.done["duplicates: rows dropped"] == 1
    assert reading.episodes.reward.sum() == 9
    plain = {key: value for key, value in STUDY.items() if key != "time"}
    with pytest.raises(ValueError, match="duplicates: 1 row has the episode and time"):
        read_log(frame, plain)


def test_the_age_of_a_value_may_be_given_in_hours() -> None:
    dated = LABS.assign(hour=pd.Timestamp("2024-05-31") + pd.to_timedelta(LABS.hour, "h"))
    rule = {"lactate": {"within": "4h", "fill": "median"}}
    done = read_log(dated, {**LACTATE, "missing": rule}).done
    assert done["lactate: cells carried forward"] == 2
    rule = {"lactate": {"within": 4, "fill": "median"}}
    with pytest.raises(
        ValueError, match=r"\[missing.lactate\] within: the column 'hour' has dates"
    ):
        read_log(dated, {**LACTATE, "missing": rule})


def test_cells_that_hold_no_number_are_found_before_rows_are_merged() -> None:
    frame = IRREGULAR.astype({"pulse": object})
    frame.loc[1, "pulse"] = "fast"
    with pytest.raises(ValueError, match=r"not_numbers: 1 row has a 'pulse' .* 'fast' \(row 1"):
        read_log(frame, STUDY)
    filled = read_log(frame, study(problems={"not_numbers": "fill"}))
    assert pulses(filled.episodes)[0] == 50
    assert filled.done["not_numbers: cells filled"] == 1


def test_the_side_has_the_last_value_of_a_step() -> None:
    frame = IRREGULAR.assign(ward=["x", "y", None, "z", None, None])
    log = read_log(frame, {**STUDY, "side": {"ward": {"type": "text"}}}).episodes
    assert log.side["ward"].isna().tolist() == [False, False, True, True, True]
    assert log.side["ward"].tolist()[:2] == ["y", "z"]


@pytest.mark.parametrize(
    ("sections", "mistake"),
    [
        ({"columns": {"time_step": 4}}, "[columns] time_step: given together with [time] every"),
        ({"time": {"take": {"pulse": "any"}}}, "[time] take: pulse: any is for actions"),
        ({"time": {"take": {"puls": "last"}}}, "[time] take: 'puls' is neither part of"),
        ({"time": {"take": {"pulse": "best"}}}, "[time] take: 'best': expected 'last'"),
        (
            {"action": {"dose": {"levels": ["low", "high"]}}},
            "[missing.dose]: missing: a step without a record of this action needs a level",
        ),
        ({"missing": {"puls": {"fill": 1}}}, "[missing.puls]: 'puls' is neither part of"),
        (
            {"missing": {"pulse": {"fill": "usual"}}},
            "[missing.pulse] fill: 'usual' is not a number",
        ),
        (
            {"missing": {"pulse": {"fill": "missing"}}},
            "[missing.pulse] fill: number = true needs a number",
        ),
        ({"missing": {"pulse": {"indicator": True}}}, "[missing.pulse] fill: missing; an indica"),
        ({"missing": {"dose": {"fill": "missing"}}}, "[missing.dose] fill: an action that is not"),
        (
            {
                "state": {"pulse": {"cuts": [60], "normal": "usual"}},
                "time": {"take": {"pulse": "worst"}},
                "missing": {"pulse": {"fill": "normal"}},
            },
            "[state.pulse] normal: 'usual' is not a level",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(sections: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        read_study(study(**sections))
    assert f"1 mistake\n- {mistake}" in str(error.value)


def test_an_action_may_continue_or_be_filled_where_nothing_says_that_none_was_given() -> None:
    frame = IRREGULAR.assign(dose=["low", "low", "high", None, "low", None])
    levels = {**study(), "action": {"dose": {"levels": ["low", "high"]}}}
    for rule, actions in (
        ({"carry": True}, [1, 1, 1, 0]),
        ({"fill": "low"}, [1, 0, 0, 0]),
        ({"fill": "median"}, [1, 0, 0, 0]),
        ({"carry": 1, "fill": "low"}, [1, 1, 0, 0]),
    ):
        log = read_log(frame, {**levels, "missing": {"dose": rule}}).episodes
        assert log.action.tolist() == actions


def test_a_grid_far_too_fine_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 100 per row; give a longer time"):
        read_log(IRREGULAR, study(time={"every": 0.001}))


def test_horizon_and_discount_follow_the_time_step() -> None:
    content = study(evaluation={"horizon": 12, "discount": 0.81})
    for every, horizon, discount in ((2.0, 24, 0.9), (8.0, 6, 0.6561), (100.0, 1, 0.81**25)):
        changed = read_study(content, every=every)
        assert changed.time is not None
        assert changed.time.every == every
        assert changed.evaluation.horizon == horizon
        assert changed.evaluation.discount == pytest.approx(discount, rel=1e-12)
    assert content["evaluation"]["horizon"] == 12
    plain = {key: value for key, value in content.items() if key != "time"}
    assert read_study(plain, every=2.0).evaluation.horizon == 12  # steps of unknown length
    stepped = {**plain, "columns": {**plain["columns"], "time_step": 4}}
    assert read_study(stepped, every=2.0).evaluation.horizon == 24


WARD = """
[columns]
episode = "stay"
time = "time"
outcome = "end"

[time]
every = "4h"
take = {lactate = "mean"}

[state.lactate]
cuts = [2.0, 4.0]
normal = "below 2"

[missing.lactate]
carry = 2
fill = "missing"

[action.drug]
levels = ["off", "on"]

[outcome.died]
reward = -1.0
bad = true

[outcome.home]
reward = 1.0
"""


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    """A log of irregular times with gaps, in one CSV file and in three Parquet files."""
    folder = tmp_path_factory.mktemp("ward")
    rng = np.random.default_rng(1)
    rows = []
    for stay in range(60):
        count = int(rng.integers(4, 10))
        times = pd.Timestamp("2024-05-31") + pd.to_timedelta(
            np.cumsum(rng.integers(1, 400, count)), "min"
        )
        for time in times:
            lactate = None if rng.random() < 0.4 else float(rng.integers(5, 60)) / 10
            rows.append((stay, time, lactate, rng.choice(["off", "on"]), None))
        rows[-1] = (*rows[-1][:4], rng.choice(["died", "home"]))
    log = pd.DataFrame(rows, columns=["stay", "time", "lactate", "drug", "end"])
    log.to_csv(folder / "log.csv", index=False)
    (folder / "parts").mkdir()
    for part in range(3):
        log[log["stay"] % 3 == part].to_parquet(folder / "parts" / f"{part}.parquet", index=False)
    (folder / "study.toml").write_text(WARD)
    return folder


def test_a_grid_in_shards_is_the_grid_in_memory(ward, tmp_path) -> None:
    log, parts, file = ward / "log.csv", ward / "parts", ward / "study.toml"
    known = audit_log(log, file, models=0, rehearsal=False)
    audit_shards(parts, file, tmp_path / "audit", AuditSettings(rehearsal=False))
    found = Audit.load(tmp_path / "audit")
    assert found.meta.problems == known.meta.problems
    assert len(found.meta.problems) == 7  # everything that a grid does occurs
    assert found.meta.counts == known.meta.counts
    assert (found.meta.time_step, found.meta.words["time"]) == (4, "hour")
    ours, theirs = (a.estimates.set_index("estimator")["value"] for a in (found, known))
    for name in ("Observed", "WIS", "MB", "CF"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-12)
    (tmp_path / "median.toml").write_text(WARD.replace('"missing"', '"median"'))
    with pytest.raises(ValueError, match=r"\[missing.lactate\] fill: the median is that of the wh"):
        audit_shards(parts, tmp_path / "median.toml", tmp_path / "other")


def test_another_time_step_takes_the_place_of_the_studys(ward) -> None:
    added = {}
    for step in ("2h", "8h"):
        audit = audit_log(
            ward / "log.csv", ward / "study.toml", models=0, rehearsal=False, time_step=step
        )
        assert audit.meta.made_by["time_step"] == step
        added[step] = audit.meta.problems.get(ADDED, 0)
    assert added["2h"] > added["8h"]


def test_several_time_steps_in_one_audit_are_refused_with_what_to_do(ward, tmp_path) -> None:
    command = ["audit", str(ward / "log.csv"), "--study", str(ward / "study.toml")]
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path), "--time-step", "2h,8h"])
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert "--time-step 2h,8h: an audit has one time step; audit each into a folder" in words
    assert not list(tmp_path.iterdir())

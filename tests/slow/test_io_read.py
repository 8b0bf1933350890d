"""Reading logs and writing them: every source gives the same Episodes, and they come back."""

from __future__ import annotations

import dataclasses
import gzip
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butfor import Episodes, Outcome, Variable, sepsis
from butfor.log.decisions import DONE
from butfor.log.draft import draft_study
from butfor.log.read import Reading, read_episodes, read_log
from butfor.log.sources import load_log
from butfor.log.study import read_study
from butfor.log.write import toml_value, write_episodes

STUDY: dict[str, Any] = {
    "columns": {"episode": "stay", "time": "hour", "outcome": "end"},
    "state": {
        "pulse": {"cuts": [60, 100], "names": ["slow", "usual", "fast"], "normal": [60, 100]},
        "sugar": {"levels": ["low", "high"]},
    },
    "action": {"drug": {"levels": ["none", "full"]}},
    "outcome": {"died": {"reward": -1, "bad": True}, "home": {"reward": 1}},
    "problems": {"no_outcome": "keep"},
}
# Stay a ends with an outcome and a final state, b with an outcome alone, c with a final state
# alone, d with neither: its last decision is no transition.
LOG = """stay,hour,pulse,sugar,drug,end
a,0,59.9,low,none,
a,4,60,high,full,
a,8,100,low,,home
b,0,72,low,full,died
c,0,130,high,none,
c,4,61,high,,
d,0,50,low,none,
d,4,99.5,low,full,
"""


def frame(text: str = LOG) -> pd.DataFrame:
    rows = [line.split(",") for line in text.strip().splitlines()]
    table = pd.DataFrame(rows[1:], columns=rows[0]).replace("", None)
    return table.astype({"hour": int, "pulse": float})


def changed(**sections: Any) -> dict[str, Any]:
    """STUDY with some keys of some sections replaced."""
    return {**STUDY, **{k: {**STUDY.get(k, {}), **v} for k, v in sections.items()}}


def read_text(folder: Path, text: str, study: Any = None) -> Reading:
    path = folder / "log.csv"
    path.write_text(text, encoding="utf-8")
    return read_log(path, STUDY if study is None else study)


def assert_same(one: Episodes, other: Episodes, *, recorded: bool = True) -> None:
    """Compare two logs; `recorded` says whether also times and numbers behind levels."""
    for field in dataclasses.fields(Episodes):
        if field.name == "recorded" and not recorded:
            continue
        mine, yours = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, pd.DataFrame):
            pd.testing.assert_frame_equal(mine, yours)
        elif isinstance(mine, np.ndarray):
            assert mine.tolist() == yours.tolist(), field.name
        else:
            assert mine == yours, field.name


def test_a_log_is_cut_coded_and_ended_as_on_paper(tmp_path: Path) -> None:
    reading = read_text(tmp_path, LOG)
    log = reading.episodes
    # state = pulse * 2 + sugar; 60 is in the bin that starts at 60, 100 in the one above
    assert log.id.tolist() == ["a", "b", "c", "d"]
    assert log.state.tolist() == [0, 3, 2, 5, 0]
    assert log.next_state.tolist() == [3, 4, -1, 3, 2]
    assert log.action.tolist() == [0, 1, 1, 0, 0]
    assert log.offsets.tolist() == [0, 2, 3, 4, 5]
    assert log.outcome.tolist() == [1, 0, -1, -1]
    assert log.reward.tolist() == [0, 1, -1, 0, 0]
    assert log.state_variables[0] == Variable("pulse", ("slow", "usual", "fast"), ("usual",))
    assert log.behavior_probability is None
    assert reading.done == {
        "no_outcome: episodes kept": 2,
        "last decision, with nothing after it: rows left out": 1,
    }


def test_every_source_gives_the_same_episodes(tmp_path: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    expected = read_text(tmp_path, LOG).episodes
    table = frame()
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pa.parquet.write_table(arrow, tmp_path / "log.parquet")
    with gzip.open(tmp_path / "log.csv.gz", "wt", encoding="utf-8") as file:
        file.write(LOG)
    (tmp_path / "log.tsv").write_text(LOG.replace(",", "\t"), encoding="utf-8")
    (tmp_path / "bom.csv").write_text("\ufeff" + LOG.replace("\n", "\r\n"), encoding="utf-8")
    (tmp_path / "blank.csv").write_text(LOG.replace("\n", "\n\n"), encoding="utf-8")
    for kind in ("csv", "parquet"):  # parts, split in the middle of an episode
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "_SUCCESS").touch()
        for number, rows in enumerate((slice(0, 2), slice(2, None))):
            path = tmp_path / kind / f"part-{number}.{kind}"
            part = table.iloc[rows]
            part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
    categories = table.astype({"stay": "category", "drug": "category", "sugar": "category"})
    fast = polars.DataFrame(arrow)
    sources = [
        *(tmp_path / name for name in ("log.parquet", "log.csv.gz", "log.tsv", "bom.csv")),
        str(tmp_path / "blank.csv"),
        tmp_path / "csv",
        tmp_path / "parquet",
        sorted((tmp_path / "csv").glob("*.csv")),
        table,
        categories,
        table.astype(object),
        arrow,
        fast,
        fast.with_columns(polars.col("drug").cast(polars.Categorical)),
        duckdb.sql("select * from arrow"),
    ]
    for source in sources:
        assert_same(expected, read_episodes(source, STUDY))


def test_the_study_may_be_a_path(tmp_path: Path) -> None:
    expected = read_text(tmp_path, LOG).episodes
    study = write_episodes(expected, tmp_path / "again.csv")
    assert study == tmp_path / "again.toml"
    assert_same(expected, read_episodes(tmp_path / "again.csv", study), recorded=False)


def test_times_may_be_dates_and_text(tmp_path: Path) -> None:
    expected = read_text(tmp_path, LOG).episodes
    dated = LOG
    for hour in (0, 4, 8):
        dated = dated.replace(f",{hour},", f",2101-05-31 0{hour}:00:00,")
    study = changed(columns={"time_step": "4h"})
    assert_same(expected, read_text(tmp_path, dated, study).episodes, recorded=False)
    table = frame().assign(hour=[f"2101-05-31T0{hour}:00" for hour in frame()["hour"]])
    for source in (table, table.assign(hour=pd.to_datetime(table["hour"]))):
        assert_same(expected, read_episodes(source, study), recorded=False)
    with pytest.raises(ValueError, match=r"time_step: the column 'hour' has dates: give it a unit"):
        read_episodes(table, changed(columns={"time_step": 4}))


def test_ids_keep_their_kind(tmp_path: Path) -> None:
    text = LOG.replace("\na,", "\n07,").replace("\nb,", "\n7,")
    assert read_text(tmp_path, text).episodes.id.tolist() == ["07", "7", "c", "d"]
    text = "stay,hour,pulse,sugar,drug,end\n7,0,70,low,none,home\n12,0,70,low,none,home\n"
    assert read_text(tmp_path, text).episodes.id.tolist() == [7, 12]
    study = changed(columns={"episode_type": "text"})
    assert read_text(tmp_path, text, study).episodes.id.tolist() == ["7", "12"]
    table = frame(text)
    assert read_episodes(table, STUDY).id.tolist() == ["7", "12"]
    assert read_episodes(table.astype({"stay": float}), STUDY).id.tolist() == [7, 12]


@settings(deadline=None)
@given(order=st.permutations(range(8)))
def test_rows_in_any_order_are_read_as_from_a_frame(order: list[int]) -> None:
    table = frame().iloc[list(order)]
    study = changed(problems={"order": "sort"})
    study["state"] = {"sugar": {"levels": ["low", "high"]}}
    expected = Episodes.from_frame(
        table,
        episode="stay",
        time="hour",
        state="sugar",
        action="drug",
        outcome="end",
        states=["low", "high"],
        actions=["none", "full"],
        outcomes=[Outcome("died", -1, bad=True), Outcome("home", 1)],
    )
    assert_same(expected, read_episodes(table, study), recorded=False)


def test_parts_may_have_columns_of_different_types(tmp_path: Path) -> None:
    for kind in ("csv", "parquet"):
        paths = []
        for number, stay in enumerate("abcd"):
            part = frame()[frame()["stay"] == stay]
            if stay == "b":
                part = part.astype({"pulse": int})
            paths.append(tmp_path / f"{number}.{kind}")
            part.to_csv(paths[-1], index=False) if kind == "csv" else part.to_parquet(paths[-1])
        assert_same(read_episodes(frame(), STUDY), read_episodes(paths, STUDY))


def test_ready_made_states_rewards_and_probabilities() -> None:
    table = pd.DataFrame(
        {
            "id": [7, 7, 7, 8],
            "s": [0, 2, 1, 3],
            "a": [1, 0, None, 1],
            "r": [0.5, 0.0, 2.0, 1.0],
            "p": [0.25, 1.0, None, 0.5],
            "end": [None, None, None, 1.0],
        }
    )
    study = {
        "columns": {
            "episode": "id",
            "state": "s",
            "action": "a",
            "actions": 4,
            "reward": "r",
            "outcome": "end",
            "behavior_probability": "p",
        },
        "outcome": {"1": {"name": "over"}},
        "problems": {"no_outcome": "keep"},
    }
    reading = read_log(table, study)
    log = reading.episodes
    assert (log.n_states, log.n_actions, log.id.tolist()) == (4, 4, [7, 8])
    assert log.state.tolist() == [0, 2, 3]
    assert log.reward.tolist() == [0.5, 2.0, 1.0]  # the final row's belongs to the one before
    assert log.outcomes == (Outcome("over", 1.0),)  # the mean last reward of its episodes
    assert log.behavior_probability is not None
    assert log.behavior_probability.tolist() == [0.25, 1.0, 0.5]


def test_side_columns_stay_beside_the_log(tmp_path: Path) -> None:
    study = changed(side={"pulse": {"name": "beats"}, "sugar": {"levels": ["low", "high"]}})
    log = read_text(tmp_path, LOG, study).episodes
    assert log.side is not None
    # five transitions, then the final rows of a, b (none), c, d
    assert log.side["beats"].tolist()[:6] == [59.9, 60, 72, 130, 50, 100]
    assert np.isnan(log.side["beats"][6])
    assert log.side["beats"].tolist()[7:] == [61, 99.5]
    assert log.side["sugar"].isna().tolist() == [False] * 6 + [True] + [False] * 2
    assert log.side_variables == ()  # not complete, so nothing may be counted by it


def test_an_outcome_on_every_row_tells_how_an_episode_ends(tmp_path: Path) -> None:
    text = "stay,hour,pulse,sugar,drug,end\na,0,70,low,none,home\na,1,70,low,full,home\n"
    reading = read_text(tmp_path, text)
    assert reading.episodes.lengths.tolist() == [2]
    assert reading.done == {"outcome on every row: episodes": 1}
    # an outcome on the last decision, and a final state after it
    text = "stay,hour,pulse,sugar,drug,end\na,0,70,low,none,home\na,1,50,low,,\n"
    log = read_text(tmp_path, text).episodes
    assert (log.next_state.tolist(), log.outcome.tolist()) == ([0], [1])


ALL = {"drop_at_most": 1}  # in logs of four episodes, one is too many
HERE = "a,4,60,high,full,"  # the second line of LOG


@pytest.mark.parametrize(
    ("old", "new", "kind", "policy", "done", "state"),
    [
        (HERE, "a,4,,high,full,", "missing_state", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,4,,high,full,", "missing_state", "fill", "cells", [0, 1, 2, 5, 0]),
        (HERE, "a,4,60,hgih,full,", "unknown_levels", "fill", "cells", [0, 2, 2, 5, 0]),
        (HERE, "a,4,60,hgih,full,", "unknown_levels", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,4,60,high,full,hme", "unknown_levels", "fill", "cells", [0, 3, 2, 5, 0]),
        (HERE, "a,4,60,high,full,hme", "unknown_levels", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,4,x,high,full,", "not_numbers", "fill", "cells", [0, 1, 2, 5, 0]),
        (HERE, "a,4,inf,high,full,", "not_numbers", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,x,60,high,full,", "not_numbers", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,4,60,high,,", "missing_action", "fill", "cells", [0, 3, 2, 5, 0]),
        (HERE, "a,4,60,high,,", "missing_action", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,0,60,high,full,", "duplicates", "drop", "rows", [0, 2, 5, 0]),
        (HERE, ",4,60,high,full,", "missing_episode", "drop", "rows", [0, 2, 5, 0]),
        (HERE, "a,,60,high,full,", "missing_time", "drop", "episodes", [2, 5, 0]),
        (HERE, "a,-4,60,high,full,", "order", "sort", "rows", [3, 0, 2, 5, 0]),
        (HERE, HERE + "died", "differing_outcomes", "drop", "episodes", [2, 5, 0]),
        (HERE, HERE + "home\na,5,1,low,full,", "after_outcome", "drop", "rows", [0, 3, 2, 5, 0]),
        ("d,4,99.5,low,full,\n", "", "no_transition", "drop", "episodes", [0, 3, 2, 5]),
        ("72,low,full,died", "1,low,full,\nb,9,1,low,,", "no_outcome", "drop", "episodes", [0, 3]),
    ],
)  # fmt: skip
def test_problems_are_settled_as_the_study_says(
    tmp_path: Path, old: str, new: str, kind: str, policy: str, done: str, state: list[int]
) -> None:
    text = LOG.replace(old, new)
    with pytest.raises(ValueError, match=f"- {kind}: "):
        read_text(tmp_path, text, changed(problems={kind: "refuse"}))
    reading = read_text(tmp_path, text, changed(problems={kind: policy} | ALL))
    count = 3 if kind == "no_outcome" else 1
    assert reading.done[f"{kind}: {done} {DONE[policy]}"] == count
    assert reading.episodes.state.tolist() == state


def test_gaps_are_filled_with_the_row_before(tmp_path: Path) -> None:
    study = changed(columns={"time_step": 2}, problems={"gaps": "fill"}, side={"pulse": {}})
    reading = read_text(tmp_path, LOG, study)
    log = reading.episodes
    assert reading.done["gaps: rows filled"] == 4
    assert log.state.tolist() == [0, 0, 3, 3, 2, 5, 5, 0, 0]
    assert log.lengths.tolist() == [4, 1, 2, 2]
    assert log.reward.tolist() == [0, 0, 0, 1, -1, 0, 0, 0, 0]
    assert log.side is not None
    assert np.isnan(log.side["pulse"][1])  # nobody measured it
    dropped = read_text(
        tmp_path, LOG, changed(columns={"time_step": 2}, problems={"gaps": "drop"} | ALL)
    )
    assert dropped.episodes.id.tolist() == ["b"]
    with pytest.raises(ValueError, match=r"gaps: 4 rows do not follow .* \(lines 3, 4, 7, 9\)"):
        read_text(tmp_path, LOG, changed(columns={"time_step": 2}))


def test_episodes_beyond_the_horizon_can_be_cut(tmp_path: Path) -> None:
    study = changed(evaluation={"horizon": 1}, problems={"beyond_horizon": "cut"})
    log = read_text(tmp_path, LOG, study).episodes
    assert (log.lengths.tolist(), log.outcome.tolist()) == ([1, 1, 1, 1], [-1, 0, -1, -1])


def test_missing_rewards_and_bad_probabilities(tmp_path: Path) -> None:
    text = (
        "stay,hour,pulse,sugar,drug,end,r,p\n"
        "a,0,70,low,none,,,0.5\na,1,70,low,full,home,2,1\nb,0,70,low,none,died,-1,0\n"
    )
    study = changed(
        columns={"reward": "r", "behavior_probability": "p"},
        problems={"missing_reward": "fill", "behavior_probability": "drop"} | ALL,
    )
    reading = read_text(tmp_path, text, study)
    assert reading.episodes.reward.tolist() == [0, 2]
    assert reading.done == {
        "behavior_probability: episodes dropped": 1,
        "missing_reward: rows filled": 1,
        "rewards of rows left out": 1,
        "outcomes of episodes left out": 1,
    }


def test_clusters_come_from_the_function_given(tmp_path: Path) -> None:
    study = changed(cluster={"columns": ["pulse"], "count": 2})
    study["state"] = {}
    assert read_text(tmp_path, LOG, study).episodes.n_states == 2  # found in the log itself
    seen: list[Any] = []

    def halves(values: Any, columns: Any, count: int) -> Any:
        seen.append((values.shape, list(columns), count))
        return (values[:, 0] > 80).astype(int)

    log = read_episodes(tmp_path / "log.csv", study, clusterer=halves)
    assert seen == [((8, 1), ["pulse"], 2)]
    assert log.state.tolist() == [0, 0, 0, 1, 0]
    assert log.state_variables == (Variable("cluster", ("0", "1")),)


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('a,b\n"two\nlines",1\n\nx,2\n', encoding="utf-8")
    assert load_log(path).places([0, 1]) == "lines 3, 5"
    assert load_log(frame()).places([2]) == "row 2, counted from 0"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("hidden", [(), ("glucose",), ("glucose", "diabetes")])
def test_a_simulated_log_comes_back(tmp_path: Path, suffix: str, hidden: tuple[str, ...]) -> None:
    log = sepsis.simulate(sepsis.behavior_policy(), 50, seed=3)
    log = log.hide(*hidden) if hidden else log
    study = write_episodes(log, tmp_path / f"log.{suffix}")
    reading = read_log(tmp_path / f"log.{suffix}", study)
    assert_same(log, reading.episodes, recorded=False)
    assert not reading.done
    assert sorted(os.listdir(tmp_path)) == [f"log.{suffix}", "log.toml"]


HOSTILE = ["=cmd()", "<script>alert(1)</script>", 'a"b', "a\nb", "a\r\nb", ",", ";", "NA", "nan"]
HOSTILE += ["null", "True", "true", "1", "1.0", "01", " a", "a ", "é", "💊", "\x00", "\x7f", "\\"]
HOSTILE += ["'", "#", "-1", "+1", "@x", "\t", "none", "\u2028", "None", "0x1", "1e3", "[x]", "a.b"]
labels = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6
)
visible = labels.filter(lambda text: bool(text.strip()))


@st.composite
def logs(draw: st.DrawFn) -> Episodes:
    """Any log, with hostile names everywhere."""
    kinds = []
    for _ in range(2):
        names = draw(st.lists(labels, min_size=1, max_size=2, unique=True))
        levels = [draw(st.lists(visible, min_size=1, max_size=3, unique=True)) for _ in names]
        kinds.append(
            [
                Variable(
                    name,
                    tuple(mine),
                    normal=tuple(mine[: draw(st.integers(0, 2))]),
                    static=draw(st.booleans()),
                )
                for name, mine in zip(names, levels, strict=True)
            ]
        )
    states, actions = kinds
    sizes = [int(np.prod([len(v.levels) for v in kind])) for kind in kinds]
    outcomes = draw(st.lists(visible.filter(lambda x: x != "none"), max_size=2, unique=True))
    number = st.floats(-1e6, 1e6)
    state, action, following, offsets, ends = [], [], [], [0], []
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.lists(st.integers(0, sizes[0] - 1), min_size=2, max_size=4))
        end = draw(st.integers(-1, len(outcomes) - 1))
        state += path[:-1]
        action += [draw(st.integers(0, sizes[1] - 1)) for _ in path[1:]]
        following += path[1:]
        if end >= 0 and draw(st.booleans()):
            following[-1] = -1
        offsets.append(len(state))
        ends.append(end)
    count, rows = len(ends), len(state)
    words = visible.filter(lambda text: not text.endswith("\x00"))  # which NumPy takes off
    ids = st.integers(-(10**9), 10**9) if draw(st.booleans()) else words
    side = None
    if draw(st.booleans()):
        side = pd.DataFrame(
            {
                draw(labels): draw(st.lists(number, min_size=rows + count, max_size=rows + count)),
            }
        )
    return Episodes.from_arrays(
        state,
        action,
        following,
        offsets=offsets,
        states=states,
        actions=actions,
        outcome=ends,
        outcomes=[Outcome(name, draw(number), draw(st.booleans())) for name in outcomes],
        reward=draw(st.lists(number, min_size=rows, max_size=rows)),
        id=draw(st.lists(ids, min_size=count, max_size=count, unique=True)),
        horizon=draw(st.integers(3, 9)),
        side=side,
    )


@settings(deadline=None)
@given(log=logs(), suffix=st.sampled_from(["csv", "parquet"]))
def test_any_log_comes_back_and_text_stays_text(
    tmp_path_factory: pytest.TempPathFactory, log: Episodes, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    assert_same(log, read_episodes(path, write_episodes(log, path)), recorded=False)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_written_as_toml_that_reads_back(text: str) -> None:
    assert tomllib.loads(f"a = {toml_value(text)}") == {"a": text}


def test_text_side_columns_come_back(tmp_path: Path) -> None:
    log = read_text(tmp_path, LOG).episodes
    note = ["007", "=cmd()", None, "NA", "<b>", "1", "x\ny", "é", "true"]
    log = dataclasses.replace(log, side=pd.DataFrame({"note": note}))
    for suffix in ("csv", "parquet"):
        study = write_episodes(log, tmp_path / f"side.{suffix}")
        back = read_episodes(tmp_path / f"side.{suffix}", study)
        assert back.side is not None
        assert [None if pd.isna(v) else v for v in back.side["note"]] == note


def test_a_draft_of_a_written_log_reads_it(tmp_path: Path) -> None:
    log = sepsis.simulate(sepsis.behavior_policy(), 200, seed=1)
    write_episodes(log, tmp_path / "log.csv")
    draft = draft_study(tmp_path / "log.csv")
    back = read_episodes(tmp_path / "log.csv", tomllib.loads(draft))
    assert back.state.tolist() == log.state.tolist()
    assert back.action.tolist() == log.action.tolist()
    assert back.reward.tolist() == log.reward.tolist()
    assert back.outcomes == log.outcomes
    assert "CHECK THIS" in draft


def test_a_draft_guesses_a_hospital_log() -> None:
    rng = np.random.default_rng(0)
    stays = np.repeat(np.arange(30), 5)
    table = pd.DataFrame(
        {
            "icustay_id": stays + 200_000,
            "charttime": pd.Timestamp("2101-01-01") + pd.to_timedelta(np.tile(range(5), 30), "h"),
            "age": np.repeat(rng.normal(60, 10, 30), 5),
            "smoking_status": np.repeat(rng.choice(["no", "yes"], 30), 5),
            "heart_rate": rng.normal(80, 10, 150),
            "note": [f"note {i}" for i in range(150)],
            "vaso_dose": rng.exponential(1, 150),
            "died_in_hospital": np.repeat(rng.integers(0, 2, 30), 5),
        }
    )
    content = tomllib.loads(draft_study(table))
    study = read_study(content)
    assert study.columns.episode == "icustay_id"
    assert study.columns.time == "charttime"
    assert study.columns.outcome == "died_in_hospital"
    assert list(study.action) == ["vaso_dose"]
    assert list(study.state) == ["age", "smoking_status", "heart_rate"]
    assert study.state["age"].static
    assert list(study.side) == ["note"]
    assert study.outcome["1"].bad
    assert study.outcome["0"].name == "not died_in_hospital"
    assert content["evaluation"]["horizon"] == 5
    assert read_episodes(table, study).outcome.tolist() == table["died_in_hospital"][::5].tolist()


@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["", "x\n[y]"], ["id", "=1+1", '"""']])
def test_a_draft_is_toml_whatever_the_columns(columns: list[str]) -> None:
    table = pd.DataFrame({name: ["\x00 x\n[z]", "y", "y"] for name in columns})
    table["action"] = ["\x00", "on", "on"]
    assert "columns" in tomllib.loads(draft_study(table))


def test_a_wide_log_is_drafted_with_few_states() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 20)), columns=[f"v{i}" for i in range(20)])
    table.insert(0, "episode", np.repeat(np.arange(10), 5))
    table["action"] = rng.integers(0, 2, 50)
    study = read_study(changed_draft := tomllib.loads(draft_study(table)) | {
        "columns": {"episode": "episode", "reward": "v19"}
    })  # fmt: skip
    assert len(study.state) == 6
    assert len(changed_draft["side"]) == 14


def test_a_reward_of_a_last_decision_with_nothing_after_it_is_not_lost_silently(
    tmp_path: Path,
) -> None:
    # without outcomes the last decision of an episode is no transition; here it earns 1
    (tmp_path / "log.csv").write_text(
        "stay,hour,pulse,drug,reward\na,0,70,none,0\na,4,80,full,1\n", encoding="utf-8"
    )
    study = {
        "columns": {"episode": "stay", "time": "hour", "reward": "reward"},
        "state": {"pulse": {"cuts": [75]}},
        "action": {"drug": {"levels": ["none", "full"]}},
    }
    with pytest.raises(ValueError, match=r"lost_reward: 1 row is a last decision .*line 3"):
        read_log(tmp_path / "log.csv", study)
    reading = read_log(tmp_path / "log.csv", study | {"problems": {"lost_reward": "drop"} | ALL})
    assert reading.done["lost_reward: rows dropped"] == 1
    assert reading.episodes.returns().tolist() == [0.0]

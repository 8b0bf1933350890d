"""Broken logs and study files: each is refused with its place and a remedy, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butfor import Episodes
from butfor.log.draft import draft_study
from butfor.log.read import read_log
from butfor.log.study import read_study
from butfor.log.write import write_episodes
from tests.builders import patient_log

# Words that a message of a library underneath would have.
INTERNAL = re.compile(
    r"pydantic|numpy|ndarray|pyarrow|ArrowInvalid|dtype|traceback|object at 0x|errors\.|NoneType|"
    r"codec can't|KeyError|Errno|type_error|input_value",
    re.IGNORECASE,
)

COLUMNS = '[columns]\nepisode = "stay"\ntime = "hour"\noutcome = "end"\n'
STATE = "[state.pulse]\ncuts = [60, 100]\n"
ACTION = '[action.drug]\nlevels = ["none", "full"]\n'
OUTCOME = "[outcome.died]\nreward = -1\nbad = true\n[outcome.home]\nreward = 1\n"
STUDY = COLUMNS + STATE + ACTION + OUTCOME
HEADER = "stay,hour,pulse,drug,end\n"
LOG = HEADER + "a,0,70,none,\na,4,110,full,home\nb,0,50,none,\nb,4,70,full,died\n"

# name: text of the study file, and what the message must have
STUDIES: dict[str, tuple[str | bytes, list[str]]] = {
    "empty file": ("", ["[columns]: missing; add it"]),
    "no value": ("[columns]\nepisode =\n", ["line 2", "not TOML", "quotes"]),
    "open quote": ('[columns]\nepisode = "stay\n', ["line 2", "not TOML"]),
    "unquoted text": ("[columns]\nepisode = stay\n", ["line 2", "put text in quotes"]),
    "unquoted space": (STUDY + "[state.heart rate]\n", ["line 14", '[state."heart rate"]']),
    "key twice": ('[columns]\nepisode = "a"\nepisode = "b"\n', ["line 3", "once"]),
    "section twice": (STUDY + STATE, ["line 14", "each section and key once"]),
    "latin-1": (STUDY.encode() + "# é".encode("latin-1"), ["line 14", "not UTF-8", "save"]),
    "binary": (b"\x89PNG\r\n\x1a\n\x00", ["line 1", "not UTF-8"]),
    "unknown section": (STUDY + "[stat]\n", ["[stat]: no such section; did you mean state?"]),
    "unknown key": (
        STUDY.replace("time =", "tiem ="),
        ["[columns] tiem: no such key; did you mean time?"],
    ),
    "no episode": (STUDY.replace("episode", "time_step"), ["[columns] episode: missing"]),
    "episode a number": (STUDY.replace('"stay"', "1"), ["[columns] episode: 1: expected text"]),
    "section a value": ('state = "x"\n' + STUDY.replace(STATE, ""), ["state: expected sections"]),
    "columns a value": ("columns = 3\n" + STATE, ["[columns]: expected a section with keys"]),
    "state a value": (COLUMNS + ACTION + OUTCOME + "[state]\npulse = 3\n", ["[state.pulse]: exp"]),
    "no state": (COLUMNS + ACTION + OUTCOME, ["[state]: no state; add [state.<column>]"]),
    "no action": (COLUMNS + STATE + OUTCOME, ["[action]: no action; add [action.<column>]"]),
    "no outcome": (COLUMNS + STATE + ACTION, ["[outcome]: no outcomes; add [outcome.<value>]"]),
    "neither outcome nor reward": (
        COLUMNS.replace('outcome = "end"', "") + STATE + ACTION,
        ["[columns] outcome: neither an outcome nor a reward; name a column"],
    ),
    "outcomes without column": (
        STUDY.replace('outcome = "end"', ""),
        ["[columns] outcome: missing; name the column"],
    ),
    "levels and cuts": (STUDY.replace(STATE, STATE + 'levels = ["a"]\n'), ["levels for text or"]),
    "neither levels nor cuts": (STUDY.replace("cuts = [60, 100]", ""), ["[state.pulse] levels: m"]),
    "cuts fall": (STUDY.replace("60, 100", "100, 60"), ["[state.pulse] cuts: 60 follows 100"]),
    "cuts equal": (STUDY.replace("60, 100", "60, 60"), ["list different numbers from low to high"]),
    "cuts empty": (STUDY.replace("60, 100", ""), ["[state.pulse] cuts: is empty; give at least"]),
    "cuts text": (STUDY.replace("[60, 100]", '["low"]'), ["cuts: entry 1, 'low': expected a numb"]),
    "cuts a number": (STUDY.replace("[60, 100]", "60"), ["cuts: 60: expected a list"]),
    "cuts infinite": (STUDY.replace("100]", "inf]"), ["cuts: entry 2, inf: expected a finite num"]),
    "too few names": (
        STUDY.replace(STATE, STATE + 'names = ["low", "high"]\n'),
        ["[state.pulse] names: 2 names for 3 bins", "give 3 names"],
    ),
    "names without cuts": (STUDY + 'names = ["x"]\n', ["[outcome.home] names: no such key"]),
    "level twice": (STUDY.replace('"full"', '"none"'), ["[action.drug] levels: two of them are"]),
    "level empty": (STUDY.replace('"full"', '""'), ["[action.drug] levels: one of them is empty"]),
    "levels empty": (STUDY.replace('"none", "full"', ""), ["[action.drug] levels: is empty; name"]),
    "level a list": (STUDY.replace('"full"', "[1]"), ["levels: entry 2, [1]: expected text or a"]),
    "normal unknown": (
        STUDY.replace(STATE, STATE + 'normal = "usual"\n'),
        ["[state.pulse] normal: 'usual' is not a level; there are 'below 60'"],
    ),
    "normal no range": (
        STUDY.replace(STATE, STATE + "normal = [60, 90]\n"),
        ["[state.pulse] normal: [60, 90] is not a range between two cuts; take its ends"],
    ),
    "outcomes of one name": (
        STUDY.replace("bad = true", 'name = "home"'),
        ["[outcome]: two outcomes are called 'home'; give different names"],
    ),
    "outcome without reward": (STUDY.replace("reward = 1\n", ""), ["[outcome.home] reward: miss"]),
    "reward text": (STUDY.replace("= -1", '= "bad"'), ["[outcome.died] reward: 'bad': expected"]),
    "reward infinite": (
        STUDY.replace("= -1", "= -inf"),
        ["reward: -inf: expected a finite number"],
    ),
    "bad a word": (STUDY.replace("true", '"yes"'), ["[outcome.died] bad: 'yes': expected true"]),
    "column twice": (
        STUDY.replace('"hour"', '"stay"'),
        ["[columns] time: the column 'stay' is already [columns] episode; name another one"],
    ),
    "outcome as state": (
        STUDY + '[state.end]\nlevels = ["died"]\n',
        ["[state.end]: the column 'end' is already [columns] outcome; name another one"],
    ),
    "unknown problem": (
        STUDY + '[problems]\nduplicated = "drop"\n',
        ["[problems] duplicated: no such key; did you mean duplicates?"],
    ),
    "unknown policy": (
        STUDY + '[problems]\nduplicates = "ignore"\n',
        ["[problems] duplicates: 'ignore': expected 'refuse' or 'drop'"],
    ),
    "policy a list": (STUDY + "[problems]\norder = []\n", ["[problems] order: []: expected 'ref"]),
    "gaps without step": (STUDY + '[problems]\ngaps = "fill"\n', ["[columns] time_step; add it"]),
    "horizon zero": (STUDY + "[evaluation]\nhorizon = 0\n", ["[evaluation] horizon: 0: expected"]),
    "horizon a fraction": (STUDY + "[evaluation]\nhorizon = 2.5\n", ["2.5: expected a whole num"]),
    "discount above 1": (
        STUDY + "[evaluation]\ndiscount = 1.5\n",
        ["1.5: expected a number of at most 1"],
    ),
    "discount nan": (
        STUDY + "[evaluation]\nplanning_discount = nan\n",
        ["nan: expected a number of at most 1"],
    ),
    "cluster of none": (STUDY + "[cluster]\ncolumns = []\ncount = 0\n", ["[cluster] columns: is"]),
    "cluster without count": (STUDY + '[cluster]\ncolumns = ["x"]\n', ["[cluster] count: missing"]),
    "time step of nothing": (
        STUDY.replace("time =", "time_step = 0\ntime ="),
        ["[columns] time_step: 0.0 is not a time step; give a positive number"],
    ),
    "time step in moons": (
        STUDY.replace("time =", 'time_step = "4 moons"\ntime ='),
        ["time_step: '4 moons' is not a time step", "s, min, h or d"],
    ),
    "word empty": (STUDY + '[words]\nnone = ""\n', ["[words] none: is empty; give a word"]),
    "none is an outcome": (
        STUDY + '[words]\nnone = "home"\n',
        ["[words] none: 'home' is also an"],
    ),
    "side of unknown type": (
        STUDY + '[side.x]\ntype = "int"\n',
        ["[side.x] type: 'int': expected"],
    ),
    "dotted column": (STUDY + "[state.a.b]\ncuts = [1]\n", ["[state.a] b: no such key", "quotes"]),
    "too many actions": (
        STUDY
        + "".join(f"[action.v{i}]\ncuts = [{', '.join(map(str, range(99)))}]\n" for i in range(5)),
        ["[action]: 20,000,000,000 actions are too many; use fewer levels or cuts"],
    ),
}

# name: the log, what the message must have, and more of the study
LOGS: dict[str, tuple[str | bytes, list[str], str]] = {
    "empty file": ("", ["log.csv: the file is empty; give a header"], ""),
    "header only": (HEADER, ["log.csv has no rows; give at least one decision"], ""),
    "blank lines": ("\n\n\n", ["log.csv", "no column 'stay'"], ""),
    "semicolons": (LOG.replace(",", ";"), ["log.csv, line 1", "semicolons; write it with c"], ""),
    "tabs": (LOG.replace(",", "\t"), ["log.csv, line 1", "tabs; write it with commas"], ""),
    "no such column": (
        LOG.replace("pulse", "Pulse"),
        ["[state.pulse]: no column 'pulse'; did you mean 'Pulse'?", "Correct these names"],
        "",
    ),
    "two columns lost": (
        LOG.replace("pulse", "x").replace("drug", "y"),
        ["[state.pulse]: no column 'pulse'", "[action.drug]: no column 'drug'"],
        "",
    ),
    "column twice": (
        LOG.replace("hour", "stay"),
        ["two columns are called 'stay'; rename one"],
        "",
    ),
    "short row": (
        LOG + "c,0\n",
        ["1 row without the 5 cells", "line 6 has 2", "double quotes"],
        "",
    ),
    "long row": (LOG + "c,0,1,none,home,9\n", ["line 6 has 6", "double quotes"], ""),
    "open quote": (LOG + '"c,0,70,none,home\n', ["log.csv", "double quotes"], ""),
    "latin-1": (LOG.encode() + "é,0,70,none,home\n".encode("latin-1"), ["line 6: not UTF-8"], ""),
    "latin-1 in a number": (LOG.encode() + b"c,0,\xe9,none,home\n", ["line 6: not UTF-8"], ""),
    "latin-1 header": (LOG.replace("pulse", "pülse").encode("latin-1"), ["line 1: not UTF-8"], ""),
    "UTF-16": (LOG.encode("utf-16"), ["log.csv, line 1: not UTF-8; save it as UTF-8"], ""),
    "binary": (bytes(range(256)) * 20, ["log.csv", "UTF-8"], ""),
    "unknown level": (
        LOG.replace("none", "nnoe"),
        ["unknown_levels: 2 rows have a 'drug'", "'nnoe'", "lines 2, 4", "[action.drug]", '"drop"'],
        "",
    ),
    "unknown outcome": (
        LOG.replace("home", "moon"),
        ["unknown_levels: 1 row has an unknown outcome", "'moon'", "line 3", "[outcome.<value>]"],
        "",
    ),
    "text for a number": (
        LOG.replace("110", "high"),
        ["not_numbers: 1 row has a 'pulse'", "'high'", "line 3", "Correct the cells"],
        "",
    ),
    "decimal comma": (LOG.replace("110", '"110,5"'), ["not_numbers", "'110,5'", "line 3"], ""),
    "infinite": (LOG.replace("110", "inf"), ["not_numbers", "line 3", 'not_numbers = "drop"'], ""),
    "missing number": (LOG.replace("110", ""), ["missing_state: 1 row", "line 3", '"fill"'], ""),
    "missing action": (LOG.replace("0,70,none", "0,70,"), ["missing_action", "line 2"], ""),
    "missing episode": (LOG.replace("b,0", ",0"), ["missing_episode: 1 row", "line 4"], ""),
    "missing time": (LOG.replace("b,0", "b,"), ["missing_time: 1 row", "line 4", '"drop"'], ""),
    "time in words": (
        LOG.replace("b,0", "b,noon"),
        ["not_numbers", "a date such as", "line 4"],
        "",
    ),
    "out of order": (LOG.replace("b,0", "b,9"), ["order: 1 row", "line 5", "Sort the log"], ""),
    "duplicate": (
        LOG.replace("b,4", "b,0"),
        ["duplicates: 1 row", "line 5", "keeps the first"],
        "",
    ),
    "gap": (
        LOG.replace("b,4", "b,9"),
        ["gaps: 1 row does not follow", "line 5", "Fill the gaps"],
        "time_step = 4\n",
    ),
    "gap that cannot be filled": (
        LOG.replace("b,4", "b,9"),
        ["gaps: 1 row", "not a whole number of steps", "Correct time_step"],
        'time_step = 4\n[problems]\ngaps = "fill"\n',
    ),
    "gap of ages": (
        LOG.replace("b,4", "b,4000000"),
        ["gaps: 1 row", "far too many", "Correct time_step"],
        'time_step = 4\n[problems]\ngaps = "fill"\n',
    ),
    "after the outcome": (
        LOG.replace("none,\na", "none,home\na").replace("full,home", "full,"),
        ["after_outcome: 1 row", "line 3", "Put the outcome on the last row"],
        "",
    ),
    "outcomes differ": (
        LOG.replace("none,\na", "none,died\na"),
        ["differing_outcomes: 1 episode", "line 2", "one outcome"],
        "",
    ),
    "no outcome": (
        LOG + "c,0,1,none,\nc,1,1,none,\n",
        ["no_outcome: 1 episode", "line 6", '"keep"'],
        "",
    ),
    "no transition": (LOG + "c,0,70,none,\n", ["no_transition: 1 episode", "line 6"], ""),
    "nothing left": (
        HEADER + "a,0,70,none,\n",
        ["log.csv: no episode is left; drop less in [problems]"],
        '[problems]\nno_transition = "drop"\n',
    ),
    "nothing to carry": (
        LOG.replace("a,0,70", "a,0,"),
        ["missing_state: 1 row", "nothing before it", "line 2"],
        '[problems]\nmissing_state = "fill"\n',
    ),
    "beyond the horizon": (
        LOG,
        ["beyond_horizon: 2 episodes", "Raise the horizon", '"cut"'],
        "[evaluation]\nhorizon = 1\n",
    ),
    "dates without unit": (
        LOG.replace(",0,", ",2024-05-01,").replace(",4,", ",2024-05-02,"),
        ["[columns] time_step: the column 'hour' has dates: give it a unit"],
        "time_step = 1\n",
    ),
    "numbers with unit": (
        LOG,
        ["[columns] time_step: the column 'hour' has numbers: give a number"],
        'time_step = "4h"\n',
    ),
    "probability above 1": (
        LOG,
        ["behavior_probability: 2 episodes", "lines 2, 4", "above 0"],
        'behavior_probability = "p"\n',
    ),
    "reward in words": (
        LOG,
        ["not_numbers: 4 rows have a 'p'", "'x1'", "[columns] reward"],
        'reward = "p"\n',
    ),
    "state below 0": (
        LOG,
        ["unknown_levels: 1 row has a 'p'", "'-1'", "[columns] state"],
        "state",
    ),
}


def assert_refused(act: Callable[[], Any], parts: list[str], kind: type = ValueError) -> None:
    with pytest.raises((ValueError, OSError)) as caught:
        act()
    assert type(caught.value) is kind
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert not INTERNAL.search(message), message


def test_the_corpus_is_large() -> None:
    assert len(STUDIES) + len(LOGS) >= 60


def test_what_the_corpus_breaks_was_whole(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "log.csv").write_text(LOG, encoding="utf-8")
    reading = read_log(tmp_path / "log.csv", tmp_path / "study.toml")
    assert (len(reading.episodes), reading.done) == (2, {})


@pytest.mark.parametrize("name", STUDIES)
def test_broken_studies(tmp_path: Path, name: str) -> None:
    text, parts = STUDIES[name]
    path = tmp_path / "study.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_refused(lambda: read_study(path), ["study.toml", *parts])


@pytest.mark.parametrize("name", LOGS)
def test_broken_logs(tmp_path: Path, name: str) -> None:
    text, parts, more = LOGS[name]
    study = STUDY
    if more.startswith(("time_step", "behavior", "reward")):  # keys of [columns]
        key, _, sections = more.partition("\n")
        study = STUDY.replace("[columns]\n", f"[columns]\n{key}\n") + sections
    elif more == "state":
        study = STUDY.replace(STATE, "").replace("[columns]\n", '[columns]\nstate = "p"\n')
    else:
        study += more
    if isinstance(text, str) and '"p"' in study:
        cell = {"behavior_probability": "1.5", "reward": "x1", "state": "0"}[more.split(" ")[0]]
        lines = text.splitlines()
        lines = [f"{line},{cell if number else 'p'}" for number, line in enumerate(lines)]
        if more == "state":
            lines[-1] = lines[-1][:-1] + "-1"
        text = "\n".join(lines) + "\n"
    path = tmp_path / "log.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "study.toml").write_text(study, encoding="utf-8")
    assert_refused(lambda: read_log(path, tmp_path / "study.toml"), parts)


def test_all_problems_of_a_log_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        HEADER + "a,0,x,none,\na,4,,full,home\nb,0,50,nnoe,\nb,0,70,full,died\nc,0,1,none,\n",
        encoding="utf-8",
    )
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    kinds = ["duplicates", "missing_state", "not_numbers", "unknown_levels", "no_transition"]
    parts = [f"- {kind}: 1 " for kind in kinds]
    assert_refused(
        lambda: read_log(path, tmp_path / "study.toml"), ["5 problems, so nothing was read", *parts]
    )


def test_files_that_are_not_there_or_not_readable(tmp_path: Path) -> None:
    study = {"columns": {"episode": "e", "state": "s", "action": "a", "reward": "r"}}
    gone = tmp_path / "gone.csv"
    assert_refused(
        lambda: read_log(gone, study), ["no file", "gone.csv", "path"], FileNotFoundError
    )
    assert_refused(lambda: draft_study(gone), ["no file", "gone.csv"], FileNotFoundError)
    assert_refused(
        lambda: read_log(gone, tmp_path / "gone.toml"), ["butfor init"], FileNotFoundError
    )
    assert_refused(lambda: read_study(tmp_path), ["is a folder; give the path of a study file"])
    assert_refused(lambda: read_log(tmp_path, study), ["has no .csv or .parquet files; name"])
    assert_refused(lambda: read_log([], study), ["no files; give at least one path"])
    (tmp_path / "log.xlsx").touch()
    assert_refused(lambda: read_log(tmp_path / "log.xlsx", study), ["unknown kind of file; give"])
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not at all PAR1")
    assert_refused(lambda: read_log(tmp_path / "log.parquet", study), ["damaged, or not Parquet"])
    (tmp_path / "log.parquet").write_bytes(b"")
    assert_refused(lambda: read_log(tmp_path / "log.parquet", study), ["damaged, or not Parquet"])
    (tmp_path / "log.csv.gz").write_bytes(b"e,s,a,r\n")
    assert_refused(lambda: read_log(tmp_path / "log.csv.gz", study), ["damaged, or not CSV"])
    parts = [tmp_path / "log.parquet", tmp_path / "log.csv.gz"]
    assert_refused(lambda: read_log(parts, study), ["both CSV and Parquet files"])


def test_files_without_the_right_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    for name, text in (("log.csv", LOG), ("study.toml", STUDY)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    monkeypatch.setattr(Path, "open", forbid)
    monkeypatch.setattr(Path, "read_bytes", forbid)
    monkeypatch.setattr("os.open", forbid)
    remedy = ["no permission to read"]
    assert_refused(lambda: read_log(tmp_path / "log.csv", study), remedy, PermissionError)
    assert_refused(lambda: read_study(tmp_path / "study.toml"), remedy, PermissionError)
    assert_refused(
        lambda: write_episodes(patient_log(), tmp_path / "new.csv"),
        ["choose another folder"],
        PermissionError,
    )


TOKENS = ["", "0", "-1", "1e400", "inf", "true", '"', "'", "\n", ",", ";", "[]", "=", "NA", "home"]
TOKENS += ["2024-01-01", "99999999999999999999", "\x00", "é", "[state.x]\n", "cuts = [1]\n", "none"]


@settings(deadline=None)
@given(data=st.data())
def test_whatever_breaks_breaks_in_our_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name, text in (("log.csv", LOG), ("study.toml", STUDY)):
        for _ in range(data.draw(st.integers(0, 2))):
            start = data.draw(st.integers(0, len(text)))
            stop = start + data.draw(st.integers(0, 4))
            text = text[:start] + data.draw(st.sampled_from(TOKENS)) + text[stop:]
        (folder / name).write_bytes(text.encode())
    for act in (
        lambda: read_log(folder / "log.csv", folder / "study.toml"),
        lambda: draft_study(folder / "log.csv"),
    ):
        refused: list[ValueError] = []
        try:
            act()
        except ValueError as error:
            refused.append(error)
        for error in refused:
            assert type(error) is ValueError
            assert not INTERNAL.search(str(error)), str(error)


def test_a_parquet_file_cut_short(tmp_path: Path) -> None:
    study = {"columns": {"episode": "e", "state": "s", "action": "a", "reward": "r"}}
    table = pa.table({name: np.arange(1000) for name in "esar"})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    whole = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(whole[:-100])
    assert_refused(lambda: read_log(tmp_path / "log.parquet", study), ["write it again"])
    (tmp_path / "log.parquet").write_bytes(whole[:50] + bytes(500) + whole[550:])
    assert_refused(lambda: read_log(tmp_path / "log.parquet", study), ["write it again"])


def test_parts_that_do_not_fit_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(LOG, encoding="utf-8")
    (tmp_path / "b.csv").write_text(LOG.replace("drug", "dose"), encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    assert_refused(lambda: read_log(paths, study), ["b.csv", "[action.drug]: no column 'drug'"])
    (tmp_path / "b.csv").write_text(LOG.replace("b,", "c,").replace("110", "x"), encoding="utf-8")
    # the same episode a comes twice: its rows double, and one of them is in the second file
    parts = ["duplicates: 2 rows", "b.csv lines 2, 3", "not_numbers"]
    assert_refused(lambda: read_log(paths, study), parts[:2])


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (3, ["a table of type int; give a path"]),
        ({"e": [1]}, ["a table of type dict; give a path"]),
        (pd.DataFrame(), ["no column 'e'"]),
        (pd.DataFrame({"e": [], "s": [], "a": [], "r": []}), ["the frame has no rows"]),
        (pd.DataFrame([[1, 1, 1, 1]], columns=list("eesa")), ["two columns are called 'e'"]),
        (
            pd.DataFrame({"e": [1], "s": [[1]], "a": [1], "r": [0]}),
            ["the column 's'", "neither text nor a number"],
        ),
        (
            pd.DataFrame({"e": [1, 1], "s": ["x", object], "a": [1, 1], "r": [0, 0]}),
            [
                "not_numbers: 2 rows have a 's'",
                "row 0 (episode 1), row 1 (episode 1), counted from 0",
            ],
        ),
        (
            pd.DataFrame({"e": [1, 1], "s": [0, 0.5], "a": [1, 1], "r": [0, 0]}),
            ["unknown_levels: 1 row has a 's'", "'0.5'", "row 1 (episode 1), counted from 0"],
        ),
        (
            pa.table({"e": [1, 2, 1, 2], "s": [0] * 4, "a": [0] * 4, "r": [0] * 4}),
            ["order: 2 rows follow rows of another episode", "no time column"],
        ),
        (
            pa.table({"e": [1, 1, 1], "s": [0] * 3, "a": [0] * 3, "r": [None, 1.0, 1.0]}),
            ["missing_reward: 1 row has no reward", "row 0 (episode 1), counted from 0"],
        ),
    ],
)
def test_broken_frames(source: Any, parts: list[str]) -> None:
    study = {"columns": {"episode": "e", "state": "s", "action": "a", "reward": "r"}}
    assert_refused(lambda: read_log(source, study), parts)


def test_a_study_of_the_wrong_type_is_refused() -> None:
    study: Any = 3
    assert_refused(lambda: read_study(study), ["a study of type int; give the path"])


@pytest.mark.parametrize(
    ("log", "parts"),
    [
        (patient_log(id=["a", "b", " ", "d"]), ["an episode has an empty id", "give it a name"]),
        (patient_log(id=["a", "b", "\ud800", "d"]), ["character that cannot be written as UTF-8"]),
        (patient_log(none_name="\ud800"), ["cannot be written as UTF-8; rename it"]),
    ],
)
def test_episodes_that_no_file_can_hold(tmp_path: Path, log: Episodes, parts: list[str]) -> None:
    assert_refused(lambda: write_episodes(log, tmp_path / "log.csv"), parts)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    log = patient_log()
    assert_refused(lambda: write_episodes(log, tmp_path / "log.txt"), ["end the name in .csv"])
    assert_refused(
        lambda: write_episodes(log, tmp_path / "no" / "log.csv"), ["create it"], FileNotFoundError
    )

"""Hostile and broken files are refused: bombs, bad arrays, damaged audits; odd texts survive."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from butfor import Episodes, Outcome, Variable
from butfor.audit.audit import Audit
from butfor.audit.model import read_clusters
from butfor.log.clusters import fit_clusters
from butfor.log.read import read_log
from butfor.log.study import read_study
from butfor.log.write import write_episodes
from tests.audits import HOSTILE, trade_audit, unseal
from tests.grids import few
from verification.fuzz import attack, is_own
from verification.fuzz_targets import READY, TARGETS

MOST_SECONDS = 30  # of computing; what these files ask for takes many minutes
STUDY: dict[str, Any] = {
    "columns": {"episode": "e", "state": "s", "action": "a", "reward": "r"},
    "side": {"note": {"type": "text"}},
}


@pytest.fixture(scope="module")
def audit() -> Audit:
    return trade_audit(episodes=12, horizon=10)


@pytest.fixture
def folder(audit: Audit, tmp_path: Path) -> Path:
    return unseal(audit.save(tmp_path / "audit"))


def assert_refused(call: Any, *parts: str) -> None:
    """Check that a call is refused quickly, by an error of butfor."""
    started = time.process_time()
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the parts are the match
        call()
    assert time.process_time() - started < MOST_SECONDS
    assert is_own(caught.value), repr(caught.value)
    for part in parts:
        assert part in str(caught.value)


# ------------------------------------------------------------------------------------- fuzzing


INPUTS = {"study": 400, "csv": 200, "csv_study": 200, "parquet": 200}


@pytest.mark.parametrize(
    ("name", "inputs"),
    few([*((name, 80) for name in INPUTS), *INPUTS.items()], len(INPUTS)),
)
def test_some_broken_inputs_of_each_kind_are_read_or_refused_by_us(name: str, inputs: int) -> None:
    result = attack(name, TARGETS[name].feed, 0, range(inputs), seconds=10)
    assert result.findings == []
    assert 0 < result.read < inputs


def test_an_error_of_a_library_is_not_taken_for_ours(tmp_path: Path) -> None:
    def feed(rng: random.Random, folder: Path) -> None:
        np.zeros(3).reshape(2, 2)

    result = attack("library", feed, 0, range(2))
    assert len(result.findings) == 2
    assert "verification.fuzz library 0 0" in result.findings[0]


def test_what_takes_too_long_is_found() -> None:
    def feed(rng: random.Random, folder: Path) -> None:
        while True:
            rng.random()

    result = attack("slow", feed, 0, range(1), seconds=0.2)
    assert "took too long" in result.findings[0]


# --------------------------------------------------------------------------------------- bombs


def test_a_packed_csv_that_grows_absurdly_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"0" * 50_000_000))  # one line that never ends
    assert_refused(lambda: read_log(path, STUDY), "log.csv.gz", "that would unpack to more than")
    monkeypatch.setattr("butfor.log.files.UNPACKED", 2_000_000)  # not 32: reading rows takes long
    monkeypatch.setattr("butfor.log.files.TIMES", 200)
    path.write_bytes(gzip.compress(b"e,s,a,r,note\n" + b"1,0,0,0,\n" * 500_000))
    assert_refused(lambda: read_log(path, STUDY), "log.csv.gz", "that would unpack to more than")


def test_an_ordinary_packed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"e,s,a,r,note\n1,0,0,0,x\n1,1,1,2,\n1,0,,0,\n"))
    assert len(read_log(path, STUDY).episodes) == 1


def test_parquet_with_absurdly_many_rows_is_refused(tmp_path: Path) -> None:
    path, count = tmp_path / "log.parquet", 5_000_000
    table = pa.table(
        {name: pa.repeat(0, count) for name in "esar"} | {"note": pa.repeat("", count)}
    )
    pa.parquet.write_table(table, path, row_group_size=count, max_rows_per_page=count)
    assert path.stat().st_size < count / 100
    assert_refused(
        lambda: read_log(path, STUDY), "5,000,000 rows in", "check where the file comes from"
    )


def test_parquet_with_one_text_in_absurdly_many_rows_is_refused(tmp_path: Path) -> None:
    path, count = tmp_path / "log.parquet", 100_000
    note = pa.DictionaryArray.from_arrays(pa.repeat(0, count).cast("int32"), ["x" * 50_000])
    columns = {name: pa.repeat(0, count) for name in "esar"} | {"note": note}
    pa.parquet.write_table(pa.table(columns), path, store_schema=False)
    assert_refused(
        lambda: read_log(path, STUDY), "log.parquet", "would unpack to more than 5,000 MB"
    )


def test_numbered_states_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("e,s,a,r,note\n1,2000000000,0,0,\n1,0,,0,\n")
    assert_refused(lambda: read_log(path, STUDY), "unknown_levels", "2000000000", "line 2")
    columns = STUDY["columns"] | {"states": 2_000_000_000}
    assert_refused(lambda: read_study(STUDY | {"columns": columns}), "at most 1,000,000")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000, "x = 1\n" * 200_000])
def test_a_study_file_without_end_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    assert_refused(lambda: read_study(path), "study.toml")


def test_digits_without_end_take_no_time(tmp_path: Path) -> None:
    digits = "9" * 100_000 + "x"
    log = tmp_path / "log.csv"
    log.write_text(f"e,s,a,r,note\n1,{digits},0,0,\n1,0,,0,\n")
    assert_refused(lambda: read_log(log, STUDY), "not_numbers", "line 2")
    columns = STUDY["columns"] | {"time": "t", "time_step": digits}
    assert_refused(lambda: read_study(STUDY | {"columns": columns}), "is not a time step")


# ------------------------------------------------------------------------- files of named arrays


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def stored(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def rewrite(path: Path, **changed: Any) -> None:
    np.savez(path, **(stored(path) | changed))


def test_a_model_file_is_never_unpickled(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    rewrite(folder / "model.npz", reward=np.array([Trap(trap)], dtype=object))
    assert_refused(lambda: Audit.load(folder), "model.npz", "reward contains Python objects")
    (folder / "model.npz").write_bytes(pickle.dumps(Trap(trap)))
    assert_refused(lambda: Audit.load(folder), "model.npz: damaged", "restore the folder")
    assert not trap.exists()


def test_arrays_that_promise_absurd_sizes_are_refused(folder: Path) -> None:
    path = folder / "model.npz"
    arrays = stored(path)
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.save(one, array)
            file.writestr(f"{name}.npy", (header if name == "reward" else one).getvalue())
    assert_refused(lambda: Audit.load(folder), "reward should have shape (1000000000000,)")
    np.savez_compressed(path, **arrays)
    assert_refused(lambda: Audit.load(folder), "is compressed")


MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "next state out of range": ({"next_state": lambda a: a + 99}, "next_state has values outside"),
    "start falls": ({"start": lambda a: a[::-1]}, "start does not increase"),
    "sums": ({"probability": lambda a: a * 0.9}, "probability: row 0 sums to 0.9"),
    "negative": ({"probability": lambda a: a - 2}, "has an invalid probability"),
    "nan": ({"reward": lambda a: a * np.nan}, "non-finite value"),
    "short": ({"labels": lambda a: a[:-1]}, "labels has shape"),
    "labels": ({"labels": lambda a: a * 0}, "labels do not increase"),
    "first": ({"initial": lambda a: a * 2}, "initial: row 0 sums to 2"),
    "text": ({"counts": lambda a: a.astype(str)}, "counts contains values of type"),
    "policy": ({"target": lambda a: a[:, :1]}, "target has shape (12, 1)"),
    "no policy": ({"behavior": lambda a: a * 3}, "behavior: state 0 sums to 3"),
}


@pytest.mark.parametrize(("changes", "words"), MODELS.values(), ids=MODELS)
def test_a_model_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    path = folder / "model.npz"
    old = stored(path)
    rewrite(path, **{name: change(old[name]) for name, change in changes.items()})
    assert_refused(lambda: Audit.load(folder), "model.npz", words, "restore the folder")


def test_clusters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(30, 2))
    path = tmp_path / "clusters.npz"
    np.savez(path, **fit_clusters(values, ["x", "y"], 3).arrays())
    assert len(read_clusters(path)) == 3
    rewrite(path, scale=np.zeros(2))
    assert_refused(lambda: read_clusters(path), "scale has a value that is not positive")
    rewrite(path, mean=np.zeros(3))
    assert_refused(lambda: read_clusters(path), "mean has shape (3,), not (2,)")


# --------------------------------------------------------------------------------------- audits


def put(name: str, *values: Any) -> Any:
    """Return a function that puts a value in some column's first row."""

    def change(table: pd.DataFrame) -> pd.DataFrame:
        table[name] = [*values, *table[name].tolist()[len(values) :]]
        return table

    return change


FRAMES: dict[str, tuple[str, Any, str]] = {
    "no column": ("episodes", lambda t: t.drop(columns="rank"), "has no column 'rank'"),
    "text": ("steps", lambda t: t.assign(state="x"), "'state' has the type"),
    "nested": (
        "steps",
        lambda t: t.assign(**{"state.van": [{"x": 1}] * len(t)}),
        "'state.van' has the type object",
    ),
    "fewer rows": ("episodes", lambda t: t[1:], "11 rows, but meta.json counts 12"),
    "fewer steps": ("steps", lambda t: t[1:], "rows, expected"),
    "order": ("steps", lambda t: t[::-1], "episodes are not those of episodes.parquet"),
    "state": ("steps", put("state", 99), "row 0: state is 99, outside 0..11"),
    "action": ("steps", put("action", 3), "row 0: action is 3, outside 0..2"),
    "outcome": ("episodes", put("observed_outcome", "lost"), "observed_outcome has a value that"),
    "draw": ("draws", put("draw", 10**9), "row 0: draw is 1000000000, outside 0..1"),
    "stranger": ("courses", put("id", "nobody"), "has ids that are not in episodes.parquet"),
    "cells": ("decomposition", lambda t: t[:2], "one row for each pair"),
}


@pytest.mark.parametrize(("name", "change", "words"), FRAMES.values(), ids=FRAMES)
def test_a_table_that_does_not_fit_is_refused(
    folder: Path, name: str, change: Any, words: str
) -> None:
    path = folder / f"{name}.parquet"
    change(pd.read_parquet(path)).to_parquet(path, index=False)
    assert_refused(lambda: Audit.load(folder), f"{name}.parquet", words, "restore the folder")


METAS: dict[str, tuple[Any, str]] = {
    "no key": (lambda m: m.pop("none"), "none: Field required"),
    "type": (lambda m: m.update(counts=3), "counts: Input should be an object"),
    "horizon": (
        lambda m: m["parameters"].update(horizon=10**9),
        "horizon: Input should be less than or equal to 1000000",
    ),
    "bool": (
        lambda m: m["counts"].update(episodes=True),
        "episodes: Input should be a valid integer",
    ),
    "levels": (
        lambda m: m["variables"]["state"][0].update(levels=[1]),
        "levels 0: Input should be a valid string",
    ),
}


@pytest.mark.parametrize(("change", "words"), METAS.values(), ids=METAS)
def test_a_meta_that_lacks_something_is_refused(folder: Path, change: Any, words: str) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)
    (folder / "meta.json").write_text(json.dumps(meta))
    assert_refused(lambda: Audit.load(folder), "meta.json", words, "restore the folder")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\ufeff{}", "\x00"])
def test_a_meta_that_is_no_json_is_refused(folder: Path, text: str) -> None:
    (folder / "meta.json").write_text(text)
    assert_refused(lambda: Audit.load(folder), "meta.json", "restore the folder")


def test_each_file_cut_short_is_refused(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for size in (0, 1, len(data) // 2, len(data) - 3):
            path.write_bytes(data[:size])
            assert_refused(lambda: Audit.load(folder), path.name)
        path.write_bytes(data)
    Audit.load(folder)


# ---------------------------------------------------------------------------------- round trips

strange_texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8
).filter(lambda text: text.strip() and text == text.strip())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(strange_texts, min_size=9, max_size=9, unique_by=str.casefold),
    ending=st.sampled_from([".csv", ".parquet"]),
)
def test_a_log_of_strange_texts_comes_back(tmp_path: Path, texts: list[str], ending: str) -> None:
    assume(texts[0] not in ("none", "none so far"))  # which stand for no outcome, and are refused
    log = Episodes.from_arrays(
        [0, 1, 0],
        [0, 1, 1],
        [1, 0, 1],
        offsets=[0, 2, 3],
        outcome=[0, -1],
        outcomes=[Outcome(texts[0], 1.0)],
        states=[Variable(texts[1], (texts[2], texts[3]))],
        actions=[Variable(texts[4], (texts[5], texts[6]))],
        id=np.array(texts[7:], dtype=object),
        none_name="none so far",
        horizon=4,
    )
    study = write_episodes(log, tmp_path / f"log{ending}")
    again = read_log(tmp_path / f"log{ending}", study).episodes
    assert again.id.tolist() == log.id.tolist()
    assert again.state.tolist() == log.state.tolist()
    assert again.action.tolist() == log.action.tolist()
    assert again.outcome.tolist() == log.outcome.tolist()
    assert again.state_variables == log.state_variables
    assert again.action_variables == log.action_variables
    assert again.outcomes == log.outcomes


def test_an_audit_of_hostile_texts_comes_back(tmp_path: Path) -> None:
    audit = trade_audit(
        episodes=12,
        horizon=10,
        noun=HOSTILE,
        state=(HOSTILE, "w" * 300),
        text=HOSTILE,
        ids=lambda count: [f"{HOSTILE}/{i}" for i in range(count)],
    )
    again = Audit.load(audit.save(tmp_path / "audit"))
    assert again.meta == audit.meta
    pd.testing.assert_frame_equal(again.episodes, audit.episodes, check_dtype=False)
    np.testing.assert_array_equal(again.log().state, audit.log().state)


def test_the_good_input_of_the_fuzzer_is_good() -> None:
    assert read_study(READY).columns.states == 4

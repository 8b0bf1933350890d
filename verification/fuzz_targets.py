"""The readers under attack: good input of each kind, how it is corrupted, and its reader."""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import math
import random
import re
import tempfile
import tomllib
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import sklearn.cluster  # noqa: F401  so that no input waits for it

from butfor import run_audit
from butfor.audit.audit import Audit
from butfor.audit.model import read_clusters
from butfor.hidden import TabularPOMDP
from butfor.log.clusters import fit_clusters
from butfor.log.draft import draft_study
from butfor.log.read import read_log
from butfor.log.study import read_study
from butfor.log.write import write_toml
from tests.audits import trade_audit, unseal
from verification.fuzz import TEXTS, Feed, mutate_bytes, mutate_words


class Target(NamedTuple):
    """A reader, and the number of inputs that `make verify` gives it."""

    feed: Feed
    inputs: int
    prepare: Callable[[], object] = lambda: None  # work that no single input should wait for


# study files

STUDY: dict[str, Any] = {
    "columns": {"episode": "stay", "time": "hour", "time_step": 4, "outcome": "end"},
    "state": {
        "pulse": {"cuts": [60, 100], "names": ["low", "fine", "high"], "normal": [60, 100]},
        "sex": {"levels": ["f", "m"], "static": True, "name": "Sex"},
    },
    "action": {"drug": {"levels": ["none", "full", "2"], "normal": "none"}},
    "outcome": {"died": {"reward": -1, "bad": True}, "home": {"reward": 1.0, "name": "Home"}},
    "side": {"note": {"type": "text"}, "ward": {"levels": ["a", "b"]}, "load": {"type": "number"}},
    "problems": {"no_outcome": "keep"},
    "words": {"episode": "stay", "step": "block", "none": "open"},
    "evaluation": {"horizon": 6, "discount": 0.9, "planning_discount": 0.95},
    "noise": {"labels": ["pulse"]},
}
READY: dict[str, Any] = {
    "columns": {
        "episode": "e",
        "state": "s",
        "states": 4,
        "action": "a",
        "reward": "r",
        "behavior_probability": "p",
        "final_key": "k",
        "time": "t",
        "time_step": "4h",
        "episode_type": "text",
    },
    "problems": {"order": "sort", "duplicates": "drop", "missing_reward": "fill"},
}
LENIENT = {
    "missing_episode": "drop",
    "missing_time": "drop",
    "order": "sort",
    "duplicates": "drop",
    "gaps": "fill",
    "missing_state": "fill",
    "missing_action": "fill",
    "missing_reward": "fill",
    "lost_reward": "drop",
    "unknown_levels": "fill",
    "not_numbers": "drop",
    "after_outcome": "drop",
    "differing_outcomes": "drop",
    "no_outcome": "keep",
    "no_transition": "drop",
    "beyond_horizon": "cut",
}
CLUSTERED: dict[str, Any] = {
    "columns": {"episode": "stay", "outcome": "end"},
    "cluster": {"columns": ["pulse", "load"], "count": 2},
    "action": {"drug": {"levels": ["none", "full", "2"]}},
    "outcome": {"died": {"reward": -1}, "home": {"reward": 1}},
    "problems": LENIENT | {"gaps": "refuse"},
}


def studies() -> list[dict[str, Any]]:
    return [STUDY, STUDY | {"problems": LENIENT}, READY, CLUSTERED]


def strange_value(rng: random.Random) -> Any:
    """Return a value that TOML or JSON can hold."""
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice([-1, 0, 1, 2, 7, 10**6, 2**31 - 1, 2**31, 2**63, 10**30, 10**400])
    if kind == 1:
        return rng.choice([0.0, -0.5, 1.5, 1e308, float("nan"), float("inf"), 5e-324])
    if kind == 2:
        return rng.choice([True, False])
    if kind == 3:
        return [strange_value(rng) for _ in range(rng.randrange(4))]
    if kind == 4:
        return {rng.choice([*TEXTS, "name"]): strange_value(rng) for _ in range(rng.randrange(3))}
    if kind == 5:
        return date(2024, 1, 1)
    return rng.choice([*TEXTS, "pulse", "stay", "drug", "died", "none", "levels", "drop", "4h"])


def mutate_structure(rng: random.Random, content: Any, value: Callable[[Any], Any]) -> Any:
    """Change a few keys and values of nested dictionaries and lists."""
    changed = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(changed))
        if not places:
            break
        holder, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[rng.choice([*TEXTS, *(k for _, k in places if isinstance(k, str))])] = holder[
                key
            ]
        elif kind == 2:
            other, name = rng.choice(places)
            holder[key] = copy.deepcopy(other[name])
        else:
            holder[key] = value(rng)
    return changed


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inside in list(items):
        yield value, key
        if isinstance(inside, dict | list):
            yield from _places(inside)


def feed_study(rng: random.Random, folder: Path) -> None:
    good = rng.choice(studies())
    source: Any
    if rng.random() < 0.6:
        source = mutate_structure(rng, good, strange_value)
        (folder / "study.json").write_text(json.dumps(source, default=str))
    else:
        source = folder / "study.toml"
        text = write_toml(good)
        if rng.random() < 0.5:
            words = re.findall(r"\s+|\w+|.", text)
            text = "".join(mutate_words(rng, words, ["[", "]", "=", '"', ".", "state", "side"]))
            source.write_text(text)
        else:
            source.write_bytes(mutate_bytes(rng, text.encode()))
    study = read_study(source)
    study.state_variables(), study.action_variables(), study.noise_variables()
    study.outcomes(), study.places(), study.text_columns()


# logs

CSV = """stay,hour,pulse,sex,drug,end,note,ward,load
a,0,70,f,none,,"fell, twice",a,1.5
a,4,110,f,full,,,b,2
a,8,90,f,,home,"line
break",a,
b,0,50,m,2,,x,a,3
b,4,70,m,full,died,y,b,4
c,0,70,f,none,,,a,5
c,4,60,f,2,,,a,6
"""
READY_CSV = """e,t,s,a,r,p,k
1,2024-01-01 00:00,0,0,0,0.5,
1,2024-01-01 04:00,1,1,0,0.25,
1,2024-01-01 08:00,3,,1,,3
2,2024-01-01 00:00,2,0,0,0.5,
2,2024-01-01 04:00,0,1,2.5,0.5,7
"""


def log_of(study: dict[str, Any]) -> str:
    return READY_CSV if study is READY else CSV


def feed_csv(rng: random.Random, folder: Path) -> None:
    study = rng.choice(studies()[:3])
    text = log_of(study)
    if rng.random() < 0.6:
        cells = re.findall(r"\n|,|[^,\n]+", text)
        data = "".join(mutate_words(rng, cells, [",", "\n", '"', "a", "2024-01-01"])).encode()
    else:
        data = mutate_bytes(rng, text.encode())
    path = folder / "log.csv"
    if rng.random() < 0.1:
        path = folder / "log.csv.gz"
        data = gzip.compress(data)
        data = mutate_bytes(rng, data) if rng.random() < 0.5 else data
    path.write_bytes(data)
    if rng.random() < 0.1:
        tomllib.loads(draft_study(path))
    else:
        read_log(path, study)


def feed_csv_study(rng: random.Random, folder: Path) -> None:
    """Read a good log with a study in which something is strange."""
    study = rng.choice(studies()[:3])
    changed = mutate_structure(rng, study, strange_value)
    (folder / "study.json").write_text(json.dumps(changed, default=str))
    path = folder / "log.csv"
    path.write_text(log_of(study))
    read_log(path, changed)


def strange_column(rng: random.Random, count: int) -> Any:
    """Return a column of a type that is rare in logs."""
    whole = [rng.choice([0, 1, 2, None]) for _ in range(count)]
    text = [rng.choice(["a", "b", None, "x" * 3000, *TEXTS[:10]]) for _ in range(count)]
    makers: list[Callable[[], Any]] = [
        lambda: pa.nulls(count),
        lambda: pa.array(whole, rng.choice([pa.int8(), pa.uint64(), pa.float32(), pa.float16()])),
        lambda: pa.array(text).dictionary_encode(),
        lambda: pa.array(whole, pa.int64()).dictionary_encode(),
        lambda: pa.array([None if w is None else [w] for w in whole]),
        lambda: pa.array([None if w is None else {"x": w} for w in whole]),
        lambda: pa.array([None if w is None else bool(w) for w in whole]),
        lambda: pa.array([None if t is None else t.encode() + b"\xff" for t in text]),
        lambda: pa.array(text, pa.large_string()),
        lambda: pa.array(
            whole, pa.timestamp(rng.choice(["s", "ns"]), tz=rng.choice([None, "UTC"]))
        ),
        lambda: pa.array([w and w * 4 * 10**18 for w in whole], pa.uint64()),
        lambda: pa.array([w and w * 4 * 10**18 for w in whole], pa.timestamp("us")),
        lambda: pa.array(whole, pa.duration("ms")),
        lambda: pa.array(whole, pa.date32()),
        lambda: pa.array([None if w is None else w * 86399 for w in whole], pa.time32("s")),
        lambda: pa.array(whole, pa.int64()).cast(pa.decimal128(30, 5)),
        lambda: pa.array([[("k", w)] for w in whole], pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([float("nan"), float("inf"), -0.0, 1e308] * count)[:count],
        lambda: pa.array([None if w is None else b"ab" for w in whole], pa.binary(2)),
    ]
    return rng.choice(makers)()


@cache
def parquet_table(ready: bool) -> Any:
    text = READY_CSV if ready else CSV
    options = pa.csv.ParseOptions(newlines_in_values=True)
    return pa.csv.read_csv(io.BytesIO(text.encode()), parse_options=options)


@cache
def parquet_bytes(ready: bool, compression: str) -> bytes:
    file = io.BytesIO()
    pa.parquet.write_table(parquet_table(ready), file, compression=compression)
    return file.getvalue()


def feed_parquet(rng: random.Random, folder: Path) -> None:
    """Read corrupted Parquet, or columns of other types."""
    study = rng.choice(studies()[:3])
    path = folder / "log.parquet"
    if rng.random() < 0.6:
        packed = rng.choice(["none", "snappy", "zstd", "gzip"])
        path.write_bytes(mutate_bytes(rng, parquet_bytes(study is READY, packed)))
    else:
        table = parquet_table(study is READY)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(table.num_columns)
            column = strange_column(rng, table.num_rows)
            table = table.set_column(at, table.column_names[at], column)
        pa.parquet.write_table(table, path, store_schema=rng.random() < 0.7)
    if rng.random() < 0.1:
        tomllib.loads(draft_study(path))
    else:
        read_log(path, study)


def feed_clustered(rng: random.Random, folder: Path) -> None:
    path = folder / "log.csv"
    cells = re.findall(r"\n|,|[^,\n]+", CSV)
    path.write_text("".join(mutate_words(rng, cells, ["5", ",", "9"])))
    read_log(path, CLUSTERED)


# audits

NPY_KINDS = ("f8", "f4", "i8", "i4", "u1", "?", "U3", "c16", "O", "M8[s]")


@cache
def audit_folders() -> list[dict[str, bytes]]:
    """Return the files of small audits, with clusters and with hidden states."""
    audit = trade_audit(episodes=12, horizon=10)
    values = np.random.default_rng(0).normal(size=(30, 2))
    clustered = replace(audit, clusters=fit_clusters(values, ["x", "y"], 3))
    found = []
    for number, one in enumerate((clustered, _hidden(audit))):
        with tempfile.TemporaryDirectory() as name:
            folder = unseal(one.save(Path(name, str(number))))  # a checksum would stop everything
            found.append({path.name: path.read_bytes() for path in folder.iterdir()})
    return found


def _hidden(audit: Audit) -> Audit:
    """Return the same audit with a model of the kind that has hidden states."""
    log = audit.log()
    model = TabularPOMDP.from_mdp(
        audit.model, states=log.state_variables, actions=log.action_variables
    )
    return run_audit(log, model, audit.target, flags=4, draws=2, resamples=5)


def spoil_arrays(rng: random.Random, data: bytes) -> bytes:
    """Change one array of an .npz: its shape, type or a value; or make it huge or compressed."""
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(list(arrays))
    array, kind = arrays[name], rng.randrange(7)
    if kind == 0 and array.size:
        flat = array.reshape(-1).copy()
        strange = [-1, 0, 1, 7, 10**6, 2**31 - 1, 2**62, math.nan, math.inf, 0.3]
        with np.errstate(all="ignore"):
            flat[rng.randrange(flat.size)] = np.array(rng.choice(strange)).astype(flat.dtype)
        arrays[name] = flat.reshape(array.shape)
    elif kind == 1:
        arrays[name] = array.reshape(-1)[: rng.randrange(array.size + 1)]
    elif kind == 2:
        arrays[name] = np.zeros(
            rng.choice([(), (0,), (2, 2, 2), array.shape]), rng.choice(NPY_KINDS)
        )
    elif kind == 3:
        del arrays[name]
    elif kind == 4:
        arrays[name] = np.array([{"a": 1}, Path("x")], dtype=object)
    elif kind == 5:
        arrays[name] = arrays[rng.choice(list(arrays))]
    file_of = io.BytesIO()
    if kind == 6:
        header = io.BytesIO()
        shape = rng.choice([(10**10,), (2**62, 4), (-1,), (10**5, 10**5)])
        about = {"descr": rng.choice(["<f8", "|O", "<U99999999"]), "fortran_order": False}
        np.lib.format.write_array_header_1_0(header, about | {"shape": shape})
        with zipfile.ZipFile(file_of, "w", rng.choice([0, 8])) as packed:
            for key, value in arrays.items():
                one = io.BytesIO()
                np.save(one, value)
                packed.writestr(f"{key}.npy", (header if key == name else one).getvalue())
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rng.choice([np.savez, np.savez, np.savez, np.savez_compressed])(file_of, **arrays)
    return file_of.getvalue()


def spoil_table(rng: random.Random, data: bytes) -> bytes:
    """Change a column of a Parquet table, one of its values, or the rows."""
    table = pa.parquet.read_table(io.BytesIO(data))
    at = rng.randrange(table.num_columns)
    name, kind = table.column_names[at], rng.randrange(6)
    if kind == 0:
        table = table.remove_column(at)
    elif kind == 1:
        table = table.set_column(at, name, strange_column(rng, table.num_rows))
    elif kind == 2:
        table = table.slice(rng.randrange(table.num_rows + 1), rng.randrange(table.num_rows + 1))
    elif kind == 3:
        other = rng.choice(table.column_names)
        table = table.set_column(at, name, table.column(other))
    elif kind == 4:
        table = pa.concat_tables([table, table])
    else:
        cells = table.column(at).to_pylist()
        strange = [-1, 0, 10**6, 2**40, math.nan, None, "x", 0.5]
        if cells:
            cells[rng.randrange(len(cells))] = rng.choice(strange)
        with contextlib.suppress(pa.ArrowException, TypeError, OverflowError):
            table = table.set_column(at, name, pa.array(cells, table.column(at).type))
    file = io.BytesIO()
    pa.parquet.write_table(table, file)
    return file.getvalue()


def json_value(rng: random.Random) -> Any:
    value = strange_value(rng)
    return None if isinstance(value, date) else value


def feed_audit(rng: random.Random, folder: Path) -> None:
    files = dict(rng.choice(audit_folders()))
    name = rng.choice([*files, "meta.json", "model.npz"])
    kind = rng.random()
    if kind < 0.3:
        files[name] = mutate_bytes(rng, files[name])
    elif kind < 0.35:
        files[name] = files[rng.choice(list(files))]
    elif name == "meta.json":
        meta = mutate_structure(rng, json.loads(files[name]), json_value)
        files[name] = json.dumps(meta, default=str).encode()
    elif name.endswith(".npz"):
        files[name] = spoil_arrays(rng, files[name])
    else:
        files[name] = spoil_table(rng, files[name])
    for key, content in files.items():
        (folder / key).write_bytes(content)
    audit = Audit.load(folder, shown=rng.random() < 0.5)
    audit.log()
    audit.outcome_table()
    for identifier in audit.draws["id"].unique()[:1]:
        audit.trajectory(identifier)
    if audit.clusters is not None:
        audit.clusters.table()


def feed_clusters(rng: random.Random, folder: Path) -> None:
    path, data = folder / "clusters.npz", audit_folders()[0]["clusters.npz"]
    path.write_bytes(rng.choice([mutate_bytes, spoil_arrays])(rng, data))
    clusters = read_clusters(path)
    clusters.table()
    clusters.assign(np.zeros((3, len(clusters.columns))))


TARGETS = {
    "study": Target(feed_study, 60_000),
    "csv": Target(feed_csv, 30_000),
    "csv_study": Target(feed_csv_study, 6_000),
    "parquet": Target(feed_parquet, 8_000),
    "clustered": Target(feed_clustered, 500),
    "clusters": Target(feed_clusters, 4_000, audit_folders),
    "audit": Target(feed_audit, 3_000, audit_folders),
}

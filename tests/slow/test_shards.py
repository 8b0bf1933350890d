"""Logs in shards: the same tables whatever the shards and threads, and the same as in memory."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from butfor.audit.audit import Audit
from butfor.audit.settings import AuditSettings
from butfor.audit.shards import Threads, audit_shards
from butfor.audit.shards.parts import parts_folder
from butfor.audit.source import audit_log
from butfor.cli.main import app
from tests.grids import few
from tests.shard_logs import FEW, check_same, rewrite, simulate_few, write_shards

EPISODES = 90


@pytest.fixture(scope="module")
def log():
    return simulate_few(EPISODES)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture(scope="module")
def shards(log, place):
    """The same log in one file, in 4 and 15 consecutive ones, and dealt out over 4."""
    everyone = np.arange(EPISODES)
    return {
        "one": write_shards(log, place / "one", [everyone]),
        "four": write_shards(log, place / "four", np.array_split(everyone, 4)),
        "many": write_shards(log, place / "many", np.array_split(everyone, 15)),
        "dealt": write_shards(log, place / "dealt", [everyone[i::4] for i in range(4)]),
    }


@pytest.fixture(scope="module")
def study(shards, place):
    return place / "study.toml"


@pytest.fixture(scope="module")
def plain(shards, study, place):
    """The audit of the one file, by one thread."""
    return audit_shards(shards["one"], study, place / "plain", FEW, workers=Threads(1))


@pytest.fixture(scope="module")
def usual(shards, study, place):
    """The same with the bounds of every episode, and as many to review as there usually are."""
    settings = AuditSettings(rehearsal=False)
    return audit_shards(shards["one"], study, place / "usual", settings, workers=Threads(1))


def in_full(settings):
    """The same settings for an audit in full detail, without credible intervals."""
    left_out = ("detail", "checksums")
    return {k: v for k, v in vars(settings).items() if k not in left_out} | {"models": 0}


@pytest.mark.parametrize(
    ("name", "threads"),
    few([("four", 2), ("dealt", 1), ("one", 2), ("four", 1), ("many", 2), ("dealt", 2)], 2),
)
def test_tables_are_the_same_whatever_the_shards_and_threads(
    name, threads, shards, study, plain, tmp_path
):
    out = audit_shards(shards[name], study, tmp_path / "audit", FEW, workers=Threads(threads))
    check_same(out, plain)
    assert not parts_folder(out).exists()


def test_an_audit_in_shards_is_the_audit_in_memory(shards, study, usual):
    found = Audit.load(usual)
    known = audit_log(shards["one"] / "part-000.parquet", study, models=0, rehearsal=False)
    numbers = [name for name in found.episodes if found.episodes[name].dtype.kind in "if"]
    shown = (found.episodes["rank"] > 0) | found.episodes["control"]
    assert 0 < shown.sum() < EPISODES
    for name in found.episodes:
        rows = shown if found.episodes[name].isna().any() else slice(None)
        ours, theirs = found.episodes.loc[rows, name], known.episodes.loc[rows, name]
        if name in numbers:
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=name)
        else:
            assert (ours == theirs).all(), name
    pd.testing.assert_frame_equal(found.steps, known.steps)
    pd.testing.assert_frame_equal(found.draws, known.draws)
    pd.testing.assert_frame_equal(found.courses, known.courses, rtol=0, atol=1e-12)
    pd.testing.assert_frame_equal(found.decomposition, known.decomposition, rtol=0, atol=1e-11)
    ours, theirs = (a.estimates.set_index("estimator")["value"] for a in (found, known))
    for name in ("Observed", "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MB", "CF"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-12), name
    lights = [a.diagnostics.set_index("check")["value"] for a in (found, known)]
    same = ("overlap", "effective sample size", "episodes left", "mean importance weight")
    for name in (*same, "rare rows", "estimators disagree", "the past still matters"):
        assert lights[0][name] == pytest.approx(lights[1][name], abs=1e-12), name
    assert lights[0]["influence"] == pytest.approx(lights[1]["influence"], abs=0.0005)
    for key in (
        "counts",
        "design",
        "variables",
        "outcome_details",
        "parameters",
        "words",
        "problems",
    ):
        assert getattr(found.meta, key) == getattr(known.meta, key), key


def test_bounds_of_those_to_review_and_of_a_sample_in_memory_and_in_shards(shards, study, plain):
    """The same episodes are drawn, and the same bounds found, however the log is read."""
    found = Audit.load(plain).episodes
    known = audit_log(shards["one"] / "part-000.parquet", study, **in_full(FEW))
    bounded = found["low_any"].notna()
    assert bounded[(found["rank"] > 0) | found["control"]].all()
    assert 20 <= bounded.sum() <= 32
    assert (found["survives"].notna() == bounded).all()
    names = [name for name in found if name.endswith(("_any", "_stable"))]
    assert (known.episodes[names].notna().all(axis=1) == bounded).all()
    np.testing.assert_allclose(found[names], known.episodes[names], rtol=0, atol=1e-12)
    assert known.meta.parameters.intervals == 20
    assert sum("drawn at random" in warning for warning in known.meta.warnings) == 1


def test_every_episode_of_a_small_log_has_bounds(usual):
    audit = Audit.load(usual)
    assert audit.episodes["low_any"].notna().all()
    assert audit.meta.parameters.intervals == EPISODES
    assert not any("drawn at random" in warning for warning in audit.meta.warnings)


def as_text(log):
    """The log with names that are text, some of them awkward."""
    names = np.array([f"stay {i % 7} – {i}" for i in range(EPISODES)], dtype=object)
    names[0], names[1], names[2] = "0", "a\0", "ﬁ <b>"
    return replace(log, id=names)


def test_names_may_be_any_text(log, tmp_path):
    text, everyone = as_text(log), np.arange(EPISODES)
    one = write_shards(text, tmp_path / "one", [everyone])
    dealt = write_shards(text, tmp_path / "dealt", [everyone[i::4] for i in range(4)])
    study = tmp_path / "study.toml"
    first = audit_shards(one, study, tmp_path / "first", FEW, workers=Threads(1))
    check_same(audit_shards(dealt, study, tmp_path / "second", FEW), first)
    found = Audit.load(first)
    assert found.episodes["id"].tolist() == sorted(text.id)
    assert set(found.draws["id"]) <= set(text.id)


def test_a_given_target_and_other_rules(log, shards, study, plain, tmp_path):
    """Options that change what is learned: a table as target, a prior, noise on labels."""
    target = Audit.load(plain, shown=True).target
    state, action = np.nonzero(target)
    table = pd.DataFrame({"state": state, "action": action, "probability": target[state, action]})
    table.to_csv(tmp_path / "target.csv", index=False)
    settings = AuditSettings(
        target=tmp_path / "target.csv",
        unseen="self-loop",
        smoothing=0.5,
        mechanism="maximal",
        flags=7,
        review_size=14,
        draws=2,
        intervals=20,
        rehearsal=False,
        seed=5,
    )
    first = audit_shards(shards["one"], study, tmp_path / "one", settings, workers=Threads(1))
    check_same(audit_shards(shards["dealt"], study, tmp_path / "dealt", settings), first)
    found = Audit.load(first)
    known = audit_log(shards["one"] / "part-000.parquet", study, **in_full(settings))
    assert "CF (cross-fitted)" not in set(found.estimates["estimator"])
    for name in ("expected_return", "unsupported", "thin_share", "rank", "first_change"):
        np.testing.assert_allclose(
            found.episodes[name], known.episodes[name], rtol=0, atol=1e-12, err_msg=name
        )
    flagged = found.episodes["rank"] > 0
    assert (found.episodes["reason"] == known.episodes["reason"])[flagged].all()


def test_no_review_no_flags_and_no_controls(shards, study, tmp_path):
    found = Audit.load(
        audit_shards(shards["one"], study, tmp_path / "audit", replace(FEW, review_size=0))
    )
    assert not found.episodes["rank"].any()
    assert not found.episodes["control"].any()
    assert len(found.draws) == len(found.courses) == 0


def test_a_log_of_numbered_states_without_outcomes(tmp_path):
    """How many states there are is known only when all shards were counted."""
    generator = np.random.default_rng(2)
    rows = [
        (stay, step, int(generator.integers(3 + stay // 20)), int(generator.integers(2)), step / 3)
        for stay in range(60)
        for step in range(2 + stay % 4)
    ]
    frame = pd.DataFrame(rows, columns=["stay", "hour", "state", "action", "gain"])
    study = tmp_path / "study.toml"
    study.write_text(
        '[columns]\nepisode = "stay"\ntime = "hour"\nstate = "state"\naction = "action"\n'
        'reward = "gain"\n[problems]\nlost_reward = "drop"\ndrop_at_most = 1\n'
    )
    for name, groups in (
        ("one", [frame["stay"] >= 0]),
        ("three", [frame["stay"] // 20 == i for i in range(3)]),
    ):
        (tmp_path / name).mkdir()
        for number, mask in enumerate(groups):
            frame[mask].to_parquet(tmp_path / name / f"{number}.parquet", index=False)
    settings = replace(FEW, unseen="self-loop")
    one = audit_shards(tmp_path / "one", study, tmp_path / "first", settings, workers=Threads(1))
    check_same(audit_shards(tmp_path / "three", study, tmp_path / "second", settings), one)
    found = Audit.load(one)
    known = audit_log(tmp_path / "one" / "0.parquet", study, **in_full(settings))
    assert found.model.n_states == known.model.n_states == 5
    np.testing.assert_allclose(
        found.episodes["expected_return"], known.episodes["expected_return"], rtol=0, atol=1e-12
    )
    assert found.meta.warnings[0] == known.meta.warnings[0].replace("at row 0: ", "in ")


def test_an_episode_in_two_files_is_refused_with_its_name(log, study, tmp_path):
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 5))
    first, fourth = folder / "part-000.parquet", folder / "part-003.parquet"
    row = pq.read_table(first).slice(0, 3)
    rewrite(fourth, lambda table: pa.concat_tables([table, row]))
    name = row.column("episode")[0].as_py()
    with pytest.raises(ValueError, match=rf"episode {name} is in two files, part-000.*part-003"):
        audit_shards(folder, study, tmp_path / "audit")


def test_files_with_other_columns_or_types_are_refused(log, study, tmp_path):
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 3))
    last = folder / "part-002.parquet"
    whole = last.read_bytes()
    rewrite(last, lambda table: table.drop_columns("outcome"))
    with pytest.raises(ValueError, match=r"part-002\.parquet: columns are missing"):
        audit_shards(folder, study, tmp_path / "audit")
    last.write_bytes(whole)
    names = pq.read_table(last).column_names
    rewrite(
        last,
        lambda table: table.set_column(
            names.index("episode"), "episode", table.column("episode").cast(pa.string())
        ),
    )
    with pytest.raises(ValueError, match="'episode' has different types"):
        audit_shards(folder, study, tmp_path / "audit")


def test_clusters_and_credible_intervals_are_refused_by_name(shards, study, tmp_path):
    result = CliRunner().invoke(
        app,
        [
            *("audit", str(shards["four"]), "--study", str(study)),
            *("--out", str(tmp_path / "audit"), "--models", "50"),
            *("--detail", "summary"),
        ],
    )
    assert result.exit_code == 2
    assert "credible intervals" in result.output
    text = study.read_text() + '\n[cluster]\ncolumns = ["heart rate"]\ncount = 3\n'
    (tmp_path / "clustered.toml").write_text(text)
    with pytest.raises(ValueError, match=r"\[cluster\]"):
        audit_shards(shards["four"], tmp_path / "clustered.toml", tmp_path / "audit")


def test_weights_beyond_measure_are_summed_all_the_same(tmp_path):
    """A hundred and seventy steps, each of which doubles the weight of those who follow."""
    steps = 170
    rows = [
        (stay, step, "on" if stay % 2 else "off", "home" if (step == steps - 1) else None)
        for stay in range(12)
        for step in range(steps)
    ]
    frame = pd.DataFrame(rows, columns=["stay", "hour", "drug", "end"]).assign(place="ward")
    frame.loc[(frame["stay"] % 3 == 0) & (frame["hour"] == steps - 1), "end"] = "died"
    (tmp_path / "log").mkdir()
    for half in range(2):
        some = frame[frame["stay"] // 6 == half]
        some.to_parquet(tmp_path / "log" / f"{half}.parquet", index=False)
    frame.to_parquet(tmp_path / "all.parquet", index=False)
    study = tmp_path / "study.toml"
    study.write_text(
        '[columns]\nepisode = "stay"\ntime = "hour"\noutcome = "end"\n'
        '[state.place]\nlevels = ["ward"]\n[action.drug]\nlevels = ["off", "on"]\n'
        "[outcome.died]\nreward = -1\n[outcome.home]\nreward = 1\n"
    )
    target = pd.DataFrame({"place": ["ward"], "drug": ["off"], "probability": [1.0]})
    target.to_csv(tmp_path / "target.csv", index=False)
    settings = replace(FEW, target=tmp_path / "target.csv", flags=2)
    found = Audit.load(audit_shards(tmp_path / "log", study, tmp_path / "audit", settings))
    known = audit_log(tmp_path / "all.parquet", study, **in_full(settings))
    ours, theirs = (a.estimates.set_index("estimator") for a in (found, known))
    for name in ours.index:
        assert ours.loc[name, "value"] == pytest.approx(theirs.loc[name, "value"]), name
        assert ours.loc[name, "effective"] == pytest.approx(theirs.loc[name, "effective"]), name


def test_empty_files_and_files_of_which_nothing_is_left(log, study, tmp_path):
    """Both are left out, as their rows would be if all stood in one file."""
    text = study.read_text().replace(
        "[problems]", '[problems]\ndrop_at_most = 1\nunknown_levels = "drop"'
    )
    (tmp_path / "dropping.toml").write_text(text)
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 4))
    rewrite(folder / "part-001.parquet", lambda table: table.slice(0, 0))

    def spoil(table):
        place = table.column_names.index("heart rate")
        return table.set_column(place, "heart rate", pa.array(["?"] * len(table)))

    rewrite(folder / "part-002.parquet", spoil)
    out = audit_shards(folder, tmp_path / "dropping.toml", tmp_path / "audit", FEW)
    found = Audit.load(out)
    first, _, dropped, last = np.array_split(np.arange(EPISODES), 4)
    assert found.meta.problems["unknown_levels: episodes dropped"] == len(dropped)
    rest = np.concatenate([first, last])
    one = write_shards(log.select(rest), tmp_path / "one", [np.arange(len(rest))])
    check_same(out, audit_shards(one, tmp_path / "dropping.toml", tmp_path / "plain", FEW))
    for part in folder.iterdir():
        rewrite(part, spoil)
    with pytest.raises(ValueError, match="no usable episode is left in any file"):
        audit_shards(folder, tmp_path / "dropping.toml", tmp_path / "nothing")
    for part in folder.iterdir():
        rewrite(part, lambda table: table.slice(0, 0))
    with pytest.raises(ValueError, match="no rows"):
        audit_shards(folder, tmp_path / "dropping.toml", tmp_path / "nothing", resume=True)


def test_side_columns_stay_what_they_are_however_the_log_is_cut(log, tmp_path):
    """Long order numbers, missing in some files only, and dates."""
    folder = write_shards(log, tmp_path / "one", [np.arange(EPISODES)])
    text = (tmp_path / "study.toml").read_text() + "\n[side.order]\n[side.day]\n"
    (tmp_path / "side.toml").write_text(text)

    def add(table):
        order = pa.array([None if i % 3 else 2**53 + 1 + i for i in range(len(table))])
        half = len(table) // 2
        order = pa.chunked_array([order.slice(0, half).fill_null(7), order.slice(half)])
        day = pa.array([i % 50 for i in range(len(table))], pa.int32()).cast(pa.date32())
        return table.append_column("order", order).append_column("day", day)

    rewrite(folder / "part-000.parquet", add)
    whole = pq.read_table(folder / "part-000.parquet")
    (tmp_path / "many").mkdir()
    names = np.asarray(whole.column("episode"))
    for number, group in enumerate(np.array_split(np.unique(names), 4)):
        part = whole.filter(pa.array(np.isin(names, group)))
        pq.write_table(part, tmp_path / "many" / f"{number}.parquet")
    study = tmp_path / "side.toml"
    one = audit_shards(folder, study, tmp_path / "first", FEW)
    check_same(audit_shards(tmp_path / "many", study, tmp_path / "second", FEW), one)
    kept = {n.as_py() for n in pq.read_table(one / "steps.parquet").column("side.order")}
    assert kept <= {n.as_py() for n in whole.column("order")} | {None}
    assert max(n for n in kept if n is not None) > 2**53


def test_what_is_wrong_with_options_is_told_before_the_log_is_read(shards, study, tmp_path):
    for settings, told in (
        (AuditSettings(target=tmp_path / "none.csv"), "there is no such file"),
        (AuditSettings(unseen="nonsense"), "unseen 'nonsense'"),
        (AuditSettings(noise_on=["nothing"]), "nothing"),
    ):
        with pytest.raises((ValueError, OSError), match=told):
            audit_shards(shards["four"], study, tmp_path / "audit", settings)
        assert not parts_folder(tmp_path / "audit").exists()
    with pytest.raises(ValueError, match="draws -1"):
        AuditSettings(draws=-1)


def test_awkward_places_for_the_audit(shards, study):
    for out in (".", "/"):
        result = CliRunner().invoke(
            app, ["audit", str(shards["four"]), "--study", str(study), "--out", out]
        )
        assert result.exit_code == 2
        assert "already exists" in result.output

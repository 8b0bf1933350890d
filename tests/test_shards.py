"""Logs in shards: the same tables whatever the shards, threads and workers, and after any stop."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from butfor import sepsis
from butfor.audit import Audit
from butfor.choices import Choices
from butfor.cli import app
from butfor.io.write import write_episodes
from butfor.own_log import audit_log
from butfor.shards import Cluster, Threads, audit_shards
from butfor.shards.parts import parts_folder

EPISODES = 300
TABLES = (
    "estimates",
    "diagnostics",
    "episodes",
    "decomposition",
    "steps",
    "draws",
    "courses",
    "course_steps",
)


@pytest.fixture(scope="module")
def log():
    physician = sepsis.behavior_policy("corrected")
    full = sepsis.simulate(physician, EPISODES, seed=3, version="corrected")
    return full.hide("glucose", "diabetes")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


def write_shards(log, folder, groups):
    folder.mkdir()
    for number, group in enumerate(groups):
        path = folder / f"part-{number:03d}.parquet"
        write_episodes(log.select(group), path, folder.parent / "study.toml")
    return folder


@pytest.fixture(scope="module")
def shards(log, place):
    """The same log in one file, in 10 and 100 consecutive ones, and dealt out over 10."""
    everyone = np.arange(EPISODES)
    return {
        "one": write_shards(log, place / "one", [everyone]),
        "ten": write_shards(log, place / "ten", np.array_split(everyone, 10)),
        "hundred": write_shards(log, place / "hundred", np.array_split(everyone, 100)),
        "dealt": write_shards(log, place / "dealt", [everyone[i::10] for i in range(10)]),
    }


@pytest.fixture(scope="module")
def study(shards, place):
    return place / "study.toml"


@pytest.fixture(scope="module")
def plain(shards, study, place):
    """The audit of the one file, by one thread."""
    return audit_shards(shards["one"], study, place / "plain", workers=Threads(1))


def check_same(folder, other):
    for name in TABLES:
        ours, theirs = (part / f"{name}.parquet" for part in (folder, other))
        assert ours.read_bytes() == theirs.read_bytes(), name
    assert (folder / "model.npz").read_bytes() == (other / "model.npz").read_bytes()


@pytest.mark.parametrize("name", ["one", "ten", "hundred", "dealt"])
@pytest.mark.parametrize("threads", [1, 2])
def test_tables_are_the_same_whatever_the_shards_and_threads(
    name, threads, shards, study, plain, tmp_path
):
    out = audit_shards(shards[name], study, tmp_path / "audit", workers=Threads(threads))
    check_same(out, plain)
    assert not parts_folder(out).exists()


def test_an_audit_in_shards_is_the_audit_in_memory(shards, study, plain):
    found = Audit.load(plain)
    known = audit_log(shards["one"] / "part-000.parquet", study, models=0)
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
    for name in ("overlap", "effective sample size", "episodes left", "rare rows"):
        assert lights[0][name] == pytest.approx(lights[1][name], abs=1e-12), name
    assert lights[0]["influence"] == pytest.approx(lights[1]["influence"], abs=0.0005)
    for key in ("counts", "variables", "outcome_details", "parameters", "words", "problems"):
        assert found.meta[key] == known.meta[key], key


def test_bounds_are_worked_out_for_those_shown_only(plain):
    table = Audit.load(plain).episodes
    shown = (table["rank"] > 0) | table["control"]
    assert table.loc[shown, "low_any"].notna().all()
    assert table.loc[~shown, "low_any"].isna().all()
    assert table.loc[~shown, "survives"].isna().all()


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
    first = audit_shards(one, study, tmp_path / "first", workers=Threads(1))
    check_same(audit_shards(dealt, study, tmp_path / "second"), first)
    found = Audit.load(first)
    assert found.episodes["id"].tolist() == sorted(text.id)
    assert set(found.draws["id"]) <= set(text.id)


def test_a_given_target_and_other_rules(log, shards, study, plain, tmp_path):
    """Options that change what is learned: a table as target, a prior, noise on labels."""
    target = Audit.load(plain, shown=True).target
    state, action = np.nonzero(target)
    table = pd.DataFrame({"state": state, "action": action, "probability": target[state, action]})
    table.to_csv(tmp_path / "target.csv", index=False)
    choices = Choices(
        target=tmp_path / "target.csv",
        unseen="self-loop",
        smoothing=0.5,
        mechanism="maximal",
        flags=7,
        draws=2,
        seed=5,
    )
    first = audit_shards(shards["one"], study, tmp_path / "one", choices, workers=Threads(1))
    check_same(audit_shards(shards["dealt"], study, tmp_path / "dealt", choices), first)
    found = Audit.load(first)
    known = audit_log(shards["one"] / "part-000.parquet", study, models=0, **vars(choices))
    assert "CF (cross-fitted)" not in set(found.estimates["estimator"])
    for name in ("expected_return", "unsupported", "thin_share", "rank", "first_change"):
        np.testing.assert_allclose(
            found.episodes[name], known.episodes[name], rtol=0, atol=1e-12, err_msg=name
        )
    flagged = found.episodes["rank"] > 0
    assert (found.episodes["reason"] == known.episodes["reason"])[flagged].all()


def test_no_flags_no_controls(shards, study, tmp_path):
    found = Audit.load(audit_shards(shards["ten"], study, tmp_path / "audit", Choices(flags=0)))
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
        'reward = "gain"\n[problems]\nlost_reward = "drop"\n'
    )
    for name, groups in (
        ("one", [frame["stay"] >= 0]),
        ("three", [frame["stay"] // 20 == i for i in range(3)]),
    ):
        (tmp_path / name).mkdir()
        for number, mask in enumerate(groups):
            frame[mask].to_parquet(tmp_path / name / f"{number}.parquet", index=False)
    choices = Choices(unseen="self-loop", flags=5)
    one = audit_shards(tmp_path / "one", study, tmp_path / "first", choices, workers=Threads(1))
    check_same(audit_shards(tmp_path / "three", study, tmp_path / "second", choices), one)
    found = Audit.load(one)
    known = audit_log(tmp_path / "one" / "0.parquet", study, models=0, **vars(choices))
    assert found.model.n_states == known.model.n_states == 5
    np.testing.assert_allclose(
        found.episodes["expected_return"], known.episodes["expected_return"], rtol=0, atol=1e-12
    )
    assert found.meta["warnings"][0] == known.meta["warnings"][0].replace("at row 0: ", "in ")


@pytest.fixture(scope="module")
def cluster():
    workers = Cluster(workers=2)
    yield workers
    workers.close()


def test_a_cluster_gives_the_same_tables(cluster, shards, study, plain, tmp_path):
    check_same(audit_shards(shards["ten"], study, tmp_path / "audit", workers=cluster), plain)


def test_a_cluster_that_is_there_already(cluster, shards, study, plain, tmp_path):
    address = cluster.client.scheduler.address
    command = ["audit", shards["dealt"], "--study", study, "--out", tmp_path / "audit"]
    result = CliRunner().invoke(app, [*map(str, command), "--scheduler", address])
    assert result.exit_code == 0, result.output
    check_same(tmp_path / "audit", plain)
    assert cluster.client.nthreads()  # it goes on without us


def test_a_worker_that_is_killed_changes_nothing(cluster, shards, study, plain, tmp_path):
    victims = list(cluster.client.run(os.getpid).values())[:1]

    def kill(done, total):
        if done > 3 and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    out = audit_shards(shards["hundred"], study, tmp_path / "audit", workers=cluster, progress=kill)
    assert not victims
    check_same(out, plain)


class Stopping:
    """Threads that are stopped after some shards, of the first pass or the second."""

    def __init__(self, after):
        self.left = after

    def run(self, work, shards, shared):
        for done in Threads(1).run(work, shards, shared):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield done

    def close(self):
        pass


class Counting:
    """Threads that count the shards that they worked on."""

    def __init__(self):
        self.done = []

    def run(self, work, shards, shared):
        self.done.append(len(shards))
        yield from Threads(2).run(work, shards, shared)

    def close(self):
        pass


def test_what_is_whole_is_not_done_again(shards, study, plain, tmp_path):
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(shards["ten"], study, out, workers=Stopping(14))
    assert not out.exists()
    assert parts_folder(out).is_dir()
    counting = Counting()
    audit_shards(shards["ten"], study, out, workers=counting, resume=True)
    assert counting.done == [0, 6, 10]
    check_same(out, plain)
    assert not parts_folder(out).exists()


def test_an_unfinished_run_is_neither_lost_nor_taken_for_another(shards, study, tmp_path):
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(shards["ten"], study, out, workers=Stopping(22))
    with pytest.raises(FileExistsError, match="--resume"):
        audit_shards(shards["ten"], study, out)
    counting = Counting()
    audit_shards(shards["ten"], study, out, Choices(seed=1), workers=counting, resume=True)
    assert counting.done == [0, 10, 10]  # another seed, other halves
    assert Audit.load(out, shown=True).meta["seed"] == 1


def test_a_file_that_changed_is_counted_anew(log, study, tmp_path):
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 5))
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(folder, study, out, workers=Stopping(12))
    write_episodes(log.select(np.arange(10)), folder / "part-000.parquet", tmp_path / "s.toml")
    counting = Counting()
    audit_shards(folder, study, out, workers=counting, resume=True)
    assert counting.done == [1, 1, 5]
    assert len(Audit.load(out).episodes) == EPISODES - 60 + 10


COMMAND = "from butfor.cli import run; run()"


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_parts(folder, kind, process):
    until = time.monotonic() + 120
    while not list(folder.glob(f"{kind}-*.npz")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_stopped_goes_on(stop, shards, study, plain, tmp_path):
    out = tmp_path / "audit"
    arguments = ["audit", shards["hundred"], "--study", study, "--out", out]
    process = start(*arguments, "--threads", 1)
    wait_for_parts(parts_folder(out), "judge", process)
    process.send_signal(stop)
    told = process.communicate(timeout=60)[0]
    assert not out.exists()
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in told
    whole = len(list(parts_folder(out).glob("judge-*.npz")))
    assert 0 < whole < 100
    process = start(*arguments, "--resume")
    assert process.wait(timeout=120) == 0, process.communicate()[0]
    process.communicate()
    check_same(out, plain)


def test_a_full_disk_is_told_and_leaves_the_old_audit(shards, study, plain, tmp_path):
    out = tmp_path / "audit"
    audit_shards(shards["ten"], study, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)); {COMMAND}"
    )
    arguments = ["audit", shards["ten"], "--study", study, "--out", out, "--overwrite"]
    result = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "Error: " in result.stderr
    assert "--resume" in result.stderr
    assert "Traceback" not in result.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    finished = CliRunner().invoke(app, [*map(str, arguments), "--resume"])
    assert finished.exit_code == 0, finished.output
    check_same(out, plain)


def test_damaged_files_are_named_together(log, study, tmp_path):
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 5))
    for name in ("part-001.parquet", "part-003.parquet"):
        path = folder / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 3] + b"\0" * 40 + whole[len(whole) // 3 + 40 :])
    with pytest.raises(
        ValueError, match=r"2 of 5 files cannot be used(.|\n)*part-001(.|\n)*part-003"
    ):
        audit_shards(folder, study, tmp_path / "audit")
    assert not (tmp_path / "audit").exists()
    for name in ("part-001.parquet", "part-003.parquet"):
        number = int(name[5:8])
        group = np.array_split(np.arange(EPISODES), 5)[number]
        write_episodes(log.select(group), folder / name, tmp_path / "s.toml")
    counting = Counting()
    audit_shards(folder, study, tmp_path / "audit", workers=counting, resume=True)
    assert counting.done[0] == 2


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)


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
    with pytest.raises(ValueError, match="'episode' is of different types"):
        audit_shards(folder, study, tmp_path / "audit")


def test_clusters_and_credible_intervals_are_refused_by_name(shards, study, tmp_path):
    result = CliRunner().invoke(
        app,
        [
            *("audit", str(shards["ten"]), "--study", str(study)),
            *("--out", str(tmp_path / "audit"), "--models", "50"),
        ],
    )
    assert result.exit_code == 2
    assert "credible intervals" in result.output
    text = study.read_text() + '\n[cluster]\ncolumns = ["heart rate"]\ncount = 3\n'
    (tmp_path / "clustered.toml").write_text(text)
    with pytest.raises(ValueError, match=r"\[cluster\]"):
        audit_shards(shards["ten"], tmp_path / "clustered.toml", tmp_path / "audit")


def test_memory_does_not_grow_with_the_number_of_shards(log, study, tmp_path):
    """Five and forty shards of one size: what the process takes at most is much the same."""
    script = (
        "import resource, sys; from butfor.shards import audit_shards, Threads; "
        "audit_shards(sys.argv[1], sys.argv[2], sys.argv[3], workers=Threads(1)); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )

    def peak(count):
        folder = tmp_path / f"log-{count}"
        folder.mkdir()
        for number in range(count):
            group = log.select(np.arange(EPISODES))
            renamed = np.arange(EPISODES) + number * EPISODES
            shard = type(group)(**{**vars(group), "id": renamed})
            write_episodes(shard, folder / f"{number:03d}.parquet", tmp_path / "s.toml")
        arguments = [str(folder), str(tmp_path / "s.toml"), str(tmp_path / f"audit-{count}")]
        result = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
        )
        return int(result.stdout) * 1024

    few, many = peak(5), peak(40)
    steps = 35 * len(log.state)
    assert many - few < 60 * steps  # less than the rows of the further shards alone would take

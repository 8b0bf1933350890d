"""Logs in shards: lost workers, stops and damage change nothing, and nothing is lost."""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from butfor.audit.audit import Audit
from butfor.audit.shards import Cluster, Threads, audit_shards
from butfor.audit.shards import log as log_module
from butfor.audit.shards.parts import Parts, parts_folder
from butfor.cli.main import app
from butfor.log.write import write_episodes
from tests.damage import flip
from tests.grids import few
from tests.processes import start
from tests.shard_logs import FEW, SUMMARY, check_same, simulate_few, write_shards

EPISODES = 60


@pytest.fixture(scope="module")
def log():
    return simulate_few(EPISODES)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


@pytest.fixture(scope="module")
def shards(log, place):
    """The same log in one file, in five, and dealt out over eight."""
    everyone = np.arange(EPISODES)
    return {
        "one": write_shards(log, place / "one", [everyone]),
        "five": write_shards(log, place / "five", np.array_split(everyone, 5)),
        "eight": write_shards(log, place / "eight", [everyone[i::8] for i in range(8)]),
    }


@pytest.fixture(scope="module")
def study(shards, place):
    return place / "study.toml"


@pytest.fixture(scope="module")
def plain(shards, study, place):
    """The audit of the one file, by one thread."""
    return audit_shards(shards["one"], study, place / "plain", FEW, workers=Threads(1))


@pytest.fixture(scope="module")
def cluster():
    workers = Cluster(workers=2)
    yield workers
    workers.close()


def test_a_cluster_gives_the_same_tables(cluster, shards, study, plain, tmp_path):
    check_same(audit_shards(shards["five"], study, tmp_path / "audit", FEW, workers=cluster), plain)


def test_a_cluster_that_is_there_already(cluster, shards, study, plain, tmp_path):
    address = cluster.client.scheduler.address
    command = ["audit", shards["five"], "--study", study, "--out", tmp_path / "audit", *SUMMARY]
    result = CliRunner().invoke(app, [*map(str, command), "--scheduler", address])
    assert result.exit_code == 0, result.output
    check_same(tmp_path / "audit", plain)
    assert cluster.client.nthreads()  # it goes on without us


def test_a_worker_that_is_killed_changes_nothing(cluster, shards, study, plain, tmp_path):
    victims = list(cluster.client.run(os.getpid).values())[:1]

    def kill(done, total):
        if done == 18 and victims:  # when all eight were listed and counted, and two judged
            os.kill(victims.pop(), signal.SIGKILL)

    out = audit_shards(
        shards["eight"], study, tmp_path / "audit", FEW, workers=cluster, progress=kill
    )
    assert not victims
    check_same(out, plain)


class Elsewhere:
    """Workers on a machine that does not have the folder of parts."""

    def run(self, work, shards, shared):
        folder = {"folder": Path("/elsewhere")} if "folder" in shared else {}
        yield from Threads(2).run(work, shards, {**shared, **folder})

    def close(self):
        pass


def test_workers_without_the_parts_read_the_files_again(shards, study, plain, tmp_path):
    out = audit_shards(shards["five"], study, tmp_path / "audit", FEW, workers=Elsewhere())
    check_same(out, plain)


def test_a_shard_is_read_once(shards, study, tmp_path, monkeypatch):
    read, seen = log_module.read_part, []

    def read_and_note(path, *arguments):
        seen.append(path)
        return read(path, *arguments)

    monkeypatch.setattr(log_module, "read_part", read_and_note)
    audit_shards(shards["five"], study, tmp_path / "audit", replace(FEW, rehearsal=True))
    assert len(seen) == len(set(seen)) == 5


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
        audit_shards(shards["five"], study, out, FEW, workers=Stopping(7))
    assert not out.exists()
    assert parts_folder(out).is_dir()
    counting = Counting()
    audit_shards(shards["five"], study, out, FEW, workers=counting, resume=True)
    assert counting.done == [0, 3, 5]
    check_same(out, plain)
    assert not parts_folder(out).exists()


def test_an_unfinished_run_is_neither_lost_nor_taken_for_another(shards, study, tmp_path):
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(shards["five"], study, out, FEW, workers=Stopping(11))
    with pytest.raises(FileExistsError, match="--resume"):
        audit_shards(shards["five"], study, out, FEW)
    counting = Counting()
    audit_shards(shards["five"], study, out, replace(FEW, seed=1), workers=counting, resume=True)
    assert counting.done == [0, 5, 5]  # another seed, other halves
    assert Audit.load(out, shown=True).meta.seed == 1


def test_a_file_that_changed_is_counted_anew(log, study, tmp_path):
    folder = write_shards(log, tmp_path / "log", np.array_split(np.arange(EPISODES), 5))
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(folder, study, out, FEW, workers=Stopping(12))
    write_episodes(log.select(np.arange(10)), folder / "part-000.parquet", tmp_path / "s.toml")
    counting = Counting()
    audit_shards(folder, study, out, FEW, workers=counting, resume=True)
    assert counting.done == [1, 1, 5]
    assert len(Audit.load(out).episodes) == EPISODES - EPISODES // 5 + 10


COMMAND = "from butfor.cli.main import run; run()"
# stops for a while when it has judged two shards, so that a signal finds it there on any machine
WAITING = f"""
import time
from butfor.audit.shards.parts import Parts
write, written = Parts.write_judged, []

def write_and_wait(self, key, judged):
    write(self, key, judged)
    written.append(key)
    if len(written) == 2:
        print("judging", flush=True)
        time.sleep(600)

Parts.write_judged = write_and_wait
{COMMAND}
"""


@pytest.mark.parametrize("stop", few([signal.SIGKILL, signal.SIGINT], 1))
def test_a_command_that_is_stopped_goes_on(stop, shards, study, plain, tmp_path):
    out = tmp_path / "audit"
    arguments = ["audit", shards["five"], "--study", study, "--out", out, *SUMMARY]
    with start(WAITING, *arguments, "--threads", 1) as process:
        assert "judging\n" in iter(process.stdout.readline, "")
        process.send_signal(stop)
        told = process.stderr.read()
    assert not out.exists(), told
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in told
    assert len(list(parts_folder(out).glob("judge-*.npz"))) == 2
    resumed = CliRunner().invoke(app, [*map(str, arguments), "--resume"])
    assert resumed.exit_code == 0, resumed.output
    check_same(out, plain)


class Loses:
    """Asked to stop while it is taken apart, where Python ignores what is raised."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_stop_that_python_ignores_is_not_lost(shards, study, tmp_path, monkeypatch):
    write = Parts.write_judged

    def write_and_lose(self, key, judged):
        write(self, key, judged)
        Loses()

    monkeypatch.setattr(Parts, "write_judged", write_and_lose)
    arguments = ["audit", shards["five"], "--study", study, "--out", tmp_path / "audit", *SUMMARY]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 130
    assert "--resume" in result.output
    assert not (tmp_path / "audit").exists()


def test_a_full_disk_is_told_and_leaves_the_old_audit(shards, study, plain, tmp_path):
    out = shutil.copytree(plain, tmp_path / "audit")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    # room for each part of it, but not for the tables of the whole
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); {COMMAND}"
    )
    arguments = ["audit", shards["five"], "--study", study, "--out", out, "--overwrite", *SUMMARY]
    with start(script, *arguments) as process:
        told = process.stderr.read()
    assert process.returncode == 2
    assert "Error: " in told
    assert "--resume" in told
    assert "Traceback" not in told
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
        audit_shards(folder, study, tmp_path / "audit", FEW)
    assert not (tmp_path / "audit").exists()
    for name in ("part-001.parquet", "part-003.parquet"):
        number = int(name[5:8])
        group = np.array_split(np.arange(EPISODES), 5)[number]
        write_episodes(log.select(group), folder / name, tmp_path / "s.toml")
    counting = Counting()
    audit_shards(folder, study, tmp_path / "audit", FEW, workers=counting, resume=True)
    assert counting.done[0] == 2


def test_a_folder_of_somebody_else_is_left_alone(shards, study, tmp_path):
    out = tmp_path / "audit"
    parts_folder(out).mkdir()
    (parts_folder(out) / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"it has no unfinished\.txt"):
        audit_shards(shards["five"], study, out, FEW, resume=True)
    assert (parts_folder(out) / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["count-*.npz", "log-*.arrow", "judge-*.npz", "cases-*.arrow"])
def test_a_damaged_part_is_worked_out_again(name, shards, study, plain, tmp_path):
    """A wrong bit in a table of Arrow can be read as another number."""
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(shards["five"], study, out, FEW, workers=Stopping(12))
    part = next(parts_folder(out).glob(name))
    content = part.read_bytes()
    part.write_bytes(flip(content, 4 * len(content)))
    counting = Counting()
    audit_shards(shards["five"], study, out, FEW, workers=counting, resume=True)
    assert counting.done == ([0, 1, 3] if name.startswith(("count", "log")) else [0, 0, 4])
    check_same(out, plain)
    assert not parts_folder(out).exists()


def test_a_part_that_was_cut_off_is_worked_out_again(shards, study, plain, tmp_path):
    out = tmp_path / "audit"
    with pytest.raises(KeyboardInterrupt):
        audit_shards(shards["five"], study, out, FEW, workers=Stopping(12))
    part = next(parts_folder(out).glob("judge-*.npz"))
    part.write_bytes(part.read_bytes()[:1000])
    audit_shards(shards["five"], study, out, FEW, resume=True)
    check_same(out, plain)

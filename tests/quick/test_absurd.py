"""Input that is legal and absurd: refused with its limit, or answered without blowing up."""

import errno
import os
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import butfor as bf
from butfor import sepsis
from butfor.audit.settings import MOST_MODELS
from butfor.audit.shards.workers import MOST_PROCESSES
from butfor.checks import MOST_EPISODES
from butfor.cli.main import app
from butfor.cli.output import exit_on_error
from butfor.hidden import LatentPolicy, pomdp_value
from butfor.log.files import MOST_ROW, explained
from butfor.log.sources import load_log, stacked
from butfor.log.study import MOST_PARTS, MOST_TOLD, read_study
from butfor.random import MOST_SEED, check_seed
from butfor.threads import MOST_THREADS

PHYSICIAN = sepsis.behavior_policy("corrected")
NOTHING = np.eye(8)[np.zeros(1440, dtype=int)]  # a policy that never treats
STUDY = """
[columns]
episode = "episode"
outcome = "outcome"
[state.s]
levels = ["0", "1"]
[action.a]
levels = ["0", "1"]
[outcome.home]
reward = 1.0
[outcome.died]
reward = -1.0
bad = true
"""


@pytest.fixture
def ward(tmp_path):
    rows = [f"{e},{e % 2},{e // 2 % 2},{'home' if e % 3 else 'died'}" for e in range(24)]
    (tmp_path / "log.csv").write_text("\n".join(["episode,s,a,outcome", *rows, ""]))
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def audit(ward, *options):
    files = [str(ward / "log.csv"), "--study", str(ward / "study.toml")]
    given = ["--out", str(ward / "out"), "--models", "0", *options]
    return CliRunner().invoke(app, ["audit", *files, *given])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seed", str(2**63)], f"at most {MOST_SEED}"),
        (["--seed", str(2**200)], f"at most {MOST_SEED}"),
        (["--prior", "1e308"], "prior 1e+308: give a number of cases, 0 or more and at most 1e+12"),
        (["--prior", "nan"], "0 or more and at most 1e+12"),
        (
            ["--smoothing", "1e308"],
            "smoothing 1e+308: give a number of cases, 0 or more and at most 1e+12",
        ),
        (
            ["--bad-cases", "1e308"],
            "bad_cases 1e+308: give a number of cases, 0 or more and at most 1e+12",
        ),
        (["--seed", "9" * 4000], f"seed of 13,288 bits: give a whole number, at most {MOST_SEED}"),
        (["--flags", str(10**30)], f"give a whole number, at most {MOST_EPISODES}"),
        (["--review-size", str(10**30)], f"give a whole number, at most {MOST_EPISODES}"),
        (["--local-cluster", str(10**6)], f"a number of processes, at most {MOST_PROCESSES}"),
        (["--models", str(10**12)], f"models {10**12}: give a whole number, at most {MOST_MODELS}"),
        (
            ["--threads", str(10**12), "--detail", "summary"],
            f"threads {10**12}: give a whole number, at most {MOST_THREADS}",
        ),
        (["--checksums", "/dev/zero"], "/dev/zero is a device; give a file"),
    ],
)
def test_numbers_beyond_measure_are_refused_with_their_limit(ward, options, words):
    told = audit(ward, *options)
    assert told.exit_code == 2
    assert words in told.stderr
    assert len(told.stderr) < 400
    assert "pydantic" not in told.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "reward = 1.0",
            "reward = 1e308",
            "[outcome.home] reward: 1e+308: give a finite number from",
        ),
        ("reward = 1.0", "reward = -1e101", "from -1e+100 to 1e+100"),
        (
            "bad = true",
            "bad = true\n[evaluation]\nhorizon = 2000000",
            "a number of at most 1,000,000",
        ),
        (
            "[columns]",
            f"{'.'.join('a' * 300_000)} = 1\n[columns]",
            f"study.toml, line 2: a key has more than {MOST_PARTS} parts",
        ),
        ("[columns]", f"""["a".{"'b'." * 9_000}c]\n[columns]""", "line 2: a key has more than"),
        ("[columns]", r'"\"".' * 60_000 + "a = 1\n[columns]", "line 2: a key has more than"),
        ("[columns]", 'x = "' + '\\"' * 300_000 + "\n[columns]", "not TOML"),
        (
            "[columns]",
            f"x = 0x{'f' * 5_000}\n[columns]",
            "or endless digits; write out",
        ),
        ("[columns]", f"[{'x' * 600_000}]\n[columns]", "…"),
    ],
)
def test_study_files_beyond_measure_are_refused_with_the_limit(ward, old, new, words):
    (ward / "study.toml").write_text(STUDY.replace(old, new, 1))
    began = time.process_time()
    told = audit(ward)
    assert told.exit_code == 2
    assert words in told.stderr
    assert len(told.stderr) < 2000
    assert time.process_time() - began < 20  # the key alone took minutes


LONG_NOTE = f'99,"{"a word " * 30_000}",0,home\n'  # longer than the csv module reads by itself


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\n5,1", '\n5,"1', "log.csv: the row that begins in line 7 has more than 1,048,576 bytes"),
        ("\n5,1", f"\n{LONG_NOTE}5,7", "unknown_levels: 2 rows"),
        ("episode,s,a", f"episode,{'s' * 200_000},a", "[state.s]: no column 's'"),
        ("home", "h\udcf6me", "log.csv, line 3: not UTF-8; save it as UTF-8"),
    ],
)
def test_logs_beyond_measure_are_refused_with_the_line(ward, old, new, words):
    text = (ward / "log.csv").read_text().replace(old, new, 1)
    rest = "1,0,0,home\n" * (MOST_ROW // 5 if '"1' in new else 0)
    (ward / "log.csv").write_bytes((text + rest).encode(errors="surrogateescape"))
    told = audit(ward)
    assert told.exit_code == 2
    assert words in told.stderr
    assert len(told.stderr) < 900


def test_more_intervals_than_episodes_are_those_of_all(ward):
    assert audit(ward, "--intervals", "9" * 5000).exit_code == 0


def test_of_endless_mistakes_in_a_study_file_some_are_told(ward):
    (ward / "study.toml").write_text(STUDY + "".join(f"[x{i}]\n" for i in range(5_000)))
    told = audit(ward)
    assert told.exit_code == 2
    assert "study.toml: 5000 mistakes" in told.stderr
    assert f"and {5_000 - MOST_TOLD} more" in told.stderr
    assert told.stderr.count("no such section") == MOST_TOLD


def test_texts_with_many_dots_or_letters_are_no_keys(ward):
    rest = f'note = "{"a word. " * 1000}{"x" * 100_000}{"1." * (MOST_PARTS - 3)}"'
    (ward / "study.toml").write_text(STUDY.replace("[columns]", f"[words]\n{rest}\n[columns]"))
    with pytest.raises(ValueError, match="note"):
        read_study(ward / "study.toml")


def test_rewards_of_a_log_or_a_model_are_limited():
    given = {"offsets": [0, 1], "states": 1, "actions": 1, "outcome": [0]}
    given |= {"outcomes": [bf.Outcome("end", 1.0)]}
    with pytest.raises(
        ValueError, match=r"reward 1e\+308 is too large; give a finite number from -1e"
    ):
        bf.Episodes.from_arrays([0], [0], [-1], reward=[1e308], **given)
    with pytest.raises(ValueError, match=r"reward -1e\+101; give a finite number from -1e\+100"):
        bf.Episodes.from_arrays([0], [0], [-1], **given | {"outcomes": [bf.Outcome("x", -1e101)]})
    assert check_seed(MOST_SEED) == MOST_SEED


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"states": 10**12}, "1000000000000 states: give at most 1,000,000, or several variables"),
        ({"actions": 2 * 10**9}, "2000000000 actions: give at most 1,000,000"),
        ({"state": [-(2**63)]}, "state at 0 is -9223372036854775808, too large"),
        ({"state": np.array([2**63], dtype=np.uint64)}, "too large; relabel from 0"),
    ],
)
def test_numbers_of_states_are_limited(changed, words):
    given = {"state": [0], "action": [0], "next_state": [-1], "offsets": [0, 1], "outcome": [0]}
    given |= {"states": 1, "actions": 1, "outcomes": [bf.Outcome("end", 1.0)]}
    with pytest.raises(ValueError, match=words):
        bf.Episodes.from_arrays(**given | changed)


def test_a_table_that_is_too_large_is_refused_before_memory_is_taken():
    given = {"states": 1, "actions": 1, "outcome": [0] * 200, "horizon": 1_000_000}
    given |= {"offsets": np.arange(201), "outcomes": [bf.Outcome("end", 1.0)]}
    nothing = np.zeros(200, dtype=int)
    log = bf.Episodes.from_arrays(nothing, nothing, nothing - 1, **given)
    words = (
        "200 episodes of up to 1,000,000 steps are 200,000,000 numbers, more than the 100,000,000"
    )
    with pytest.raises(ValueError, match=words):
        bf.Replay(log, bf.fit_mdp(log), np.ones((1, 1))).steps()
    with pytest.raises(ValueError, match="horizon 2000000: give at most 1,000,000 steps"):
        bf.Episodes.from_arrays(nothing, nothing, nothing - 1, **given | {"horizon": 2_000_000})


@pytest.mark.parametrize(
    "ask",
    [
        lambda log: bf.Replay(log, sepsis.model(), PHYSICIAN).outcomes(),
        lambda log: bf.Replay(log, sepsis.model(), PHYSICIAN).bounds(),
        lambda log: bf.confounding_bounds(bf.Replay(log, sepsis.model(), NOTHING), [1, 2]),
        lambda log: pomdp_value(sepsis.pomdp(), LatentPolicy(PHYSICIAN), horizon=log.horizon),
    ],
)
def test_tables_for_an_absurd_horizon_are_refused_whoever_makes_them(ask):
    log = replace(sepsis.simulate(PHYSICIAN, 5, version="corrected"), horizon=1_000_000)
    words = r"up to 1,000,000 steps from [\d,]+ (states|pairs).* more than the 100,000,000"
    with pytest.raises(ValueError, match=words):
        ask(log)


def test_memory_that_runs_out_is_told_with_a_remedy(capsys):
    with pytest.raises(Exception, match="2"), exit_on_error():
        np.empty(2**55)
    assert "not enough memory" in capsys.readouterr().err


class Part:
    """A table with one column."""

    column_names = ("stay",)

    def __init__(self, column):
        self.column = lambda _: column


def test_a_sound_file_is_not_called_damaged_when_memory_runs_out(tmp_path, monkeypatch, capsys):
    """Arrow's error of memory is one of Arrow, too; others have the number of the system."""
    frame = pd.DataFrame({"stay": ["a", "b"], "end": [1, 2]})
    frame.to_parquet(tmp_path / "log.parquet")

    def fail(error):
        def ask(*_, **__):
            raise error

        return ask

    failed = pa.ArrowMemoryError("malloc of size 8796093022208 failed")
    log = load_log(tmp_path / "log.parquet")
    with pytest.raises(MemoryError, match="column 'stay': malloc of size 8796093022208"):
        log.code("stay", fail(failed))
    for error in (failed, OSError(errno.ENOMEM, "Cannot allocate memory")):
        with (
            pytest.raises(MemoryError, match=r"log.parquet: "),
            explained(tmp_path / "log.parquet"),
        ):
            raise error
    with monkeypatch.context() as patch:
        patch.setattr("butfor.log.sources.pa.array", fail(failed))
        with pytest.raises(MemoryError, match="malloc of size"):
            load_log(frame)
    with monkeypatch.context() as patch:
        patch.setattr("butfor.log.sources.pa.table", fail(failed))
        with pytest.raises(MemoryError, match="malloc of size"):
            load_log(pa.table({"stay": ["a"]}))

    class Column:  # of two parts with different types, which are cast to one
        type, cast = pa.int32(), fail(failed)

    with pytest.raises(MemoryError, match="malloc of size"):
        stacked([Part(Column()), Part(Column())], [tmp_path, tmp_path])
    with monkeypatch.context() as patch:
        patch.setattr("butfor.log.write.pa.array", fail(failed))
        with pytest.raises(MemoryError, match="malloc of size"):
            bf.write_episodes(
                sepsis.simulate(PHYSICIAN, 2, version="corrected"), tmp_path / "x.parquet"
            )
    with pytest.raises(Exception, match="2"), exit_on_error():
        log.code("stay", fail(failed))
    assert "not enough memory (reading the column 'stay': malloc of size" in capsys.readouterr().err


def test_a_full_disk_is_told_with_a_remedy(capsys):
    with pytest.raises(Exception, match="2"), exit_on_error():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "The disk is full: free some space" in capsys.readouterr().err


def test_levels_of_many_ready_made_states_are_the_states_and_no_copy_of_them():
    states = 20_000
    log = bf.Episodes.from_arrays(
        [0, 7],
        [0, 1],
        [7, -1],
        offsets=[0, 2],
        states=states,
        actions=2,
        outcome=[0],
        outcomes=[bf.Outcome("end", 1.0)],
    )
    replay = bf.Replay(log, bf.fit_mdp(log), np.full((states, 2), 0.5))
    replay.steps(probability=True)
    tracemalloc.start()
    found = replay.courses()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.1 * found.nbytes  # states by states, booleans alone would be 400 MB
    assert found.shape == (1, 3, states + 1)
    assert found[0, 0, 0] == 1
    np.testing.assert_allclose(found.sum(axis=2), 1.0)


def test_time_grows_with_the_length_of_episodes_and_not_with_its_square():
    generator = np.random.default_rng(0)

    def seconds(steps):
        state = generator.integers(3, size=steps + 1)
        log = bf.Episodes.from_arrays(
            state[:-1],
            generator.integers(2, size=steps),
            state[1:],
            offsets=[0, steps],
            states=3,
            actions=2,
        )
        replay = bf.Replay(log, bf.fit_mdp(log, unseen="uniform"), np.full((3, 2), 0.5))
        began = time.process_time()
        replay.contributions()
        replay.compute()
        replay.bounds()
        replay.engine.logged_values()
        return time.process_time() - began

    seconds(10)  # compiles
    assert seconds(20_000) < 30 * seconds(2_000)  # the square would be 100 times as much

"""Compare the speed of two source trees in one run: `make bench AGAINST=path/to/other/src`.

Both trees do the same work through public names that both have, each in processes of its own that
take turns, so that a busy machine slows both; the ratio compares the best times. `python -m
benchmarks.against --work NAME` does one piece of work in the tree that PYTHONPATH names and prints
the seconds it took.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TURNS = 3  # processes of each tree for each piece of work
RUNS = 5  # warm runs inside a process, at least
SECONDS = 3.0  # and as many more as fit: the best of few short runs is luck
ALLOWED = 1.10  # times as long as in the other tree
EPISODES = 1000
HIDDEN = 100
SHARD_EPISODES, SHARDS = 10_000, 10

Work = Callable[[], object]


def sepsis(bf: Any, episodes: int = EPISODES) -> tuple[Any, Any, Any]:
    """Simulate a log of the paper's experiment; fit the model, plan the target."""
    behavior = bf.sepsis.behavior_policy("icml2019")
    log = bf.sepsis.simulate(behavior, episodes, version="icml2019").hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, np.asarray(bf.policy_iteration(model))  # earlier versions have no plans


def learn(bf: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return what makes model and target from a log."""

    def make(log: Any) -> tuple[Any, Any]:
        model = bf.fit_mdp(log)
        return model, bf.policy_iteration(model)

    return make


def pieces(bf: Any) -> dict[str, Callable[[], Work]]:
    """Return the pieces of work by name; each first prepares its input."""

    def on_sepsis(work: Callable[..., object]) -> Callable[[], Work]:
        def prepare() -> Work:
            log, model, target = sepsis(bf)
            return lambda: work(log, model, target)

        return prepare

    def hidden() -> Work:
        log, _, target = sepsis(bf, HIDDEN)
        model = bf.sepsis.pomdp("icml2019")
        return lambda: bf.Replay(log, model, target).outcomes(threads=1)

    return {
        "exact outcomes": on_sepsis(lambda *given: bf.Replay(*given).outcomes()),
        "walk through": on_sepsis(lambda *given: bf.Replay(*given).steps()),
        "bounds": on_sepsis(lambda *given: bf.Replay(*given).bounds()),
        "five draws": on_sepsis(lambda *given: bf.Replay(*given).draws()),
        "fewest changes": on_sepsis(lambda *given: bf.Replay(*given).fewest_changes()),
        "credible intervals": on_sepsis(
            lambda log, _, target: bf.credible_intervals(log, target, models=50)
        ),
        "estimates": on_sepsis(lambda *given: bf.estimate_values(*given)),
        "diagnostics": on_sepsis(
            lambda *given: (
                bf.diagnose(bf.Replay(*given)) if hasattr(bf, "Replay") else bf.diagnose(*given)
            )
        ),
        "audit of 1000 episodes": on_sepsis(lambda *given: bf.run_audit(*given)),
        "audit with cross-fitting": on_sepsis(lambda *given: bf.run_audit(*given, learn=learn(bf))),
        "hidden state, one core": hidden,
    }


def audit_shards(folder: Path, bf: Any) -> Work:
    """Write a log in shards; return the audit of it through the command line."""
    behavior = bf.sepsis.behavior_policy("corrected")
    total = SHARD_EPISODES * SHARDS
    log = bf.sepsis.simulate(behavior, total, version="corrected").hide("glucose", "diabetes")
    (folder / "log").mkdir()
    for number, part in enumerate(np.array_split(np.arange(total), SHARDS)):
        path = folder / "log" / f"part-{number}.parquet"
        bf.write_episodes(log.select(part), path, folder / "study.toml")
    old = not hasattr(bf, "Replay")  # shards were a matter of place, not of a setting
    run = "from butfor.cli import run; run()" if old else "from butfor.cli.main import run; run()"
    command = [
        sys.executable,
        "-c",
        run,
        "audit",
        str(folder / "log"),
        "--study",
        str(folder / "study.toml"),
    ]
    command += ["--out", str(folder / "audit"), "--overwrite", "--json"]
    command += [
        "--unseen",
        "died",
    ]  # what a tabular model, the only kind in both trees, does anyway
    command += [] if old else ["--detail", "summary"]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def do(name: str) -> list[float]:
    """Do a piece of work in this process's tree, warm; return the seconds of each run."""
    import butfor as bf  # noqa: PLC0415  the tree that PYTHONPATH names

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        if name == "100,000 episodes in shards":
            work, runs, lasting = audit_shards(Path(folder), bf), 1, 0.0
        else:
            work, runs, lasting = pieces(bf)[name](), RUNS, SECONDS
            work()
        seconds: list[float] = []
        while len(seconds) < runs or sum(seconds) < lasting:
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
    return seconds


def import_seconds(tree: Path) -> float:
    """Time `import butfor` in a new process."""
    code = "import time; s = time.perf_counter(); import butfor; print(time.perf_counter() - s)"
    return float(subprocess.check_output([sys.executable, "-c", code], env=environment(tree)))


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of processes that use a tree."""
    here = Path(__file__).parents[1]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tree.resolve()), str(here)])}


def measure(tree: Path, name: str) -> float:
    """Return the best time of a piece of work in a tree."""
    if name == "import butfor":
        return min(import_seconds(tree) for _ in range(RUNS))
    command = [sys.executable, "-m", "benchmarks.against", "--work", name]
    return min(json.loads(subprocess.check_output(command, env=environment(tree), text=True)))


def main() -> int:
    """Compare two trees; the exit code tells whether nothing is slower than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path, help="the src folder to compare with")
    parser.add_argument("--work", help="do this piece of work and print its seconds")
    parser.add_argument("--only", help="compare only work whose name contains this")
    given = parser.parse_args()
    if given.work:
        print(json.dumps(do(given.work)))
        return 0
    trees = {"this": Path(__file__).parents[1] / "src", "other": given.other}
    names = ["import butfor", *pieces(Anything()), "100,000 episodes in shards"]
    slower = 0
    print(f"{'work':32}{'other':>10}{'this':>10}{'ratio':>8}")
    for name in names:
        if given.only and given.only not in name:
            continue
        best = {who: float("inf") for who in trees}
        for _ in range(TURNS):
            for who, tree in trees.items():
                best[who] = min(best[who], measure(tree, name))
        ratio = best["this"] / best["other"]
        slower += ratio > ALLOWED
        print(f"{name:32}{best['other']:9.4f}s{best['this']:9.4f}s{ratio:8.2f}", flush=True)
    return int(slower > 0)


class Anything:
    """Stands for a tree of which only the names of its work are asked."""

    def __getattr__(self, name: str) -> Anything:
        return self


if __name__ == "__main__":
    sys.exit(main())

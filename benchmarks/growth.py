"""Measure how cost grows: `python -m benchmarks.growth` (some minutes).

On random models one thing is varied at a time, and the power with which the exact pass grows is
fitted, in seconds of one core, which other programs disturb little. Then what shards take.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sparse
from rich import box
from rich.console import Console
from rich.table import Table

import butfor as bf
from benchmarks.measurement import core_seconds
from benchmarks.run import as_time
from benchmarks.shards import measure_audit, write_shards
from butfor.models.simulate import simulate_model

RUNS = 3


@dataclass(frozen=True)
class Shape:
    """A random model, and a log drawn from it."""

    episodes: int = 500
    steps: int = 10  # of every episode: there are no ends
    states: int = 200
    actions: int = 8
    following: int = 20  # next states of each state and action
    sure: bool = True  # the target takes one action in each state; else any

    def problem(self) -> tuple[bf.Episodes, bf.TabularMDP, np.ndarray]:
        """Draw the model, a log of random actions and the target."""
        generator = np.random.default_rng(0)
        rows = self.states * self.actions
        columns = [
            generator.choice(self.states, self.following, replace=False) for _ in range(rows)
        ]
        weights = generator.dirichlet(np.full(self.following, 0.3), rows)
        matrix = sparse.csr_array(
            (
                weights.ravel(),
                (np.repeat(np.arange(rows), self.following), np.concatenate(columns)),
            ),
            (rows, self.states),
        )
        reward = generator.normal(size=(self.states, self.actions))
        model = bf.TabularMDP.from_arrays(matrix, actions=self.actions, reward=reward)
        anything = np.full((self.states, self.actions), 1 / self.actions)
        log = simulate_model(model, anything, self.episodes, horizon=self.steps)
        if self.sure:
            return (
                log,
                model,
                np.eye(self.actions)[generator.integers(self.actions, size=self.states)],
            )
        return log, model, generator.dirichlet(np.ones(self.actions), self.states)

    def seconds(self) -> float:
        """Time of the exact pass."""
        log, model, target = self.problem()
        behavior = np.full(target.shape, 1 / self.actions)
        return core_seconds(
            RUNS,
            lambda: bf.Replay(log, model, target, behavior=behavior).outcomes(threads=1),
        )


BASE = Shape()
VARIED = {
    "episodes": ("episodes", (250, 500, 1000, 2000), BASE),
    "steps of an episode": ("steps", (5, 10, 20, 40), BASE),
    "states": ("states", (100, 200, 400, 800), BASE),
    "next states of a row": ("following", (10, 20, 40, 80), BASE),
    "actions, of which the target takes one": ("actions", (4, 8, 16, 32), BASE),
    "actions, of which the target takes any": (
        "actions",
        (4, 8, 16, 32),
        replace(BASE, sure=False),
    ),
}


def measure_shapes() -> Table:
    """Vary one thing at a time."""
    table = Table("what", "sizes", "exact pass", "grows with power", box=box.SIMPLE_HEAD)
    for words, (name, sizes, base) in VARIED.items():
        times = [replace(base, **{name: size}).seconds() for size in sizes]
        power = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        table.add_row(
            words, ", ".join(map(str, sizes)), ", ".join(map(as_time, times)), f"{power:.2f}"
        )
    return table


FILES = [  # episodes a file, whether they are dealt out, workers, options
    (10_000, False, "one thread", ["--threads", "1"]),
    (10_000, False, "two threads", ["--threads", "2"]),
    (10_000, False, "two processes of Dask", ["--processes", "2"]),
    (10_000, True, "two threads", ["--threads", "2"]),
    (1_000, False, "two threads", ["--threads", "2"]),
    (50_000, False, "two threads", ["--threads", "2"]),
    (100_000, False, "one thread", ["--threads", "1"]),
]


def measure_files() -> Table:
    """Audit 100,000 sepsis episodes in files of several sizes, by threads and by processes."""
    table = Table("files", "workers", "time", "putting together", "memory", box=box.SIMPLE_HEAD)
    for each, dealt, words, options in FILES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            study, files = write_shards(folder, 100_000, each, dealt=dealt)
            cost = measure_audit(study, folder / "audit", files, *options)
        table.add_row(
            f"{len(files)} of {each:,}{', ids dealt out' * dealt}",
            words,
            as_time(cost.seconds),
            as_time(cost.written),
            f"{cost.bytes / 1e6:,.0f} MB",
        )
    return table


if __name__ == "__main__":
    console = Console()
    for measure in (measure_shapes, measure_files):
        console.print(f"[bold]{measure.__doc__}[/bold]", measure())

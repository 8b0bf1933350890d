"""Measure every promise about speed, print a table and write `benchmarks/results.json`.

Time and memory of audits in shards are drawn in `benchmarks/shards.svg`.

Times are the best of several warm runs on this machine; some are CPU times, as the table says.
Ratios compare with the slow twin's time in the same run, which is measured on a part of the work
and scaled up where the whole would take minutes (the table says which part). Promised times are for
a usual machine: where plain Python takes longer, they may be longer in proportion.
"""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from rich import box
from rich.console import Console
from rich.table import Table

import butfor as bf
from benchmarks import factored
from benchmarks.icu_audit import measure_icu_audit
from benchmarks.intervals import measure_intervals, measure_magic
from benchmarks.measurement import (
    PLAIN_EPISODES,
    Measurement,
    best_of,
    core_seconds,
    in_own_process,
    plain_seconds,
    slowness,
    within,
)
from benchmarks.noisy import measure_noisy
from benchmarks.peers import measure_peers
from benchmarks.planning import (
    measure_given_models,
    measure_large_planning,
    measure_long_episodes,
)
from benchmarks.review import (
    EACH,
    EPISODES,
    EVENTS,
    PAUSE,
    REVIEWERS,
    STAYS,
    measure_events,
    measure_server,
)
from benchmarks.shards import measure_sizes
from benchmarks.shards_share import measure_share
from butfor.interop.icu_sepsis import LONGEST_STAY, load_icu_sepsis
from butfor.models.fit import destinations
from butfor.models.simulate import simulate_model
from butfor.paper.article import STUDY
from butfor.paper.experiment import Oberst2019Settings, repeat_logs
from butfor.sepsis import dynamics
from butfor.studies.article import write_study
from tests.reference import paper
from tests.reference import sepsis as plain_sepsis

RESULTS = Path(__file__).parent / "results.json"
TWIN_EPISODES = 20
TWIN_DRAWS = 5
HIDDEN_EPISODES = 300
ICU_EPISODES = 10_000


def sepsis_problem() -> tuple[bf.Episodes, bf.TabularMDP, np.ndarray]:
    """The paper's experiment: 1000 reduced episodes, the model learned and the target planned."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("icml2019"), 1000, version="icml2019")
    log = log.hide("glucose", "diabetes")
    model = bf.fit_mdp(log)
    return log, model, bf.policy_iteration(model).table


def measure_exact_outcomes() -> list[Measurement]:
    log, model, target = sepsis_problem()
    seconds = best_of(20, lambda: bf.Replay(log, model, target).outcomes())
    twin = paper_seconds(log, model, target)
    note = f"twin: {twin:.0f} s, from {TWIN_EPISODES} episodes x {TWIN_DRAWS} draws"
    ratio = twin / seconds
    promise = "5000 x, about 15 ms"
    work = "exact outcomes, 1000 sepsis episodes"
    return [Measurement(work, seconds, promise, ratio, note, ratio >= 5000)]


def paper_seconds(log: bf.Episodes, model: bf.TabularMDP, target: np.ndarray) -> float:
    """Time of the paper's procedure for five draws of every episode, from every 50th of them."""
    rows = np.zeros((model.n_states, model.n_actions, model.n_states + len(model.outcomes)))
    state, action = np.divmod(model.entry_row, model.n_actions)
    rows[state, action, model.next_state] = model.probability
    reached = destinations(log, model.terminal)
    generator = np.random.default_rng(0)
    chosen = range(0, len(log), len(log) // TWIN_EPISODES)
    start = time.perf_counter()
    for episode in chosen:
        steps = range(log.offsets[episode], log.offsets[episode + 1])
        observed = [(int(log.state[i]), int(log.action[i]), int(reached[i])) for i in steps]
        for _ in range(TWIN_DRAWS):
            paper.draw_counterfactual(rows, observed, target, log.horizon, generator)
    return (time.perf_counter() - start) * len(log) / len(chosen)


def icu_problem() -> tuple[bf.Episodes, bf.TabularMDP, np.ndarray, np.ndarray]:
    """A random model of the size of ICU-Sepsis: 716 states, 25 actions, 86 next states a row."""
    generator = np.random.default_rng(0)
    states, actions, width = 716, 25, 86
    columns = np.argsort(generator.random((states * actions, states)), axis=1)[:, : width - 2]
    ends = np.tile([states, states + 1], (states * actions, 1))
    columns = np.concatenate([columns, ends], axis=1)
    weights = generator.dirichlet(np.full(width, 0.3), states * actions)
    weights = 0.9 * weights
    weights[:, -2:] += 0.05  # an end with chance .1 a step, as there: nine steps an episode
    shape = (states * actions, states + 2)
    matrix = sparse.csr_array(
        (weights.ravel(), (np.repeat(np.arange(shape[0]), width), columns.ravel())), shape
    )
    outcomes = [bf.Outcome("died", -1.0, bad=True), bf.Outcome("survived", 1.0)]
    model = bf.TabularMDP.from_arrays(matrix, actions=actions, outcomes=outcomes)
    behavior = generator.dirichlet(np.ones(actions), states)
    state, action, reached, lengths, outcome = [], [], [], [], []
    for _ in range(200):
        here, end = int(generator.integers(states)), -1
        for _step in range(20):
            act = int(generator.choice(actions, p=behavior[here]))
            row = model.row(here, act)
            following = int(generator.choice(list(row), p=np.array(list(row.values()))))
            state.append(here)
            action.append(act)
            reached.append(here if following >= states else following)
            if following >= states:
                end = following - states
                break
            here = following
        lengths.append(_step + 1)
        outcome.append(end)
    log = bf.Episodes.from_arrays(
        state,
        action,
        reached,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        outcome=outcome,
        outcomes=outcomes,
        states=states,
        actions=actions,
        horizon=20,
    )
    return log, model, bf.policy_iteration(model).table, behavior


def measure_icu_size() -> list[Measurement]:
    log, model, target, behavior = icu_problem()
    seconds = best_of(3, lambda: bf.Replay(log, model, target, behavior=behavior).outcomes())
    seconds /= len(log)
    note = f"{log.lengths.mean():.1f} steps an episode"
    work = "exact outcomes, one episode, 716 states, 25 actions"
    return [Measurement(work, seconds, "about 4 ms", None, note)]


def measure_icu_sepsis() -> list[Measurement]:
    """Stays drawn from ICU-Sepsis under its expert policy, the model as it is given."""
    data = load_icu_sepsis()
    target = bf.policy_iteration(data.model).table
    log = simulate_model(data.model, data.expert_policy, ICU_EPISODES, horizon=LONGEST_STAY)
    options = {"behavior": data.expert_policy}
    bf.Replay(log.select(np.arange(10)), data.model, target, **options).outcomes()
    start = time.perf_counter()
    bf.Replay(log, data.model, target, **options).outcomes()
    seconds = time.perf_counter() - start
    work = f"exact outcomes, {ICU_EPISODES:,} stays of ICU-Sepsis under its optimal policy"
    note = f"{log.lengths.mean():.1f} steps a stay; {os.cpu_count()} cores"
    exact = Measurement(work, seconds, "under 30 s", None, note, within(seconds, 30))
    with tempfile.TemporaryDirectory() as folder:
        return [exact, measure_icu_audit(data, ICU_EPISODES, Path(folder))]


def measure_draws() -> list[Measurement]:
    log, model, target = sepsis_problem()
    drawn = bf.Replay(log, model, target).draws(100)
    steps = int((drawn.action >= 0).sum())
    seconds = best_of(5, lambda: bf.Replay(log, model, target).draws(100))
    rate = steps / seconds
    note = f"{rate / 1e6:.1f} million steps a second"
    work = "draws, 1000 episodes x 100"
    return [Measurement(work, seconds, "3 million steps/s", None, note, rate >= 3e6)]


def measure_how_sure() -> list[Measurement]:
    """Bounds, credible intervals and fewest changes, beside the exact pass, in turns, on one core.

    By CPU time: the exact pass takes milliseconds, in which other programs are seldom met.
    """
    log, model, target = sepsis_problem()
    works: dict[str, Callable[[], object]] = {
        "exact": lambda: bf.Replay(log, model, target).outcomes(threads=1),
        "bounds": lambda: bf.Replay(log, model, target).bounds(threads=1),
        "credible": lambda: bf.credible_intervals(log, target, models=200, threads=1),
        "changes": lambda: bf.Replay(log, model, bf.estimate_behavior(log)).fewest_changes(
            3, threads=1
        ),
    }
    seconds = dict.fromkeys(works, float("inf"))
    for _ in range(4):
        for name, work in works.items():
            runs = 5 if name in ("exact", "bounds") else 1
            seconds[name] = min(seconds[name], core_seconds(runs, work))
    bounds, credible = (seconds[name] / seconds["exact"] for name in ("bounds", "credible"))
    note = f"of the exact pass, {as_time(seconds['exact'])}"
    return [
        Measurement(
            "bounds over all mechanisms, 1000 sepsis episodes, CPU time",
            seconds["bounds"],
            "at most 20 x",
            bounds,
            note,
            bounds <= 20,
        ),
        Measurement(
            "credible intervals from 200 models, 1000 sepsis episodes, CPU time",
            seconds["credible"],
            "at most 1500 x",
            credible,
            note + "; a model is drawn, its values are computed and all episodes replayed",
            credible <= 1500,
        ),
        Measurement(
            "fewest changes, up to 3, 1000 sepsis episodes, CPU time", seconds["changes"], ""
        ),
    ]


def measure_hidden_state() -> list[Measurement]:
    """Both worlds of an episode with the sepsis state hidden, on one core."""
    log, _, target = sepsis_problem()
    some = log.select(np.arange(HIDDEN_EPISODES))
    model = bf.sepsis.pomdp("icml2019")
    behavior = bf.hidden.LatentPolicy(bf.sepsis.behavior_policy("icml2019"))
    seconds = best_of(
        5,
        lambda: bf.Replay(some, model, target, behavior=behavior).outcomes(threads=1),
    )
    each = seconds / HIDDEN_EPISODES
    work = "exact outcomes with the state hidden, an episode, one core"
    note = f"mean of {HIDDEN_EPISODES} sepsis episodes"
    return [Measurement(work, each, "under 5 ms", note=note, kept=within(each, 0.005))]


def measure_simulation() -> list[Measurement]:
    policy = bf.sepsis.behavior_policy("icml2019")
    seconds = core_seconds(5, lambda: bf.sepsis.simulate(policy, 1_000_000, version="icml2019"))
    twin = plain_seconds() * 1_000_000
    ratio = twin / seconds
    note = f"plain Python: {twin:.0f} s, from {PLAIN_EPISODES} episodes"
    work = "simulate one million sepsis episodes, CPU time"
    return [Measurement(work, seconds, "100 x, about 1 s", ratio, note, ratio >= 100)]


def measure_planning() -> list[Measurement]:
    model = bf.sepsis.model()
    seconds = best_of(3, lambda: bf.policy_iteration(model))
    return [Measurement("plan on the full 1440 states", seconds, "about 0.4 s")]


def measure_tensor() -> list[Measurement]:
    def tensor() -> None:
        dynamics._transition_rows.cache_clear()
        bf.sepsis.transition_tensor()

    return [Measurement("exact tensor", best_of(3, tensor), "about 1 s")]


def measure_study() -> list[Measurement]:
    """The 2 x 100 logs of the study, against the slow twins' time for one log of each kind."""
    settings = Oberst2019Settings()

    def run() -> None:
        repeat_logs(settings, hidden=True)
        repeat_logs(settings, hidden=False)

    repeat_logs(Oberst2019Settings(repeats=2), hidden=True)
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    simulated, replayed = plain_log_seconds()
    twin = 200 * simulated + 100 * replayed  # counterfactuals are computed for the hidden state
    ratio = twin / seconds
    note = f"twin: {twin / 60:.0f} min, three logs simulated, one of two replayed with five draws"
    return [Measurement("study, 2 x 100 logs", seconds, "100 x", ratio, note, ratio >= 100)]


def plain_log_seconds() -> tuple[float, float]:
    """Time of the slow twins for one log: simulate train, held-out and truth; replay the first."""
    policy = bf.sepsis.behavior_policy("icml2019").tolist()
    start = time.perf_counter()
    plain_sepsis.simulate(policy, 300, random.Random(0), "icml2019")
    simulated = (time.perf_counter() - start) * 1000 / 300
    return 3 * simulated, paper_seconds(*sepsis_problem())


def measure_whole_study() -> list[Measurement]:
    """The article with all its figures, as the command writes it."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        write_study(STUDY, Oberst2019Settings(), Path(folder) / "study")
        seconds = time.perf_counter() - start
    work = "the whole study, article and figures"
    return [Measurement(work, seconds, "under 60 s", None, "", within(seconds, 60))]


MEMORY_CODE = """
import numpy as np, butfor as bf
from benchmarks.run import sepsis_problem
log, model, target = sepsis_problem()
bf.Replay(log, model, target).outcomes()
log = log.select(np.tile(np.arange(1000), {times}))
def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = status("VmRSS")
result = bf.Replay(log, model, target).outcomes()
parts = result.probability, result.expected_return, result.observed_return
print(max(0, status("VmHWM") - before - sum(part.nbytes for part in parts)))
"""


def measure_memory() -> list[Measurement]:
    """Memory that the exact pass takes beyond its input and its results, few and many episodes."""

    def beyond(times: int) -> int:
        code = MEMORY_CODE.format(times=times)
        return int(subprocess.check_output([sys.executable, "-c", code]))

    few, many = beyond(10), beyond(500)
    note = f"{few / 1e6:.1f} MB for 10,000 episodes, {many / 1e6:.1f} MB for 500,000"
    work = "memory of the exact pass beyond input and results"
    kept = many < few + 50e6  # 100 bytes an episode would be 50 MB
    return [Measurement(work, None, "not by episodes", None, note, kept)]


def measure_reading() -> list[Measurement]:
    """A million rows of ten columns, read, checked and coded; in a process of its own each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = np.random.default_rng(0)
        stay = np.repeat(np.arange(100_000), 10)
        frame = pd.DataFrame(
            {
                "stay": stay,
                "hour": np.tile(np.arange(10) * 4, 100_000),
                **{f"lab {i}": generator.normal(size=len(stay)).round(3) for i in range(5)},
                "ward": generator.choice(["A", "B", "C"], size=len(stay)),
                "dose": generator.choice(["none", "low", "high"], size=len(stay)),
                "end": np.where(np.arange(len(stay)) % 10 == 9, "home", None),
            }
        )
        frame.to_csv(folder / "log.csv", index=False)
        frame.to_parquet(folder / "log.parquet", index=False)
        (folder / "study.toml").write_text(READING_STUDY)
        found = []
        for ending, limit in (("csv", 5.0), ("parquet", 2.0)):
            code = READING_CODE.format(log=folder / f"log.{ending}", study=folder / "study.toml")
            runs = [in_own_process(code) for _ in range(3)]
            seconds, memory = min(run[0] for run in runs), min(run[1] for run in runs)
            found.append(
                Measurement(
                    f"read, check and code a million rows of {ending}",
                    seconds,
                    f"under {limit:.0f} s and 1 GB",
                    None,
                    f"peak memory {memory / 1e6:.0f} MB, the interpreter and libraries included",
                    within(seconds, limit) and memory < 1e9,
                )
            )
    return found


READING_STUDY = """
[columns]
episode = "stay"
time = "hour"
outcome = "end"
[state."lab 0"]
cuts = [-1.0, 0.0, 1.0]
[state."lab 1"]
cuts = [0.0]
[state."lab 2"]
cuts = [0.0]
[state.ward]
levels = ["A", "B", "C"]
[action.dose]
levels = ["none", "low", "high"]
[outcome.home]
reward = 1.0
[side."lab 3"]
[side."lab 4"]
"""
READING_CODE = """
import time
from butfor.log.read import read_episodes
start = time.perf_counter()
log = read_episodes("{log}", "{study}")
seconds = time.perf_counter() - start
assert len(log.state) == 1_000_000
"""


def measure_import() -> list[Measurement]:
    code = "import time; t = time.perf_counter(); import butfor; print(time.perf_counter() - t)"

    def load() -> float:
        return float(subprocess.check_output([sys.executable, "-c", code]))

    load()
    seconds = min(load() for _ in range(5))
    return [Measurement("import butfor", seconds, "under 0.5 s", None, "", within(seconds, 0.5))]


def measure_review_app() -> list[Measurement]:
    found = measure_server()
    opening, queue = measure_events()
    who = f"{REVIEWERS} reviewers at once, {EACH} verdicts each, {PAUSE:g} s apart"
    return [
        Measurement(
            f"a stay's page, first time, with its rows ({EPISODES:,} episodes; slowest of 10)",
            found["alone"],
            "under 300 ms",
            kept=within(found["alone"], 0.3),
        ),
        Measurement(
            f"review: opening and verifying {EVENTS:,} events",
            opening,
            "under 1 s",
            kept=within(opening, 1.0),
        ),
        Measurement(
            f"review: a queue of {STAYS} stays", queue, "under 5 ms", kept=within(queue, 0.005)
        ),
        Measurement(
            "review: a page, median",
            found["page"],
            "under 50 ms",
            note=who,
            kept=within(found["page"], 0.05),
        ),
        Measurement(
            "review: a verdict, median",
            found["post"],
            "under 50 ms, none lost",
            note=f"{found['given']:.0f} acknowledged, {found['lost']:.0f} lost",
            kept=found["lost"] == 0 and within(found["post"], 0.05),
        ),
    ]


def measure_shards() -> list[Measurement]:
    """Audits of folders of 1, 10 and 100 Parquet files, by all cores.

    With few episodes fixed costs are most of the time, so that growth is judged by what further
    episodes take.
    """
    costs = measure_sizes()
    few, more, most = costs
    first = (more.seconds - few.seconds) / (more.episodes - few.episodes)
    then = (most.seconds - more.seconds) / (most.episodes - more.episodes)
    kept = within(most.seconds, 180) and most.bytes < 2e9
    lines = [
        Measurement(
            f"audit in shards, {cost.episodes:,} sepsis episodes",
            cost.seconds,
            "under 180 s and 2 GB" if cost is most else "",
            note=f"{cost.cpu:.1f} CPU seconds; peak memory {cost.bytes / 1e6:,.0f} MB; 10,000 "
            "episodes a file; kernels were compiled before, in a run that is not counted",
            kept=kept if cost is most else None,
        )
        for cost in costs
    ]
    growth = Measurement(
        "audit in shards: a further episode, 10^5 to 10^6, against 10^4 to 10^5",
        then,
        "in proportion, at most 1.3 x",
        then / first,
        f"{then * 1e6:.0f} against {first * 1e6:.0f} microseconds: what 10^4 episodes take is "
        "mostly fixed costs",
        then / first <= 1.3,
    )
    further = most.episodes - more.episodes
    alone, written, serving, disk, folder = (
        (getattr(most, name) - getattr(more, name)) / further
        for name in ("alone", "written", "serving", "disk", "folder")
    )
    single = Measurement(
        "audit in shards: what one thread does for a further episode, whatever the cores",
        alone + serving,
        "",
        note=f"{alone * 1e6:.0f} microseconds while workers wait, {written * 1e6:.0f} of them to "
        f"write the tables; {serving * 1e6:.0f} to keep what workers gave. Parts on disk: "
        f"{disk:,.0f} bytes; the audit: {folder:,.0f}",
    )
    return [*lines, growth, single]


MEASURES = [
    measure_exact_outcomes,
    measure_icu_size,
    measure_icu_sepsis,
    measure_draws,
    measure_how_sure,
    measure_hidden_state,
    measure_noisy,
    factored.measure_particles,
    measure_simulation,
    factored.measure_factored,
    factored.measure_factored_planning,
    measure_intervals,
    measure_magic,
    factored.measure_product_rows,
    measure_planning,
    measure_large_planning,
    measure_given_models,
    measure_long_episodes,
    measure_tensor,
    measure_study,
    measure_whole_study,
    measure_reading,
    measure_memory,
    measure_import,
    measure_review_app,
    measure_shards,
    measure_share,
    measure_peers,
]


def as_time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def as_ratio(ratio: float) -> str:
    return f"{ratio:,.0f} x" if ratio >= 10 else f"{ratio:.2f} x"


def main() -> int:
    """Run all measures; the exit code tells whether every promise was kept."""
    console = Console()
    measured = []
    with console.status("measuring") as status:
        for measure in MEASURES:
            status.update(measure.__name__.replace("_", " "))
            measured += measure()
    table = Table("work", "time", "ratio", "promise", "kept", box=box.SIMPLE_HEAD)
    for line in measured:
        table.add_row(
            line.work + (f"\n[dim]{line.note}[/dim]" if line.note else ""),
            as_time(line.seconds),
            "" if line.ratio is None else as_ratio(line.ratio),
            line.promise,
            {None: "", True: "yes", False: "NO"}[line.kept],
        )
    console.print(table)
    if slowness() > 1:
        console.print(
            f"Plain Python takes {slowness():.1f} times as long on this machine as on the one for "
            "which times are promised, so here the limits are as many times as long."
        )
    machine = {
        "cores": os.cpu_count(),
        "slowness": slowness(),
        "python": platform.python_version(),
        "butfor": bf.__version__,
        "numpy": np.__version__,
    }
    results = {"machine": machine, "measurements": [asdict(line) for line in measured]}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"Written to {RESULTS.relative_to(Path.cwd())}")
    return int(any(line.kept is False for line in measured))


if __name__ == "__main__":
    sys.exit(main())

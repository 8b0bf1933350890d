"""`butfor doctor`: whether everything that butfor needs is there and works."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import typer

import butfor as bf
from butfor.cli.options import Json
from butfor.cli.output import Terminal, print_json, progress_bar, say
from butfor.cli.tables import make_table
from butfor.cli.versions import required, version_of, versions
from butfor.kernels import compiled
from butfor.types import Stages

SPACE = 10**9  # bytes that should be free
EXTRAS = {
    "cluster": "clusters of states, and classifiers as learners",
    "dask": "audits on several machines",
    "meds": "the schema of MEDS data sets",
}
FINE, OPTIONAL, PROBLEM = "works", "not installed", "problem"


@dataclass(frozen=True)
class Finding:
    """What was found about one thing, and what to do if it is missing or does not work."""

    what: str
    state: str  # FINE, OPTIONAL or PROBLEM
    found: str
    remedy: str = ""


def doctor(as_json: Json = False) -> None:
    """Check that everything works here: packages, kernels, folders, figures, browser, extras.

    Compiles the kernels, which takes a few minutes the first time. Exits with code 1 if there is
    a problem; an extra that is not installed is none.
    """
    with progress_bar(Terminal(stderr=True), "Checking") as show:
        findings = list(examine(show))
    problems = [finding for finding in findings if finding.state == PROBLEM]
    if as_json:
        print_json({"versions": versions(), "findings": [asdict(one) for one in findings]})
    else:
        _print(findings, len(problems))
    raise typer.Exit(1 if problems else 0)


def examine(show: Stages) -> Iterator[Finding]:
    """Yield what was found, one thing after the other."""
    yield from packages()
    yield from folders()
    yield from kernels(show)
    show.enter("Drawing a figure")
    yield figures()
    yield browser()
    yield from extras()


def packages() -> Iterator[Finding]:
    """Yield whether butfor is installed, and every package that it always needs."""
    try:
        needed = required()[""]
    except PackageNotFoundError:
        found = "butfor itself is not installed; it runs from its source"
        yield Finding("packages", PROBLEM, found, "pip install . in the folder of the source")
        return
    missing = [package for package in needed if version_of(package) is None]
    if missing:
        yield Finding("packages", PROBLEM, f"missing: {', '.join(missing)}", "pip install butfor")
    else:
        yield Finding("packages", FINE, f"all {len(needed)} that butfor needs are installed")


def folders() -> Iterator[Finding]:
    """Yield whether the folders that butfor writes to can be written and have space."""
    kept = compiled._kept
    if kept is None:
        yield Finding("folder of kernels", PROBLEM, "none can be written", compiled.NOT_KEPT)
    else:
        yield _folder("folder of kernels", kept, "set NUMBA_CACHE_DIR to another folder")
    temporary = Path(tempfile.gettempdir())
    yield _folder("temporary folder", temporary, "set TMPDIR to another folder")
    yield _folder("this folder", Path.cwd(), "work in another folder")


def _folder(what: str, path: Path, remedy: str) -> Finding:
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    found = f"{path}, {free / 1e9:.1f} GB free"
    if not os.access(there, os.W_OK):
        return Finding(what, PROBLEM, f"{path} cannot be written", remedy)
    if free < SPACE:
        return Finding(what, PROBLEM, found, f"free some space (at least 1 GB), or {remedy}")
    return Finding(what, FINE, found)


def kernels(show: Stages) -> Iterator[Finding]:
    """Audit a few simulated patients with each kind of model, which compiles what is not yet."""
    start = time.perf_counter()
    try:
        for count, (kind, replay) in enumerate(_questions(show)):
            show.enter(f"Compiling kernels: {kind} models")
            show(count, 3)
            bf.run_audit(replay, flags=2, draws=2, models=0 if kind == "hidden-state" else 2)
    except Exception as error:  # whatever it is, the other findings are needed to understand it
        remedy = "pip install --upgrade butfor numba llvmlite"
        yield Finding("kernels", PROBLEM, f"{type(error).__name__}: {error}", remedy)
        return
    seconds = time.perf_counter() - start
    made = "compiled for the wheel" if compiled.shipped else "compiled"
    yield Finding("kernels", FINE, f"{made} and run in {seconds:.0f} s")


def _questions(show: Stages) -> Iterator[tuple[str, bf.Replay]]:
    """Yield one small question for each kind of model."""
    show.enter("Compiling kernels: simulation")
    clinician = bf.sepsis.behavior_policy()
    log = bf.sepsis.simulate(clinician, 40).hide("glucose", "diabetes")
    table = bf.fit_mdp(log)
    target = bf.policy_iteration(table)
    yield "tabular", bf.Replay(log, table, target)
    yield "factored", bf.Replay(log, bf.fit_factored(log), target)
    behavior = bf.hidden.LatentPolicy(clinician)
    few = log.select(range(5))
    yield "hidden-state", bf.Replay(few, bf.sepsis.pomdp(), target, behavior=behavior)


def figures() -> Finding:
    """Return whether a chart can be drawn as PNG and PDF."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            chart = bf.charts.scm_diagrams()["graph"]
            bf.charts.save_figure(chart, Path(folder) / "figure", ["png", "pdf"])
    except Exception as error:  # as above
        remedy = "pip install --upgrade altair vl-convert-python"
        return Finding("figures", PROBLEM, f"{type(error).__name__}: {error}", remedy)
    return Finding("figures", FINE, "PNG and PDF can be drawn")


def browser() -> Finding:
    """Return whether there is a browser to read reports and to review in."""
    try:
        webbrowser.get()
    except webbrowser.Error:
        remedy = "copy report.html to a machine with a browser; see docs/operating-a-review.md"
        return Finding("browser", OPTIONAL, "none on this machine", remedy)
    return Finding("browser", FINE, "for reports and reviews")


def extras() -> Iterator[Finding]:
    """Yield whether the packages of each extra are installed."""
    try:
        needed = required()
    except PackageNotFoundError:
        return
    for extra, purpose in EXTRAS.items():
        missing = [package for package in needed.get(extra, ()) if version_of(package) is None]
        state = OPTIONAL if missing else FINE
        remedy = f"pip install 'butfor[{extra}]'" if missing else ""
        yield Finding(f"extra {extra}", state, purpose, remedy)


def _print(findings: list[Finding], problems: int) -> None:
    console = Terminal()
    console.print(make_table(["", ""], versions().items()))
    rows = [(one.what, one.state, one.found) for one in findings]
    console.print(make_table(["what", "", "found"], rows))
    for one in findings:
        if one.remedy:
            say(f"{one.what}: {one.remedy}")
    plural = "problem" if problems == 1 else "problems"
    say(f"{problems} {plural} found." if problems else "butfor works here.")

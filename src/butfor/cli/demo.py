"""`butfor demo`: simulate a sepsis log, learn a policy from it and audit it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from butfor import sepsis
from butfor.audit.audit import AUDIT, Audit
from butfor.audit.folders import Kind, whole_folder
from butfor.audit.learning import factored_learner, tabular_learner
from butfor.audit.run import run_audit
from butfor.audit.settings import CAUTION
from butfor.cli.beside import second_process
from butfor.cli.options import Json, Verbose
from butfor.cli.output import Terminal, exit_on_error, print_json, progress_bar, records
from butfor.cli.summary import audit_as_json, print_audit
from butfor.cli.tables import make_table
from butfor.evaluate.rehearsal import rehearse
from butfor.evaluate.wording import digits_for
from butfor.log.episodes import Episodes
from butfor.models.planning import policy_value
from butfor.present import charts
from butfor.present.report import write_report
from butfor.present.report.figures import audit_figures
from butfor.replay.replay import Replay
from butfor.types import Progress, enter_stage

VERSION = "icml2019"  # the paper's simulator, whose failure the demonstration shows
FOLDERS = {"factored": "audit", "tabular": "audit-tabular"}  # kind of model: folder of its audit
REPORTS = {"factored": "report.html", "tabular": "report-tabular.html"}
DEMONSTRATION = Kind(
    f"{FOLDERS['factored']}/{AUDIT.marker}",
    AUDIT.sign,
    (
        *REPORTS.values(),
        "figures/*",
        *(f"{place}/{name}" for place in FOLDERS.values() for name in AUDIT.files),
    ),
)
PLANNING = 0.99  # discount
MODELS = 50  # drawn for credible intervals
INTERVALS = 50  # patients drawn at random who have intervals and bounds, besides those to review
COMPARED = ("Observed", "MB", "CF", "MB (cross-fitted)", "CF (cross-fitted)", "True")


def demo(
    episodes: Annotated[int, typer.Option(min=10, help="Patients to simulate.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for the audits, the figures and the reports.")
    ] = Path("demo"),
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Simulate a sepsis log, learn a policy from it, and ask what it would have changed.

    A factored and a tabular model of the same log are shown side by side.
    """
    console = Terminal(stderr=as_json)
    with exit_on_error(), progress_bar(console, "Simulating, learning, planning") as show:
        audits = make_demonstration(out, episodes=episodes, seed=seed, progress=show)
    written = {
        "Audit folder": out / FOLDERS["factored"],
        "Figures": out / "figures",
        "Report": out / REPORTS["factored"],
        "Report of the tabular model": out / REPORTS["tabular"],
    }
    audit, table = audits["factored"], compare_audits(audits)
    if as_json:
        found = audit_as_json(audit, list(written.values()))
        print_json(found | {"models": records(table.reset_index())})
        return
    print_audit(console, audit, verbose=verbose)
    if verbose:
        _print_models(console, audits, table)
    console.print(f"\n{_conclusion(table)}\n")
    for name, path in written.items():
        console.print(f"{name}: {path}")
    open_review = shlex.join([sys.argv[0], "review", str(written["Audit folder"])])
    console.print(f"To review: {open_review}", markup=False, soft_wrap=True)


def _print_models(console: Terminal, audits: Mapping[str, Audit], table: pd.DataFrame) -> None:
    """Print what both models say of the policies learned from them."""
    rows = [
        (kind, *(_with_interval(audits[kind], name, value) for name, value in row.items()))
        for kind, row in table.iterrows()
    ]
    console.print(
        "\n[bold]The same log, two models[/bold], each with the policy learned from it. "
        "Tabular: one distribution per state and action, as in the paper. Factored: one per "
        "variable, as above. Mean returns; True is known only because this is a simulator.",
        make_table(("", *(f">{name}" for name in table.columns)), rows),
    )


def _with_interval(audit: Audit, name: str, value: float) -> str:
    """Return a number, and below it its interval, if it has one and is an estimate."""
    row = audit.estimates.set_index("estimator").loc[name]
    digits = digits_for([value])
    span = "" if name == "Observed" else digits.span(row["low"], row["high"])
    return "\n".join(filter(None, (digits.value(value), span)))


def make_demonstration(
    folder: Path, *, episodes: int = 1000, seed: int = 0, progress: Progress | None = None
) -> dict[str, Audit]:
    """Simulate patients, hide what the physician saw, learn policies, and audit them.

    Writes audit folders, reports and figures, replacing an earlier demonstration, and returns the
    audits by kind of model. A second process does what need not wait: all about the tabular model,
    and the figures.
    """
    whole = whole_folder(folder, DEMONSTRATION, overwrite=True)
    with whole as new, second_process() as beside:
        physician = sepsis.behavior_policy(VERSION)
        full = sepsis.simulate(physician, episodes, seed=seed, version=VERSION)
        log = full.hide("glucose", "diabetes")
        tabular = beside.submit(_make_audit, "tabular", log, seed, new)
        factored = _audit_policy("factored", log, seed, progress)
        enter_stage(progress, "Writing reports and figures")
        figures = beside.submit(_draw_figures, factored, new)
        _write_audit("factored", factored, new)
        figures.result()
        return {"factored": factored, "tabular": tabular.result()}


def _make_audit(kind: str, log: Episodes, seed: int, folder: Path) -> Audit:
    audit = _audit_policy(kind, log, seed)
    _write_audit(kind, audit, folder)
    return audit


def _audit_policy(kind: str, log: Episodes, seed: int, progress: Progress | None = None) -> Audit:
    """Learn a model of this kind, and a policy from it, and audit that."""
    if kind == "factored":
        learn = factored_learner(log, discount=PLANNING, caution=CAUTION)
    else:
        learn = tabular_learner(discount=PLANNING)  # with the paper's planner
    model, target = learn(log)
    replay = Replay(log, model, target)
    known = sepsis.full_policy(replay.target_table)
    return run_audit(
        replay,
        learn=learn,
        truth=policy_value(sepsis.model(VERSION), known, horizon=log.horizon),
        models=MODELS,
        intervals=INTERVALS,
        rehearsal=rehearse(log, learn, horizon=log.horizon, seed=seed),
        seed=seed,
        record={
            "words": {"episode": "patient"},
            "target": f"learned from a {kind} model of this simulated log, which hides "
            "glucose and diabetes",
        },
        progress=progress,
    )


def _write_audit(kind: str, audit: Audit, folder: Path) -> None:
    audit.save(folder / FOLDERS[kind])
    write_report(audit, folder / REPORTS[kind])


def _draw_figures(audit: Audit, folder: Path) -> None:
    for name, chart in audit_figures(audit).items():
        charts.save_figure(chart, folder / "figures" / name, ("png", "svg"))


def compare_audits(audits: Mapping[str, Audit]) -> pd.DataFrame:
    """Return what each model promises, and what is true: one row per kind of model."""
    values = {kind: audit.estimates.set_index("estimator") for kind, audit in audits.items()}
    table = pd.DataFrame({kind: found["value"] for kind, found in values.items()}).T
    return table[list(COMPARED)].rename_axis("model").rename_axis(columns=None)


def _conclusion(table: pd.DataFrame) -> str:
    """Say what the comparison shows, as far as it shows it."""
    tabular, factored = table.loc["tabular"], table.loc["factored"]
    text = "Model estimates, not facts."
    if tabular["True"] < tabular["Observed"] < min(tabular["MB"], tabular["CF"]):
        text += (
            " According to the tabular model its policy beats the care given; in the simulator it "
            "is worse."
        )
    if tabular["True"] < factored["True"] < factored["MB"] < tabular["MB"]:
        care = "better" if factored["True"] > factored["Observed"] else "worse"
        text += (
            " The factored model promises less, and its policy is truly better than the tabular "
            f"one, but {care} than the care given, and it still promises too much: the physician "
            "saw glucose and diabetes, which no model of this log can know."
        )
    return f"{text} Such cases are for experts to read."

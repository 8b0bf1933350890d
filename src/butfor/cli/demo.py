"""`butfor demo`: simulate a sepsis log, learn a policy from it and audit it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from butfor import sepsis
from butfor.audit.audit import AUDIT, Audit
from butfor.audit.folders import Kind, check_free, whole_folder
from butfor.audit.learning import factored_learner, tabular_learner
from butfor.audit.run import run_audit
from butfor.audit.settings import CAUTION
from butfor.cli.options import Json, Verbose
from butfor.cli.output import Terminal, exit_on_error, make_table, print_json, progress_bar, records
from butfor.cli.summary import audit_as_json, print_audit
from butfor.evaluate.rehearsal import rehearse
from butfor.evaluate.wording import digits_for
from butfor.models.planning import policy_value
from butfor.present import charts
from butfor.present.report import write_report
from butfor.present.report.figures import audit_figures
from butfor.replay.replay import Replay
from butfor.types import Progress

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
INTERVALS = 100  # patients drawn at random who have intervals and bounds, besides those to review
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
        check_free(out, DEMONSTRATION, overwrite=True)
        audits = run_demonstration(episodes=episodes, seed=seed, progress=show)
        written = write_demonstration(audits, out)
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


def run_demonstration(
    *, episodes: int = 1000, seed: int = 0, progress: Progress | None = None
) -> dict[str, Audit]:
    """Simulate patients, hide what the physician saw, learn policies, and audit them.

    Returns the audits by kind of model.
    """
    physician = sepsis.behavior_policy(VERSION)
    full = sepsis.simulate(physician, episodes, seed=seed, version=VERSION)
    log = full.hide("glucose", "diabetes")
    learners = {
        "factored": factored_learner(log, discount=PLANNING, caution=CAUTION),
        "tabular": tabular_learner(discount=PLANNING),  # with the paper's planner
    }
    audits = {}
    for kind, learn in learners.items():
        model, target = learn(log)
        replay = Replay(log, model, np.asarray(target))
        known = sepsis.full_policy(replay.target_table)
        audits[kind] = run_audit(
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
    return audits


def compare_audits(audits: Mapping[str, Audit]) -> pd.DataFrame:
    """Return what each model promises, and what is true: one row per kind of model."""
    values = {kind: audit.estimates.set_index("estimator") for kind, audit in audits.items()}
    table = pd.DataFrame({kind: found["value"] for kind, found in values.items()}).T
    return table[list(COMPARED)].rename_axis("model").rename_axis(columns=None)


def write_demonstration(audits: Mapping[str, Audit], folder: str | Path) -> dict[str, Path]:
    """Write audit folders, figures and reports, replacing an earlier demonstration."""
    goal, audit = Path(folder), audits["factored"]
    with whole_folder(goal, DEMONSTRATION, overwrite=True) as new:
        for kind, found in audits.items():
            found.save(new / FOLDERS[kind])
            write_report(found, new / REPORTS[kind])
        for name, chart in audit_figures(audit).items():
            charts.save_figure(chart, new / "figures" / name, ("png", "svg"))
    return {
        "Audit folder": goal / FOLDERS["factored"],
        "Figures": goal / "figures",
        "Report": goal / REPORTS["factored"],
        "Report of the tabular model": goal / REPORTS["tabular"],
    }


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

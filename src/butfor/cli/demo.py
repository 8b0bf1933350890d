"""`butfor demo`: simulate a sepsis log, learn a policy from it and audit it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from butfor import sepsis
from butfor.audit.audit import REVIEW_FILES, Audit
from butfor.audit.folders import check_free, whole_folder
from butfor.audit.run import run_audit
from butfor.cli.options import Json
from butfor.cli.output import exit_on_error, print_json, progress_bar
from butfor.cli.summary import SHOWN, audit_as_json, print_audit
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value
from butfor.present import charts
from butfor.present.report import write_report
from butfor.replay.credible import credible_intervals
from butfor.types import Floats, Progress

VERSION = "icml2019"  # the paper's simulator, whose failure the demonstration shows
MARKER = "audit/meta.json"
REPORT = "report.html"


def demo(
    episodes: Annotated[int, typer.Option(min=10, help="Patients to simulate.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for the audit, the figures and the report.")
    ] = Path("demo"),
    as_json: Json = False,
) -> None:
    """Simulate a sepsis log, learn a policy from it, and ask what it would have changed."""
    console = Console(stderr=as_json)
    with exit_on_error(), progress_bar(console, "Simulating, learning, planning") as show:
        check_free(out, marker=MARKER, overwrite=True)
        audit = run_demonstration(episodes=episodes, seed=seed, progress=show)
        written = write_demonstration(audit, out)
    if as_json:
        print_json(audit_as_json(audit, written))
        return
    print_audit(console, audit)
    console.print(f"{_conclusion(audit)}\n")
    for name, path in zip(("Audit folder", "Figures", "Report"), written, strict=True):
        console.print(f"{name}: {path}")
    open_review = shlex.join([sys.argv[0], "review", str(written[0])])
    console.print(f"To review: {open_review}", markup=False, soft_wrap=True)


def run_demonstration(
    *, episodes: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Audit:
    """Simulate patients, hide what the physician saw, learn a policy, and audit it."""
    physician = sepsis.behavior_policy(VERSION)
    full = sepsis.simulate(physician, episodes, seed=seed, version=VERSION)
    log = full.hide("glucose", "diabetes")
    model, target = _learn(log)
    truth = policy_value(sepsis.model(VERSION), sepsis.full_policy(target), horizon=log.horizon)
    return run_audit(
        log,
        model,
        target,
        learn=_learn,
        truth=truth,
        credible=credible_intervals(log, target, seed=seed),
        seed=seed,
        record={
            "words": {"episode": "patient"},
            "target": "learned from this simulated log, which hides glucose and diabetes",
        },
        progress=progress,
    )


def write_demonstration(audit: Audit, folder: str | Path) -> list[Path]:
    """Write the audit folder, figures and report, replacing an earlier demonstration."""
    goal = Path(folder)
    keep = [f"audit/{name}" for name in REVIEW_FILES]
    with whole_folder(goal, marker=MARKER, overwrite=True, keep=keep) as new:
        audit.save(new / "audit")
        shown = audit.estimates[audit.estimates["estimator"].isin(SHOWN)]
        figures = {
            "estimates": charts.estimates_chart(shown, domain=(-1, 1)),
            "outcomes": charts.outcome_table_chart(
                audit.outcome_table(), expected=audit.outcome_table(expected=True)
            ),
        }
        for identifier in audit.flagged["id"].tolist()[:1]:
            one, draws = audit.trajectory(identifier)
            figures[f"patient_{identifier}"] = charts.trajectory_chart(one, 0, draws)
        for name, chart in figures.items():
            charts.save_figure(chart, new / "figures" / name, ("png", "svg"))
        write_report(audit, new / REPORT)
    return [goal / "audit", goal / "figures", goal / REPORT]


def _learn(log: Episodes) -> tuple[TabularMDP, Floats]:
    model = fit_mdp(log)
    return model, policy_iteration(model, discount=0.99)


def _conclusion(audit: Audit) -> str:
    value = audit.estimates.set_index("estimator")["value"]
    text = "Model estimates, not facts."
    if value["True"] < value["Observed"] < min(value["MB"], value["CF"]):
        text += (
            " According to the model the policy beats the care given; in the simulator it is "
            "worse. The physician saw what the model did not, and the policy was chosen on the "
            "same log that judges it."
        )
    return f"{text} Such cases are for experts to read."

"""The demonstration: a simulated sepsis log, a policy learned from it, and what it would change."""

from __future__ import annotations

from pathlib import Path

from butfor import sepsis
from butfor.audit.audit import REVIEW_FILES, Audit
from butfor.audit.folders import whole_folder
from butfor.audit.run import run_audit
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value
from butfor.present.charts import (
    estimates_chart,
    outcome_table_chart,
    save_figure,
    trajectory_chart,
)
from butfor.present.report import write_report
from butfor.replay.credible import credible_intervals
from butfor.types import Floats, Progress

VERSION = "icml2019"  # the simulator of the paper, whose failure the demonstration shows
MARKER = "audit/meta.json"
REPORT = "report.html"
# what a first look needs; the audit has all of them
SHOWN = ("Observed", "WIS", "MB", "CF", "MB (cross-fitted)", "CF (cross-fitted)", "True")


def learn(log: Episodes) -> tuple[TabularMDP, Floats]:
    """Learn a model from a log and plan a policy on it."""
    model = fit_mdp(log)
    return model, policy_iteration(model, discount=0.99)


def run_demonstration(
    *, episodes: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Audit:
    """Simulate patients, hide what the physician saw, learn a policy, and audit it."""
    physician = sepsis.behavior_policy(VERSION)
    full = sepsis.simulate(physician, episodes, seed=seed, version=VERSION)
    log = full.hide("glucose", "diabetes")
    model, target = learn(log)
    truth = policy_value(sepsis.model(VERSION), sepsis.full_policy(target), horizon=log.horizon)
    return run_audit(
        log,
        model,
        target,
        learn=learn,
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
    """Write audit folder, figures and report; a demonstration that is there is replaced."""
    goal = Path(folder)
    keep = [f"audit/{name}" for name in REVIEW_FILES]
    with whole_folder(goal, marker=MARKER, overwrite=True, keep=keep) as new:
        audit.save(new / "audit")
        shown = audit.estimates[audit.estimates["estimator"].isin(SHOWN)]
        charts = {
            "estimates": estimates_chart(shown, domain=(-1, 1)),
            "outcomes": outcome_table_chart(
                audit.outcome_table(), expected=audit.outcome_table(expected=True)
            ),
        }
        for identifier in audit.flagged["id"].tolist()[:1]:
            one, draws = audit.trajectory(identifier)
            charts[f"patient_{identifier}"] = trajectory_chart(one, 0, draws)
        for name, chart in charts.items():
            save_figure(chart, new / "figures" / name, ("png", "svg"))
        write_report(audit, new / REPORT)
    return [goal / "audit", goal / "figures", goal / REPORT]

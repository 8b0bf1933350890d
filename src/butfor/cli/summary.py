"""What the commands print about an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from butfor.audit.audit import Audit
from butfor.cli.output import make_table, records
from butfor.evaluate.wording import percent
from butfor.present.text import LIGHTS
from butfor.replay.steps import THIN

# the estimators of a first look; the audit holds all of them
SHOWN = ("Observed", "WIS", "MB", "CF", "MB (cross-fitted)", "CF (cross-fitted)", "True")
COLORS = {"green": "green", "amber": "yellow", "red": "red"}


def audit_as_json(audit: Audit, written: list[Path]) -> dict[str, Any]:
    """Return what `--json` prints about an audit."""
    return {
        "estimates": records(audit.estimates),
        "diagnostics": records(audit.diagnostics),
        "warnings": audit.meta.warnings,
        "problems": audit.meta.problems,
        "counts": audit.meta.counts.model_dump(),
        "target": audit.meta.target,
        "outcomes": audit.outcome_table().to_dict("index"),
        "flagged": records(audit.flagged.head(10)),
        "written": [str(path) for path in written],
    }


def print_audit(console: Console, audit: Audit) -> None:
    """Print the log, the estimates, the checks, the outcomes and the flagged episodes."""
    _print_log(console, audit)
    _print_estimates(console, audit)
    checks = make_table("", "", "")
    checks.show_header = False
    for check in audit.diagnostics.itertuples():
        color = COLORS[check.light]
        checks.add_row(
            f"[{color}]{LIGHTS[check.light]}[/{color}]", check.check, escape(check.sentence)
        )
    console.print("\n[bold]Checks[/bold]", checks)
    console.print(
        f"\n[bold]{escape(_noun(audit).capitalize())}s by what happened (rows) and most likely "
        "outcome under the policy[/bold]",
        outcomes_table(audit.outcome_table()),
    )
    _print_flagged(console, audit)


def outcomes_table(counts: pd.DataFrame) -> Table:
    """Return counts of episodes, observed by counterfactual outcome, as a table to print."""
    table = make_table("", *(f">{escape(name)}" for name in counts.columns))
    for name, numbers in counts.iterrows():
        table.add_row(escape(str(name)), *(str(number) for number in numbers))
    return table


def _noun(audit: Audit) -> str:
    return audit.meta.words.get("episode", "episode")


def _print_log(console: Console, audit: Audit) -> None:
    counts = audit.meta.counts
    unseen = ""
    if counts.unseen_pairs:
        filled = audit.meta.made_by.get("unseen") or "the worst outcome"
        unseen = (
            f" {counts.unseen_pairs} of {counts.states * counts.actions} state-action pairs never "
            f"occur in the log; the model fills them in: {escape(filled)}."
        )
    console.print(
        f"\n[bold]Would the policy have changed what happened?[/bold] {counts.episodes} "
        f"{escape(_noun(audit))}s, {counts.steps} decisions; the policy: "
        f"{escape(audit.meta.target)}.{unseen}\n"
    )
    for problem, count in audit.meta.problems.items():
        console.print(f"Reading: {escape(problem)}: {count}")
    for warning in audit.meta.warnings:
        console.print(escape(warning))


def _print_estimates(console: Console, audit: Audit) -> None:
    shown = audit.estimates[audit.estimates["estimator"].isin(SHOWN)]
    credible = audit.meta.parameters.credible
    table = make_table(
        "", ">Mean return", "95% interval*", *(["Model**"] if credible else []), ">Cases"
    )
    for _, row in shown.iterrows():
        table.add_row(
            row["estimator"],
            "undefined" if pd.isna(row["value"]) else f"{row['value']:+.3f}",
            _interval(row["low"], row["high"]),
            *([_interval(row["low_credible"], row["high_credible"])] if credible else []),
            str(row["episodes"]) if row["estimator"] in ("Observed", "WIS") else "",
        )
    console.print("[bold]How well would the policy do?[/bold]", table)
    true = " True: known only because this is a simulator." * (
        "True" in set(audit.estimates["estimator"])
    )
    console.print(
        "* Sampling error with the model and the policy held fixed; not errors in the model, nor "
        f"the luck in learning the policy.{true}"
    )
    if credible:
        console.print(
            "** Uncertainty about the transition probabilities, from "
            f"{credible.models} models drawn from their posterior; not what the states leave out, "
            "nor the choice of mechanism."
        )
    for row in shown[shown["estimator"].isin(("WIS", "CF (cross-fitted)"))].itertuples():
        if row.warning:
            console.print(f"{row.estimator}: {row.warning}.")


def _print_flagged(console: Console, audit: Audit) -> None:
    flagged = audit.flagged
    if len(flagged):
        survives = flagged["survives"].value_counts()
        console.print(
            f"Of {len(flagged)} flagged, {survives.get('any', 0)} keep the sign of their "
            f"change under every mechanism, {survives.get('stable', 0)} more under every "
            f"stable mechanism, and {survives.get('', 0)} depend on the choice of mechanism. This "
            "assumes that the model is right; the bounds treat each step separately and are "
            f"conservative. {(flagged['thin_share'] > 0.5).sum()} rest mostly on fewer than {THIN} "
            "similar past cases.\n"
        )
    first = flagged.head(10)
    console.print(
        f"[bold]The {len(first)} {escape(_noun(audit))}{'s' if len(first) != 1 else ''} with the "
        "largest change[/bold]: what happened, the probability of each outcome under the "
        "policy, the change in expected return, and the first step (counted from 0) at which "
        "the policy would have acted differently. Sure: whether the sign holds under any "
        "mechanism, or any stable one. Cases: the fewest similar past cases along the way",
        _flagged_table(first, list(audit.meta.outcomes), audit.meta.none),
    )


def _flagged_table(frame: pd.DataFrame, outcomes: list[str], none: str) -> Table:
    names = [f">{escape(name)}" for name in [*outcomes, none]]
    table = make_table(">Id", "Happened", *names, ">Change", ">Step", "Sure", ">Cases")
    columns = [f"p_{name}" for name in outcomes] + ["p_none"]
    for _, row in frame.iterrows():
        table.add_row(
            escape(str(row["id"])),
            escape(row["observed_outcome"]),
            *(_short_percent(row[column]) for column in columns),
            f"{row['difference']:+.2f}",
            "never" if row["first_change"] < 0 else str(row["first_change"]),
            row["survives"] or "no",
            f"{row['evidence_min']:.0f}",
        )
    return table


def _interval(low: float, high: float) -> str:
    return "" if pd.isna(low) else f"{low:+.2f} to {high:+.2f}"


def _short_percent(probability: float) -> str:
    return percent(probability).replace("under ", "<").replace("over ", ">")

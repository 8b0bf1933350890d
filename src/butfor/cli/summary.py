"""What the commands print about an audit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from butfor.audit.audit import Audit
from butfor.cli.output import records
from butfor.cli.tables import FittedTable, make_table
from butfor.evaluate.estimators.table import CONTINUED, RECORDS
from butfor.evaluate.finding import TOLD
from butfor.evaluate.wording import (
    Digits,
    counted,
    digits_for,
    in_words,
    percent,
    plural,
    share,
)
from butfor.present.story import outcome_chances, recorded_part
from butfor.present.text import LIGHTS, Clock, capitalized, check_name, clock_of, left_out
from butfor.replay.steps import THIN
from butfor.replay.usual import MOSTLY

SHOWN = (*TOLD, "True")  # the estimators of a first look; the audit holds all of them
SINCE = (  # what changes are from
    " from what was recorded and, where it stops early, goes on as the model expects of usual care "
    f"(Recorded: how much of that, if less than {percent(MOSTLY)})"
)
TELLING, MOST_TOLD = 5, 10  # flagged episodes that are printed, by default and with --verbose
COLORS = {"green": "green", "unknown": "cyan", "amber": "yellow", "red": "red"}


def audit_as_json(audit: Audit, written: list[Path]) -> dict[str, Any]:
    """Return what `--json` prints about an audit."""
    return {
        "conclusion": asdict(audit.conclusion),
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


def print_audit(console: Console, audit: Audit, *, verbose: bool = False) -> None:
    """Print the conclusion, the estimates, the checks that fail and the most telling episodes.

    With `verbose` also notes on the log, every check, and a table of outcomes.
    """
    conclusion, noun = audit.conclusion, audit.noun
    sentence = in_words(conclusion.sentence, noun)
    console.print(escape(f"\n{sentence}"), style=f"bold {COLORS[conclusion.light]}")
    if conclusion.reason:
        console.print(f"Why: {escape(in_words(conclusion.reason, noun))}")
    _print_log(console, audit, verbose)
    _print_estimates(console, audit, verbose)
    _print_checks(console, audit, verbose)
    if verbose:
        console.print(
            f"\n[bold]{escape(capitalized(plural(noun)))} by what happened (rows) and most likely "
            "outcome under the policy[/bold]",
            outcomes_table(_without_nobody(audit.outcome_table())),
        )
    _print_flagged(console, audit, verbose)


def _print_checks(console: Console, audit: Audit, verbose: bool) -> None:
    """Print the checks that fail, or all of them."""
    table, noun = audit.diagnostics, audit.noun
    shown = table if verbose else table[table["light"] == "red"]
    rows = []
    for check in shown.itertuples():
        name = check_name(check.check, noun)
        result = Text(LIGHTS[check.light], style=COLORS[check.light])
        rows.append([result, name, in_words(check.sentence, noun)][not verbose :])
    if rows:
        title = "Checks" if verbose else "Checks that fail"
        console.print(f"\n[bold]{title}[/bold]", make_table([""] * len(rows[0]), rows))
    others = [check_name(name, noun) for name in table.loc[table["light"] == "amber", "check"]]
    if others and not verbose:
        console.print(f"Caution: {escape(', '.join(others))}.")
    if not verbose:
        console.print("All checks and what they found: --verbose.")


def _without_nobody(counts: pd.DataFrame) -> pd.DataFrame:
    """Leave out the row and column of no outcome if there is nobody in either."""
    none = counts.index[-1]
    if counts.loc[none].sum() + counts[none].sum():
        return counts
    return counts.drop(index=none, columns=none)


def outcomes_table(counts: pd.DataFrame) -> FittedTable:
    """Return counts of episodes, observed by counterfactual outcome, as a table to print."""
    return make_table(["", *(f">{name}" for name in counts)], counts.itertuples(name=None))


def _print_log(console: Console, audit: Audit, verbose: bool) -> None:
    counts = audit.meta.counts
    unseen = ""
    if counts.unseen_pairs:
        filled = audit.meta.made_by.get("unseen") or "the worst outcome"
        unseen = (
            f" {counts.unseen_pairs} of {counts.states * counts.actions} state-action pairs never "
            f"occur in the log; the model fills them in: {escape(filled)}."
        )
    console.print(
        "\n[bold]Would the policy have changed what happened?[/bold] "
        f"{escape(counted(counts.episodes, audit.noun))}, {counted(counts.steps, 'decision')}; the "
        f"policy: {escape(audit.meta.target)}. To follow it, {share(audit.policy.changed)} of the "
        f"decisions would have to change.{unseen}\n"
    )
    if lost := left_out(audit.meta.problems, counts.episodes, audit.noun):
        console.print(f"[bold]{escape(lost)}[/bold]\n")
    notes = [f"Reading: {problem}: {count}" for problem, count in audit.meta.problems.items()]
    notes += audit.meta.warnings
    if verbose:
        for note in notes:
            console.print(escape(in_words(note, audit.noun)))
    elif notes:
        console.print(f"{counted(len(notes), 'note')} on the log and the model: --verbose.")


def _print_estimates(console: Console, audit: Audit, verbose: bool) -> None:
    shown = audit.estimates[audit.estimates["estimator"].isin(SHOWN)]
    credible = audit.meta.parameters.credible if shown["low_credible"].notna().any() else None
    columns = ["", ">Mean return", "95% interval*", "Model**", ">Cases"]
    digits = digits_for(shown["value"], rate=audit.is_rate)
    rows = [
        [
            row.estimator,
            "undefined" if pd.isna(row.value) else digits.value(row.value),
            digits.span(row.low, row.high),
            digits.span(row.low_credible, row.high_credible),
            row.episodes if row.estimator in (*RECORDS, "WIS") else "",
        ]
        for row in shown.itertuples()
    ]
    if not credible:
        for line in (columns, *rows):
            del line[3]
    console.print("[bold]How well would the policy do?[/bold]", make_table(columns, rows))
    true = " True: known only because this is a simulator." * (
        "True" in set(audit.estimates["estimator"])
    )
    console.print(
        "* Chance in the sample, and in what the model learned from it; not what the states leave "
        f"out.{true}"
    )
    if CONTINUED in set(shown["estimator"]):
        warning = shown.set_index("estimator").loc[CONTINUED, "warning"]
        console.print(escape(in_words(f"{CONTINUED}: {warning}.", audit.noun)))
    if credible:
        console.print(
            "** Uncertainty about the transition probabilities, from "
            f"{credible.models} models drawn from their posterior; not what the states leave out, "
            "nor the choice of mechanism."
        )
        if credible.these:
            these = f"CF of just these episodes is {digits.span(*credible.these)}."
            console.print(f"   In these models, {escape(in_words(these, audit.noun))}")
    for names, sentence in _notes(shown, digits) if verbose else ():
        console.print(escape(in_words(f"{names}: {sentence}.", audit.noun)))


def _notes(estimates: pd.DataFrame, digits: Digits) -> list[tuple[str, str]]:
    """Return why estimates have no interval, and what else is doubtful about two of them."""
    found: dict[str, list[str]] = {}
    for row in estimates.itertuples():
        reason, _, others = str(row.warning).partition("; ")
        if not reason.startswith("no interval"):
            reason, others = "", str(row.warning)
        told = others if row.estimator in ("WIS", "CF (cross-fitted)") else ""
        for sentence in filter(None, (reason, told)):
            found.setdefault(sentence, []).append(str(row.estimator))
        if np.isfinite(row.low_these):
            span = digits.span(row.low_these, row.high_these)
            found[f"for these episodes alone the interval is {span}"] = ["CF"]
    return [(", ".join(names), sentence) for sentence, names in found.items()]


def _print_flagged(console: Console, audit: Audit, verbose: bool) -> None:
    flagged = audit.flagged
    if verbose and len(flagged) and not audit.meta.parameters.sampled:
        survives = flagged["survives"].value_counts()
        console.print(
            f"Of {len(flagged)} flagged, {survives.get('any', 0)} keep the sign of their "
            f"change under every mechanism, {survives.get('stable', 0)} more under every "
            f"stable mechanism, and {survives.get('', 0)} depend on the choice of mechanism. This "
            "assumes that the model is right; the bounds treat each step separately and are "
            f"conservative. {(flagged['thin_share'] > 0.5).sum()} rest mostly on fewer than {THIN} "
            "similar past cases.\n"
        )
    first = flagged.head(MOST_TOLD if verbose else TELLING)
    if not len(first):
        console.print(f"No {escape(audit.noun)} is flagged{escape(_why_none(audit))}.")
        return
    clock, since = clock_of(audit.meta), SINCE if "recorded_share" in first else ""
    console.print(
        f"\n[bold]The {escape(counted(len(first), audit.noun))} with the largest change[/bold]: "
        "what happened, the probability of each outcome under the policy, the change in expected "
        f"return{since}, and the first {escape(clock.unit)} (counted from 0) at which the "
        "policy would have acted differently. Sure: whether the sign holds under any mechanism, or "
        "any stable one. Cases: the fewest similar past cases along the way.",
        _flagged_table(first, audit, clock),
    )


def _why_none(audit: Audit) -> str:
    if audit.meta.parameters.flags == 0:
        return ": --flags is 0"
    if audit.meta.design is not None and audit.meta.design.review_size == 0:
        return ": --review-size is 0"
    return ": the policy changes the likeliest outcome of none of them"


def _flagged_table(flagged: pd.DataFrame, audit: Audit, clock: Clock) -> FittedTable:
    outcomes = audit.meta.outcome_names
    shown = outcomes[: -1 if audit.all_end else None]
    digits = digits_for(flagged["difference"], rate=audit.is_rate)
    unit = capitalized(clock.unit)
    continued = "recorded_share" in flagged
    recorded = [">Recorded"] * continued
    columns = (*(f">{o}" for o in shown), ">Change", *recorded, f">{unit}", "Sure", ">Cases")
    rows = (
        (
            row["id"],
            row["observed_outcome"],
            *(
                percent(chance).replace("under ", "<").replace("over ", ">")
                for _, chance in outcome_chances(row, outcomes)[: len(shown)]
            ),
            digits.gap(row["difference"]),
            *[recorded_part(row)] * continued,
            "never" if row["first_change"] < 0 else clock.time(int(row["first_change"])),
            "" if pd.isna(row["survives"]) else row["survives"] or "no",
            f"{row['evidence_min']:.0f}",
        )
        for _, row in flagged.iterrows()
    )
    return make_table((">Id", "Happened", *columns), rows)

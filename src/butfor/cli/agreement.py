"""`butfor agreement`: how well reviewers agree, and what they expect of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from butfor.audit.audit import load_for_readers
from butfor.cli.options import Json
from butfor.cli.output import Terminal, exit_on_error, print_json
from butfor.cli.tables import make_table
from butfor.evaluate.agreement import Agreement
from butfor.evaluate.wording import counted
from butfor.present.experts import experts_view
from butfor.review.experts import view_experts
from butfor.review.export import agreement_of_export
from butfor.review.plan import run_id
from butfor.review.results import agreement_between
from butfor.review.reviewer import rename
from butfor.review.store import find_reviews, open_copy


def agreement(
    reviews: Annotated[Path, typer.Argument(help="Audit folder, or exported reviews.csv.")],
    audit: Annotated[
        Path | None,
        typer.Option(help="With a CSV file: the audit folder, for what the reviewers expect."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how well reviewers agree, and estimate the policy's value from their answers."""
    with exit_on_error():
        folder = reviews if reviews.is_dir() else audit
        known = None if folder is None else load_for_readers(folder)
        expected: dict[str, Any] | None = None
        if known is not None and reviews.is_dir():
            with open_copy(find_reviews(reviews)) as store:
                expected = experts_view(view_experts(known, store), known)
                given = rename(store.reviews(run_id(known)), store.pseudonyms())
            found = {run_id(known): agreement_between(given)}
        else:
            expected = None if known is None else experts_view(view_experts(known, reviews), known)
            found = agreement_of_export(reviews)
    if as_json:
        content: dict[str, Any] = {run: asdict(measured) for run, measured in found.items()}
        if known is not None:
            content.setdefault(run_id(known), {})["experts"] = expected
        print_json(content)
        return
    console = Terminal()
    for run, measured in found.items():
        _print_agreement(console, run, measured, "episode" if known is None else known.noun)
    if expected is not None:
        _print_expected(console, expected)


def _print_agreement(console: Console, run: str, measured: Agreement, noun: str) -> None:
    measures = {
        "Share of equal pairs": measured.percent,
        "Krippendorff's alpha": measured.alpha,
        "Gwet's AC1": measured.ac1,
    }
    pairs = {f"Cohen's kappa: {p.first}, {p.second}": p.kappa for p in measured.kappas}
    rows = (
        (
            name,
            "" if measure.value is None else f"{measure.value:.2f}",
            "" if measure.low is None else f"{measure.low:.2f} to {measure.high:.2f}",
            measure.note,
        )
        for name, measure in (measures | pairs).items()
    )
    console.print(
        f"Run {run[:8]}: {counted(measured.stays, noun)} read by at least two of "
        f"{measured.reviewers} reviewers",
        markup=False,
    )
    console.print(make_table(("", ">Value", "95% interval", ""), rows))


def _print_expected(console: Console, expected: Mapping[str, Any]) -> None:
    console.print("What the reviewers expect", style="bold")
    console.print(" ".join(expected["sentences"]), markup=False, highlight=False)
    if expected["table"]:
        head, *rows = expected["table"]
        console.print(make_table(head, rows))
    for note in expected["notes"]:
        console.print(f"- {note}", markup=False, highlight=False)

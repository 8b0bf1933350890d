"""`butfor agreement`: measure how well reviewers agree."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from butfor.cli.options import Json
from butfor.cli.output import exit_on_error, make_table, print_json
from butfor.review.export import agreement_of_export


def agreement(
    reviews: Annotated[Path, typer.Argument(help="Exported reviews.csv.")],
    as_json: Json = False,
) -> None:
    """Recompute the agreement between reviewers from an export."""
    with exit_on_error():
        found = agreement_of_export(reviews)
    if as_json:
        print_json({run: asdict(measured) for run, measured in found.items()})
        return
    console = Console()
    for run, measured in found.items():
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
            f"Run {run[:8]}: {measured.stays} episodes read by at least two of "
            f"{measured.reviewers} reviewers",
            markup=False,
        )
        console.print(make_table(("", ">Value", "95% interval", ""), rows))

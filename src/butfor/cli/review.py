"""`butfor review` and `butfor agreement`: flagged episodes are judged, and verdicts compared."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from butfor.cli.options import Json
from butfor.cli.output import exit_on_error, make_table, print_json
from butfor.review.export import agreement_of_export, export_reviews
from butfor.review.plan import ReviewSettings
from butfor.review.serve import Address, serve
from butfor.review.store import verify_folder


def review(
    folder: Annotated[Path, typer.Argument(metavar="AUDIT", help="Audit folder.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    needed: Annotated[
        int | None, typer.Option(min=1, help="Verdicts wanted for each episode.")
    ] = None,
    first_impression: Annotated[
        bool,
        typer.Option("--first-impression", help="Ask for an opinion before the model is shown."),
    ] = False,
    show_overview: Annotated[
        bool,
        typer.Option(
            "--show-overview", help="Show the overview before a reviewer has finished the queue."
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File that lists who may review: one name and token per line."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate; requires --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="TLS key; requires --certificate.")] = None,
    behind_tls: Annotated[
        bool, typer.Option("--behind-tls", help="A proxy in front of the app handles TLS.")
    ] = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Host name that reviewers use; repeatable.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the reviews to a .csv or .jsonl file and exit.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check that no verdict was altered, and exit.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="With --verify: a head noted earlier, which the chain must contain."),
    ] = None,
) -> None:
    """Let clinicians judge the flagged cases of an audit in their browser."""
    with exit_on_error():
        if verify:
            found = verify_folder(folder, head)
            typer.echo(f"{found.events} events; head {found.head}")
            typer.echo("The chain is intact." if found.ok else f"BROKEN: {found.problem}")
            raise typer.Exit(0 if found.ok else 1)
        if export is not None:
            typer.echo(f"Reviews: {export_reviews(folder, export)}")
            return
        settings = None
        if needed is not None or first_impression:
            settings = ReviewSettings(needed=needed or 2, first_impression=first_impression)
        address = Address(
            host=host,
            port=port,
            token_file=token_file,
            certificate=certificate,
            key=key,
            behind_tls=behind_tls,
            names=tuple(name or ()),
        )
        serve(folder, address, settings=settings, show_overview=show_overview, say=typer.echo)


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

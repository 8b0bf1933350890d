"""The command line: parse, call one function, print."""

from __future__ import annotations

import json
from typing import Annotated

import pandas as pd
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import butfor
from butfor.demo import Demonstration, run_demonstration

app = typer.Typer(
    help="But for what was done: what would have happened under another policy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"butfor {butfor.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def demo(
    episodes: Annotated[int, typer.Option(min=1, help="Patients to simulate.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Simulate a sepsis log, learn a policy from it, and ask what it would have changed."""
    console = Console(stderr=as_json)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task("Simulating, learning, planning", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, description="Episodes", completed=done, total=total)

        result = run_demonstration(episodes=episodes, seed=seed, progress=show)
    if as_json:
        typer.echo(json.dumps(_demonstration_as_json(result)))
    else:
        _print_demonstration(console, result)


def _demonstration_as_json(demonstration: Demonstration) -> dict[str, object]:
    return {
        "estimates": dict(
            zip(demonstration.estimates["estimator"], demonstration.estimates["value"], strict=True)
        ),
        "outcomes": demonstration.result.table().to_dict("index"),
        "largest_differences": demonstration.largest_differences().to_dict("records"),
    }


def _print_demonstration(console: Console, demonstration: Demonstration) -> None:
    log, model = demonstration.log, demonstration.model
    console.print(
        f"\n[bold]Would the policy have changed what happened?[/bold] {len(log)} simulated "
        f"patients, {len(log.state)} decisions. The policy was learned from this log, which hides "
        f"glucose and diabetes. {int((model.counts > 0).sum())} of {model.counts.size} pairs of "
        "state and treatment were ever seen; the others are taken to be fatal.\n"
    )
    estimates = _table("", ">Mean return", "")
    for _, row in demonstration.estimates.iterrows():
        estimates.add_row(row["estimator"], f"{row['value']:+.3f}", row["note"])
    console.print("[bold]How well would the policy do?[/bold]", estimates)

    counts = demonstration.result.table()
    outcomes = _table("", *(f">{name}" for name in counts.columns))
    for name, numbers in counts.iterrows():
        outcomes.add_row(str(name), *(str(number) for number in numbers))
    console.print(
        "[bold]Patients by what happened (rows) and likeliest outcome under the policy[/bold]",
        outcomes,
    )
    frame = demonstration.largest_differences()
    console.print(
        f"[bold]The {len(frame)} patients for whom it would differ most[/bold]: what happened, the "
        "chance of each outcome under the policy, by how much the expected return differs, and the "
        "first step at which the policy would have done something else",
        _largest_differences(frame, counts.columns),
    )
    console.print(
        "Model estimates, not facts: to the model the policy looks excellent, in the simulator it "
        "does harm, because the model never saw what the physician saw. Such cases are for experts "
        "to read."
    )


def _largest_differences(frame: pd.DataFrame, outcomes: pd.Index[str]) -> Table:
    table = _table(
        ">Patient",
        ">Steps",
        "Happened",
        *(f">{name}" for name in outcomes),
        ">Differs by",
        ">Step",
    )
    columns = [f"p_{name}" for name in outcomes[:-1]] + ["p_none"]
    for _, row in frame.iterrows():
        table.add_row(
            str(row["id"]),
            str(row["length"]),
            row["observed_outcome"],
            *(_percent(row[column]) for column in columns),
            f"{row['difference']:+.2f}",
            "never" if row["first_change"] < 0 else str(row["first_change"]),
        )
    return table


def _table(*columns: str) -> Table:
    """Return an empty table; a column whose name starts with > holds numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name[:1] == ">" else "left")
    return table


def _percent(probability: float) -> str:
    """Return a percentage; never 0 or 100, which no model can know."""
    if probability < 0.001:
        return "<0.1%"
    return ">99.9%" if probability > 0.999 else f"{probability:.1%}"

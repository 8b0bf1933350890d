"""`butfor labels`: compare noise on states with noise on what nature decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape

from butfor.audit.settings import AuditSettings
from butfor.audit.source import compare_log
from butfor.cli import options
from butfor.cli.output import Terminal, exit_on_error, print_json, progress_bar, records
from butfor.cli.summary import outcomes_table
from butfor.cli.tables import make_table
from butfor.evaluate.wording import counted, digits_for
from butfor.replay.labels import LabelComparison


def labels(
    log: options.Log,
    study_file: options.StudyFile,
    noise_on: Annotated[
        str | None,
        typer.Option(
            help="State variables that nature decides, separated by commas; by default those of "
            "[noise] in the study file, or those that do not share a name with an action."
        ),
    ] = None,
    target: options.Target = "learn",
    missing: options.Missing = "error",
    unseen: options.Unseen = None,
    prior: options.Prior = 0.0,
    smoothing: options.Smoothing = 0.0,
    flags: options.Flags = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the clustering.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Compare counterfactuals with noise on states and with noise on what nature decides."""
    console = Terminal(stderr=as_json)
    with exit_on_error(), progress_bar(console, "Reading, learning, comparing") as show:
        settings = AuditSettings(
            target=target,
            missing=missing,
            unseen=unseen,
            prior=prior,
            smoothing=smoothing,
            noise_on=options.split_names(noise_on),
            flags=flags,
            seed=seed,
        )
        compared, names = compare_log(options.source_of(log), study_file, settings, progress=show)
    if as_json:
        print_json(_comparison_as_json(compared, names))
    else:
        noun = settings.read_study(study_file).words.episode
        _print_comparison(console, compared, names, noun)


def _comparison_as_json(compared: LabelComparison, names: Sequence[str]) -> dict[str, Any]:
    return {
        "noise_on": list(names),
        "summary": records(compared.summary()),
        "outcomes": {
            "states": compared.states.counterfactuals.table().to_dict("index"),
            "labels": compared.labels.counterfactuals.table().to_dict("index"),
        },
        "flagged": int(compared.flagged.sum()),
        "flagged_changed": int((compared.flagged & compared.changed).sum()),
        "changed": int(compared.changed.sum()),
        "episodes": records(compared.frame()),
    }


def _print_comparison(
    console: Console, compared: LabelComparison, names: Sequence[str], noun: str
) -> None:
    console.print(
        "\n[bold]Noise on next states, or on what nature decides?[/bold] The labels are the "
        f"levels of {escape(', '.join(names))}."
    )
    of_states, of_labels = compared.summary().to_dict("records")
    digits = digits_for([of_states["mean_return"], of_labels["mean_return"]])
    rows = (
        (description, form(of_states[column]), form(of_labels[column]))
        for description, column, form in (
            ("Labels", "labels", str),
            ("Pairs of rows without a common label: of those encountered", "apart_of_met", _share),
            ("… of all seen", "apart_of_all", _share),
            (f"Steps at which the counterfactual is about the {noun}", "share_about", _share),
            ("Mean return under the policy", "mean_return", digits.value),
        )
    )
    console.print(make_table(("", ">Noise on states", ">Noise on labels"), rows))
    for noise, result in (("states", compared.states), ("labels", compared.labels)):
        console.print(
            f"[bold]Noise on {noise}[/bold]: what happened (rows) and most likely outcome",
            outcomes_table(result.counterfactuals.table()),
        )
    _print_largest(console, compared.frame())
    changed, flagged = compared.changed, compared.flagged
    console.print(
        f"The most likely outcome changes for {changed.sum()} of {counted(len(changed), noun)}, "
        f"and for {(flagged & changed).sum()} of the {flagged.sum()} flagged with either noise. "
        "Model estimates, not facts: no data can tell which noise is right."
    )


def _print_largest(console: Console, frame: pd.DataFrame) -> None:
    """Print the ten episodes whose expected return differs most."""
    largest = frame.loc[(-frame["difference"].abs()).argsort(kind="stable")].head(10)
    numbers = ("expected_return_states", "expected_return_labels", "difference")
    digits = digits_for(largest[list(numbers)].to_numpy().ravel())
    rows = (
        (row["id"], row["observed_outcome"], *(digits.value(row[column]) for column in numbers))
        for _, row in largest.iterrows()
    )
    columns = (">Id", "Happened", ">Noise on states", ">Noise on labels", ">Difference")
    console.print(
        f"[bold]Expected return of the {len(largest)} that change most[/bold]",
        make_table(columns, rows),
    )


def _share(share: float) -> str:
    """Write a share of what was counted; NaN means that there was nothing to count."""
    return "none met" if pd.isna(share) else f"{100 * share:.0f}%"

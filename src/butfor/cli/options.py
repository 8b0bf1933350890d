"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Log = Annotated[
    list[Path],
    typer.Argument(
        help="CSV or Parquet file, several files, or a folder; or that of a MEDS data set."
    ),
]
StudyFile = Annotated[Path, typer.Option("--study", help="Study file that describes the log.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="'learn' (the default), a table of states, actions and probabilities, or 'log': the "
        "policy whose columns the study file names. Given several times, each policy has its own "
        "folder in --out, and comparison.csv their differences.",
    ),
]
BadCases = Annotated[
    float,
    typer.Option(
        min=0,
        help="Learned target: plan as if each action had this many more cases that ended in the "
        "outcome of lowest reward. 0 takes the model at its word, and chases luck.",
    ),
]
LeastCases = Annotated[
    int,
    typer.Option(
        min=0,
        help="Learned target: take only actions with this many similar past cases, or the one "
        "taken most often in that state.",
    ),
]
Risk = Annotated[
    float | None,
    typer.Option(
        help="Learned target: keep the action taken most often in a state unless another is "
        "better with probability 1 - risk, such as 0.05. Takes longer.",
    ),
]
Missing = Annotated[
    str, typer.Option(help="How to treat states missing from the table: error or uniform.")
]
Unseen = Annotated[
    str | None,
    typer.Option(
        help="Where state-action pairs absent from the log lead: an outcome, uniform or self-loop."
    ),
]
Prior = Annotated[float, typer.Option(help="Pseudo-count added to each transition.")]
Smoothing = Annotated[
    float,
    typer.Option(help="Pseudo-count added to each action when the behavior policy is estimated."),
]
Flags = Annotated[int, typer.Option(min=0, help="Maximum number of episodes to flag.")]
Overwrite = Annotated[bool, typer.Option(help="Replace existing output.")]
Verbose = Annotated[
    bool, typer.Option(help="Also print all checks, notes on the log, and a table of outcomes.")
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]


def source_of(log: list[Path]) -> Path | list[Path]:
    """Return the log argument as the readers expect it: one path or several."""
    return log[0] if len(log) == 1 else log


def split_names(text: str | None) -> list[str] | None:
    """Split a comma-separated list of variable names."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(
            f"--noise-on {text!r} names no variable; omit it to put the noise on the next state"
        )
    return names

"""`butfor study`: run an experiment and write its article."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from butfor.checks import check_choice
from butfor.cli.options import Json, Overwrite
from butfor.cli.output import Terminal, exit_on_error, progress_bar, say
from butfor.paper.article import STUDY as OBERST2019
from butfor.studies.article import RESULTS, Study, StudySettings, write_study
from butfor.studies.factors.article import STUDY as FACTORS
from butfor.studies.mechanisms.article import STUDY as MECHANISMS

STUDIES: dict[str, Study] = {
    "oberst2019": OBERST2019,
    "factors": FACTORS,
    "mechanisms": MECHANISMS,
}
GONE = {  # since 0.2.0, and where to read instead
    "hidden-state": "docs/hidden-state.md",
    "models": "docs/which-model.md",
    "caution": "docs/learned-targets.md",
}


def check_study(name: str) -> str:
    """Exit with code 2 unless there is a study of this name."""
    with exit_on_error():
        if name in GONE:
            raise ValueError(
                f"study {name!r} is gone since version 0.2.0; for what it found read {GONE[name]}. "
                f"The studies that remain are {', '.join(STUDIES)}"
            )
        return check_choice(name, "study", tuple(STUDIES))


def study(
    name: Annotated[
        str,
        typer.Argument(
            help=f"Which study: {', '.join(STUDIES)}.", callback=check_study, is_eager=True
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the article.")],
    repeats: Annotated[int | None, typer.Option(min=2, help="Number of fresh logs.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of everything that is random.")
    ] = None,
    simulator: Annotated[str | None, typer.Option(help="icml2019 or corrected.")] = None,
    terminal: Annotated[
        str | None, typer.Option(help="How episode ends are counted: icml2019 or visits.")
    ] = None,
    behavior: Annotated[
        str | None,
        typer.Option(help="oberst2019: physician planned on the estimated or the exact tensor."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Run an experiment in the simulator and write it up as an article.

    Each study has its own defaults; see docs/studies.md.
    """
    options = {
        "repeats": repeats,
        "seed": seed,
        "simulator": simulator,
        "terminal": terminal,
        "behavior": behavior,
    }
    with exit_on_error():
        chosen = STUDIES[name]
        settings = _settings(name, chosen, options)
        with progress_bar(Terminal(stderr=True), "Logs and figures") as show:
            folder = write_study(chosen, settings, out, overwrite=overwrite, progress=show)
    results = (folder / RESULTS).read_text()
    if as_json:
        say(results)
    else:
        short = " ".join(json.loads(results)["in_short"])
        Terminal().print(short, markup=False, highlight=False)
        say(f"Article: {folder / 'index.html'}")


def _settings(name: str, study: Study, options: dict[str, Any]) -> StudySettings:
    known = {field.name for field in fields(study.settings)}
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in known:
            has = ", ".join(f"--{other}" for other in options if other in known)
            raise ValueError(f"study {name!r} has no option --{option}; it has {has}")
    return study.settings(**given)

"""The article: the sepsis simulator, and a ward with thirty variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from butfor.studies.article import Advance, Study
from butfor.studies.models import charts as sepsis_charts
from butfor.studies.models import summary
from butfor.studies.models import tables as sepsis_tables
from butfor.studies.models.experiment import (
    SEPSIS,
    WIDE,
    Experiment,
    ModelsSettings,
    run_experiment,
)
from butfor.studies.models.wide import article as wide
from butfor.studies.models.wide.experiment import WideExperiment, run_wide


@dataclass(frozen=True, eq=False)
class Findings:
    """The parts that were run."""

    sepsis: Experiment | None
    wide: WideExperiment | None


def run(settings: ModelsSettings, *, advance: Advance = lambda: None) -> Findings:
    """Run the parts that the settings choose."""
    sepsis = run_experiment(settings, advance=advance) if SEPSIS in settings.parts else None
    seeds = [settings.base_seed(repeat, 2) for repeat in range(settings.classifier_repeats)]
    ward = run_wide(seeds, advance=advance) if WIDE in settings.parts else None
    return Findings(sepsis, ward)


def charts(findings: Findings) -> dict[str, Any]:
    """Return the figures by file name."""
    found = sepsis_charts.charts(findings.sepsis) if findings.sepsis else {}
    return found | (wide.charts(findings.wide) if findings.wide else {})


def tables(findings: Findings) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    found = sepsis_tables.tables(findings.sepsis) if findings.sepsis else {}
    return found | (wide.tables(findings.wide) if findings.wide else {})


def results(findings: Findings) -> dict[str, Any]:
    """Return the numbers for machines."""
    found = summary.results(findings.sepsis) if findings.sepsis else {}
    return found | ({"wide": wide.results(findings.wide)} if findings.wide else {})


def content(findings: Findings) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    return summary.content(findings.sepsis) if findings.sepsis else {}


def short(findings: Findings) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    found = [
        "Which model should be learned from a log: a table of whole states, or one distribution "
        "for each variable?"
    ]
    found += summary.short(findings.sepsis) if findings.sepsis else []
    found += [wide.short(findings.wide)] if findings.wide else []
    if findings.wide is None:
        found.append("How models compare in one simulator need not be how they compare elsewhere.")
    if findings.sepsis is None:
        found.append("The ward is of our own making; elsewhere models may compare differently.")
    return found


STUDY = Study(
    "models",
    ModelsSettings,
    run,
    charts,
    tables,
    results,
    content,
    short,
    figures=sepsis_charts.FIGURES + wide.FIGURES,
)

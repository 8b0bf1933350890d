"""The article: its table, numbers for machines, and the content of its page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.audit.settings import CAUTION
from butfor.studies.article import Study
from butfor.studies.caution.experiment import (
    CAUTIONS,
    FACTORED,
    LIKELY,
    PLAIN,
    TABULAR,
    USUAL,
    CautionSettings,
    Experiment,
    run_experiment,
)


def charts(_: Experiment) -> dict[str, Any]:
    """Return no figures: the table says it all."""
    return {}


def summarize(values: pd.DataFrame) -> pd.DataFrame:
    """Return one row per model and form of caution: means over logs, and the worst log."""
    groups = values.groupby(["model", "caution"], sort=False)
    table = groups.agg(
        promised=("promised", "mean"),
        true=("true", "mean"),
        se=("true", "sem"),
        worst=("true", "min"),
    )
    return table.reset_index()


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    return {"plans": summarize(experiment.values), "logs": experiment.values}


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines."""
    return {
        "physicians": experiment.physicians,
        "plans": summarize(experiment.values).to_dict("records"),
    }


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    rows = summarize(experiment.values).to_dict("records")
    return {
        "by": {
            kind: {row["caution"]: row for row in rows if row["model"] == kind}
            for kind in (TABULAR, FACTORED)
        },
        "plain": PLAIN,
        "likely": LIKELY,
        "usual": USUAL,
        "default": next(name for name, caution in CAUTIONS.items() if caution == CAUTION),
    }


STUDY = Study(
    "caution", CautionSettings, run_experiment, charts, tables, results, content, figures=0
)

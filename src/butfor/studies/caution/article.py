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
from butfor.studies.page import signed

DEFAULT = next(name for name, caution in CAUTIONS.items() if caution == CAUTION)


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
    return {
        "by": by_model(experiment),
        "no_caution": PLAIN,
        "likely": LIKELY,
        "usual": USUAL,
        "default": DEFAULT,
        "too_much": too_much(experiment),
    }


def by_model(experiment: Experiment) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of the table by model and form of caution."""
    rows = summarize(experiment.values).to_dict("records")
    return {
        kind: {row["caution"]: row for row in rows if row["model"] == kind}
        for kind in (TABULAR, FACTORED)
    }


def too_much(experiment: Experiment) -> str:
    """Say how many kinds of plan promise more than they are worth, on average."""
    table = summarize(experiment.values)
    count = int((table["promised"] > table["true"]).sum())
    return f"all {count}" if count == len(table) else f"{count} of {len(table)}"


def short(experiment: Experiment) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    found = by_model(experiment)

    def worth(kind: str, name: str) -> str:
        row = found[kind][name]
        return f"promises {signed(row['promised'], 2)} and is worth {signed(row['true'], 2)}"

    return [
        "A plan that is best in a learned model has chased the luck of its log: does caution make "
        "plans truly better?",
        f"On average over {experiment.settings.repeats} logs, the plan on a table of states "
        f"{worth(TABULAR, PLAIN)}; with {DEFAULT} assumed of every action, it "
        f"{worth(TABULAR, DEFAULT)}.",
        f"The plan on one distribution per variable {worth(FACTORED, PLAIN)}; with the same "
        f"caution, it {worth(FACTORED, DEFAULT)}.",
        "Caution does not help against what is hidden from the log: "
        f"{too_much(experiment)} kinds of plan promise more than they are worth, and the "
        f"physicians, who saw everything, are worth {signed(experiment.physicians, 2)}.",
    ]


STUDY = Study(
    "caution", CautionSettings, run_experiment, charts, tables, results, content, short, figures=0
)

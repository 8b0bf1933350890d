"""Figures of the article."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.present.charts import (
    boxplot_chart,
    estimates_chart,
    nonidentifiability_chart,
    outcome_table_chart,
    scm_diagrams,
    trajectory_chart,
)
from butfor.studies.article import in_paper_order
from butfor.studies.oberst2019 import published
from butfor.studies.oberst2019.experiment import ESTIMATORS, STATES, Experiment

FIGURES = 8
NOTES = {
    "Obs": "what happened to these patients",
    "WIS": "reweighted records: few patients match",
    "MB": "new patients drawn from the model",
    "CF": "the same patients, five draws each",
    "True": "known only because this is a simulator",
}


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    one, diagrams = experiment.one, scm_diagrams()
    drawn = {
        "figure1": diagrams["graph"],
        "figure2": diagrams["pomdp"],
        "figure3": estimates_chart(
            one.figure3.assign(note=one.figure3["estimator"].map(NOTES)),
            reference="Obs",
            domain=(-1, 1),
        ),
        "figure4": outcome_table_chart(
            in_paper_order(one.sampled_table),
            expected=in_paper_order(one.exact.table(expected=True)),
            subtitle=(
                "Large: patients by the most common of five draws, with their share of all. "
                "Expected: sum of the exact probabilities. A model estimate, not a fact."
            ),
        ),
        "nonidentifiability": nonidentifiability_chart(
            [0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5], 1, [[0, 1, 2, 3], [0, 1, 3, 2]]
        ),
    }
    if one.patient >= 0:
        drawn["figure5"] = trajectory_chart(one.learned.log, one.patient, one.draws)
    for state in STATES:
        logs = experiment.repeats[state][list(ESTIMATORS)].melt(var_name="estimator")
        reported = pd.DataFrame.from_dict(
            published.TABLE[state], orient="index", columns=["mean", "low", "high"]
        )
        drawn[f"repeats_{state}"] = boxplot_chart(
            logs.dropna(), published=reported.rename_axis("estimator").reset_index()
        )
    return drawn

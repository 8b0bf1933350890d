"""Figures of the article."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.present.charts import containment_chart, reliability_chart, scores_chart
from butfor.studies.mechanisms.experiment import (
    ALONE,
    CASES,
    CLASSES,
    EVERYONE,
    GROUPS,
    MECHANISMS,
    OWN,
)
from butfor.studies.mechanisms.tables import Experiment

FIGURES = 4
DRAWN = (*MECHANISMS, ALONE, OWN)
LEAST = 0.001  # smallest share of the patients that a point must represent to be drawn
RELIABILITY = ("true-withheld", "learned-hidden")  # cases whose curves are drawn


def case_title(key: str) -> str:
    """Name a case: which model, which policy."""
    return ": ".join(CASES[key])


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    scores, bounds, curves = experiment.scores, experiment.bounds, experiment.reliability
    grouped = scores[scores["group"].isin(GROUPS) & scores["mechanism"].isin(DRAWN)]
    everyone = bounds[bounds["group"] == EVERYONE]
    titles = [case_title(key) for key in CASES]
    drawn = {
        "scores": scores_chart(
            pd.DataFrame(
                {
                    "panel": pd.Categorical(grouped["case"].map(case_title), titles),
                    "series": pd.Categorical(grouped["mechanism"], DRAWN),
                    "group": grouped["group"],
                    "value": grouped["brier"],
                    "se": grouped["brier_se"],
                }
            )
            .sort_values(["panel", "series"])
            .astype({"panel": object}),
            groups=GROUPS,
        ),
        "bounds": containment_chart(
            everyone.assign(panel=everyone["case"].map(case_title), kind=everyone["class"]),
            kinds=CLASSES,
        ),
    }
    least = LEAST * experiment.settings.repeats * experiment.settings.episodes
    for key in RELIABILITY:
        shown = curves[(curves["case"] == key) & (curves["episodes"] >= least)]
        drawn[f"reliability_{key}"] = reliability_chart(
            shown.assign(panel=shown["mechanism"], series=shown["outcome"]),
            title=f"Does it happen as often as predicted? {case_title(key)}",
            subtitle="Predicted probability in bins of 10%, without those that hold under 0.1% of "
            "the patients; larger marks: more patients. Dashed: a calibrated prediction.",
        )
    return drawn

"""Figures of the article."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.present.charts import learning_chart
from butfor.studies.models.experiment import ON_STATES, ON_VARIABLES, OWN, RULE, STATES, Experiment
from butfor.studies.models.learned import COUNTS, TABULAR, TRUE
from butfor.studies.models.tables import find, score_table, value_table

FIGURES = 3
DRAWN = (TABULAR, COUNTS)
USUAL = {TABULAR: ON_STATES, COUNTS: ON_VARIABLES}  # what noise belongs to


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    values, scores = value_table(experiment.values), score_table(experiment.scores)
    plans = values[values["target"] == OWN]
    usual = scores["noise"] == scores["model"].map(USUAL)
    rule = scores[(scores["target"] == RULE) & usual]
    return {
        "plans": learning_chart(
            _drawn(plans, "true"),
            lines={"physicians": experiment.physicians, "best possible": experiment.optimum},
            title="What is the learned policy truly worth?",
            subtitle="True value of the policy planned on each model: the chance of discharge "
            "minus that of death within 20 steps. Means over logs; bars: two standard errors.",
        ),
        "claims": learning_chart(
            _drawn(plans, "bias"),
            lines={"": 0.0},
            title="How much too good does each model think its own policy is?",
            subtitle="Value in the model minus true value. Means over logs; bars: two standard "
            "errors.",
            y_title="value in the model minus true value",
        ),
        "patients": learning_chart(
            _drawn(rule, "brier"),
            lines=_compared(experiment, scores),
            title="How well is the outcome of a single patient predicted?",
            subtitle="Mean Brier score under the fixed rule, 0 at best. Means over logs; bars: two "
            "standard errors.",
            y_title="Brier score",
            signed=False,
            domain=(0.0, 1.0),
        ),
    }


def _drawn(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the means of a measure as the chart takes them, in the order of panels and models."""
    mine = table[(table["measure"] == measure) & table["model"].isin(DRAWN)]
    drawn = pd.DataFrame(
        {
            "panel": pd.Categorical(mine["state"].map(STATES), list(STATES.values())),
            "series": pd.Categorical(mine["model"], list(DRAWN)),
            "size": mine["size"],
            "value": mine["mean"],
            "se": mine["se"],
        }
    )
    return drawn.sort_values(["panel", "series", "size"]).astype({"panel": object})


def _compared(experiment: Experiment, scores: pd.DataFrame) -> dict[str, float]:
    """Return the scores to compare with: they do not depend on the log, nor on what it shows."""
    place = {"state": "full", "size": experiment.settings.reference, "target": RULE}
    place |= {"model": TRUE, "noise": ON_VARIABLES}
    known, base = (find(scores, measure, **place) for measure in ("brier", "base"))
    assert known is not None
    assert base is not None
    return {"true model": known["mean"], "frequencies": base["mean"]}

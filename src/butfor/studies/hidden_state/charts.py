"""Figures of the article."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.present.charts import (
    agreement_chart,
    boxplot_chart,
    entropy_chart,
    latent_chart,
    outcome_table_chart,
)
from butfor.studies.article import in_paper_order
from butfor.studies.hidden_state.experiment import (
    CF,
    IGNORED,
    METHODS,
    RIGHT,
    Experiment,
    OneLog,
    choose_patient,
    entropy_by_step,
    story,
)

FIGURES = 6
EVIDENCE = {
    "known": "the physician's actions are evidence",
    "ignored": "what the physician knew is ignored",
}


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    one, estimates = experiment.first, experiment.estimates.rename(columns={"method": "estimator"})
    drawn = {
        "estimates": boxplot_chart(
            estimates.set_index("estimator").loc[list(METHODS), ["value"]].reset_index(),
            title="What is the policy worth?",
            subtitle=(
                f"Over {experiment.settings.repeats} logs. Line: median; box: 25 to 75%; whiskers: "
                "2.5 to 97.5%; circle: mean. True: exact, known only because this is a simulator."
            ),
            domain=(-1.0, 1.0),
        ),
        "outcomes_reduced": _outcomes(one, CF, "Two variables left out of the model"),
        "outcomes_hidden": _outcomes(one, RIGHT, "Two variables hidden in the model"),
        "evidence": agreement_chart(
            _agreement(one),
            title="What difference does the physician's knowledge make?",
            subtitle=(
                "Each patient's probability of death under the policy, by the model with the "
                "hidden state. On the dashed line the two agree. A model estimate, not a fact."
            ),
            axis_titles=(f"death, {EVIDENCE['ignored']}", f"death, {EVIDENCE['known']}"),
        ),
        "entropy": entropy_chart(
            entropy_by_step(one)
            .replace({"series": EVIDENCE})
            .rename(columns={"mean": "bits", "patients": "episodes"}),
            title="How much remains unknown about diabetes and glucose?",
        ),
    }
    patient = choose_patient(one)
    if patient >= 0:
        table = story(one, patient)
        panel = table["variable"].str.capitalize() + ", " + table["evidence"].map(EVIDENCE)
        drawn["patient"] = latent_chart(
            table.assign(panel=panel),
            title=f"Patient {one.log.id[patient]}: what can be inferred about the hidden state?",
        )
    return drawn


def _outcomes(one: OneLog, method: str, title: str) -> Any:
    result = one.said[method]
    return outcome_table_chart(
        in_paper_order(result.table()),
        expected=in_paper_order(result.table(expected=True)),
        title=title,
        subtitle=(
            "Large: patients by the most likely outcome in the model, with their share of all. "
            "Expected: sum of its probabilities. A model estimate, not a fact."
        ),
    )


def _agreement(one: OneLog) -> pd.DataFrame:
    names = np.array(one.said[RIGHT].outcome_names, dtype=object)
    table = pd.DataFrame(
        {
            "id": one.log.id,
            "series": names[one.log.outcome],
            "x": one.said[IGNORED].probability[:, 0],
            "y": one.said[RIGHT].probability[:, 0],
        }
    )
    return table.sort_values("series", key=lambda column: column.map(list(names).index))

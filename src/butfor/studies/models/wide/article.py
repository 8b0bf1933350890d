"""The part with thirty variables: figures, tables and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.present.charts import estimates_chart
from butfor.studies.models.tables import Cell, find, means
from butfor.studies.models.wide.experiment import (
    HALVED,
    MODELS,
    PLANNERS,
    TRUE,
    WideExperiment,
)
from butfor.studies.models.wide.world import HORIZON, STATES
from butfor.studies.page import signed

FIGURES = 2
PHYSICIANS = "Physicians"
SCORED = ["brier", "over_true", "over_base", "cf_bias"]
PLANNED = ["gain", "true", "claimed", "excess"]
HALF = ["true", "own_excess", "other_excess"]
Line = dict[str, Any]  # a row of a table on the page: a name, and cells by column


def score_means(experiment: WideExperiment) -> pd.DataFrame:
    """Return means over logs of the scores of single patients.

    `over_true` is the Brier score minus that of the true model, `over_base` minus that of an
    oracle's frequencies, `cf_bias` CF minus what truly became of the same patients.
    """
    scores = experiment.scores
    best = scores[scores["model"] == TRUE].set_index("repeat")["brier"]
    scores = scores.assign(
        over_true=scores["brier"] - scores["repeat"].map(best),
        over_base=scores["brier"] - scores["base"],
        cf_bias=scores["cf"] - scores["true"],
    )
    return means(scores, ["model"], [*SCORED, "base"])


def plan_means(experiment: WideExperiment) -> pd.DataFrame:
    """Return means over logs of what plans are worth; `excess` is the claim minus the truth."""
    plans = experiment.plans
    return means(plans.assign(excess=plans["claimed"] - plans["true"]), ["model"], PLANNED)


def half_means(experiment: WideExperiment) -> pd.DataFrame:
    """Return the same of plans made on half of each log, by its own and the other half's model."""
    halves = experiment.halves
    excess = {f"{half}_excess": halves[half] - halves["true"] for half in ("own", "other")}
    return means(halves.assign(**excess), ["model"], HALF)


def tables(experiment: WideExperiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    return {
        "wide_scores": score_means(experiment),
        "wide_plans": plan_means(experiment),
        "wide_halves": half_means(experiment),
        "wide_scores_by_log": experiment.scores,
        "wide_plans_by_log": experiment.plans,
        "wide_halves_by_log": experiment.halves,
    }


def results(experiment: WideExperiment) -> Line:
    """Return the numbers, for machines and for the page."""
    scores, plans = score_means(experiment), plan_means(experiment)
    logs = experiment.scores["repeat"].nunique()
    return {
        "logs": logs,
        "sizes": vars(experiment.sizes),
        "variables": len(STATES),
        "combinations": int(np.prod([len(variable.levels) for variable in STATES])),
        "horizon": HORIZON,
        "physicians": experiment.physicians,
        "patients": _lines(scores, MODELS, SCORED),
        "base": find(scores, "base", model=TRUE),
        "plans": _lines(plans, PLANNERS, PLANNED),
        "halves": _lines(half_means(experiment), HALVED, HALF),
    }


def short(experiment: WideExperiment) -> str:
    """Return in one sentence what was found: the learned plan that is truly worth most."""
    found = results(experiment)
    learned = [line for line in found["plans"] if line["model"] != TRUE]
    best = max(learned, key=lambda line: float(line["gain"]["mean"]))
    gain = "gains" if best["gain"]["mean"] > 0 else "changes"
    return (
        f"In a ward of {found['variables']} variables, too many for a table, the best plan learned "
        f"(“{best['model']}”) {gain} {signed(best['gain']['mean'], 2)} over the physicians and "
        f"claims {signed(best['excess']['mean'], 2)} more than is true (means over {found['logs']} "
        "logs)."
    )


def _lines(table: pd.DataFrame, names: tuple[str, ...], measures: list[str]) -> list[Line]:
    return [
        {"model": name, **{measure: find(table, measure, model=name) for measure in measures}}
        for name in names
    ]


def charts(experiment: WideExperiment) -> dict[str, Any]:
    """Return the figures by file name."""
    found = results(experiment)
    bars = f"bars: mean ± two standard errors over {found['logs']} logs."
    usual = {"estimator": PHYSICIANS, "value": experiment.physicians, "low": np.nan, "high": np.nan}
    plans = [
        _mark(line["model"], line["true"], f"claims {signed(line['claimed']['mean'], 2)}")
        for line in found["plans"]
    ]
    patients = [
        _mark(line["model"], line["over_true"], f"Brier score {line['brier']['mean']:.3f}")
        for line in found["patients"]
        if line["model"] != TRUE
    ]
    return {
        "wide_plans": estimates_chart(
            pd.DataFrame([{**usual, "note": ""}, *plans]),
            reference=PHYSICIANS,
            title="Thirty variables: what is the learned policy truly worth?",
            subtitle=f"Chance of going home minus that of death; {bars}",
            axis_title="true value",
        ),
        "wide_patients": estimates_chart(
            pd.DataFrame(patients),
            reference=None,
            title="Thirty variables: how much worse than the true model?",
            subtitle=f"Brier score of single patients, fixed rule; {bars}",
            axis_title="Brier score minus that of the true model",
            domain=(0.0, 0.1),
        ),
    }


def _mark(name: str, cell: Cell, note: str) -> Line:
    mean, margin = cell["mean"], 2 * cell["se"]
    ends = {"low": mean - margin, "high": mean + margin}
    return {"estimator": name, "value": mean, **ends, "note": note}

"""Tables of the factorial experiment: means per cell, pieces of the error, effects of factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from butfor.studies.factors.experiment import (
    CELL,
    HALF,
    OTHER,
    SAME,
    STATES,
    Experiment,
    FactorsSettings,
    Row,
)

PIECES = ("selection", "thin support", "confounding")
MEAN = ["mean", "se", "logs"]
LOG = ["state", "episodes", "prevalence", "repeat"]
# factors that are changed one at a time, and the column of each
FACTORS = {
    "State in the log": "state",
    "Patients in the log": "episodes",
    "Prevalence of diabetes": "prevalence",
    "Judged on": "judged",
    "Patients in the other log": "held_out",
}


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard error over repeats of each cell and estimator.

    Undefined estimates are left out and counted.
    """
    groups = estimates.groupby([*CELL, "estimator"], sort=False)
    table = groups[["value", "true", "error"]].mean()
    table["logs"] = groups["error"].count()
    table["undefined"] = groups["error"].size() - table["logs"]
    table["se"] = groups["error"].sem()
    return table.reset_index()


def decompose(estimates: pd.DataFrame) -> pd.DataFrame:
    """Split the error of MB on the log that taught the policy into three pieces, one row per log.

    Selection is MB on that log minus MB on another log of the same size: the policy was chosen for
    that log's luck. Thin support is MB on the other log minus the value in the model of an
    infinitely long log: what few episodes do to a model even without selection, mainly through
    pairs never seen, which count as death. Confounding is that value minus the true one: what is
    hidden, which stays wrong however long the log. The pieces add up to the error.
    """
    model_based = estimates[estimates["estimator"] == "MB"]
    same = model_based[model_based["judged"] == SAME].set_index(LOG)
    other = model_based[
        (model_based["judged"] == OTHER) & (model_based["held_out"] == model_based["episodes"])
    ].set_index(LOG)
    held_out = other["value"].reindex(same.index)
    pieces = pd.DataFrame(
        {
            "selection": same["value"] - held_out,
            "thin support": held_out - same["endless"],
            "confounding": same["endless"] - same["true"],
            "error": same["error"],
        }
    )
    return pieces.reset_index()


def mean_pieces(pieces: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard error over repeats of each piece of each cell."""
    long = pieces.melt(id_vars=LOG, var_name="piece")
    groups = long.groupby([*LOG[:-1], "piece"], sort=False)["value"]
    return groups.agg(mean="mean", se="sem", logs="count").reset_index()


def reference_cell(settings: FactorsSettings) -> Row:
    """Return the paper's setting: hidden state, judged on the log that taught the policy."""
    return {
        "state": "hidden",
        "episodes": settings.reference_episodes,
        "prevalence": settings.reference_prevalence,
        "judged": SAME,
        "held_out": 0,
    }


def one_at_a_time(settings: FactorsSettings) -> dict[str, list[Row]]:
    """Return, by factor, the cells that differ from the reference in that factor, and itself."""
    reference, size = reference_cell(settings), settings.reference_episodes
    other = {**reference, "judged": OTHER}
    return {
        "State in the log": [{**reference, "state": state} for state in STATES],
        "Patients in the log": [{**reference, "episodes": n} for n in settings.episodes],
        "Prevalence of diabetes": [{**reference, "prevalence": p} for p in settings.prevalences],
        "Judged on": [reference, {**reference, "judged": HALF}, {**other, "held_out": size}],
        "Patients in the other log": [{**other, "held_out": n} for n in settings.episodes],
    }


def in_cell(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Return the rows of one cell."""
    return estimates[np.all([estimates[name] == level for name, level in cell.items()], axis=0)]


def changes(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """Return how each estimator's error changes when one factor leaves its reference level.

    Mean and standard error of the differences log by log; both cells have the same patients.
    """
    settings, frames = experiment.settings, []
    for factor, cells in one_at_a_time(settings).items():
        start = reference_cell(settings)
        if start not in cells:
            start = {**cells[0], "held_out": settings.reference_episodes}
        before = _errors_by_repeat(experiment.estimates, start)
        for cell in cells:
            if cell != start:
                gap = (_errors_by_repeat(experiment.estimates, cell) - before)[list(names)]
                columns = {"change": gap.mean(), "se": gap.sem(), "logs": gap.count()}
                place = {"factor": factor, "level": cell[FACTORS[factor]], "estimator": names}
                frames.append(pd.DataFrame(place | columns))
    return pd.concat(frames, ignore_index=True)


def _errors_by_repeat(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Return the errors in one cell: one row per repeat, one column per estimator."""
    return in_cell(estimates, cell).pivot(index="repeat", columns="estimator", values="error")


def main_effects(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """Return the mean error at each level of a factor over all levels of two others.

    By place of judgment; the other log is as long as the first. Undefined errors are left out. The
    standard error is over repeats of the mean over cells, which share their patients.
    """
    settings, table = experiment.settings, experiment.estimates
    crossed = table["episodes"].isin(settings.episodes) & table["estimator"].isin(names)
    crossed &= (table["held_out"] == 0) | (table["held_out"] == table["episodes"])
    frames = []
    for factor in ("State in the log", "Patients in the log", "Prevalence of diabetes"):
        by = [FACTORS[factor], "judged", "estimator"]
        means = table[crossed].groupby(["repeat", *by], sort=False)["error"].mean()
        effect = means.groupby(level=by, sort=False).agg(mean="mean", se="sem", logs="count")
        effect = effect.reset_index().rename(columns={FACTORS[factor]: "level"})
        effect.insert(0, "factor", factor)
        frames.append(effect.astype({"level": object}))
    return pd.concat(frames, ignore_index=True)

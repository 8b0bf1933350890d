"""Tables of the experiment: means over logs, with their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.studies.models.experiment import ON_VARIABLES, Experiment
from butfor.studies.models.learned import TRUE

PLACE = ["state", "size", "model", "target"]
MEASURED = ["mb", "true", "bias", "finite log", "confounding"]
SCORED = [
    *("brier", "log_loss", "ruled_out", "cf_bias", "influence"),
    *("base", "base_log", "over_base", "over_true"),
]
Cell = dict[str, Any]  # mean, se, logs


def value_table(values: pd.DataFrame) -> pd.DataFrame:
    """Return means over logs of what each model says a policy is worth, and of what is true.

    `bias` is MB minus the true value. It is the sum of `confounding`, the value in a table learned
    from an infinitely long log minus the true value, and `finite log`, all the rest.
    """
    pieces = values.assign(
        bias=values["mb"] - values["true"],
        confounding=values["endless"] - values["true"],
        **{"finite log": values["mb"] - values["endless"]},
    )
    return means(pieces, PLACE, MEASURED)


def score_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Return means over logs of the scores of single patients.

    `over_base` is the Brier score minus that of the oracle's frequencies, `over_true` minus that of
    the true model with noise on variables, both about the same patients and the same target.
    """
    log = ["state", "size", "repeat", "target"]
    best = scores[(scores["model"] == TRUE) & (scores["noise"] == ON_VARIABLES)]
    joined = scores.merge(
        best[[*log, "brier"]].rename(columns={"brier": "best"}), how="left", on=log
    )
    joined = joined.assign(
        cf_bias=joined["cf"] - joined["true"],
        over_base=joined["brier"] - joined["base"],
        # a model's own plan is another target than the true model's
        over_true=(joined["brier"] - joined["best"]).where(joined["target"] != "own plan"),
    )
    return means(joined, [*PLACE[:-1], "noise", "target"], SCORED)


def means(table: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Return one row per cell and measure: mean, standard error and number of logs."""
    long = table.melt(id_vars=by, value_vars=columns, var_name="measure")
    groups = long.dropna(subset="value").groupby([*by, "measure"], sort=False)["value"]
    found = groups.agg(mean="mean", se="sem", logs="count").reset_index()
    return found.astype(dict.fromkeys([*by, "measure"], object))  # as `find` compares them


def find(table: pd.DataFrame, measure: str, **place: Any) -> Cell | None:
    """Return the mean, standard error and number of logs of one cell; None if there is none."""
    levels = {"measure": measure, **place}
    here = [table[column].to_numpy() == level for column, level in levels.items()]
    rows = np.flatnonzero(np.logical_and.reduce(here))
    if len(rows) == 0:
        return None
    row = table.iloc[rows[0]]
    return {"mean": float(row["mean"]), "se": float(row["se"]), "logs": int(row["logs"])}


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    return {
        "values": value_table(experiment.values),
        "scores": score_table(experiment.scores),
        "values_by_log": experiment.values,
        "scores_by_log": experiment.scores,
    }

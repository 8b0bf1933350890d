"""The sepsis part of the article: numbers for machines, and the content of its page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from butfor.models.classifiers import have_classifiers
from butfor.studies.models.experiment import (
    FLOOR,
    FOLLOWED,
    ON_SIGNS,
    ON_STATES,
    ON_VARIABLES,
    OWN,
    PATIENTS,
    RULE,
    STATES,
    TABULAR_PLAN,
    Experiment,
)
from butfor.studies.models.learned import (
    CLASSIFIERS,
    COUNTS,
    KNOWN_ENDS,
    MODELS,
    MOST_CLUSTERS,
    TABULAR,
    TRUE,
)
from butfor.studies.models.tables import Cell, find, score_table, value_table
from butfor.studies.page import signed, with_error
from butfor.studies.scoring import clear

ASKED = {"plan": TABULAR_PLAN, "rule": RULE, "own": OWN}  # targets, as columns are named
SCORES = ("brier", "log_loss", "ruled_out", "cf_bias", "over_true")
Line = dict[str, Any]  # a row of a table on the page: names, and cells by column


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines."""
    values, scores = value_table(experiment.values), score_table(experiment.scores)
    return {
        "physicians": experiment.physicians,
        "optimum": experiment.optimum,
        "summary": {state: lines(experiment, values, scores, state) for state in STATES},
        "by_size": {state: by_size(experiment, values, state) for state in STATES},
        "values": values.to_dict("records"),
        "scores": scores.to_dict("records"),
    }


def lines(
    experiment: Experiment, values: pd.DataFrame, scores: pd.DataFrame, state: str
) -> list[Line]:
    """Return the main table of a kind of state, at the reference size: one row per model and noise.

    The last row is the oracle that knows how often each outcome truly happens.
    """
    place = {"state": state, "size": experiment.settings.reference}
    found: list[Line] = []
    for name in MODELS:
        for noise in (ON_STATES, ON_SIGNS, ON_VARIABLES):
            here = {**place, "model": name}
            if find(scores, "brier", **here, noise=noise) is None:
                continue
            line: Line = {"model": name, "noise": noise}
            for short, target in ASKED.items():
                asked = {**here, "target": target}
                for measure in SCORES:
                    line[f"{measure}_{short}"] = find(scores, measure, **asked, noise=noise)
                line[f"mb_{short}"] = find(values, "bias", **asked)
            line["own_true"] = find(values, "true", **here, target=OWN)
            line["influence"] = find(scores, "influence", **here, noise=noise, target=RULE)
            found.append(line)
    return [*found, _frequencies(scores, place)]


def _frequencies(scores: pd.DataFrame, place: dict[str, Any]) -> Line:
    """Return the scores of the oracle's frequencies."""
    columns = [f"{measure}_{short}" for short in ASKED for measure in (*SCORES, "mb")]
    line: Line = dict.fromkeys([*columns, "own_true", "influence"])
    line |= {"model": "Frequencies known to an oracle", "noise": ""}
    asked = {**place, "model": COUNTS, "noise": ON_VARIABLES}
    for short, target in list(ASKED.items())[:2]:
        line[f"brier_{short}"] = find(scores, "base", **asked, target=target)
        line[f"log_loss_{short}"] = find(scores, "base_log", **asked, target=target)
    return line


def by_size(experiment: Experiment, values: pd.DataFrame, state: str) -> list[Line]:
    """Return what models are worth by size of the log: one row per size and learned model."""
    found = []
    for size in experiment.settings.size:
        for name in MODELS:
            place = {"state": state, "size": size, "model": name, "target": OWN}
            if name == TRUE or find(values, "true", **place) is None:
                continue
            measures = ("true", "mb", "bias", "finite log", "confounding")
            cells = {measure: find(values, measure, **place) for measure in measures}
            found.append({"size": size, "model": name, **cells})
    return found


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    settings = experiment.settings
    values, scores = value_table(experiment.values), score_table(experiment.scores)
    main = {
        state: {
            (line["model"], line["noise"]): line
            for line in lines(experiment, values, scores, state)
        }
        for state in STATES
    }
    at = {"size": settings.reference, "model": COUNTS}
    asked = {**at, "state": "hidden", "noise": ON_VARIABLES}
    longest = {**asked, "size": settings.size[-1], "target": RULE}
    own = {state: values_of(values, state, {**at, "target": OWN}) for state in STATES}
    return {
        "states": STATES,
        "counts": {state: main[state][COUNTS, ON_VARIABLES] for state in STATES},
        "tabular": {state: main[state][TABULAR, ON_STATES] for state in STATES},
        "known_ends": main["full"][KNOWN_ENDS, ON_VARIABLES],
        "known": main["full"][TRUE, ON_VARIABLES],
        "pieces": own,
        "hidden_over": {
            target: find(scores, "over_base", **asked, target=target)
            for target in (TABULAR_PLAN, RULE)
        },
        "no_better": [
            target
            for target in (TABULAR_PLAN, RULE)
            if not below_zero(find(scores, "over_base", **asked, target=target))
        ],
        "stays": _stays(experiment, values),
        "longest_over": find(scores, "over_base", **longest),
        "classifiers": list(CLASSIFIERS) if have_classifiers() else [],
        "patients": min(PATIENTS, settings.reference),
        "followed": min(FOLLOWED, settings.reference),
        "floor": FLOOR,
        "clusters": MOST_CLUSTERS,
        "targets": (TABULAR_PLAN, RULE),
    }


def short(experiment: Experiment) -> list[str]:
    """Return what was found with nothing hidden, and with two variables hidden, the caveat."""
    found, logs = content(experiment), experiment.settings.repeats
    table, counts, pieces = found["tabular"], found["counts"], found["pieces"]["hidden"]

    def mean(cell: Cell) -> str:
        return with_error(cell["mean"], cell["se"])

    return [
        f"With {experiment.settings.reference:,} patients and nothing hidden, the policy planned "
        f"on the table is truly worth {mean(table['full']['own_true'])} and the one planned on the "
        f"distributions {mean(counts['full']['own_true'])} (means over {logs} logs ± one standard "
        f"error); the physicians are worth {signed(experiment.physicians)}.",
        f"With glucose and diabetes hidden they are worth {mean(table['hidden']['own_true'])} and "
        f"{mean(counts['hidden']['own_true'])}, and the value of the second in its own "
        f"model is off by {mean(pieces['bias'])}: {mean(pieces['confounding'])} is confounding, "
        "which a longer log does not remove.",
    ]


def values_of(values: pd.DataFrame, state: str, place: dict[str, Any]) -> dict[str, Cell | None]:
    """Return the bias of MB in one cell, and its pieces."""
    measures = ("bias", "finite log", "confounding")
    return {measure: find(values, measure, state=state, **place) for measure in measures}


def below_zero(cell: Cell | None) -> bool:
    """Return whether a mean over logs lies below 0 by more than chance would easily produce."""
    return cell is not None and cell["mean"] < -clear(int(cell["logs"])) * cell["se"]


def _stays(experiment: Experiment, values: pd.DataFrame) -> dict[str, Any]:
    """Return the confounding in the plans of the shortest and of the longest logs."""
    place = {"state": "hidden", "model": COUNTS, "target": OWN}
    sizes = experiment.settings.size
    return {
        "first": find(values, "confounding", **place, size=sizes[0]),
        "last": find(values, "confounding", **place, size=sizes[-1]),
        "bias": find(values, "bias", **place, size=sizes[-1]),
        "sizes": (sizes[0], sizes[-1]),
    }

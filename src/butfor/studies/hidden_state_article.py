"""The example of Oberst & Sontag (2019) with its hidden state in the model, as an article."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.audit.folders import check_free
from butfor.log.variables import Variable, describe_action, unravel
from butfor.present.charts import (
    agreement_chart,
    boxplot_chart,
    entropy_chart,
    latent_chart,
    outcome_table_chart,
)
from butfor.studies.article import MARKER, render_page, report_progress, write_article
from butfor.studies.hidden_state import (
    CF,
    COUNTERFACTUAL,
    IGNORED,
    LEARNED,
    LEAST_CHANGES,
    MB,
    METHODS,
    OBSERVED,
    RIGHT,
    TRUE,
    Experiment,
    OneLog,
    Settings,
    choose_patient,
    entropy_by_step,
    patients,
    run_experiment,
    story,
    summarize,
)
from butfor.studies.scoring import clear
from butfor.types import Progress

FIGURES = 6
LARGE = 3.0  # a z beyond this is no chance
EVIDENCE = {
    "known": "the physician's actions are evidence",
    "ignored": "what the physician knew is ignored",
}


def write_study(
    settings: Settings,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run the experiment and write its article: index.html, results.json, CSV and figures."""
    check_free(folder, marker=MARKER, overwrite=overwrite)
    one_more = report_progress(progress, settings.repeats + FIGURES)
    experiment = run_experiment(settings, one_more=one_more)
    drawn = charts(experiment)
    for _ in range(FIGURES - len(drawn)):  # no patient fits the rule
        one_more()
    return write_article(
        folder,
        settings=settings,
        charts=drawn,
        tables=tables(experiment),
        results=results(experiment),
        page=article(experiment),
        overwrite=overwrite,
        one_more=one_more,
    )


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    one = experiment.first
    drawn = {
        "estimates": boxplot_chart(
            experiment.estimates.rename(columns={"method": "estimator"})
            .set_index("estimator")
            .loc[list(METHODS), ["value"]]
            .reset_index(),
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
            title="What does it matter to ignore what the physician knew?",
            subtitle=(
                "Probability of death of each patient under the policy, by the model with the "
                "hidden state. On the dashed line both say the same. A model estimate, not a fact."
            ),
            axis_titles=(f"death, {EVIDENCE['ignored']}", f"death, {EVIDENCE['known']}"),
        ),
        "entropy": entropy_chart(
            entropy_by_step(one)
            .replace({"series": EVIDENCE})
            .rename(columns={"mean": "bits", "patients": "episodes"}),
            title="How little is known of diabetes and glucose?",
        ),
    }
    patient = choose_patient(one)
    if patient >= 0:
        table = story(one, patient)
        panel = table["variable"].str.capitalize() + ", " + table["evidence"].map(EVIDENCE)
        drawn["patient"] = latent_chart(
            table.assign(panel=panel),
            title=f"Patient {one.log.id[patient]}: what is known of what is hidden?",
        )
    return drawn


def _outcomes(one: OneLog, method: str, title: str) -> Any:
    result = one.said[method]
    return outcome_table_chart(
        in_order(result.table()),
        expected=in_order(result.table(expected=True)),
        title=title,
        subtitle=(
            "Large: patients by the likeliest outcome in the model, with their share of all. "
            "Expected: sum of its probabilities. A model estimate, not a fact."
        ),
    )


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Order outcomes as the paper does: died, no change, discharged."""
    order = ["died", "no change", "discharged"]
    return table.loc[order, order]


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


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return what is written as CSV, by file name."""
    one = experiment.first
    found = {
        "methods": summarize(experiment.estimates),
        "logs": experiment.estimates,
        "patients": patients(one),
        "entropy": entropy_by_step(one),
    }
    for method, name in ((CF, "reduced"), (RIGHT, "hidden")):
        found[f"outcomes_{name}"] = in_order(one.said[method].table()).reset_index()
    patient = choose_patient(one)
    if patient >= 0:
        found["story"] = story(one, patient)
    return found


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines."""
    return {
        "methods": _methods(experiment),
        "first_log": _first(experiment.first),
        "knowledge": _knowledge(experiment.first),
        "patient": _patient(experiment.first),
    }


def _methods(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """By method: means over logs, and whether the error is beyond chance."""
    found = {}
    for row in summarize(experiment.estimates).to_dict("records"):
        beyond = abs(row["error"]) > clear(int(row["logs"])) * row["se"]
        found[str(row.pop("method"))] = {**row, "beyond_chance": bool(beyond)}
    return found


def _first(one: OneLog) -> dict[str, Any]:
    """How many patients of the first log each model sends where, and whose story changes."""
    reduced, hidden = one.said[CF], one.said[RIGHT]
    died = one.log.outcome == 0
    changes = (reduced.most_likely == 1) & (hidden.most_likely == 0)
    return {
        "patients": len(one.log),
        "died": int(died.sum()),
        "would_have_lived": {
            name: int((died & (one.said[name].most_likely == 1)).sum()) for name in COUNTERFACTUAL
        },
        "would_have_lived_in_truth": int((died & (one.truth == 1)).sum()),
        "expected_deaths": {
            name: float(one.said[name].probability[:, 0].sum()) for name in COUNTERFACTUAL
        },
        "true_deaths": int((one.truth == 0).sum()),
        "stories_change": int(changes.sum()),
    }


def _knowledge(one: OneLog) -> dict[str, float]:
    """What ignoring the physician's knowledge does to single patients of the first log."""
    gap = one.said[RIGHT].probability[:, 0] - one.said[IGNORED].probability[:, 0]
    inside = one.known.rows[1] < one.log.lengths[one.known.rows[0]]
    return {
        "known_bits": float(one.known.entropy[inside].mean()),
        "ignored_bits": float(one.blind.entropy[inside].mean()),
        "mean_change": float(gap.mean()),
        "mean_size": float(np.abs(gap).mean()),
        "largest": float(np.abs(gap).max()),
        "by_a_tenth": float((np.abs(gap) > 0.1).mean()),
        "other_likeliest": int(
            (one.said[RIGHT].most_likely != one.said[IGNORED].most_likely).sum()
        ),
    }


def _patient(one: OneLog) -> dict[str, Any] | None:
    """Say in numbers what the picture of one patient shows, step by step."""
    patient = choose_patient(one)
    if patient < 0:
        return None
    log, table = one.log, story(one, patient)
    seen = unravel(log.state_variables, log.state)
    start, stop = int(log.offsets[patient]), int(log.offsets[patient + 1])
    signs = [v for v in log.state_variables if v.name in sepsis.VITAL_SIGNS]
    steps = []
    for step, row in enumerate(range(start, stop)):
        now = table[table["step"] == step]
        steps.append(
            {
                "step": step,
                "signs": _abnormal(signs, {v.name: int(seen[v.name][row]) for v in signs}),
                "given": describe_action(log.action_variables, int(log.action[row])),
                "policy": describe_action(
                    log.action_variables, int(one.target[log.state[row]].argmax())
                ),
                "diabetes": {name: _chance(now, name, "diabetes", "yes") for name in EVIDENCE},
                "glucose": _likeliest(now, "glucose"),
                "true_glucose": _true_level(now, "glucose"),
            }
        )
    names = one.said[CF].outcome_names
    return {
        "id": log.id[patient].item(),
        "length": stop - start,
        "true_diabetes": _true_level(table[table["step"] == 0], "diabetes"),
        "true_outcome": names[one.truth[patient]],
        "discharged": {m: float(one.said[m].probability[patient, 1]) for m in COUNTERFACTUAL},
        "died": {m: float(one.said[m].probability[patient, 0]) for m in COUNTERFACTUAL},
        "steps": steps,
    }


def _abnormal(signs: Sequence[Variable], codes: Mapping[str, int]) -> str:
    """Name the vital signs that are not normal."""
    levels = [(v, v.levels[codes[v.name]]) for v in signs]
    off = [f"{variable.name} {level}" for variable, level in levels if level not in variable.normal]
    return ", ".join(off) or "all normal"


def _chance(now: pd.DataFrame, evidence: str, variable: str, level: str) -> float:
    wanted = (now["evidence"] == evidence) & (now["variable"] == variable) & (now["level"] == level)
    return float(now.loc[wanted, "probability"].iloc[0])


def _likeliest(now: pd.DataFrame, variable: str) -> dict[str, Any]:
    rows = now[(now["evidence"] == "known") & (now["variable"] == variable)]
    best = rows.loc[rows["probability"].idxmax()]
    return {"level": str(best["level"]), "probability": float(best["probability"])}


def _true_level(now: pd.DataFrame, variable: str) -> str:
    return str(now.loc[(now["variable"] == variable) & now["truth"], "level"].iloc[0])


def article(experiment: Experiment) -> str:
    """Return the article as one HTML page; its figures lie beside it."""
    found = _methods(experiment)
    content = {
        "methods": found,
        "order": METHODS,
        "names": {
            "observed": OBSERVED,
            "mb": MB,
            "cf": CF,
            "right": RIGHT,
            "learned": LEARNED,
            "ignored": IGNORED,
            "true": TRUE,
        },
        "first": _first(experiment.first),
        "knowledge": _knowledge(experiment.first),
        "patient": _patient(experiment.first),
        "least_changes": LEAST_CHANGES,
        "large": LARGE,
        "clear": clear(experiment.settings.repeats),
        "alarms": {name: _alarms(experiment, name) for name in COUNTERFACTUAL},
    }
    return render_page("hidden_state.html", experiment.settings, content)


def _alarms(experiment: Experiment, method: str) -> int:
    """Logs in which the consistency z of a method is large."""
    rows = experiment.estimates[experiment.estimates["method"] == method]
    return int((rows["z"].abs() > LARGE).sum())

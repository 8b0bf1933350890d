"""The article: figures, tables, numbers for machines, and the content of its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.evaluate.wording import percent
from butfor.log.variables import describe_action, unravel
from butfor.present.charts import (
    agreement_chart,
    boxplot_chart,
    entropy_chart,
    latent_chart,
    outcome_table_chart,
)
from butfor.studies.article import Study, in_paper_order
from butfor.studies.hidden_state.experiment import (
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
    HiddenStateSettings,
    OneLog,
    choose_patient,
    entropy_by_step,
    patients,
    run_experiment,
    story,
    summarize,
)
from butfor.studies.page import signed, with_error
from butfor.studies.scoring import clear

LARGE = 3.0  # a larger |z| is not chance
NAMES = {  # of the methods, for the template
    **{"observed": OBSERVED, "mb": MB, "cf": CF, "true": TRUE},
    **{"right": RIGHT, "learned": LEARNED, "ignored": IGNORED},
}
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
            domain=(-1.0, 1.0),
        ),
        "outcomes_reduced": _outcomes(one, CF, "Two variables left out of the model"),
        "outcomes_hidden": _outcomes(one, RIGHT, "Two variables hidden in the model"),
        "evidence": agreement_chart(
            _agreement(one),
            title="What difference does the physician's knowledge make?",
            subtitle="Each patient's probability of death under the policy, by the model with the "
            "hidden state. On the dashed line the two agree. A model estimate, not a fact.",
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
        subtitle="Large: patients by the most likely outcome in the model, with their share of "
        "all. Expected: sum of its probabilities. A model estimate, not a fact.",
    )


def _agreement(one: OneLog) -> pd.DataFrame:
    names = one.said[RIGHT].outcome_names
    table = pd.DataFrame({"id": one.log.id, "series": np.array(names, object)[one.log.outcome]})
    table["x"], table["y"] = (one.said[name].probability[:, 0] for name in (IGNORED, RIGHT))
    return table.sort_values("series", key=lambda column: column.map(names.index))


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    one = experiment.first
    found = {
        "methods": summarize(experiment.estimates),
        "logs": experiment.estimates,
        "patients": patients(one),
        "entropy": entropy_by_step(one),
        "outcomes_reduced": in_paper_order(one.said[CF].table()).reset_index(),
        "outcomes_hidden": in_paper_order(one.said[RIGHT].table()).reset_index(),
    }
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


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    z = experiment.estimates.set_index("method")["z"]
    return {
        "order": METHODS,
        "names": NAMES,
        "least_changes": LEAST_CHANGES,
        "large": LARGE,
        "alarms": {name: int((z[name].abs() > LARGE).sum()) for name in COUNTERFACTUAL},
    }


def short(experiment: Experiment) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    methods, repeats = _methods(experiment), experiment.settings.repeats
    reduced, right, true = methods[CF], methods[RIGHT], methods[TRUE]

    def said(row: dict[str, Any]) -> str:
        return f"{signed(row['value'])}, an error of {with_error(row['error'], row['se'])}"

    return [
        "A policy learned from a log that hides two variables looks excellent, even patient by "
        "patient, and does harm: is the counterfactual question to blame, or the model?",
        f"Over {repeats} logs the policy is truly worth {signed(true['value'])}; for the same "
        f"patients the model that leaves the two variables out says {said(reduced)} (± one "
        f"standard error), and the model that contains them, unseen, says {said(right)}.",
        _blame(reduced, right),
        "But the second model is the simulator itself, which nobody has who has only a log.",
    ]


def _blame(reduced: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """Say how much of the reduced model's error the hidden variables remove, and whose it was."""
    if not reduced["beyond_chance"]:
        return "So few logs cannot tell: even the first error may be chance."
    removed = 1 - abs(right["error"]) / abs(reduced["error"])
    if removed <= 0:
        return "The hidden variables in the model do not make the answer better."
    blame = "it was the model that failed, not the question"
    if right["beyond_chance"]:
        blame = "what remains is more than chance"
    return f"The hidden variables in the model remove {percent(removed)} of the error: {blame}."


def _methods(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return means over logs by method, and whether the error is beyond chance."""
    table = summarize(experiment.estimates).set_index("method", drop=False)
    beyond = table["error"].abs() > table["logs"].map(clear) * table["se"]
    return table.assign(beyond_chance=beyond).to_dict("index")


def _first(one: OneLog) -> dict[str, Any]:
    """Return where each model sends the patients of the first log, and whose outcome changes."""
    died = one.log.outcome == 0
    changes = (one.said[CF].most_likely == 1) & (one.said[RIGHT].most_likely == 0)
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
    """Return what ignoring the physician's knowledge does to single patients of the first log."""
    right, ignored = one.said[RIGHT], one.said[IGNORED]
    gap = right.probability[:, 0] - ignored.probability[:, 0]
    episode, step = one.posteriors["known"].rows
    inside = step < one.log.lengths[episode]
    return {
        "known_bits": float(one.posteriors["known"].entropy[inside].mean()),
        "ignored_bits": float(one.posteriors["ignored"].entropy[inside].mean()),
        "mean_change": float(gap.mean()),
        "mean_size": float(np.abs(gap).mean()),
        "largest": float(np.abs(gap).max()),
        "by_a_tenth": float((np.abs(gap) > 0.1).mean()),
        "other_likeliest": int((right.most_likely != ignored.most_likely).sum()),
    }


def _patient(one: OneLog) -> dict[str, Any] | None:
    """Return the numbers that describe the figure of one patient, step by step."""
    patient = choose_patient(one)
    if patient < 0:
        return None
    log, table = one.log, story(one, patient)
    rows = range(int(log.offsets[patient]), int(log.offsets[patient + 1]))
    return {
        "id": log.id[patient].item(),
        "length": len(rows),
        "true_diabetes": _true_level(table[table["step"] == 0], "diabetes"),
        "true_outcome": one.said[CF].outcome_names[one.truth[patient]],
        "discharged": {m: float(one.said[m].probability[patient, 1]) for m in COUNTERFACTUAL},
        "died": {m: float(one.said[m].probability[patient, 0]) for m in COUNTERFACTUAL},
        "steps": [
            {"step": step, **_step(one, row, table[table["step"] == step])}
            for step, row in enumerate(rows)
        ],
    }


def _step(one: OneLog, row: int, posterior: pd.DataFrame) -> dict[str, Any]:
    """Return one step of a patient: what was seen and done, and what is known of the hidden."""
    log, state = one.log, one.log.state[row]
    codes = unravel(log.state_variables, np.array(state))
    signs = [v for v in log.state_variables if v.name in sepsis.VITAL_SIGNS]
    levels = {v: v.levels[codes[v.name]] for v in signs}
    off = [f"{v.name} {level}" for v, level in levels.items() if level not in v.normal]
    diabetes = posterior[(posterior["variable"] == "diabetes") & (posterior["level"] == "yes")]
    glucose = posterior[(posterior["variable"] == "glucose") & (posterior["evidence"] == "known")]
    best = glucose.loc[glucose["probability"].idxmax()]
    chances = diabetes.set_index("evidence")["probability"]
    return {
        "signs": ", ".join(off) or "all normal",
        "given": describe_action(log.action_variables, int(log.action[row])),
        "policy": describe_action(log.action_variables, int(one.target[state].argmax())),
        "diabetes": {evidence: float(chances[evidence]) for evidence in EVIDENCE},
        "glucose": {"level": best["level"], "probability": float(best["probability"])},
        "true_glucose": _true_level(posterior, "glucose"),
    }


def _true_level(posterior: pd.DataFrame, variable: str) -> str:
    true = posterior[(posterior["variable"] == variable) & posterior["truth"]]
    return str(true["level"].iloc[0])


STUDY = Study(
    "hidden_state",
    HiddenStateSettings,
    run_experiment,
    charts,
    tables,
    results,
    content,
    short,
    figures=6,
)

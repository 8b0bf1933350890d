"""The article: figures, tables, numbers for machines, and the content of its page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from butfor.log.variables import describe_action
from butfor.paper import published
from butfor.paper.discharge import under_treatment, who_stops_when
from butfor.paper.experiment import (
    DRAWS,
    ESTIMATORS,
    STATES,
    Experiment,
    Oberst2019Settings,
    OneLog,
    run_experiment,
)
from butfor.present.charts import (
    boxplot_chart,
    estimates_chart,
    nonidentifiability_chart,
    outcome_table_chart,
    scm_diagrams,
    trajectory_chart,
)
from butfor.present.text import ESTIMATE, FULL_NAMES, SIMULATOR, enough_logs, range_name
from butfor.replay.draws import draws_needed
from butfor.studies.article import PAPER, Study, signed

WOULD_HAVE_LIVED = ("died", "discharged")  # a cell of the outcome table
PANELS = {"hidden": "Hidden state", "full": "Nothing hidden"}
NOTES = {
    "Obs": "observed: what happened to these patients",
    "WIS": f"{FULL_NAMES['WIS']}: few patients match",
    "MB": f"{FULL_NAMES['MB']}: new patients",
    "CF": "counterfactual: the same patients, replayed by the model",
    "True": SIMULATOR,
}


def charts(experiment: Experiment) -> dict[str, Any]:
    """Return the figures by file name."""
    one, diagrams = experiment.one, scm_diagrams()
    drawn = {
        "figure1": diagrams["graph"],
        "figure2": diagrams["pomdp"],
        "figure3": estimates_chart(
            one.figure3.assign(note=one.figure3["estimator"].map(NOTES)),
            published=published.figure3(),
            reference="Obs",
            subtitle=f"Bar: 95% interval, by bootstrap; gray, below ours: the paper's one log. "
            f"The same model and policy in each sample. {ESTIMATE} Dashed line: Obs.",
            domain=(-1, 1),
        ),
        "figure4": outcome_table_chart(
            in_paper_order(one.sampled.table()),
            expected=in_paper_order(one.exact.table(expected=True)),
            subtitle="Large: patients by the most common of five draws, with their share of all. "
            "Expected: sum of the exact probabilities. A model estimate, not a fact.",
        ),
        "nonidentifiability": nonidentifiability_chart(
            [0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5], 1, [[0, 1, 2, 3], [0, 1, 3, 2]]
        ),
    }
    if one.patient >= 0:
        drawn["figure5"] = trajectory_chart(one.replay.log, one.patient, one.draws)
    for state in STATES:
        logs = experiment.repeats[state][list(ESTIMATORS)].melt(var_name="estimator")
        reported = published.reported_table(state).rename_axis("estimator").reset_index()
        drawn[f"repeats_{state}"] = boxplot_chart(
            logs.dropna(),
            published=reported,
            title=f"How much do the estimates vary from log to log? {PANELS[state]}",
        )
    return drawn


def tables(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return the CSV files by name."""
    one = experiment.one
    return {
        "figure3": one.figure3.rename(columns={"exact": "value_exact"}),
        "figure4": in_paper_order(one.sampled.table()).reset_index(),
        "figure4_exact": in_paper_order(one.exact.table(expected=True)).reset_index(),
        "table": compared_table(experiment),
        "logs_hidden": experiment.repeats["hidden"],
        "logs_full": experiment.repeats["full"],
        "variants": experiment.variants,
        "discharge": experiment.discharge,
    }


def compared_table(experiment: Experiment) -> pd.DataFrame:
    """Return the table of the appendix, ours beside the published one, with combined errors."""
    frames = []
    for state in STATES:
        reported = published.reported_table(state).add_prefix("published_")
        both = experiment.table(state).loc[list(ESTIMATORS)].join(reported)
        error = published.standard_error(both["published_low"], both["published_high"])
        apart = (both["mean"] - both["published_mean"]) / np.hypot(both["se"], error)
        both = both.assign(standard_errors_apart=apart).rename_axis("estimator").reset_index()
        both.insert(0, "state", state)
        frames.append(both)
    return pd.concat(frames, ignore_index=True)


def results(experiment: Experiment) -> dict[str, Any]:
    """Return the numbers for machines."""
    one, columns = experiment.one, ["mean", "low", "high", "se"]
    figure3 = one.figure3.set_index("estimator").rename(columns={"value": "mean"})
    counts = in_paper_order(one.sampled.table())
    return {
        "figure3": figure3[["mean", "low", "high"]].to_dict("index"),
        "figure3_exact": figure3["exact"].to_dict(),
        "figure4": (counts / experiment.settings.episodes).to_numpy().tolist(),
        "would_have_lived": int(counts.loc[WOULD_HAVE_LIVED]),
        "table": {
            state: experiment.table(state).loc[list(ESTIMATORS), columns].to_dict("index")
            for state in STATES
        },
        "shape": shape(experiment),
    }


def shape(experiment: Experiment) -> dict[str, float]:
    """Return the share of fresh logs that show what the paper shows of its one log."""
    logs = experiment.repeats["hidden"]
    shown = {
        "True below -.2": logs["True"] < -0.2,
        "True below Observed": logs["True"] < logs["Observed"],
        "WIS above Observed": logs["WIS (train)"] > logs["Observed"],
        "MB above Observed": logs["MB"] > logs["Observed"],
        "CF above Observed": logs["CF (exact)"] > logs["Observed"],
        "would have lived between 8 and 13%": logs["would have lived"].between(0.08, 0.13),
    }
    return {name: float(logs_with.mean()) for name, logs_with in shown.items()}


def content(experiment: Experiment) -> dict[str, Any]:
    """Return what the page shows besides the results."""
    settings, one, variants = experiment.settings, experiment.one, experiment.variants
    summary = {state: experiment.table(state) for state in STATES}
    fails = variants["MB (exact)"] > variants["Observed"]
    fails &= variants["True (exact)"] < variants["Observed"]
    return {
        "figure3": _figure3_rows(experiment),
        "table_rows": compared_table(experiment).to_dict("records"),
        "undefined": {
            state: experiment.repeats[state][["WIS (train)", "WIS (held-out)"]].isna().sum()
            for state in STATES
        },
        "few": not enough_logs(experiment.logs),
        "range_name": range_name(experiment.logs),
        "full": summary["full"]["mean"],
        "hidden": summary["hidden"]["mean"],
        "crossed": one.crossed,
        "holds": int(fails.sum()),
        "would_have_lived_exact": one.exact.table().loc[WOULD_HAVE_LIVED],
        "published_would_have_lived": published.WOULD_HAVE_LIVED,
        "lived_range": summary["hidden"].loc["would have lived", ["low", "high"]].tolist(),
        "patient": _patient(one),
        "discharge": experiment.discharge.to_dict("records"),
        "stops": who_stops_when(one.replay),
        "variants": variants.to_dict("records"),
        "draws": _draws(one),
        "panels": PANELS,
        "needed": [(precision, draws_needed(precision)) for precision in (0.1, 0.05, 0.01)],
        "published_settings": settings.published,
    }


def short(experiment: Experiment) -> list[str]:
    """Return what was asked, what was found, and the main caveat."""
    settings, logs = experiment.settings, experiment.repeats["hidden"]
    ours = experiment.one.figure3.set_index("estimator")["value"]
    values = {
        name: f"{signed(ours[name], 2)} (published: {signed(reported[0], 2)})"
        for name, reported in published.FIGURE_3.items()
    }
    fooled = (logs["MB"] > logs["Observed"]) & (logs["True"] < logs["Observed"])
    low, high = experiment.table("hidden").loc["True", ["low", "high"]]
    caveat = (
        "One log is one draw, in the paper and here: the true value of the learned policy runs "
        f"from {signed(low, 2)} to {signed(high, 2)} ({range_name(experiment.logs)})"
    )
    if not settings.published:
        caveat += ", and these are not the settings of the paper"
    return [
        "We repeated the experiment of Oberst and Sontag (2019): how good is a policy that was "
        "learned from a log in which two variables are hidden?",
        f"In our first log the learned model puts it at {values['MB']}, and what was observed is "
        f"{values['Obs']}; its true value, which only a simulator tells, is {values['True']}.",
        f"The model places the policy above what was observed, and the truth lies below, in "
        f"{int(fooled.sum())} of {len(logs)} fresh logs.",
        f"{caveat}.",
    ]


def in_paper_order(table: pd.DataFrame) -> pd.DataFrame:
    """Order the outcomes of a table as the paper does, whose "no change" is "still in ICU" here."""
    order = ["died", "still in ICU", "discharged"]
    return table.loc[order, order]


def _figure3_rows(experiment: Experiment) -> list[dict[str, Any]]:
    """Return Figure 3 beside its published values and the range over fresh logs."""
    columns = {"Obs": "Observed", "WIS": "WIS (train)", "MB": "MB", "CF": "CF (exact)"}
    ours = experiment.table("hidden")
    rows = experiment.one.figure3.rename(columns={"estimator": "name", "value": "mean"})
    shown: list[dict[str, Any]] = rows.to_dict("records")
    for row in shown:
        reported = published.FIGURE_3[row["name"]]
        low, high = ours.loc[columns.get(row["name"], row["name"]), ["low", "high"]]
        inside = bool(low <= reported[0] <= high)
        row |= {"published": reported, "logs": (low, high), "inside": inside}
    return shown


def _patient(one: OneLog) -> dict[str, Any] | None:
    """Return the numbers that describe Figure 5."""
    if one.patient < 0:
        return None
    log = one.replay.log
    rows = slice(log.offsets[one.patient], log.offsets[one.patient + 1])
    assert log.side is not None
    glucose = log.side["glucose"].iloc[rows].to_numpy()
    states = one.draws.state[one.patient, :, : len(glucose)]
    actions = one.draws.action[one.patient, :, : len(glucose)]
    running = under_treatment(log.state_variables)[np.clip(states, 0, log.n_states - 1)]
    stops = (running & (states >= 0) & (actions == 0)).sum(axis=0)
    care = log.action[rows]
    return {
        "id": log.id[one.patient],
        "discharged": float(one.exact.probability[one.patient, 1]),
        "steps": [
            {
                "step": step,
                "glucose": glucose[step],
                "draws": int(stops[step]),
                "care": describe_action(log.action_variables, int(care[step])),
            }
            for step in range(len(glucose))
            if stops[step] > 0 and glucose[step] in ("low", "very low")
        ],
    }


def _draws(one: OneLog) -> dict[str, float]:
    """Compare five draws of each patient with the exact probabilities."""
    error = one.sampled.probability - one.exact.probability
    return {
        "count": DRAWS,
        "error": float(np.sqrt((error**2).mean())),
        "worst": float(np.abs(error).max()),
        "differ": int((one.sampled.most_likely != one.exact.most_likely).sum()),
    }


STUDY = Study(
    "paper",
    Oberst2019Settings,
    run_experiment,
    charts,
    tables,
    results,
    content,
    short,
    figures=8,
    sources=(PAPER, published.BUESING),
)

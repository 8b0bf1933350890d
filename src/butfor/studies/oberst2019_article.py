"""The study of Oberst & Sontag (2019) as an article: figures, tables, numbers, one page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import sepsis
from butfor.audit.folders import check_free
from butfor.log.episodes import Episodes
from butfor.log.variables import describe_action, unravel
from butfor.models.policies import TERMINALS
from butfor.present.charts import (
    boxplot_chart,
    estimates_chart,
    nonidentifiability_chart,
    outcome_table_chart,
    scm_diagrams,
    trajectory_chart,
)
from butfor.replay.draws import draws_needed
from butfor.studies import published
from butfor.studies.article import MARKER, render_page, report_progress, write_article
from butfor.studies.oberst2019 import (
    DRAWS,
    ESTIMATORS,
    FEW_LOGS,
    OneLog,
    Settings,
    discharge_when_treatment_stops,
    repeat_logs,
    run_one_log,
    summarize,
    who_stops_when,
)
from butfor.types import Progress

FIGURES = 8
NOTES = {
    "Obs": "what happened to these patients",
    "WIS": "reweighted records: few patients match",
    "MB": "new patients drawn from the model",
    "CF": "the same patients, five draws each",
    "True": "known only because this is a simulator",
}


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that the article tells."""

    settings: Settings
    one: OneLog
    repeats: dict[str, pd.DataFrame]  # "hidden", "full": a row a log
    variants: pd.DataFrame  # means with other simulators and ends
    discharge: pd.DataFrame

    def table(self, which: str) -> pd.DataFrame:
        """Summary of the fresh logs: a row an estimator."""
        return summarize(self.repeats[which])


def run_study(settings: Settings, *, one_more: Callable[[], None]) -> Study:
    """Run the whole experiment: one log in detail, fresh logs, and what other choices change."""
    repeats = {
        name: repeat_logs(settings, hidden=name == "hidden", progress=one_more)
        for name in ("hidden", "full")
    }
    one = run_one_log(settings)
    variants = [_variant(settings, repeats["hidden"])]
    for other in _others(settings):
        variants.append(_variant(other, repeat_logs(other, hidden=True, progress=one_more)))
    return Study(
        settings=settings,
        one=one,
        repeats=repeats,
        variants=pd.DataFrame(variants),
        discharge=discharge_when_treatment_stops(one.learned, settings),
    )


def _others(settings: Settings) -> list[Settings]:
    """The same experiment with the other simulator, the other ends, or both; on fewer logs."""
    made = [
        replace(settings, simulator=simulator, terminal=terminal, repeats=_fewer(settings))
        for simulator in sepsis.VERSIONS[::-1]
        for terminal in TERMINALS[::-1]
    ]
    same = settings.simulator, settings.terminal
    return [other for other in made if (other.simulator, other.terminal) != same]


def _variant(settings: Settings, logs: pd.DataFrame) -> dict[str, Any]:
    """Means and standard errors of one choice of simulator and ends."""
    row: dict[str, Any] = {
        "simulator": settings.simulator,
        "ends": settings.terminal,
        "logs": len(logs),
    }
    for name in ("Observed", "WIS (train)", "MB (exact)", "CF (exact)", "True (exact)"):
        row[name] = float(logs[name].mean())
        row[f"{name} se"] = float(logs[name].std(ddof=1) / logs[name].count() ** 0.5)
    row["would have lived"] = float(logs["would have lived"].mean())
    return row


def write_study(
    settings: Settings,
    folder: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run the study and write its article: index.html, results.json, CSV and every figure."""
    check_free(folder, marker=MARKER, overwrite=overwrite)
    logs = 2 * settings.repeats + len(_others(settings)) * _fewer(settings)
    one_more = report_progress(progress, logs + FIGURES)
    study = run_study(settings, one_more=one_more)
    return write_article(
        folder,
        settings=settings,
        charts=charts(study),
        tables=tables(study),
        results=results(study),
        page=article(study),
        overwrite=overwrite,
        one_more=one_more,
    )


def charts(study: Study) -> dict[str, Any]:
    """Return the figures by file name."""
    one = study.one
    drawn = {
        "figure1": scm_diagrams()["graph"],
        "figure2": scm_diagrams()["pomdp"],
        "figure3": estimates_chart(
            one.figure3.assign(note=one.figure3["estimator"].map(NOTES)),
            reference="Obs",
            domain=(-1, 1),
        ),
        "figure4": outcome_table_chart(
            in_paper_order(one.sampled_table),
            expected=in_paper_order(one.exact.table(expected=True)),
            subtitle=(
                "Large: patients by the most common of five draws, with their share of all. "
                "Expected: sum of the exact probabilities. A model estimate, not a fact."
            ),
        ),
        "nonidentifiability": nonidentifiability_chart(
            [0.25, 0.25, 0.3, 0.2], [0, 0.25, 0.25, 0.5], 1, [[0, 1, 2, 3], [0, 1, 3, 2]]
        ),
    }
    if one.patient >= 0:
        drawn["figure5"] = trajectory_chart(one.learned.log, one.patient, one.draws)
    for name, file in (("hidden", "repeats_hidden"), ("full", "repeats_full")):
        long = study.repeats[name][list(ESTIMATORS)].melt(var_name="estimator")
        reported = pd.DataFrame(
            [(key, *values) for key, values in published.TABLE[name].items()],
            columns=["estimator", "mean", "low", "high"],
        )
        drawn[file] = boxplot_chart(long.dropna(), published=reported)
    return drawn


def in_paper_order(table: pd.DataFrame) -> pd.DataFrame:
    """Order outcomes as the paper does: died, no change, discharged."""
    order = ["died", "no change", "discharged"]
    return table.loc[order, order]


def tables(study: Study) -> dict[str, pd.DataFrame]:
    """Return what is written as CSV, by file name."""
    one = study.one
    return {
        "figure3": one.figure3.merge(one.figure3_exact, on="estimator", suffixes=("", "_exact")),
        "figure4": in_paper_order(one.sampled_table).reset_index(),
        "figure4_exact": in_paper_order(one.exact.table(expected=True)).reset_index(),
        "table": compared_table(study),
        "logs_hidden": study.repeats["hidden"],
        "logs_full": study.repeats["full"],
        "variants": study.variants,
        "discharge": study.discharge,
    }


def compared_table(study: Study) -> pd.DataFrame:
    """The appendix's table, ours beside the published one, with combined standard errors."""
    rows = []
    for which in ("hidden", "full"):
        ours = study.table(which)
        for name in ESTIMATORS:
            mean, low, high = published.TABLE[which][name]
            mine = ours.loc[name]
            combined = float(np.hypot(mine["se"], published.standard_error(low, high)))
            rows.append(
                {
                    "state": which,
                    "estimator": name,
                    "mean": mine["mean"],
                    "low": mine["low"],
                    "high": mine["high"],
                    "se": mine["se"],
                    "logs": int(mine["logs"]),
                    "published_mean": mean,
                    "published_low": low,
                    "published_high": high,
                    "standard_errors_apart": (mine["mean"] - mean) / combined,
                }
            )
    return pd.DataFrame(rows)


def results(study: Study) -> dict[str, Any]:
    """Return the numbers for machines."""
    shares = in_paper_order(study.one.sampled_table) / study.settings.episodes
    return {
        "figure3": {
            row.estimator: {"mean": row.value, "low": row.low, "high": row.high}
            for row in study.one.figure3.itertuples()
        },
        "figure3_exact": dict(study.one.figure3_exact.itertuples(index=False)),
        "figure4": shares.to_numpy().tolist(),
        "would_have_lived": int(study.one.sampled_table.loc["died", "discharged"]),
        "table": {
            which: {
                name: {
                    key: float(study.table(which).loc[name, key])
                    for key in ("mean", "low", "high", "se")
                }
                for name in ESTIMATORS
            }
            for which in ("hidden", "full")
        },
        "shape": shape(study),
    }


def shape(study: Study) -> dict[str, float]:
    """How often, over fresh logs, what the paper shows of its one log holds: shares."""
    logs = study.repeats["hidden"]
    cell = logs["would have lived"]
    return {
        "True below -.2": float((logs["True"] < -0.2).mean()),
        "True below Observed": float((logs["True"] < logs["Observed"]).mean()),
        "WIS above Observed": float((logs["WIS (train)"] > logs["Observed"]).mean()),
        "MB above Observed": float((logs["MB"] > logs["Observed"]).mean()),
        "CF above Observed": float((logs["CF (exact)"] > logs["Observed"]).mean()),
        "would have lived between 8 and 13 %": float(((cell >= 0.08) & (cell <= 0.13)).mean()),
    }


def article(study: Study) -> str:
    """Return the article as one HTML page; its figures lie beside it."""
    content = {
        "figure3": _figure3_rows(study),
        "table": compared_table(study).to_dict("records"),
        "shape": shape(study),
        "widths": _widths(study),
        "undefined": {
            which: {
                name: int(study.repeats[which][name].isna().sum())
                for name in ("WIS (train)", "WIS (held-out)")
            }
            for which in ("hidden", "full")
        },
        "few": study.settings.repeats < FEW_LOGS,
        "full": study.table("full")["mean"].to_dict(),
        "hidden": study.table("hidden")["mean"].to_dict(),
        "crossed": _crossed(study.one),
        "holds": _holds(study.variants),
        "would_have_lived": int(study.one.sampled_table.loc["died", "discharged"]),
        "would_have_lived_exact": int(study.one.exact.table().loc["died", "discharged"]),
        "published_would_have_lived": published.WOULD_HAVE_LIVED,
        "lived_range": [
            float(study.table("hidden").loc["would have lived", key]) for key in ("low", "high")
        ],
        "patient": _patient(study.one),
        "discharge": study.discharge.to_dict("records"),
        "stops": who_stops_when(study.one.learned),
        "variants": study.variants.to_dict("records"),
        "fewer": _fewer(study.settings),
        "draws": _draws(study.one),
        "needed": [(p, draws_needed(p)) for p in (0.1, 0.05, 0.01)],
        "published_settings": _is_published(study.settings),
    }
    return render_page("oberst2019.html", study.settings, content)


def _crossed(one: OneLog) -> dict[str, float]:
    """What policies learned the same way on halves of the log score on the other half."""
    return {
        "model_based": float(one.crossed.model_based.mean()),
        "counterfactual": float(one.crossed.counterfactual.mean()),
        "unsupported": float(one.crossed.unsupported_model_based.mean()),
    }


def _holds(variants: pd.DataFrame) -> int:
    """In how many of the choices MB lies above what was observed and the truth below it."""
    above = variants["MB (exact)"] > variants["Observed"]
    below = variants["True (exact)"] < variants["Observed"]
    return int((above & below).sum())


def _figure3_rows(study: Study) -> list[dict[str, Any]]:
    """Figure 3 beside its published values and the range of fresh logs."""
    columns = {"Obs": "Observed", "WIS": "WIS (train)", "MB": "MB", "CF": "CF (exact)"}
    ours = study.table("hidden")
    rows = []
    for row, exact in zip(
        study.one.figure3.itertuples(), study.one.figure3_exact["value"], strict=True
    ):
        mean, low, high = published.FIGURE_3[row.estimator]
        logs = ours.loc[columns.get(row.estimator, row.estimator)]
        rows.append(
            {
                "name": row.estimator,
                "mean": row.value,
                "low": row.low,
                "high": row.high,
                "exact": exact,
                "published": (mean, low, high),
                "logs": (logs["low"], logs["high"]),
                "inside": bool(logs["low"] <= mean <= logs["high"]),
            }
        )
    return rows


def _widths(study: Study) -> list[dict[str, Any]]:
    """How much wider fresh logs spread than a bootstrap of one log tells."""
    rows = []
    for row in _figure3_rows(study):
        bootstrap = row["high"] - row["low"]
        fresh = row["logs"][1] - row["logs"][0]
        rows.append({"name": row["name"], "bootstrap": bootstrap, "fresh": fresh})
    return [{**row, "ratio": row["fresh"] / row["bootstrap"]} for row in rows if row["bootstrap"]]


def _patient(one: OneLog) -> dict[str, Any] | None:
    """Say in numbers what Figure 5 shows."""
    if one.patient < 0:
        return None
    log = one.learned.log
    rows = slice(log.offsets[one.patient], log.offsets[one.patient + 1])
    assert log.side is not None
    glucose = log.side["glucose"].iloc[rows].to_numpy()
    states = one.draws.state[one.patient, :, : len(glucose)]
    running = _treated(log)[np.clip(states, 0, log.n_states - 1)] & (states >= 0)
    stops = (running & (one.draws.action[one.patient, :, : len(glucose)] == 0)).sum(axis=0)
    care = log.action[rows]
    probability = one.exact.probability[one.patient]
    return {
        "id": log.id[one.patient],
        "length": len(glucose),
        "discharged": float(probability[1]),
        "died": float(probability[0]),
        "diabetes": log.side["diabetes"].iloc[rows].iloc[0],
        "steps": [
            {
                "step": t,
                "glucose": glucose[t],
                "draws": int(stops[t]),
                "care": describe_action(log.action_variables, int(care[t])),
            }
            for t in range(len(glucose))
            if stops[t] > 0 and glucose[t] in ("low", "very low")
        ],
    }


def _treated(log: Episodes) -> NDArray[np.bool_]:
    """States in which a treatment runs, [S]."""
    levels = unravel(log.state_variables, np.arange(log.n_states))
    return np.any([levels[variable.name] > 0 for variable in log.action_variables], axis=0)


def _draws(one: OneLog) -> dict[str, float]:
    """Five draws of each patient against the exact probabilities."""
    size = one.exact.probability.shape[1]
    shares = np.stack([(one.draws.outcome % size == o).mean(axis=1) for o in range(size)], axis=1)
    error = shares - one.exact.probability
    common = shares.argmax(axis=1)
    likely = one.exact.most_likely % size
    return {
        "count": DRAWS,
        "error": float(np.sqrt((error**2).mean())),
        "worst": float(np.abs(error).max()),
        "differ": int((common != likely).sum()),
    }


def _fewer(settings: Settings) -> int:
    return max(2, settings.repeats // 2)


def _is_published(settings: Settings) -> bool:
    usual = Settings()
    return all(
        getattr(settings, name) == getattr(usual, name)
        for name in ("simulator", "terminal", "behavior", "episodes")
    )

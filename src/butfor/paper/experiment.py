"""The experiment of Oberst and Sontag (2019): one log in detail, and many fresh logs.

Every sampled number of the paper is computed as its caption says, next to its exact counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.checks import check_choice
from butfor.evaluate.bootstrap import resample_weights
from butfor.evaluate.crossfit import CrossFitted, cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.importance import weighted
from butfor.log.episodes import Episodes
from butfor.models.planning import policy_value
from butfor.models.policies import TERMINALS
from butfor.models.simulate import simulate_model
from butfor.paper.discharge import discharge_when_treatment_stops
from butfor.present.text import range_percentiles
from butfor.replay.draws import Draws
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay
from butfor.studies.article import HIDDEN, HORIZON, Advance, LogSettings, learn
from butfor.types import Floats

TENSOR_DRAWS = 10_000
BOOTSTRAPS = 100
DRAWS = 5
ESTIMATORS = ("Observed", "WIS (train)", "WIS (held-out)", "MB", "True")
STATES = ("hidden", "full")  # logs without and with the hidden variables
BEHAVIORS = ("estimated", "exact")


@dataclass(frozen=True)
class Oberst2019Settings(LogSettings):
    """The settings of the study; the defaults are the published experiment."""

    repeats: int = 100
    simulator: str = "icml2019"
    terminal: str = "icml2019"
    behavior: str = "estimated"  # planned on a tensor of 10,000 draws per pair, or the exact one

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.behavior, "behavior", BEHAVIORS)

    @property
    def published(self) -> bool:
        """Whether these are the settings of the published experiment, but for seed and repeats."""
        return replace(self, repeats=100, seed=0) == Oberst2019Settings()

    @property
    def steps(self) -> int:
        """Number of times that a run reports progress."""
        return 2 * self.repeats + sum(variant.repeats for variant in self.variants())

    def variants(self) -> list[Oberst2019Settings]:
        """Return the other combinations of simulator and ends, with half as many logs."""
        fewer = max(2, self.repeats // 2)
        return [
            replace(self, simulator=simulator, terminal=terminal, repeats=fewer)
            for simulator in sepsis.VERSIONS[::-1]
            for terminal in TERMINALS[::-1]
            if (simulator, terminal) != (self.simulator, self.terminal)
        ]

    def physician(self) -> Floats:
        """Return the policy that generates the logs, on the full state."""
        draws = TENSOR_DRAWS if self.behavior == "estimated" else None
        return sepsis.behavior_policy(self.simulator, tensor_draws=draws, seed=self.seed)


@dataclass(frozen=True, eq=False)
class OneLog:
    """One log in detail, for Figures 3 to 5."""

    replay: Replay  # the log, the model learned from it, and the target planned on the model
    draws: Draws  # five of each episode
    exact: Counterfactuals
    sampled: Counterfactuals  # the same from the shares of the draws
    figure3: pd.DataFrame  # estimator, value, low, high as in the caption, and exact
    patient: int  # position of the patient of Figure 5; -1 if no patient fits the rule
    crossed: CrossFitted  # policies learned in the same way on halves of the log


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that the article reports."""

    settings: Oberst2019Settings
    one: OneLog
    repeats: dict[str, pd.DataFrame]  # by state: one row per log
    variants: pd.DataFrame  # one row per combination of simulator and ends
    discharge: pd.DataFrame  # after all treatment stops, learned and true

    def table(self, state: str) -> pd.DataFrame:
        """Return the summary of the fresh logs, one row per estimator."""
        return summarize(self.repeats[state], self.logs)

    @property
    def logs(self) -> int:
        """Number of logs that define every estimate: what ranges over logs can rest on."""
        return min(int(table.count().min()) for table in self.repeats.values())


def run_experiment(settings: Oberst2019Settings, *, advance: Advance = lambda: None) -> Experiment:
    """Run the whole experiment: fresh logs, one log in detail, and other choices."""
    repeats = {
        state: repeat_logs(settings, hidden=state == "hidden", advance=advance) for state in STATES
    }
    variants = [_variant(settings, repeats["hidden"])]
    for other in settings.variants():
        variants.append(_variant(other, repeat_logs(other, hidden=True, advance=advance)))
    one = run_one_log(settings)
    discharge = discharge_when_treatment_stops(one.replay, settings.simulator)
    return Experiment(settings, one, repeats, pd.DataFrame(variants), discharge)


def seeds(settings: Oberst2019Settings, repeat: int) -> dict[str, int]:
    """Return the seeds of the parts of one repeat; no two parts of a study share one."""
    names = ("train", "held-out", "model", "true", "draws", "bootstrap")
    base = settings.base_seed(repeat, parts=8)
    return {name: base + place for place, name in enumerate(names)}


def ask_about(log: Episodes, terminal: str) -> Replay:
    """Ask a log about the target planned on the model that it teaches."""
    return Replay(log, *learn(log, terminal))


def wis(replay: Replay, weights: Floats | None = None) -> Floats:
    """Weighted importance sampling of the target for each row of episode weights.

    NaN if no episode of the log agrees with the target.
    """
    logged = EpisodeColumns(replay).logged
    return weighted(logged, np.ones((1, len(replay))) if weights is None else weights)


def simulate_log(settings: Oberst2019Settings, seed: int, hidden: bool) -> Episodes:
    """Simulate a log of the physician's patients, with or without the hidden variables."""
    log = settings.simulate(settings.physician(), seed)
    return log.hide(*HIDDEN) if hidden else log


def true_value(settings: Oberst2019Settings, target: Floats) -> float:
    """Return the exact value of a target in the simulator."""
    truth = sepsis.model(settings.simulator)
    return policy_value(truth, sepsis.full_policy(target), horizon=HORIZON)


def new_patients(settings: Oberst2019Settings, replay: Replay, repeat: int) -> dict[str, Floats]:
    """Return the returns of new patients treated by the target, in the model and in truth."""
    seed, target = seeds(settings, repeat), replay.target_table
    modeled = simulate_model(
        replay.mdp, target, settings.episodes, horizon=HORIZON, seed=seed["model"]
    )
    return {"MB": modeled.returns(), "True": settings.simulate(target, seed["true"]).returns()}


def repeat_logs(
    settings: Oberst2019Settings, *, hidden: bool, advance: Advance = lambda: None
) -> pd.DataFrame:
    """Evaluate `repeats` fresh logs, one row per log.

    The columns are the five of the published table, sampled as published, then the exact values,
    CF, and the share of patients who died and would most likely have been discharged.
    """
    rows = []
    for repeat in range(settings.repeats):
        rows.append(_evaluate(settings, repeat, hidden))
        advance()
    return pd.DataFrame(rows)


def _evaluate(settings: Oberst2019Settings, repeat: int, hidden: bool) -> dict[str, float]:
    seed = seeds(settings, repeat)
    replay = ask_about(simulate_log(settings, seed["train"], hidden), settings.terminal)
    held_out = replay.ask(episodes=simulate_log(settings, seed["held-out"], hidden))
    new = new_patients(settings, replay, repeat)
    row = {
        "Observed": replay.observed_return.mean(),
        "WIS (train)": wis(replay)[0],
        "WIS (held-out)": wis(held_out)[0],
        "MB": new["MB"].mean(),
        "True": new["True"].mean(),
        "MB (exact)": policy_value(replay.mdp, replay.target_table, horizon=HORIZON),
        "True (exact)": true_value(settings, replay.target_table),
    }
    if hidden:
        exact = replay.outcomes()
        row["CF (exact)"] = exact.expected_return.mean()
        row["would have lived"] = exact.table().loc["died", "discharged"] / settings.episodes
    return row


def summarize(repeats: pd.DataFrame, logs: int | None = None) -> pd.DataFrame:
    """Return the mean, range over logs and standard error of each column, ignoring undefined logs.

    The range is the one that this number of logs is enough for, by default of those that define
    every column.
    """
    values = repeats.astype(float)
    percentiles = range_percentiles(int(values.count().min()) if logs is None else logs)
    low, high = (values.quantile(end / 100) for end in percentiles)
    ends = {"low": low, "high": high}
    return pd.DataFrame({"mean": values.mean(), **ends, "se": values.sem(), "logs": values.count()})


def _variant(settings: Oberst2019Settings, logs: pd.DataFrame) -> dict[str, Any]:
    """Return means and standard errors for one combination of simulator and ends."""
    row = {"simulator": settings.simulator, "ends": settings.terminal, "logs": len(logs)}
    for name in ("Observed", "WIS (train)", "MB (exact)", "CF (exact)", "True (exact)"):
        row |= {name: logs[name].mean(), f"{name} se": logs[name].sem()}
    return row | {"would have lived": logs["would have lived"].mean()}


def run_one_log(settings: Oberst2019Settings) -> OneLog:
    """Run the paper's main experiment on one log: the first one, whatever it looks like."""
    seed = seeds(settings, 0)
    replay = ask_about(simulate_log(settings, seed["train"], hidden=True), settings.terminal)
    draws = replay.draws(DRAWS, seed=seed["draws"])
    exact = replay.outcomes()
    size = len(exact.outcome_names)
    shares = np.stack([(draws.outcome % size == o).mean(axis=1) for o in range(size)], axis=1)
    learn_half = partial(learn, terminal=settings.terminal)
    return OneLog(
        replay=replay,
        draws=draws,
        exact=exact,
        sampled=replace(exact, probability=shares, draws=DRAWS),
        figure3=_figure3(settings, replay, draws),
        patient=choose_patient(exact),
        crossed=cross_fitted(replay, learn_half, seed=seed["bootstrap"]),
    )


def _figure3(settings: Oberst2019Settings, replay: Replay, draws: Draws) -> pd.DataFrame:
    size, new = len(replay), new_patients(settings, replay, 0)
    resampled = resample_weights(size, BOOTSTRAPS, seeds(settings, 0)["bootstrap"])
    weights = np.vstack([np.ones(size), resampled])  # the sample itself, then its resamples
    values = {
        "Obs": weights @ replay.observed_return / size,
        "WIS": wis(replay, weights),
        "MB": weights @ new["MB"] / size,
        "CF": weights @ draws.returns().mean(axis=1) / size,
        "True": weights @ new["True"] / size,
    }
    table = pd.DataFrame({"estimator": list(values), "value": [row[0] for row in values.values()]})
    ends = [np.nanquantile(row[1:], [0.025, 0.975]) for row in values.values()]
    table["low"], table["high"] = np.transpose(ends)
    table["exact"] = [
        *table["value"][:2],  # nothing is sampled in Obs and WIS
        policy_value(replay.mdp, replay.target_table, horizon=HORIZON),
        replay.outcomes().expected_return.mean(),
        true_value(settings, replay.target_table),
    ]
    return table


def choose_patient(exact: Counterfactuals) -> int:
    """Choose the patient of Figure 5 by rule: the first in the log who meets all conditions.

    The patient died after more than ten steps, would most likely have been discharged under the
    target, and had an abnormal hidden glucose at the end. Returns -1 if there is no such patient.
    """
    log = exact.episodes
    if log.side is None:
        return -1
    final_glucose = log.side["glucose"].iloc[len(log.state) :].to_numpy()
    fits = (log.outcome == 0) & (log.lengths > 10)
    fits &= (exact.most_likely == 1) & (final_glucose != "normal")
    return int(fits.argmax()) if fits.any() else -1

"""The experiment of Oberst and Sontag (2019): one log in detail, and many fresh logs.

Every sampled number of the paper is computed as its caption says, next to its exact counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value
from butfor.models.policies import TERMINALS, estimate_behavior
from butfor.models.simulate import simulate_model
from butfor.replay.draws import Draws
from butfor.replay.functions import counterfactual_outcomes, sample_counterfactuals
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay
from butfor.studies.article import Advance, no_progress
from butfor.studies.oberst2019.discharge import discharge_when_treatment_stops
from butfor.studies.settings import DISCOUNT, HIDDEN, HORIZON, LogSettings
from butfor.types import Floats

TENSOR_DRAWS = 10_000
BOOTSTRAPS = 100
DRAWS = 5
ESTIMATORS = ("Observed", "WIS (train)", "WIS (held-out)", "MB", "True")
STATES = ("hidden", "full")  # logs without and with the hidden variables
BEHAVIORS = ("estimated", "exact")
FEW_LOGS = 40  # with fewer, 2.5 % is less than one log


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
class Learned:
    """A log, the model learned from it, and the target planned on the model."""

    log: Episodes
    model: TabularMDP
    target: Floats
    behavior: Floats

    def wis(self, log: Episodes, behavior: Floats, weights: Floats | None = None) -> Floats:
        """Weighted importance sampling of the target for each row of episode weights.

        NaN if no episode of the log agrees with the target.
        """
        sample = EpisodeColumns(Replay(log, self.model, self.target, behavior=behavior))
        return weighted(sample.logged, np.ones((1, len(log))) if weights is None else weights)


@dataclass(frozen=True, eq=False)
class OneLog:
    """One log in detail, for Figures 3 to 5."""

    learned: Learned
    draws: Draws  # five of each episode
    exact: Counterfactuals
    figure3: pd.DataFrame  # estimator, value, low, high as in the caption, and exact
    sampled_table: pd.DataFrame  # Figure 4: counts by most common outcome of five draws
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
        return summarize(self.repeats[state])


def run_experiment(settings: Oberst2019Settings, *, advance: Advance = no_progress) -> Experiment:
    """Run the whole experiment: fresh logs, one log in detail, and other choices."""
    repeats = {
        state: repeat_logs(settings, hidden=state == "hidden", advance=advance) for state in STATES
    }
    variants = [_variant(settings, repeats["hidden"])]
    for other in settings.variants():
        variants.append(_variant(other, repeat_logs(other, hidden=True, advance=advance)))
    one = run_one_log(settings)
    learned = one.learned
    discharge = discharge_when_treatment_stops(
        learned.log, learned.model, learned.target, settings.simulator
    )
    return Experiment(settings, one, repeats, pd.DataFrame(variants), discharge)


def seeds(settings: Oberst2019Settings, repeat: int) -> dict[str, int]:
    """Return the seeds of the parts of one repeat; no two parts of a study share one."""
    names = ("train", "held-out", "model", "true", "draws", "bootstrap")
    base = settings.base_seed(repeat, parts=8)
    return {name: base + place for place, name in enumerate(names)}


def learn(log: Episodes, terminal: str) -> Learned:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    target = policy_iteration(model, discount=DISCOUNT)
    return Learned(log, model, target, estimate_behavior(log, terminal=terminal))


def simulate_log(settings: Oberst2019Settings, seed: int, hidden: bool) -> Episodes:
    """Simulate a log of the physician's patients, with or without the hidden variables."""
    log = sepsis.simulate(
        settings.physician(), settings.episodes, seed=seed, version=settings.simulator
    )
    return log.hide(*HIDDEN) if hidden else log


def true_value(settings: Oberst2019Settings, target: Floats) -> float:
    """Return the exact value of a target in the simulator."""
    truth = sepsis.model(settings.simulator)
    return policy_value(truth, sepsis.full_policy(target), horizon=HORIZON)


def new_patients(
    settings: Oberst2019Settings, learned: Learned, seed: dict[str, int]
) -> dict[str, Floats]:
    """Return the returns of new patients treated by the target, in the model and in truth."""
    modeled = simulate_model(
        learned.model, learned.target, settings.episodes, horizon=HORIZON, seed=seed["model"]
    )
    true = sepsis.simulate(
        sepsis.full_policy(learned.target),
        settings.episodes,
        seed=seed["true"],
        version=settings.simulator,
    )
    return {"MB": modeled.returns(), "True": true.returns()}


def repeat_logs(
    settings: Oberst2019Settings, *, hidden: bool, advance: Advance = no_progress
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
    learned = learn(simulate_log(settings, seed["train"], hidden), settings.terminal)
    held_out = simulate_log(settings, seed["held-out"], hidden)
    held_out_behavior = estimate_behavior(held_out, terminal=settings.terminal)
    new = new_patients(settings, learned, seed)
    row = {
        "Observed": learned.log.returns().mean(),
        "WIS (train)": learned.wis(learned.log, learned.behavior)[0],
        "WIS (held-out)": learned.wis(held_out, held_out_behavior)[0],
        "MB": new["MB"].mean(),
        "True": new["True"].mean(),
        "MB (exact)": policy_value(learned.model, learned.target, horizon=HORIZON),
        "True (exact)": true_value(settings, learned.target),
    }
    if hidden:
        exact = counterfactual_outcomes(learned.log, learned.model, learned.target)
        row["CF (exact)"] = exact.expected_return.mean()
        row["would have lived"] = exact.table().loc["died", "discharged"] / settings.episodes
    return row


def summarize(repeats: pd.DataFrame) -> pd.DataFrame:
    """Return the mean, range over logs and standard error of each column, ignoring undefined logs.

    The range holds 95 % of the logs; with fewer than FEW_LOGS it is the minimum and the maximum.
    """
    values = repeats.astype(float)
    tail = 0.025 if len(values) >= FEW_LOGS else 0.0
    return pd.DataFrame(
        {
            "mean": values.mean(),
            "low": values.quantile(tail),
            "high": values.quantile(1 - tail),
            "se": values.sem(),
            "logs": values.count(),
        }
    )


def _variant(settings: Oberst2019Settings, logs: pd.DataFrame) -> dict[str, Any]:
    """Return means and standard errors for one combination of simulator and ends."""
    row = {"simulator": settings.simulator, "ends": settings.terminal, "logs": len(logs)}
    for name in ("Observed", "WIS (train)", "MB (exact)", "CF (exact)", "True (exact)"):
        row |= {name: logs[name].mean(), f"{name} se": logs[name].sem()}
    return row | {"would have lived": logs["would have lived"].mean()}


def run_one_log(settings: Oberst2019Settings) -> OneLog:
    """Run the paper's main experiment on one log: the first one, whatever it looks like."""
    seed = seeds(settings, 0)
    learned = learn(simulate_log(settings, seed["train"], hidden=True), settings.terminal)
    log, model, target = learned.log, learned.model, learned.target
    draws = sample_counterfactuals(log, model, target, draws=DRAWS, seed=seed["draws"])
    exact = counterfactual_outcomes(log, model, target)
    new = new_patients(settings, learned, seed)
    # the sample itself, then its resamples
    weights = np.vstack(
        [np.ones(len(log)), resample_weights(len(log), BOOTSTRAPS, seed["bootstrap"])]
    )
    figure3 = _bootstrapped(
        {
            "Obs": weights @ log.returns() / len(log),
            "WIS": learned.wis(log, learned.behavior, weights),
            "MB": weights @ new["MB"] / len(log),
            "CF": weights @ draws.returns().mean(axis=1) / len(log),
            "True": weights @ new["True"] / len(log),
        }
    )
    figure3["exact"] = [
        *figure3["value"][:2],  # nothing is sampled in Obs and WIS
        policy_value(model, target, horizon=HORIZON),
        exact.expected_return.mean(),
        true_value(settings, target),
    ]

    def learn_half(half: Episodes) -> tuple[TabularMDP, Floats]:
        found = learn(half, settings.terminal)
        return found.model, found.target

    return OneLog(
        learned=learned,
        draws=draws,
        exact=exact,
        figure3=figure3,
        sampled_table=common_outcome_table(draws),
        patient=choose_patient(exact),
        crossed=cross_fitted(Replay(log, model, target), learn_half, seed=seed["bootstrap"]),
    )


def _bootstrapped(values: dict[str, Floats]) -> pd.DataFrame:
    rows = []
    for name, (point, *resampled) in values.items():
        rows.append((name, point, *np.nanquantile(resampled, [0.025, 0.975])))
    return pd.DataFrame(rows, columns=["estimator", "value", "low", "high"])


def outcome_shares(draws: Draws) -> Floats:
    """Return the share of each episode's draws that end in each outcome, none last, [n, O]."""
    size = len(draws.episodes.outcomes) + 1
    return np.stack([(draws.outcome % size == o).mean(axis=1) for o in range(size)], axis=1)


def common_outcome_table(draws: Draws) -> pd.DataFrame:
    """Count episodes by observed outcome and by the most common outcome of their draws (Figure 4).

    Ties go to the first of died, discharged, none.
    """
    log = draws.episodes
    names = [*(outcome.name for outcome in log.outcomes), log.none_name]
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(counts, (log.outcome, outcome_shares(draws).argmax(axis=1)), 1)
    return pd.DataFrame(
        counts,
        index=pd.Index(names, name="observed"),
        columns=pd.Index(names, name="under the target"),
    )


def choose_patient(exact: Counterfactuals) -> int:
    """Choose the patient of Figure 5 by rule: the first in the log who meets all conditions.

    The patient died after more than ten steps, would most likely have been discharged under the
    target, and had an abnormal hidden glucose at the end. Returns -1 if there is no such patient.
    """
    log = exact.episodes
    if log.side is None:
        return -1
    final_glucose = log.side["glucose"].iloc[len(log.state) :].to_numpy()
    fits = (
        (log.outcome == 0)
        & (exact.most_likely == 1)
        & (log.lengths > 10)
        & (final_glucose != "normal")
    )
    return int(fits.argmax()) if fits.any() else -1

"""The experiment of Oberst and Sontag (2019) with the hidden state in the model.

The physician sees diabetes and glucose, the log does not. A reduced MDP of what the log shows is
compared with the true model, in which the two are hidden, and both are compared with the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import sepsis
from butfor.hidden.cells import pomdp_value
from butfor.hidden.latent import LatentPosterior, latent_posterior
from butfor.hidden.learn import fit_latent_behavior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import LatentPolicy
from butfor.log.episodes import Episodes
from butfor.models.planning import policy_value
from butfor.present.ranges import range_percentiles
from butfor.replay.functions import counterfactual_outcomes
from butfor.replay.outcomes import Counterfactuals
from butfor.studies.article import HIDDEN, HORIZON, Advance, LogSettings, learn
from butfor.studies.scoring import brier
from butfor.types import Floats

LEAST_CHANGES = 3  # of the observed state of the patient who is shown in detail

OBSERVED, MB, CF = "Observed", "MB, reduced MDP", "CF, reduced MDP"
RIGHT, LEARNED, IGNORED = "CF, POMDP", "CF, POMDP, learned", "CF, POMDP, ignored"
TRUE = "True"
METHODS = (OBSERVED, MB, CF, IGNORED, LEARNED, RIGHT, TRUE)
COUNTERFACTUAL = (CF, IGNORED, LEARNED, RIGHT)  # methods that predict each patient's outcome


@dataclass(frozen=True)
class HiddenStateSettings(LogSettings):
    """The settings of the study; `terminal` is how the reduced model counts ends."""

    simulator: str = "icml2019"


@dataclass(frozen=True, eq=False)
class OneLog:
    """One log, and what each method predicts for its patients."""

    log: Episodes
    target: Floats  # [S, A], learned on the reduced model
    truth: NDArray[np.int64]  # [n] true outcome under the target; -1: none
    said: dict[str, Counterfactuals]  # by method
    posteriors: dict[str, LatentPosterior]  # the physician's actions as evidence: known, ignored


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that the article reports."""

    settings: HiddenStateSettings
    estimates: pd.DataFrame  # one row per log and method
    first: OneLog


def run_experiment(settings: HiddenStateSettings, *, advance: Advance = lambda: None) -> Experiment:
    """Judge the policy learned on each log by every method; keep the first log in detail."""
    hidden = sepsis.pomdp(settings.simulator, hidden=HIDDEN)
    physician = LatentPolicy(sepsis.behavior_policy(settings.simulator))
    frames, first = [], None
    for repeat in range(settings.repeats):
        one, frame = judge(settings, hidden, physician, repeat)
        first = first or one
        frames.append(frame.assign(repeat=repeat))
        advance()
    assert first is not None
    return Experiment(settings, pd.concat(frames, ignore_index=True), first)


def judge(
    settings: HiddenStateSettings, hidden: TabularPOMDP, physician: LatentPolicy, repeat: int
) -> tuple[OneLog, pd.DataFrame]:
    """Simulate a log, learn a policy from it and judge it by every method.

    The columns of the frame, one row per method, are `value` and `se` over patients; `own`, the
    policy's value in the same model, and `z`, the distance from it in standard errors; `brier`
    against what would truly have happened to each patient, and `base`, the score of predicting the
    true frequencies for everyone; the `true` value of the policy, and the `error`.
    """
    log = settings.simulate(physician.table, settings.base_seed(repeat)).hide(*HIDDEN)
    reduced, target = learn(log, settings.terminal)
    full_target = sepsis.full_policy(target)
    learned = fit_latent_behavior(log, hidden).policy
    said = {CF: counterfactual_outcomes(log, reduced, target)}
    for method, behavior in ((IGNORED, None), (LEARNED, learned), (RIGHT, physician)):
        said[method] = counterfactual_outcomes(log, hidden, target, behavior=behavior)
    # noise belongs to patient and step, so the same seed treats the same patients differently
    replayed = settings.simulate(full_target, settings.base_seed(repeat))
    one = OneLog(
        log=log,
        target=target,
        truth=replayed.outcome.astype(np.int64),
        said=said,
        posteriors={
            "known": latent_posterior(log, hidden, behavior=physician),
            "ignored": latent_posterior(log, hidden),
        },
    )
    true = policy_value(sepsis.model(settings.simulator), full_target, horizon=HORIZON)
    own = dict.fromkeys(COUNTERFACTUAL, pomdp_value(hidden, target, horizon=HORIZON))
    own[CF] = policy_value(reduced, target, horizon=HORIZON)
    return one, _estimates(one, own, true)


def _estimates(one: OneLog, own: dict[str, float], true: float) -> pd.DataFrame:
    """Return one row per method: see `judge`."""
    size = len(one.log.outcomes) + 1
    returns = {OBSERVED: one.log.returns()}
    predicted = {OBSERVED: np.eye(size)[one.log.outcome]}
    for method, result in one.said.items():
        returns[method], predicted[method] = result.expected_return, result.probability
    rows: list[dict[str, Any]] = [{"method": MB, "value": own[CF]}, {"method": TRUE, "value": true}]
    for method, values in returns.items():
        row = {"method": method, "value": values.mean(), "own": own.get(method, np.nan)}
        row["se"] = values.std(ddof=1) / len(values) ** 0.5
        row["z"] = (row["value"] - row["own"]) / row["se"] if row["se"] > 0 else np.nan
        row["brier"] = brier(predicted[method], one.truth).mean()
        rows.append(row)
    columns = ["value", "se", "own", "z", "brier"]
    frame = pd.DataFrame(rows).set_index("method").loc[list(METHODS), columns].reset_index()
    frequency = np.bincount(one.truth % size, minlength=size) / len(one.truth)
    return frame.assign(base=1 - (frequency**2).sum(), true=true, error=frame["value"] - true)


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Return means over logs, one row per method, with the standard error of the error."""
    grouped = estimates.groupby("method", sort=False)
    table = grouped[["value", "error", "z", "brier", "base"]].mean()
    table["se"] = grouped["error"].sem()
    low, high = range_percentiles(estimates["repeat"].nunique())
    table["low"], table["high"] = (grouped["value"].quantile(end / 100) for end in (low, high))
    table["largest_z"] = grouped["z"].agg(lambda z: z.abs().max())
    table["logs"] = grouped["value"].count()
    return table.loc[list(METHODS)].reset_index()


def choose_patient(one: OneLog) -> int:
    """Choose the patient to show by rule: the first in the log who meets all conditions.

    The patient died after the observed state had changed at least LEAST_CHANGES times, would most
    likely have been discharged under the policy according to the reduced model, and most likely
    died according to the model with the hidden state. Returns -1 if there is no such patient.
    """
    log = one.log
    changes = np.add.reduceat(log.state != log.next_state, log.offsets[:-1])
    fits = (log.outcome == 0) & (changes >= LEAST_CHANGES)
    fits &= (one.said[CF].most_likely == 1) & (one.said[RIGHT].most_likely == 0)
    return int(fits.argmax()) if fits.any() else -1


def patients(one: OneLog) -> pd.DataFrame:
    """Return one row per patient: what happened, what truly would have, what each method says."""
    names = np.array(one.said[CF].outcome_names, dtype=object)
    columns = {
        "id": one.log.id,
        "steps": one.log.lengths,
        "observed": names[one.log.outcome],
        "true": names[one.truth],
    }
    for method, result in one.said.items():
        columns[f"p_died {method}"] = result.probability[:, 0]
        columns[f"likeliest {method}"] = names[result.most_likely]
    return pd.DataFrame(columns)


def entropy_by_step(one: OneLog) -> pd.DataFrame:
    """Return the mean entropy of the hidden state, in bits, over the patients of each step."""
    frames = []
    for series, posterior in one.posteriors.items():
        episode, step = posterior.rows
        inside = step < one.log.lengths[episode]
        rows = pd.DataFrame({"step": step[inside], "bits": posterior.entropy[inside]})
        table = rows.groupby("step")["bits"].agg(mean="mean", patients="count").reset_index()
        frames.append(table.assign(series=series))
    return pd.concat(frames, ignore_index=True)


def story(one: OneLog, patient: int) -> pd.DataFrame:
    """Return the posterior of one patient's hidden variables at each step, with the truth.

    Columns: `evidence` (known or ignored), `variable, step, level, probability, truth`.
    """
    log = one.log
    assert log.side is not None
    rows = np.arange(log.offsets[patient], log.offsets[patient + 1])
    at = np.append(rows, len(log.state) + patient)  # the final state too
    first = int(log.offsets[patient]) + patient
    found = []
    for evidence, posterior in one.posteriors.items():
        for variable in posterior.model.hidden_variables:
            table = posterior.marginal(variable.name)[first : first + len(at)]
            truth = log.side[variable.name].cat.codes.to_numpy()[at]
            for (step, level), probability in np.ndenumerate(table):
                name, true = variable.levels[level], bool(level == truth[step])
                found.append((evidence, variable.name, step, name, probability, true))
    columns = ["evidence", "variable", "step", "level", "probability", "truth"]
    return pd.DataFrame(found, columns=columns)

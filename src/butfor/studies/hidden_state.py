"""The example of Oberst & Sontag (2019) with its hidden state in the model: logs, one in detail.

The physician sees diabetes and glucose, the log does not. A reduced MDP of what the log shows is
set beside the true model with the two hidden, and both beside the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import sepsis
from butfor.checks import check_choice, check_whole
from butfor.hidden.cells import pomdp_value
from butfor.hidden.latent import LatentPosterior, latent_posterior
from butfor.hidden.learn import fit_latent_behavior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import LatentPolicy
from butfor.log.episodes import Episodes
from butfor.models.fit import fit_mdp
from butfor.models.planning import policy_iteration, policy_value
from butfor.models.policies import TERMINALS
from butfor.random import check_seed
from butfor.replay.functions import counterfactual_outcomes
from butfor.replay.outcomes import Counterfactuals
from butfor.studies.scoring import brier
from butfor.types import Floats

HIDDEN = ("diabetes", "glucose")
HORIZON = 20
DISCOUNT = 0.99  # of planning
LEAST_CHANGES = 3  # of what is seen of the patient whose story is told

OBSERVED, MB, CF = "Observed", "MB, reduced MDP", "CF, reduced MDP"
RIGHT, LEARNED, IGNORED = "CF, POMDP", "CF, POMDP, learned", "CF, POMDP, ignored"
TRUE = "True"
METHODS = (OBSERVED, MB, CF, IGNORED, LEARNED, RIGHT, TRUE)
COUNTERFACTUAL = (CF, IGNORED, LEARNED, RIGHT)  # those that say something of each patient


@dataclass(frozen=True)
class Settings:
    """What can be chosen."""

    repeats: int = 10
    seed: int = 0
    simulator: str = "icml2019"
    terminal: str = "visits"  # how the reduced model counts ends
    episodes: int = 1000

    def __post_init__(self) -> None:
        check_whole(self.repeats, "repeats", 2, "a whole number")
        check_whole(self.episodes, "episodes", 10, "a whole number")
        check_seed(self.seed)
        check_choice(self.simulator, "simulator", sepsis.VERSIONS)
        check_choice(self.terminal, "terminal", TERMINALS)


@dataclass(frozen=True, eq=False)
class World:
    """What made the logs: the model with two variables hidden, and a physician who saw them."""

    model: TabularPOMDP
    physician: LatentPolicy


@dataclass(frozen=True, eq=False)
class OneLog:
    """One log, and what is said of each of its patients."""

    log: Episodes
    target: Floats  # [S, A], learned on the reduced model
    truth: NDArray[np.int64]  # [n] the outcome under the target, in truth; -1: none
    said: dict[str, Counterfactuals]  # by method
    known: LatentPosterior  # with the physician's actions as evidence
    blind: LatentPosterior  # without


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything that the article tells."""

    settings: Settings
    estimates: pd.DataFrame  # a row a log and method
    first: OneLog


def run_experiment(settings: Settings, *, one_more: Callable[[], None] | None = None) -> Experiment:
    """Judge the policy learned on each log in every way; keep the first log in detail."""
    world = World(
        sepsis.pomdp(settings.simulator, hidden=HIDDEN),
        LatentPolicy(sepsis.behavior_policy(settings.simulator)),
    )
    parts, kept = [], []
    for repeat in range(settings.repeats):
        one, rows = judge(settings, world, repeat)
        kept += [one] * (repeat == 0)
        parts.append(rows.assign(repeat=repeat))
        if one_more is not None:
            one_more()
    return Experiment(settings, pd.concat(parts, ignore_index=True), kept[0])


def log_seed(settings: Settings, repeat: int) -> int:
    """Seed of a log; no two logs of studies with different seeds share one."""
    return settings.seed * 1_000_003 + repeat


def _simulate(settings: Settings, policy: Floats, repeat: int) -> Episodes:
    seed = log_seed(settings, repeat)
    return sepsis.simulate(policy, settings.episodes, seed=seed, version=settings.simulator)


def judge(settings: Settings, world: World, repeat: int) -> tuple[OneLog, pd.DataFrame]:
    """Simulate a log, learn a policy on it and judge it in every way.

    Columns of the frame, a row a method: `value` and `se` over patients; `own`, the policy's value
    in the same model, and `z`, how far from it in standard errors; `brier` against what truly would
    have happened to each patient, and `base`, the score of naming its frequency for everyone;
    `true` value of the policy, and `error`.
    """
    log = _simulate(settings, world.physician.table, repeat).hide(*HIDDEN)
    reduced = fit_mdp(log, terminal=settings.terminal)
    target = policy_iteration(reduced, discount=DISCOUNT)
    everywhere = sepsis.full_policy(target)
    learned = fit_latent_behavior(log, world.model).policy
    behaviors = {IGNORED: None, LEARNED: learned, RIGHT: world.physician}
    said = {CF: counterfactual_outcomes(log, reduced, target)}
    said |= {
        method: counterfactual_outcomes(log, world.model, target, behavior=behavior)
        for method, behavior in behaviors.items()
    }
    # noise belongs to patient and step, so that the same seed treats the same patients otherwise
    replayed = _simulate(settings, everywhere, repeat)
    one = OneLog(
        log=log,
        target=target,
        truth=replayed.outcome.astype(np.int64),
        said=said,
        known=latent_posterior(log, world.model, behavior=world.physician),
        blind=latent_posterior(log, world.model),
    )
    own = pomdp_value(world.model, target, horizon=HORIZON)
    values = {CF: policy_value(reduced, target, horizon=HORIZON)}
    values |= dict.fromkeys((IGNORED, LEARNED, RIGHT), own)
    true = policy_value(sepsis.model(settings.simulator), everywhere, horizon=HORIZON)
    size = len(log.outcomes) + 1
    score = brier(np.eye(size)[log.outcome], one.truth).mean()
    rows = [_row(OBSERVED, log.returns(), score=score)]
    rows.append({"method": MB, "value": values[CF]})
    for method, result in said.items():
        score = brier(result.probability, one.truth).mean()
        rows.append(_row(method, result.expected_return, own=values[method], score=score))
    rows.append({"method": TRUE, "value": true})
    frame = pd.DataFrame(rows, columns=["method", "value", "se", "own", "z", "brier"])
    frequency = np.bincount(one.truth % size, minlength=size) / len(log)
    base = 1.0 - (frequency**2).sum()
    return one, frame.assign(base=base, true=true, error=frame["value"] - true)


def _row(
    method: str, returns: Floats, *, score: float, own: float = float("nan")
) -> dict[str, float | str]:
    """Mean and standard error over patients, and how far it is from the model's own value."""
    value, se = float(returns.mean()), float(returns.std(ddof=1) / len(returns) ** 0.5)
    z = (value - own) / se if se > 0 else float("nan")
    return {"method": method, "value": value, "se": se, "own": own, "z": z, "brier": float(score)}


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """A row a method: means over logs, with the standard error and the range of the error."""
    grouped = estimates.groupby("method", sort=False)
    table = grouped[["value", "error", "z", "brier", "base"]].mean()
    table["se"] = grouped["error"].std(ddof=1) / grouped["error"].count() ** 0.5
    table["low"], table["high"] = grouped["value"].min(), grouped["value"].max()
    table["largest_z"] = grouped["z"].agg(lambda z: z.abs().max())
    table["logs"] = grouped["value"].count()
    return table.loc[list(METHODS)].reset_index()


def choose_patient(one: OneLog) -> int:
    """Choose whose story is told, by rule: the first in the log whom all of this fits; -1: no one.

    Died, after what is seen had changed at least LEAST_CHANGES times; most likely discharged under
    the policy, says the reduced model; most likely dead, says the model with the hidden state.
    """
    log = one.log
    changes = np.add.reduceat(log.state != log.next_state, log.offsets[:-1])
    fits = (
        (log.outcome == 0)
        & (changes >= LEAST_CHANGES)
        & (one.said[CF].most_likely == 1)
        & (one.said[RIGHT].most_likely == 0)
    )
    return int(fits.argmax()) if fits.any() else -1


def patients(one: OneLog) -> pd.DataFrame:
    """A row a patient: what happened, what truly would have, what each method says."""
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
    """Mean entropy of the hidden state, in bits, over patients who are still there at each step."""
    parts = []
    for series, posterior in (("known", one.known), ("ignored", one.blind)):
        episode, step = posterior.rows
        inside = step < one.log.lengths[episode]
        rows = pd.DataFrame({"step": step[inside], "bits": posterior.entropy[inside]})
        table = rows.groupby("step")["bits"].agg(["mean", "count"]).reset_index()
        parts.append(table.assign(series=series))
    return pd.concat(parts, ignore_index=True).rename(columns={"count": "patients"})


def story(one: OneLog, patient: int) -> pd.DataFrame:
    """The posterior of what is hidden of one patient, with what it was in truth.

    Columns: `evidence` (known or ignored), `variable, step, level, probability, truth`.
    """
    log = one.log
    assert log.side is not None
    rows = np.arange(log.offsets[patient], log.offsets[patient + 1])
    at = np.append(rows, len(log.state) + patient)
    first = int(log.offsets[patient]) + patient
    found = []
    for evidence, posterior in (("known", one.known), ("ignored", one.blind)):
        for variable in posterior.model.hidden_variables:
            table = posterior.marginal(variable.name)[first : first + len(at)]
            truth = log.side[variable.name].cat.codes.to_numpy()[at]
            for (step, level), probability in np.ndenumerate(table):
                found.append(
                    (
                        evidence,
                        variable.name,
                        step,
                        variable.levels[level],
                        float(probability),
                        bool(level == truth[step]),
                    )
                )
    columns = ["evidence", "variable", "step", "level", "probability", "truth"]
    return pd.DataFrame(found, columns=columns)

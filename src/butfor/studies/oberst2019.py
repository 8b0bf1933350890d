"""The experiment of Oberst & Sontag (2019): one log in detail, and many fresh logs.

Every sampled number of the paper is computed as its caption says, with the exact one beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import sepsis
from butfor.checks import check_choice, check_whole
from butfor.evaluate.bootstrap import resample_weights
from butfor.evaluate.crossfit import CrossFitted, cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.importance import weighted
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, count_levels, project, ravel, unravel
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value, value_tables
from butfor.models.policies import TERMINALS, estimate_behavior
from butfor.models.simulate import simulate_model
from butfor.random import check_seed
from butfor.replay.draws import Draws
from butfor.replay.functions import counterfactual_outcomes, sample_counterfactuals
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay
from butfor.types import Floats

HIDDEN = ("glucose", "diabetes")
HORIZON = 20
DISCOUNT = 0.99  # of planning
TENSOR_DRAWS = 10_000
BOOTSTRAPS = 100
DRAWS = 5
ESTIMATORS = ("Observed", "WIS (train)", "WIS (held-out)", "MB", "True")
BEHAVIORS = ("estimated", "exact")
FEW_LOGS = 40  # of fewer, 2.5 % is less than one log


@dataclass(frozen=True)
class Settings:
    """What can be chosen; the defaults are the published experiment."""

    repeats: int = 100
    seed: int = 0
    simulator: str = "icml2019"
    terminal: str = "icml2019"
    behavior: str = "estimated"  # planned on a tensor of 10,000 draws a pair, or on the exact one
    episodes: int = 1000

    def __post_init__(self) -> None:
        check_whole(self.repeats, "repeats", 2, "a whole number")
        check_whole(self.episodes, "episodes", 10, "a whole number")
        check_seed(self.seed)
        check_choice(self.simulator, "simulator", sepsis.VERSIONS)
        check_choice(self.terminal, "terminal", TERMINALS)
        check_choice(self.behavior, "behavior", BEHAVIORS)

    def physician(self) -> Floats:
        """Return the policy that makes the logs, on the full state."""
        draws = TENSOR_DRAWS if self.behavior == "estimated" else None
        return sepsis.behavior_policy(self.simulator, tensor_draws=draws, seed=self.seed)


@dataclass(frozen=True, eq=False)
class Learned:
    """A log, the model learned from it, and the target planned on the model."""

    log: Episodes
    model: TabularMDP
    target: Floats
    behavior: Floats

    def wis(self, log: Episodes, behavior: Floats) -> float:
        """Weighted importance sampling of the target on a log; nan where no episode matches."""
        sample = EpisodeColumns(Replay(log, self.model, self.target, behavior=behavior))
        return float(weighted(sample.logged, np.ones((1, len(log))))[0])


@dataclass(frozen=True, eq=False)
class OneLog:
    """Figures 3 to 5: one log in detail."""

    learned: Learned
    draws: Draws  # five of each episode
    exact: Counterfactuals
    figure3: pd.DataFrame  # estimator, value, low, high: as the caption says
    figure3_exact: pd.DataFrame  # the exact counterparts
    sampled_table: pd.DataFrame  # Figure 4: most common of five draws, counts
    patient: int  # position of the patient of Figure 5; -1 if no one fits the rule
    crossed: CrossFitted  # policies learned the same way on halves of the log


def seeds(settings: Settings, repeat: int) -> dict[str, int]:
    """Seeds of the parts of one repeat; no two parts of a study share one."""
    base = (settings.seed * 1_000_003 + repeat) * 8
    names = ("train", "held-out", "model", "true", "draws", "bootstrap")
    return {name: base + place for place, name in enumerate(names)}


def learn(log: Episodes, terminal: str) -> Learned:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    target = policy_iteration(model, discount=DISCOUNT)
    return Learned(log, model, target, estimate_behavior(log, terminal=terminal))


def simulate_log(settings: Settings, seed: int, hidden: bool) -> Episodes:
    """Simulate a log of the physician's patients, with or without the hidden variables."""
    log = sepsis.simulate(
        settings.physician(), settings.episodes, seed=seed, version=settings.simulator
    )
    return log.hide(*HIDDEN) if hidden else log


def true_value(settings: Settings, target: Floats) -> float:
    """Exact value of a target in the simulator."""
    truth = sepsis.model(settings.simulator)
    return policy_value(truth, sepsis.full_policy(target), horizon=HORIZON)


def repeat_logs(
    settings: Settings, *, hidden: bool, progress: Callable[[], None] | None = None
) -> pd.DataFrame:
    """Evaluate one fresh log after the other: a row a log.

    Columns are the five of the published table, sampled as published, then exact ones, CF and the
    share of patients who died and would most likely have been discharged.
    """
    rows = []
    for repeat in range(settings.repeats):
        rows.append(_evaluate(settings, repeat, hidden))
        if progress is not None:
            progress()
    return pd.DataFrame(rows)


def _evaluate(settings: Settings, repeat: int, hidden: bool) -> dict[str, float]:
    seed = seeds(settings, repeat)
    learned = learn(simulate_log(settings, seed["train"], hidden), settings.terminal)
    held_out = simulate_log(settings, seed["held-out"], hidden)
    model, target = learned.model, learned.target
    row = {
        "Observed": learned.log.returns().mean(),
        "WIS (train)": learned.wis(learned.log, learned.behavior),
        "WIS (held-out)": learned.wis(
            held_out, estimate_behavior(held_out, terminal=settings.terminal)
        ),
        "MB": simulate_model(model, target, settings.episodes, horizon=HORIZON, seed=seed["model"])
        .returns()
        .mean(),
        "True": sepsis.simulate(
            sepsis.full_policy(target),
            settings.episodes,
            seed=seed["true"],
            version=settings.simulator,
        )
        .returns()
        .mean(),
        "MB (exact)": policy_value(model, target, horizon=HORIZON),
        "True (exact)": true_value(settings, target),
    }
    if hidden:
        exact = counterfactual_outcomes(learned.log, model, target)
        table = exact.table()
        row["CF (exact)"] = exact.expected_return.mean()
        row["would have lived"] = table.loc["died", "discharged"] / settings.episodes
    return row


def summarize(repeats: pd.DataFrame) -> pd.DataFrame:
    """Mean, range over logs and standard error of each column; undefined logs are left out.

    The range holds 95 % of the logs; of fewer than FEW_LOGS it is the least and the largest.
    """
    values = repeats.astype(float)
    tail = 0.025 if len(values) >= FEW_LOGS else 0.0
    return pd.DataFrame(
        {
            "mean": values.mean(),
            "low": values.quantile(tail),
            "high": values.quantile(1 - tail),
            "se": values.std(ddof=1) / values.count() ** 0.5,
            "logs": values.count(),
        }
    )


def run_one_log(settings: Settings) -> OneLog:
    """Run the paper's main experiment on one log: the first one, whatever it looks like."""
    seed = seeds(settings, 0)
    learned = learn(simulate_log(settings, seed["train"], hidden=True), settings.terminal)
    log, model, target = learned.log, learned.model, learned.target
    draws = sample_counterfactuals(log, model, target, draws=DRAWS, seed=seed["draws"])
    exact = counterfactual_outcomes(log, model, target)
    new = {
        "MB": simulate_model(model, target, settings.episodes, horizon=HORIZON, seed=seed["model"]),
        "True": sepsis.simulate(
            sepsis.full_policy(target),
            settings.episodes,
            seed=seed["true"],
            version=settings.simulator,
        ),
    }
    weights = resample_weights(len(log), BOOTSTRAPS, seed["bootstrap"])
    sample = EpisodeColumns(Replay(log, model, target, behavior=learned.behavior))
    figure3 = _bootstrapped(
        {
            "Obs": _means(log.returns(), weights),
            "WIS": weighted(sample.logged, _with_point(weights)),
            "MB": _means(new["MB"].returns(), weights),
            "CF": _means(draws.returns().mean(axis=1), weights),
            "True": _means(new["True"].returns(), weights),
        }
    )
    exactly = pd.DataFrame(
        {
            "estimator": ["Obs", "WIS", "MB", "CF", "True"],
            "value": [
                log.returns().mean(),
                figure3["value"].iloc[1],
                policy_value(model, target, horizon=HORIZON),
                exact.expected_return.mean(),
                true_value(settings, target),
            ],
        }
    )
    return OneLog(
        learned=learned,
        draws=draws,
        exact=exact,
        figure3=figure3,
        figure3_exact=exactly,
        sampled_table=common_outcome_table(draws),
        patient=choose_patient(exact),
        crossed=cross_fitted(
            Replay(log, model, target),
            lambda half: _pair(learn(half, settings.terminal)),
            seed=seed["bootstrap"],
        ),
    )


def _pair(learned: Learned) -> tuple[TabularMDP, Floats]:
    return learned.model, learned.target


def _with_point(weights: Floats) -> Floats:
    """The resamples, after the sample itself."""
    return np.concatenate([np.ones((1, weights.shape[1])), weights])


def _means(values: Floats, weights: Floats) -> Floats:
    return np.asarray(_with_point(weights) @ values / len(values))


def _bootstrapped(values: dict[str, Floats]) -> pd.DataFrame:
    rows = []
    for name, (point, *resampled) in values.items():
        low, high = np.nanquantile(resampled, [0.025, 0.975])
        rows.append((name, point, low, high))
    return pd.DataFrame(rows, columns=["estimator", "value", "low", "high"])


def common_outcome_table(draws: Draws) -> pd.DataFrame:
    """Count episodes by observed outcome and the most common one of their draws (Figure 4).

    Where two are equally common the earlier in the order died, discharged, none counts.
    """
    log = draws.episodes
    names = [*(outcome.name for outcome in log.outcomes), log.none_name]
    size = len(names)
    votes = np.stack([(draws.outcome % size == o).sum(axis=1) for o in range(size)], axis=1)
    counts = np.zeros((size, size), dtype=np.int64)
    np.add.at(counts, (log.outcome, votes.argmax(axis=1)), 1)
    return pd.DataFrame(
        counts,
        index=pd.Index(names, name="observed"),
        columns=pd.Index(names, name="under the target"),
    )


def choose_patient(exact: Counterfactuals) -> int:
    """Choose the patient of Figure 5 by rule: the first in the log whom all of this fits.

    Died after more than ten steps, most likely discharged under the target, with a hidden glucose
    that was abnormal at the end.
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


def discharge_when_treatment_stops(learned: Learned, settings: Settings) -> pd.DataFrame:
    """Chance of discharge when the three seen vital signs are normal and all treatment stops.

    At the next step, and within the horizon if the target goes on from there: what was learned,
    averaged over such decisions in the log, and what is true by glucose and diabetes, averaged
    over the same treatments. The learned next step counts ends as the text says, one step sooner
    than `icml2019` ends let an outcome follow.
    """
    log = learned.log
    stable = _stable_under_treatment(log.state_variables)
    states = np.flatnonzero(stable & (learned.model.counts[:, 0] > 0))
    weights = learned.model.counts[states, 0] / learned.model.counts[states, 0].sum()
    next_step = _chances(fit_mdp(log), None, states)
    later = _chances(learned.model, learned.target, states)
    rows = [("learned, whatever the glucose", weights @ next_step, weights @ later)]

    truth, policy = sepsis.model(settings.simulator), sepsis.full_policy(learned.target)
    levels = unravel(sepsis.STATES, np.arange(truth.n_states))
    reduced = project(sepsis.STATES, *(variable.name for variable in log.state_variables))
    for diabetes, who in enumerate(("without diabetes", "with diabetes")):
        for glucose, name in enumerate(sepsis.STATES[4].levels):
            mine = (levels["glucose"] == glucose) & (levels["diabetes"] == diabetes)
            full = np.array([int(np.flatnonzero(mine & (reduced == s))[0]) for s in states])
            chances = _chances(truth, None, full), _chances(truth, policy, full)
            case = f"true, glucose {name}, {who}"
            rows.append((case, weights @ chances[0], weights @ chances[1]))
    for who, rows_of in stopping_decisions(learned).items():
        full = full_states(log, rows_of)
        chances = _chances(truth, None, full), _chances(truth, policy, full)
        rows.append((f"true, where {who}", chances[0].mean(), chances[1].mean()))
    return pd.DataFrame(rows, columns=["case", "at the next step", "within 20 steps"])


def who_stops_when(learned: Learned) -> dict[str, float]:
    """Decisions with three normal vital signs under treatment: who stops it all, at what glucose.

    The number of such decisions in the log; how many stopped treatment, and the share of these at
    an abnormal glucose; the same for the target in these states.
    """
    log = learned.log
    assert log.side is not None
    abnormal = log.side["glucose"].iloc[: len(log.state)].to_numpy() != "normal"
    stable = _stable_under_treatment(log.state_variables)[log.state]
    physician, policy = stopping_decisions(learned).values()
    return {
        "decisions": int(stable.sum()),
        "abnormal": float(abnormal[stable].mean()),
        "physician": len(physician),
        "physician_abnormal": float(abnormal[physician].mean()),
        "policy": len(policy),
        "policy_abnormal": float(abnormal[policy].mean()),
    }


def stopping_decisions(learned: Learned) -> dict[str, NDArray[np.intp]]:
    """Rows of the log, three vital signs normal under treatment, where all of it (would) stop."""
    log = learned.log
    stable = _stable_under_treatment(log.state_variables)[log.state]
    return {
        "the physician stopped": np.flatnonzero(stable & (log.action == 0)),
        "the policy would stop": np.flatnonzero(stable & (learned.target[log.state, 0] == 1)),
    }


def full_states(log: Episodes, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Full states of rows of a reduced log, from its side columns."""
    assert log.side is not None
    seen = unravel(log.state_variables, log.state[rows])
    codes = [
        seen[variable.name]
        if variable.name in seen
        else log.side[variable.name].cat.codes.to_numpy()[rows]
        for variable in sepsis.STATES
    ]
    return ravel(sepsis.STATES, codes)


def _stable_under_treatment(variables: Sequence[Variable]) -> NDArray[np.bool_]:
    """States in which the three seen vital signs are normal and some treatment runs, [S]."""
    levels = unravel(variables, np.arange(count_levels(variables)))
    normal = [levels[name] == 1 for name in ("heart rate", "blood pressure", "oxygen")]
    treated = sum(levels[variable.name] for variable in sepsis.ACTIONS) > 0
    return np.all([*normal, treated], axis=0)


def _chances(model: TabularMDP, policy: Floats | None, states: NDArray[np.int64]) -> Floats:
    """Chance of discharge from each state after stopping all treatment (action 0).

    At once, or with a policy that goes on from there within the horizon.
    """
    discharged = model.n_states + 1
    after = np.zeros(model.n_states + 2)
    after[discharged] = 1.0
    if policy is not None:
        tables = value_tables(model, policy, horizon=HORIZON - 1)[1]
        after[: model.n_states] = tables[-1, :, 1]
    rows = (model.row(int(state), 0) for state in states)
    return np.array([sum(p * after[reached] for reached, p in row.items()) for row in rows])

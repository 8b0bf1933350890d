"""Which model? Models learned from the same logs, judged by what is true in the simulator.

A table with one row per state and action is compared with models that learn one distribution per
variable. Each gives the value of a policy, the outcome of each patient under it, and a plan of its
own; the simulator tells what each is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.checks import check_choice, check_whole
from butfor.log.episodes import Episodes
from butfor.log.variables import unravel
from butfor.models.classifiers import have_classifiers
from butfor.models.factored import FactoredModel
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_value, value_tables
from butfor.replay.replay import Replay
from butfor.studies.article import HIDDEN, HORIZON, LEAST_EPISODES, Advance, StudySettings
from butfor.studies.models.learned import (
    CLUSTERS,
    COUNTS,
    TABULAR,
    TRUE,
    Learned,
    learn_models,
)
from butfor.studies.scoring import IMPOSSIBLE, brier, given_to_truth
from butfor.studies.simulator import endless_model, vital_signs
from butfor.types import Floats, Integers

ALL = "all"
PARTS = (SEPSIS, WIDE) = ("sepsis", "wide")
STATES = {"full": "Nothing hidden", "hidden": "Glucose and diabetes hidden"}
ON_STATES, ON_SIGNS, ON_VARIABLES = "states", "vital signs", "variables"
OWN, TABULAR_PLAN, RULE = "own plan", "tabular plan", "fixed rule"
TARGETS = (OWN, TABULAR_PLAN, RULE)
PATIENTS = 250  # of each log who are scored one by one: the first ones, the same at every size
FOLLOWED = 25  # of them who are followed step by step, which takes longest
PLAIN = (TABULAR, CLUSTERS, COUNTS, TRUE)  # models that are asked with every noise
NEGLIGIBLE = 1e-6  # mass below which a counterfactual state continues by the model alone
FLOOR = 0.001  # lower probabilities count as this one in the log loss, which stays finite
Row = dict[str, Any]


@dataclass(frozen=True)
class ModelsSettings(StudySettings):
    """The sizes of the logs, and the size at which everything is compared."""

    repeats: int = 20
    size: tuple[int, ...] = (250, 1000, 4000, 16_000)  # episodes in each log
    reference: int = 1000
    part: str = "all"  # "sepsis", "wide" (thirty variables) or both

    def __post_init__(self) -> None:
        super().__post_init__()
        for size in self.size:
            check_whole(size, "size", LEAST_EPISODES, "a whole number")
        if list(self.size) != sorted(set(self.size)):
            raise ValueError(f"size {self.size}: give each size once, the smallest first")
        if self.reference not in self.size:
            raise ValueError(
                f"the reference {self.reference} is not among the sizes {self.size}; add it"
            )
        if check_choice(self.part, "part", (ALL, *PARTS)) == WIDE and not have_classifiers():
            raise ValueError("part 'wide' needs scikit-learn: pip install 'butfor[cluster]'")

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that are run; thirty variables need scikit-learn."""
        chosen = PARTS if self.part == ALL else (self.part,)
        return tuple(part for part in chosen if part != WIDE or have_classifiers())

    @property
    def classifier_repeats(self) -> int:
        """Number of logs from which classifiers learn, which take longest; also of wide logs."""
        return max(2, self.repeats // 4)

    @property
    def steps(self) -> int:
        """Number of times that a run reports progress."""
        each = {SEPSIS: self.repeats * len(STATES), WIDE: self.classifier_repeats}
        return sum(each[part] for part in self.parts)


@dataclass(frozen=True, eq=False)
class World:
    """The simulator, and what its logs show."""

    settings: ModelsSettings
    state: str  # "full" or "hidden"
    truth: TabularMDP  # on the full states
    endless: TabularMDP  # what an infinitely long log would teach a table
    known: Learned | None  # the true model; None if something is hidden
    rule: Floats  # [S, A] a policy that does not depend on any log

    def true_value(self, target: Floats) -> float:
        """Return the exact value of a target in the simulator."""
        return policy_value(self.truth, sepsis.full_policy(target), horizon=HORIZON)

    def endless_value(self, target: Floats) -> float:
        """Return the exact value of a target in the model of an infinitely long log."""
        return policy_value(self.endless, target, horizon=HORIZON)

    def true_outcomes(self, target: Floats, patients: int, seed: int) -> Integers:
        """Return what would truly have become of the first patients of a log, none last, [n].

        Noise belongs to patient and step: the same seed treats the same patients differently.
        """
        full = sepsis.full_policy(target)
        version = self.settings.simulator
        replayed = sepsis.simulate(full, patients, seed=seed, version=version)
        return np.asarray(replayed.outcome % (len(sepsis.OUTCOMES) + 1))


@dataclass(frozen=True, eq=False)
class Experiment:
    """What each model says on each log, and what is true."""

    settings: ModelsSettings
    values: pd.DataFrame  # state, size, repeat, model, target, mb, true, endless
    scores: pd.DataFrame  # state, size, repeat, model, noise, target, brier, base, cf, true, …
    physicians: float  # true value of the physicians' policy
    optimum: float  # of the best plan on the true model


def fixed_rule(state: str) -> Floats:
    """Return a policy by plain rules, on the states that a log shows, [S, A].

    Antibiotics while heart rate or blood pressure is high, ventilation while the oxygen is low,
    vasopressors while the blood pressure is low.
    """
    shown = [v for v in sepsis.STATES if state == "full" or v.name not in HIDDEN]
    count = int(np.prod([len(variable.levels) for variable in shown]))
    codes = unravel(shown, np.arange(count))
    level = {v.name: np.array(v.levels, dtype=object)[codes[v.name]] for v in shown}
    given = {
        "antibiotics": (level["heart rate"] == "high") | (level["blood pressure"] == "high"),
        "ventilation": level["oxygen"] == "low",
        "vasopressors": level["blood pressure"] == "low",
    }
    action = np.zeros(count, np.int64)
    for variable in sepsis.ACTIONS:
        action = 2 * action + given[variable.name]
    return np.eye(2 ** len(sepsis.ACTIONS))[action]


def make_world(settings: ModelsSettings, state: str) -> World:
    """Return the simulator with or without the hidden variables."""
    truth = sepsis.model(settings.simulator)
    full = state == "full"
    return World(
        settings,
        state,
        truth,
        truth if full else endless_model(truth, settings.simulator),
        Learned(sepsis.factored_model(settings.simulator)) if full else None,
        fixed_rule(state),
    )


def run_experiment(settings: ModelsSettings, *, advance: Advance = lambda: None) -> Experiment:
    """Compare the models on fresh logs; `advance` is called after each log and kind of state."""
    worlds = [make_world(settings, state) for state in STATES]
    physician = sepsis.behavior_policy(settings.simulator)
    values: list[Row] = []
    scores: list[Row] = []
    for repeat in range(settings.repeats):
        seed = settings.base_seed(repeat)
        log = sepsis.simulate(physician, settings.size[-1], seed=seed, version=settings.simulator)
        for world in worlds:
            shown = log if world.state == "full" else log.hide(*HIDDEN)
            for size in settings.size:
                cell: Row = {"state": world.state, "size": size, "repeat": repeat}
                part = shown.select(np.arange(size))
                models = models_of(world, part, repeat)
                values += [cell | row for row in value_rows(world, part, models)]
                scores += [cell | row for row in score_rows(world, part, models, seed)]
            advance()
    truth, best = worlds[0].truth, worlds[0].known
    assert best is not None
    return Experiment(
        settings,
        pd.DataFrame(values),
        pd.DataFrame(scores),
        policy_value(truth, physician, horizon=HORIZON),
        policy_value(truth, best.plan, horizon=HORIZON),
    )


def models_of(world: World, log: Episodes, repeat: int) -> dict[str, Learned]:
    """Return the models that are compared on one log, by name."""
    settings = world.settings
    classifiers = len(log) <= settings.reference and repeat < settings.classifier_repeats
    known = world.known
    end = known.model.end if known and isinstance(known.model, FactoredModel) else None
    models = learn_models(log, settings.terminal, end=end, classifiers=classifiers)
    return {**models, TRUE: known} if known else models


def targets_of(world: World, models: dict[str, Learned], name: str) -> dict[str, Floats]:
    """Return the targets that a model is asked about."""
    return {OWN: models[name].plan, TABULAR_PLAN: models[TABULAR].plan, RULE: world.rule}


def value_rows(world: World, log: Episodes, models: dict[str, Learned]) -> Iterator[Row]:
    """Yield the value of each target in each model, and its true one.

    MB is the mean over the first states of the log, as in `estimate_values`.
    """
    for name, learned in models.items():
        for target, policy in targets_of(world, models, name).items():
            tables = value_tables(learned.rows, learned.asked(policy), horizon=HORIZON)[0]
            yield {
                "model": name,
                "target": target,
                "mb": float(tables[HORIZON][learned.shown(log).first_state].mean()),
                "true": world.true_value(policy),
                "endless": world.endless_value(policy),
            }


def score_rows(world: World, log: Episodes, models: dict[str, Learned], seed: int) -> Iterator[Row]:
    """Yield the scores of the predictions for single patients."""
    patients = log.select(np.arange(min(len(log), PATIENTS)))
    followed = np.arange(min(len(log), FOLLOWED))
    for name, noise, target in questions(world.settings, len(log), models):
        policy = targets_of(world, models, name)[target]
        replay = ask(patients, models[name], noise, policy)
        follows = target == RULE and name in PLAIN and len(log) == world.settings.reference
        yield {
            "model": name,
            "noise": noise,
            "target": target,
            "true": world.true_value(policy),
            **score(replay, world.true_outcomes(policy, len(patients), seed)),
            "influence": influence(replay.part(followed)) if follows else np.nan,
        }


def questions(
    settings: ModelsSettings, size: int, models: dict[str, Learned]
) -> Iterator[tuple[str, str, str]]:
    """Yield the questions about single patients of a log: model, noise and target.

    In logs of the reference size every model is asked about every target, the plain ones about
    common targets with every noise. In other logs two models are asked about the fixed rule.
    """
    for name, learned in models.items():
        usual, *others = noises_of(learned)
        if size == settings.reference:
            yield from ((name, usual, target) for target in TARGETS)
            for noise in others if name in PLAIN else ():
                yield from ((name, noise, target) for target in (TABULAR_PLAN, RULE))
        elif name in (TABULAR, COUNTS):
            yield name, usual, RULE


def noises_of(learned: Learned) -> tuple[str, ...]:
    """Return what noise may belong to in a model; the first is what is usual for it."""
    if isinstance(learned.model, FactoredModel):
        return ON_VARIABLES, ON_SIGNS, ON_STATES
    return (ON_STATES,) if learned.clustered else (ON_STATES, ON_SIGNS)


def ask(log: Episodes, learned: Learned, noise: str, target: Floats) -> Replay:
    """Return the question what would have become of the patients, with noise as chosen."""
    if noise == ON_VARIABLES:
        return Replay(log, learned.model, target)
    rows = learned.rows
    if noise == ON_SIGNS:
        rows = rows.with_labels(vital_signs(log))
    return Replay(learned.shown(log), rows, learned.asked(target))


def score(replay: Replay, truth: Integers) -> Row:
    """Score the predictions for single patients against their true counterfactuals, [n].

    `base` and `base_log` are the scores of an oracle that knows how often each outcome truly
    happens among these patients, and predicts that for everyone.
    """
    result = replay.outcomes(negligible=NEGLIGIBLE)
    given = given_to_truth(result.probability, truth.astype(np.int64))
    share = np.bincount(truth, minlength=result.probability.shape[1]) / len(truth)
    return {
        "patients": len(truth),
        "brier": float(brier(result.probability, truth.astype(np.int64)).mean()),
        "base": float(1 - (share**2).sum()),
        "log_loss": float(-np.log(np.maximum(given, FLOOR)).mean()),
        "base_log": float(-np.log(share[truth]).mean()),
        "ruled_out": float((given < IMPOSSIBLE).mean()),
        "cf": float(result.expected_return.mean()),
    }


def influence(replay: Replay) -> float:
    """Return the median over patients of the share of steps that are still about the patient."""
    return float(np.median(replay.steps().share_about))

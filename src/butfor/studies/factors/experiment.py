"""What makes off-policy evaluation fail: a factorial experiment in the sepsis simulator.

The factors are what the log hides, how long it is, how common diabetes is, and on which patients
a learned policy is judged. Every estimate is compared with the exact value of the policy it judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sparse

from butfor import sepsis
from butfor.checks import check_whole
from butfor.evaluate.crossfit import split_halves
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import ESTIMATORS
from butfor.log.episodes import Episodes
from butfor.log.variables import project
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value
from butfor.replay.replay import Replay
from butfor.studies.article import (
    DISCOUNT,
    HIDDEN,
    HORIZON,
    LEAST_EPISODES,
    Advance,
    StudySettings,
    learn,
)
from butfor.types import Floats

STATES = ("hidden", "full")  # logs without and with the hidden variables
NAMES = ("Observed", "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MAGIC", "FQE", "MB", "CF")
SAME, HALF, OTHER = "same log", "other half", "other log"
JUDGED = (SAME, HALF, OTHER)
PATIENTS = 250  # CF averages over at most this many; its model is learned from all
CELL = ["state", "episodes", "prevalence", "judged", "held_out"]
Row = dict[str, object]


@dataclass(frozen=True)
class FactorsSettings(StudySettings):
    """The levels of the factors, and the reference from which one factor at a time departs."""

    episodes: tuple[int, ...] = (250, 1000, 4000, 16_000)  # in each log
    long: tuple[int, ...] = (64_000, 256_000)  # MB only, reference prevalence, fewer repeats
    prevalences: tuple[float, ...] = (0.0, 0.2, 0.5, 1.0)  # of diabetes
    reference_episodes: int = 1000
    reference_prevalence: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (*self.episodes, *self.long)
        for size in sizes:
            check_whole(size, "episodes", LEAST_EPISODES, "a whole number")
        for prevalence in self.prevalences:
            sepsis.initial_distribution(prevalence)  # raises if it is not a probability
        for name, levels in (("episodes", sizes), ("prevalences", self.prevalences)):
            if list(levels) != sorted(set(levels)):
                raise ValueError(f"{name} {levels}: give each level once, the lowest first")
        references = (self.reference_episodes, self.reference_prevalence)
        for value, levels in zip(references, (self.episodes, self.prevalences), strict=True):
            if value not in levels:
                raise ValueError(f"the reference {value} is not among the levels {levels}; add it")

    @property
    def long_repeats(self) -> int:
        """Number of repeats of the long logs."""
        return max(2, self.repeats // 3) if self.long else 0

    @property
    def steps(self) -> int:
        """Number of times that a run reports progress."""
        return len(STATES) * (len(self.prevalences) * self.repeats + self.long_repeats)


@dataclass(frozen=True, eq=False)
class World:
    """The simulator with one prevalence of diabetes, and what its logs show."""

    settings: FactorsSettings
    prevalence: float
    state: str  # "hidden" or "full"
    truth: TabularMDP
    endless: TabularMDP  # what an infinitely long log would teach

    def true_value(self, target: Floats) -> float:
        """Return the exact value of a target in the simulator."""
        return policy_value(self.truth, sepsis.full_policy(target), horizon=HORIZON)

    def endless_value(self, target: Floats) -> float:
        """Return the exact value of a target in the model of an infinitely long log."""
        return policy_value(self.endless, target, horizon=HORIZON)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Every estimate on every log, and the policies that an infinitely long log would teach."""

    settings: FactorsSettings
    estimates: pd.DataFrame  # CELL, repeat, estimator, value, true, endless, error
    endless: pd.DataFrame  # state, prevalence, value, true, error


def make_world(settings: FactorsSettings, prevalence: float, state: str) -> World:
    """Return the simulator with one prevalence, with or without the hidden variables."""
    truth = sepsis.model(settings.simulator, prevalence=prevalence)
    endless = truth if state == "full" else endless_model(truth, settings.simulator)
    return World(settings, prevalence, state, truth, endless)


def judge(
    log: Episodes, model: TabularMDP, target: Floats, names: Sequence[str] = NAMES
) -> dict[str, float]:
    """Estimate the value of a target from a log and a model; NaN where it is undefined.

    CF averages over the first PATIENTS episodes.
    """
    sample = few = EpisodeColumns(Replay(log, model, target))
    if "CF" in names and len(log) > PATIENTS:
        few = EpisodeColumns(Replay(log.select(np.arange(PATIENTS)), model, target))
    values = {}
    for name in names:
        mine = few if name == "CF" else sample
        values[name] = float(ESTIMATORS[name](mine, np.ones((1, len(mine))))[0])
    return values


def seeds(settings: FactorsSettings, repeat: int) -> dict[str, int]:
    """Return the seeds of one repeat; prevalences share them so that they can be compared."""
    base = settings.base_seed(repeat, parts=4)
    return {"log": base, "held-out": base + 1, "halves": base + 2}


def simulate_log(world: World, episodes: int, seed: int) -> Episodes:
    """Simulate a log of the physician's patients; a shorter one is its beginning."""
    version = world.settings.simulator
    policy, prevalence = sepsis.behavior_policy(version), world.prevalence
    log = sepsis.simulate(policy, episodes, seed=seed, version=version, prevalence=prevalence)
    return log.hide(*HIDDEN) if world.state == "hidden" else log


def run_experiment(settings: FactorsSettings, *, advance: Advance = lambda: None) -> Experiment:
    """Run every cell on `repeats` pairs of fresh logs; `advance` is called after each pair."""
    rows: list[Row] = []
    endless = []
    for prevalence in settings.prevalences:
        long_repeats = settings.long_repeats * (prevalence == settings.reference_prevalence)
        for state in STATES:
            world = make_world(settings, prevalence, state)
            target = policy_iteration(world.endless, discount=DISCOUNT).table
            values = world.endless_value(target), world.true_value(target)
            endless.append((state, prevalence, *values))
            for long, repeats in ((False, settings.repeats), (True, long_repeats)):
                for repeat in range(repeats):
                    rows += _run_repeat(world, repeat, long)
                    advance()
    limit = pd.DataFrame(endless, columns=["state", "prevalence", "value", "true"])
    with_errors = (
        table.assign(error=table["value"] - table["true"]) for table in (pd.DataFrame(rows), limit)
    )
    return Experiment(settings, *with_errors)


def _run_repeat(world: World, repeat: int, long: bool) -> Iterator[Row]:
    """Judge the target learned from each beginning of one log; of a long log by MB only."""
    settings, seed = world.settings, seeds(world.settings, repeat)
    sizes, names = (settings.long, ("MB",)) if long else (settings.episodes, NAMES)
    log, held_out = (simulate_log(world, sizes[-1], seed[name]) for name in ("log", "held-out"))
    others = {}
    for size in sizes:
        other = held_out.select(np.arange(size))
        others[size] = other, fit_mdp(other, terminal=settings.terminal)
    for size in sizes:
        mine = log.select(np.arange(size))
        model, target = learn(mine, settings.terminal)
        cell: Row = {"state": world.state, "episodes": size, "prevalence": world.prevalence}
        same = cell | {"judged": SAME, "held_out": 0, "repeat": repeat}
        yield from _rows(world, same, judge(mine, model, target, names), [target])
        if not long:
            values, targets = _cross_fitted(mine, settings.terminal, seed["halves"])
            yield from _rows(world, {**same, "judged": HALF}, values, targets)
        for other_size in sizes if size == settings.reference_episodes else (size,):
            values = judge(*others[other_size], target, names)
            other_log = {**same, "judged": OTHER, "held_out": other_size}
            yield from _rows(world, other_log, values, [target])


def _rows(
    world: World, cell: Row, values: dict[str, float], targets: list[Floats]
) -> Iterator[Row]:
    """Yield one row per estimator, with the exact mean value of the judged targets."""
    true = float(np.mean([world.true_value(target) for target in targets]))
    endless = float(np.mean([world.endless_value(target) for target in targets]))
    for name, value in values.items():
        yield {**cell, "estimator": name, "value": value, "true": true, "endless": endless}


def _cross_fitted(log: Episodes, terminal: str, seed: int) -> tuple[dict[str, float], list[Floats]]:
    """Judge the target of each half on the other half: the mean of both, and both targets.

    This judges learning from half a log rather than one target. An estimate is undefined if it is
    undefined on either half.
    """
    halves = [log.select(half) for half in split_halves(log, seed)]
    learned = [learn(half, terminal) for half in halves]
    first = judge(halves[0], learned[0][0], learned[1][1])
    second = judge(halves[1], learned[1][0], learned[0][1])
    return {name: (first[name] + second[name]) / 2 for name in first}, [pi for _, pi in learned]


def endless_model(truth: TabularMDP, simulator: str) -> TabularMDP:
    """Return the model on the reduced states that the physician's log teaches in the limit.

    P(j|o, a) is the mean of P(j|s, a) over the full states s behind o, weighted by how often the
    physician visits s within the horizon and takes a. Ends are counted as `visits`; pairs that the
    physician never uses lead to death.
    """
    physician = sepsis.behavior_policy(simulator)
    states, actions = physician.shape
    transitions = sparse.csr_array(
        (truth.probability, truth.next_state, truth.start), (states * actions, states + 2)
    )
    visits, occupancy = np.zeros(states * actions), truth.initial
    for _ in range(HORIZON):
        pairs = (occupancy[:, None] * physician).reshape(-1)
        visits += pairs
        occupancy = (pairs @ transitions)[:states]
    seen = [variable.name for variable in sepsis.STATES if variable.name not in HIDDEN]
    reduced = project(sepsis.STATES, *seen).astype(np.int64)
    count = int(reduced.max()) + 1
    entries = (sparse.diags_array(visits) @ transitions).tocoo()
    row = reduced[entries.row // actions] * actions + entries.row % actions
    column = np.append(reduced, [count, count + 1])[entries.col]
    table = np.zeros((count * actions, count + 2))
    np.add.at(table, (row, column), entries.data)
    table[table.sum(axis=1) == 0, count] = 1.0
    table /= table.sum(axis=1, keepdims=True)
    return TabularMDP.from_arrays(
        sparse.csr_array(table),
        actions=actions,
        outcomes=sepsis.OUTCOMES,
        initial=np.bincount(reduced, truth.initial, minlength=count),
    )

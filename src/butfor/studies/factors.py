"""What makes off-policy evaluation fail: a factorial experiment in the sepsis simulator.

Factors: what the log hides, how long it is, how common diabetes is, and on which patients a
learned policy is judged. Every estimate stands against the exact value of the policy it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.sparse as sparse

from butfor import sepsis
from butfor.checks import check_choice, check_whole
from butfor.evaluate.crossfit import split_halves
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.table import ESTIMATORS
from butfor.log.episodes import Episodes
from butfor.log.variables import project
from butfor.models.fit import fit_mdp
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_iteration, policy_value
from butfor.models.policies import TERMINALS
from butfor.random import check_seed
from butfor.replay.replay import Replay
from butfor.types import Floats

HIDDEN = ("glucose", "diabetes")
STATES = ("hidden", "full")  # with and without the hidden variables
HORIZON = 20
DISCOUNT = 0.99  # of planning
NAMES = ("Observed", "IS", "WIS", "PDIS", "PDWIS", "DR", "WDR", "MAGIC", "FQE", "MB", "CF")
SAME, HALF, OTHER = "same log", "other half", "other log"
JUDGED = (SAME, HALF, OTHER)
PATIENTS = 250  # over whom CF averages at most; the model is that of all
CELL = ["state", "episodes", "prevalence", "judged", "held_out"]
PIECES = ("selection", "thin support", "confounding")
Row = dict[str, object]


@dataclass(frozen=True)
class Settings:
    """What can be chosen."""

    repeats: int = 10
    seed: int = 0
    simulator: str = "corrected"
    terminal: str = "visits"
    episodes: tuple[int, ...] = (250, 1000, 4000, 16_000)  # of a log, held-out ones included
    long: tuple[int, ...] = (64_000, 256_000)  # MB only, reference prevalence, a third of repeats
    prevalences: tuple[float, ...] = (0.0, 0.2, 0.5, 1.0)  # of diabetes
    reference_episodes: int = 1000
    reference_prevalence: float = 0.2

    def __post_init__(self) -> None:
        check_whole(self.repeats, "repeats", 2, "a whole number")
        check_seed(self.seed)
        check_choice(self.simulator, "simulator", sepsis.VERSIONS)
        check_choice(self.terminal, "terminal", TERMINALS)
        for size in (*self.episodes, *self.long):
            check_whole(size, "episodes", 10, "a whole number")
        for prevalence in self.prevalences:
            sepsis.initial_distribution(prevalence)  # says what is wrong with it
        sizes = (*self.episodes, *self.long)
        for name, levels in (("episodes", sizes), ("prevalences", self.prevalences)):
            if list(levels) != sorted(set(levels)):
                raise ValueError(f"{name} {levels}: give each level once, the lowest first")
        for value, levels in (
            (self.reference_episodes, self.episodes),
            (self.reference_prevalence, self.prevalences),
        ):
            if value not in levels:
                raise ValueError(f"the reference {value} is not among the levels {levels}; add it")

    @property
    def long_repeats(self) -> int:
        """Repeats of the long logs."""
        return max(2, self.repeats // 3)

    @property
    def steps(self) -> int:
        """Calls of `one_more` in a run."""
        long = self.long_repeats if self.long else 0
        return len(STATES) * (len(self.prevalences) * self.repeats + long)


@dataclass(frozen=True, eq=False)
class World:
    """The simulator with one prevalence, as a log would show it."""

    settings: Settings
    prevalence: float
    state: str  # "hidden" or "full"
    truth: TabularMDP
    endless: TabularMDP  # what a log without end would teach

    def true_value(self, target: Floats) -> float:
        """Exact value of a target in the simulator."""
        return policy_value(self.truth, sepsis.full_policy(target), horizon=HORIZON)

    def endless_value(self, target: Floats) -> float:
        """Exact value of a target in the model that a log without end would teach."""
        return policy_value(self.endless, target, horizon=HORIZON)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Every estimate of every log, and the policies that a log without end would teach."""

    settings: Settings
    estimates: pd.DataFrame  # CELL, repeat, estimator, value, true, endless, error
    endless: pd.DataFrame  # state, prevalence, value, true, error


def make_world(settings: Settings, prevalence: float, state: str) -> World:
    """Return the simulator with one prevalence, with or without the hidden variables."""
    truth = sepsis.model(settings.simulator, prevalence=prevalence)
    endless = truth if state == "full" else endless_model(truth, settings.simulator)
    return World(settings, prevalence, state, truth, endless)


def endless_model(truth: TabularMDP, simulator: str) -> TabularMDP:
    """Return the model on the reduced states that the physician's log teaches in the limit.

    P(j|o, a) is the mean of P(j|s, a) over the full states s behind o, each weighed by how often
    the physician is there within the horizon and takes a. Ends count as `visits`; pairs that the
    physician never uses lead to death.
    """
    physician = sepsis.behavior_policy(simulator)
    states, actions = physician.shape
    moves = sparse.csr_array(
        (truth.probability, truth.next_state, truth.start), (states * actions, states + 2)
    )
    visits, here = np.zeros(states * actions), truth.initial
    for _ in range(HORIZON):
        pairs = (here[:, None] * physician).reshape(-1)
        visits += pairs
        here = (pairs @ moves)[:states]
    seen = [variable.name for variable in sepsis.STATES if variable.name not in HIDDEN]
    reduced = project(sepsis.STATES, *seen).astype(np.int64)
    count = int(reduced.max()) + 1
    entries = (sparse.diags_array(visits) @ moves).tocoo()
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


def learn(log: Episodes, terminal: str) -> tuple[TabularMDP, Floats]:
    """Learn the model from a log and plan the target on it."""
    model = fit_mdp(log, terminal=terminal)
    return model, policy_iteration(model, discount=DISCOUNT)


def judge(
    log: Episodes, model: TabularMDP, target: Floats, names: Sequence[str] = NAMES
) -> dict[str, float]:
    """Estimate a target's value on a log and a model; nan where that is undefined.

    CF averages over the first PATIENTS episodes.
    """
    sample = EpisodeColumns(Replay(log, model, target))
    few = sample
    if "CF" in names and len(log) > PATIENTS:
        few = EpisodeColumns(Replay(log.select(np.arange(PATIENTS)), model, target))
    values = {}
    for name in names:
        mine = few if name == "CF" else sample
        values[name] = float(ESTIMATORS[name](mine, np.ones((1, len(mine))))[0])
    return values


def seeds(settings: Settings, repeat: int) -> dict[str, int]:
    """Seeds of the parts of one repeat; prevalences share them, so that they can be compared."""
    base = (settings.seed * 1_000_003 + repeat) * 4
    return {"log": base, "held-out": base + 1, "halves": base + 2}


def simulate_log(world: World, episodes: int, seed: int) -> Episodes:
    """Simulate a log of the physician's patients; shorter ones are its beginning."""
    version = world.settings.simulator
    log = sepsis.simulate(
        sepsis.behavior_policy(version),
        episodes,
        seed=seed,
        version=version,
        prevalence=world.prevalence,
    )
    return log.hide(*HIDDEN) if world.state == "hidden" else log


def run_experiment(settings: Settings, *, one_more: Callable[[], None] | None = None) -> Experiment:
    """Run every cell on `repeats` fresh logs; `one_more` is called after each pair of logs."""
    rows: list[Row] = []
    endless = []
    for prevalence in settings.prevalences:
        for state in STATES:
            world = make_world(settings, prevalence, state)
            endless.append(_endless_row(world))
            runs = [(repeat, _run_repeat) for repeat in range(settings.repeats)]
            if settings.long and prevalence == settings.reference_prevalence:
                runs += [(repeat, _run_long) for repeat in range(settings.long_repeats)]
            for repeat, run in runs:
                rows += run(world, repeat)
                if one_more is not None:
                    one_more()
    estimates = pd.DataFrame(rows)
    estimates["error"] = estimates["value"] - estimates["true"]
    return Experiment(settings, estimates, pd.DataFrame(endless))


def _endless_row(world: World) -> Row:
    target = policy_iteration(world.endless, discount=DISCOUNT)
    value, true = world.endless_value(target), world.true_value(target)
    return {
        "state": world.state,
        "prevalence": world.prevalence,
        "value": value,
        "true": true,
        "error": value - true,
    }


def _run_repeat(world: World, repeat: int) -> Iterator[Row]:
    """Judge the target of each beginning of one log in every way."""
    settings, seed = world.settings, seeds(world.settings, repeat)
    log, held_out = (
        simulate_log(world, settings.episodes[-1], seed[name]) for name in ("log", "held-out")
    )
    others = {}
    for size in settings.episodes:
        other = held_out.select(np.arange(size))
        others[size] = other, fit_mdp(other, terminal=settings.terminal)
    for size in settings.episodes:
        mine = log.select(np.arange(size))
        model, target = learn(mine, settings.terminal)
        place = {"episodes": size, "repeat": repeat}
        yield from _rows(world, judge(mine, model, target), [target], judged=SAME, **place)
        values, targets = _cross_fitted(mine, settings.terminal, seed["halves"])
        yield from _rows(world, values, targets, judged=HALF, **place)
        sizes = settings.episodes if size == settings.reference_episodes else (size,)
        for other_size in sizes:
            values = judge(*others[other_size], target)
            yield from _rows(world, values, [target], judged=OTHER, held_out=other_size, **place)


def _run_long(world: World, repeat: int) -> Iterator[Row]:
    """Judge the target of each long log on that log and on another one, by MB."""
    settings, seed = world.settings, seeds(world.settings, repeat)
    log, held_out = (
        simulate_log(world, settings.long[-1], seed[name]) for name in ("log", "held-out")
    )
    for size in settings.long:
        mine, other = (each.select(np.arange(size)) for each in (log, held_out))
        model, target = learn(mine, settings.terminal)
        place = {"episodes": size, "repeat": repeat}
        yield from _rows(world, judge(mine, model, target, ["MB"]), [target], judged=SAME, **place)
        values = judge(other, fit_mdp(other, terminal=settings.terminal), target, ["MB"])
        yield from _rows(world, values, [target], judged=OTHER, held_out=size, **place)


def _rows(
    world: World,
    values: dict[str, float],
    targets: list[Floats],
    *,
    episodes: int,
    judged: str,
    repeat: int,
    held_out: int = 0,
) -> Iterator[Row]:
    """One row an estimator, with the exact mean value of the judged targets."""
    cell = {
        "state": world.state,
        "episodes": episodes,
        "prevalence": world.prevalence,
        "judged": judged,
        "held_out": held_out,
        "repeat": repeat,
    }
    true = float(np.mean([world.true_value(target) for target in targets]))
    endless = float(np.mean([world.endless_value(target) for target in targets]))
    for name, value in values.items():
        yield {**cell, "estimator": name, "value": value, "true": true, "endless": endless}


def _cross_fitted(log: Episodes, terminal: str, seed: int) -> tuple[dict[str, float], list[Floats]]:
    """Judge the target of each half on the other half: the mean of both, and both targets.

    This judges learning from half a log rather than the one target. An estimate is undefined if
    it is so on either half.
    """
    halves = [log.select(half) for half in split_halves(log, seed)]
    learned = [learn(half, terminal) for half in halves]
    first = judge(halves[0], learned[0][0], learned[1][1])
    second = judge(halves[1], learned[1][0], learned[0][1])
    return {name: (first[name] + second[name]) / 2 for name in first}, [pi for _, pi in learned]


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error over repeats of each cell and estimator; undefined ones counted."""
    groups = estimates.groupby([*CELL, "estimator"], sort=False)
    table = groups[["value", "true", "error"]].mean()
    table["logs"] = groups["error"].count()
    table["undefined"] = groups["error"].size() - table["logs"]
    table["se"] = groups["error"].std(ddof=1) / table["logs"] ** 0.5
    return table.reset_index()


def decompose(estimates: pd.DataFrame) -> pd.DataFrame:
    """Split the error of MB on the log that taught the policy into three pieces that add up.

    selection: MB on that log, less MB on another log of the same size; the policy was picked
    for that log's luck. thin support: MB on the other log, less the value in the model of a log
    without end; what few episodes do to a model even without selection, above all pairs never
    seen, which count as death. confounding: that value, less the true one; what is hidden, and
    stays wrong however long the log. A row a log.
    """
    model_based = estimates[estimates["estimator"] == "MB"]
    keys = ["state", "episodes", "prevalence", "repeat"]
    same = model_based[model_based["judged"] == SAME].set_index(keys)
    other = model_based[
        (model_based["judged"] == OTHER) & (model_based["held_out"] == model_based["episodes"])
    ].set_index(keys)
    held_out = other["value"].reindex(same.index)
    pieces = pd.DataFrame(
        {
            "selection": same["value"] - held_out,
            "thin support": held_out - same["endless"],
            "confounding": same["endless"] - same["true"],
            "error": same["error"],
        }
    )
    return pieces.reset_index()


def mean_pieces(pieces: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error over repeats of each piece of each cell."""
    long = pieces.melt(
        id_vars=["state", "episodes", "prevalence", "repeat"], var_name="piece", value_name="value"
    )
    groups = long.groupby(["state", "episodes", "prevalence", "piece"], sort=False)["value"]
    table = groups.mean().to_frame("mean")
    table["se"] = groups.std(ddof=1) / groups.count() ** 0.5
    table["logs"] = groups.count()
    return table.reset_index()


# the factors that are changed one at a time, and the column that holds each
FACTORS = {
    "State in the log": "state",
    "Patients in the log": "episodes",
    "Prevalence of diabetes": "prevalence",
    "Judged on": "judged",
    "Patients in the other log": "held_out",
}


def reference_cell(settings: Settings) -> Row:
    """The paper's setting: hidden state, judged on the log that taught the policy."""
    return {
        "state": "hidden",
        "episodes": settings.reference_episodes,
        "prevalence": settings.reference_prevalence,
        "judged": SAME,
        "held_out": 0,
    }


def one_at_a_time(settings: Settings) -> dict[str, list[Row]]:
    """Cells in which one factor differs from the reference, by factor; its own level is one."""
    reference, size = reference_cell(settings), settings.reference_episodes
    other = {**reference, "judged": OTHER}
    return {
        "State in the log": [{**reference, "state": state} for state in STATES],
        "Patients in the log": [{**reference, "episodes": n} for n in settings.episodes],
        "Prevalence of diabetes": [{**reference, "prevalence": p} for p in settings.prevalences],
        "Judged on": [reference, {**reference, "judged": HALF}, {**other, "held_out": size}],
        "Patients in the other log": [{**other, "held_out": n} for n in settings.episodes],
    }


def in_cell(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Rows of one cell."""
    keep = np.all([estimates[name] == level for name, level in cell.items()], axis=0)
    return estimates[keep]


def changes(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """How each estimator's error changes when one factor leaves its reference level.

    Mean and standard error of the difference, log by log: the same patients in both cells.
    """
    settings, rows = experiment.settings, []
    for factor, cells in one_at_a_time(settings).items():
        start = reference_cell(settings)
        if start not in cells:
            start = {**cells[0], "held_out": settings.reference_episodes}
        before = _errors_by_repeat(experiment.estimates, start)
        for cell in cells:
            if cell == start:
                continue
            gap = _errors_by_repeat(experiment.estimates, cell) - before
            for name in names:
                known = gap[name].dropna()
                rows.append(
                    {
                        "factor": factor,
                        "level": cell[FACTORS[factor]],
                        "estimator": name,
                        "change": known.mean(),
                        "se": known.std(ddof=1) / len(known) ** 0.5 if len(known) else np.nan,
                        "logs": len(known),
                    }
                )
    return pd.DataFrame(rows)


def _errors_by_repeat(estimates: pd.DataFrame, cell: Row) -> pd.DataFrame:
    """Errors in one cell: a row a repeat, a column an estimator."""
    return in_cell(estimates, cell).pivot_table(
        index="repeat", columns="estimator", values="error", dropna=False
    )


def main_effects(experiment: Experiment, names: Sequence[str]) -> pd.DataFrame:
    """Mean error at each level of a factor over all levels of two others, by place of judgement.

    The other log is as long as the first. Undefined errors are left out. The standard error is
    that over repeats of the mean over cells, which share their patients.
    """
    settings, table = experiment.settings, experiment.estimates
    crossed = table["episodes"].isin(settings.episodes) & table["estimator"].isin(names)
    crossed &= (table["held_out"] == 0) | (table["held_out"] == table["episodes"])
    rows = []
    for factor in ("State in the log", "Patients in the log", "Prevalence of diabetes"):
        by = [FACTORS[factor], "judged", "estimator"]
        means = table[crossed].groupby(["repeat", *by], sort=False)["error"].mean()
        for (level, judged, name), values in means.groupby(level=by, sort=False):
            se = values.std(ddof=1) / values.count() ** 0.5
            rows.append((factor, level, judged, name, values.mean(), se, values.count()))
    columns = ["factor", "level", "judged", "estimator", "mean", "se", "logs"]
    return pd.DataFrame(rows, columns=columns)

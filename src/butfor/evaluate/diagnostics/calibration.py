"""Calibration: predictions learned from one half of a log, compared with the other half."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_horizon
from butfor.evaluate.crossfit import Learn, Learned
from butfor.evaluate.diagnostics.halves import Half, Halves
from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_most
from butfor.evaluate.wording import percent
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome
from butfor.models.behavior import fit_behavior
from butfor.models.factored import FactoredModel, tabular
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.planning import value_tables
from butfor.models.policies import action_counts, estimate_behavior
from butfor.models.step_factored import Starts, model_walk
from butfor.random import episode_keys
from butfor.replay.engine import check_factored
from butfor.replay.outcomes import DRAWS
from butfor.types import Floats

GROUPS = 10  # of decisions, by predicted probability: deciles
COLUMNS = ["group", "decisions", "episodes", "predicted", "observed", "low", "high", "chance"]
# Largest gaps beyond chance, as probabilities: the margin of error of a share of 400 episodes, and
# twice that; for a rare (or nearly certain) outcome a quarter and half of its rate, if less.
CALIBRATION = (0.05, 0.10)
CALIBRATION_OF_RATE = (0.25, 0.50)


def calibration_table(
    episodes: Episodes,
    model: Learned,
    *,
    horizon: int | None = None,
    learn: Learn | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare predicted with observed shares of the bad outcome on held-out data, by decile.

    For each half of the log, a model of the other half predicts, at every logged decision, the
    probability of the bad outcome up to the horizon under the behavior policy of that other half.
    Bad outcomes are those marked as bad, or else the one of lowest reward. Decisions in states that
    the other half never visits are left out, and so are episodes that stop before the horizon
    without an outcome. Where states cannot be enumerated, only the first decision of each episode
    counts, and probabilities are shares of 200 draws.

    Parameters
    ----------
    model
        Determines how ends are counted. A model without counts was not learned from a log; it
        makes the predictions itself.
    learn : optional
        The function that made model and target from the log; by default that of its kind.
    seed
        For the random halves.

    Returns
    -------
    DataFrame
        group (numbered from 1, by prediction), decisions, episodes, predicted, observed; low and
        high, between which the observed share lies with about 95% probability if the predictions
        are right, and chance, the gap to expect in that case. An episode's outcome is one draw,
        however many of its decisions are in a group.
    """
    steps = episodes.horizon if horizon is None else check_horizon(horizon)
    return _by_group(_predict(Halves(episodes, model, learn, seed), steps))


def check_calibration(halves: Halves, horizon: int) -> Row:
    """Check the mean gap between predicted and observed shares, minus that expected by chance."""
    held = _predict(halves, horizon)
    if held.problem:
        return untold_row(held.problem)
    return calibration_row(
        _by_group(held),
        bad_name(halves.episodes.outcomes),
        rate=float(held.happened.mean()),
        decisions=held.decisions,
        judged=len(held.predicted),
        given=halves.given,
    )


def untold_row(problem: str) -> Row:
    """Return the row for a calibration that could not be assessed, and why."""
    sentence = f"The model's calibration could not be assessed: {problem}."
    return "calibration", float("nan"), UNKNOWN, sentence


def calibration_row(
    table: pd.DataFrame, bad: str, *, rate: float, decisions: int, judged: int, given: bool
) -> Row:
    """Return the row that follows from a calibration table.

    Parameters
    ----------
    bad
        The name of the bad outcome.
    rate
        Share of the decisions in the table that were followed by it.
    decisions, judged
        Number of decisions in the log, and in the table.
    given
        Whether the model was not learned from the log.
    """
    weight = (table["decisions"] / table["decisions"].sum()).to_numpy()
    gap = float(weight @ np.abs((table["predicted"] - table["observed"]).to_numpy()))
    chance = float(weight @ table["chance"].to_numpy())
    rarer = min(rate, 1 - rate)
    green, amber = (
        min(points, share * rarer) if rarer > 0 else points
        for points, share in zip(CALIBRATION, CALIBRATION_OF_RATE, strict=True)
    )
    light = at_most(gap - chance, (green, amber))
    learned = "" if given else ", learned from one half of the log,"
    sentences = [
        f'The model{learned} predicts "{bad}" in {"the other half" if learned else "the log"}'
        f" to within {100 * gap:.1f} percentage points, on average over {len(table)} "
        f"group{'s' if len(table) > 1 else ''} of decisions (chance alone: about "
        f'{100 * chance:.1f}). "{bad}" followed {percent(rate)} of the decisions.'
    ]
    if light != "red" and (chance > green or rarer == 0):
        light = "amber"  # a good model and a poor one would look alike
        sentences.append("There are too few data to tell a good model from a poor one.")
    left_out = 1 - judged / decisions
    if left_out > 0:
        sentences.append(
            f"{percent(left_out).capitalize()} of the decisions are left out: their state does not "
            "occur in the other half, or the log does not show their outcome."
        )
    sentences.append("This check covers only actions that were taken, not those of the policy.")
    return "calibration", gap, light, " ".join(sentences)


@dataclass(frozen=True)
class _HeldOut:
    """Predictions for M logged decisions by a model of the other half, and what followed."""

    predicted: Floats  # [M] probability of the bad outcome
    happened: NDArray[np.bool_]  # [M]
    episode: NDArray[np.int64]  # [M]
    decisions: int  # in the log
    problem: str  # why there are no predictions, or ""


def _predict(halves: Halves, horizon: int) -> _HeldOut:
    log = halves.episodes.truncate(horizon)
    predicted = np.full(len(log.state), np.nan)
    of_row = np.repeat(np.arange(len(log)), log.lengths)
    bad = bad_outcomes(log.outcomes)
    problem = ""
    if not log.outcomes:
        problem = "the log names no outcomes"
    elif halves.problem:
        problem = halves.problem
    else:
        known = (log.outcome >= 0) | (log.lengths == horizon)
        for half in halves.parts:
            if isinstance(half.model, FactoredModel) and not half.model.enumerable:
                begins = half.judged[known[half.judged]]
                chances = drawn_chances(half, log.select(begins), horizon, bad, halves.seed)
                predicted[log.offsets[begins]] = chances
                continue
            other = tabular(half.model)
            practice = estimate_behavior(half.learned_from, terminal=other.terminal)
            table = bad_chances(other, practice, horizon, bad)
            mine = np.zeros(len(log), dtype=bool)
            mine[half.judged] = known[half.judged]
            visited = action_counts(half.learned_from).sum(axis=1) > 0
            rows = mine[of_row] & visited[log.state]
            predicted[rows] = table[horizon - log.time[rows], log.state[rows]]
        if np.isnan(predicted).all():
            problem = "the other half of the log allows no prediction for any decision"
    rows = np.isfinite(predicted)
    first_only = not getattr(halves.model, "enumerable", True)
    happened = np.asarray(np.append(bad, False))[log.outcome[of_row]]
    return _HeldOut(
        predicted=predicted[rows],
        happened=happened[rows],
        episode=of_row[rows],
        decisions=len(log) if first_only else len(log.state),
        problem=problem,
    )


def bad_outcomes(outcomes: Sequence[Outcome]) -> NDArray[np.bool_]:
    """Return which outcomes are bad: those marked as bad, or else the one of lowest reward, [O]."""
    marked = np.array([outcome.bad for outcome in outcomes], dtype=bool)
    if marked.any() or not len(marked):
        return marked
    reward = np.array([outcome.reward for outcome in outcomes])
    return np.arange(len(reward)) == reward.argmin()


def bad_name(outcomes: Sequence[Outcome]) -> str:
    """Return the names of the bad outcomes, joined by "or"."""
    bad = bad_outcomes(outcomes)
    return " or ".join(o.name for o, worst in zip(outcomes, bad, strict=True) if worst)


def bad_chances(
    model: TabularMDP, practice: Floats, horizon: int, bad: NDArray[np.bool_]
) -> Floats:
    """Probability of a bad outcome by steps left and state, under a policy, [T + 1, S]."""
    tables = value_tables(model, practice, horizon=horizon)[1]
    return np.asarray(tables[:, :, :-1][:, :, bad].sum(axis=2))


def drawn_chances(
    half: Half, log: Episodes, horizon: int, bad: NDArray[np.bool_], seed: int
) -> Floats:
    """Probability of a bad outcome from the first decision of each episode on, by draws, [n].

    Under the behavior that the other half of the log shows.
    """
    walk = model_walk(check_factored(half.model), fit_behavior(half.learned_from))
    starts = Starts.unlogged(
        log.codes(log.first_state),
        np.full(len(log), horizon),
        episode_keys(seed, log.id, "calibration"),
    )
    end, _ = walk.returns(starts, DRAWS, 1.0)
    return np.asarray(np.append(bad, False)[end].mean(axis=1))


def _by_group(held: _HeldOut) -> pd.DataFrame:
    if len(held.predicted) == 0:
        return pd.DataFrame(columns=COLUMNS)
    cuts = np.unique(np.quantile(held.predicted, np.arange(1, GROUPS) / GROUPS))
    return table_of_sums(group_sums(held.predicted, held.happened, held.episode, cuts))


def group_sums(
    predicted: Floats, happened: NDArray[np.bool_], episode: NDArray[np.int64], cuts: Floats
) -> Floats:
    """Sum decisions by the group of their prediction, [groups, 5]: see `group_rows`."""
    group, rows = group_rows(predicted, happened, episode, cuts)
    return np.stack([total_by(group, row, len(cuts) + 1) for row in rows.T], axis=1)


def group_rows(
    predicted: Floats, happened: NDArray[np.bool_], episode: NDArray[np.int64], cuts: Floats
) -> tuple[NDArray[np.int64], Floats]:
    """Return the group of each pair of episode and group, [m], and its terms of the sums, [m, 5].

    The columns are decisions, episodes, predictions, bad outcomes that followed, and the variance
    of the latter if the predictions are right.
    """
    group = np.searchsorted(cuts, predicted, side="right")
    groups = len(cuts) + 1
    pair, place, count = np.unique(
        episode * groups + group, return_inverse=True, return_counts=True
    )
    total = total_by(place, predicted, len(pair))
    bad = total_by(place, happened.astype(np.float64), len(pair))
    variance = np.maximum(total * (count - total), 0.0)
    return pair % groups, np.stack([count, np.ones(len(pair)), total, bad, variance], axis=1)


def table_of_sums(sums: Floats) -> pd.DataFrame:
    """Return the calibration table computed from `group_sums`; empty groups are left out."""
    rows = []
    for number, row in enumerate(sums[sums[:, 0] > 0], start=1):
        decisions, episodes, total, happened, variance = row.tolist()
        mean, error = total / decisions, math.sqrt(variance) / decisions
        low, high = np.clip([mean - 1.96 * error, mean + 1.96 * error], 0.0, 1.0)
        observed = happened / decisions
        chance = np.sqrt(2 / np.pi) * error  # mean absolute value of a normal variable
        rows.append((number, int(decisions), int(episodes), mean, observed, low, high, chance))
    return pd.DataFrame(rows, columns=COLUMNS)

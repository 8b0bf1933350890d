"""RowPolicy: a policy on more than the state, known row by row of a log."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from butfor.log.episodes import Episodes
from butfor.models.behavior import FactoredBehavior, fit_behavior
from butfor.printed import Printed
from butfor.types import Floats


@dataclass(frozen=True, eq=False, repr=False)
class RowPolicy(Printed):
    """A target that decides by more than the state: what it does is known in each row of a log.

    Importance weights use each row's own probabilities (`Episodes.target_probability`). A model
    knows states only, so counterfactuals and values in the model follow the average in each state.
    Where states cannot be enumerated, they follow what was learned of the rows as a function of
    level codes: a model reaches states that are not in the log.
    """

    table: Floats  # [S, A] the average
    learned: FactoredBehavior | None = None  # of level codes, of a wide log


def row_policy(episodes: Episodes) -> RowPolicy:
    """Return the policy that a log carries as `target_probability`, averaged over each state.

    States in which nothing was decided get a uniform row. `lost_by_averaging` says how much the
    average differs from the policy. The policy of a wide log, which must be deterministic, is
    learned from its rows as `fit_behavior` learns the behavior.
    """
    rows = check_rows(episodes)
    if episodes.combinations is None:
        return RowPolicy(average_by_state(rows, episodes))
    if (rows.max(axis=1) < 1).any():
        row = int((rows.max(axis=1) < 1).argmax())
        raise ValueError(
            f"row {row} ({episodes.place(row)}): the policy is not certain of its action; a log of "
            "this many states needs target_action, from whose rows the policy is learned, or a "
            "function of level codes"
        )
    learned = fit_behavior(replace(episodes, action=rows.argmax(axis=1).astype(np.int32)))
    return RowPolicy(learned(np.asarray(episodes.combinations)), learned)


def average_by_state(rows: Floats, episodes: Episodes) -> Floats:
    """Average rows [N, A] over those of each state, [S, A]; uniform where there are none."""
    states = episodes.n_states
    columns = [np.bincount(episodes.state, one, minlength=states) for one in rows.T]
    return divide_sums(np.stack(columns, axis=1), np.bincount(episodes.state, minlength=states))


def divide_sums(sums: Floats, visits: NDArray[np.int64]) -> Floats:
    """Divide sums of rows [S, A] by the number of visits to each state; uniform where none is."""
    average = sums / np.maximum(visits, 1)[:, None]
    average[visits == 0] = 1 / sums.shape[1]
    return np.asarray(average / average.sum(axis=1, keepdims=True))


def lost_by_averaging(episodes: Episodes, rows: Floats, table: Floats) -> float:
    """Mean total variation between the rows [N, A] of a policy and a table [S, A] of it.

    It is the share of the logged decisions in which the average does something else.
    """
    return float(compare_rows(episodes, rows, table)[:, 0].mean())


def compare_rows(episodes: Episodes, rows: Floats, table: Floats) -> Floats:
    """Compare the rows [N, A] of a policy with a table [S, A] of it, [N, 3].

    Columns: total variation, and the probability of the likeliest action in the table and the row.
    """
    known = table[episodes.state]
    apart = np.abs(rows - known).sum(axis=1) / 2
    return np.stack([apart, known.max(axis=1), rows.max(axis=1)], axis=1)


def describe_loss(means: Floats, how: str = "Averaged over the rows of each state") -> str:
    """Say how much of a policy is lost, by the means of `compare_rows`; empty if nothing is."""
    lost, top, before = means.tolist()
    if lost < 1e-9:
        return ""
    return (
        f"The policy depends on more than the state. {how}, it does something else in "
        f"{100 * lost:.1f} % of the logged decisions: its likeliest action has the mean "
        f"probability {top:.2f} instead of {before:.2f}."
    )


def check_rows(episodes: Episodes) -> Floats:
    """Return what the target does in each row of the log, [N, A]; refuse a log without it."""
    if episodes.target_probability is None:
        raise ValueError(
            "the log does not say what the policy does in each row; name target_action or "
            "target_probability in [columns] of the study file, or use with_target_probability"
        )
    return episodes.target_probability

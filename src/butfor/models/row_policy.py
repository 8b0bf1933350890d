"""RowPolicy: a policy on more than the state, known row by row of a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from butfor.log.episodes import Episodes
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class RowPolicy:
    """A target that decides by more than the state: what it does is known in each row of a log.

    Importance weights use each row's own probabilities (`Episodes.target_probability`). A model
    knows states only, so counterfactuals and values in the model follow the average in each state.
    """

    table: Floats  # [S, A] the average


def row_policy(episodes: Episodes) -> RowPolicy:
    """Return the policy that a log carries as `target_probability`, averaged over each state.

    States in which nothing was decided get a uniform row. `lost_by_averaging` says how much the
    average differs from the policy.
    """
    rows = check_rows(episodes)
    if episodes.combinations is not None:
        raise ValueError(
            "a policy known row by row needs states that can be enumerated: counterfactuals follow "
            "its average in each state; use fewer variables or levels, or give a function of level "
            "codes"
        )
    return RowPolicy(average_by_state(rows, episodes))


def average_by_state(rows: Floats, episodes: Episodes) -> Floats:
    """Average rows [N, A] over those of each state, [S, A]; uniform where there are none."""
    states = episodes.n_states
    visits = np.bincount(episodes.state, minlength=states)
    columns = [np.bincount(episodes.state, one, minlength=states) for one in rows.T]
    average = np.stack(columns, axis=1) / np.maximum(visits, 1)[:, None]
    average[visits == 0] = 1 / episodes.n_actions
    return average / average.sum(axis=1, keepdims=True)


def lost_by_averaging(episodes: Episodes, rows: Floats, table: Floats) -> float:
    """Mean total variation between the rows [N, A] of a policy and a table [S, A] of it.

    It is the share of the logged decisions in which the average does something else.
    """
    return float(np.abs(rows - table[episodes.state]).sum(axis=1).mean() / 2)


def describe_loss(episodes: Episodes, rows: Floats, table: Floats) -> str:
    """Say how much of a policy is lost where it is averaged over states; empty if nothing is."""
    lost = lost_by_averaging(episodes, rows, table)
    if lost < 1e-9:
        return ""
    top, before = table[episodes.state].max(axis=1).mean(), rows.max(axis=1).mean()
    return (
        "The policy depends on more than the state. Averaged over the rows of each state, it does "
        f"something else in {100 * lost:.1f} % of the logged decisions: its likeliest action has "
        f"the mean probability {top:.2f} instead of {before:.2f}."
    )


def check_rows(episodes: Episodes) -> Floats:
    """Return what the target does in each row of the log, [N, A]; refuse a log without it."""
    if episodes.target_probability is None:
        raise ValueError(
            "the log does not say what the policy does in each row; name target_action or "
            "target_probability in [columns] of the study file, or use with_target_probability"
        )
    return episodes.target_probability

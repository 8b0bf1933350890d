"""Overlap: how often the actions of the target were taken in the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_policy
from butfor.evaluate.diagnostics.lights import Row, at_least, worst_light
from butfor.evaluate.wording import percent
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, describe_action, unravel
from butfor.models.policies import action_counts
from butfor.types import Floats

USUAL = 0.01  # least probability of what is done now and then in similar states
RARE = 10  # with fewer cases the standard error of a probability can exceed .16
OVERLAP = (0.95, 0.80)  # at least: one choice in twenty, one in five, without precedent
# At least: one choice in five, half of them, with fewer than ten. More is allowed than without
# precedent, because estimates average over states, and factored models learn from similar ones.
OFTEN = (0.80, 0.50)


def overlap_by_state(episodes: Episodes, target: ArrayLike) -> pd.DataFrame:
    """Compute, for each visited state, how often the target's action was taken there.

    Returns
    -------
    DataFrame
        state, a column `state.<name>` for each variable, visits, policy (its likeliest action in
        words), taken (share of the visits with the target's action, averaged over its choices),
        precedent (probability that the target chooses an action taken there at least once).
    """
    policy = check_policy(target, episodes.n_states, episodes.n_actions, "target")
    variables = episodes.state_variables, episodes.action_variables
    if episodes.combinations is not None:
        raise ValueError(
            "overlap by state: the log has so many variables that hardly a state occurs twice; "
            "hide() most of them first"
        )
    return overlap_table(action_counts(episodes), policy, *variables)


def overlap_table(
    counts: NDArray[np.int64],
    policy: Floats,
    state_variables: Sequence[Variable],
    action_variables: Sequence[Variable],
) -> pd.DataFrame:
    """Return the table of `overlap_by_state` from logged decisions by state and action, [S, A]."""
    visits = counts.sum(axis=1)
    state = np.flatnonzero(visits)
    codes = unravel(state_variables, state)
    labels = {
        f"state.{variable.name}": pd.Categorical.from_codes(
            codes[variable.name], list(variable.levels), ordered=True
        )
        for variable in state_variables
    }
    words = [describe_action(action_variables, a) for a in range(policy.shape[1])]
    taken = (policy * counts).sum(axis=1) / np.maximum(visits, 1)
    precedent = _chosen(counts > 0, policy)
    return pd.DataFrame(
        {
            "state": state,
            **labels,
            "visits": visits[state],
            "policy": [words[action] for action in policy[state].argmax(axis=1)],
            "taken": taken[state],
            "precedent": precedent[state],
        }
    )


def overlap_row(counts: NDArray[np.int64], policy: Floats) -> Row:
    """Check the share of the target's choices that were made often, from decisions [S, A]."""
    visits = counts.sum(axis=1)
    met = visits > 0
    share = visits[met] / visits.sum()
    once, ten = (_chosen(counts >= least, policy)[met] for least in (1, RARE))
    precedent, often, without = share @ once, share @ ten, int((once < 1).sum())
    light = worst_light([at_least(precedent, OVERLAP), at_least(often, OFTEN)])
    what = "what the policy would do in the logged states was done there"
    sentence = f"{percent(often).capitalize()} of {what} at least {RARE} times, "
    if without:
        sentence += (
            f"{percent(precedent)} at least once; in {without} of {int(met.sum())} visited states "
            "it might do something that was never done there."
        )
    elif (ten < 1).any():
        sentence += "and all of it at least once."
    else:
        sentence = f"All of {what} at least {RARE} times."
    return "overlap", float(often), light, sentence


def usual_row(behavior: Floats, target: Floats) -> Row:
    """Check the share of the target's choices that are usual in similar states.

    Both are distributions of actions at the logged decisions, [N, A]; the behavior is estimated
    from similar states, where hardly a state occurs twice.
    """
    value = float((target * (behavior >= USUAL)).sum() / len(target))
    sentence = (
        f"{percent(value).capitalize()} of what the policy would do in the logged states is done "
        f"in similar states at least once in {1 / USUAL:.0f} times, as estimated from the "
        "variables on which decisions depend most."
    )
    return "overlap", value, at_least(value, OVERLAP), sentence


def _chosen(actions: NDArray[np.bool_], policy: Floats) -> Floats:
    """Probability that the policy chooses one of some actions in each state, [S]."""
    return 1.0 - (policy * ~actions).sum(axis=1)

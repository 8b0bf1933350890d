"""Which episodes an expert should read, and why, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from butfor.counterfactual import Counterfactuals
from butfor.episodes import Episodes
from butfor.variables import Floats, Variable, unravel
from butfor.words import percent


def rank_flags(result: Counterfactuals, count: int) -> NDArray[np.int64]:
    """Rank of each flagged episode from 1 on, 0 for the others, [n].

    Flagged are the first `count` by absolute difference, in either direction, among episodes whose
    most likely outcome differs from the observed one; the earlier episode first where they tie.
    """
    differs = np.flatnonzero(result.most_likely != result.episodes.outcome)
    # differences equal up to rounding are ties
    size = np.round(np.abs(result.difference[differs]), 9)
    order = differs[np.argsort(-size, kind="stable")][:count]
    rank = np.zeros(len(result.episodes), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def first_changes(log: Episodes, target: Floats) -> NDArray[np.int64]:
    """First step of each episode at which the target would most likely do something else, [n].

    Counted from 0; -1 where it never would.
    """
    differs = target.argmax(axis=1)[log.state] != log.action
    step = np.where(differs, log.time, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(step, log.offsets[:-1])
    return np.where(first == np.iinfo(np.int64).max, -1, first)


def describe_flag(
    result: Counterfactuals,
    target: Floats,
    position: int,
    contribution: Floats,
    unsupported: float,
) -> str:
    """Say in plain words why an episode is flagged.

    `contribution` holds those of the episode's own steps; `unsupported` is the probability that its
    path under the target uses a state and action never seen together.
    """
    log = result.episodes
    names = result.outcome_names
    length = int(log.lengths[position])
    happened = names[log.outcome[position]]
    order = np.argsort(-result.probability[position], kind="stable")
    chances = ", ".join(
        f"{names[outcome]} {percent(result.probability[position, outcome])}" for outcome in order
    )
    sentences = [
        f"What happened: {happened} after {length} step{'s' if length > 1 else ''}.",
        f"The model says, under the policy: {chances}.",
    ]
    first = int(first_changes(log.select([position]), target)[0])
    if first >= 0:
        row = int(log.offsets[position]) + first
        policy, given = int(target[log.state[row]].argmax()), int(log.action[row])
        sentences.append(
            f"First difference at step {first}: the policy would give "
            f"{describe_action(log.action_variables, policy)}; given was "
            f"{describe_action(log.action_variables, given)}."
        )
    heaviest = int(np.abs(contribution).argmax())
    sentences.append(
        f"Step {heaviest} matters most: {contribution[heaviest]:+.2f} of "
        f"{result.difference[position]:+.2f}."
    )
    if unsupported > 0:
        sentences.append(
            f"{percent(unsupported)} of its path under the policy goes through states and "
            "treatments never seen together."
        )
    return " ".join(sentences)


def describe_action(variables: Sequence[Variable], action: int) -> str:
    """Name what an action gives: switches that are on, or the level of each variable."""
    codes = unravel(variables, np.array([action]))
    levels = [(v.name, v.levels[int(codes[v.name][0])]) for v in variables]
    if all(tuple(variable.levels) == ("off", "on") for variable in variables):
        return " and ".join(name for name, level in levels if level == "on") or "nothing"
    if len(levels) == 1:
        return f"{levels[0][0]} {levels[0][1]}"
    return ", ".join(f"{name} {level}" for name, level in levels)

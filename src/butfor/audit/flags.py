"""Flags: why an expert should read an episode, in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.wording import digits_for, percent
from butfor.log.episodes import Episodes
from butfor.log.variables import describe_action
from butfor.replay.bounds import ROUNDING, Bounds
from butfor.replay.replay import Replay
from butfor.replay.steps import THIN
from butfor.types import Floats


def first_changes(log: Episodes, kept: Floats) -> NDArray[np.int64]:
    """First step of each episode at which the target would probably act differently, [n].

    `kept` [N] is what `Replay.repeats` returns; it must be below one half. Steps are counted from
    0; -1 if there is no such step.
    """
    never = np.iinfo(np.int64).max
    first = np.minimum.reduceat(np.where(kept < 0.5, log.time, never), log.offsets[:-1])
    return np.where(first == never, -1, first)


def heaviest_step(contribution: Floats, weight: Floats) -> int:
    """Step with the largest |V_t(s_t) - r_t - d V_{t+1}(s_{t+1})|, d its discount.

    `contribution` [T] is the part of `Replay.contributions` of an episode, each discounted to the
    first step by `weight` [T].
    """
    return int(np.abs(contribution / np.where(weight > 0, weight, 1.0)).argmax())


def describe_flag(
    replay: Replay,
    position: int,
    *,
    contribution: Floats,
    survival: str,
) -> str:
    """Explain why an episode is flagged; steps are counted from 0.

    `contribution` [T] is the part of `Replay.contributions` that belongs to the episode, `survival`
    what its bounds say, if there are any (`describe_survival`).
    """
    result, walked = replay.outcomes(), replay.steps()
    log = result.episodes
    mine = slice(*log.offsets[position : position + 2])
    actions = replay.actions()[mine]
    unsupported = float(replay.support()[position])
    one = result.episodes.select([position])
    names = result.outcome_names
    length = int(one.lengths[0])
    happened = names[one.outcome[0]]
    order = np.argsort(-result.probability[position], kind="stable")
    chances = ", ".join(
        f"{names[outcome]} {percent(result.probability[position, outcome])}" for outcome in order
    )
    sentences = [
        f"What happened: {happened} after {length} step{'s' if length > 1 else ''}.",
        f"Under the policy the model predicts: {chances}.",
    ]
    first = int(first_changes(one, replay.repeats()[mine])[0])
    if first >= 0:
        policy = int(actions[first].argmax())
        likely = float(actions[first, policy])
        sure = "" if likely > 0.999 else f", with probability {percent(likely)},"
        sentences.append(
            f"First difference, at step {first} (counted from 0): the policy would choose{sure} "
            f"{describe_action(one.action_variables, policy)} instead of "
            f"{describe_action(one.action_variables, int(one.action[first]))}."
        )
    heaviest = heaviest_step(contribution, result.discount**one.elapsed)
    part, whole = float(contribution[heaviest]), float(result.difference[position])
    digits = digits_for([part, whole])
    sentences.append(
        f"Step {heaviest} matters most: it contributes {digits.gap(part)} to the difference of "
        f"{digits.gap(whole)}."
    )
    if survival:
        sentences.append(survival)
    least, thin = float(walked.evidence_min[position]), float(walked.thin_share[position])
    cases = f"{least:.0f} similar past case{'' if least == 1 else 's'}"
    sentences.append(
        f"At its thinnest, the evidence is {cases} in this log; {percent(thin)} of the steps rest "
        f"on fewer than {THIN}."
    )
    if unsupported > 0:
        sentences.append(
            f"With probability {percent(unsupported)} the course under the policy reaches a state "
            "and action never seen together; what follows is assumed, not learned from data."
        )
    return " ".join(sentences)


def describe_survival(bounds: Bounds, position: int) -> str:
    """Describe over which mechanisms the difference keeps its sign, if the model is right."""
    difference = bounds.expected_return[:, position] - bounds.usual_return[position]
    (low, high), (low_stable, high_stable) = difference
    digits = digits_for(difference.ravel())
    spans = f"from {digits.gap_span(low, high)}"
    survives = bounds.survives[position]
    if survives == "any":
        return (
            f"If the model is right, the difference keeps its sign whatever the mechanism: {spans}."
        )
    if survives == "stable":
        return (
            "If the model is right, the difference keeps its sign under every stable mechanism, "
            f"from {digits.gap_span(low_stable, high_stable)}, but not under all mechanisms: "
            f"{spans}."
        )
    if max(-low, high) <= ROUNDING:
        return "If the model is right, the expected return is the same whatever the mechanism."
    return (
        "The sign of the difference depends on the choice of mechanism: even if the model is "
        f"right, the difference can be anything {spans}."
    )

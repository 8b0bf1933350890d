"""What is said of one episode: its story in two sentences, and how far its numbers can be trusted.

The story names where the policy first decides differently and what the model then expects, by when.
Times come from the exact courses of the audit, evidence from its steps; nothing is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from butfor.audit.meta import CredibleSettings
from butfor.evaluate.wording import Digits, digits_for, percent, share
from butfor.log.variables import Outcome, Variable, describe_action, is_switch, unravel
from butfor.present.text import ESTIMATE, HOLDS, TREATED_ALIKE, Clock, capitalized, cases_text
from butfor.replay.steps import SPARSE, THIN
from butfor.replay.usual import MOSTLY
from butfor.types import Floats

FEW = SPARSE  # share of replays that a time or a list of outcomes may leave out
EARLY = 0.75  # share of replays that the first of two times is about
NONE = 0.005  # outcomes less likely than this are not mentioned
MOST = 4  # outcomes named with their times
FRACTIONS = (
    *((1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (1, 5), (2, 5), (3, 5), (4, 5)),
    *((1, 10), (9, 10), (1, 20)),
)
CERTAIN = 0.999
CREDIBLE = (
    "low_credible",
    "high_credible",
    "mean_credible",
    "mean_credible_weaker",
    "mean_credible_stronger",
)
SENSITIVE = 0.25  # of the width of an interval: a shift of the mean with the prior that is told
COVER = "cover how well these records determine the model, not what they leave out"


@dataclass(frozen=True)
class Decision:
    """A decision that the policy would take differently."""

    step: int
    given: int
    policy: int  # its most likely action
    chance: float  # of that action


# ---------------------------------------------------------------------------------------- the story


def tell_difference(decision: Decision | None, actions: Sequence[Variable], clock: Clock) -> str:
    """Say where the policy first decides differently, and how."""
    if decision is None:
        return TREATED_ALIKE
    sure = ""
    would = "would have"
    if decision.chance <= CERTAIN:
        would = "would probably have" if decision.chance >= 0.5 else "would most likely have"
        sure = f" (probability {percent(decision.chance)})"
    if all(is_switch(variable) for variable in actions):
        given, policy = (describe_action(actions, a) for a in (decision.given, decision.policy))
        did, done = "gave", "given"
    else:
        given, policy = _differing(actions, decision)
        did, done = "chose", "chosen"
    when = clock.at(decision.step)
    return f"At {when} the team {did} {given}; the policy {would} {done} {policy}{sure}."


def _differing(actions: Sequence[Variable], decision: Decision) -> tuple[str, str]:
    """Describe two actions by the variables in which they differ."""
    codes = unravel(actions, np.array([decision.given, decision.policy]))
    names = [v for v in actions if codes[v.name][0] != codes[v.name][1]]
    given, policy = (
        " and ".join(f"{v.name}: {v.levels[int(codes[v.name][which])]}" for v in names)
        for which in (0, 1)
    )
    return given, policy


def tell_expectation(
    chances: Sequence[tuple[str, float]],
    by_then: Mapping[str, Floats],
    clock: Clock,
    *,
    horizon: int,
    then: bool,
) -> str:
    """Say what the model expects and by when, without a full stop.

    Parameters
    ----------
    chances
        Probability of each outcome; that of none is the last.
    by_then
        Probability of each outcome up to each step, [H + 1], by name; empty if no course was kept.
    then
        Whether the policy decides differently.
    """
    none = chances[-1][0]
    ordered = sorted(chances, key=lambda pair: -pair[1])
    likely = [pair for pair in ordered if pair[1] >= FEW][:MOST] or ordered[:1]
    rest = [pair for pair in ordered if pair not in likely and pair[1] >= NONE]
    parts: list[str] = []
    for name, p in likely:
        replays = _replays(p, first=not parts)
        if name == none:
            parts.append(f"{name} at {clock.at(horizon)} in {replays}")
        elif name not in by_then:
            parts.append(f"{name} in {replays}")
        else:
            early, late = (first_step(by_then[name], part) for part in (EARLY, 1 - FEW))
            if len(likely) == 1 and early < late:
                replays = _replays(float(by_then[name][early]), first=True)
                replays += f", otherwise by {clock.at(late)}"
                late = early
            parts.append(f"{name} by {clock.at(late)} in {replays}")
    if rest and max(p for _, p in rest) < FEW:
        parts.append(f"rarely: {', '.join(name for name, _ in rest)}")
    elif rest:
        parts.append(f"otherwise one of {len(rest)} other outcomes")
    return f"The model {'then ' * then}expects: {', '.join(parts)}"


def first_step(by_then: Floats, part: float) -> int:
    """Return the first step by which this part of an outcome's probability has come."""
    return int(np.argmax(by_then >= part * by_then[-1] - 1e-12))


def fraction(p: float) -> str:
    """Return a probability as people say it: "half", "3 of 4", "about 1 of 3", "nearly all"."""
    if p >= 1 - FEW:
        return "nearly all"
    part, whole = min(FRACTIONS, key=lambda pair: abs(p - pair[0] / pair[1]))
    words = "half" if whole == 2 else f"{part} of {whole}"
    return words if abs(p - part / whole) <= 0.02 else f"about {words}"


def _replays(p: float, *, first: bool) -> str:
    words = fraction(p)
    if not first:
        return words
    return f"{words} of the replays" if words.endswith("half") else f"{words} replays"


def tell_evidence(rows: Sequence[Mapping[str, Any]], least: float) -> str:
    """Say on how many similar past cases the story rests, by the numbers of its chart.

    `rows` are those of the chart, one per step; none if no course was kept: then `least` is told,
    the smallest number over all steps.
    """
    if not rows:
        return (
            f"; this rests on {_cases(f'{least:.0f}')} at the thinnest"
            if np.isfinite(least)
            else ""
        )
    often, rare = ([r["cases"] for r in rows if (r["mass"] >= FEW) == big] for big in (True, False))
    said = f"; this rests on {_cases(_span(often))}" if often else ""
    if said and rare and not min(often) <= min(rare) <= max(rare) <= max(often):
        said += f" ({_span(rare)} where fewer than 1 of {1 / FEW:.0f} replays come)"
    return said


def _span(cases: Sequence[float]) -> str:
    low, high = cases_text(min(cases)), cases_text(max(cases))
    return low if low == high else f"{low} to {high}"


def _cases(number: str) -> str:
    return f"{number} similar past case{'s' * (number != '1')}"


# ---------------------------------------------------------------------------------- its reliability


def outcome_chances(row: pd.Series, names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the probability of each outcome under the policy; that of none is the last."""
    return [(name, float(row[column])) for name, column in zip(names, _columns(names), strict=True)]


def _columns(names: Sequence[str]) -> list[str]:
    return [*(f"p_{name}" for name in names[:-1]), "p_none"]


def caveat(row: pd.Series) -> str:
    """Return the words beside every number of a model."""
    part = capitalized(share(float(row["thin_share"])))
    words = f"{ESTIMATE} {part} of its steps rest on fewer than {THIN} similar past cases."
    if recorded := recorded_part(row):
        words += f" What it is compared with was recorded for {recorded} of its steps."
    return words


def recorded_part(row: Mapping[Any, Any] | pd.Series) -> str:
    """Return how much was recorded of what an episode is compared with, if it is not most of it."""
    part = float(row.get("recorded_share", 1.0))
    return percent(part) if part < MOSTLY else ""


def tell_range(
    row: pd.Series,
    outcomes: Sequence[Outcome],
    names: Sequence[str],
    credible: CredibleSettings | None,
    *,
    rate: bool = False,
) -> str:
    """Say how far the numbers of an episode could move, and under what assumption.

    First what other models say that the records allow, if that was computed; then the worst and
    the best case over every way in which luck could carry over, if the model is right.
    """
    told = ("expected_return", "low_any", "high_any", *CREDIBLE)
    digits = digits_for((float(row.get(name, np.nan)) for name in told), rate=rate)
    sentences = [
        chance_range(row, outcomes, names, credible),
        f"Expected return under the policy {digits.value(float(row['expected_return']))}.",
        learned_again(row, digits),
        worst_to_best(row, digits),
    ]
    return " ".join(filter(None, sentences))


def chance_range(
    row: pd.Series,
    outcomes: Sequence[Outcome],
    names: Sequence[str],
    credible: CredibleSettings | None,
) -> str:
    """Say how likely each outcome could be given how few cases there are; "" if not computed.

    Bad outcomes come first, by how likely they could be at most.
    """
    spans = _credible_spans(row, outcomes, names)
    if credible is None or not spans:
        return ""
    listed = "; ".join(f"{name} {_percents(*span)}" for name, span in spans)
    return f"{credible.confidence:.0%} credible intervals: {listed}. They {COVER}."


def tell_risk(row: pd.Series, outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """Say how likely the worst outcome could be given how few cases there are.

    Nothing ("") if that was not computed, or if all models agree, as they do where the policy
    treats as was done.
    """
    spans = _credible_spans(row, outcomes, names)
    if not spans:
        return ""
    name, (low, high) = spans[0]
    if percent(low) == percent(high):
        return ""
    because = "With so few similar cases" if row["thin_share"] > 0.5 else "Given these records"
    return f"{because}, the chance of “{name}” could be as high as {percent(high)}."


def _credible_spans(
    row: pd.Series, outcomes: Sequence[Outcome], names: Sequence[str]
) -> list[tuple[str, list[float]]]:
    """Return each outcome with its credible interval, the worst first; none if not computed."""
    columns = [f"{column}_{end}_credible" for column in _columns(names) for end in ("low", "high")]
    ends = np.array([float(row.get(column, np.nan)) for column in columns]).reshape(-1, 2)
    if np.isnan(ends).any():
        return []
    bad = {outcome.name for outcome in outcomes if outcome.bad}
    spans = zip(names, ends.tolist(), strict=True)
    return sorted(spans, key=lambda span: (span[0] not in bad, -span[1][1]))


def _percents(low: float, high: float) -> str:
    low_words, high_words = percent(low), percent(high)
    return low_words if low_words == high_words else f"{low_words} to {high_words}"


def worst_to_best(row: pd.Series, digits: Digits) -> str:
    """Say how far the expected return could move, and under what assumption."""
    low, high = float(row["low_any"]), float(row["high_any"])
    if np.isnan(low) or np.isnan(high):
        return f"Its worst and best case were not computed. {HOLDS}"
    return f"Its worst to best case is {digits.span(low, high)}. {HOLDS}"


def learned_again(row: pd.Series, digits: Digits) -> str:
    """Say what other models say that the records allow, and whether that is mostly assumed."""
    low, high, mean, weaker, stronger = (float(row.get(name, np.nan)) for name in CREDIBLE)
    if np.isnan(low):
        return ""
    sentence = f"Other models that these records allow say {digits.span(low, high)}"
    if not max(abs(weaker - mean), abs(stronger - mean)) > SENSITIVE * (high - low):
        return f"{sentence}."
    return (
        f"{sentence}; what is assumed about rare treatments matters here: {digits.value(mean)} on "
        f"average, {digits.value(weaker)} if the assumption weighs a quarter, "
        f"{digits.value(stronger)} if it weighs four times as much."
    )

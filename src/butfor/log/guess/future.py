"""Columns that look into the future: known only once the episode has ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from butfor.log.guess.profile import MOST_LEVELS, Profile, Rows
from butfor.log.guess.states import entropy, mutual_information
from butfor.log.guess.words import sounds
from butfor.types import Floats

LEAST_EPISODES = 20  # from which on a correlation over episodes says something
CORRELATED = 0.5  # rank correlation with how long an episode lasts
CERTAIN = 5.0  # standard errors
TOLD = 0.8  # share of the outcome's entropy


def looks_ahead(
    rows: Rows, profile: Profile, time: Profile | None, outcome: Profile | None
) -> str | None:
    """Say why a column looks into the future, None if it does not seem to."""
    name = profile.name
    if sounds(name, "later") or (sounds(name, "future") and _has_end(rows, profile)):
        return "its name"
    if len(rows.earlier) == 0 or profile.kind not in ("number", "time", "text"):
        return None
    if not rows.is_static(profile):
        return _counts_down(rows, profile, time)
    if len(rows.first) < LEAST_EPISODES:
        return None
    value = profile.numbers[rows.last]
    lasting = {"the number of rows": rows.lengths.astype(np.float64)}
    if time is not None:
        start, end = time.numbers[rows.first], time.numbers[rows.last]
        lasting["how long it lasts"] = end - start
        if profile.kind == time.kind == "time":
            if (value >= end)[np.isfinite(value)].all():
                return "a date after the last row of each episode"
            value = value - start
        elif time.kind == "number":
            lasting["the last time"] = end
    for what, numbers in lasting.items():
        strength = _rank_correlation(value, numbers)
        if strength >= CORRELATED and strength * np.sqrt(len(value)) > CERTAIN:
            return (
                f"the same on every row of an episode, and correlated with {what} ({strength:.2f})"
            )
    return _tells_outcome(rows, profile, outcome)


def _has_end(rows: Rows, profile: Profile) -> bool:
    return len(rows.earlier) > 0 and (rows.is_static(profile) or rows.only_last(profile))


def _counts_down(rows: Rows, profile: Profile, time: Profile | None) -> str | None:
    """Say so if a number and the time always add up to the same within an episode."""
    if time is None or profile.kind != "number" or time.kind != "number":
        return None
    total = profile.numbers + time.numbers
    if np.allclose(total[rows.later], total[rows.earlier]) and np.ptp(rows.lengths):
        return "it counts down to the end of the episode"
    return None


def _tells_outcome(rows: Rows, profile: Profile, outcome: Profile | None) -> str | None:
    if outcome is None or not 1 < profile.distinct <= MOST_LEVELS:
        return None
    ends, values = outcome.codes[rows.last], profile.codes[rows.last]
    least = min(entropy(ends), entropy(values))  # either may be a coarser version of the other
    if 0 < TOLD * least <= mutual_information(values, ends):
        return f"it tells {outcome.name!r} from the first row on"
    return None


def _rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's correlation, without its sign; 0 if it is undefined."""
    both = np.isfinite(one) & np.isfinite(other)
    if both.sum() < LEAST_EPISODES or not np.ptp(one[both]) or not np.ptp(other[both]):
        return 0.0
    ranks = [pd.Series(numbers[both]).rank() for numbers in (one, other)]
    return abs(float(ranks[0].corr(ranks[1])))


def repeats_next(rows: Rows, profile: Profile, others: Sequence[Profile]) -> str | None:
    """Say of which column a column holds the value of the next row."""
    few = slice(1000)  # pairs that rule out most columns
    for other in others:
        if (
            other is profile
            or not (profile.numbers[rows.earlier[few]] == other.numbers[rows.later[few]]).all()
        ):
            continue
        if (profile.numbers[rows.earlier] == other.numbers[rows.later]).all():
            return f"the next row's {other.name!r}"
    return None

"""compare_policies: differences between policies on one log, with paired intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from butfor.checks import check_choice, check_confidence
from butfor.evaluate.bootstrap import bootstrap_interval, resampled_values
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimate import RESAMPLES
from butfor.evaluate.estimators.table import ESTIMATORS
from butfor.evaluate.finding import LEARNED
from butfor.evaluate.influence import Influence
from butfor.evaluate.intervals import BY_MODEL, NONE, Intervals, possible_returns
from butfor.evaluate.refit import group_episodes
from butfor.printed import Table
from butfor.replay.replay import Replay
from butfor.types import Floats

COMPARED = ("WIS", "WDR", "MB", "CF")
COLUMNS = ["estimator", "policy", "against", "value", "difference", "low", "high", "warning"]


def compare_policies(
    replays: Mapping[str, Replay],
    *,
    estimators: Sequence[str] = COMPARED,
    learned: Collection[str] = (),
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate how much better each policy is than the first one, from the same episodes.

    Both estimates rest on the same episodes, so much of their error is shared: the interval of the
    difference is often narrower than that of either estimate.

    Parameters
    ----------
    replays
        One question per policy, by name, about the same episodes in the same order; models may
        differ.
    estimators
        Some of WIS, WDR, MB and CF.
    learned
        Names of policies that were learned from these very episodes, which flatters them: their
        differences have no interval. A `Plan` knows it by itself.

    Returns
    -------
    DataFrame
        estimator, policy, against (the first policy), value, difference, low, high, warning (why
        there is no interval).

    Notes
    -----
    Differences of WIS and WDR are resampled with the same episodes; for MB and CF, groups of
    episodes count less in turn and both models are learned again, as in `estimate_values`. Where a
    policy takes actions that were never taken, the interval is extended as its own would be.
    """
    check_confidence(confidence)
    for name in estimators:
        check_choice(name, "estimator", COMPARED)
    for name in learned:
        check_choice(name, "learned", tuple(replays))
    sides = {name: _Side(name, one, seed, confidence) for name, one in replays.items()}
    if len(sides) < 2:
        raise ValueError("one policy only; give at least two to compare")
    first, *others = sides.values()
    for other in others:
        _check_same(first, other)
    rows = []
    for estimator in estimators:
        for side in sides.values():
            value = side.value(estimator)
            if side is first:
                rows.append((estimator, side.name, first.name, value, 0.0, *NONE, ""))
                continue
            pair, gap = _Pair(estimator, side, first), value - first.value(estimator)
            reason = pair.reason(learned)
            ends = NONE if reason else pair.interval(gap, resamples, seed, confidence)
            rows.append((estimator, side.name, first.name, value, gap, *ends, reason))
    return Table(rows, columns=COLUMNS)


@dataclass(frozen=True, eq=False)
class _Side:
    """One policy: what estimators sum, and what its intervals rest on."""

    name: str
    replay: Replay
    seed: int
    confidence: float
    _values: dict[str, float] = field(default_factory=dict)

    @cached_property
    def sample(self) -> EpisodeColumns:
        return EpisodeColumns(self.replay, self.seed)

    @cached_property
    def intervals(self) -> Intervals:
        groups = group_episodes(self.sample, blend=False)
        influences = {} if groups is None else groups.influences()
        return Intervals(self.sample, None, influences, "percentile", self.confidence)

    def value(self, estimator: str) -> float:
        if estimator not in self._values:
            self._values[estimator] = float(self.evaluate(estimator, np.ones((1, len(self))))[0])
        return self._values[estimator]

    def evaluate(self, estimator: str, weights: Floats) -> Floats:
        return ESTIMATORS[estimator](self.sample, weights)

    def __len__(self) -> int:
        return len(self.replay)


@dataclass(frozen=True, eq=False)
class _Pair:
    """One estimate of two policies."""

    estimator: str
    one: _Side
    other: _Side

    def reason(self, learned: Collection[str]) -> str:
        """Why there is no interval, and because of which policy; "" if there is one."""
        for side in (self.one, self.other):
            found = LEARNED if side.name in learned else side.intervals.reason(self.estimator)
            if found:
                return found.replace("no interval", f"no interval, because of {side.name}", 1)
        return ""

    def interval(
        self, gap: float, resamples: int, seed: int, confidence: float
    ) -> tuple[float, float]:
        """Return the interval of the difference."""
        name, sides = self.estimator, (self.one.intervals, self.other.intervals)
        if name in BY_MODEL and all(name in side.influences for side in sides):
            one, other = (side.influences[name].of_group for side in sides)
            low, high = Influence(one - other).interval(gap, confidence)
        else:
            rows = len(self.one)
            resampled = resampled_values({name: self._evaluate}, rows, resamples, seed)[name]
            low, high = bootstrap_interval(
                self._evaluate, gap, resampled, rows, "percentile", confidence
            )
        (down, up), (down_other, up_other) = (side.room(name) for side in sides)
        lowest, highest = possible_returns(self.one.replay)
        most = highest - lowest
        ends = np.clip([low - down - up_other, high + up + down_other], -most, most)
        return float(ends[0]), float(ends[1])

    def _evaluate(self, weights: Floats) -> Floats:
        one, other = (side.evaluate(self.estimator, weights) for side in (self.one, self.other))
        return one - other


def _check_same(first: _Side, other: _Side) -> None:
    """Refuse questions that are not about the same episodes."""
    one, two = first.replay, other.replay
    if one.hidden or two.hidden:
        raise ValueError("policies are compared only where the state is observed")
    if len(one) != len(two) or (one.log.id != two.log.id).any():
        raise ValueError(
            f"{first.name} and {other.name} are about different episodes; compare policies on the "
            "same log"
        )
    if (one.horizon, one.discount) != (two.horizon, two.discount):
        raise ValueError(
            f"{first.name} has horizon {one.horizon} and discount {one.discount}, {other.name} "
            f"{two.horizon} and {two.discount}; use the same for both"
        )
    if not np.allclose(one.observed_return, two.observed_return, rtol=1e-12, atol=1e-12):
        raise ValueError(
            f"the episodes of {first.name} and {other.name} earned different returns; compare "
            "policies on the same log, with the same rewards"
        )

"""Intervals of estimates: how each is made, or why there is none.

What is printed as an interval has to hold the true value about as often as it says. An estimate
that cannot have such an interval has none, and the reason is stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.bootstrap import (
    Evaluate,
    bootstrap_interval,
    percentile_interval,
    reweighted_influence,
)
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.estimators.table import CONTINUED, OBSERVED, RECORDS
from butfor.evaluate.finding import LEARNED
from butfor.evaluate.influence import Influence
from butfor.evaluate.refit import THESE
from butfor.evaluate.sample import Sample
from butfor.evaluate.warn import WEIGHTED
from butfor.models.factored import FactoredModel
from butfor.replay.observed import unsupported_by_state
from butfor.replay.replay import Replay
from butfor.types import Floats

# Weighted estimates need an effective sample size of at least this for an interval. Below it a
# bootstrap sees too few of the rare episodes with large weights: in simulations, intervals of logs
# with 5 to 10 held the true value in 80% of logs where overlap was low, and in 60 to 70% below 5.
LEAST_EFFECTIVE = 10.0
# the model's errors are theirs
BY_MODEL = (CONTINUED, "MB", "MB (sampled)", "CF", "CF (draws)", "MAGIC")
REWEIGHTED = ("FQE",)  # resamples would lose pairs that it counts
NONE = (float("nan"), float("nan"))
SLACK = 1e-9  # relative, of the possible returns: rounding errors

ONE = "no interval: there is nothing to resample"
FEW = (
    "no interval: not enough data (effective sample size {effective:.1f}, and below "
    f"{LEAST_EFFECTIVE:.0f} intervals miss the true value too often)"
)
OUTSIDE = "no interval: the estimate lies outside the possible returns"
NOT_REFITTED = "no interval: the model is not learned again in resamples of these episodes"


@dataclass(frozen=True, eq=False)
class Intervals:
    """Makes the interval of each estimate, and remembers why there is none."""

    sample: Sample
    crossed: CrossFitted | None
    influences: Mapping[str, Influence]  # of MB, CF and MAGIC with the model learned again
    kind: str  # of bootstrap intervals: "percentile" or "bca"
    confidence: float
    relearned: bool = False  # whether the model was learned again in each resample
    reasons: dict[str, str] = field(default_factory=dict)  # by estimate

    def bootstraps(self, name: str) -> bool:
        """Whether the interval of an estimate is made from its values in resamples."""
        if self.reason(name) or name in REWEIGHTED:
            return False
        return name not in BY_MODEL or self.given or self.relearned

    def plain(
        self, name: str, value: float, evaluate: Evaluate, resampled: Floats | None
    ) -> tuple[float, float]:
        """Return the interval of an estimate that is not cross-fitted, from values in resamples."""
        reason = self.reason(name) or self._impossible(name, value)
        if reason:
            self.reasons[name] = reason
            return NONE
        if name in REWEIGHTED:
            influence = reweighted_influence(evaluate, value, len(self.sample))
            return self._within(name, influence.interval(value, self.confidence))
        if resampled is None:
            return self._within(name, self.influences[name].interval(value, self.confidence))
        if self.relearned:
            return self._within(name, percentile_interval(resampled, self.confidence))
        found = bootstrap_interval(
            evaluate, value, resampled, len(self.sample), self.kind, self.confidence
        )
        return self._within(name, found)

    def cross_fitted(self, name: str, values: Floats, unsupported: Floats) -> tuple[float, float]:
        """Return the interval of a cross-fitted estimate from its values by split and half."""
        assert self.crossed is not None
        if not np.isfinite(values).all():
            return NONE
        low, high = self.crossed.interval(values, self.confidence)
        return self._within(name, (low, high), float(unsupported.mean()))

    def these(self, name: str, value: float) -> tuple[float, float]:
        """Return the interval of an estimate that is about these very episodes: only CF has one."""
        if name != "CF" or THESE not in self.influences or name in self.reasons:
            return NONE
        return self._within(name, self.influences[THESE].interval(value, self.confidence))

    @cached_property
    def given(self) -> bool:
        """Whether the model is known rather than learned, so that it is the same in resamples."""
        return self.sample.replay.hidden or not self.sample.replay.learned.counts.any()

    @property
    def learned(self) -> bool:
        """Whether the target was learned from this log."""
        if self.crossed is None:
            return self.sample.replay.learned_here
        return self.crossed.learned

    def reason(self, name: str) -> str:
        """Say why an estimate has no interval; "" if it has one."""
        if len(self.sample) == 1:
            return ONE
        if self.learned and name not in RECORDS:
            return LEARNED
        if name in WEIGHTED and not self.sample.effective >= LEAST_EFFECTIVE:
            return FEW.format(effective=self.sample.effective)
        refitted = self.given or self.relearned or name in self.influences
        if name in BY_MODEL and not refitted:
            return NOT_REFITTED
        return ""

    def _impossible(self, name: str, value: float) -> str:
        lowest, highest = self.limits(name)
        slack = SLACK * max(abs(lowest), abs(highest), 1.0)
        return OUTSIDE if value < lowest - slack or value > highest + slack else ""

    def _within(
        self, name: str, ends: tuple[float, float], unsupported: float | None = None
    ) -> tuple[float, float]:
        """Extend an interval by what pairs never seen might change, within what is possible."""
        down, up = 0.0, 0.0
        if not (self.sample.replay.hidden or name == OBSERVED):
            down, up = self.room(name, unsupported)
        low, high = np.clip([ends[0] - down, ends[1] + up], *self.limits(name))
        return float(low), float(high)

    def limits(self, name: str) -> tuple[float, float]:
        """Return the lowest and the highest possible value: no interval needs to reach beyond.

        Where rewards vary, more may have been recorded than the model, which has their means, says.
        """
        lowest, highest = self._possible
        if name != OBSERVED:
            return lowest, highest
        means = self.sample.logged.recorded / self.sample.logged.episodes
        return min(lowest, float(means.min())), max(highest, float(means.max()))

    def room(self, name: str, unsupported: float | None = None) -> tuple[float, float]:
        """How far an estimate might be too high and too low, for pairs never seen."""
        lowest, highest = self._possible
        mass = self._unsupported(name) if unsupported is None else unsupported
        room = mass * (highest - lowest) if mass > 0 else 0.0
        of_model = name.startswith(("MB", "CF", CONTINUED))
        worst = room > 0 and of_model and assumes_worst(self.sample.replay)
        return (0.0 if worst else room), room

    def _unsupported(self, name: str) -> float:
        """Mean probability that what is assumed about pairs never seen enters an estimate."""
        if name.startswith("CF"):
            return self.sample.unsupported
        if name == CONTINUED:
            return self._unseen(self.sample.replay.behavior_table)
        return self.sample.unsupported_in_model if name.startswith("MB") else self._unlogged

    @cached_property
    def _unlogged(self) -> float:
        """Probability that the target ever takes an action never taken in its state.

        Estimates without a model leave such episodes out, or count them as 0.
        """
        replay, taken = self.sample.replay, self.sample.counts > 0
        if replay.sampled or not (replay.target_table[~taken] > 0).any():
            return 0.0
        return self._unseen(replay.target_table, ~taken.ravel())

    def _unseen(self, policy: Floats, made_up: NDArray[np.bool_] | None = None) -> float:
        """Probability that a policy ever uses a row that is made up, by default a pair unseen."""
        replay, first = self.sample.replay, self.sample.first
        if replay.sampled:
            return 0.0
        mass = unsupported_by_state(replay.mdp, policy, horizon=replay.horizon, made_up=made_up)
        return float(first @ mass / first.sum())

    @cached_property
    def _possible(self) -> tuple[float, float]:
        return possible_returns(self.sample.replay)


def possible_returns(replay: Replay) -> tuple[float, float]:
    """Return the lowest and the highest return that the rewards of the model allow.

    An episode earns the rewards of steps without an end, then at most one of an end.
    """
    model = replay.pomdp.dynamics if replay.hidden else replay.learned
    if isinstance(model, FactoredModel):
        steps, ends = model.rewards.table[..., -1], model.rewards.table[..., :-1]
    else:
        ended = model.next_state >= model.n_states
        if replay.hidden:  # ends are states there
            ended = replay.pomdp.outcome[model.next_state] >= 0
        steps, ends = model.reward[~ended], model.reward[ended]
    last = [*ends.ravel().tolist(), *(outcome.reward for outcome in replay.model.outcomes)]
    kept = model.discounts(replay.discount)
    found = []
    for pick in (min, max):
        step = pick(steps.ravel().tolist(), default=0.0)
        total = 0.0
        for _ in range(replay.horizon):
            total = pick([*(step + by * total for by in (kept.min(), kept.max())), *last])
        found.append(total)
    return found[0], found[1]


def assumes_worst(replay: Replay) -> bool:
    """Whether every pair never seen leads to an outcome of lowest reward."""
    model = replay.mdp
    made_up = model.unseen.ravel()[model.entry_row]
    lowest = min((outcome.reward for outcome in model.outcomes), default=-np.inf)
    into_end = model.next_state[made_up] >= model.n_states
    return bool((into_end & (model.reward[made_up] <= lowest)).all())

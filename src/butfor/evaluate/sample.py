"""Sample: what estimates, checks and the decomposition need to know about a log.

A log in memory is one shard, with one row per episode (`EpisodeColumns`). The shards of a large log
are added up, with one row per group of episodes (`ShardSums`). All that follows is the same code.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.decomposition import Pieces
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.past_counts import PastCounts
from butfor.replay.replay import Replay
from butfor.types import Floats


class Sample(Protocol):
    """What is known about all episodes of a log together."""

    @property
    def replay(self) -> Replay:
        """The question; if the log is not in memory, about a small example of it."""

    def __len__(self) -> int:
        """Number of rows that are resampled: episodes, or groups of them."""

    @property
    def logged(self) -> Columns:
        """What estimators sum, apart from counterfactuals if these are not yet known."""

    @property
    def columns(self) -> Columns:
        """What estimators sum."""

    @property
    def episodes(self) -> int:
        """Number of episodes."""

    @property
    def steps(self) -> int:
        """Number of logged steps up to the horizon."""

    @property
    def censored(self) -> int:
        """Number of episodes that stop before the horizon without an outcome."""

    @property
    def usual(self) -> tuple[Floats, float]:
        """Share of each outcome [O + 1], and steps, expected of what is compared with."""

    @property
    def followers(self) -> int:
        """Number of episodes in which the target might have taken every action."""

    @property
    def effective(self) -> float:
        """Effective sample size of the final weights, (sum w)^2 / sum w^2."""

    @property
    def spread(self) -> float:
        """Standard deviation of the returns."""

    @property
    def unsupported(self) -> float:
        """Mean probability that a counterfactual ever uses a pair never seen."""

    @property
    def unsupported_in_model(self) -> float:
        """The same for new episodes from the same starts."""

    @property
    def null(self) -> tuple[int, int]:
        """Episodes checked for, and changed by, a policy equal to the behavior."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Logged decisions, [S, A]."""

    @property
    def decisions(self) -> NDArray[np.int64]:
        """Logged decisions up to the horizon, [S, A]."""

    @property
    def first(self) -> NDArray[np.int64]:
        """Episodes by first state, [S]."""

    @property
    def influence(self) -> tuple[float, float]:
        """Medians over the episodes of `Steps.share_about` and `Steps.share_after`."""

    @property
    def past(self) -> PastCounts:
        """Logged transitions by what preceded them, if states can be enumerated."""

    @property
    def pieces(self) -> Pieces:
        """The sums that the decomposition is made of."""


def continued(sample: Sample) -> bool:
    """Whether the model continues any records, to compare with them."""
    replay = sample.replay
    return sample.censored > 0 and replay.censored == "continue" and replay.continuation

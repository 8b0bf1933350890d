"""The results of all shards: what is known about their episodes together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.audit.exact import ExactSums
from butfor.audit.shards.count import FOLDS
from butfor.audit.shards.judge import EXTRA, SHARES, Judged
from butfor.audit.shards.setting import Setting
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.decomposition import Pieces
from butfor.evaluate.diagnostics.calibration import (
    bad_name,
    calibration_row,
    table_of_sums,
    untold_row,
)
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.estimators.columns import SINGLE, Columns
from butfor.evaluate.past_counts import PastCounts
from butfor.replay.replay import Replay
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class Gathered:
    """The sums over some shards."""

    sums: dict[str, ExactSums]
    counts: dict[str, NDArray[np.int64]]

    def add(self, judged: Judged) -> None:
        """Add one more shard, in any order."""
        for name, packed in judged.sums.items():
            if name in self.sums:
                self.sums[name].add_packed(**packed)
            else:
                self.sums[name] = ExactSums.unpack(**packed)
        for name, count in judged.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count


@dataclass(frozen=True, eq=False)
class ShardSums:
    """The sums over all shards as a `Sample` whose rows are groups of episodes."""

    gathered: Gathered
    setting: Setting
    steps: int
    past: PastCounts  # logged transitions by what preceded them

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def replay(self) -> Replay:
        """The question, about a small example of the log."""
        return self.setting.question

    @property
    def logged(self) -> Columns:
        """What estimators sum, one row per group."""
        return self.columns

    @cached_property
    def columns(self) -> Columns:
        """What estimators sum, one row per group."""
        matrix = self._groups[:, : -len(EXTRA)]
        return Columns.from_matrix(matrix, self.replay.horizon, self.setting.seed)

    @cached_property
    def crossed(self) -> CrossFitted | None:
        """Cross-fitted values and unsupported masses of the split whose episodes were replayed."""
        if not self.setting.learned:
            return None
        if not self.setting.halves:  # one of them has no episode
            return CrossFitted.of(np.full((4, 1, 2), np.nan), True)
        sums = self.gathered.sums["halves"].values()
        found = sums[:, 1:] / sums[:, :1]
        return CrossFitted.of(found[:, :4].T[:, None, :], True, found[None, :, 4:])

    def replayed(self) -> Floats:
        """Sum of the expected counterfactual returns by fold, [FOLDS]."""
        column = SINGLE.index("counterfactual")
        return np.asarray(self._sums[:, column].reshape(-1, FOLDS).sum(axis=0))

    @cached_property
    def episodes(self) -> int:
        """Number of episodes."""
        return int(self.columns.episodes.sum())

    @property
    def followers(self) -> int:
        """Number of episodes in which the target might have taken every action."""
        return int(self.gathered.counts["sizes"][0])

    @property
    def censored(self) -> int:
        """Number of episodes that stop before the horizon without an outcome."""
        return int(self.gathered.counts["sizes"][1])

    @property
    def usual(self) -> tuple[Floats, float]:
        """Share of each outcome [O + 1], and steps, expected of what is compared with."""
        chances = self.gathered.sums["usual"].values()[0] / self.episodes
        return chances, float(self._extra["usual_steps"].sum())

    @property
    def null(self) -> tuple[int, int]:
        """Episodes checked for, and changed by, a policy equal to the behavior."""
        checked, changed = self.gathered.counts["sizes"][2:].tolist()
        return checked, changed

    @property
    def effective(self) -> float:
        """Effective sample size; nan if the squares of the weights overflow or underflow."""
        weight = float(self.columns.ratio[:, -1].sum())
        squared = float(self._extra["squared_ratio"].sum())
        if self.followers == 0:
            return 0.0
        return float(weight / squared * weight) if 0 < squared < np.inf else float("nan")

    @property
    def spread(self) -> float:
        """Standard deviation of the returns."""
        mean = float(self.columns.returns.sum()) / self.episodes
        return float(np.sqrt(max(self._mean("squared_return") - mean**2, 0.0)))

    @property
    def unsupported(self) -> float:
        """Mean probability that a counterfactual ever uses a pair never seen."""
        return self._mean("unsupported")

    @property
    def unsupported_in_model(self) -> float:
        """The same for new episodes from the same starts."""
        return self._mean("unsupported_model")

    @property
    def counts(self) -> NDArray[np.int64]:
        """Logged decisions, [S, A]."""
        return self.setting.model.counts

    @property
    def decisions(self) -> NDArray[np.int64]:
        """Logged decisions, [S, A], including those after the horizon."""
        return self.setting.model.counts

    @property
    def first(self) -> NDArray[np.int64]:
        """Episodes by first state, [S]."""
        return np.rint(self.setting.model.initial * self.episodes).astype(np.int64)

    @property
    def influence(self) -> tuple[float, float]:
        """Medians over the episodes of `Steps.share_about` and `Steps.share_after`."""
        return _median(self.gathered.counts["about"]), _median(self.gathered.counts["after"])

    @cached_property
    def pieces(self) -> Pieces:
        """The sums that the decomposition is made of."""
        sums = self.gathered.sums
        whole = ExactSums(sums["cells"].limbs.sum(axis=1, keepdims=True))
        parts = {name: sums[name].values() for name in ("cells", "expected", "by_state")}
        return Pieces(whole=whole.values(), **parts)

    def calibration(self) -> Row:
        """Return the row about calibration, from one half of the log on the other."""
        sums, setting = self.gathered.sums["calibration"].values(), self.setting
        judged, _, _, happened, _ = sums.sum(axis=0).tolist()
        if not setting.model.outcomes:
            return untold_row("the log names no outcomes")
        if not setting.halves:
            return untold_row("one half of the log has no episode")
        if judged == 0:
            return untold_row("the other half of the log allows no prediction for any decision")
        return calibration_row(
            table_of_sums(sums),
            bad_name(setting.model.outcomes),
            rate=happened / judged,
            decisions=self.steps,
            judged=int(judged),
            given=False,
        )

    @cached_property
    def _sums(self) -> Floats:
        """All that was summed, one row per group."""
        return self.gathered.sums["groups"].values()

    @cached_property
    def _groups(self) -> Floats:
        """All that was summed, one row per group that has episodes."""
        return self._sums[self._sums[:, 0] > 0]  # the first column is the number of episodes

    @cached_property
    def _extra(self) -> dict[str, Floats]:
        return dict(zip(EXTRA, self._groups[:, -len(EXTRA) :].T, strict=True))

    def _mean(self, name: str) -> float:
        return float(self._extra[name].sum()) / self.episodes


def _median(counts: NDArray[np.int64]) -> float:
    """Return the median of shares that were counted in bins of one thousandth."""
    passed = np.cumsum(counts)
    middle = np.array([(passed[-1] - 1) // 2, passed[-1] // 2])
    return float(np.searchsorted(passed, middle, side="right").mean() / SHARES)

"""The results of all shards: what is known about their episodes together, and those to show."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.audit.exact import ExactSums
from butfor.audit.shards.judge import CROSSED, EXTRA, SHARES, Candidates, Judged
from butfor.audit.shards.learn import Setting
from butfor.audit.show import Shown, show
from butfor.audit.tables import lowest_unflagged
from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.decomposition import Pieces
from butfor.evaluate.diagnostics.calibration import (
    bad_name,
    calibration_row,
    table_of_sums,
    untold_row,
)
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.past_counts import PastCounts
from butfor.replay.replay import Replay
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class Gathered:
    """The sums over some shards, and the remaining candidates."""

    sums: dict[str, ExactSums]
    counts: dict[str, NDArray[np.int64]]
    candidates: Candidates

    @classmethod
    def start(cls, judged: Judged) -> Gathered:
        """Start with one shard."""
        return cls(dict(judged.sums), dict(judged.counts), judged.candidates)

    def add(self, judged: Judged, setting: Setting) -> Gathered:
        """Return the results with one more shard added."""
        for name, sums in self.sums.items():
            sums.merge(judged.sums[name])
        return Gathered(
            self.sums,
            {name: count + judged.counts[name] for name, count in self.counts.items()},
            self.candidates.join(judged.candidates).best(setting.flags, setting.controls),
        )


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
        powers = np.asarray(self.replay.discount ** np.arange(self.replay.horizon), np.float64)
        matrix = self._groups[:, : -len(EXTRA)]
        return Columns.from_matrix(matrix, powers, self.setting.seed)

    @cached_property
    def crossed(self) -> CrossFitted | None:
        """Cross-fitted values and unsupported masses, summed by group."""
        if not (self.setting.learned and self.setting.halves):
            return None
        return CrossFitted(*(self._extra[name] for name in CROSSED))

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
    def _groups(self) -> Floats:
        """All that was summed, one row per group that has episodes."""
        sums = self.gathered.sums["groups"].values()
        return sums[sums[:, 0] > 0]  # the first column is the number of episodes

    @cached_property
    def _extra(self) -> dict[str, Floats]:
        return dict(zip(EXTRA, self._groups[:, -len(EXTRA) :].T, strict=True))

    def _mean(self, name: str) -> float:
        return float(self._extra[name].sum()) / self.episodes


def show_candidates(candidates: Candidates, setting: Setting, draws: int) -> Shown:
    """Choose the episodes to show and compute their details; the table has the ids."""
    rank = candidates.ranks(setting.flags)
    control = lowest_unflagged(rank, candidates.order)
    replay = setting.question.ask(episodes=candidates.log, counts=setting.model.counts)
    found = show(replay.compute(), rank, control, draws=draws, seed=setting.seed)
    found.table.insert(0, "id", candidates.log.id)
    read = np.flatnonzero((rank > 0) | control)
    return Shown(found.table.iloc[read].reset_index(drop=True), found.drawn)


def _median(counts: NDArray[np.int64]) -> float:
    """Return the median of shares that were counted in bins of one thousandth."""
    passed = np.cumsum(counts)
    middle = np.array([(passed[-1] - 1) // 2, passed[-1] // 2])
    return float(np.searchsorted(passed, middle, side="right").mean() / SHARES)

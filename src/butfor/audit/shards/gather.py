"""The results of all shards: estimates, diagnostics, decomposition and the episodes to show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.exact import ExactSums
from butfor.audit.numbers import Numbers
from butfor.audit.shards.judge import EXTRA, SHARES, Candidates, Judged
from butfor.audit.shards.learn import Setting
from butfor.audit.show import Shown, show
from butfor.audit.tables import lowest_unflagged
from butfor.evaluate.decomposition import check_decomposition, decomposition_table
from butfor.evaluate.diagnostics.calibration import (
    bad_name,
    calibration_row,
    table_of_sums,
    untold_row,
)
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.diagnostics.table import COLUMNS, observed_rows
from butfor.evaluate.estimate import estimate_groups
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.warn import Facts
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


def numbers_of_sums(gathered: Gathered, setting: Setting, steps: int) -> Numbers:
    """Compute the numbers of all episodes from the sums over groups of them."""
    sums = {name: total.values() for name, total in gathered.sums.items()}
    whole = ExactSums(gathered.sums["cells"].limbs.sum(axis=1, keepdims=True)).values()
    decomposition = decomposition_table(
        setting.question.log.outcome_names,
        whole=whole,
        cells=sums["cells"],
        expected=sums["expected"],
        by_state=sums["by_state"],
    )
    count, observed, expected, _ = whole[0].tolist()
    columns, extra = _columns(sums["groups"], setting)
    facts = _facts(columns, extra, gathered, setting)
    crossed = None
    if setting.learned and setting.halves:
        crossed = extra["crossed_value"], extra["crossed_counterfactual"]
    return Numbers(
        estimates=estimate_groups(columns, facts, crossed=crossed, seed=setting.seed),
        diagnostics=_diagnose(gathered, facts, sums["calibration"], steps, setting),
        decomposition=decomposition,
        gap=check_decomposition(decomposition, expected / count - observed / count),
        episodes=facts.episodes,
        steps=steps,
        censored=facts.censored,
    )


def show_candidates(candidates: Candidates, setting: Setting, draws: int) -> Shown:
    """Choose the episodes to show and compute their details; the table has the ids."""
    rank = candidates.ranks(setting.flags)
    control = lowest_unflagged(rank, candidates.order)
    replay = setting.question.ask(episodes=candidates.log, counts=setting.model.counts)
    found = show(replay.compute(), rank, control, draws=draws, seed=setting.seed)
    found.table.insert(0, "id", candidates.log.id)
    read = np.flatnonzero((rank > 0) | control)
    return Shown(found.table.iloc[read].reset_index(drop=True), found.drawn)


def _columns(sums: Floats, setting: Setting) -> tuple[Columns, dict[str, Floats]]:
    """Return the columns of the estimators and the other sums, one row per nonempty group."""
    count = sums.shape[1] - len(EXTRA)
    powers = np.asarray(
        setting.question.discount ** np.arange(setting.question.horizon), dtype=np.float64
    )
    held = sums[:, 0] > 0  # the first column is the number of episodes
    columns = Columns.from_matrix(sums[held, :count], powers, setting.seed)
    return columns, dict(zip(EXTRA, sums[held, count:].T, strict=True))


def _facts(
    columns: Columns, extra: dict[str, Floats], gathered: Gathered, setting: Setting
) -> Facts:
    episodes = float(columns.episodes.sum())
    mean = {name: float(values.sum()) / episodes for name, values in extra.items()}
    spread = mean["squared_return"] - (float(columns.returns.sum()) / episodes) ** 2
    weight, squared = float(columns.ratio[:, -1].sum()), float(extra["squared_ratio"].sum())
    followers, censored = gathered.counts["sizes"].tolist()
    visited = setting.model.counts.sum(axis=1) > 0
    used = setting.question.target_table > 0
    rewards = [outcome.reward for outcome in setting.model.outcomes] or [0.0]
    return Facts(
        episodes=int(episodes),
        spread=float(np.sqrt(max(spread, 0.0))),
        censored=censored,
        followers=followers,
        effective=_effective(weight, squared, followers),
        missing=np.flatnonzero(
            visited & (used & (setting.question.behavior_table == 0)).any(axis=1)
        ),
        unlogged=np.flatnonzero(visited & (used & (setting.model.counts == 0)).any(axis=1)),
        unsupported={
            "MB": mean["unsupported_model"],
            "CF": mean["unsupported"],
            "MB (cross-fitted)": mean["crossed_unsupported_value"],
            "CF (cross-fitted)": mean["crossed_unsupported_counterfactual"],
        },
        lowest=min(rewards),
        highest=max(rewards),
    )


def _effective(weight: float, squared: float, followers: int) -> float:
    """Effective sample size; nan if the squares of the weights overflow or underflow."""
    if followers == 0:
        return 0.0
    if not (0 < squared < np.inf):
        return float("nan")
    return float(weight / squared * weight)


def _diagnose(
    gathered: Gathered, facts: Facts, calibration: Floats, steps: int, setting: Setting
) -> pd.DataFrame:
    """Return the rows of `diagnose`."""
    counts, first = setting.model.counts, np.rint(setting.model.initial * facts.episodes)
    rows = observed_rows(
        setting.model,
        setting.question.target_table,
        episodes=facts.episodes,
        horizon=setting.question.horizon,
        counts=counts,
        cut_counts=counts,
        first=first.astype(np.int64),
        effective=facts.effective,
        followers=facts.followers,
        unsupported=facts.unsupported["CF"],
        calibration=_calibration_row(calibration, steps, setting),
        about=_median(gathered.counts["about"]),
        after=_median(gathered.counts["after"]),
    )
    return pd.DataFrame(rows, columns=COLUMNS)


def _calibration_row(sums: Floats, steps: int, setting: Setting) -> Row:
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
        decisions=steps,
        judged=int(judged),
        given=False,
    )


def _median(counts: NDArray[np.int64]) -> float:
    """Return the median of shares that were counted in bins of one thousandth."""
    passed = np.cumsum(counts)
    middle = np.array([(passed[-1] - 1) // 2, passed[-1] // 2])
    return float(np.searchsorted(passed, middle, side="right").mean() / SHARES)

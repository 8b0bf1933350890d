"""What shards gave, added up: estimates, diagnostics, decomposition, and the episodes to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.exact import ExactSums
from butfor.audit.flags import target_actions
from butfor.audit.shards.judge import EXTRA, SHARES, Candidates, Judged
from butfor.audit.shards.learn import Setting
from butfor.audit.tables import (
    count_pairs,
    course_tables,
    draw_table,
    lowest_unflagged,
    shown_table,
    with_credible,
)
from butfor.evaluate.decomposition import check_decomposition, decomposition_table
from butfor.evaluate.diagnostics.calibration import (
    bad_name,
    calibration_row,
    table_of_sums,
    untold_row,
)
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.diagnostics.overlap import overlap_row
from butfor.evaluate.diagnostics.table import (
    COLUMNS,
    effective_row,
    influence_row,
    left_row,
    rare_row,
    unsupported_row,
)
from butfor.evaluate.estimate import estimate_groups
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.support import judge_with_support
from butfor.evaluate.warn import Facts
from butfor.replay.bounds import counterfactual_bounds
from butfor.types import Floats


@dataclass(frozen=True, eq=False)
class Gathered:
    """The sums over some shards, and the candidates that are left."""

    sums: dict[str, ExactSums]
    counts: dict[str, NDArray[np.int64]]
    candidates: Candidates

    @classmethod
    def start(cls, judged: Judged) -> Gathered:
        """Begin with one shard."""
        return cls(dict(judged.sums), dict(judged.counts), judged.candidates)

    def add(self, judged: Judged, setting: Setting) -> Gathered:
        """Return it with one more shard."""
        for name, sums in self.sums.items():
            sums.merge(judged.sums[name])
        return Gathered(
            self.sums,
            {name: count + judged.counts[name] for name, count in self.counts.items()},
            self.candidates.join(judged.candidates).best(setting.flags, setting.controls),
        )


@dataclass(frozen=True, eq=False)
class Findings:
    """All of an audit but the tables of all episodes and steps."""

    tables: dict[str, pd.DataFrame]
    shown: pd.DataFrame  # what is known of the episodes shown only, with their ids
    counts: dict[str, int]
    gap: float  # by how much the pieces of the decomposition miss the whole


def find(gathered: Gathered, setting: Setting, steps: int, draws: int) -> Findings:
    """Work out what follows from the sums and the candidates."""
    sums = {name: total.values() for name, total in gathered.sums.items()}
    shown, drawn = _show(gathered.candidates, setting, draws)
    names = [*(outcome.name for outcome in setting.model.outcomes), setting.study.words.none]
    whole = ExactSums(gathered.sums["cells"].limbs.sum(axis=1, keepdims=True)).values()
    decomposition = decomposition_table(
        names,
        whole=whole,
        cells=sums["cells"],
        expected=sums["expected"],
        by_state=sums["by_state"],
    )
    count, observed, expected, _ = whole[0].tolist()
    gap = check_decomposition(decomposition, expected / count - observed / count)
    columns, extra = _columns(sums["groups"], setting)
    facts = _facts(columns, extra, gathered, setting)
    crossed = None
    if setting.learned and setting.halves:
        crossed = extra["crossed_value"], extra["crossed_counterfactual"]
    estimates = estimate_groups(columns, facts, crossed=crossed, seed=setting.seed)
    return Findings(
        tables={
            "estimates": with_credible(estimates, None),
            "diagnostics": _diagnose(gathered, facts, sums["calibration"], steps, setting),
            "decomposition": decomposition,
            **drawn,
        },
        shown=shown,
        counts={
            "episodes": facts.episodes,
            "steps": steps,
            "censored": facts.censored,
            "flagged": int((shown["rank"] > 0).sum()),
        }
        | count_pairs(setting.model, setting.target, setting.model.counts),
        gap=gap,
    )


def _show(
    candidates: Candidates, setting: Setting, draws: int
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Choose what to show, and look at it closely."""
    log = candidates.log
    rank = candidates.ranks(setting.flags)
    control = lowest_unflagged(rank, candidates.order)
    options: dict[str, Any] = {
        "behavior": setting.behavior,
        "mechanism": setting.mechanism,
        "action_noise": "shared",
        "horizon": setting.horizon,
    }
    result, walked, unsupported = judge_with_support(
        log,
        setting.model,
        setting.target,
        counts=setting.model.counts,
        discount=setting.discount,
        **options,
    )
    bounds = counterfactual_bounds(
        log,
        setting.model,
        setting.target,
        behavior=setting.behavior,
        horizon=setting.horizon,
        discount=setting.discount,
    )
    actions = target_actions(log, setting.target, setting.behavior, shared=True)
    table = shown_table(
        result,
        actions,
        unsupported,
        walked,
        bounds,
        rank,
        control,
        setting.model,
        setting.target,
        options,
    )
    table.insert(0, "id", log.id)
    shown = np.flatnonzero((rank > 0) | control)
    given = log, setting.model, setting.target, shown
    drawn = draw_table(*given, draws, setting.seed, options)
    courses, course_steps = course_tables(*given, walked, options)
    tables = {"draws": drawn, "courses": courses, "course_steps": course_steps}
    return table.iloc[shown].reset_index(drop=True), tables


def _columns(sums: Floats, setting: Setting) -> tuple[Columns, dict[str, Floats]]:
    """Return what estimators sum and what else was summed, a row a group that has episodes."""
    count = sums.shape[1] - len(EXTRA)
    powers = np.asarray(setting.discount ** np.arange(setting.horizon), dtype=np.float64)
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
    used = setting.target > 0
    rewards = [outcome.reward for outcome in setting.model.outcomes] or [0.0]
    return Facts(
        episodes=int(episodes),
        spread=float(np.sqrt(max(spread, 0.0))),
        censored=censored,
        followers=followers,
        effective=_effective(weight, squared, followers),
        missing=np.flatnonzero(visited & (used & (setting.behavior == 0)).any(axis=1)),
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
    """Effective sample size; nan where the squares of the weights leave what floats can hold."""
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
    rows = [
        overlap_row(counts, setting.target),
        effective_row(facts.episodes, facts.effective),
        left_row(facts.episodes, facts.followers),
        rare_row(setting.model, setting.target, first.astype(np.int64), setting.horizon, counts),
        unsupported_row(facts.unsupported["CF"]),
        _calibration_row(calibration, steps, setting),
        influence_row(_median(gathered.counts["about"]), _median(gathered.counts["after"])),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _calibration_row(sums: Floats, steps: int, setting: Setting) -> Row:
    judged, _, _, happened, _ = sums.sum(axis=0).tolist()
    if not setting.model.outcomes:
        return untold_row("the log names no outcomes")
    if not setting.halves:
        return untold_row("one half of the log has no episode")
    if judged == 0:
        return untold_row("no decision could be judged by the other half of the log")
    return calibration_row(
        table_of_sums(sums),
        bad_name(setting.model.outcomes),
        rate=happened / judged,
        decisions=steps,
        judged=int(judged),
        given=False,
    )


def _median(counts: NDArray[np.int64]) -> float:
    """Return the median of shares that were counted by their thousandth."""
    passed = np.cumsum(counts)
    middle = np.array([(passed[-1] - 1) // 2, passed[-1] // 2])
    return float(np.searchsorted(passed, middle, side="right").mean() / SHARES)

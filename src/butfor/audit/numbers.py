"""The results of an audit about all episodes together: estimates, checks, decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from butfor.evaluate.crossfit import Learn
from butfor.evaluate.decomposition import check_decomposition, decompose
from butfor.evaluate.diagnostics import diagnose
from butfor.evaluate.estimate import estimate_values
from butfor.log.episodes import Episodes
from butfor.replay.replay import Replay
from butfor.types import Progress


@dataclass(frozen=True, eq=False)
class Numbers:
    """Tables about all episodes, computed from each episode or from sums over groups."""

    estimates: pd.DataFrame
    diagnostics: pd.DataFrame
    decomposition: pd.DataFrame
    gap: float  # between the pieces of the decomposition and the whole
    episodes: int
    steps: int
    censored: int  # episodes that stop before the horizon without an outcome


def numbers_of_episodes(
    replay: Replay,
    *,
    estimators: Sequence[str] | None,
    interval: str,
    resamples: int | None,
    seed: int,
    learn: Learn | None,
    relearn: bool,
    truth: Episodes | float | None,
    progress: Progress | None,
) -> Numbers:
    """Compute the numbers from the single episodes of a log in memory."""
    result, log = replay.outcomes(), replay.log
    decomposition = decompose(result)
    whole = result.expected_return.mean() - result.observed_return.mean()
    return Numbers(
        estimates=estimate_values(
            replay,
            estimators=estimators,
            interval=interval,
            resamples=resamples,
            seed=seed,
            learn=learn,
            relearn=relearn,
            truth=truth,
            progress=progress,
        ),
        diagnostics=diagnose(replay, learn=learn, seed=seed),
        decomposition=decomposition,
        gap=check_decomposition(decomposition, float(whole)),
        episodes=len(log),
        steps=len(log.state),
        censored=int(((log.outcome < 0) & (log.lengths < replay.horizon)).sum()),
    )

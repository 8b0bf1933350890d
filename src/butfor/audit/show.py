"""Shown: details of the episodes that people read, the flagged ones and the controls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.tables import course_step_table, course_table, draw_table, shown_table
from butfor.log.combinations import Combinations
from butfor.replay.replay import Replay
from butfor.types import Progress


@dataclass(frozen=True, eq=False)
class Shown:
    """Tables about the episodes to be read, and about others whose bounds were computed."""

    table: pd.DataFrame  # one row for each of them: see `shown_table`
    drawn: dict[str, pd.DataFrame]  # draws, courses, course_steps of the episodes to be read
    combinations: Combinations | None = (
        None  # of the states of a wide log, and those that draws reach
    )


def show(
    replay: Replay,
    rank: NDArray[np.int64],
    control: NDArray[np.bool_],
    known: NDArray[np.int64],
    *,
    draws: int,
    seed: int,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Shown:
    """Compute the details of the flagged episodes and controls, and the bounds of those `known`."""
    table = shown_table(replay, rank, control, known, threads=threads, progress=progress)
    read = np.flatnonzero((rank > 0) | control)
    some = replay.part(read) if len(read) else None
    paths = None if some is None or draws == 0 else some.draws(draws, seed=seed)
    drawn = {
        "draws": draw_table(paths),
        "courses": course_table(some, replay.log),
        "course_steps": course_step_table(replay, read),
    }
    reached = replay.log if paths is None else paths.episodes
    return Shown(table, drawn, reached.combinations)

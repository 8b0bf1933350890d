"""The results of an audit about all episodes together: estimates, checks, decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from butfor.evaluate.decomposition import check_decomposition, decompose
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.diagnostics.table import diagnose_sample
from butfor.evaluate.sample import Sample


@dataclass(frozen=True, eq=False)
class Numbers:
    """Tables about all episodes."""

    estimates: pd.DataFrame
    diagnostics: pd.DataFrame
    decomposition: pd.DataFrame
    gap: float  # between the pieces of the decomposition and the whole
    episodes: int
    steps: int
    censored: int  # episodes that stop before the horizon without an outcome


def numbers_of(sample: Sample, estimates: pd.DataFrame, about_model: Sequence[Row]) -> Numbers:
    """Gather the numbers of a log: in memory, or summed over its shards."""
    decomposition = decompose(sample.replay.log.outcome_names, sample.pieces)
    count, observed, expected, _ = sample.pieces.whole[0].tolist()
    return Numbers(
        estimates=estimates,
        diagnostics=diagnose_sample(sample, about_model),
        decomposition=decomposition,
        gap=check_decomposition(decomposition, expected / count - observed / count),
        episodes=sample.episodes,
        steps=sample.steps,
        censored=sample.censored,
    )

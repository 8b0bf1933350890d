"""The results of an audit about all episodes together: estimates, checks, decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from butfor.evaluate.crossfit import CrossFitted
from butfor.evaluate.decomposition import check_decomposition, decompose
from butfor.evaluate.diagnostics.lights import Row
from butfor.evaluate.diagnostics.table import diagnose_sample
from butfor.evaluate.sample import Sample, continued


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
    fresh_chances: tuple[float, ...] | None  # of outcomes, cross-fitted, none last; None: unknown
    usual_chances: tuple[float, ...] | None  # in records that were continued; None: in none


def numbers_of(
    sample: Sample,
    estimates: pd.DataFrame,
    about_model: Sequence[Row],
    crossed: CrossFitted | None,
) -> Numbers:
    """Gather the numbers of a log: in memory, or summed over its shards."""
    names, pieces = sample.replay.log.outcome_names, sample.pieces
    decomposition = decompose(names, pieces, continued=continued(sample))
    count, _, usual, expected, _ = pieces.whole[0].tolist()
    chances = (
        None if crossed is None or crossed.chances is None else crossed.chances.mean(axis=(0, 1))
    )
    return Numbers(
        estimates=estimates,
        diagnostics=diagnose_sample(sample, about_model),
        decomposition=decomposition,
        gap=check_decomposition(decomposition, expected / count - usual / count),
        episodes=sample.episodes,
        steps=sample.steps,
        censored=sample.censored,
        fresh_chances=None if chances is None else tuple(chances.tolist()),
        usual_chances=tuple(sample.usual[0].tolist()) if continued(sample) else None,
    )

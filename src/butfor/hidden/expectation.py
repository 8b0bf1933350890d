"""EM with a hidden state: expected counts of a log, the rows that fit them, and the iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from butfor import kernels
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.pairs import log_arrays, refuse_impossible
from butfor.log.episodes import Episodes
from butfor.models.policies import estimate_behavior
from butfor.threads import in_blocks
from butfor.types import Floats

PARTS = 16  # parts of a log, summed in a fixed order whatever the number of threads
CONCENTRATION = 5.0  # of the Dirichlet rows that restarts begin from
KEPT = 0.1  # share of the center in such a row, so that nothing possible becomes impossible
DUST = 1e-15  # learned probabilities below this are converging to 0 and are set to it

Parameters = TypeVar("Parameters")


class Counts(NamedTuple):
    """Expected counts of hidden transitions and first states, given a log."""

    moved: Floats  # [E] expected number of each transition
    began: Floats  # [H] expected number of episodes that began in each state
    evidence: float  # logarithm of the probability of the observations


class Climb(NamedTuple, Generic[Parameters]):
    """Where one restart ended."""

    parameters: Parameters
    trail: Floats  # [iterations] the objective; the last entry is that of `parameters`
    converged: bool


def climb(
    parameters: Parameters,
    improve: Callable[[Parameters], tuple[float, Parameters]],
    iterations: int,
    least: float,
) -> Climb[Parameters]:
    """Improve until an iteration adds less than `least`, or for this many iterations."""
    trail: list[float] = []
    while True:
        value, better = improve(parameters)
        trail.append(value)
        converged = len(trail) > 1 and trail[-1] - trail[-2] < least
        if converged or len(trail) == iterations:
            return Climb(parameters, np.array(trail), converged)
        parameters = better


def compare(climbs: list[Climb[Parameters]]) -> tuple[Climb[Parameters], pd.DataFrame]:
    """Return the best of several restarts, and a table with one row per restart."""
    ends = [(end.trail[-1], len(end.trail), end.converged) for end in climbs]
    frame = pd.DataFrame(ends, columns=["log_likelihood", "iterations", "converged"])
    return climbs[int(frame["log_likelihood"].argmax())], frame


def expect(
    episodes: Episodes,
    model: TabularPOMDP,
    hidden: kernels.Hidden,
    behavior: kernels.Behavior,
    threads: int | None,
) -> Counts:
    """Return the expected transitions and first states, and the logarithm of the evidence."""
    log = log_arrays(episodes)
    edge = np.linspace(0, len(episodes), min(PARTS, len(episodes)) + 1).astype(np.int64)
    moved = np.zeros((len(edge) - 1, len(hidden.next_state)))
    began = np.zeros((len(edge) - 1, hidden.states))
    evidence = np.empty(len(episodes))

    def work(first: int, last: int) -> None:
        trace = kernels.make_trace(hidden, log)
        for part in range(first, last):
            some, found = edge[part : part + 2], (evidence, moved[part], began[part])
            impossible = kernels.count_paths(*some, hidden, behavior, log, trace, *found)
            refuse_impossible(impossible, episodes, model, behavior)

    in_blocks(work, len(edge) - 1, threads=threads)
    return Counts(moved.sum(axis=0), began.sum(axis=0), float(evidence.sum()))


def seen_rows(episodes: Episodes, model: TabularPOMDP) -> Floats:
    """Return the behavior in each hidden state, estimated from its observations, [H, A]."""
    rows = np.asarray(model.emission @ estimate_behavior(episodes))
    rows[rows.sum(axis=1) == 0] = 1.0  # ends without observations
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def latent_behavior(table: Floats) -> kernels.Behavior:
    """Return a policy on hidden states [H, A] as kernels take it."""
    return kernels.Behavior(kernels.sparse_rows(table), kernels.LATENT)


def fit_rows(counts: Floats, center: Floats, prior: float) -> Floats:
    """Return the rows of the M step; without any count the center."""
    weight = counts + prior * center
    total = weight.sum(axis=1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1.0), center)


def penalty(rows: Floats, center: Floats, prior: float) -> float:
    """Return the logarithm of the prior's density, up to a constant."""
    if prior == 0:
        return 0.0
    inside = center > 0
    with np.errstate(divide="ignore"):  # the start may give something probability 0
        return prior * float(center[inside] @ np.log(rows[inside]))


def clean(rows: Floats) -> Floats:
    """Return the rows without negligible probabilities."""
    kept = np.where(rows < DUST, 0.0, rows)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def perturb(center: Floats, generator: np.random.Generator) -> Floats:
    """Draw rows around a center, with the same support."""
    drawn = fit_rows(generator.gamma(CONCENTRATION * center), center, prior=0.0)
    return (1 - KEPT) * drawn + KEPT * center


def even(rows: Floats) -> Floats:
    """Return rows that are uniform on their support."""
    return np.asarray((rows > 0) / (rows > 0).sum(axis=1, keepdims=True))

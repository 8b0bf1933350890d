"""EM with a hidden state: expected counts of a log, rows that fit them, and climbing by both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from butfor import kernels
from butfor.hidden.cells import policy_rows
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.task import log_arrays, refuse_impossible
from butfor.log.episodes import Episodes
from butfor.models.mdp import total_by
from butfor.models.policies import estimate_behavior
from butfor.threads import in_blocks
from butfor.types import Floats

PARTS = 16  # of a log, summed in this order whatever the number of threads
CONCENTRATION = 5.0  # of the Dirichlet rows that restarts begin with
KEPT = 0.1  # share of the centre in such a row, so that nothing possible becomes impossible
DUST = 1e-15  # smaller probabilities of what was learned are on their way to 0, and become it

Parameters = TypeVar("Parameters")


class Counts(NamedTuple):
    """What a log says of hidden transitions and first states, as far as can be known."""

    moved: Floats  # [E] expected number of each transition
    began: Floats  # [H] of episodes that began in each state
    evidence: float  # logarithm of the probability of all that was seen


class Climb(NamedTuple, Generic[Parameters]):
    """Where one restart ended."""

    parameters: Parameters
    trail: Floats  # [iterations] the objective, of the parameters at last
    converged: bool


def climb(
    parameters: Parameters,
    improve: Callable[[Parameters], tuple[float, Parameters]],
    iterations: int,
    least: float,
) -> Climb[Parameters]:
    """Improve until an iteration adds less than `least`, or there were so many."""
    trail: list[float] = []
    while True:
        value, better = improve(parameters)
        trail.append(value)
        converged = len(trail) > 1 and trail[-1] - trail[-2] < least
        if converged or len(trail) == iterations:
            return Climb(parameters, np.array(trail), converged)
        parameters = better


def expect(
    episodes: Episodes,
    model: TabularPOMDP,
    hidden: kernels.Hidden,
    behavior: kernels.Behavior,
    threads: int | None,
) -> Counts:
    """Expected transitions and first states, and the logarithm of the evidence."""
    log = log_arrays(episodes, None)
    edge = np.linspace(0, len(episodes), min(PARTS, len(episodes)) + 1).astype(np.int64)
    moved = np.zeros((len(edge) - 1, len(hidden.next_state)))
    began = np.zeros((len(edge) - 1, hidden.states))
    evidence = np.empty(len(episodes))

    def work(first: int, last: int) -> None:
        trace = kernels.make_trace(hidden, log)
        for part in range(first, last):
            impossible = kernels.count_paths(
                edge[part],
                edge[part + 1],
                hidden,
                behavior,
                log,
                trace,
                evidence,
                moved[part],
                began[part],
            )
            refuse_impossible(impossible, episodes, model, behavior, log)

    in_blocks(work, len(edge) - 1, threads=threads)
    return Counts(moved.sum(axis=0), began.sum(axis=0), float(evidence.sum()))


def count_decisions(moved: Floats, model: TabularPOMDP) -> Floats:
    """Expected decisions by hidden state and action, [H, A]: each is one transition."""
    shape = model.n_states, model.n_actions
    return total_by(model.dynamics.entry_row, moved, shape[0] * shape[1]).reshape(shape)


def seen_rows(episodes: Episodes, model: TabularPOMDP) -> Floats:
    """What was done in the observations that each hidden state shows, [H, A]."""
    rows = np.asarray(model.emission @ estimate_behavior(episodes))
    rows[rows.sum(axis=1) == 0] = 1.0  # ends that show nothing
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def latent_behavior(table: Floats) -> kernels.Behavior:
    """Return a policy on hidden states [H, A] as kernels take it."""
    return kernels.Behavior(policy_rows(table), kernels.LATENT)


def fit_rows(counts: Floats, centre: Floats, prior: float) -> Floats:
    """Rows of the M step; without a count the centre."""
    weight = counts + prior * centre
    total = weight.sum(axis=1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1.0), centre)


def penalty(rows: Floats, centre: Floats, prior: float) -> float:
    """Logarithm of the prior's density, up to a constant."""
    if prior == 0:
        return 0.0
    inside = centre > 0
    with np.errstate(divide="ignore"):  # where one begins something may be impossible
        return prior * float(centre[inside] @ np.log(rows[inside]))


def clean(rows: Floats) -> Floats:
    """Rows without dust."""
    kept = np.where(rows < DUST, 0.0, rows)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def perturb(centre: Floats, generator: np.random.Generator) -> Floats:
    """Rows drawn around a centre, possible where it is."""
    drawn = generator.gamma(CONCENTRATION * centre)
    total = drawn.sum(axis=1, keepdims=True)
    drawn = np.where(total > 0, drawn / np.where(total > 0, total, 1.0), centre)
    return (1 - KEPT) * drawn + KEPT * centre


def even(rows: Floats) -> Floats:
    """Rows that are uniform on what is possible."""
    return np.asarray((rows > 0) / (rows > 0).sum(axis=1, keepdims=True))

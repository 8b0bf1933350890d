"""Counterfactuals with a hidden state: exact pair chains, draws and bounds."""

from __future__ import annotations

import numpy as np

from butfor import kernels
from butfor.hidden.cells import cell_tables
from butfor.hidden.latent import draw_paths, trace_posterior
from butfor.hidden.pairs import PairChain
from butfor.hidden.policies import first_beliefs
from butfor.models.mdp import total_by
from butfor.random import episode_keys
from butfor.types import Floats, Integers, Offsets, Progress

MOST_NUMBERS = 20_000_000  # bounds of pairs held in memory at a time


def exact_outcomes(
    chain: PairChain,
    discount: float,
    *,
    since: Offsets | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Floats, Floats]:
    """Return the outcome probabilities [n, O + 1] and expected returns [n] of each episode.

    The target takes over at step `since` [n], by default the first; returns count from there.
    """
    values, outcomes = cell_tables(chain.pairs.target, chain.horizon, discount)
    begins = np.zeros(len(chain.episodes), np.int64) if since is None else since
    probability = np.zeros((len(chain.episodes), outcomes.shape[2]))
    expected_return = np.zeros(len(chain.episodes))
    given = begins, float(discount), values, outcomes, probability, expected_return
    chain.run(kernels.exact_pairs, *given, threads=threads, progress=progress)
    return probability, expected_return


def hidden_contributions(
    chain: PairChain, discount: float, *, threads: int | None = None
) -> Floats:
    """Return each logged step's contribution to its episode's difference, [N].

    See `step_contributions`.
    """
    log = chain.episodes
    count = log.lengths + 1  # the target takes over at each step, or after the last one
    first = np.cumsum(count) - count
    episode = np.repeat(np.arange(len(log)), count)
    since = np.arange(len(episode)) - first[episode]
    _, value = exact_outcomes(chain.part(episode), discount, since=since, threads=threads)
    here = np.delete(value, first + log.lengths)
    following = np.delete(value, first)
    return np.asarray(discount**log.time * (here - log.reward - discount * following))


def first_values(chain: PairChain, discount: float = 1.0) -> Floats:
    """Return the target's value by the model alone, given each first observation, [n]."""
    values, _ = cell_tables(chain.pairs.target, chain.horizon, discount)
    target, model = chain.pairs.target, chain.model
    seen, place = np.unique(chain.episodes.first_state, return_inverse=True)
    beliefs = first_beliefs(model, seen)
    cell = target.cell[:, target.first[seen]].T  # [seen, H], -1 where it cannot be
    return np.asarray((beliefs * np.where(cell >= 0, values[-1][cell], 0.0)).sum(axis=1)[place])


def walk_hidden(
    chain: PairChain,
    thin: float,
    *,
    probability: bool,
    threads: int | None = None,
    progress: Progress | None = None,
) -> kernels.HiddenSteps:
    """Walk through both worlds of each episode, step by step; see `Replay.steps`."""
    posterior = trace_posterior(chain.episodes, chain.model, chain.pairs.behavior, threads=threads)
    episode, row, weight = posterior.transitions
    size = chain.model.n_states * chain.model.n_actions
    own = np.concatenate([[0], np.cumsum(np.bincount(episode, minlength=len(chain.episodes)))])
    shape = (len(chain.episodes), chain.horizon)
    kept = (shape[0] if probability else 0, chain.horizon + 1)
    steps = kernels.HiddenSteps(
        influence=np.zeros(shape),
        mass=np.zeros(shape),
        earned=np.zeros(shape),
        evidence=np.full(shape, np.nan),
        thin=np.zeros(shape),
        other=np.zeros(shape),
        apart=np.zeros(shape),
        seen=np.zeros((*kept, chain.model.n_observations)),
        latent=np.zeros((*kept, chain.model.n_states)),
        ended=np.zeros((*kept, len(chain.model.outcomes))),
    )
    counts = total_by(row, weight, size)
    given = counts, own, row, weight, thin, steps
    chain.run(kernels.walk_pairs, *given, walking=True, threads=threads, progress=progress)
    return steps


def draw_worlds(
    chain: PairChain,
    draws: int,
    seed: int,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Integers, Integers, Integers, Floats]:
    """Draw both worlds of each episode.

    Returns hidden states and observations under the target [n, draws, H + 1], actions and rewards
    [n, draws, H]; -1 (0 for rewards) after an end. An end is a hidden state, and shows what the
    model says it shows.
    """
    log, model, pairs = chain.episodes, chain.model, chain.pairs
    keys = episode_keys(seed, log.id, "hidden counterfactual")
    path = draw_paths(log, model, pairs.behavior, keys, draws, threads)
    state = np.full((len(log), draws, chain.horizon + 1), -1, np.int32)
    seen = np.full_like(state, -1)
    action = np.full((len(log), draws, chain.horizon), -1, np.int32)
    reward = np.zeros((len(log), draws, chain.horizon))
    state[:, :, 0] = path[:, :, 0]
    seen[:, :, 0] = log.first_state[:, None]
    given = path, keys, state, seen, action, reward
    chain.run(kernels.draw_pairs, *given, threads=threads, progress=progress)
    return state, seen, action, reward


def nested_bounds(
    chain: PairChain,
    discount: float,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Floats:
    """Return the lowest and highest counterfactual of each episode, [n, 1 + O + 1, 2, 2].

    By quantity (the return, each outcome, none), class of mechanisms (any, stable) and end.
    """
    values, outcomes = cell_tables(chain.pairs.target, chain.horizon, discount)
    quantities = outcomes.shape[2] + 1
    check_size(chain, 4 * quantities)
    found = np.empty((len(chain.episodes), 4 * quantities))
    given = float(discount), values, outcomes, found
    chain.run(kernels.bound_pairs, *given, threads=threads, progress=progress)
    return found.reshape(len(found), quantities, 2, 2)


def check_size(chain: PairChain, columns: int) -> None:
    """Refuse pairs of both worlds whose bounds would not fit in memory."""
    widest = int(np.diff(chain.model.arrays.showing.start).max())
    numbers = widest * len(chain.pairs.target.state) * columns
    if numbers > MOST_NUMBERS:
        raise ValueError(
            f"bounds: the model and this target have {numbers:,} bounds of pairs of both worlds, "
            f"more than {MOST_NUMBERS:,}; use fewer observations or memory nodes"
        )

"""What the log cannot tell about the target: pairs that were never seen, actions never taken."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.evaluate.problem import Problem
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP, check_mdp
from butfor.models.planning import value_tables
from butfor.models.policies import action_counts
from butfor.replay.outcomes import Counterfactuals, counterfactual_outcomes
from butfor.replay.steps import Steps, walk_and_judge
from butfor.types import Floats, Progress

UNSUPPORTED = Outcome("unsupported", 0.0)


def unsupported_mass(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    threads: int | None = None,
) -> Floats:
    """Probability that each episode's counterfactual ever uses a pair that was never seen, [n].

    It is the probability of one more outcome, to which every such pair leads at once.
    """
    marked = _mark_unseen(episodes, model)
    log = replace(episodes, outcomes=marked.outcomes)
    result = counterfactual_outcomes(
        log,
        marked,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        threads=threads,
    )
    return result.probability[:, -2]


def outcomes_with_support(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Counterfactuals, Floats]:
    """Return what `counterfactual_outcomes` and `unsupported_mass` do, by one pass where it can."""
    marked = _mark(episodes, model)
    result = counterfactual_outcomes(
        marked.episodes,
        marked.model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
        threads=threads,
        progress=progress,
    )
    return _read_support(result, marked, episodes, model, target, behavior, threads)


def judge_with_support(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Counterfactuals, Steps, Floats]:
    """Return what `walk_and_judge` and `unsupported_mass` do, by one pass where it can."""
    marked = _mark(episodes, model)
    result, steps = walk_and_judge(
        marked.episodes,
        marked.model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
        counts=counts,
        threads=threads,
        progress=progress,
    )
    found, mass = _read_support(result, marked, episodes, model, target, behavior, threads)
    return found, steps, mass


def unsupported_model_mass(
    episodes: Episodes, model: TabularMDP, target: ArrayLike, *, horizon: int | None = None
) -> Floats:
    """Probability that the target, in the model from each first state, ever uses such a pair, [n].

    The same as `unsupported_mass` for new patients instead of these.
    """
    steps = episodes.horizon if horizon is None else horizon
    ends = value_tables(_mark_unseen(episodes, model), target, horizon=steps)[1]
    return np.asarray(ends[-1, episodes.first_state, -2])


def unsupported_by_state(model: TabularMDP, target: ArrayLike, *, horizon: int) -> Floats:
    """Probability that the target, in the model from each state, ever uses such a pair, [S]."""
    marked = _mark_rows(model, model.unseen.ravel())
    return np.asarray(value_tables(marked, target, horizon=horizon)[1][-1, :, -2])


def overlap_problems(problem: Problem, taken: ArrayLike | None = None) -> NDArray[np.int64]:
    """Visited states in which the target may take an action that was never taken there.

    `taken` [S, A] says how often; by default with which probability the behaviour does.
    """
    visited = np.zeros(problem.model.n_states, dtype=bool)
    visited[problem.episodes.state] = True
    known = problem.behavior if taken is None else np.asarray(taken)
    return np.flatnonzero(visited & ((problem.target > 0) & (known == 0)).any(axis=1))


class _Marked(NamedTuple):
    """Episodes and a model in which made-up rows lead to an outcome of their own, if they can."""

    episodes: Episodes
    model: TabularMDP
    end: int | None  # the outcome to which they lead in fact; None: not marked


def _mark(episodes: Episodes, model: TabularMDP) -> _Marked:
    """Mark made-up rows where each of them leads, for certain, to one and the same outcome.

    Rewards and labels stay what they are, so that nothing else changes.
    """
    check_mdp(model)
    sizes = [(x.n_states, x.n_actions, len(x.outcomes)) for x in (episodes, model)]
    if sizes[0] != sizes[1]:
        return _Marked(episodes, model, None)  # to be refused
    inside = _made_up(episodes, model)[model.entry_row]
    ends = np.unique(model.next_state[inside])
    if len(ends) != 1 or ends[0] < model.n_states:
        return _Marked(episodes, model, None)
    end = model.n_states + len(model.outcomes)
    marked = replace(
        model,
        next_state=np.where(inside, end, model.next_state).astype(np.int32),
        labels=np.append(model.labels, model.labels[ends[0]]).astype(np.int32),
        outcomes=(*model.outcomes, UNSUPPORTED),
    )
    log = replace(episodes, outcomes=marked.outcomes)
    return _Marked(log, marked, int(ends[0]) - model.n_states)


def _read_support(
    result: Counterfactuals,
    marked: _Marked,
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    behavior: ArrayLike | None,
    threads: int | None,
) -> tuple[Counterfactuals, Floats]:
    """Give the mass of made-up rows back to where it leads; return it apart, too."""
    if not _made_up(episodes, model).any():
        return result, np.zeros(len(episodes))
    if marked.end is None:
        return result, unsupported_mass(
            episodes,
            model,
            target,
            behavior=behavior,
            mechanism=result.mechanism,
            action_noise=result.action_noise,
            horizon=result.horizon,
            threads=threads,
        )
    mass = result.probability[:, -2].copy()
    probability = np.delete(result.probability, -2, axis=1)
    probability[:, marked.end] = np.minimum(probability[:, marked.end] + mass, 1.0)
    log = replace(result.episodes, outcomes=episodes.outcomes)
    return replace(result, episodes=log, probability=probability), mass


def _made_up(episodes: Episodes, model: TabularMDP) -> NDArray[np.bool_]:
    """Whether each row was seen neither in the model's log nor in this one, [S A]."""
    return np.asarray((model.unseen & (action_counts(episodes) == 0)).ravel())


def _mark_unseen(episodes: Episodes, model: TabularMDP) -> TabularMDP:
    """Copy the model with the outcome "unsupported", to which each row never seen leads."""
    return _mark_rows(model, _made_up(episodes, model))


def _mark_rows(model: TabularMDP, made_up: NDArray[np.bool_]) -> TabularMDP:
    """Copy the model with the outcome "unsupported", to which the marked rows [S A] lead."""
    kept = ~made_up[model.entry_row]
    row = np.concatenate([model.entry_row[kept], np.flatnonzero(made_up)])
    order = np.argsort(row, kind="stable")  # entries of a row keep their order by label
    end = model.n_states + len(model.outcomes)

    added = made_up.sum()
    return replace(
        model,
        start=np.append(0, np.cumsum(np.bincount(row, minlength=len(made_up)))),
        next_state=np.append(model.next_state[kept], np.full(added, end, np.int32))[order],
        probability=np.append(model.probability[kept], np.ones(added))[order],
        reward=np.append(model.reward[kept], np.zeros(added))[order],
        # certain in its rows, so that it matters to no mechanism whose noise it has
        labels=np.append(model.labels, model.labels[-1]).astype(np.int32),
        outcomes=(*model.outcomes, UNSUPPORTED),
    )

"""What the log cannot tell about the target: pairs that were never seen, actions never taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.counterfactual import counterfactual_outcomes
from butfor.episodes import Episodes
from butfor.mdp import TabularMDP
from butfor.ope.problem import Problem
from butfor.planning import value_tables
from butfor.policy import action_counts
from butfor.scm.mechanism import Mechanism
from butfor.variables import Floats, Outcome


def unsupported_mass(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
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
    )
    return result.probability[:, -2]


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
    return np.asarray(
        value_tables(_mark_made_up(model, model.unseen), target, horizon=horizon)[1][-1, :, -2]
    )


def judge_with_support(
    episodes, model, target, *, counts=None, discount=1.0, threads=None, **options
):
    from butfor.steps import walk_through

    result = counterfactual_outcomes(
        episodes, model, target, discount=discount, threads=threads, **options
    )
    walked = walk_through(episodes, model, target, counts=counts, threads=threads, **options)
    return result, walked, unsupported_mass(episodes, model, target, **options)


def outcomes_with_support(episodes, model, target, *, discount=1.0, threads=None, **options):
    result = counterfactual_outcomes(
        episodes, model, target, discount=discount, threads=threads, **options
    )
    return result, unsupported_mass(episodes, model, target, **options)


def overlap_problems(problem: Problem, taken: ArrayLike | None = None) -> NDArray[np.int64]:
    """Visited states in which the target may take an action that was never taken there.

    `taken` [S, A] says how often; by default with which probability the behaviour does.
    """
    visited = np.zeros(problem.model.n_states, dtype=bool)
    visited[problem.episodes.state] = True
    known = problem.behavior if taken is None else np.asarray(taken)
    return np.flatnonzero(visited & ((problem.target > 0) & (known == 0)).any(axis=1))


def _mark_unseen(episodes: Episodes, model: TabularMDP) -> TabularMDP:
    """Copy the model with the outcome "unsupported", to which each row never seen leads."""
    return _mark_made_up(model, model.unseen & (action_counts(episodes) == 0))


def _mark_made_up(model, pairs):
    made_up = pairs.ravel()
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
        outcomes=(*model.outcomes, Outcome("unsupported", 0.0)),
    )

"""One-line forms of the methods of `Replay`, for a single result."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.factored import tabular
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.replay.outcomes import Counterfactuals
from butfor.replay.replay import Replay
from butfor.replay.steps import Steps
from butfor.types import Progress


def counterfactual_outcomes(
    episodes: Episodes,
    model: Model,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    continuation: bool = True,
    negligible: float = 0.0,
    draws: int = 200,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Counterfactuals:
    """Compute the exact distribution of each episode's outcome under the target policy.

    The same as `Replay(...).outcomes(...)`; see `Replay` for the parameters and the assumptions.
    """
    replay = Replay(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
        continuation=continuation,
    )
    return replay.outcomes(
        negligible=negligible, draws=draws, seed=seed, threads=threads, progress=progress
    )


def sample_counterfactuals(
    episodes: Episodes,
    model: Model,
    target: Policy,
    *,
    draws: int = 5,
    seed: int = 0,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    continuation: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Draws:
    """Draw trajectories that each episode could have taken under the target policy.

    The same as `Replay(...).draws(...)`; see `Replay` for the parameters and the assumptions.
    """
    replay = Replay(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        continuation=continuation,
    )
    return replay.draws(draws, seed=seed, threads=threads, progress=progress)


def counterfactual_bounds(
    episodes: Episodes,
    model: Model,
    target: Policy,
    *,
    behavior: Policy | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    continuation: bool = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Bounds:
    """Bound each episode's expected return and outcome probabilities over every mechanism.

    The same as `Replay(...).bounds()`; see `Replay` for the parameters and the assumptions.
    """
    replay = Replay(
        episodes,
        model,
        target,
        behavior=behavior,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
        continuation=continuation,
    )
    return replay.bounds(threads=threads, progress=progress)


def walk_through(
    episodes: Episodes,
    model: Model,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    counts: ArrayLike | None = None,
    probability: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Steps:
    """Follow each counterfactual step by step: where it is, and what evidence that rests on.

    The same as `Replay(...).steps(...)`; see `Replay` for the parameters and the assumptions.
    """
    replay = Replay(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        counts=counts,
    )
    return replay.steps(probability=probability, threads=threads, progress=progress)


def fewest_changes(
    episodes: Episodes,
    model: Model,
    *,
    changes: int = 3,
    mechanism: Mechanism | None = None,
    discount: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Changes:
    """Find the k actions that, if changed, would have raised each expected return most.

    The same as `Replay(...).fewest_changes(...)`, which does not depend on the target; see `Replay`
    for the parameters and the assumptions.
    """
    tabular(model)  # refuses a hidden state
    anything = np.full((model.n_states, model.n_actions), 1 / model.n_actions)
    replay = Replay(
        episodes, model, anything, mechanism=mechanism, action_noise="fresh", discount=discount
    )
    return replay.fewest_changes(changes, threads=threads, progress=progress)

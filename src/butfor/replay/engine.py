"""The interface of engines, and the one place where the kind of model decides."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_choice
from butfor.hidden.latent import LatentPosterior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.models.cases import logged_cases, similar_cases
from butfor.models.factored import NEXT, AnyFactor, FactoredModel, tabular
from butfor.models.fit import fit_mdp
from butfor.models.fit_factored import fit_factored
from butfor.models.mdp import TabularMDP
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.factored import FactoredEngine
from butfor.replay.hidden import HiddenEngine
from butfor.replay.observed import ObservedEngine
from butfor.replay.outcomes import Found
from butfor.replay.particles import ParticleEngine, state_table
from butfor.replay.steps import Steps
from butfor.replay.values import Values
from butfor.types import Floats, Progress

if TYPE_CHECKING:
    pass

Model = TabularMDP | TabularPOMDP | FactoredModel
NOISES = ("variables", "state")


class Engine(Protocol):
    """Answers a `Replay` for one kind of model, with n episodes and N steps."""

    hidden: bool  # whether the state is hidden

    @property
    def drawn(self) -> bool:
        """Whether outcomes are shares of draws instead of exact."""

    def first_values(self) -> Floats:
        """Expected return of the target in the model, from the start of each episode, [n]."""

    def outcomes(
        self,
        *,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> Found:
        """Outcome probabilities, expected returns and unsupported mass."""

    def everything(self, *, threads: int | None, progress: Progress | None) -> tuple[Found, Steps]:
        """Outcomes, with their unsupported mass, and steps."""

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Influence, evidence and probabilities, step by step."""

    def logged_values(self) -> Values:
        """Values of the target in the model at the logged steps."""

    def courses(self) -> Floats:
        """Probability of each level at each step, and of each outcome so far."""

    def unsupported_in_model(self) -> Floats:
        """Probability that a new episode from each start ever uses a pair never seen, [n]."""

    def unsupported(self, *, threads: int | None = None) -> Floats:
        """Probability that each counterfactual ever uses a pair never seen, [n]."""

    def bounds(self, *, threads: int | None, progress: Progress | None) -> Bounds:
        """Lowest and highest counterfactual of each episode."""

    def draws(
        self, count: int, seed: int, *, threads: int | None, progress: Progress | None
    ) -> Draws:
        """Trajectories that each episode could have taken."""

    def contributions(self, *, threads: int | None) -> Floats:
        """How much each observed step adds to its episode's difference, [N]."""

    def posterior(self) -> LatentPosterior:
        """Distribution of the hidden state at each step, given the whole record."""

    def fewest_changes(
        self, changes: int, *, threads: int | None, progress: Progress | None
    ) -> Changes:
        """The few actions that, if changed, would have raised the expected return most."""


def engine_of(
    model: Any, noise: str, episodes: Episodes
) -> type[ObservedEngine] | type[HiddenEngine] | type[ParticleEngine]:
    """Return the engine for a kind of model and of noise."""
    if isinstance(model, TabularPOMDP):
        return HiddenEngine
    if noise != "variables":
        return ObservedEngine
    enumerable = model.enumerable and episodes.combinations is None
    return FactoredEngine if enumerable else ParticleEngine


def check_question(
    episodes: Episodes, model: Any, noise: str, target: Policy, behavior: Policy | None
) -> tuple[Policy, Policy]:
    """Refuse a log, target or behavior that does not fit the model; return both policies."""
    engine = engine_of(model, noise, episodes)
    given: Any = tabular(model) if engine is ObservedEngine else model
    if isinstance(model, FactoredModel) and engine is not ParticleEngine:
        target = state_table(target, episodes) if callable(target) else target
        behavior = state_table(behavior, episodes) if callable(behavior) else behavior
    return engine.check(episodes, given, target, behavior)


def check_durations(episodes: Episodes, model: Any, horizon: int) -> None:
    """Refuse a model that does not know the time between decisions as its log does.

    Steps must be counted up to the horizon.
    """
    for variable in episodes.state_variables:
        if variable.clock and len(variable.levels) - 1 < horizon:
            raise ValueError(
                f"horizon {horizon}: {variable.name!r} counts steps up to "
                f"{len(variable.levels) - 1}; use truncate({horizon}) before with_step()"
            )
    if isinstance(model, TabularPOMDP):
        if episodes.durations is not None:
            raise ValueError(
                "the log has durations between decisions, which models with a hidden state do not "
                "know; use a TabularMDP or a FactoredModel"
            )
        return
    if isinstance(model, FactoredModel):  # which has the variables of its log
        return
    one, other = (
        np.ones(1) if known is None else known for known in (episodes.durations, model.durations)
    )
    if (one != other).any():
        raise ValueError(
            "the model and the log differ in how long before each state the previous decision was "
            "made; learn the model from this log, or give both the same durations"
        )


def noise_of(model: Any, noise: str | None) -> str:
    """Return what noise belongs to: as given, or else what is usual for this kind of model."""
    factored = isinstance(model, FactoredModel)
    if noise is None:
        return "variables" if factored else "state"
    if check_choice(noise, "noise", NOISES) == "variables" and not factored:
        raise ValueError(
            f"noise 'variables': a {type(model).__name__} has no variables of its own; give a "
            "FactoredModel, or leave noise out"
        )
    return noise


def known_cases(model: Any) -> Floats:
    """Number of similar past cases behind each state and action, [S, A], as the model knows it."""
    if isinstance(model, FactoredModel):
        return similar_cases(model)
    return tabular(model).counts.astype(np.float64)


def step_cases(model: Any, log: Episodes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of similar past cases of each logged step, without its own episode, [N].

    `counts` [S, A] are the logged decisions.
    """
    if isinstance(model, FactoredModel):
        most = np.iinfo(np.int64).max
        return np.minimum(logged_cases(model, log), most / 2).astype(np.int64)
    episode = np.repeat(np.arange(len(log)), log.lengths)
    pair = log.state.astype(np.int64) * log.n_actions + log.action
    same, _ = pd.factorize(episode * counts.size + pair)
    return np.asarray(counts[log.state, log.action] - np.bincount(same)[same])


def fit_again(model: Any, log: Episodes, *, learner: Any = None) -> TabularMDP | FactoredModel:
    """Learn a model of the same kind from another log, in the same way or by another learner.

    What was given, or found to be static or to copy an action, stays. A factored model that was not
    learned from a log is counted; if a variable depends on the next step, variables may depend on
    those before them in the order of the model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about varying rewards, reported for the whole log
        if not isinstance(model, FactoredModel):
            return fit_mdp(log, terminal=model.terminal)
        if model.taught is not None:
            fit = model.taught.fit
            again: FactoredModel = fit(log) if learner is None else fit(log, learner=learner)
            return again
        *factors, end = model.factors
        later = any(name.startswith(NEXT) for one in factors for name in one.parents)
        return fit_factored(
            log,
            "counts" if learner is None else learner,
            order=[one.variable for one in factors] if later else None,
            known={one.variable: one for one in factors if _is_kept(one)},
            ends=end if _is_kept(end) else None,
        )


def _is_kept(factor: AnyFactor) -> bool:
    """Whether a factor does not depend on the log."""
    return not factor.learned or factor.source == "given"


def check_factored(model: object) -> FactoredModel:
    """Return a factored model; refuse anything else."""
    if not isinstance(model, FactoredModel):
        raise ValueError(f"a FactoredModel is needed here, not a {type(model).__name__}")
    return model

"""The interface of engines, and the one place where the kind of model decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from butfor.checks import check_choice
from butfor.hidden.latent import LatentPosterior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.models.factored import FactoredModel
from butfor.models.mdp import TabularMDP, check_mdp
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.factored import FactoredEngine
from butfor.replay.hidden import HiddenEngine
from butfor.replay.observed import ObservedEngine
from butfor.replay.steps import Steps
from butfor.types import Floats, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

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
        negligible: float,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> tuple[Floats, Floats, Floats, Floats | None]:
        """Outcome probabilities [n, O + 1], expected returns, mass cut off, unsupported mass [n].

        The last is None if it needs a separate pass.
        """

    def everything(
        self, *, threads: int | None, progress: Progress | None
    ) -> tuple[Floats, Floats, Steps, Floats]:
        """Outcome probabilities, expected returns, steps and unsupported mass [n]."""

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Influence, evidence and probabilities, step by step."""

    def state_values(self) -> Floats:
        """Value of the target in the model by steps left and state, [H + 1, S]."""

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


def engine_of(model: Any, noise: str) -> type[ObservedEngine] | type[HiddenEngine]:
    """Return the engine for a kind of model and of noise."""
    if isinstance(model, TabularPOMDP):
        return HiddenEngine
    return FactoredEngine if noise == "variables" else ObservedEngine


def check_question(
    episodes: Episodes, model: Any, noise: str, target: Policy, behavior: Policy | None
) -> tuple[Policy, Policy]:
    """Refuse a log, target or behavior that does not fit the model; return both policies."""
    engine = engine_of(model, noise)
    given = tabular(model) if engine is ObservedEngine else model
    return engine.check(episodes, given, target, behavior)


def make_engine(replay: Replay) -> Engine:
    """Return the engine that answers a question."""
    return engine_of(replay.model, replay.noise)(replay)


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


def noise_for(model: Any, other: Any, noise: str) -> str | None:
    """Return the noise to ask for with another model; None: what is usual for its kind."""
    return noise if type(model) is type(other) else None


def tabular(model: Any) -> TabularMDP:
    """Return the transition rows of a model whose state is observed."""
    return model.tabular() if isinstance(model, FactoredModel) else check_mdp(model)


def check_factored(model: object) -> FactoredModel:
    """Return a factored model; refuse anything else."""
    if not isinstance(model, FactoredModel):
        raise ValueError(f"a FactoredModel is needed here, not a {type(model).__name__}")
    return model

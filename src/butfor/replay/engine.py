"""The interface of engines, and the one place where the kind of model decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from butfor.hidden.latent import LatentPosterior
from butfor.hidden.model import TabularPOMDP
from butfor.models.mdp import TabularMDP
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.hidden import HiddenEngine
from butfor.replay.observed import ObservedEngine
from butfor.replay.steps import Steps
from butfor.types import Floats, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

Model = TabularMDP | TabularPOMDP


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


def engine_of(model: Any) -> type[ObservedEngine] | type[HiddenEngine]:
    """Return the engine for a kind of model."""
    return HiddenEngine if isinstance(model, TabularPOMDP) else ObservedEngine


def make_engine(replay: Replay) -> Engine:
    """Return the engine that answers a question."""
    return engine_of(replay.model)(replay)

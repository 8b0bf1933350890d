"""The engine for models with a hidden state: the chain of both worlds of an episode as pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from butfor.hidden.chain import (
    draw_worlds,
    exact_outcomes,
    first_values,
    hidden_contributions,
    nested_bounds,
    walk_hidden,
)
from butfor.hidden.latent import LatentPosterior, latent_posterior
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.pairs import check_log, prepare_pairs
from butfor.hidden.policies import Policy, check_finite_policy, check_hidden_policy
from butfor.log.episodes import Episodes
from butfor.models.policies import estimate_behavior
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.outcomes import Found
from butfor.replay.steps import THIN, Steps, level_courses
from butfor.replay.values import Values
from butfor.types import Floats, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay


class HiddenEngine:
    """Answers a `Replay` whose model is a `TabularPOMDP`."""

    hidden = True
    drawn = False

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.model: TabularPOMDP = replay.pomdp
        self.chain = prepare_pairs(
            replay.episodes,
            self.model,
            replay.target,
            behavior=replay.behavior,
            mechanism=replay.mechanism,
            action_noise=replay.action_noise,
            horizon=replay.horizon,
            beyond=replay.steps_beyond,
        )

    @staticmethod
    def check(
        episodes: Episodes, model: TabularPOMDP, target: Policy, behavior: Policy | None
    ) -> tuple[Policy, Policy]:
        """Refuse a log, target or behavior of a different size; return both policies."""
        check_log(episodes, model)
        sizes = model.n_states, model.n_observations, model.n_actions
        policy = check_finite_policy(target, *sizes, "target")
        given = estimate_behavior(episodes) if behavior is None else behavior
        return policy, check_hidden_policy(given, *sizes, "behavior")

    def first_values(self) -> Floats:
        """Expected return of the target in the model, from each first observation, [n]."""
        return first_values(self.chain, self.replay.discount)

    def outcomes(
        self,
        *,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> Found:
        """Exact outcome probabilities and expected returns; no mass unsupported."""
        replay = self.replay
        found = exact_outcomes(self.chain, replay.discount, threads=threads, progress=progress)
        return Found(*found, np.zeros(len(replay.log)))

    def everything(self, *, threads: int | None, progress: Progress | None) -> tuple[Found, Steps]:
        """Outcomes, with an unsupported mass of 0, and steps."""
        found = self.outcomes(draws=1, seed=0, threads=threads, progress=progress)
        return found, self.steps(probability=False, threads=threads, progress=None)

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Follow both worlds of each episode."""
        found = walk_hidden(
            self.chain, float(THIN), probability=probability, threads=threads, progress=progress
        )
        given = found._asdict()
        seen, latent, ended = (given.pop(name) for name in ("seen", "latent", "ended"))
        place = np.concatenate([seen, ended], axis=2)
        return Steps(**given, probability=place, latent=latent)

    def logged_values(self) -> Values:
        """Raise an error: the state is hidden."""
        raise ValueError(
            "values of states are not available for a model with a hidden state; give a TabularMDP"
        )

    def courses(self) -> Floats:
        """Probability of each level of the observation at each step, and of each outcome so far."""
        return level_courses(self.replay.steps(probability=True), self.replay.log)

    def unsupported_in_model(self) -> Floats:
        """Zero, [n]: a model with a hidden state is given whole, so no row is made up."""
        return np.zeros(len(self.replay.log))

    def unsupported(self, *, threads: int | None = None) -> Floats:
        """Zero, [n]: a model with a hidden state is given whole, so no row is made up."""
        return np.zeros(len(self.replay.log))

    def bounds(self, *, threads: int | None, progress: Progress | None) -> Bounds:
        """Bound each pair of both worlds step by step, backwards, over every coupling of rows."""
        found = nested_bounds(self.chain, self.replay.discount, threads=threads, progress=progress)
        table = np.moveaxis(found, 2, 0)
        return Bounds(
            expected_return=table[:, :, 0],
            probability=table[:, :, 1:],
            usual_return=self.replay.usual_return,
            outcome_names=self.replay.log.outcome_names,
            tight=False,
        )

    def draws(
        self, count: int, seed: int, *, threads: int | None, progress: Progress | None
    ) -> Draws:
        """Draw both worlds; each draw has its own hidden path."""
        latent, seen, done, earned = draw_worlds(
            self.chain, count, seed, threads=threads, progress=progress
        )
        end = np.where(latent >= 0, self.model.outcome[latent], -1)
        shown = np.where(end >= 0, self.model.n_observations + end, seen)
        return Draws(self.replay.log, shown.astype(np.int32), done, earned, latent)

    def contributions(self, *, threads: int | None) -> Floats:
        """How much each observed step adds to its episode's difference, [N]."""
        return hidden_contributions(self.chain, self.replay.discount, threads=threads)

    def fewest_changes(
        self, changes: int, *, threads: int | None, progress: Progress | None
    ) -> Changes:
        """Raise an error: not available with a hidden state."""
        raise ValueError("fewest_changes: not available with a hidden state; give a TabularMDP")

    def posterior(self) -> LatentPosterior:
        """Distribution of the hidden state at each step, given the whole record."""
        return latent_posterior(self.replay.log, self.model, behavior=self.replay.behavior)

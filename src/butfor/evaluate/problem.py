"""Problem: what every estimator looks at, checked once, with the arrays that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_discount, check_horizon, check_policy
from butfor.evaluate.estimators.columns import Columns
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP
from butfor.models.planning import value_tables
from butfor.models.policies import estimate_behavior
from butfor.random import check_seed
from butfor.replay.outcomes import Counterfactuals, Draws, counterfactual_outcomes
from butfor.types import Floats


@dataclass(frozen=True)
class Problem:
    """A log, a model, the policy to judge, and how far and how much later rewards count.

    Padded arrays have a row an episode and a column a step, up to the horizon H.
    """

    episodes: Episodes  # cut to the horizon where they were longer
    model: TabularMDP
    target: Floats  # [S, A]
    behavior: Floats  # [S, A]
    probability: Floats  # [N] with which the behaviour took each logged action
    horizon: int
    discount: float
    seed: int  # of what is drawn inside an estimator
    draws: Draws | None
    known: Counterfactuals | None

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def action_noise(self) -> str:
        """How counterfactual actions come about: see `counterfactual_outcomes`."""
        return "shared" if self.known is None else self.known.action_noise

    @property
    def mechanism(self) -> Mechanism | None:
        """How counterfactual transitions come about: see `counterfactual_outcomes`."""
        return None if self.known is None else self.known.mechanism

    @cached_property
    def powers(self) -> Floats:
        """Discount to the power of each step, [H]."""
        return np.asarray(self.discount ** np.arange(self.horizon))

    @cached_property
    def returns(self) -> Floats:
        """Discounted sum of the rewards of each episode, [n]."""
        return self.episodes.returns(self.discount)

    @cached_property
    def reward(self) -> Floats:
        """Reward of each step, 0 past the end, [n, H]."""
        return self._padded(self.episodes.reward, 0.0)

    @cached_property
    def ratio(self) -> Floats:
        """Importance weight w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), [n, H].

        It is carried forward past the end.
        """
        step = self.target[self.episodes.state, self.episodes.action] / self.probability
        return np.asarray(np.cumprod(self._padded(step, 1.0), axis=1))

    @cached_property
    def ratio_before(self) -> Floats:
        """The weight one step earlier, w_{t - 1}, with w_{-1} = 1, [n, H]."""
        return np.hstack([np.ones((len(self), 1)), self.ratio[:, :-1]])

    @cached_property
    def values(self) -> Floats:
        """Model value V_h(s) of the target with h steps left, [H + 1, S]."""
        return value_tables(self.model, self.target, horizon=self.horizon, discount=self.discount)[
            0
        ]

    @cached_property
    def value(self) -> Floats:
        """V_{H - t}(s_t) at the logged states, 0 past the end, [n, H].

        An episode that stops early without an outcome has one more: the model tells what its last
        state was worth.
        """
        log = self.episodes
        table = self._padded(self.values[self.horizon - log.time, log.state], 0.0)
        length, final = log.lengths[self.censored], log.next_state[log.offsets[1:] - 1]
        left = self.horizon - length
        table[self.censored, length] = self.values[left, final[self.censored]]
        return table

    @cached_property
    def censored(self) -> NDArray[np.bool_]:
        """Episodes that stop before the horizon without an outcome, [n]."""
        return (self.episodes.outcome < 0) & (self.episodes.lengths < self.horizon)

    @cached_property
    def action_value(self) -> Floats:
        """Q_{H - t}(s_t, a_t) of the logged pairs, 0 past the end, [n, H].

        Q_h(s, a) = sum_j P(j|s, a) (r + discount V_{h - 1}(j)), nothing following an outcome.
        """
        model, log = self.model, self.episodes
        row = log.state.astype(np.int64) * model.n_actions + log.action
        left = self.horizon - log.time
        logged = np.zeros(len(row))
        for steps in range(1, self.horizon + 1):
            mine = left == steps
            later = np.append(self.values[steps - 1], np.zeros(len(model.outcomes)))
            expected = model.probability * (model.reward + self.discount * later[model.next_state])
            logged[mine] = np.add.reduceat(expected, model.start[:-1])[row[mine]]
        return self._padded(logged, 0.0)

    @cached_property
    def counterfactuals(self) -> Counterfactuals:
        """What would have happened to each episode under the target, exactly."""
        if self.known is not None:
            return self.known
        return counterfactual_outcomes(
            self.episodes,
            self.model,
            self.target,
            behavior=self.behavior,
            action_noise=self.action_noise,
            horizon=self.horizon,
            discount=self.discount,
        )

    @cached_property
    def logged(self) -> Columns:
        """The columns that are quick to compute: all but the counterfactuals, which are nan."""
        return Columns(
            episodes=np.ones(len(self)),
            returns=self.returns,
            weighted_return=self.ratio[:, -1] * self.returns,
            ratio=self.ratio,
            earned=self.ratio * self.reward,
            base=self.ratio_before * self.value,
            surprise=self.ratio * (self.reward - self.action_value),
            value=self.values[-1, self.episodes.first_state],
            counterfactual=np.full(len(self), np.nan),
            powers=self.powers,
            seed=self.seed,
        )

    @cached_property
    def columns(self) -> Columns:
        """What estimators sum, a row an episode."""
        return replace(self.logged, counterfactual=self.counterfactuals.expected_return)

    @cached_property
    def followers(self) -> int:
        """Episodes that the target might have made, to their end."""
        return int((self.ratio[:, -1] > 0).sum())

    @cached_property
    def effective(self) -> float:
        """Effective sample size of the weights at the end, (sum w)^2 / sum w^2."""
        if self.followers == 0:
            return 0.0
        scaled = self.ratio[:, -1] / self.ratio[:, -1].max()
        return float(scaled.sum() ** 2 / (scaled**2).sum())

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Episode and step of each row of the log."""
        return np.repeat(np.arange(len(self)), self.episodes.lengths), self.episodes.time

    def _padded(self, rows: Floats, beyond: float) -> Floats:
        table = np.full((len(self), self.horizon), beyond)
        table[self._places] = rows
        return table


Estimator = Callable[[Problem, Floats], Floats]  # (problem, weights [B, n]) -> values [B]


@dataclass(frozen=True)
class OnColumns:
    """An estimator of a problem that looks at its columns only."""

    function: Callable[[Columns, Floats], Floats]  # (columns, weights [B, n]) -> values [B]
    counterfactuals: bool = False  # whether it looks at these, too

    def __call__(self, problem: Problem, weights: Floats) -> Floats:
        """Evaluate it under each row of weights [B, n], [B]."""
        return self.function(problem.columns if self.counterfactuals else problem.logged, weights)


def make_problem(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    behavior_probability: ArrayLike | None = None,
    horizon: int | None = None,
    discount: float = 1.0,
    seed: int = 0,
    draws: Draws | None = None,
    counterfactuals: Counterfactuals | None = None,
) -> Problem:
    """Check what estimators are given.

    Parameters
    ----------
    behavior : [S, A], optional
        The policy that made the log; by default estimated from it.
    behavior_probability : [N], optional
        With which each logged action was taken, where the log tells; it enters the importance
        weights instead of `behavior`.
    horizon : optional
        Steps to look at; by default that of the episodes. Longer episodes are cut there.
    draws, counterfactuals : optional
        Of these episodes, model and target, for the estimators that use them; exact
        counterfactuals are computed where they are not given.
    """
    if (episodes.n_states, episodes.n_actions) != (model.n_states, model.n_actions):
        raise ValueError(
            f"the episodes have {episodes.n_states} states and {episodes.n_actions} actions, the "
            f"model {model.n_states} and {model.n_actions}; fit the model to episodes of the same "
            "kind"
        )
    steps = episodes.horizon if horizon is None else check_horizon(horizon)
    log = episodes.truncate(steps)
    shape = (model.n_states, model.n_actions)
    if behavior is None:
        known = estimate_behavior(episodes, terminal=model.terminal)
    else:
        known = check_policy(behavior, *shape, "behavior")
    if behavior_probability is None:
        probability = known[log.state, log.action]
        if not probability.all():
            row = int((probability == 0).argmax())
            raise ValueError(
                f"{log.place(row)} takes action {log.action[row]} in state {log.state[row]}, which "
                "the behavior policy gives probability 0; leave behavior out to estimate it from "
                "the log"
            )
    else:
        probability = _check_probability(behavior_probability, episodes)[episodes.time < steps]
    _check_same_episodes("draws", draws, log)
    _check_same_episodes("counterfactuals", counterfactuals, log)
    if draws is not None and draws.action.shape[2] != steps:
        raise ValueError(
            f"the draws have {draws.action.shape[2]} steps, the horizon is {steps}; draw them with "
            "sample_counterfactuals(horizon=...)"
        )
    if counterfactuals is not None and (counterfactuals.horizon, counterfactuals.discount) != (
        steps,
        discount,
    ):
        raise ValueError(
            f"the counterfactuals have horizon {counterfactuals.horizon} and discount "
            f"{counterfactuals.discount}, not {steps} and {discount}; compute them with these"
        )
    return Problem(
        episodes=log,
        model=model,
        target=check_policy(target, *shape, "target"),
        behavior=known,
        probability=probability,
        horizon=steps,
        discount=check_discount(discount),
        seed=check_seed(seed),
        draws=draws,
        known=counterfactuals,
    )


def _check_probability(given: ArrayLike, episodes: Episodes) -> Floats:
    probability = np.asarray(given, dtype=np.float64)
    if probability.shape != episodes.state.shape:
        raise ValueError(
            f"behavior_probability has shape {probability.shape}, expected "
            f"({len(episodes.state)},), one a logged decision"
        )
    wrong = ~((probability > 0) & (probability <= 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"behavior_probability of row {row} ({episodes.place(row)}) is {probability[row]}; "
            "what was done had a probability above 0 and at most 1"
        )
    return probability


def _check_same_episodes(name: str, given: Draws | Counterfactuals | None, log: Episodes) -> None:
    if given is not None and (
        len(given.episodes) != len(log) or (given.episodes.id != log.id).any()
    ):
        raise ValueError(
            f"the {name} are of {len(given.episodes)} other episodes than the {len(log)} given; "
            f"make them of these episodes"
        )

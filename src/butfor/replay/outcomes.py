"""Counterfactuals of whole episodes: exact outcome probabilities, and trajectories to look at.

Given an observed episode the noises of its steps are independent, so that under another policy
the states form a Markov chain that changes with time: at step t each row P(.|s, a) is replaced
by its counterfactual given the transition seen at t, and past the observed end it is P itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_discount, check_whole
from butfor.hidden.chain import (
    draw_worlds,
    drawn_outcomes,
    exact_outcomes,
    hidden_contributions,
)
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import BeliefPolicy, Policy
from butfor.hidden.task import HiddenTask
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP
from butfor.random import episode_keys
from butfor.replay.task import expected_outcomes, prepare
from butfor.types import Floats, Integers, Progress

TIE = 1e-12  # outcomes whose probabilities differ by less are tied


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """What would have happened to each of n episodes under the target, exactly."""

    episodes: Episodes  # cut to the horizon where they were longer
    probability: Floats  # [n, O + 1] of each outcome; the last column is that of none
    expected_return: Floats  # [n]
    observed_return: Floats  # [n]
    horizon: int
    discount: float
    action_noise: str
    mechanism: Mechanism | None = None  # None: Gumbel-Max
    draws: int | None = None  # None: exact; else probabilities are shares of so many draws
    left_out: Floats | None = None  # [n] mass that went on by the model alone; None: none did

    @property
    def difference(self) -> Floats:
        """Expected return under the target less the observed return, [n]."""
        return self.expected_return - self.observed_return

    @property
    def most_likely(self) -> NDArray[np.int64]:
        """Most likely outcome of each episode, -1 for none, [n]; a tie goes to the earlier one."""
        best = self.probability.max(axis=1, keepdims=True)
        first = (self.probability >= best - TIE).argmax(axis=1)
        return np.where(first == self.probability.shape[1] - 1, -1, first)

    @property
    def outcome_names(self) -> list[str]:
        """Names of the outcomes in the order of the columns, none last."""
        return [*(outcome.name for outcome in self.episodes.outcomes), self.episodes.none_name]

    def frame(self) -> pd.DataFrame:
        """Return a row an episode: what was observed, what would have been, the difference."""
        names = np.array(self.outcome_names, dtype=object)
        columns = {
            "id": self.episodes.id,
            "length": self.episodes.lengths,
            "observed_outcome": names[self.episodes.outcome],
            "observed_return": self.observed_return,
        }
        for column, name in enumerate(self.outcome_names[:-1]):
            columns[f"p_{name}"] = self.probability[:, column]
        columns["p_none"] = self.probability[:, -1]
        return pd.DataFrame(
            columns
            | {
                "expected_return": self.expected_return,
                "difference": self.difference,
                "most_likely": names[self.most_likely],
            }
        )

    def table(self, *, expected: bool = False) -> pd.DataFrame:
        """Count episodes by observed (rows) and counterfactual outcome (columns).

        By most likely outcome, or with `expected` by probability; none stands last.
        """
        size = len(self.outcome_names)
        counts = np.zeros((size, size), dtype=np.float64 if expected else np.int64)
        if expected:
            np.add.at(counts, self.episodes.outcome, self.probability)
        else:
            np.add.at(counts, (self.episodes.outcome, self.most_likely), 1)
        return pd.DataFrame(
            counts,
            index=pd.Index(self.outcome_names, name="observed"),
            columns=pd.Index(self.outcome_names, name="under the target"),
        )


@dataclass(frozen=True, eq=False)
class Draws:
    """Counterfactual trajectories of n episodes, `draws` of each, over at most `horizon` steps.

    States S + o are outcomes; -1 stands for what lies beyond an end. Where the state is hidden
    they are what is seen of it.
    """

    episodes: Episodes
    state: Integers  # [n, draws, horizon + 1]
    action: Integers  # [n, draws, horizon]
    reward: Floats  # [n, draws, horizon]
    latent: Integers | None = None  # [n, draws, horizon + 1] the hidden state, if there is one

    @property
    def outcome(self) -> Integers:
        """Outcome of each draw, -1 for none, [n, draws]."""
        last = self.state.max(axis=2)
        return np.where(last >= self.episodes.n_states, last - self.episodes.n_states, -1)

    def returns(self, discount: float = 1.0) -> Floats:
        """Discounted sum of rewards of each draw, [n, draws]."""
        return np.asarray(self.reward @ discount ** np.arange(self.reward.shape[2]))


def counterfactual_outcomes(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
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
    """Say for each episode, exactly, how it would have ended under the target policy.

    Parameters
    ----------
    target : [S, A]
        The policy to judge. With a TabularPOMDP: [Z, A] on the last observation, or a
        FiniteController, LatentPolicy or BeliefPolicy.
    behavior : [S, A], optional
        The policy that made the log; by default estimated from it. It matters where the target
        is random and `action_noise` is shared; and where it saw a hidden state (LatentPolicy),
        which its actions then tell of.
    mechanism
        How transitions come about; by default `GumbelMax()`. Shared noise of actions is Gumbel-Max
        noise whatever is given here.
    action_noise : "shared" or "fresh"
        Shared: what made the observed action come about is part of the patient, so that a target
        equal to the behaviour gives back every episode. Fresh: actions are drawn anew.
    horizon : optional
        Steps to look at; by default that of the episodes. Longer episodes are cut there.
    continuation
        Whether an episode that ended goes on, by the model alone, up to the horizon where the
        target would not have ended it. Otherwise it stops after as many steps as were observed.
    negligible : optional
        Where the model is large the mass of an episode spreads over many states. One that a step
        finds with less than this goes on by the model alone, as if nothing were known of the
        patient; `left_out` [n] is what went so. No probability is off by more than that, and no
        expected return by more than that times the range of returns. 0 leaves out nothing.
    draws, seed
        Only for a policy on beliefs, whose memory has no end: its probabilities are shares of so
        many draws.
    progress : optional
        Called with (episodes done, episodes in all).

    Notes
    -----
    Causal if the model is right, the state (a hidden one included) holds what moved both treatment
    and course, and transitions come about by the mechanism: none of these can be seen in the data.
    """
    number, left_out = None, None
    if not 0 <= negligible < 1:
        raise ValueError(f"negligible {negligible}: give a probability below 1")
    task = prepare(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        continuation=continuation,
    )
    log = task.episodes
    if isinstance(task, HiddenTask):
        if negligible:
            raise ValueError("negligible: not where the state is hidden; leave it out")
        if isinstance(target, BeliefPolicy):
            number = check_whole(draws, "draws", 1, "a whole number")
            probability, expected_return = drawn_outcomes(
                task, number, seed, discount, threads=threads, progress=progress
            )
        else:
            probability, expected_return = exact_outcomes(
                task, check_discount(discount), threads=threads, progress=progress
            )
    else:
        probability, expected_return, left_out, _ = expected_outcomes(
            task, discount, negligible=negligible, threads=threads, progress=progress
        )
    return Counterfactuals(
        episodes=log,
        probability=probability,
        expected_return=expected_return,
        observed_return=log.returns(discount),
        horizon=task.horizon,
        discount=float(discount),
        action_noise=action_noise,
        mechanism=mechanism,
        draws=number,
        left_out=left_out if negligible else None,
    )


def sample_counterfactuals(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
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

    They come from the same chain as `counterfactual_outcomes`, one uniform number a decision, and
    depend on the seed and the episode's id only: not on threads, nor on the other episodes. Up to
    the first action that differs, every draw is the observed episode. Where the state is hidden,
    each draw has a hidden path of its own.
    """
    check_whole(draws, "draws", 1, "a whole number")
    task = prepare(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        continuation=continuation,
    )
    log = task.episodes
    if isinstance(task, HiddenTask):
        latent, seen, done, earned = draw_worlds(
            task, draws, seed, threads=threads, progress=progress
        )
        end = np.where(latent >= 0, task.model.outcome[latent], -1)
        shown = np.where(end >= 0, task.model.n_observations + end, seen)
        return Draws(log, shown.astype(np.int32), done, earned, latent)
    keys = episode_keys(seed, log.id, "counterfactual")
    state = np.full((len(log), draws, task.horizon + 1), -1, dtype=np.int32)
    action = np.full((len(log), draws, task.horizon), -1, dtype=np.int32)
    reward = np.zeros((len(log), draws, task.horizon))

    task.run(
        lambda first, last, work: kernels.draw_counterfactuals(
            first, last, task.problem, work, keys, state, action, reward
        ),
        threads=threads,
        progress=progress,
    )
    return Draws(episodes=log, state=state, action=action, reward=reward)


def draws_needed(precision: float, confidence: float = 0.95) -> int:
    """Draws that estimate any probability to within `precision`, with this confidence.

    Hoeffding: 2 exp(-2 n precision^2) <= 1 - confidence. The paper's footnote asks for it; the
    exact answer needs none.
    """
    if not 0 < precision < 1:
        raise ValueError(f"precision {precision}: give a number between 0 and 1")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence}: give a number between 0 and 1")
    return int(np.ceil(np.log(2 / (1 - confidence)) / (2 * precision**2)))


def step_contributions(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    threads: int | None = None,
) -> Floats:
    """Say how much each observed step adds to its episode's difference, [N].

    With V_t the counterfactual value under the target from step t on, step t adds
    discount^t (V_t(s_t) - r_t - discount V_{t+1}(s_{t+1})): what the target would have gained had
    it taken over here rather than one step later. The terms of an episode add up to its difference,
    less what the model lets follow after the observed end.
    """
    task = prepare(
        episodes,
        model,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
    )
    if isinstance(task, HiddenTask):
        return hidden_contributions(task, check_discount(discount), threads=threads)
    log = task.episodes
    # the rest of an episode from each of its steps on, as an episode of its own
    of_row = np.repeat(np.arange(len(log)), log.lengths)
    rest = task.problem.log._replace(
        start=np.arange(len(log.state)),
        stop=log.offsets[1:][of_row],
        left=task.problem.log.left[of_row],
        outcome=log.outcome[of_row],
    )
    _, here, _, after = expected_outcomes(task.with_log(rest), discount, threads=threads)
    ends = log.offsets[1:] - 1
    following = np.append(here[1:], 0.0)
    over = (log.outcome >= 0) & (task.model.terminal == "visits")
    following[ends] = np.where(over, 0.0, after[task.problem.log.left, log.next_state[ends]])
    return np.asarray(discount**log.time * (here - log.reward - discount * following))


def rank_flags(result: Counterfactuals, count: int) -> NDArray[np.int64]:
    """Rank of each flagged episode from 1 on, 0 for the others, [n].

    Flagged are the first `count` by absolute difference, in either direction, among episodes whose
    most likely outcome differs from the observed one; the earlier episode first where they tie.
    """
    differs, size = flag_sizes(result)
    order = differs[np.argsort(-size, kind="stable")][:count]
    rank = np.zeros(len(result.episodes), dtype=np.int64)
    rank[order] = np.arange(1, len(order) + 1)
    return rank


def flag_sizes(result: Counterfactuals) -> tuple[NDArray[np.int64], Floats]:
    """Positions of episodes whose most likely outcome differs, and by how much their return does.

    Differences equal up to rounding are equal.
    """
    differs = np.flatnonzero(result.most_likely != result.episodes.outcome)
    return differs, np.asarray(np.round(np.abs(result.difference[differs]), 9), dtype=np.float64)

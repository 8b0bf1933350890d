"""EpisodeColumns: what is known about a log in memory, one row per episode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.decomposition import Pieces, pieces_of
from butfor.evaluate.estimators.columns import GROUPS, STEPPED, Columns, group_of
from butfor.evaluate.past_counts import PastCounts
from butfor.models.policies import action_counts
from butfor.random import shard_keys
from butfor.replay.draws import Draws
from butfor.replay.engine import Model
from butfor.replay.replay import Replay
from butfor.replay.usual import null_changes
from butfor.replay.values import Values
from butfor.types import Floats, Keys


@dataclass(frozen=True, eq=False)
class EpisodeColumns:
    """What estimators sum over the n episodes of a question: a `Sample` whose rows are episodes.

    Padded arrays have one row per episode and one column per step, up to the horizon H.
    """

    replay: Replay
    seed: int = 0  # for estimators that draw
    draws: Draws | None = None  # for the estimator that averages them
    keys: Keys | None = None  # [n] of the episodes, from which groups follow, if they are known

    def __post_init__(self) -> None:
        if self.draws is None:
            return
        log, given = self.replay.log, self.draws.episodes
        if len(given) != len(log) or (given.id != log.id).any():
            raise ValueError(
                f"the draws are of {len(given)} episodes that differ from the {len(log)} given; "
                "draw them for these episodes"
            )
        if self.draws.action.shape[2] != self.replay.horizon:
            raise ValueError(
                f"the draws have {self.draws.action.shape[2]} steps, but the horizon is "
                f"{self.replay.horizon}; draw them with the same horizon"
            )

    def __len__(self) -> int:
        return len(self.replay)

    @cached_property
    def group(self) -> NDArray[np.int64] | None:
        """Group of each episode, the same as in shards, if there are more episodes than groups."""
        if len(self) <= GROUPS:
            return None
        keys = shard_keys(self.replay.log.unit, self.seed) if self.keys is None else self.keys
        return group_of(keys)

    @cached_property
    def discounts(self) -> Floats:
        """Discount of each step and of the state after the last one, 0 past that, [n, H]."""
        log, discount = self.replay.log, self.replay.discount
        row = discount**log.elapsed
        table, (short,) = self._padded(row, 0.0), np.nonzero(log.lengths < self.replay.horizon)
        last = log.offsets[1:][short] - 1
        table[short, log.lengths[short]] = row[last] * log.step_discounts(discount)[last]
        return table

    @cached_property
    def returns(self) -> Floats:
        """Return of each episode that counterfactuals are compared with, [n]."""
        return self.replay.usual_return

    @cached_property
    def reward(self) -> Floats:
        """Reward of each step, 0 past the end, [n, H]."""
        return self._padded(self.replay.log.reward, 0.0)

    @cached_property
    def probability(self) -> Floats:
        """Probability with which the behavior took each logged action, [N]."""
        replay, log = self.replay, self.replay.log
        if log.behavior_probability is not None:
            return log.behavior_probability
        probability = replay.behavior_table[log.state, log.action]
        if not probability.all():
            row = int((probability == 0).argmax())
            raise ValueError(
                f"{log.place(row)} takes action {log.action[row]} in state {log.state[row]}, which "
                "the behavior policy gives probability 0; leave behavior out to estimate it from "
                "the log"
            )
        return probability

    @cached_property
    def ratio(self) -> Floats:
        """Importance weight w_t = prod_{u <= t} pi(a_u|s_u) / pi_b(a_u|s_u), [n, H].

        The last weight is carried forward past the end. If the question has hazards of being lost,
        staying is part of each decision but the first: it is divided by its probability, and the
        weight of an episode that was lost is 0 from there on.
        """
        replay, log = self.replay, self.replay.log
        step = replay.taken() / self.probability
        if replay.hazard is None:
            return np.asarray(np.cumprod(self._padded(step, 1.0), axis=1))
        stay = np.where(log.time > 0, 1 - replay.hazard[log.state], 1.0)
        if not stay.all():
            row = int((stay == 0).argmax())
            raise ValueError(
                f"{log.place(row)} stays in state {log.state[row]}, whose hazard is 1; estimate "
                "hazards from the same log"
            )
        table = self._padded(step / stay, 1.0)
        table[replay.stopped, log.lengths[replay.stopped]] = 0.0
        return np.asarray(np.cumprod(table, axis=1))

    @cached_property
    def ratio_before(self) -> Floats:
        """The weight one step earlier, w_{t - 1}, with w_{-1} = 1, [n, H]."""
        return np.hstack([np.ones((len(self), 1)), self.ratio[:, :-1]])

    @cached_property
    def logged(self) -> Columns:
        """All columns but the counterfactuals, which are nan because they take longer."""
        single = {
            "episodes": np.ones(len(self)),
            "recorded": self.replay.observed_return,
            "returns": self.returns,
            "value": self.replay.engine.first_values(),
            "counterfactual": np.full(len(self), np.nan),
        }
        if self.replay.hidden:  # no weights: actions may depend on what the log does not record
            single["weighted_return"] = np.full(len(self), np.nan)
            stepped = dict.fromkeys(STEPPED, np.empty((len(self), 0)))
            return Columns(**single, **stepped, seed=self.seed, group=None)
        base, surprise = self._corrections(self.replay.engine.logged_values())
        return Columns(
            **single,
            weighted_return=self.ratio[:, -1] * self.replay.observed_return,
            ratio=self.ratio,
            earned=self.discounts * self.ratio * self.reward,
            base=base,
            surprise=surprise,
            seed=self.seed,
            group=self.group,
        )

    def in_model(self, model: Model) -> Columns:
        """Return the columns that weigh residuals, in another model; the others stay."""
        asked = self.replay.ask(model=model, behavior=self.replay.behavior)
        base, surprise = self._corrections(asked.engine.logged_values())
        return replace(self.logged, base=base, surprise=surprise)

    @cached_property
    def columns(self) -> Columns:
        """What estimators sum, one row per episode."""
        return replace(self.logged, counterfactual=self.replay.outcomes().expected_return)

    # about all episodes together, as `Sample` has it

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.replay)

    @property
    def steps(self) -> int:
        """Number of logged steps up to the horizon."""
        return len(self.replay.log.state)

    @property
    def censored(self) -> int:
        """Number of episodes that stop before the horizon without an outcome."""
        return int(self.replay.stopped.sum())

    @property
    def usual(self) -> tuple[Floats, float]:
        """Share of each outcome [O + 1], and steps, expected of what is compared with."""
        replay = self.replay
        return replay.usual.probability.mean(axis=0), float(replay.usual_steps.sum())

    @property
    def spread(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    @cached_property
    def followers(self) -> int:
        """Number of episodes in which the target might have taken every action."""
        return int((self.ratio[:, -1] > 0).sum())

    @cached_property
    def effective(self) -> float:
        """Effective sample size of the final weights, (sum w)^2 / sum w^2."""
        if self.followers == 0:
            return 0.0
        scaled = self.ratio[:, -1] / self.ratio[:, -1].max()
        return float(scaled.sum() ** 2 / (scaled**2).sum())

    @property
    def unsupported(self) -> float:
        """Mean probability that a counterfactual ever uses a pair never seen."""
        return float(self.replay.support().mean())

    @property
    def unsupported_in_model(self) -> float:
        """The same for new episodes from the same starts."""
        return float(self.replay.engine.unsupported_in_model().mean())

    @cached_property
    def null(self) -> tuple[int, int]:
        """Episodes checked for, and changed by, a policy equal to the behavior."""
        changed = null_changes(self.replay)
        return len(changed), int(changed.sum())

    @property
    def counts(self) -> NDArray[np.int64]:
        """Logged decisions, [S, A]."""
        return self.replay.counts

    @property
    def decisions(self) -> NDArray[np.int64]:
        """Logged decisions up to the horizon, [S, A]."""
        return action_counts(self.replay.log)

    @property
    def first(self) -> NDArray[np.int64]:
        """Episodes by first state, [S]."""
        return np.bincount(self.replay.log.first_state, minlength=self.replay.log.n_states)

    @property
    def influence(self) -> tuple[float, float]:
        """Medians over the episodes of `Steps.share_about` and `Steps.share_after`."""
        walked = self.replay.steps()
        return float(np.median(walked.share_about)), float(np.median(walked.share_after))

    @property
    def past(self) -> PastCounts:
        """Logged transitions by what preceded them, if states can be enumerated."""
        return PastCounts.of_log(self.replay.episodes)

    @cached_property
    def pieces(self) -> Pieces:
        """The sums that the decomposition is made of."""
        return pieces_of(self.replay.outcomes())

    def _corrections(self, values: Values) -> tuple[Floats, Floats]:
        """Return `base` and `surprise`, given the values at the logged steps, [n, H] each.

        A censored episode has one more value: that of its last state in the model.
        """
        before, after, last = self._discounted
        base, stopped = self._padded(before * values.state, 0.0), self.replay.stopped
        base[stopped, self.replay.log.lengths[stopped]] = last * values.final[stopped]
        surprise = after * (self.replay.log.reward - values.action)
        return base, self._padded(surprise, 0.0)

    @cached_property
    def _discounted(self) -> tuple[Floats, Floats, Floats]:
        """Discounted weights before and after each logged step [N], and at censored ends."""
        before, after = self.discounts * self.ratio_before, self.discounts * self.ratio
        stopped = self.replay.stopped
        last = before[stopped, self.replay.log.lengths[stopped]]
        return before.ravel()[self._places], after.ravel()[self._places], last

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Place of each row of the log in a padded array, [N]."""
        log, horizon = self.replay.log, self.replay.horizon
        return np.repeat(np.arange(len(self)) * horizon, log.lengths) + log.time

    def _padded(self, rows: Floats, beyond: float) -> Floats:
        table = np.full(len(self) * self.replay.horizon, beyond)
        table[self._places] = rows
        return table.reshape(len(self), -1)

"""Learning from counts: the models, the target, and all else that judging a shard needs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.audit.learning import factored_learner, mask_of, plan, rules_of, tabular_learner
from butfor.audit.settings import FACTORED, AuditSettings, factored_options
from butfor.audit.shards.count import ACTION, FOLDS, HALF, STATE, Counts
from butfor.evaluate.crossfit import Learned
from butfor.evaluate.diagnostics.calibration import bad_chances, bad_outcomes
from butfor.evaluate.past_counts import PastCounts, past_names
from butfor.evaluate.rehearsal import SPLITS, Rehearsal, hidden_groups, rehearse_halves
from butfor.log.episodes import Episodes
from butfor.log.read import group_variables
from butfor.log.sections import Study
from butfor.log.variables import Variable, project
from butfor.models.factored import tabular
from butfor.models.fit import count_again, differs_from, varying_rewards
from butfor.models.fit_factored import learn_factored
from butfor.models.fixed import fixed_factors
from butfor.models.mdp import TabularMDP, total_by
from butfor.models.planning import values_and_chances
from butfor.models.policies import behavior_of
from butfor.models.row_policy import divide_sums
from butfor.models.transitions import Transitions, join_transitions, merge_transitions
from butfor.random import numbered_keys
from butfor.replay.observed import unsupported_by_state
from butfor.types import Floats, Integers, Offsets

BOTH = (0, 1)
Fit = Callable[[Transitions], Learned]
Plan = Callable[[Learned], Floats]


@dataclass(frozen=True, eq=False)
class Half:
    """The model of one half of the log, and the value in it of the other half's target."""

    model: Learned
    target: Floats  # [S, A]
    value: Floats  # [S] of that target in this model
    outcomes: Floats  # [S, O + 1] probability of outcomes under it, none last
    unsupported: Floats  # [S] probability that it ever uses a pair never seen in this half
    chance: Floats  # [H + 1, S] of a bad outcome under this half's behavior, by steps left
    seen: NDArray[np.bool_]  # [S] states that this half visits


class Tally:
    """The counts of the whole log with its variables, from which models are learned."""

    def __init__(self, counts: Counts, study: Study) -> None:
        self.counts = counts
        self.study = settle(study, counts)
        self.state_variables = group_variables(self.study, "state", counts.states)
        self.action_variables = group_variables(self.study, "action", counts.actions)
        self.outcomes = tuple(self.study.outcomes().values())

    @property
    def side_variables(self) -> tuple[Variable, ...]:
        """Side columns that have a level in every row of the log."""
        found = (section.variable(column) for column, section in self.study.side.items())
        return tuple(v for v in found if v is not None and v.name in self.counts.complete)

    def visits(self) -> NDArray[np.int64]:
        """Logged transitions by state and action, [S, A]."""
        counts = self.counts
        total = np.zeros((counts.states, counts.actions), dtype=np.int64)
        np.add.at(total, _unpack(counts.keys)[:2], counts.number)
        return total

    def transitions(self, *halves: int) -> Transitions:
        """Return the distinct transitions of one half or both."""
        return merge_transitions([self._rows(half, self.counts.number) for half in halves])

    def counted(self) -> Transitions:
        """Return the transitions as they were counted, those of both halves apart, [E]."""
        return join_transitions([self._rows(half, self.counts.number) for half in BOTH])

    def folded(self, chosen: NDArray[np.bool_]) -> Transitions:
        """Return the distinct transitions of the chosen folds, [FOLDS].

        Where the reward of a transition varies, it is the mean over all folds.
        """
        number = self.logged(chosen.astype(np.float64)).astype(np.int64)
        rows = merge_transitions([self._rows(half, number) for half in BOTH])
        return replace(rows, first=self.starts()[chosen].sum(axis=0))

    def split_folds(self, seed: int, splits: int, purpose: str) -> list[list[Transitions]]:
        """Split the folds into halves at random; a half without an episode makes no split."""
        found, starts = [], self.starts()
        for key in numbered_keys(seed, splits, purpose).tolist():
            chosen = np.zeros(FOLDS, bool)
            order = np.random.Generator(np.random.PCG64(key)).permutation(FOLDS)
            chosen[order[: FOLDS // 2]] = True
            sides = chosen, ~chosen
            if all(starts[side].any() for side in sides):
                found.append([self.folded(side) for side in sides])
        return found

    def logged(self, weights: Floats) -> Floats:
        """Count the transitions with weights on the folds, [E]."""
        entry, fold, number = self.counts.folded
        return total_by(entry, number * weights[fold], len(self.counts.keys))

    def hazard(self, horizon: int) -> Floats:
        """Probability of being lost in each state, [S]; see `censoring_hazard`."""
        counts, lost = self.counts, np.zeros(self.counts.states, np.int64)
        state, length, number = counts.stops
        early = length < horizon
        np.add.at(lost, state[early], number[early])
        stayed = self.visits().sum(axis=1) - counts.first.sum(axis=0)
        return np.asarray(lost / np.maximum(lost + stayed, 1))

    def starts(self) -> NDArray[np.int64]:
        """Count the episodes by fold and first state, [FOLDS, S]."""
        found = np.zeros((FOLDS, self.counts.states), np.int64)
        state, fold, number = self.counts.starts
        found[fold, state] = number
        return found

    @cached_property
    def rewards(self) -> Floats:
        """Sums of the rewards of the counted transitions, and of their squares, [E, 2]."""
        return self.counts.reward.values()

    def _rows(self, half: int, number: NDArray[np.int64]) -> Transitions:
        """Return the transitions of a half that were logged, if so often."""
        counts = self.counts
        mine = np.flatnonzero((counts.keys >> HALF == half) & (number > 0))
        state, action, reached = _unpack(counts.keys[mine])
        sums = self.rewards[mine] * (number / counts.number)[mine, None]
        return Transitions(
            state_variables=self.state_variables,
            action_variables=self.action_variables,
            outcomes=self.outcomes,
            state=state,
            action=action,
            next_state=reached,
            end=counts.end[mine],
            weight=number[mine],
            reward=sums[:, 0],
            squares=sums[:, 1],
            lowest=counts.low[mine],
            highest=counts.high[mine],
            first=counts.first[half],
        )

    def past(self) -> PastCounts:
        """Return the transitions by what preceded them."""
        entry, level, number = self.counts.past
        state, action, follows = (part[entry] for part in self._entries())
        return PastCounts(past_names(self.state_variables), level, state, action, follows, number)

    def warnings(self) -> list[str]:
        """Return the warnings about the counts."""
        state, action, follows = self._entries()
        size = self.counts.states + len(self.outcomes)
        key = (state * self.counts.actions + action) * size + follows
        distinct, place = np.unique(key, return_inverse=True)
        low, high = np.full(len(distinct), np.inf), np.full(len(distinct), -np.inf)
        np.minimum.at(low, place, self.counts.low)
        np.maximum.at(high, place, self.counts.high)
        varies = differs_from(high, low)
        if not varies.any():
            return []
        first = divmod(int(distinct[varies][0]) // size, self.counts.actions)
        where = "first in state {}, action {}".format(*first)
        return [varying_rewards(int(varies.sum()), where)]

    def labels(self, names: tuple[str, ...]) -> Integers | None:
        """Label each state by the levels of these variables, [S]; None without names."""
        return project(self.state_variables, *names) if names else None

    def example(self) -> Episodes:
        """Return a small log with the same variables, in which each visited state occurs once.

        What the log's own policy does is its average there.
        """
        visits = self.visits().sum(axis=1)
        state = np.flatnonzero(visits)
        log = Episodes.from_arrays(
            state,
            np.zeros_like(state),
            state,
            offsets=np.arange(len(state) + 1),
            states=self.state_variables,
            actions=self.action_variables,
            outcomes=self.outcomes,
            none_name=self.study.words.none,
        )
        if self.counts.wanted.limbs.size == 0:
            return log
        return log.with_target_probability(divide_sums(self.counts.wanted.values(), visits)[state])

    def _entries(self) -> tuple[Offsets, Offsets, Offsets]:
        """State, action, and state or outcome reached, of each counted transition, [E]."""
        counts = self.counts
        state, action, reached = _unpack(counts.keys)
        ended = counts.end < len(self.outcomes)
        return state, action, np.where(ended, counts.states + counts.end, reached)


def fit_transitions(
    rows: Transitions, *, unseen: str | None, prior: float, labels: Integers | None
) -> TabularMDP:
    """Learn a tabular model from counted transitions."""
    counted = count_again(rows, unseen=unseen, prior=prior)
    return counted.model() if labels is None else counted.labelled(labels)


def _unpack(keys: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Return state, action and next state (-1: unknown) of packed transitions."""
    packed = keys & ((1 << HALF) - 1)
    action = (packed >> ACTION) & ((1 << (STATE - ACTION)) - 1)
    return packed >> STATE, action, (packed & ((1 << ACTION) - 1)) - 1


def settle(study: Study, counts: Counts) -> Study:
    """Return the study completed from the whole log: sizes, and rewards of outcomes."""
    columns = study.columns.model_copy(update={"states": counts.states, "actions": counts.actions})
    mean = counts.last_reward.values()[:-1, 0] / np.maximum(counts.ends, 1)
    given = study.columns.reward is not None
    ends = {
        value: ending.model_copy(
            update={"reward": float(mean[o]) if given else 0.0} if ending.reward is None else {}
        )
        for o, (value, ending) in enumerate(study.outcome.items())
    }
    return study.model_copy(update={"columns": columns, "outcome": ends})


def plan_of(tally: Tally, chosen: AuditSettings) -> Plan:
    """Return the function that plans a policy in a model."""
    study = tally.study
    discount, rules = study.evaluation.planning_discount, rules_of(study)
    allowed = rules.allowed(tally.state_variables, tally.action_variables) if rules else None
    return lambda model: (
        plan(model, discount=discount, caution=chosen.caution, allowed=allowed).table
    )


def learn_halves(tally: Tally, fit: Fit, make: Plan, *, horizon: int) -> tuple[Half, ...]:
    """Learn model and target of each half, and evaluate each target in the other model."""
    if not tally.counts.first.sum(axis=1).all():
        return ()
    models = [fit(tally.transitions(half)) for half in BOTH]
    targets = [make(model) for model in models[::-1]]
    bad = bad_outcomes(tally.outcomes)
    return tuple(
        _judging_half(model, target, horizon, tally.study.evaluation.discount, bad)
        for model, target in zip(models, targets, strict=True)
    )


def _judging_half(
    model: Learned, target: Floats, horizon: int, discount: float, bad: NDArray[np.bool_]
) -> Half:
    rows = tabular(model)
    value, outcomes = values_and_chances(rows, target, horizon=horizon, discount=discount)
    return Half(
        model=model,
        target=target,
        value=value,
        outcomes=outcomes,
        unsupported=unsupported_by_state(rows, target, horizon=horizon),
        chance=bad_chances(rows, behavior_of(rows.counts), horizon, bad),
        seen=rows.counts.sum(axis=1) > 0,
    )


def fit_of(tally: Tally, chosen: AuditSettings) -> Fit:
    """Return the function that learns a model from counted transitions."""
    study = tally.study
    if chosen.kind(study, tally.state_variables, tally.action_variables) == FACTORED:
        options = factored_options(study)
        fixed = fixed_factors(tally.transitions(*BOTH))
        return lambda rows: learn_factored(rows, **options, known=fixed)
    labels = tally.labels(chosen.noise(study))
    return lambda rows: fit_transitions(
        rows, unseen=chosen.unseen, prior=chosen.prior, labels=labels
    )


def rehearse_tally(
    tally: Tally, chosen: AuditSettings, *, horizon: int, observed: float
) -> Rehearsal | None:
    """Rehearse the method that learned the target, by splits of the folds, if that is asked for.

    `observed` is the mean return in the log.
    """
    study = tally.study
    halves = tally.split_folds(chosen.seed, SPLITS, "rehearsal")
    parts = [part for pair in halves for part in pair]
    if not parts or not all(chosen.rehearses(study, part) for part in parts):
        return None
    shared: dict[str, Any] = {
        "discount": study.evaluation.planning_discount,
        "caution": chosen.caution,
        "mask": mask_of(rules_of(study), parts[0]),
    }
    if chosen.kind(study, tally.state_variables, tally.action_variables) == FACTORED:
        whole = tally.transitions(*BOTH)
        learn = factored_learner(whole, **factored_options(study), **shared)
    else:
        learn = tabular_learner(unseen=chosen.unseen, prior=chosen.prior, **shared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told of the whole log already
        return rehearse_halves(
            halves,
            learn,
            splits=len(halves),
            hidden=hidden_groups(tally.state_variables),
            horizon=horizon,
            discount=study.evaluation.discount,
            observed=observed,
        )

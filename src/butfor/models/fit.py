"""Learn a TabularMDP from a log by counting."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_choice, check_pseudo_count
from butfor.log.combinations import state_durations
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome
from butfor.models.given import coalesce
from butfor.models.mdp import TabularMDP, assemble, total_by
from butfor.models.plan import Taught
from butfor.models.policies import TERMINALS, action_counts, check_final_states, final_states
from butfor.models.transitions import Transitions
from butfor.types import Floats, Offsets


def fit_mdp(
    episodes: Episodes,
    *,
    terminal: str = "visits",
    unseen: str | None = None,
    prior: float = 0.0,
    labels: ArrayLike | None = None,
) -> TabularMDP:
    """Learn a model from the transitions of a log by counting.

    Parameters
    ----------
    terminal : "visits" or "icml2019"
        How ends are counted. `visits`: the last transition of an episode with an outcome leads
        straight into it. `icml2019`: it leads to the final state, and each distinct unreduced
        final state adds one count, for every action, from its state into its outcome (as in the
        paper's published code; kept to reproduce its numbers).
    unseen : optional
        Where a state-action pair that never occurs leads: the name of an outcome (default: the one
        of lowest reward); "uniform", over what followed that state under any action; or
        "self-loop". With the last two, states that were never left loop.
    prior : number, optional
        Added, in the rows of observed pairs, to the count of every outcome and of every next state
        that followed the state under any action.
    labels : optional
        See `TabularMDP.with_labels`.

    Notes
    -----
    The reward of a transition is the mean of those logged, with a warning where they vary. An
    outcome has no state, so its reward is a mean over the states reached there as well. The model
    is causal only if the log's states contain everything that influenced both the actions
    and the course.
    """
    counted = count_transitions(episodes, terminal=terminal, unseen=unseen, prior=prior)
    model = counted.model() if labels is None else counted.labelled(labels)
    again = partial(fit_mdp, terminal=terminal, unseen=unseen, prior=prior, labels=labels)
    return replace(model, taught=Taught(episodes.origin, episodes.id, again))


@dataclass(frozen=True, eq=False)
class Counted:
    """The weighted transitions of a log, from which a model is made.

    An entry is a row s A + a and its next state, as the key row * (S + O) + next, increasing.
    """

    keys: Offsets  # [E]
    weight: Floats  # [E] counts plus the prior; 1 in rows that were never observed
    reward: Floats  # [E]
    first: NDArray[np.int64]  # [S] episodes that start in each state
    counts: NDArray[np.int64]  # [S, A] logged transitions
    outcomes: tuple[Outcome, ...]
    made_up: NDArray[np.bool_]  # [S, A] rows that follow from the rule for unseen pairs
    terminal: str
    prior: float
    mixed: bool  # whether a prior or the rule combines next states of all actions in one row
    durations: Floats | None  # [S] see TabularMDP

    def model(self) -> TabularMDP:
        """Return the model whose rows are proportional to the weights."""
        states, actions = self.counts.shape
        return assemble(
            self.keys,
            self.weight,
            self.reward,
            states=states,
            actions=actions,
            outcomes=self.outcomes,
            labels=None,
            initial=self.first / self.first.sum(),
            counts=self.counts,
            unseen=self.made_up,
            terminal=self.terminal,
            prior=self.prior,
            durations=self.durations,
        )

    def labelled(self, labels: ArrayLike) -> TabularMDP:
        """Return the model with noise on these labels."""
        try:
            return self.model().with_labels(labels)
        except ValueError as error:
            if self.mixed:
                error.add_note(
                    "A prior and unseen='uniform' combine next states of all actions in one row; "
                    "use neither with these labels."
                )
            raise


def count_transitions(
    episodes: Episodes, *, terminal: str, unseen: str | None, prior: float
) -> Counted:
    """Count the transitions of a log; see `fit_mdp` for the rules."""
    check_choice(terminal, "terminal", TERMINALS)
    check_rules(episodes.outcomes, unseen, prior)
    states, actions, ends = episodes.n_states, episodes.n_actions, episodes.outcomes
    columns = states + len(ends)
    row = episodes.state.astype(np.int64) * actions + episodes.action
    logged = row * columns + destinations(episodes, terminal)
    earned = step_rewards(episodes, terminal)
    keys, weight, reward = coalesce(logged, np.ones(len(row)), earned)
    _warn_of_varying_rewards(episodes, logged, earned, reward[np.searchsorted(keys, logged)])

    if terminal == "icml2019":
        finals = final_states(episodes)
        state, end = np.nonzero(finals)
        extra = ((state[:, None] * actions + np.arange(actions)) * columns).ravel() + np.repeat(
            states + end, actions
        )
        value = np.array([outcome.reward for outcome in ends])[end]
        keys, weight, reward = coalesce(
            np.concatenate([keys, extra]),
            np.concatenate([weight, np.repeat(finals[state, end], actions).astype(np.float64)]),
            np.concatenate([reward, np.repeat(value, actions)]),
        )
    return complete_counts(
        keys,
        weight,
        reward,
        first=np.bincount(episodes.first_state, minlength=states),
        counts=action_counts(episodes),
        outcomes=ends,
        terminal=terminal,
        unseen=unseen,
        prior=prior,
        durations=episodes.durations,
    )


def count_again(rows: Transitions, *, unseen: str | None, prior: float) -> Counted:
    """Count what was counted before, of one log or of many; ends are counted as visits."""
    check_rules(rows.outcomes, unseen, prior)
    columns = rows.n_states + len(rows.outcomes)
    ended = rows.end < len(rows.outcomes)
    follows = np.where(ended, rows.n_states + rows.end, rows.next_state)
    pair = rows.state * rows.n_actions + rows.action
    weight = rows.weight.astype(np.float64)
    return complete_counts(
        *coalesce(pair * columns + follows, weight, rows.reward / weight),
        first=rows.first,
        counts=rows.pair_counts(),
        outcomes=rows.outcomes,
        terminal="visits",
        unseen=unseen,
        prior=prior,
        durations=state_durations(rows.state_variables, rows.combinations),
    )


def check_rules(outcomes: tuple[Outcome, ...], unseen: str | None, prior: float) -> None:
    """Refuse an unknown rule for unseen pairs, or a negative prior."""
    names = [outcome.name for outcome in outcomes]
    if unseen is not None and unseen not in ("uniform", "self-loop", *names):
        raise ValueError(
            f"unseen {unseen!r}: give an outcome ({', '.join(names)}), 'uniform' or 'self-loop'"
        )
    check_pseudo_count(prior, "prior")


def complete_counts(
    keys: Offsets,
    weight: Floats,
    reward: Floats,
    *,
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    outcomes: tuple[Outcome, ...],
    terminal: str,
    unseen: str | None,
    prior: float,
    durations: Floats | None,
) -> Counted:
    """Add the prior and the rows of unseen pairs to counted transitions, keys increasing."""
    (states, actions), ends = counts.shape, outcomes
    columns = states + len(ends)
    made_up = np.ones(states * actions, dtype=bool)
    made_up[keys // columns] = False
    # next states of each state under any action, and the reward of that move
    pairs, _, usual = coalesce(
        keys // columns // actions * columns + keys % columns, weight, reward
    )
    if prior > 0:
        seen = ~made_up.reshape(states, actions)
        keys, weight, reward = _add_prior(keys, weight, reward, prior, pairs, usual, seen, ends)
    if made_up.any():
        rows = np.flatnonzero(made_up)
        filled = _fill_unseen(rows, unseen, pairs, usual, actions, columns, ends)
        keys, weight, reward = (
            np.concatenate(both) for both in zip((keys, weight, reward), filled, strict=True)
        )
    order = np.argsort(keys)
    return Counted(
        keys=keys[order],
        weight=weight[order],
        reward=reward[order],
        first=first,
        counts=counts,
        outcomes=ends,
        made_up=made_up.reshape(states, actions),
        terminal=terminal,
        prior=prior,
        mixed=prior > 0 or unseen == "uniform",
        durations=durations,
    )


def destinations(episodes: Episodes, terminal: str) -> NDArray[np.int64]:
    """Return where each logged transition leads in a model that counts ends this way, [N]."""
    reached = episodes.next_state.astype(np.int64)
    last = episodes.offsets[1:] - 1
    if terminal == "visits":
        ended = episodes.outcome >= 0
        reached[last[ended]] = episodes.n_states + episodes.outcome[ended]
    else:
        check_final_states(episodes)
    return reached


def step_rewards(episodes: Episodes, terminal: str) -> Floats:
    """Return the rewards of transitions; with icml2019 ends the outcome's part comes later."""
    if terminal != "icml2019" or not episodes.outcomes:
        return episodes.reward
    reward = episodes.reward.copy()
    ended = np.flatnonzero(episodes.outcome >= 0)
    value = np.array([outcome.reward for outcome in episodes.outcomes])
    reward[episodes.offsets[1:][ended] - 1] -= value[episodes.outcome[ended]]
    return reward


def _warn_of_varying_rewards(
    episodes: Episodes, logged: Offsets, earned: Floats, mean: Floats
) -> None:
    varies = differs_from(earned, mean)
    if varies.any():
        first = int(np.flatnonzero(varies)[0])
        place = f"first at row {first}: state {episodes.state[first]}, action "
        warnings.warn(
            varying_rewards(len(np.unique(logged[varies])), f"{place}{episodes.action[first]}"),
            stacklevel=4,
        )


def differs_from(reward: Floats, mean: Floats) -> NDArray[np.bool_]:
    """Mark rewards that differ from the mean of their transition by more than rounding."""
    return np.asarray(np.abs(reward - mean) > 1e-9 * np.maximum(1.0, np.abs(mean)))


def varying_rewards(transitions: int, place: str) -> str:
    """Return the warning that rewards vary for the same transition."""
    return (
        f"The reward of {transitions} transitions varies for the same state, action and next state "
        f"({place}); the model uses the mean, and a counterfactual that repeats an observed step "
        "earns the observed reward."
    )


def _add_prior(
    keys: Offsets,
    weight: Floats,
    reward: Floats,
    prior: float,
    pairs: Offsets,
    usual: Floats,
    seen: NDArray[np.bool_],
    ends: tuple[Outcome, ...],
) -> tuple[Offsets, Floats, Floats]:
    """Add the prior to observed rows; new entries earn the mean reward of the same move."""
    states, actions = seen.shape
    columns = states + len(ends)
    visited = np.flatnonzero(seen.any(axis=1))
    into_ends = (visited[:, None] * columns + states + np.arange(len(ends))).ravel()
    missing = np.setdiff1d(into_ends, pairs)
    value = np.array([outcome.reward for outcome in ends])
    usual = np.concatenate([usual, value[missing % columns - states]])
    pairs = np.concatenate([pairs, missing])
    pair, action = np.nonzero(seen[pairs // columns])
    extra = (pairs[pair] // columns * actions + action) * columns + pairs[pair] % columns
    both, position = np.unique(np.concatenate([keys, extra]), return_inverse=True)
    summed = total_by(position, np.concatenate([weight, np.full(len(extra), prior)]), len(both))
    earned = np.empty(len(both))
    earned[position[len(keys) :]] = usual[pair]
    earned[position[: len(keys)]] = reward
    return both, summed, earned


def _fill_unseen(
    rows: Offsets,
    rule: str | None,
    pairs: Offsets,
    usual: Floats,
    actions: int,
    columns: int,
    ends: tuple[Outcome, ...],
) -> tuple[Offsets, Floats, Floats]:
    """Return keys, weights and rewards of the rows that were never observed."""
    names = [outcome.name for outcome in ends]
    states = columns - len(ends)
    if rule is None and not ends:
        raise ValueError(
            f"{len(rows)} state-action pairs were never seen and there is no outcome to send them "
            "to; give unseen='uniform' or unseen='self-loop'"
        )
    if rule is None or rule in names:
        value = np.array([outcome.reward for outcome in ends])
        end = int(value.argmin()) if rule is None else names.index(rule)
        return rows * columns + states + end, np.ones(len(rows)), np.full(len(rows), value[end])
    loops = rows * columns + rows // actions
    if rule == "self-loop":
        return loops, np.ones(len(rows)), np.zeros(len(rows))
    bounds = np.searchsorted(pairs, np.arange(states + 1) * columns)
    count = np.diff(bounds)[rows // actions]
    alone = count == 0
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    pair = np.repeat(bounds[rows // actions], count) + within
    keys = np.concatenate([np.repeat(rows, count) * columns + pairs[pair] % columns, loops[alone]])
    return keys, np.ones(len(keys)), np.concatenate([usual[pair], np.zeros(alone.sum())])

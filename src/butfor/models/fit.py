"""Learning a TabularMDP from a log by counting."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_choice
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome
from butfor.models.mdp import TabularMDP, assemble, coalesce, total_by
from butfor.models.policies import TERMINALS, action_counts, check_final_states, final_states
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
        final state adds one count, for every action, from its state into its outcome (what the
        published code of the paper does; kept to reproduce its numbers).
    unseen : optional
        Where a state-action pair that was never seen leads: the name of an outcome (default: the
        one of lowest reward); "uniform", over what followed that state under any action; or
        "self-loop". States from which nothing was seen loop in the last two.
    prior : number, optional
        Added to the count of every next state seen from that state under any action and of every
        outcome, in the rows of seen pairs.
    labels : optional
        See `TabularMDP.with_labels`.

    Notes
    -----
    The reward of a transition is the mean of those logged, with a warning where they vary. The
    model is causal only as far as the log's states hold all that moved both treatment and course.
    """
    counted = count_transitions(episodes, terminal=terminal, unseen=unseen, prior=prior)
    return counted.model() if labels is None else counted.labelled(labels)


@dataclass(frozen=True, eq=False)
class Counted:
    """The transitions of a log, weighed: what a model is made of.

    An entry is a row s A + a and what follows it, as the key row * (S + O) + next, increasing.
    """

    keys: Offsets  # [E]
    weight: Floats  # [E] counts, with the prior; 1 in rows that were never seen
    reward: Floats  # [E]
    first: NDArray[np.int64]  # [S] episodes that start in each state
    counts: NDArray[np.int64]  # [S, A] logged transitions
    outcomes: tuple[Outcome, ...]
    made_up: NDArray[np.bool_]  # [S, A] rows that the rule for unseen pairs made up
    terminal: str
    mixed: bool  # whether a prior or the rule puts next states of all actions into one row

    def model(self) -> TabularMDP:
        """Return the model whose rows are in proportion to the weights."""
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
        )

    def labelled(self, labels: ArrayLike) -> TabularMDP:
        """Return the model with noise on these labels."""
        try:
            return self.model().with_labels(labels)
        except ValueError as error:
            if self.mixed:
                error.add_note(
                    "A prior and unseen='uniform' put next states of all actions into one row; "
                    "with these labels use neither."
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
    earned = _step_rewards(episodes, terminal)
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
    )


def check_rules(outcomes: tuple[Outcome, ...], unseen: str | None, prior: float) -> None:
    """Refuse rules for pairs never seen, and priors, that cannot be."""
    names = [outcome.name for outcome in outcomes]
    if unseen is not None and unseen not in ("uniform", "self-loop", *names):
        raise ValueError(
            f"unseen {unseen!r}: give an outcome ({', '.join(names)}), 'uniform' or 'self-loop'"
        )
    if not np.isfinite(prior) or prior < 0:
        raise ValueError(f"prior {prior}: give a number, 0 or more")


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
) -> Counted:
    """Add the prior and the rows never seen to transitions that were counted, keys increasing."""
    (states, actions), ends = counts.shape, outcomes
    columns = states + len(ends)
    made_up = np.ones(states * actions, dtype=bool)
    made_up[keys // columns] = False
    # what followed each state under any action, and what that move earned
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
        mixed=prior > 0 or unseen == "uniform",
    )


def destinations(episodes: Episodes, terminal: str) -> NDArray[np.int64]:
    """Return where each transition of a log leads in a model with these ends, [N]."""
    reached = episodes.next_state.astype(np.int64)
    last = episodes.offsets[1:] - 1
    if terminal == "visits":
        ended = episodes.outcome >= 0
        reached[last[ended]] = episodes.n_states + episodes.outcome[ended]
    else:
        check_final_states(episodes)
    return reached


def _step_rewards(episodes: Episodes, terminal: str) -> Floats:
    """Rewards of the transitions; with icml2019 ends the outcome's share is earned later."""
    reward = episodes.reward.copy()
    if terminal == "icml2019" and episodes.outcomes:
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
    """Mark rewards that are not the mean of their transition, beyond rounding."""
    return np.asarray(np.abs(reward - mean) > 1e-9 * np.maximum(1.0, np.abs(mean)))


def varying_rewards(transitions: int, place: str) -> str:
    """Say that rewards vary for the same transition."""
    return (
        f"the reward of {transitions} transitions varies for the same state, action and next state "
        f"({place}); the model uses the mean, so that expected returns differ from observed ones "
        "even where nothing else does"
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
    """Add the prior to seen rows; a transition never logged earns what such a move earned."""
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
    """Return keys, weights and rewards of the rows that nothing was seen of."""
    names = [outcome.name for outcome in ends]
    states = columns - len(ends)
    if rule is None and not ends:
        raise ValueError(
            f"{len(rows)} state-action pairs were never seen and there is no outcome to send them "
            "to; choose unseen='uniform' or unseen='self-loop'"
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

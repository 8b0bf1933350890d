"""Transitions: the distinct transitions of a log and how often each was logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.log.combinations import Combinations, Space, state_codes
from butfor.log.episodes import Episodes
from butfor.log.fields import LOST
from butfor.log.variables import Outcome, Variable, count_levels, project, unravel
from butfor.models.factored import ACTION, NEXT
from butfor.models.learners import Codes
from butfor.models.mdp import total_by
from butfor.printed import Printed
from butfor.types import Floats, Offsets

BLOCK = 1 << 20  # rows of a log that are counted at a time


@dataclass(frozen=True, eq=False, repr=False)
class Transitions(Space, Printed):
    """The m distinct transitions of a log, with counts and sums of rewards that add up over logs.

    What is learned from transitions costs as much as there are distinct ones, however long the log.
    """

    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    outcomes: tuple[Outcome, ...]
    state: Offsets  # [m]
    action: Offsets  # [m]
    next_state: Offsets  # [m] -1: unknown
    end: Offsets  # [m] outcome; O: none
    weight: NDArray[Any]  # [m] how often it was logged, or for how many it stands
    reward: Floats  # [m] sum of the rewards
    squares: Floats  # [m] sum of the squared rewards
    lowest: Floats  # [m] reward
    highest: Floats  # [m] reward
    first: Offsets  # [S] episodes that start in each state
    combinations: Combinations | None = None  # [S, J] level codes of each state of a wide log
    # [m] numbers behind levels, by name of the parent, where transitions are as they were logged
    numbers: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def ends_known(self) -> bool:
        """Whether the state that was reached is known wherever an episode ended."""
        return bool((self.next_state >= 0).all())

    def stand_ins(self) -> Transitions:
        """Leave out unknown next states; those known at an outcome stand for all that ended in it.

        Rates of outcomes stay; only the lost are gone, if most of their next states are unknown.
        Nothing changes if that is so at any other outcome, or at all of them together.
        """
        known, ends = self.next_state >= 0, len(self.outcomes)
        total = np.bincount(self.end, self.weight, ends + 1)
        told = np.bincount(self.end, self.weight * known, ends + 1)
        lost = np.array([*(outcome.name == LOST for outcome in self.outcomes), False])
        mostly = 2 * np.append(told, told[:ends].sum()) < np.append(total, total[:ends].sum())
        if known.all() or self.combinations is not None or mostly[~np.append(lost, False)].any():
            return self
        known = known & ~(lost & mostly[:-1])[self.end]
        share = (total / np.maximum(told, 1.0))[self.end[known]]
        kept = {name: getattr(self, name)[known] for name in COLUMNS}
        kept |= {name: kept[name] * share for name in ("weight", "reward", "squares")}
        return replace(self, **kept, numbers={})

    @cached_property
    def codes(self) -> Codes:
        """Level codes [m] by the name of a parent; those of unknown next states are -1."""
        found = dict(state_codes(self.state_variables, self.combinations, self.state))
        chosen = unravel(self.action_variables, self.action)
        found |= {ACTION + name: code for name, code in chosen.items()}
        unknown = self.next_state < 0
        reached = np.where(unknown, 0, self.next_state)
        after = state_codes(self.state_variables, self.combinations, reached)
        return found | {NEXT + name: np.where(unknown, -1, code) for name, code in after.items()}

    def hide(self, *names: str) -> Transitions:
        """Return the transitions between states that lack these variables."""
        kept = [variable for variable in self.state_variables if variable.name not in names]
        place = project(self.state_variables, *(variable.name for variable in kept))
        first = np.zeros(count_levels(kept), np.int64)
        np.add.at(first, place, self.first)
        return _distinct(
            replace(
                self,
                state_variables=tuple(kept),
                state=place[self.state].astype(np.int64),
                next_state=np.where(self.next_state < 0, -1, place[self.next_state]),
                first=first,
            )
        )

    def pair_counts(self) -> NDArray[np.int64]:
        """Count the logged decisions by state and action, [S, A]."""
        pair = self.state * self.n_actions + self.action
        counts = total_by(pair, self.weight.astype(np.float64), self.n_states * self.n_actions)
        return counts.astype(np.int64).reshape(self.n_states, self.n_actions)


def count_distinct(log: Episodes) -> Transitions:
    """Count the distinct transitions of a log."""
    check_countable(log)
    blocks = [slice(row, row + BLOCK) for row in range(0, len(log.state), BLOCK)]
    return merge_transitions([_distinct(_transitions(log, rows)) for rows in blocks])


def logged_transitions(log: Episodes) -> Transitions:
    """Return every transition of a log as it was logged, with the numbers behind levels."""
    rows, following = np.arange(len(log.state)), log.following
    numbers = {}
    for name, values in ({} if log.numbers is None else log.numbers).items():
        numbers[str(name)] = values.to_numpy()[rows]
        numbers[f"{NEXT}{name}"] = values.to_numpy()[following]
    return replace(_transitions(log, slice(None)), numbers=numbers)


def _transitions(log: Episodes, rows: slice) -> Transitions:
    """Return some transitions of a log as they are; the first ones tell where episodes start."""
    ends = np.full(len(log.state), len(log.outcomes), np.int64)
    ends[log.offsets[1:] - 1] = np.where(log.outcome >= 0, log.outcome, len(log.outcomes))
    reward = log.reward[rows]
    return Transitions(
        state_variables=log.state_variables,
        action_variables=log.action_variables,
        outcomes=log.outcomes,
        state=log.state[rows].astype(np.int64),
        action=log.action[rows].astype(np.int64),
        next_state=log.next_state[rows].astype(np.int64),
        end=ends[rows],
        weight=np.ones(len(reward), np.int64),
        reward=reward,
        squares=reward**2,
        lowest=reward,
        highest=reward,
        first=np.bincount([] if rows.start else log.first_state, minlength=log.n_states),
        combinations=log.combinations,
    )


def merge_transitions(parts: Sequence[Transitions]) -> Transitions:
    """Return the distinct transitions of several logs with the same variables and outcomes."""
    return parts[0] if len(parts) == 1 else _distinct(join_transitions(parts))


def join_transitions(parts: Sequence[Transitions]) -> Transitions:
    """Return the transitions of several logs one after the other, not merged."""
    if any(part.combinations is not parts[0].combinations for part in parts):
        raise ValueError(
            "wide logs number their states differently, so their transitions do not add up; read "
            "them as one log"
        )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS
    }
    return replace(parts[0], **columns, first=np.sum([part.first for part in parts], axis=0))


COLUMNS = (
    "state", "action", "next_state", "end", "weight", "reward", "squares", "lowest", "highest",
)  # fmt: skip


def _distinct(rows: Transitions) -> Transitions:
    """Return transitions in which each appears once."""
    ends = len(rows.outcomes) + 1
    pair = rows.state * rows.n_actions + rows.action
    key = (pair * (rows.n_states + 1) + rows.next_state + 1) * ends + rows.end
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    start = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    chosen = order[start]
    return replace(
        rows,
        state=rows.state[chosen],
        action=rows.action[chosen],
        next_state=rows.next_state[chosen],
        end=rows.end[chosen],
        weight=np.add.reduceat(rows.weight[order], start),
        reward=np.add.reduceat(rows.reward[order], start),
        squares=np.add.reduceat(rows.squares[order], start),
        lowest=np.minimum.reduceat(rows.lowest[order], start),
        highest=np.maximum.reduceat(rows.highest[order], start),
    )


def check_countable(log: Episodes) -> None:
    """Refuse a log whose transitions cannot be numbered."""
    states = log.n_states
    possible = states * log.n_actions * (states + 1) * (len(log.outcomes) + 1)
    if possible >= 2**63:
        raise ValueError(
            f"{states:,} states and {log.n_actions:,} actions have too many possible transitions "
            "to number them; use fewer variables or levels"
        )

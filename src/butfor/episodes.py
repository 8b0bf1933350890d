"""Episodes: a log of sequential decisions as flat arrays, one row a transition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int32]
Offsets = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Variable:
    """One named variable of a state or an action, with its levels in order."""

    name: str
    levels: tuple[str, ...]
    normal: tuple[str, ...] = ()  # the levels that count as normal, for people who read charts
    static: bool = False  # never changes within an episode, so no part of "the final state"


@dataclass(frozen=True)
class Outcome:
    """One way in which an episode can end."""

    name: str
    reward: float
    bad: bool = False


@dataclass(frozen=True)
class Episodes:
    """A log: N transitions of n episodes.

    The state of a row is a mixed-radix index over `state_variables`, most significant first;
    actions likewise. `next_state` of an episode's last row is the state reached, never the
    outcome; it is -1 where the log does not tell (allowed only where there is an outcome).
    """

    state: Integers  # [N]
    action: Integers  # [N]
    next_state: Integers  # [N]
    reward: Floats  # [N]
    offsets: Offsets  # [n + 1] first row of each episode
    outcome: Integers  # [n] -1: none
    id: NDArray[Any]  # [n]
    final_key: NDArray[np.int64]  # [n] the final state before anything that changes was hidden
    horizon: int
    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    outcomes: tuple[Outcome, ...]
    none_name: str = "none"  # what to call an end without outcome
    side: pd.DataFrame | None = None  # N rows, then n for the final states: never seen by a model
    side_variables: tuple[Variable, ...] = ()  # those columns of `side` that `hide` put there

    @classmethod
    def from_arrays(
        cls,
        state: ArrayLike,
        action: ArrayLike,
        next_state: ArrayLike,
        *,
        offsets: ArrayLike,
        states: int | Sequence[Variable],
        actions: int | Sequence[Variable],
        reward: ArrayLike | None = None,
        outcome: ArrayLike | None = None,
        outcomes: Sequence[Outcome | str] = (),
        id: ArrayLike | None = None,
        final_key: ArrayLike | None = None,
        horizon: int | None = None,
        none_name: str = "none",
        side: pd.DataFrame | None = None,
    ) -> Episodes:
        """Check plain arrays and make Episodes of them.

        Parameters
        ----------
        state, action, next_state : [N] integers
            One entry a transition, episode after episode.
        offsets : [n + 1]
            Row at which each episode starts; the last entry is N.
        states, actions
            How many there are, or the variables that they are made of.
        reward : [N], optional
            Without it, each episode earns the reward of its outcome on its last row.
        outcome : [n], optional
            Index into `outcomes`, -1 for none.
        outcomes
            `Outcome`s, or names; a name takes the mean last reward of its episodes as its reward.
        final_key : [n], optional
            The unreduced final state (`fit_mdp(terminal="icml2019")` counts distinct ones).
            By default the final state itself.
        horizon : optional
            Most steps that an episode can have; by default the longest episode's.
        """
        state_variables = _variables(states, "state")
        action_variables = _variables(actions, "action")
        starts = np.asarray(offsets, dtype=np.int64)
        rows = {
            "state": _integers(state, "state"),
            "action": _integers(action, "action"),
            "next_state": _integers(next_state, "next_state"),
        }
        count = len(rows["state"])
        _check_offsets(starts, count)
        episodes = len(starts) - 1
        ids = np.arange(episodes) if id is None else np.asarray(id)
        ends = np.full(episodes, -1, np.int32) if outcome is None else _integers(outcome, "outcome")
        earned = None if reward is None else np.asarray(reward, dtype=np.float64)
        for name, array, length in (
            ("action", rows["action"], count),
            ("next_state", rows["next_state"], count),
            ("reward", earned, count),
            ("outcome", ends, episodes),
            ("id", ids, episodes),
            ("final_key", final_key, episodes),
            ("side", side, count + episodes),
        ):
            if array is not None and len(array) != length:  # type: ignore[arg-type]
                raise ValueError(f"{name} has {len(array)} entries, expected {length}")  # type: ignore[arg-type]

        def place(row: int) -> str:
            episode = int(np.searchsorted(starts, row, side="right")) - 1
            return f"row {row} (episode {ids[episode]}, step {row - starts[episode]})"

        last = np.zeros(count, dtype=bool)
        last[starts[1:] - 1] = True
        unknown = np.zeros(count, dtype=bool)
        unknown[starts[1:] - 1] = ends >= 0
        sizes = {"state": _size(state_variables), "action": _size(action_variables)}
        for name in ("state", "action", "next_state"):
            array, size = rows[name], sizes["action" if name == "action" else "state"]
            wrong = (array < 0) | (array >= size)
            if name == "next_state":
                wrong &= ~(unknown & (array == -1))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                noun = name.replace("_", " ")
                raise ValueError(
                    f"{place(row)}: {noun} {array[row]} outside 0..{size - 1}; "
                    f"relabel it, or give the right number of {name.split('_')[-1]}s"
                )
        broken = ~last[:-1] & (rows["next_state"][:-1] != rows["state"][1:])
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise ValueError(
                f"{place(row)}: next state {rows['next_state'][row]} but the following row "
                f"starts in state {rows['state'][row + 1]}; sort the rows by time, or check offsets"
            )
        wrong = (ends < -1) | (ends >= len(outcomes))
        if wrong.any():
            episode = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"episode {ids[episode]}: outcome {ends[episode]} but there are "
                f"{len(outcomes)} outcomes (0..{len(outcomes) - 1}, -1 for none)"
            )
        if earned is not None and not np.isfinite(earned).all():
            row = int(np.flatnonzero(~np.isfinite(earned))[0])
            raise ValueError(f"{place(row)}: reward {earned[row]} is not a number; fill or drop it")
        named = _outcomes(outcomes, ends, earned, starts)
        if earned is None:
            earned = np.zeros(count)
            value = np.array([outcome.reward for outcome in named] + [0.0])
            earned[starts[1:] - 1] = value[ends]
        longest = int(np.diff(starts).max())
        if horizon is not None and horizon < longest:
            episode = int(np.diff(starts).argmax())
            raise ValueError(
                f"episode {ids[episode]} has {longest} steps, more than the horizon {horizon}; "
                "leave the horizon out, or cut the episodes with truncate()"
            )
        return cls(
            state=rows["state"],
            action=rows["action"],
            next_state=rows["next_state"],
            reward=earned,
            offsets=starts,
            outcome=ends,
            id=ids,
            final_key=(
                rows["next_state"][starts[1:] - 1].astype(np.int64)
                if final_key is None
                else np.asarray(final_key, dtype=np.int64)
            ),
            horizon=longest if horizon is None else int(horizon),
            state_variables=state_variables,
            action_variables=action_variables,
            outcomes=named,
            none_name=none_name,
            side=None if side is None else side.reset_index(drop=True),
        )

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        episode: str = "episode",
        time: str | None = None,
        state: str = "state",
        action: str = "action",
        reward: str | None = None,
        outcome: str | None = "outcome",
        states: Sequence[Any] | None = None,
        actions: Sequence[Any] | None = None,
        outcomes: Sequence[Outcome | str] | None = None,
        horizon: int | None = None,
        none_name: str = "none",
    ) -> Episodes:
        """Make Episodes of a data frame in which a row is a decision.

        The outcome stands on the last row of an episode. A last row without action gives the
        final state; without it and without an outcome the last decision is no transition.
        `states` and `actions` list the labels in order (default: the sorted ones of the column);
        `time` sorts the rows of an episode, otherwise they stay in the order of the frame.
        """
        wanted = [episode, state, action] + [c for c in (time, reward, outcome) if c is not None]
        missing = [column for column in wanted if column not in frame.columns]
        if missing:
            raise ValueError(
                f"the frame has no column {missing[0]!r}; it has {', '.join(map(str, frame))}"
            )
        codes, ids = pd.factorize(frame[episode])
        if (codes < 0).any():
            raise ValueError(f"row {int((codes < 0).argmax())}: no {episode}; fill or drop the row")
        keys = (codes,) if time is None else (frame[time].to_numpy(), codes)
        order = np.lexsort(keys)
        table, codes = frame.iloc[order].reset_index(drop=True), codes[order]
        last = np.append(codes[1:] != codes[:-1], True)

        decided = table[action].notna().to_numpy()
        if (~decided & ~last).any():
            row = int((~decided & ~last).argmax())
            raise ValueError(
                f"row {order[row]} (episode {ids[codes[row]]}): no {action}; only the last row of "
                "an episode, which gives the final state, may be without one"
            )
        state_codes, state_labels = _codes(table[state], states, "states")
        action_codes, action_labels = _codes(table[action].where(decided), actions, "actions")
        ends = table[outcome] if outcome is not None else pd.Series(None, table.index, object)
        early = ends.notna().to_numpy() & ~last
        if early.any():
            row = int(early.argmax())
            raise ValueError(
                f"row {order[row]} (episode {ids[codes[row]]}): outcome {ends[row]!r} before the "
                "last row; an episode ends with its outcome"
            )
        names = None if outcomes is None else [getattr(o, "name", o) for o in outcomes]
        end_codes, end_labels = _codes(ends, names, "outcomes", missing=-1)

        kept = decided & ~(last & (end_codes < 0))
        lengths = np.bincount(codes[kept], minlength=len(ids))
        if (lengths == 0).any():
            empty = int((lengths == 0).argmax())
            raise ValueError(
                f"episode {ids[empty]}: no transition (one decision, with neither a final state "
                "nor an outcome after it); drop the episode"
            )
        following = np.append(state_codes[1:], -1)
        following[last] = -1
        return cls.from_arrays(
            state_codes[kept],
            action_codes[kept],
            following[kept],
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            states=[Variable(str(state), state_labels)],
            actions=[Variable(str(action), action_labels)],
            reward=None
            if reward is None
            else _rewards(table[reward], kept, last & ~decided, codes),
            outcome=end_codes[last],
            outcomes=outcomes if outcomes is not None else end_labels,
            id=np.asarray(ids),
            horizon=horizon,
            none_name=none_name,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return _size(self.state_variables)

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return _size(self.action_variables)

    @property
    def lengths(self) -> Offsets:
        """Steps of each episode, [n]."""
        return np.diff(self.offsets)

    @property
    def first_state(self) -> Integers:
        """State in which each episode starts, [n]."""
        return self.state[self.offsets[:-1]]

    @property
    def time(self) -> Offsets:
        """Step of each row within its episode, [N]."""
        return np.arange(len(self.state)) - np.repeat(self.offsets[:-1], self.lengths)

    def place(self, row: int) -> str:
        """Say where a row is, for messages: episode and step."""
        episode = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"episode {self.id[episode]}, step {row - self.offsets[episode]}"

    def returns(self, discount: float = 1.0) -> Floats:
        """Discounted sum of the rewards of each episode, [n]."""
        if discount == 1:
            return np.add.reduceat(self.reward, self.offsets[:-1])
        return np.add.reduceat(self.reward * discount**self.time, self.offsets[:-1])

    def select(self, index: ArrayLike) -> Episodes:
        """Return the episodes at these positions, in this order; a position may come twice."""
        chosen = np.asarray(index)
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise ValueError(f"a mask of {len(chosen)} for {len(self)} episodes")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.reshape(-1)
        if len(chosen) == 0:
            raise ValueError("no episode selected")
        if chosen.min() < -len(self) or chosen.max() >= len(self):
            raise ValueError(f"episode {chosen.max()} of {len(self)}: positions start at 0")
        chosen = chosen % len(self)
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        finals = len(self.state) + chosen
        return replace(
            self,
            state=self.state[rows],
            action=self.action[rows],
            next_state=self.next_state[rows],
            reward=self.reward[rows],
            offsets=offsets,
            outcome=self.outcome[chosen],
            id=self.id[chosen],
            final_key=self.final_key[chosen],
            side=(
                None
                if self.side is None
                else self.side.iloc[np.concatenate([rows, finals])].reset_index(drop=True)
            ),
        )

    def truncate(self, horizon: int) -> Episodes:
        """Cut every episode after `horizon` steps; one that is cut loses its outcome."""
        if horizon < 1:
            raise ValueError(f"horizon {horizon}: at least one step must remain")
        if horizon >= self.horizon:
            return replace(self, horizon=horizon)
        lengths = np.minimum(self.lengths, horizon)
        cut = self.lengths > horizon
        rows = np.flatnonzero(self.time < horizon)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        next_state = self.next_state[rows]
        side = self.side
        if side is not None:
            # the row after the cut, at offset + horizon, tells of the state reached
            after = np.where(
                cut, self.offsets[:-1] + horizon, len(self.state) + np.arange(len(self))
            )
            side = side.iloc[np.concatenate([rows, after])].reset_index(drop=True)
        return replace(
            self,
            state=self.state[rows],
            action=self.action[rows],
            next_state=next_state,
            reward=self.reward[rows],
            offsets=offsets,
            outcome=np.where(cut, -1, self.outcome).astype(np.int32),
            final_key=np.where(cut, next_state[offsets[1:] - 1], self.final_key),
            horizon=horizon,
            side=side,
        )

    def hide(self, *names: str) -> Episodes:
        """Take variables out of the state; they become side columns that no model sees.

        `final_key` keeps what is hidden of the final state, except for static variables.
        """
        known = [variable.name for variable in self.state_variables]
        for name in names:
            if name not in known:
                raise ValueError(f"no state variable {name!r} to hide; there are {known}")
        if len(set(names)) == len(known):
            raise ValueError("hiding every state variable leaves no state")
        if (self.next_state < 0).any():
            raise ValueError("some final states are unknown (-1), so nothing can be hidden")
        finals = self.next_state[self.offsets[1:] - 1]
        codes = dict(zip(known, self._unravel(np.concatenate([self.state, finals])), strict=True))
        seen = tuple(v for v in self.state_variables if v.name not in names)
        hidden = tuple(v for v in self.state_variables if v.name in names)

        side = pd.DataFrame(index=range(len(self.state) + len(self)))
        if self.side is not None:
            side = self.side.copy()
        for variable in hidden:
            side[variable.name] = pd.Categorical.from_codes(
                codes[variable.name], list(variable.levels), ordered=True
            )
        side_variables = self.side_variables + hidden
        key_variables = seen + tuple(v for v in side_variables if not v.static)
        for variable in side_variables:
            codes[variable.name] = side[variable.name].cat.codes.to_numpy()
        final = slice(len(self.state), None)
        reduced = project(self.state_variables, *(v.name for v in seen))
        return replace(
            self,
            state=reduced[self.state],
            next_state=reduced[self.next_state],
            final_key=_ravel(key_variables, [codes[v.name][final] for v in key_variables]),
            state_variables=seen,
            side=side,
            side_variables=side_variables,
        )

    def state_labels(self, *names: str) -> Integers:
        """Map each state to the combination of these variables' levels, [S]: for `labels=`."""
        return project(self.state_variables, *names)

    def _unravel(self, index: Integers) -> tuple[NDArray[np.intp], ...]:
        return np.unravel_index(index, tuple(len(v.levels) for v in self.state_variables))


def project(variables: Sequence[Variable], *names: str) -> Integers:
    """Map each index over `variables` to the index over the named ones, in the order of both."""
    known = [variable.name for variable in variables]
    for name in names:
        if name not in known:
            raise ValueError(f"no variable {name!r}; there are {known}")
    kept = [variable for variable in variables if variable.name in names]
    sizes = tuple(len(variable.levels) for variable in variables)
    codes = dict(zip(known, np.unravel_index(np.arange(math.prod(sizes)), sizes), strict=True))
    return _ravel(kept, [codes[variable.name] for variable in kept]).astype(np.int32)


def _ravel(variables: Sequence[Variable], codes: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    index = np.zeros(len(codes[0]), dtype=np.int64)
    for variable, code in zip(variables, codes, strict=True):
        index = index * len(variable.levels) + code
    return index


def total_by(index: NDArray[Any], weight: Floats, size: int) -> Floats:
    """Sum the weights that have each index, [size]."""
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


def _size(variables: Sequence[Variable]) -> int:
    return math.prod(len(variable.levels) for variable in variables)


def _variables(given: int | Sequence[Variable], name: str) -> tuple[Variable, ...]:
    if isinstance(given, int | np.integer):
        if given < 1:
            raise ValueError(f"{given} {name}s: there must be at least one")
        return (Variable(name, tuple(str(level) for level in range(int(given)))),)
    variables = tuple(given)
    if not variables or any(len(variable.levels) == 0 for variable in variables):
        raise ValueError(f"{name} variables: at least one, each with at least one level")
    return variables


def _integers(values: ArrayLike, name: str) -> Integers:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    if array.dtype.kind not in "iu":
        whole = np.zeros(len(array), dtype=bool)
        if array.dtype.kind == "f":
            whole = np.isfinite(array) & (array == np.floor(array))
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            raise ValueError(f"{name} at {row} is {array[row]!r}, expected a whole number")
    limit = np.iinfo(np.int32).max
    if len(array) and (array.max() > limit or array.min() < -limit):
        row = int(np.abs(array.astype(np.float64)).argmax())
        raise ValueError(f"{name} at {row} is {array[row]}, too large; relabel from 0")
    return np.ascontiguousarray(array, dtype=np.int32)


def _check_offsets(offsets: Offsets, rows: int) -> None:
    if offsets.ndim != 1 or len(offsets) < 2:
        raise ValueError("no episodes: offsets need at least two entries, 0 and the number of rows")
    if offsets[0] != 0 or offsets[-1] != rows:
        raise ValueError(
            f"offsets run from {offsets[0]} to {offsets[-1]}, expected 0 to {rows}, the rows given"
        )
    lengths = np.diff(offsets)
    if (lengths <= 0).any():
        episode = int(np.flatnonzero(lengths <= 0)[0])
        raise ValueError(
            f"the episode at position {episode} has {lengths[episode]} steps; "
            "drop episodes without steps"
        )


def _outcomes(
    given: Sequence[Outcome | str], ends: Integers, reward: Floats | None, offsets: Offsets
) -> tuple[Outcome, ...]:
    named = []
    for index, outcome in enumerate(given):
        if isinstance(outcome, Outcome):
            named.append(outcome)
            continue
        if reward is None:
            raise ValueError(
                f"outcome {outcome!r} has no reward: give Outcome({outcome!r}, reward), "
                "or the reward of each row"
            )
        mine = reward[offsets[1:] - 1][ends == index]
        named.append(Outcome(str(outcome), float(mine.mean()) if len(mine) else 0.0))
    names = [outcome.name for outcome in named]
    if len(set(names)) != len(names):
        raise ValueError(f"outcomes must have different names, got {names}")
    return tuple(named)


def _codes(
    column: pd.Series[Any], labels: Sequence[Any] | None, name: str, missing: int | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    present = column.dropna()
    levels = list(labels) if labels is not None else sorted(present.unique())
    codes = pd.Index(levels).get_indexer(column)
    lost = (codes < 0) & column.notna().to_numpy()
    if lost.any():
        row = int(lost.argmax())
        raise ValueError(f"{column[row]!r} is not among the {name} given: {levels[:8]}")
    if missing is None and name == "states" and column.isna().any():
        row = int(column.isna().to_numpy().argmax())
        raise ValueError(f"row {row} of the sorted log has no state; fill or drop it")
    return codes.astype(np.int64), tuple(str(level) for level in levels)


def _rewards(
    column: pd.Series[Any],
    kept: NDArray[np.bool_],
    final: NDArray[np.bool_],
    codes: NDArray[np.intp],
) -> Floats:
    """Rewards of the kept rows; what a final row earns belongs to the transition before it."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    reward = values[kept]
    ends = np.cumsum(np.bincount(codes[kept])) - 1
    reward[ends[codes[final]]] += np.nan_to_num(values[final])
    return reward

"""Episodes: a log of sequential decisions as flat arrays with one row per transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_discount, check_distributions, check_horizon, check_integers
from butfor.log.arrays import (
    check_code_rows,
    check_ends,
    check_ids,
    check_level_numbers,
    check_numbers,
    check_offsets,
    check_rewards,
    check_taken,
    digest_arrays,
    place_of,
)
from butfor.log.combinations import (
    MOST_STATES,
    WORD,
    Combinations,
    Space,
    check_codes,
    check_combinations,
    number_combinations,
    state_codes,
)
from butfor.log.fields import LOST
from butfor.log.frames import levels_of, read_frame
from butfor.log.recorded import FILLED, RAW
from butfor.log.variables import (
    NO_OUTCOME,
    Outcome,
    Variable,
    check_outcomes,
    check_variables,
    count_levels,
    decided_by_nature,
    project,
    ravel,
    step_variable,
)
from butfor.printed import Printed
from butfor.types import Floats, Integers, Offsets


@dataclass(frozen=True, eq=False, repr=False)
class Episodes(Space, Printed):
    """A log: N transitions of n episodes.

    The state of a row is a mixed-radix index over `state_variables`, most significant first;
    actions likewise. Where there are too many combinations of levels to number them all, the log is
    wide: states are the combinations that occur, in order.

    `next_state` of an episode's last row is the state reached, never the outcome; it is -1 if the
    log does not have it, which is allowed only if there is an outcome.
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
    none_name: str = NO_OUTCOME  # what to call an end without an outcome
    side: pd.DataFrame | None = None  # N rows, then n of the final states; hidden from models
    side_variables: tuple[Variable, ...] = ()  # the columns of `side` that have levels
    side_given: tuple[str, ...] = ()  # columns of `side` that the state or the action holds too
    combinations: Combinations | None = None  # [S, J] level codes of each state of a wide log
    # the numbers behind the levels of some state variables, in the rows of `side`; nan if unknown
    numbers: pd.DataFrame | None = None
    behavior_probability: Floats | None = None  # [N] of each action taken, if it is known
    target_probability: Floats | None = None  # [N, A] of a policy that is known row by row
    # for readers only, in the rows of `side`: see `log/recorded.py`
    recorded: pd.DataFrame | None = None
    subject: NDArray[Any] | None = None  # [n] whose episode it is, if one may have several
    half: NDArray[np.int64] | None = None  # [n] 0 or 1: that of a cross-fit, if it is given
    # a digest of the log that was read or simulated, which its parts keep: with the id it says
    # where an episode comes from
    origin: str = ""

    def __post_init__(self) -> None:
        if not self.origin:
            # not of states: the same file read with other variables has the same episodes
            told = (self.offsets, self.action, self.reward, self.outcome)
            object.__setattr__(self, "origin", digest_arrays(told))

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
        none_name: str = NO_OUTCOME,
        side: pd.DataFrame | None = None,
        combinations: ArrayLike | None = None,
        wide: bool | None = None,
    ) -> Episodes:
        """Make Episodes of plain arrays, and check them.

        Parameters
        ----------
        state, action, next_state : [N] integers
            One entry per transition, episode after episode. States may be given by level codes
            instead, [N, J], one column per state variable: -1 in all of them where the final state
            is unknown.
        offsets : [n + 1]
            The row at which each episode starts; the last entry is N.
        states, actions
            Their number, or the variables that they are made of.
        reward : [N], optional
            Without it, each episode earns the reward of its outcome on its last row.
        outcome : [n], optional
            An index into `outcomes`, -1 for none.
        outcomes
            Each an `Outcome` or a name, whose reward is then the mean last reward of its
            episodes.
        final_key : [n], optional
            The unreduced final state (`fit_mdp(terminal="icml2019")` counts distinct ones).
            By default the final state itself.
        horizon : optional
            The largest number of steps of an episode; by default that of the longest one.
        combinations : [S, J], optional
            The level codes of each state, if states are given by number and are not all
            combinations of levels.
        wide : optional
            Whether states given by level codes are only the combinations of levels that occur; by
            default if there are more than ten million combinations.
        """
        coded = np.ndim(state) == 2
        if (combinations if coded else wide) is not None:
            raise ValueError(
                f"{'combinations' if coded else 'wide'} was given with a state of shape "
                f"{np.shape(state)}; combinations= goes with numbers of states [N], wide= with "
                "level codes [N, J]"
            )
        if coded:
            known = check_variables(states, "state")
            state, next_state, combinations = _number_states(known, state, next_state, wide)
        starts = check_integers(offsets, "offsets")
        given = {"state": state, "action": action, "next_state": next_state}
        rows: dict[str, Any] = {name: check_numbers(values, name) for name, values in given.items()}
        count = len(rows["state"])
        check_offsets(starts, count)
        episodes = len(starts) - 1
        ids = np.arange(episodes) if id is None else np.asarray(id)
        ends = (
            np.full(episodes, -1, np.int32)
            if outcome is None
            else check_numbers(outcome, "outcome")
        )
        earned = None if reward is None else np.asarray(reward, dtype=np.float64)
        key = None if final_key is None else check_integers(final_key, "final_key")
        for name, array, expected in (
            ("action", rows["action"], count),
            ("next_state", rows["next_state"], count),
            ("reward", earned, count),
            ("outcome", ends, episodes),
            ("id", ids, episodes),
            ("final_key", key, episodes),
        ):
            if array is not None and array.shape != (expected,):
                raise ValueError(f"{name} has shape {array.shape}, expected ({expected},)")
        if side is not None and len(side) != count + episodes:
            raise ValueError(f"side has {len(side)} rows, expected {count + episodes}")
        check_ids(ids)
        check_rewards(earned, starts, ids)
        check_ends(ends, ids, len(outcomes))
        possible: list[Any] = list(outcomes)
        for index, end in enumerate(outcomes):
            if not isinstance(end, Outcome) and earned is not None:
                possible[index] = Outcome(str(end), mean_last_reward(index, ends, earned, starts))
        named = check_outcomes(possible)
        for end in named:
            if end.name in (none_name, "none"):
                raise ValueError(
                    f"an outcome is called {end.name!r}, which stands for no outcome; rename it"
                )
        if earned is None:
            earned = np.zeros(count)
            value = np.array([outcome.reward for outcome in named] + [0.0])
            earned[starts[1:] - 1] = value[ends]
        variables = check_variables(states, "state")
        log = cls(
            **rows,
            reward=earned,
            offsets=starts,
            outcome=ends,
            id=ids,
            final_key=rows["next_state"][starts[1:] - 1].astype(np.int64) if key is None else key,
            horizon=int(np.diff(starts).max()) if horizon is None else check_horizon(horizon),
            state_variables=variables,
            action_variables=check_variables(actions, "action"),
            outcomes=named,
            none_name=none_name,
            side=None if side is None else side.reset_index(drop=True),
            combinations=None
            if combinations is None
            else check_combinations(variables, np.asarray(combinations)),
        )
        _check_rows(log)
        return log

    from_codes = from_arrays  # of level codes, [N, J]

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        episode: str = "episode",
        time: str | None = None,
        state: str | Sequence[str] = "state",
        action: str = "action",
        reward: str | None = None,
        outcome: str | None = "outcome",
        states: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
        actions: Sequence[Any] | None = None,
        outcomes: Sequence[Outcome | str] | None = None,
        horizon: int | None = None,
        none_name: str = NO_OUTCOME,
        behavior_probability: str | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> Episodes:
        """Make Episodes of a data frame with one row per decision.

        It is read as `read_episodes` reads a log with a study file, with the same problems and
        messages. The last row of an episode has its outcome. A last row without an action gives
        the final state; if there is neither such a row nor an outcome, the last decision is not a
        transition.

        Parameters
        ----------
        episode, state, action, reward, outcome
            Names of columns; None for a reward or outcome that the frame does not have. Several
            columns of the state are several state variables.
        time : optional
            The column by which the rows of an episode are sorted; by default they keep the order
            of the frame.
        states, actions, outcomes : optional
            The labels in order; by default those of the column, sorted. Those of several columns of
            the state are given as {column: labels}.
        horizon, none_name
            As in `from_arrays`.
        behavior_probability : optional
            The column with the probability of each action taken (`with_behavior_probability`).
        problems : optional
            How to settle problems of the log that would otherwise be refused, as in [problems] of a
            study file. By default rows are sorted by time, and episodes without an outcome are kept
            as censored: `{"order": "sort", "no_outcome": "keep"}`.
        """
        names = None if outcomes is None else [getattr(end, "name", end) for end in outcomes]
        columns = levels_of(state, states)
        given = {("state", name): known for name, known in columns.items()}
        given["action", str(action)] = actions
        if outcome is not None:
            given["outcome", str(outcome)] = names
        roles = {
            "episode": episode,
            "time": time,
            "reward": reward,
            "behavior_probability": behavior_probability,
        }
        arrays, labels = read_frame(frame, roles, given, horizon=horizon, problems=problems)
        probability = arrays.pop("probability", None)
        ends = labels.get(("outcome", str(outcome)), ()) if outcomes is None else outcomes
        if problems is not None and problems.get("no_transition") == "keep":
            ends = [*ends, LOST if reward else Outcome(LOST, 0.0)]
        log = cls.from_arrays(
            **arrays,
            states=[Variable(name, labels["state", name]) for name in columns],
            actions=[Variable(str(action), labels["action", str(action)])],
            outcomes=ends,
            none_name=none_name,
        )
        if probability is not None:
            log = log.with_behavior_probability(probability)
        return log if horizon is None else log.truncate(horizon)

    def widen(self) -> Episodes:
        """Return the same log as a wide one, whose states are only those that occur."""
        if self.combinations is not None:
            return self
        known = self.next_state >= 0
        both = np.concatenate([self.state, self.next_state[known]])
        occurs, number = np.unique(both, return_inverse=True)
        reached = np.full_like(self.next_state, -1)
        reached[known] = number[len(self.state) :]
        codes = np.stack(list(self.codes(occurs).values()), axis=1)
        return replace(
            self,
            state=number[: len(self.state)].astype(np.int32),
            next_state=reached,
            combinations=codes.astype(np.int16),
        )

    def _title(self) -> str:
        return f"Episodes: {len(self):,} with {len(self.state):,} decisions"

    def _facts(self) -> dict[str, Any]:
        side = None if self.side is None else list(self.side.columns)
        return {
            "horizon": self.horizon,
            "states": self.n_states,
            "state variables": self.state_variables,
            "actions": self.n_actions,
            "action variables": self.action_variables,
            "outcomes": self.outcomes,
            "without outcome": self.none_name,
            "side columns": side,
        }

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def outcome_names(self) -> list[str]:
        """Names of the outcomes, that of none last."""
        return [*(outcome.name for outcome in self.outcomes), self.none_name]

    @property
    def unit(self) -> NDArray[Any]:
        """What stays together when a log is divided at random: the subject, or the episode, [n]."""
        return self.id if self.subject is None else self.subject

    @property
    def lengths(self) -> Offsets:
        """Number of steps of each episode, [n]."""
        return np.diff(self.offsets)

    @property
    def first_state(self) -> Integers:
        """First state of each episode, [n]."""
        return self.state[self.offsets[:-1]]

    @property
    def time(self) -> Offsets:
        """Step of each row within its episode, [N]."""
        return np.arange(len(self.state)) - np.repeat(self.offsets[:-1], self.lengths)

    @property
    def elapsed(self) -> Floats:
        """Time between the first decision of its episode and each row, [N]; by default its step."""
        if self.durations is None:
            return self.time.astype(np.float64)
        sums = np.cumsum(self.durations[self.state])
        return sums - np.repeat(sums[self.offsets[:-1]], self.lengths)

    def step_discounts(self, discount: float) -> Floats:
        """Factor by which what follows each row counts less than its own reward, [N]."""
        if self.durations is None:
            return np.full(len(self.state), discount)
        return np.asarray(discount ** self.durations[self.next_state])

    @property
    def following(self) -> Offsets:
        """Row of `side` and `numbers` that describes what each step led to, [N]."""
        rows = np.arange(1, len(self.state) + 1)
        rows[self.offsets[1:] - 1] = len(self.state) + np.arange(len(self))
        return rows

    def codes(self, state: NDArray[np.integer]) -> dict[str, NDArray[np.intp]]:
        """Level codes of states given by their numbers [m], by state variable."""
        return state_codes(self.state_variables, self.combinations, state)

    def rows_of(self, chosen: Offsets) -> Offsets:
        """Rows of the episodes at these positions, episode after episode."""
        return rows_of(self.offsets[:-1], self.lengths, chosen)

    def place(self, row: int) -> str:
        """Name a row by its episode and step, for messages."""
        return place_of(row, self.offsets, self.id)

    def returns(self, discount: float = 1.0) -> Floats:
        """Discounted sum of the rewards of each episode, [n]: each counts discount^elapsed."""
        if check_discount(discount) == 1:
            return np.add.reduceat(self.reward, self.offsets[:-1])
        return np.add.reduceat(self.reward * discount**self.elapsed, self.offsets[:-1])

    def select(self, index: ArrayLike) -> Episodes:
        """Return the episodes at these positions, in this order; a position may be repeated."""
        chosen = np.asarray(index)
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise ValueError(
                    f"a mask of {len(chosen)} entries, expected {len(self)}, one per episode"
                )
            chosen = np.flatnonzero(chosen)
        chosen = chosen.reshape(-1)
        if len(chosen) == 0:
            raise ValueError("no episode selected; name at least one")
        chosen = check_integers(chosen, "position")
        outside = (chosen < -len(self)) | (chosen >= len(self))
        if outside.any():
            raise ValueError(
                f"position {chosen[outside][0]} outside 0..{len(self) - 1}; count from 0"
            )
        chosen = chosen % len(self)
        return self._take(
            self.rows_of(chosen),
            len(self.state) + chosen,
            self.lengths[chosen],
            outcome=self.outcome[chosen],
            id=self.id[chosen],
            final_key=self.final_key[chosen],
            subject=None if self.subject is None else self.subject[chosen],
            half=None if self.half is None else self.half[chosen],
        )

    def truncate(self, horizon: int) -> Episodes:
        """Cut every episode after `horizon` steps, which becomes the horizon; it may be longer.

        An episode that is cut loses its outcome and its unreduced final state.
        """
        horizon = check_horizon(horizon)
        if horizon >= self.horizon:
            return replace(self, horizon=horizon)
        return replace(self.cut(np.full(len(self), horizon)), horizon=horizon)

    def cut(self, steps: ArrayLike) -> Episodes:
        """Cut each episode after its number of steps [n], at least 1; the horizon stays.

        An episode that is cut loses its outcome and its unreduced final state.
        """
        kept = np.asarray(steps, dtype=np.int64)
        if kept.shape != (len(self),) or (kept < 1).any():
            raise ValueError(f"steps: give a number of at least 1 for each of {len(self)} episodes")
        cut = self.lengths > kept
        # the row after the cut, at offset + kept, describes the state reached
        finals = len(self.state) + np.arange(len(self))
        return self._take(
            np.flatnonzero(self.time < np.repeat(kept, self.lengths)),
            np.where(cut, self.offsets[:-1] + kept, finals),
            np.minimum(self.lengths, kept),
            outcome=np.where(cut, -1, self.outcome).astype(np.int32),
            final_key=np.where(cut, -1, self.final_key),
        )

    def _take(self, rows: Offsets, finals: Offsets, lengths: Offsets, **changes: Any) -> Episodes:
        """Return some transitions; `finals` are the side rows of the final states."""
        both = np.concatenate([rows, finals])
        side, numbers, recorded = (
            None if frame is None else frame.iloc[both].reset_index(drop=True)
            for frame in (self.side, self.numbers, self.recorded)
        )
        taken, chosen = (
            None if given is None else given[rows]
            for given in (self.behavior_probability, self.target_probability)
        )
        return replace(
            self,
            state=self.state[rows],
            action=self.action[rows],
            next_state=self.next_state[rows],
            reward=self.reward[rows],
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            side=side,
            numbers=numbers,
            recorded=recorded,
            behavior_probability=taken,
            target_probability=chosen,
            **changes,
        )

    def with_behavior_probability(self, probability: ArrayLike) -> Episodes:
        """Return the log with the probability with which each action was taken, [N].

        Importance weights divide by it; without it they divide by a behavior policy on states.
        """
        checked = check_taken(probability, len(self.state), self.place)
        return replace(self, behavior_probability=checked)

    def with_target_probability(self, rows: ArrayLike) -> Episodes:
        """Return the log with what a policy does in each of its rows, [N, A].

        For a policy that depends on more than the state; `row_policy` makes a target of it.
        """
        given = np.asarray(rows, dtype=np.float64)
        if given.shape != (len(self.state), self.n_actions):
            raise ValueError(
                f"target_probability has shape {given.shape}, expected ({len(self.state)}, "
                f"{self.n_actions}): one row per logged decision, one column per action"
            )
        return replace(
            self, target_probability=check_distributions(given, "target_probability", ("row",))
        )

    def with_numbers(self, numbers: pd.DataFrame) -> Episodes:
        """Return the log with the numbers behind the levels of some state variables.

        Classifiers of `fit_factored` learn from these numbers; all else knows levels only. One
        column per variable; N rows, then one for the final state of each episode.
        """
        finals = self.next_state[self.offsets[1:] - 1]
        known = np.append(self.state, finals) >= 0
        names = [variable.name for variable in self.state_variables]
        return replace(self, numbers=check_level_numbers(numbers, names, known))

    def with_step(self, name: str = "step") -> Episodes:
        """Return the log with the number of the step as the first variable of its state.

        Policies and rules can then differ from step to step: a policy is [(T + 1) S, A], or [T, S,
        A] where a `Replay` is given one. Models learn from each step apart, or, if factored, where
        that predicts better.
        """
        states = self.n_states * (self.horizon + 1)
        if self.combinations is not None or states > MOST_STATES:
            raise ValueError(
                "with_step needs states that can be enumerated; use fewer variables (hide) or "
                "levels, or a shorter horizon"
            )
        after = (self.time + 1) * self.n_states + self.next_state
        return replace(
            self,
            state=(self.time * self.n_states + self.state).astype(np.int32),
            next_state=np.where(self.next_state < 0, -1, after).astype(np.int32),
            state_variables=check_variables(
                (step_variable(self.horizon, name), *self.state_variables), "state"
            ),
        )

    def hide(self, *names: str) -> Episodes:
        """Move variables out of the state into side columns that no model sees.

        `final_key` stays what it was, unless a static variable is hidden: then it is the final
        state without static variables.
        """
        known = [variable.name for variable in self.state_variables]
        for name in names:
            if name not in known:
                raise ValueError(
                    f"no state variable {name!r} to hide; there are {', '.join(map(repr, known))}"
                )
        for variable in self.state_variables:
            if variable.name in names and variable.durations:
                raise ValueError(
                    f"{variable.name!r} has the time between decisions, by which rewards are "
                    "discounted, so it cannot be hidden"
                )
        if len(set(names)) == len(known):
            raise ValueError("hiding every state variable leaves no state; keep at least one")
        finals = self.next_state[self.offsets[1:] - 1]
        if (finals < 0).any():
            first = self.id[int((finals < 0).argmax())]
            raise ValueError(
                f"episode {first}: its final state is unknown (-1), so nothing can be hidden; "
                "give every episode's final state"
            )
        codes = self.codes(np.concatenate([self.state, finals]))
        seen = tuple(v for v in self.state_variables if v.name not in names)
        hidden = tuple(v for v in self.state_variables if v.name in names)

        blank = pd.DataFrame(index=range(len(self.state) + len(self)))
        side = blank if self.side is None else self.side.copy()
        for variable in hidden:
            if variable.name in side:
                raise ValueError(
                    f"there is already a side column {variable.name!r}; rename it before hiding"
                )
            side[variable.name] = pd.Categorical.from_codes(
                codes[variable.name], list(variable.levels), ordered=True
            )
        side_variables = self.side_variables + hidden
        final_key = self.final_key
        if any(variable.static for variable in hidden):
            kept = seen + tuple(v for v in side_variables if not v.static)
            for variable in self.side_variables:
                codes[variable.name] = side[variable.name].cat.codes.to_numpy()
            finals_of = np.stack([codes[v.name][len(self.state) :] for v in kept], axis=1)
            if count_levels(kept) > WORD:
                final_key = number_combinations(kept, finals_of)[1]
            else:
                final_key = ravel(kept, list(finals_of.T))
        reduced, combinations = self._reduce(seen)
        numbers, recorded = (
            None if frame is None else frame.drop(columns=columns, errors="ignore")
            for frame, columns in (
                (self.numbers, [*names]),
                (self.recorded, [mark + name for mark in (RAW, FILLED) for name in names]),
            )
        )
        return replace(
            self,
            state=reduced[self.state],
            next_state=reduced[self.next_state],
            final_key=final_key,
            state_variables=seen,
            side=side,
            side_variables=side_variables,
            combinations=combinations,
            numbers=numbers,
            recorded=recorded,
        )

    def state_labels(self, *names: str) -> Integers:
        """Map each state to the combination of these variables' levels, [S]: for `labels=`.

        By default those that nature decides: all but the variables with the name of an action
        variable, which record what was just decided, such as a treatment flag.
        """
        names = names or decided_by_nature(self.state_variables, self.action_variables)
        if self.combinations is None:
            return project(self.state_variables, *names)
        known = [variable.name for variable in self.state_variables]
        for name in names:
            if name not in known:
                raise ValueError(f"no variable {name!r}; there are {', '.join(map(repr, known))}")
        return self._reduce(tuple(v for v in self.state_variables if v.name in names))[0]

    def _reduce(self, kept: tuple[Variable, ...]) -> tuple[Integers, Combinations | None]:
        """Map each state to one of some variables only, [S]; also the combinations of that."""
        if self.combinations is None:
            return project(self.state_variables, *(variable.name for variable in kept)), None
        place = [self.state_variables.index(variable) for variable in kept]
        codes = self.combinations[:, place]
        if count_levels(kept) <= MOST_STATES:
            return ravel(kept, list(codes.T)).astype(np.int32), None
        combinations, number = number_combinations(kept, codes)
        return number.astype(np.int32), combinations


def rows_of(start: Offsets, lengths: Offsets, chosen: Offsets) -> Offsets:
    """Rows of the chosen runs of rows, run after run."""
    taken = lengths[chosen]
    before = np.cumsum(taken) - taken
    return np.arange(taken.sum()) + np.repeat(start[chosen] - before, taken)


def mean_last_reward(
    index: int, ends: NDArray[Any], reward: Floats | None, offsets: NDArray[Any]
) -> float:
    """Return the mean last reward of the episodes with one outcome, 0 if there are none."""
    if reward is None or not (ends == index).any():
        return 0.0
    return float(reward[offsets[1:] - 1][ends == index].mean())


def _number_states(
    variables: Sequence[Variable], state: ArrayLike, next_state: ArrayLike, wide: bool | None
) -> tuple[Offsets, Offsets, Combinations | None]:
    """Return the numbers of states given by level codes, and the combinations of a wide log."""
    before = check_code_rows(state, len(variables), "state")
    after = check_code_rows(next_state, len(variables), "next_state")
    both = np.concatenate([before, after])
    known = (both >= 0).any(axis=1) | (np.arange(len(both)) < len(before))
    check_codes(variables, both[known], "state and next_state")
    number = np.full(len(both), -1, dtype=np.int64)
    combinations = None
    if count_levels(variables) > MOST_STATES if wide is None else wide:
        combinations, number[known] = number_combinations(variables, both[known])
    else:
        number[known] = ravel(variables, list(both[known].T))
    return number[: len(before)], number[len(before) :], combinations


def _check_rows(log: Episodes) -> None:
    """Refuse states or actions out of range, broken chains and episodes beyond the horizon."""
    last = log.offsets[1:] - 1
    for name, array, size, noun in (
        ("state", log.state, log.n_states, "states"),
        ("action", log.action, log.n_actions, "actions"),
        ("next state", log.next_state, log.n_states, "states"),
    ):
        wrong = (array < 0) | (array >= size)
        if name == "next state":  # may be unknown if there is an outcome
            wrong[last] &= (array[last] != -1) | (log.outcome < 0)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"row {row} ({log.place(row)}): {name} {array[row]} outside 0..{size - 1}; "
                f"relabel it, or give the right number of {noun}"
            )
    broken = log.next_state[:-1] != log.state[1:]
    broken[last[:-1]] = False
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        raise ValueError(
            f"row {row} ({log.place(row)}): next state {log.next_state[row]} but the following row "
            f"starts in state {log.state[row + 1]}; sort the rows by time, or check offsets"
        )
    if log.lengths.max() > log.horizon:
        episode = int(log.lengths.argmax())
        raise ValueError(
            f"episode {log.id[episode]} has {log.lengths[episode]} steps, more than the horizon "
            f"{log.horizon}; leave the horizon out, or cut the episodes with truncate()"
        )

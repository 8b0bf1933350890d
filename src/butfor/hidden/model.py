"""TabularPOMDP: a hidden state that moves by sparse rows, and the observations it emits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_integers
from butfor.log.variables import (
    Outcome,
    Variable,
    check_outcomes,
    check_variables,
    count_levels,
    project,
    unravel,
)
from butfor.models.given import check_sparse_rows
from butfor.models.mdp import TabularMDP
from butfor.printed import Printed
from butfor.types import Floats, Integers

CLASSES = 64  # of labels: rows without a common class have no label in common


@dataclass(frozen=True, eq=False, repr=False)
class TabularPOMDP(Printed):
    """A model with H hidden states, of which episodes show only observations.

    A state with an outcome is an end: reaching it ends the episode, so it has no rows. Rewards
    belong to transitions, including those into an end.
    """

    dynamics: TabularMDP  # rows h A + a over hidden states; empty for ends; without outcomes
    emission: sparse.csr_array  # [H, Z] observation probabilities; rows of ends may be empty
    outcome: Integers  # [H] which end a state is, -1: none
    outcomes: tuple[Outcome, ...]
    state_variables: tuple[Variable, ...]  # of the hidden state
    observation_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    reward_seen: bool = True  # whether logged rewards are the model's, hence evidence

    def stored_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a file of the model holds."""
        return {
            **self.dynamics.stored_arrays(),
            "emission_start": self.emission.indptr.astype(np.int64),
            "emission_observation": self.emission.indices.astype(np.int32),
            "emission_probability": self.emission.data,
            "outcome": self.outcome,
            "reward_seen": np.array(self.reward_seen),
        }

    @classmethod
    def from_arrays(
        cls,
        transition: ArrayLike | sparse.sparray | sparse.spmatrix,
        emission: ArrayLike | sparse.sparray | sparse.spmatrix,
        *,
        initial: ArrayLike,
        outcome: ArrayLike | None = None,
        outcomes: Sequence[Outcome] = (),
        reward: ArrayLike | sparse.sparray | sparse.spmatrix | None = None,
        labels: ArrayLike | None = None,
        states: Sequence[Variable] | None = None,
        observations: Sequence[Variable] | None = None,
        actions: int | Sequence[Variable] | None = None,
        reward_seen: bool = True,
    ) -> TabularPOMDP:
        """Make a model from given probabilities.

        Parameters
        ----------
        transition : [H, A, H], or sparse [H A, H] together with `actions`
            Rows of ends do not matter.
        emission : [H, Z], or [H] whole numbers
            A distribution over observations for each state, or the one observation it shows. The
            rows of all ends may be 0 (or -1): observations there are then no evidence.
        initial : [H]
            Distribution of the first state.
        outcome : [H], optional
            Which of the `outcomes` a state is, -1 for none.
        reward
            [H, A, H], [H, A], or [H] earned on arrival; by default an outcome's own on arrival.
        labels : [H], optional
            Which noise decides a transition, such as the part of the next state that nature
            decides; by default the state. The next states of a row need different labels.
        states, observations, actions : optional
            The variables that make up hidden states, observations and actions. A static variable
            must never change.
        reward_seen
            Whether the rewards in a log are exactly those of the model, and thus evidence.
        """
        ends = check_outcomes(outcomes)
        if isinstance(actions, int | np.integer):
            actions = check_variables(actions, "action")
        moves, size, number = _check_moves(
            transition, None if actions is None else count_levels(actions)
        )
        which = np.full(size, -1, np.int32) if outcome is None else check_ends(outcome, size, ends)
        if reward is None:
            reward = np.array([end.reward for end in ends] + [0.0])[which]
        shown = _check_emission(
            emission, size, which, 0 if observations is None else count_levels(observations)
        )
        dynamics = _without_ends(moves, which >= 0, number, reward, initial)
        model = cls(
            dynamics=dynamics.with_labels(labels),
            emission=shown,
            outcome=which,
            outcomes=ends,
            state_variables=_check_levels(states, size, "state"),
            observation_variables=_check_levels(observations, shown.shape[1], "observation"),
            action_variables=_check_levels(actions, number, "action"),
            reward_seen=reward_seen,
        )
        _check_static(model)
        _check_start(model)
        return model

    @classmethod
    def from_mdp(
        cls,
        model: TabularMDP,
        *,
        states: Sequence[Variable] | None = None,
        actions: Sequence[Variable] | None = None,
    ) -> TabularPOMDP:
        """Make a model in which the state is observed; outcomes become states that show nothing."""
        if model.terminal != "visits":
            raise ValueError(
                f"the model counts ends as {model.terminal!r}; fit it with terminal='visits', so "
                "that the model contains the last transition of each episode"
            )
        size, ends, count = model.n_states, len(model.outcomes), model.n_actions
        which = np.concatenate([np.full(size, -1), np.arange(ends)]).astype(np.int32)
        seen = check_variables(size if states is None else states, "state")
        kinds = Variable("state", tuple(str(state) for state in range(size + ends)))
        return cls(
            dynamics=replace(
                model,
                start=np.append(model.start, np.full(ends * count, model.start[-1])),
                initial=np.append(model.initial, np.zeros(ends)),
                counts=np.vstack([model.counts, np.zeros((ends, count), dtype=np.int64)]),
                unseen=np.vstack([model.unseen, np.zeros((ends, count), dtype=bool)]),
                outcomes=(),
            ),
            emission=sparse.csr_array(sparse.eye_array(size + ends, size, format="csr")),
            outcome=which,
            outcomes=model.outcomes,
            state_variables=(kinds,),
            observation_variables=seen,
            action_variables=check_variables(count if actions is None else actions, "action"),
            reward_seen=False,
        )

    def _title(self) -> str:
        return (
            f"TabularPOMDP of {self.n_states:,} hidden states, {self.n_actions} actions and "
            f"{self.n_observations:,} observations"
        )

    @property
    def n_states(self) -> int:
        """Number of hidden states H, including ends."""
        return self.dynamics.n_states

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return self.dynamics.n_actions

    @property
    def n_observations(self) -> int:
        """Number of observations Z."""
        return int(self.emission.shape[1])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of hidden states H, observations Z and actions A."""
        return self.n_states, self.n_observations, self.n_actions

    @property
    def initial(self) -> Floats:
        """Distribution of the first hidden state, [H]."""
        return self.dynamics.initial

    @cached_property
    def hidden_variables(self) -> tuple[Variable, ...]:
        """State variables whose level is not determined by every observation."""
        going = np.flatnonzero(self.outcome < 0)
        shown = self.emission[going].tocoo()
        codes = unravel(self.state_variables, going[shown.row])
        number = np.unique(shown.col).size

        def determined(variable: Variable) -> bool:
            pair = codes[variable.name] * self.n_observations + shown.col
            return bool(np.unique(pair).size == number)

        return tuple(v for v in self.state_variables if not determined(v))

    @cached_property
    def shows(self) -> Integers | None:
        """The observation of each state (-1 for none), [H]; None if some are random."""
        size = np.diff(self.emission.indptr)
        if (size > 1).any():
            return None
        shown = np.full(self.n_states, -1, np.int32)
        shown[size == 1] = self.emission.indices
        return shown

    def with_labels(self, labels: ArrayLike | None) -> TabularPOMDP:
        """Return the model with noise on these labels of next states [H], or on the states."""
        return replace(self, dynamics=self.dynamics.with_labels(labels))

    def with_initial(self, initial: ArrayLike) -> TabularPOMDP:
        """Return the model with another distribution of the first state, [H]."""
        model = replace(self, dynamics=self.dynamics.with_initial(initial))
        _check_start(model)
        return model

    @cached_property
    def arrays(self) -> kernels.Hidden:
        """The model as kernels take it."""
        dynamics = self.dynamics
        going = sparse.csr_array(
            sparse.diags_array((self.outcome < 0).astype(np.float64)) @ self.emission
        )
        going.eliminate_zeros()
        ended = np.flatnonzero(self.outcome >= 0)
        ends = sparse.csr_array(
            (np.ones(len(ended)), (self.outcome[ended], ended)),
            shape=(len(self.outcomes), self.n_states),
        )
        label = dynamics.entry_label
        classes = np.zeros(len(dynamics.start) - 1, np.uint64)
        bit = np.left_shift(np.uint64(1), (label % CLASSES).astype(np.uint64))
        np.bitwise_or.at(classes, dynamics.entry_row, bit)
        return kernels.Hidden(
            kernels.Rows(dynamics.start, label, dynamics.probability),
            dynamics.next_state,
            dynamics.reward,
            dynamics.labels,
            classes,
            dynamics.initial,
            self.outcome,
            as_rows(self.emission),
            np.full(self.n_states, -1, np.int32) if self.shows is None else self.shows,
            as_rows(sparse.csr_array(going.T)),
            as_rows(ends),
            self.n_states,
            self.n_actions,
            self.reward_seen,
        )


def check_pomdp(model: object) -> TabularPOMDP:
    """Return a model with a hidden state; refuse anything else."""
    if not isinstance(model, TabularPOMDP):
        raise ValueError(
            f"model: a {type(model).__name__}, expected a TabularPOMDP; convert a TabularMDP with "
            "TabularPOMDP.from_mdp, a Factored with its model()"
        )
    return model


def as_rows(matrix: sparse.csr_array) -> kernels.Rows:
    """Return a sparse matrix as kernel rows."""
    matrix.sort_indices()
    return kernels.Rows(
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int32),
        matrix.data.astype(np.float64),
    )


def _check_moves(
    transition: ArrayLike | sparse.sparray | sparse.spmatrix, actions: int | None
) -> tuple[sparse.csr_array, int, int]:
    """Return transitions as a sparse matrix [H A, H], with H and A."""
    if sparse.issparse(transition):
        matrix = sparse.csr_array(transition, dtype=np.float64)
        size = int(matrix.shape[1])
        if actions is None or matrix.shape[0] != size * actions:
            raise ValueError(
                f"transition has shape {matrix.shape}; a sparse one [H A, H] needs actions=A"
            )
        return matrix, size, actions
    dense = np.asarray(transition, dtype=np.float64)
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
        raise ValueError(
            f"transition has shape {dense.shape}, expected [states, actions, states]; ends are "
            "states too"
        )
    size, number = dense.shape[:2]
    return sparse.csr_array(dense.reshape(size * number, size)), size, number


def _check_levels(given: Sequence[Variable] | None, count: int, name: str) -> tuple[Variable, ...]:
    variables = check_variables(count if given is None else given, name)
    if count_levels(variables) != count:
        raise ValueError(
            f"{name}s: the variables have {count_levels(variables)} combinations of levels, but "
            f"there are {count} {name}s; list every level"
        )
    return variables


def _without_ends(
    moves: sparse.csr_array, over: NDArray[np.bool_], actions: int, reward: Any, initial: ArrayLike
) -> TabularMDP:
    """Return the dynamics, in which ends have no rows, whatever was given."""
    gone = np.repeat(over, actions)
    rows = np.flatnonzero(gone)
    # every row must sum to one, so ends stay where they are until their rows are removed
    own = sparse.csr_array((np.ones(len(rows)), (rows, rows // actions)), shape=moves.shape)
    going = sparse.csr_array(sparse.diags_array((~gone).astype(np.float64)) @ moves)
    model = TabularMDP.from_arrays(going + own, reward=reward, actions=actions, initial=initial)
    kept = ~gone[model.entry_row]
    return replace(
        model,
        start=np.append(0, np.cumsum(np.where(gone, 0, np.diff(model.start)))),
        next_state=model.next_state[kept],
        probability=model.probability[kept],
        reward=model.reward[kept],
    )


def check_ends(given: ArrayLike, size: int, ends: tuple[Outcome, ...]) -> Integers:
    """Return the outcome of each state, -1 for none."""
    which = check_integers(given, "outcome")
    if which.shape != (size,):
        raise ValueError(f"outcome has shape {which.shape}, expected ({size},), one per state")
    wrong = (which < -1) | (which >= len(ends))
    if wrong.any():
        state = int(wrong.argmax())
        raise ValueError(
            f"outcome of state {state} is {which[state]}, but there are {len(ends)} outcomes; "
            "give -1 for none"
        )
    return which.astype(np.int32)


def _check_emission(
    emission: ArrayLike | sparse.sparray | sparse.spmatrix,
    size: int,
    outcome: Integers,
    least: int,
) -> sparse.csr_array:
    """Return emissions as sparse rows that sum to one; only those of ends may be empty.

    If one observation per state is given, there are at least `least` columns.
    """
    if sparse.issparse(emission):
        matrix = sparse.csr_array(emission, dtype=np.float64, copy=True)
    else:
        given = np.asarray(emission)
        if given.ndim == 1:
            shown = check_integers(given, "emission")
            wrong = (shown < 0) & ~((shown == -1) & (outcome >= 0)[: len(shown)])
            if len(shown) == size and wrong.any():
                state = int(wrong.argmax())
                raise ValueError(
                    f"emission: state {state} shows observation {shown[state]}; number them from 0 "
                    "(-1, for none, is allowed for ends only)"
                )
            telling = np.flatnonzero(shown >= 0)
            matrix = sparse.csr_array(
                (np.ones(len(telling)), (telling, shown[telling])),
                shape=(len(shown), max(least, int(shown.max()) + 1)),
            )
        else:
            matrix = sparse.csr_array(np.asarray(given, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[0] != size or matrix.shape[1] == 0:
        raise ValueError(
            f"emission has shape {matrix.shape}, expected ({size}, observations), one row per state"
        )
    matrix.sum_duplicates()
    total = check_sparse_rows(
        matrix, "emission", lambda row: f"state {row}", "observation", outcome >= 0
    )
    matrix.eliminate_zeros()
    silent = (total == 0) & (outcome >= 0)
    if silent.any() and (silent != (outcome >= 0)).any():
        raise ValueError(
            f"emission: the end {int(silent.argmax())} shows nothing, other ends show something; "
            "give all ends observations, or none of them"
        )
    matrix.data /= np.repeat(np.where(total > 0, total, 1.0), np.diff(matrix.indptr))
    return matrix


def _check_static(model: TabularPOMDP) -> None:
    """Refuse a model in which a static variable changes."""
    names = [variable.name for variable in model.state_variables if variable.static]
    if not names:
        return
    block = project(model.state_variables, *names)
    dynamics = model.dynamics
    before = dynamics.entry_row // dynamics.n_actions
    changes = block[before] != block[dynamics.next_state]
    if changes.any():
        entry = int(changes.argmax())
        raise ValueError(
            f"{' and '.join(names)} should never change, but state {before[entry]} can go to "
            f"state {dynamics.next_state[entry]}; give the variable without static=True"
        )


def _check_start(model: TabularPOMDP) -> None:
    over = (model.initial > 0) & (model.outcome >= 0)
    if over.any():
        state = int(over.argmax())
        raise ValueError(
            f"initial: state {state} is an end and has probability {model.initial[state]:.9g}; "
            "give 0, since no episode starts at its end"
        )

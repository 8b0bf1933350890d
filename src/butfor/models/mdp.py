"""TabularMDP: a finite model with named absorbing outcomes, stored as sparse rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_distributions
from butfor.log.combinations import discount_states
from butfor.log.variables import Outcome, check_outcomes
from butfor.models.given import given_rows
from butfor.models.plan import Taught
from butfor.printed import Printed
from butfor.types import Floats, Integers, Offsets


@dataclass(frozen=True, eq=False, repr=False)
class TabularMDP(Printed):
    """P(next | state, action) as sparse rows, row s A + a; next state S + o is outcome o.

    Outcomes are absorbing: nothing follows them and nothing is earned there. The reward of an entry
    is that of the transition, including one into an outcome. `labels` says which noise decides a
    transition: entries of two rows with the same label share it (by default the next state).
    """

    start: Offsets  # [S A + 1] first entry of each row
    next_state: Integers  # [E] labels increase within a row
    probability: Floats  # [E] none is 0
    reward: Floats  # [E]
    labels: Integers  # [S + O] label of each state and outcome
    initial: Floats  # [S] distribution of the first state
    counts: NDArray[np.int64]  # [S, A] logged transitions behind each row; 0 where none or unknown
    unseen: NDArray[np.bool_]  # [S, A] rows that the rule for unseen pairs made up
    outcomes: tuple[Outcome, ...]
    terminal: str = "visits"  # how an episode's last transition is read: see fit_mdp
    prior: float | None = None  # what was added to the counts; None: not known to be counted
    # [S] how long before each state the previous decision was made; None: one step
    durations: Floats | None = None
    # by which log; None: by none, as far as is known
    taught: Taught | None = field(default=None, repr=False)

    def stored_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a file of the model holds."""
        return {name: getattr(self, name) for name in STORED}

    @classmethod
    def from_arrays(
        cls,
        transition: ArrayLike | sparse.sparray | sparse.spmatrix,
        *,
        reward: ArrayLike | sparse.sparray | sparse.spmatrix | None = None,
        outcomes: Sequence[Outcome] = (),
        absorbing: Mapping[int, int] | None = None,
        actions: int | None = None,
        initial: ArrayLike | None = None,
        counts: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        durations: ArrayLike | None = None,
    ) -> TabularMDP:
        """Make a model from given probabilities, learned elsewhere or known.

        Parameters
        ----------
        transition : [S, A, S + O], or sparse [S A, S + O] together with `actions`
            Columns S .. S + O - 1 are the outcomes.
        reward
            Of the same shape as `transition`; or [S, A]; or [S + O], earned on arrival. By default
            each outcome's reward on arrival and nothing elsewhere.
        absorbing : {state: outcome}, optional
            States of the given model that are outcomes: transitions into them lead to the outcome
            instead. The states keep their numbers; their own rows lead to the outcome too.
        initial : [S], optional
            By default uniform.
        counts : [S, A], optional
            The number of observations behind each row, for later warnings.
        labels : [S] or [S + O], optional
            See `with_labels`.
        durations : [S], optional
            How long before each state the previous decision was made, if the time between decisions
            varies: discounts are per unit of time.
        """
        ends = check_outcomes(outcomes)
        rows = given_rows(transition, reward, ends, absorbing or {}, actions)
        states, actions = rows.states, rows.actions
        model = cls(
            start=rows.start,
            next_state=rows.next_state,
            probability=rows.probability,
            reward=rows.reward,
            labels=_check_labels(None, states, len(ends)),
            initial=_check_initial(initial, states),
            counts=_check_counts(counts, states, actions),
            unseen=np.zeros((states, actions), dtype=bool),
            outcomes=ends,
            durations=_check_durations(durations, states),
        )
        return model if labels is None else model.with_labels(labels)

    def _title(self) -> str:
        return f"TabularMDP of {self.n_states:,} states and {self.n_actions} actions"

    def _facts(self) -> dict[str, Any]:
        return {
            "possible transitions": len(self.next_state),
            "outcomes": self.outcomes,
            "ends": self.terminal,
            "prior": self.prior,
        }

    @property
    def n_states(self) -> int:
        """Number of states S, without outcomes."""
        return self.counts.shape[0]

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return self.counts.shape[1]

    def discounts(self, discount: float) -> Floats:
        """Return the factor by which what follows counts less in each state reached, [S]."""
        return discount_states(self.durations, discount, self.n_states)

    @cached_property
    def entry_label(self) -> Integers:
        """Label of each entry, [E]."""
        return self.labels[self.next_state]

    @cached_property
    def entry_row(self) -> Offsets:
        """Row s A + a of each entry, [E]."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def row(self, state: int, action: int) -> dict[int, float]:
        """Return the distribution over next states and outcomes after an action."""
        if not (0 <= state < self.n_states and 0 <= action < self.n_actions):
            raise ValueError(
                f"state {state}, action {action} is outside 0..{self.n_states - 1}, "
                f"0..{self.n_actions - 1}"
            )
        entries = slice(*self.start[state * self.n_actions + action :][:2])
        return dict(
            zip(self.next_state[entries].tolist(), self.probability[entries].tolist(), strict=True)
        )

    def with_labels(self, labels: ArrayLike | None) -> TabularMDP:
        """Return the model with noise on these labels of next states, or on the states (None).

        Two next states of the same row must not share a label: they would share their noise, and
        one of them could never happen. Each outcome has its own label.
        """
        label_of = _check_labels(labels, self.n_states, len(self.outcomes))
        order = np.lexsort((label_of[self.next_state], self.entry_row))
        row, next_state = self.entry_row[order], self.next_state[order]
        label = label_of[next_state]
        twice = (row[1:] == row[:-1]) & (label[1:] == label[:-1])
        if twice.any():
            first = int(np.flatnonzero(twice)[0])
            state, action = divmod(int(row[first]), self.n_actions)
            raise ValueError(
                f"labels: after state {state}, action {action} the next states "
                f"{next_state[first]} and {next_state[first + 1]} have the same label; give all "
                "next states of a row different labels"
            )
        return replace(
            self,
            next_state=next_state,
            probability=self.probability[order],
            reward=self.reward[order],
            labels=label_of,
        )

    def with_initial(self, initial: ArrayLike) -> TabularMDP:
        """Return the model with another distribution of the first state, [S]."""
        return replace(self, initial=_check_initial(initial, self.n_states))


STORED = ("start", "next_state", "probability", "reward", "labels", "initial", "counts", "unseen")


def check_mdp(model: object) -> TabularMDP:
    """Return a fully observed model; refuse anything else."""
    if not isinstance(model, TabularMDP):
        raise ValueError(
            f"model: a {type(model).__name__}, expected a TabularMDP; this is not available for "
            "other kinds of models"
        )
    return model


def total_by(index: NDArray[np.integer], weight: Floats, size: int) -> Floats:
    """Return the sum of the weights at each index, [size]."""
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


def assemble(
    keys: Offsets,
    weight: Floats,
    reward: Floats,
    *,
    states: int,
    actions: int,
    outcomes: tuple[Outcome, ...],
    labels: ArrayLike | None,
    initial: Floats,
    counts: NDArray[np.int64],
    unseen: NDArray[np.bool_],
    terminal: str,
    prior: float | None = None,
    durations: Floats | None = None,
    taught: Taught | None = None,
) -> TabularMDP:
    """Make a model from entries with distinct keys row * (S + O) + next; rows are normalized."""
    order = np.argsort(keys, kind="stable")  # fast, as most of them are in order
    row, next_state = np.divmod(keys[order], states + len(outcomes))
    total = total_by(row, weight[order], states * actions)
    model = TabularMDP(
        start=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=states * actions))]),
        next_state=next_state.astype(np.int32),
        probability=weight[order] / total[row],
        reward=np.ascontiguousarray(reward[order], dtype=np.float64),
        labels=_check_labels(None, states, len(outcomes)),
        initial=initial,
        counts=counts,
        unseen=unseen,
        outcomes=outcomes,
        terminal=terminal,
        prior=prior,
        durations=durations,
        taught=taught,
    )
    return model if labels is None else model.with_labels(labels)


def _check_labels(labels: ArrayLike | None, states: int, ends: int) -> Integers:
    if labels is None:
        return np.arange(states + ends, dtype=np.int32)
    given = np.asarray(labels)
    if given.shape not in ((states,), (states + ends,)):
        raise ValueError(
            f"labels has shape {given.shape}, expected ({states},), one per state, "
            f"or ({states + ends},), including outcomes"
        )
    codes = np.unique(given[:states], return_inverse=True)[1]
    if len(given) > states:
        last = given[states:]
        for outcome, label in enumerate(last.tolist()):
            if (given == label).sum() > 1:
                raise ValueError(
                    f"labels: outcome {outcome} shares the label {label!r}; give each outcome its "
                    "own label, or give labels of states only"
                )
    return np.concatenate([codes, codes.max() + 1 + np.arange(ends)]).astype(np.int32)


def _check_initial(initial: ArrayLike | None, states: int) -> Floats:
    if initial is None:
        return np.full(states, 1.0 / states)
    given = np.asarray(initial, dtype=np.float64)
    if given.shape != (states,):
        raise ValueError(f"initial has shape {given.shape}, expected ({states},)")
    return check_distributions(given, "initial")


def _check_durations(durations: ArrayLike | None, states: int) -> Floats | None:
    if durations is None:
        return None
    given = np.asarray(durations, dtype=np.float64)
    if given.shape != (states,) or not (given > 0).all():  # infinite where nothing follows
        raise ValueError(
            f"durations of shape {given.shape}: give a number above 0 for each of {states} states"
        )
    return given


def _check_counts(counts: ArrayLike | None, states: int, actions: int) -> NDArray[np.int64]:
    if counts is None:
        return np.zeros((states, actions), dtype=np.int64)
    given = np.asarray(counts)
    if given.shape != (states, actions) or given.dtype.kind not in "iu":
        raise ValueError(
            f"counts: expected whole numbers of shape ({states}, {actions}), "
            f"got {given.dtype} of shape {given.shape}"
        )
    if (given < 0).any():
        state, action = np.argwhere(given < 0)[0]
        raise ValueError(
            f"counts: {given[state, action]} at state {state}, action {action}; "
            "counts are whole numbers, at least 0"
        )
    return given.astype(np.int64)

"""What follows each state and action on average: one step of planning, by kind of model."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, bicgstab, splu

from butfor.models.backup import Backup
from butfor.models.factored import FactoredModel, tabular
from butfor.models.given import row_blocks
from butfor.models.mdp import TabularMDP, total_by
from butfor.types import Floats, Offsets

TIE = 1e-9  # actions whose values differ by less are tied
DECISIVE = TIE / 100  # relative error of values below which no two actions are confused
SMALL = 1000  # states; up to so many, equations are solved by elimination
MOST_STEPS = 1000  # of an iterative solution, after which equations are solved by elimination


class TabularLookahead:
    """What follows each state and action on average, by the rows of a model.

    `trust` [S, A] is the probability that the model is right about a pair; otherwise the step earns
    `worst`, and ends. None: it is right.
    """

    sweeps = 0  # of value iteration, with which planning begins

    def __init__(self, model: TabularMDP, trust: Floats | None = None, worst: float = 0.0) -> None:
        self.shape, self.trust = model.counts.shape, trust
        self.moves = transition_matrix(model)
        self.ends = np.zeros(len(model.outcomes))
        self.earned = expected_rewards(model).reshape(self.shape)
        if trust is not None:
            self.earned = trust * self.earned + (1 - trust) * worst

    def after(self, values: Floats) -> Floats:
        """Mean value [S, A] of the next state, where values are [S]."""
        found = np.asarray(self.moves @ np.append(values, self.ends)).reshape(self.shape)
        return found if self.trust is None else self.trust * found

    def evaluate(self, policy: Floats, kept: Floats, guess: Floats | None = None) -> Floats:
        """Return the value of a policy from each state, [S].

        `kept` [S] is the factor by which what follows counts less in each state reached.
        """
        trusted = policy if self.trust is None else policy * self.trust
        moves = (policy_matrix(trusted) @ self.moves)[:, : len(kept)]
        earned = (policy * self.earned).sum(axis=1)
        return solve(moves @ sparse.diags_array(kept), earned, guess)


class FactoredLookahead:
    """The same by the factors of a model, whose rows are never written down."""

    sweeps = 20  # a step takes little time compared with an evaluation

    def __init__(
        self, model: FactoredModel, trust: Floats | None = None, worst: float = 0.0
    ) -> None:
        self.model, self.trust, self.worst = model, trust, worst
        self.backup = Backup(model)
        self.earned = self.backup.rewards
        if trust is not None:
            self.earned = trust * self.earned + (1 - trust) * worst

    def after(self, values: Floats) -> Floats:
        """Mean value [S, A] of the next state, where values are [S]."""
        found = self.backup.after(values)
        return found if self.trust is None else self.trust * found

    def evaluate(self, policy: Floats, kept: Floats, guess: Floats | None = None) -> Floats:
        """Return the value of a deterministic policy from each state, [S].

        Solves V = R + P kept V by steps through the factors; by the rows if that fails.
        """
        size = len(policy)
        taken = np.arange(size), policy.argmax(axis=1)
        earned = self.earned[taken]

        def left(values: Floats) -> Floats:
            return values - self.after(kept * values)[taken]

        system = LinearOperator((size, size), matvec=left, dtype=np.float64)
        found = _iterate(system, earned, 1 / (1 - kept.max()), guess)
        if found is None:
            rows = TabularLookahead(self.model.tabular(), self.trust, self.worst)
            return rows.evaluate(policy, kept)
        return found


Lookahead = TabularLookahead | FactoredLookahead


def look_ahead(
    model: TabularMDP | FactoredModel, trust: Floats | None = None, worst: float = 0.0
) -> Lookahead:
    """Return what follows each state and action of a model on average."""
    if in_parts(model):
        return FactoredLookahead(model, trust, worst)
    return TabularLookahead(tabular(model), trust, worst)


def in_parts(model: TabularMDP | FactoredModel) -> TypeGuard[FactoredModel]:
    """Whether a model can be planned in without its table of transitions."""
    return isinstance(model, FactoredModel) and Backup.fits(model)


def expected_rewards(model: TabularMDP) -> Floats:
    """Return the expected reward of each state-action pair, row s A + a, [S A]."""
    found = np.empty(len(model.start) - 1)
    for first, last in row_blocks(model.start):
        mine = slice(model.start[first], model.start[last])
        row = np.repeat(np.arange(last - first), np.diff(model.start[first : last + 1]))
        expected = model.probability[mine] * model.reward[mine]
        found[first:last] = total_by(row, expected, last - first)
    return found


def transition_matrix(model: TabularMDP) -> sparse.csr_array:
    """Return the moves into states and outcomes, [S A, S + O]; it shares the model's memory."""
    shape = (len(model.start) - 1, model.n_states + len(model.outcomes))
    return _sparse_rows(model.probability, model.next_state, model.start, shape)


def policy_matrix(policy: Floats) -> sparse.csr_array:
    """Return the sparse matrix [S, S A] that averages rows over a policy's actions."""
    state, action = np.nonzero(policy)
    states, actions = policy.shape
    start = np.searchsorted(state, np.arange(states + 1))
    shape = (states, states * actions)
    return _sparse_rows(policy[state, action], state * actions + action, start, shape)


def _sparse_rows(
    weight: Floats, column: NDArray[np.integer], start: Offsets, shape: tuple[int, int]
) -> sparse.csr_array:
    """Return a matrix with narrow indices: SciPy copies those of both factors if one is wide."""
    narrow = np.int32 if max(len(weight), *shape) < 2**31 else np.int64
    indices = column.astype(narrow, copy=False), start.astype(narrow, copy=False)
    return sparse.csr_array((weight, *indices), shape)


def solve(
    moves: sparse.csr_array,
    earned: Floats,
    guess: Floats | None = None,
    *,
    error: float = DECISIVE,
) -> Floats:
    """Solve V = R + P V, where the rows of P [S, S] sum to at most 1, and to less somewhere ahead.

    Large equations are solved by iteration, since elimination fills a random graph; by elimination
    if the iteration is not certain to be exact up to this relative error.
    """
    system = sparse.eye_array(len(earned), format="csr") - moves
    if len(earned) > SMALL:
        found = _iterate(system, earned, _largest_inverse(system, moves), guess, error)
        if found is not None:
            return found
    return np.asarray(splu(system.tocsc()).solve(earned))


def _iterate(
    system: sparse.csr_array | LinearOperator,
    right: Floats,
    inverse: float,
    guess: Floats | None = None,
    error: float = DECISIVE,
) -> Floats | None:
    """Solve equations by BiCGSTAB; None if the relative error may be larger than allowed.

    `inverse` limits the sums of absolute values of the rows of the inverse, and so how many times
    as large an error of the solution can be as that of the equations.
    """
    found = guess
    for _ in range(2):  # from a first solution again, since the method loses track of its error
        found, _ = bicgstab(system, right, x0=found, rtol=1e-14, maxiter=MOST_STEPS)
        apart = inverse * float(np.abs(system @ found - right).max())
        if apart <= error * max(1.0, float(np.abs(found).max())):
            return np.asarray(found)
    return None


def _largest_inverse(system: sparse.csr_array, moves: sparse.csr_array) -> float:
    """Return a limit of the row sums of the inverse of I - P.

    It is 1 / (1 - r) if every row of P sums to at most r. Without a discount rows sum to 1, and the
    row sums are expected numbers of steps. No entry of the inverse is negative, so that numbers t
    with (I - P) t >= 1/2 are at least half of them.
    """
    short = 1 - float(moves.sum(axis=1).max())
    if short > TIE:
        return 1 / short
    steps, _ = bicgstab(system, np.ones(system.shape[0]), rtol=1e-6, maxiter=MOST_STEPS)
    return 2 * float(steps.max()) if (system @ steps >= 0.5).all() else np.inf

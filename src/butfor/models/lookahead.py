"""What follows each state and action on average: one step of planning, by kind of model."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, splu

from butfor.models.backup import Backup
from butfor.models.factored import FactoredModel, tabular
from butfor.models.mdp import TabularMDP, total_by
from butfor.types import Floats

TIE = 1e-9  # actions whose values differ by less are tied


class TabularLookahead:
    """What follows each state and action on average, by the rows of a model.

    `trust` [S, A] is the probability that the model is right about a pair; otherwise the step earns
    `worst`, and ends. None: it is right.
    """

    sweeps = 0  # of value iteration, with which planning begins

    def __init__(self, model: TabularMDP, trust: Floats | None = None, worst: float = 0.0) -> None:
        self.shape = model.counts.shape
        self.moves = transition_matrix(model)
        self.earned = expected_rewards(model).reshape(self.shape)
        if trust is not None:
            self.moves = (sparse.diags_array(trust.ravel()) @ self.moves).tocsr()
            self.earned = trust * self.earned + (1 - trust) * worst

    def after(self, values: Floats) -> Floats:
        """Mean value [S, A] of the next state, where values are [S]."""
        return np.asarray(self.moves @ values).reshape(self.shape)

    def evaluate(self, policy: Floats, kept: Floats, guess: Floats | None = None) -> Floats:
        """Return the value of a policy from each state, [S]; no guess is needed.

        `kept` [S] is the factor by which what follows counts less in each state reached.
        """
        average = policy_matrix(policy)
        return solve(average @ self.moves, average @ self.earned.ravel(), kept)


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
        found, _ = bicgstab(system, earned, x0=guess, rtol=1e-14)
        # an error of values is at most 1 / (1 - kept) times that of the equations
        error = float(np.abs(left(found) - earned).max() / (1 - kept.max()))
        if not error <= TIE / 100 * max(1.0, float(np.abs(found).max())):
            rows = TabularLookahead(self.model.tabular(), self.trust, self.worst)
            return rows.evaluate(policy, kept)
        return np.asarray(found)


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
    rows = len(model.start) - 1
    return total_by(model.entry_row, model.probability * model.reward, rows)


def transition_matrix(model: TabularMDP) -> sparse.csr_array:
    """Return the moves that do not end in an outcome, sparse [S A, S]."""
    stays = model.next_state < model.n_states
    entries = (model.entry_row[stays], model.next_state[stays])
    shape = (len(model.start) - 1, model.n_states)
    return sparse.csr_array((model.probability[stays], entries), shape)


def policy_matrix(policy: Floats) -> sparse.csr_array:
    """Return the sparse matrix [S, S A] that averages rows over a policy's actions."""
    state, action = np.nonzero(policy)
    states, actions = policy.shape
    entries = (state, state * actions + action)
    return sparse.csr_array((policy[state, action], entries), (states, states * actions))


def solve(moves: sparse.csr_array, earned: Floats, kept: Floats) -> Floats:
    """Solve V = R + P kept V, where `kept` [S] is the discount of each state reached."""
    system = (
        sparse.eye_array(len(earned), format="csc") - (moves @ sparse.diags_array(kept)).tocsc()
    )
    return np.asarray(splu(system).solve(earned))

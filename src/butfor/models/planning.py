"""Planning and evaluation in a model: policy iteration, and values of a policy."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator, bicgstab, splu

from butfor.checks import check_discount, check_horizon, check_policy
from butfor.models.backup import Backup
from butfor.models.factored import FactoredModel, tabular
from butfor.models.mdp import TabularMDP, check_mdp, total_by
from butfor.models.policies import greedy
from butfor.types import Floats

TIE = 1e-9  # actions whose values differ by less are tied
MOST_SWEEPS = 1000


def policy_iteration(model: TabularMDP | FactoredModel, *, discount: float = 0.99) -> Floats:
    """Return the deterministic policy of highest discounted value, [S, A].

    Among actions within 1e-9 of the best, those that the log took in that state are preferred, then
    the lowest index.
    """
    if not 0 <= discount < 1:
        raise ValueError(f"discount {discount}: planning needs a number from 0 to below 1")
    steps = _FactoredSteps(model) if _in_parts(model) else _TabularSteps(tabular(model))
    seen = model.counts > 0
    policy = greedy(steps.earned, prefer=seen, tolerance=TIE)
    before = np.full(model.n_states, -np.inf)
    for _ in range(MOST_SWEEPS):
        values = steps.evaluate(policy, discount)
        actions = steps.earned + discount * steps.after(values)
        better = greedy(actions, prefer=seen, tolerance=TIE)
        # ties can make policies alternate: stop when no value rises by more than a tie
        tie = TIE * max(1.0, float(np.abs(values).max()))
        if (better == policy).all() or (values - before).max() <= tie:
            return better
        policy, before = better, values
    raise RuntimeError(f"policy iteration did not converge in {MOST_SWEEPS} sweeps")


def policy_value(
    model: TabularMDP | FactoredModel,
    policy: ArrayLike,
    *,
    horizon: int | None = None,
    discount: float = 1.0,
    initial: ArrayLike | None = None,
) -> float:
    """Return the expected (discounted) return of a policy, over `horizon` steps or without limit.

    `initial` [S] is the distribution of the first state, by default the model's.
    """
    start = model.initial
    if initial is not None:
        start = tabular(model).with_initial(initial).initial
    if horizon is None and discount == 1:
        return float(start @ _without_end(*_policy_rows(tabular(model), policy), start > 0))
    return float(start @ state_values(model, policy, horizon=horizon, discount=discount))


def state_values(
    model: TabularMDP | FactoredModel,
    policy: ArrayLike,
    *,
    horizon: int | None = None,
    discount: float = 1.0,
) -> Floats:
    """Return the expected (discounted) return of a policy from each state, [S]."""
    if horizon is not None and _in_parts(model):
        return _horizon_values(model, policy, horizon, discount)
    model = tabular(model)
    if horizon is not None:
        return value_tables(model, policy, horizon=horizon, discount=discount)[0][-1]
    check_discount(discount)
    moves, earned = _policy_rows(model, policy)
    if discount == 1:
        return _without_end(moves, earned, np.ones(model.n_states, dtype=bool))
    return _solve(moves, earned, discount)


def value_tables(
    model: TabularMDP, policy: ArrayLike, *, horizon: int, discount: float = 1.0
) -> tuple[Floats, Floats]:
    """Return values and outcome probabilities by steps left and state.

    These are the expected return [horizon + 1, S] and the probability of each outcome
    [horizon + 1, S, O + 1], whose last column is for no outcome.
    """
    check_mdp(model)
    check_discount(discount)
    check_horizon(horizon)
    chosen = check_policy(policy, model.n_states, model.n_actions)
    average = _policy_matrix(chosen)
    moves = average @ _transition_matrix(model)
    earned = average @ expected_rewards(model)
    ended = average @ _outcome_matrix(model)
    gained = np.column_stack([earned, ended, np.zeros(model.n_states)])
    kept = np.array([discount] + [1.0] * (len(model.outcomes) + 1))
    tables = np.zeros((horizon + 1, *gained.shape))
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, horizon + 1):
        tables[left] = gained + kept * (moves @ tables[left - 1])
    return np.ascontiguousarray(tables[:, :, 0]), np.ascontiguousarray(tables[:, :, 1:])


class _TabularSteps:
    """What follows each state and action on average, by the rows of a model."""

    def __init__(self, model: TabularMDP) -> None:
        self.shape = model.counts.shape
        self.moves = _transition_matrix(model)
        self.earned = expected_rewards(model).reshape(self.shape)

    def after(self, values: Floats) -> Floats:
        return np.asarray(self.moves @ values).reshape(self.shape)

    def evaluate(self, policy: Floats, discount: float) -> Floats:
        average = _policy_matrix(policy)
        return _solve(average @ self.moves, average @ self.earned.ravel(), discount)


class _FactoredSteps:
    """The same by the factors of a model, whose rows are never written down."""

    def __init__(self, model: FactoredModel) -> None:
        self.model, backup = model, Backup(model)
        self.earned, self.after = backup.rewards, backup.after

    def evaluate(self, policy: Floats, discount: float) -> Floats:
        """Solve V = R + discount P V by steps through the factors; by the rows if that fails."""
        earned = (policy * self.earned).sum(axis=1)
        size = len(earned)

        def left(values: Floats) -> Floats:
            return values - discount * (policy * self.after(values)).sum(axis=1)

        found, _ = bicgstab(
            LinearOperator((size, size), matvec=left, dtype=np.float64), earned, rtol=1e-14
        )
        # an error of values is at most 1 / (1 - discount) times that of the equations
        error = float(np.abs(left(found) - earned).max()) / (1 - discount)
        if not error <= TIE / 100 * max(1.0, float(np.abs(found).max())):
            return _TabularSteps(self.model.tabular()).evaluate(policy, discount)
        return np.asarray(found)


def _in_parts(model: TabularMDP | FactoredModel) -> TypeGuard[FactoredModel]:
    """Whether a model can be planned in without its table of transitions."""
    return isinstance(model, FactoredModel) and Backup.fits(model)


def _horizon_values(
    model: FactoredModel, policy: ArrayLike, horizon: int, discount: float
) -> Floats:
    """Return the values of a policy over some steps by the factors of a model, [S]."""
    check_discount(discount)
    check_horizon(horizon)
    chosen = check_policy(policy, model.n_states, model.n_actions)
    backup, values = Backup(model), np.zeros(model.n_states)
    for _ in range(horizon):
        values = (chosen * (backup.rewards + discount * backup.after(values))).sum(axis=1)
    return values


def expected_rewards(model: TabularMDP) -> Floats:
    """Return the expected reward of each state-action pair, row s A + a, [S A]."""
    rows = len(model.start) - 1
    return total_by(model.entry_row, model.probability * model.reward, rows)


def _transition_matrix(model: TabularMDP) -> sparse.csr_array:
    """Return the moves that do not end in an outcome, sparse [S A, S]."""
    stays = model.next_state < model.n_states
    entries = (model.entry_row[stays], model.next_state[stays])
    shape = (len(model.start) - 1, model.n_states)
    return sparse.csr_array((model.probability[stays], entries), shape)


def _outcome_matrix(model: TabularMDP) -> Floats:
    """Return the probability of moving straight into each outcome, [S A, O]."""
    ends = model.next_state >= model.n_states
    table = np.zeros((len(model.start) - 1, len(model.outcomes)))
    table[model.entry_row[ends], model.next_state[ends] - model.n_states] = model.probability[ends]
    return table


def _policy_matrix(policy: Floats) -> sparse.csr_array:
    """Return the sparse matrix [S, S A] that averages rows over a policy's actions."""
    state, action = np.nonzero(policy)
    states, actions = policy.shape
    entries = (state, state * actions + action)
    return sparse.csr_array((policy[state, action], entries), (states, states * actions))


def _policy_rows(model: TabularMDP, policy: ArrayLike) -> tuple[sparse.csr_array, Floats]:
    """Return the moves [S, S] and expected rewards [S] under a policy."""
    average = _policy_matrix(check_policy(policy, model.n_states, model.n_actions))
    return average @ _transition_matrix(model), average @ expected_rewards(model)


def _solve(moves: sparse.csr_array, earned: Floats, discount: float) -> Floats:
    """Solve V = R + discount P V."""
    system = sparse.eye_array(len(earned), format="csc") - discount * moves.tocsc()
    return np.asarray(splu(system).solve(earned))


def _without_end(moves: sparse.csr_array, earned: Floats, starts: NDArray[np.bool_]) -> Floats:
    """Solve V = R + P V on the states reachable from `starts`; all must reach an outcome."""
    visited = _closure(moves.T.tocsr(), starts)
    ends = _closure(moves, moves.sum(axis=1) < 1 - 1e-12)
    stuck = visited & ~ends
    if stuck.any():
        state = int(np.flatnonzero(stuck)[0])
        raise ValueError(
            f"from state {state} the policy never reaches an outcome, so its return is an endless "
            "sum; give a horizon, or a discount below 1"
        )
    kept = sparse.diags_array(visited.astype(np.float64)).tocsr()
    system = sparse.eye_array(len(earned), format="csc") - (kept @ moves).tocsc()
    return np.asarray(splu(system).solve(kept @ earned))


def _closure(links: sparse.csr_array, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the members and everything linked to them, directly or not."""
    while True:
        wider = members | (links @ members.astype(np.float64) > 0)
        if (wider == members).all():
            return members
        members = wider

"""Planning and evaluation in a model: policy iteration, and values of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_discount, check_horizon, check_policy, check_room
from butfor.models.backup import Backup
from butfor.models.caution import Caution, usual_actions
from butfor.models.factored import FactoredModel, tabular
from butfor.models.lookahead import (
    TIE,
    Lookahead,
    expected_rewards,
    in_parts,
    look_ahead,
    policy_matrix,
    solve,
    transition_matrix,
)
from butfor.models.mdp import TabularMDP, check_mdp
from butfor.models.plan import Plan, Recipe
from butfor.models.policies import greedy
from butfor.types import Floats

MOST_SWEEPS = 1000


def policy_iteration(
    model: TabularMDP | FactoredModel,
    *,
    discount: float = 0.99,
    caution: Caution | None = None,
    allowed: ArrayLike | None = None,
) -> Plan:
    """Return the deterministic policy of highest discounted value, a `Plan` [S, A].

    Among actions within 1e-9 of the best, those that the log took in that state are preferred, then
    the lowest index.

    Parameters
    ----------
    caution : optional
        By default the model is taken at its word, and the policy prefers actions that seldom were
        taken and by luck went well. `Caution()` plans as if each had gone badly twice more.
    allowed : [S, A], optional
        Marks the actions that may be taken, at least one in each state (`Rules.allowed`). It is
        never broken: where caution leaves none of them, all of them may be taken.

    Notes
    -----
    Caution is about chance. A cause that the log does not record misleads a cautious plan too.
    """
    planner = partial(policy_iteration, discount=discount, caution=caution, allowed=allowed)
    return Plan(_best_policy(model, discount, caution, allowed), Recipe(model, planner))


def _best_policy(
    model: TabularMDP | FactoredModel,
    discount: float,
    caution: Caution | None,
    allowed: ArrayLike | None,
) -> Floats:
    """Return the policy of `policy_iteration`, [S, A]."""
    if not 0 <= discount < 1:
        raise ValueError(f"discount {discount}: planning needs a number from 0 to below 1")
    if not isinstance(model, FactoredModel):
        check_mdp(model)
    may, kept = _check_allowed(allowed, model), model.discounts(discount)
    if caution is None:
        return _plan(look_ahead(model), model, kept, may)
    careful, worst = caution.allowed(model) & may, _worst(model, discount)
    careful |= may & ~careful.any(axis=1, keepdims=True)
    if caution.risk is None:
        return _plan(look_ahead(model, caution.trust(model), worst), model, kept, careful)
    steps = list(caution.draw(model, worst))
    return _improve(steps, usual_actions(model) & may, careful, kept, caution.risk)


def _check_allowed(given: ArrayLike | None, model: TabularMDP | FactoredModel) -> NDArray[np.bool_]:
    """Return what may be taken, [S, A]: by default everything."""
    shape = model.n_states, model.n_actions
    allowed = np.ones(shape, dtype=bool) if given is None else np.asarray(given)
    if allowed.shape != shape or allowed.dtype != bool:
        raise ValueError(
            f"allowed is {allowed.dtype} of shape {allowed.shape}, expected true or false of shape "
            f"{shape}: one row per state, one column per action"
        )
    if not allowed.any(axis=1).all():
        state = int((~allowed.any(axis=1)).argmax())
        raise ValueError(f"allowed: no action in state {state}; leave one open")
    return allowed


def _plan(
    steps: Lookahead,
    model: TabularMDP | FactoredModel,
    kept: Floats,
    allowed: NDArray[np.bool_],
) -> Floats:
    """Return the best policy among those that take allowed actions, [S, A].

    `kept` [S] is the discount of each state reached.
    """
    seen = model.counts > 0

    def best(actions: Floats) -> Floats:
        return greedy(np.where(allowed, actions, -np.inf), prefer=seen, tolerance=TIE)

    values, actions = np.zeros(model.n_states), steps.earned
    for _ in range(steps.sweeps):
        values = (best(actions) * actions).sum(axis=1)
        actions = steps.earned + steps.after(kept * values)
    policy = best(actions)
    before = np.full(model.n_states, -np.inf)
    for _ in range(MOST_SWEEPS):
        values = steps.evaluate(policy, kept, values)
        better = best(steps.earned + steps.after(kept * values))
        # ties can make policies alternate: stop when no value rises by more than a tie
        tie = TIE * max(1.0, float(np.abs(values).max()))
        if (better == policy).all() or (values - before).max() <= tie:
            return better
        policy, before = better, values
    raise RuntimeError(f"policy iteration did not converge in {MOST_SWEEPS} sweeps")


def _improve(
    models: Sequence[Lookahead],
    usual: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    kept: Floats,
    risk: float,
) -> Floats:
    """Change the usual actions only where others are better in all but `risk` of the models.

    Of these the one with the best mean is taken; in states without a usual action any may be.
    """
    policy = greedy(np.where(usual | ~usual.any(axis=1, keepdims=True) & allowed, 0.0, -np.inf))
    tried = set()
    while policy.tobytes() not in tried:  # changes elsewhere can undo one
        tried.add(policy.tobytes())
        values = np.stack(
            [one.earned + one.after(kept * one.evaluate(policy, kept)) for one in models]
        )
        own = np.where(usual, values, -np.inf).max(axis=2, keepdims=True)
        better = (values <= own + TIE).mean(axis=0) <= risk
        policy = greedy(np.where((better & allowed) | usual, values.mean(axis=0), -np.inf))
    return policy


def _worst(model: TabularMDP | FactoredModel, discount: float) -> float:
    """Return the lowest reward of an outcome; without outcomes, the value of the worst state."""
    if model.outcomes:
        return min(outcome.reward for outcome in model.outcomes)
    best = _best_policy(model, discount, None, None)
    return float(state_values(model, best, discount=discount).min())


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
    if horizon is not None and in_parts(model):
        return _horizon_values(model, policy, horizon, discount)
    model = tabular(model)
    check_discount(discount)
    if horizon is not None:
        check_mdp(model)
        check_horizon(horizon)
    moves, earned = _policy_rows(model, policy)
    if horizon is not None:
        values, kept = np.zeros(model.n_states), model.discounts(discount)
        for _ in range(horizon):
            values = earned + moves @ (kept * values)
        return values
    if discount == 1:
        return _without_end(moves, earned, np.ones(model.n_states, dtype=bool))
    return solve(moves @ sparse.diags_array(model.discounts(discount)), earned)


def values_and_chances(
    model: TabularMDP | FactoredModel, policy: ArrayLike, *, horizon: int, discount: float = 1.0
) -> tuple[Floats, Floats]:
    """Return the expected return [S] of a policy and the probability of each outcome [S, O + 1].

    The last column is that of none.
    """
    if not in_parts(model):
        values, chances = value_tables(tabular(model), policy, horizon=horizon, discount=discount)
        return values[-1], chances[-1]
    chosen = check_policy(policy, model.n_states, model.n_actions)
    backup, found = Backup(model), np.zeros((model.n_states, len(model.outcomes)))
    ending = (chosen[:, :, None] * backup.ends[:, :, :-1]).sum(axis=1)
    for _ in range(horizon):
        later = [(chosen * backup.after(chance)).sum(axis=1) for chance in found.T]
        found = ending + np.stack(later, axis=1) if later else found
    none = np.clip(1.0 - found.sum(axis=1, keepdims=True), 0.0, 1.0)
    return _horizon_values(model, policy, horizon, discount), np.hstack([found, none])


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
    average = policy_matrix(chosen)
    rows = average @ transition_matrix(model)
    moves, ended = rows[:, : model.n_states], rows[:, model.n_states :].toarray()
    earned = average @ expected_rewards(model)
    gained = np.column_stack([earned, ended, np.zeros(model.n_states)])
    kept = np.ones_like(gained)
    kept[:, 0] = model.discounts(discount)
    shape = (horizon + 1, *gained.shape)
    check_room(shape, f"outcomes after up to {horizon:,} steps from {model.n_states:,} states")
    tables = np.zeros(shape)
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, horizon + 1):
        tables[left] = gained + moves @ (kept * tables[left - 1])
    return np.ascontiguousarray(tables[:, :, 0]), np.ascontiguousarray(tables[:, :, 1:])


def _horizon_values(
    model: FactoredModel, policy: ArrayLike, horizon: int, discount: float
) -> Floats:
    """Return the values of a policy over some steps by the factors of a model, [S]."""
    check_discount(discount)
    check_horizon(horizon)
    chosen = check_policy(policy, model.n_states, model.n_actions)
    backup, values = Backup(model), np.zeros(model.n_states)
    kept = model.discounts(discount)
    for _ in range(horizon):
        values = (chosen * (backup.rewards + backup.after(kept * values))).sum(axis=1)
    return values


def _policy_rows(model: TabularMDP, policy: ArrayLike) -> tuple[sparse.csr_array, Floats]:
    """Return the moves [S, S] and expected rewards [S] under a policy."""
    average = policy_matrix(check_policy(policy, model.n_states, model.n_actions))
    moves = (average @ transition_matrix(model))[:, : model.n_states]
    return moves, average @ expected_rewards(model)


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
    return solve(kept @ moves, kept @ earned, error=TIE)  # no action depends on it


def _closure(links: sparse.csr_array, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the members and everything linked to them, directly or not."""
    while True:
        wider = members | (links @ members.astype(np.float64) > 0)
        if (wider == members).all():
            return members
        members = wider

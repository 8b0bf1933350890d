"""Planning where states cannot be enumerated: fitted Q iteration on simulated transitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from butfor.checks import check_discount, check_horizon
from butfor.log.episodes import Episodes
from butfor.models.classifiers import one_thread
from butfor.models.factored import FactoredModel
from butfor.models.learners import clone_learner, make_features
from butfor.models.plan import FunctionPlan, Recipe
from butfor.models.policies import greedy
from butfor.models.simulate_factored import simulate_factored
from butfor.printed import Printed
from butfor.types import Floats, Offsets


@dataclass(frozen=True, eq=False, repr=False)
class FittedQ(Printed):
    """Estimated values of actions; called with level codes it is the greedy policy."""

    fitted: tuple[Any, ...]  # [A] regressors: features of a state → value of the action
    sizes: Offsets  # [J] levels of each state variable

    def values(self, codes: NDArray[np.integer]) -> Floats:
        """Return the estimated value of each action in states given by codes [m, J], [m, A]."""
        features = self.features(codes)
        columns = [one.predict(features) for one in self.fitted]
        return np.stack(columns, axis=1).astype(np.float64)

    def features(self, codes: NDArray[np.integer]) -> Floats:
        """Return one 0-1 feature per level of each variable, [m, features]."""
        # those of a variable sum to one: in single precision, linear regression would take the
        # rounding for information, and its coefficients would run into the thousands
        features = make_features(np.asarray(codes).T, self.sizes, [None] * len(self.sizes))
        return features.astype(np.float64)

    def __call__(self, codes: NDArray[np.integer]) -> Floats:
        """Return the greedy policy in states given by codes [m, J], [m, A]."""
        return greedy(self.values(codes))


def fitted_q_policy(
    model: FactoredModel,
    regressor: Any = None,
    *,
    horizon: int,
    discount: float = 1.0,
    episodes: int = 2000,
    seed: int = 0,
) -> FunctionPlan:
    """Plan by fitted Q iteration: regress r + discount max_a Q(x', a) on the state, per action.

    Returns a `Plan` that is a function of level codes, [m, J] → [m, A].

    Parameters
    ----------
    regressor : optional
        A regressor of scikit-learn, cloned for each action; by default gradient boosting.
    horizon
        The number of steps that count, and of iterations: the policy is greedy with this many
        steps left, at every step.
    episodes, seed
        Episodes that are simulated from the model under random actions, from the first states of
        its log.

    Notes
    -----
    The policy is chosen because it looks good in this model, so its value there is too high:
    learn it from one half of a log and judge it by the model of the other half too
    (`simulate_factored`, `Replay`). Regression smooths over states, so it is not exactly optimal
    even in this model. It is better in truth only if the model is causal (see `fit_factored`).
    """
    actions = model.n_actions
    log = simulate_factored(
        model,
        lambda codes: np.full((len(codes), actions), 1 / actions),
        episodes,
        horizon=check_horizon(horizon),
        seed=seed,
    )
    missing = np.flatnonzero(np.bincount(log.action, minlength=actions) == 0)
    if len(missing):
        raise ValueError(
            f"episodes {episodes}: action {missing[0]} was never drawn; simulate more episodes"
        )
    found = fit_q(log, regressor, horizon=horizon, discount=discount)
    planner = partial(
        fitted_q_policy,
        regressor=regressor,
        horizon=horizon,
        discount=discount,
        episodes=episodes,
        seed=seed,
    )
    return FunctionPlan(found, Recipe(model, planner))


def fit_q(log: Episodes, regressor: Any = None, *, horizon: int, discount: float = 1.0) -> FittedQ:
    """Plan by fitted Q iteration on the transitions of a log; see `fitted_q_policy`.

    Every action must occur, and every final state that is followed by no outcome be known.
    """
    steps = check_horizon(horizon)
    learner = _default() if regressor is None else _check_regressor(regressor)
    before, after = (
        np.stack(list(log.codes(np.maximum(state, 0)).values()), axis=1)
        for state in (log.state, log.next_state)
    )
    going = log.step_discounts(check_discount(discount))
    going[log.offsets[1:][log.outcome >= 0] - 1] = 0.0
    sizes = np.array([len(variable.levels) for variable in log.state_variables])
    wanted, found = log.reward, FittedQ((), sizes)
    rows = [np.flatnonzero(log.action == action) for action in range(log.n_actions)]
    features = [found.features(before[own]) for own in rows]
    with one_thread():
        for step in range(steps):
            if step:
                wanted = log.reward + going * found.values(after).max(axis=1)
            parts = zip(features, rows, strict=True)
            fitted = tuple(clone_learner(learner).fit(x, wanted[own]) for x, own in parts)
            found = FittedQ(fitted, sizes)
    return found


def _default() -> Any:
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415  an extra
    except ImportError as error:
        raise ValueError(
            "planning where states cannot be enumerated needs scikit-learn: pip install "
            "'butfor[cluster]', or give the policy (--target FILE)"
        ) from error
    # few leaves: returns are noisy, and large trees would follow the noise
    return HistGradientBoostingRegressor(
        max_iter=40, max_leaf_nodes=8, learning_rate=0.15, random_state=0
    )


def _check_regressor(regressor: Any) -> Any:
    for method in ("fit", "predict", "get_params"):
        if isinstance(regressor, type) or not hasattr(regressor, method):
            raise ValueError(
                f"regressor {regressor!r}: give a regressor of scikit-learn, such as Ridge()"
            )
    return regressor

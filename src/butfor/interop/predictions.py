"""Policies of learned models: what they predict in each row of a log, and how surely.

No library of such models is imported here: a model that is given brings its own.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_distributions, check_integers, check_policy
from butfor.interop.targets import action_number
from butfor.log.episodes import Episodes
from butfor.log.variables import ravel
from butfor.models.row_policy import average_by_state, compare_rows, describe_loss
from butfor.types import Floats

Chances = tuple[Floats, Sequence[Any] | None]  # [N, classes], and which actions these are


def rows_from_predict(
    model: Any, features: ArrayLike, episodes: Episodes, *, deterministic: bool = True
) -> Floats:
    """Return what a learned model does in each row of a log, [N, A].

    `log.with_target_probability(rows)` lets the log carry them, and `row_policy` makes a target.

    Parameters
    ----------
    model
        Its `predict(x)` returns one action per row, or (actions, state), as in scikit-learn, d3rlpy
        and Stable-Baselines3; an action is its number, the level of the only action variable, or
        one level number for each action variable.
    features : [N, ...]
        What the model sees at each row of the log.
    deterministic
        Passed on if `predict` accepts it. False takes the probabilities of the model if it has
        some: by `predict_proba`, as classifiers of scikit-learn do, or those of the policy itself,
        as DiscreteSAC and DiscreteBC of d3rlpy and PPO and A2C of Stable-Baselines3 have them.
        Otherwise it lets the model sample, and results depend on its own random numbers.
    """
    seen = _features(features, episodes)
    chances = None if deterministic else chances_of(model)
    if chances is not None:
        return _check_chances(chances(seen), episodes)
    if not callable(getattr(model, "predict", None)):
        raise ValueError(f"{type(model).__name__} has no predict(x); give a model that has one")
    options = {"deterministic": deterministic} if _takes_deterministic(model.predict) else {}
    answer = model.predict(seen, **options)
    action = _predicted(answer[0] if isinstance(answer, tuple) else answer, episodes)
    return np.eye(episodes.n_actions)[action]


def target_from_predict(
    model: Any, features: ArrayLike, episodes: Episodes, *, deterministic: bool = True
) -> Floats:
    """Make a policy of a learned model's predictions, averaged over the rows of each state, [S, A].

    A warning says how much of the model is lost where rows of one state get different actions;
    `rows_from_predict` keeps them. States that are never visited get a uniform row. Parameters are
    those of `rows_from_predict`.
    """
    rows = rows_from_predict(model, features, episodes, deterministic=deterministic)
    table = average_by_state(rows, episodes)
    if lost := describe_loss(compare_rows(episodes, rows, table).mean(axis=0)):
        warnings.warn(f"{lost} rows_from_predict keeps what it does.", stacklevel=2)
    return check_policy(table, episodes.n_states, episodes.n_actions)


def behavior_from_predict(model: Any, features: ArrayLike, episodes: Episodes) -> Floats:
    """Return the probability of each logged action by a model that has probabilities, [N].

    A classifier with `predict_proba`, or a policy of d3rlpy or Stable-Baselines3 that has some (see
    `rows_from_predict`). `log.with_behavior_probability` lets the log carry them. A model that was
    fitted to the rows it is asked about is too sure of the actions taken: give one fitted to other
    episodes, or probabilities by cross-validation (`sklearn.model_selection.cross_val_predict`).
    """
    known = chances_of(model)
    if known is None:
        raise ValueError(
            f"{type(model).__name__} has no predict_proba(x), nor a policy with probabilities; "
            "give a classifier, or a stochastic policy of d3rlpy or Stable-Baselines3"
        )
    chances = _check_chances(known(_features(features, episodes)), episodes)
    return np.asarray(chances[np.arange(len(episodes.state)), episodes.action])


def class_numbers(classes: Sequence[Any] | NDArray[Any], episodes: Episodes) -> NDArray[np.int64]:
    """Return the actions that classes stand for: numbers, or levels of the only variable."""
    variables, count = episodes.action_variables, episodes.n_actions
    known = [one.item() if isinstance(one, np.generic) else one for one in classes]
    return np.array([action_number(one, variables, count) for one in known], dtype=np.int64)


def _features(features: ArrayLike, episodes: Episodes) -> Any:
    """Return the features, one row per decision; a data frame stays one, with its names."""
    rows = len(episodes.state)
    seen = np.asarray(features)
    if seen.ndim == 0 or len(seen) != rows:
        raise ValueError(
            f"features has shape {seen.shape}, expected {rows} rows, one for each decision of the "
            "log; leave out rows of final states"
        )
    if seen.dtype.kind == "f" and np.isnan(seen).any():
        row = int(np.isnan(seen).reshape(rows, -1).any(axis=1).argmax())
        raise ValueError(
            f"features of row {row} ({episodes.place(row)}) have a nan; fill it as in training"
        )
    return features if hasattr(features, "columns") else seen


def _check_chances(found: Chances, episodes: Episodes) -> Floats:
    """Return the probability of each action in each row, [N, A]; 0 of those it does not know."""
    given, known = np.asarray(found[0], dtype=np.float64), found[1]
    classes = np.arange(episodes.n_actions) if known is None else known
    if given.shape != (len(episodes.state), len(classes)):
        raise ValueError(
            f"the model's probabilities have shape {given.shape}, expected ({len(episodes.state)}, "
            f"{len(classes)}): one row per decision, one column per action"
        )
    table = np.zeros((len(given), episodes.n_actions))
    table[:, class_numbers(classes, episodes)] = given
    return check_distributions(table, "the model's probabilities", ("row",))


def _predicted(answer: Any, episodes: Episodes) -> NDArray[np.int64]:
    """Return the actions that a model predicted, one per row of the log, [N]."""
    rows, variables = len(episodes.state), episodes.action_variables
    array = np.asarray(answer)
    columns = array.reshape(rows, -1) if len(array.shape) and len(array) == rows else array
    if columns.ndim != 2 or columns.shape[1] not in (1, len(variables)):
        raise ValueError(
            f"predict returned shape {array.shape}, expected ({rows},), one action per row"
            + (f", or ({rows}, {len(variables)})" if len(variables) > 1 else "")
        )
    sizes = [len(variable.levels) for variable in variables]
    if columns.shape[1] == 1:
        sizes = [episodes.n_actions]
    if (
        array.dtype.kind in "OUS"
    ):  # levels of the only action variable, as a classifier returns them
        numbers = class_numbers(np.unique(columns[:, 0]), episodes)
        return numbers[np.unique(columns[:, 0], return_inverse=True)[1]]
    codes = [check_integers(column, "the predicted action") for column in columns.T]
    for code, size in zip(codes, sizes, strict=True):
        wrong = (code < 0) | (code >= size)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"row {row} ({episodes.place(row)}): predicted action {code[row]} outside "
                f"0..{size - 1}; the model must number its actions as the log does"
            )
    return codes[0] if len(codes) == 1 else ravel(variables, codes)


def _takes_deterministic(predict: Callable[..., Any]) -> bool:
    try:
        return "deterministic" in inspect.signature(predict).parameters
    except (TypeError, ValueError):  # compiled functions may have no signature
        return False


def chances_of(model: Any) -> Callable[[Any], Chances] | None:
    """Return what gives a model's probabilities for each row of features; None if it has none."""
    if callable(getattr(model, "predict_proba", None)):  # scikit-learn
        return lambda seen: (model.predict_proba(seen), getattr(model, "classes_", None))
    policy = getattr(model, "policy", None)
    if callable(getattr(policy, "get_distribution", None)):  # Stable-Baselines3, actor and critic
        return lambda seen: (_of_stable_baselines(policy, seen), None)
    modules = getattr(getattr(model, "impl", None), "modules", None)
    for name in ("policy", "imitator"):  # d3rlpy: DiscreteSAC, DiscreteBC
        if callable(getattr(modules, name, None)):
            return lambda seen: (_of_d3rlpy(model, getattr(modules, name), seen), None)
    return None


def _of_stable_baselines(policy: Any, seen: Any) -> Floats:
    policy.set_training_mode(False)
    observation, _ = policy.obs_to_tensor(np.asarray(seen))
    found = policy.get_distribution(observation).distribution
    # one distribution for each action variable; together all combinations of their levels
    table = np.ones((len(seen), 1))
    for one in found if isinstance(found, list) else [found]:
        table = (table[:, :, None] * _probabilities(one)[:, None, :]).reshape(len(seen), -1)
    return table


def _of_d3rlpy(model: Any, policy: Any, seen: Any) -> Floats:
    model.impl.modules.set_eval()
    observation = next(policy.parameters()).new_tensor(np.asarray(seen, dtype=np.float32))
    if model.config.observation_scaler is not None:
        observation = model.config.observation_scaler.transform(observation)
    return _probabilities(policy(observation))


def _probabilities(distribution: Any) -> Floats:
    """Return the rows of a categorical distribution of torch."""
    known = getattr(distribution, "probs", None)
    if known is None or known.ndim != 2:
        raise ValueError(
            f"the policy's actions have a {type(distribution).__name__} distribution; give a "
            "policy with a finite number of actions"
        )
    rows = known.detach().cpu().numpy().astype(np.float64)
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))  # of single precision

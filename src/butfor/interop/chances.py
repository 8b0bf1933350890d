"""The probabilities with which learned policies take each action: scikit-learn, d3rlpy and SB3.

None of these libraries is imported here: a model that is given brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from butfor.types import Floats

Chances = tuple[Floats, Sequence[Any] | None]  # [N, classes], and which actions these are


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

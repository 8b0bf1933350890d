"""Cross-fitting: policies learned on one half of a log are evaluated in the model of the other.

A target planned on a model exploits the random errors of that model; the model of other episodes
does not share these errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from butfor.checks import check_policy, check_whole
from butfor.log.episodes import Episodes
from butfor.models.factored import FactoredModel
from butfor.models.mdp import TabularMDP
from butfor.random import numbered_keys
from butfor.replay.replay import Replay
from butfor.types import Floats

Learned = TabularMDP | FactoredModel
Learn = Callable[[Episodes], tuple[Learned, ArrayLike]]  # log -> (model, target)


@dataclass(frozen=True)
class CrossFitted:
    """Value of the procedure that learned the target, by episode; estimates are the means.

    In each split, every episode is evaluated with the target of the half that it is not in and the
    model of the half that it is in; its numbers are the means over the splits. The unsupported
    masses are the probabilities of ever using a pair never seen in that half. If such pairs lead to
    the worst outcome, larger masses make the values more pessimistic.
    """

    model_based: Floats  # [n] value of the first state in the model
    counterfactual: Floats  # [n] expected counterfactual return
    unsupported_model_based: Floats  # [n]
    unsupported_counterfactual: Floats  # [n]


def learn_from(learn: Learn, log: Episodes) -> tuple[Learned, Floats]:
    """Call the user's learning function and check what it returns."""
    learned = learn(log)
    if not isinstance(learned, tuple | list) or len(learned) != 2:
        raise ValueError(
            f"learn returned {type(learned).__name__}; it must take episodes and return two "
            "things, their model and the target policy"
        )
    model, target = learned
    if not isinstance(model, TabularMDP | FactoredModel):
        raise ValueError(
            f"learn returned {type(model).__name__} first; return a TabularMDP or FactoredModel, "
            "then the target"
        )
    return model, check_policy(target, model.n_states, model.n_actions, "the target of learn")


def cross_fitted(replay: Replay, learn: Learn, *, splits: int = 5, seed: int = 0) -> CrossFitted:
    """Learn on each half, evaluate on the other half and its model; average over splits.

    Parameters
    ----------
    learn
        The function that made the target: takes Episodes, returns their model and the policy
        [S, A].
    """
    check_whole(splits, "splits", 1, "a whole number")
    episodes = replay.episodes
    if (episodes.id == episodes.id[0]).all():
        return CrossFitted(*np.full((4, len(episodes)), np.nan))
    sums = np.zeros((4, len(episodes)))
    for key in numbered_keys(seed, splits, "crossfit").tolist():
        halves = split_halves(episodes, key)
        logs = [episodes.select(half) for half in halves]
        learned = [learn_from(learn, log) for log in logs]
        for mine, other in ((0, 1), (1, 0)):
            half = replay.ask(episodes=logs[mine], model=learned[mine][0], target=learned[other][1])
            sums[:, halves[mine]] += (
                half.engine.first_values(),
                half.outcomes().expected_return,
                half.engine.unsupported_in_model(),
                half.support(),
            )
    return CrossFitted(*(sums / splits))


def split_halves(episodes: Episodes, key: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of two random halves; episodes with the same id stay together."""
    group, ids = pd.factorize(episodes.id)
    if len(ids) < 2:
        raise ValueError(f"{len(ids)} episode cannot be split into halves; give at least two")
    first = np.zeros(len(ids), dtype=bool)
    shuffled = np.random.Generator(np.random.PCG64(key)).permutation(len(ids))
    first[shuffled[: len(ids) // 2]] = True
    return np.flatnonzero(first[group]), np.flatnonzero(~first[group])

"""Cross-fitting: policies learned on one half of a log are evaluated in the model of the other.

A target planned on a model exploits the random errors of that model; the model of other episodes
does not share these errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from butfor.checks import check_policy, check_whole
from butfor.evaluate.estimators.table import CROSS_FITTED
from butfor.hidden.policies import Policy, as_array
from butfor.log.episodes import Episodes
from butfor.models.factored import FactoredModel
from butfor.models.mdp import TabularMDP
from butfor.models.plan import Recipe
from butfor.models.planning import values_and_chances
from butfor.printed import Printed
from butfor.random import numbered_keys
from butfor.replay.observed import unsupported_by_state
from butfor.replay.replay import Replay
from butfor.types import Floats

SPLITS = 10  # into halves, which results are averaged over
SPLITS_SLOW = 3  # where learning or planning takes long
MOST_REPLAYED = 500  # episodes of each half that are replayed
Learned = TabularMDP | FactoredModel
Learn = Callable[[Episodes], tuple[Learned, Policy]]  # log -> (model, target)


@dataclass(frozen=True, eq=False, repr=False)
class CrossFitted(Printed):
    """Value of the procedure that learned the target, by split and half of the log, [K, 2].

    Each half is evaluated in its own model, with the target of the other half; estimates are the
    means. The unsupported masses are the probabilities of ever using a pair never seen in the half.
    """

    model_based: Floats  # value in the model
    counterfactual: Floats  # mean expected counterfactual return
    unsupported_model_based: Floats
    unsupported_counterfactual: Floats
    learned: bool  # whether the log taught the target: it is such a plan, or halves gave others
    chances: Floats | None = None  # [K, 2, O + 1] of outcomes in the model, none last

    @property
    def by_estimator(self) -> dict[str, tuple[Floats, Floats]]:
        """Values and unsupported masses of each cross-fitted estimator."""
        values = self.model_based, self.counterfactual
        masses = self.unsupported_model_based, self.unsupported_counterfactual
        return dict(zip(CROSS_FITTED, zip(values, masses, strict=True), strict=True))

    @classmethod
    def of(cls, found: Floats, learned: bool, chances: Floats | None = None) -> CrossFitted:
        """Return the numbers of an array, [4, K, 2]."""
        value, counterfactual, *masses = found
        return cls(value, counterfactual, masses[0], masses[1], learned, chances)

    def extend(self, values: Floats, masses: Floats, chances: Floats | None) -> CrossFitted:
        """Add splits without replays, given values and unsupported masses in the model.

        What replays add to the value of first states, on average, is added in these splits, too.
        The chances are those of all splits.
        """
        value = np.concatenate([self.model_based, values])
        mass = np.concatenate([self.unsupported_model_based, masses])
        added = (self.counterfactual - self.model_based).mean()
        more = (self.unsupported_counterfactual - self.unsupported_model_based).mean()
        replayed = np.clip(mass + more, 0.0, 1.0)
        return CrossFitted(value, value + added, mass, replayed, self.learned, chances)

    def interval(self, values: Floats, confidence: float) -> tuple[float, float]:
        """Return the interval around the mean of values [K, 2].

        The squared error is the mean over splits of (difference between the halves)^2 / 4, which is
        the variance of the mean of two independent halves, plus the variance between splits, which
        is how much the choice of a policy varies. Quantiles are those of Student's t with K degrees
        of freedom.
        """
        splits = len(values)
        error = (np.diff(values, axis=1) ** 2).mean() / 4
        if splits > 1:
            error += values.mean(axis=1).var(ddof=1)
        half = float(np.sqrt(error) * stdtrit(splits, (1 + confidence) / 2))
        mean = float(values.mean())
        return mean - half, mean + half


def learn_from(learn: Learn, log: Episodes) -> tuple[Learned, Policy]:
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
    if callable(target):
        return model, target
    table = as_array(target)
    return model, check_policy(table, model.n_states, model.n_actions, "the target of learn")


def recipe_of(replay: Replay) -> Learn | None:
    """Return what learns the model of a question and its plan again; None if no log taught them.

    That is the recipe of a plan that episodes of this log taught, and the model's own.
    """
    if replay.plan is None or replay.hidden or not replay.learned_here:
        return None
    recipe, model = replay.plan.recipe, replay.learned
    if model.taught is recipe.taught or (model.taught is None and model.counts.any()):
        return recipe
    return partial(_learn_apart, model, recipe)


def _learn_apart(model: Learned, recipe: Recipe, log: Episodes) -> tuple[Learned, Policy]:
    """Return a plan learned from a log, and the model in question, in which it was not planned."""
    _, plan = recipe(log)
    if model.taught is None:
        return model, plan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same as about the whole log
        return model.taught.fit(log), plan


def cross_fitted(
    replay: Replay, learn: Learn, *, splits: int | None = None, seed: int = 0
) -> CrossFitted:
    """Learn on each half, evaluate the other half's target in the half's own model.

    Parameters
    ----------
    learn
        The function that made the target: takes Episodes, returns their model and the policy,
        [S, A] or, with a `FactoredModel`, a function of level codes.
    splits : optional
        Number of random splits into halves: 10, or 3 where learning or planning takes long. A log
        whose halves are given (`Episodes.half`) has only that split.

    Notes
    -----
    Episodes are replayed in the first split only, up to 500 of each half: what replays add to the
    values of first states, on average, is added in every split.
    """
    count = usual_splits(replay) if splits is None else splits
    check_whole(count, "splits", 1, "a whole number")
    episodes = replay.episodes
    if (episodes.unit == episodes.unit[0]).all():
        return CrossFitted.of(np.full((4, count, 2), np.nan), True)
    if given_halves(episodes) is not None:
        count = 1
    found: list[Any] = []
    chances: list[Any] = []
    changed = replay.learned_here
    for split, key in enumerate(numbered_keys(seed, count, "crossfit").tolist()):
        halves = given_halves(episodes) or split_halves(episodes, key)
        logs = [episodes.select(half) for half in halves]
        learned = [learn_from(learn, log) for log in logs]
        changed = changed or not all(_same(target, replay.target) for _, target in learned)
        pairs = [(logs[0], learned[0][0], learned[1][1]), (logs[1], learned[1][0], learned[0][1])]
        quick = [_evaluate_quickly(replay, *pair) for pair in pairs]
        replayed = [evaluate_half(replay, *pair, key) for pair in pairs] if split == 0 else None
        found.append(replayed or [numbers for *numbers, _ in quick])
        chances.append([chance for *_, chance in quick])
    known = np.array(chances) if chances[0][0] is not None else None
    first = CrossFitted.of(np.array(found[:1]).transpose(2, 0, 1), changed)
    others = np.array(found[1:]).reshape(-1, 2, 2)
    return first.extend(others[..., 0], others[..., 1], known)


def evaluate_half(
    replay: Replay, log: Episodes, model: Learned, target: Policy, key: int
) -> tuple[float, float, float, float]:
    """Return MB and CF of a half of the log, and the unsupported mass of each."""
    half = replay.ask(episodes=log, model=model, target=target)
    order = np.random.Generator(np.random.PCG64(key)).permutation(len(half))
    replayed = np.sort(order[:MOST_REPLAYED])
    values, some = half.engine.first_values(), half
    if len(replayed) < len(half):
        some = half.part(replayed)
    added = some.outcomes().expected_return - values[replayed]
    return (
        float(values.mean()),
        float(values.mean() + added.mean()),
        float(half.engine.unsupported_in_model().mean()),
        float(some.support().mean()),
    )


def _evaluate_quickly(
    replay: Replay, log: Episodes, model: Learned, target: Policy
) -> tuple[float, float, Floats | None]:
    """Return MB of a half of the log, its unsupported mass, and chances [O + 1] (None: unknown)."""
    if callable(target):
        engine = replay.ask(episodes=log, model=model, target=target).engine
        values, masses = engine.first_values(), engine.unsupported_in_model()
        return float(values.mean()), float(masses.mean()), None
    first = np.bincount(log.first_state, minlength=log.n_states)
    table = np.asarray(as_array(target), np.float64)
    return value_and_mass(model, table, first, horizon=replay.horizon, discount=replay.discount)


def value_and_mass(
    model: Learned, target: Floats, first: NDArray[np.int64], *, horizon: int, discount: float
) -> tuple[float, float, Floats]:
    """Evaluate a target in a model, for episodes of which `first` [S] start in each state.

    Return its value, the probability of ever using an unseen pair, and that of outcomes [O + 1].
    """
    values, chances = values_and_chances(model, target, horizon=horizon, discount=discount)
    masses = np.zeros(len(first))
    if isinstance(model, TabularMDP):
        masses = unsupported_by_state(model, target, horizon=horizon)
    share = first / first.sum()
    return float(share @ values), float(share @ masses), share @ chances


def usual_splits(replay: Replay) -> int:
    """Return the number of splits: fewer where learning or planning takes long."""
    classified = any(f.learned and f.source not in ("given", "counts") for f in replay.factors)
    return SPLITS_SLOW if replay.sampled or classified else SPLITS


def _same(target: Policy, asked: Policy) -> bool:
    if callable(target) or callable(asked):
        return target is asked
    return np.array_equal(as_array(target), as_array(asked))


def given_halves(episodes: Episodes) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Positions of the two halves that the log itself says, None if it does not."""
    if episodes.half is None or len(np.unique(episodes.half)) < 2:
        return None
    return np.flatnonzero(episodes.half == 0), np.flatnonzero(episodes.half == 1)


def split_halves(episodes: Episodes, key: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of two random halves; episodes of the same subject, or id, stay together."""
    group, ids = pd.factorize(episodes.unit)
    if len(ids) < 2:
        raise ValueError(f"{len(ids)} episode cannot be split into halves; give at least two")
    first = np.zeros(len(ids), dtype=bool)
    shuffled = np.random.Generator(np.random.PCG64(key)).permutation(len(ids))
    first[shuffled[: len(ids) // 2]] = True
    return np.flatnonzero(first[group]), np.flatnonzero(~first[group])

"""Models of some folds of a log, for intervals: with one fold counting half, and cross-fitted.

They are learned from counts by fold; no episode is read again.
"""

from __future__ import annotations

import numpy as np

from butfor.audit.shards.count import FOLDS
from butfor.audit.shards.gather import ShardSums
from butfor.audit.shards.learn import Fit, Tally, plan
from butfor.evaluate.crossfit import SPLITS, CrossFitted, Learned
from butfor.evaluate.refit import LESS, Groups
from butfor.models.factored import tabular
from butfor.models.planning import state_values
from butfor.models.reweight import reweight_transitions
from butfor.random import numbered_keys
from butfor.replay.observed import unsupported_by_state


def group_folds(tally: Tally, sample: ShardSums) -> Groups | None:
    """Return the folds of a log as groups; None if its model is not learned by counting."""
    again = reweight_transitions(sample.replay.model, tally.counted())
    if again is None:
        return None

    def learn(less: int) -> Learned:
        weights = np.ones(FOLDS)
        weights[less] -= LESS
        return again(tally.logged(weights))

    starts = tally.starts()
    used = starts.any(axis=1)  # a short log has empty folds
    place = np.flatnonzero(used)
    return Groups(
        sample.replay, lambda group: learn(int(place[group])), starts[used], sample.replayed()[used]
    )


def cross_fit_folds(tally: Tally, fit: Fit, sample: ShardSums) -> CrossFitted | None:
    """Cross-fit over several splits of the folds into halves; None if the target was given.

    Episodes are replayed in one split only, that of the second pass. What replays add to the values
    of first states there, on average, is added in every split.
    """
    first = sample.crossed
    if first is None:
        return None
    keys = numbered_keys(sample.setting.seed, SPLITS - 1, "folds").tolist()
    found = [_cross_fit_split(tally, fit, sample, key) for key in keys]
    values, masses, changed = zip(*(one for one in found if one is not None), strict=True)
    model_based = np.concatenate([first.model_based, np.array(values)])
    unsupported = np.concatenate([first.unsupported_model_based, np.array(masses)])
    added = first.counterfactual.mean() - first.model_based.mean()
    more = first.unsupported_counterfactual.mean() - first.unsupported_model_based.mean()
    return CrossFitted(
        model_based,
        model_based + added,
        unsupported,
        np.clip(unsupported + more, 0.0, 1.0),
        learned=first.learned or any(changed),
    )


def _cross_fit_split(
    tally: Tally, fit: Fit, sample: ShardSums, key: int
) -> tuple[list[float], list[float], bool] | None:
    """Return values, unsupported masses and whether targets differ, for one split of the folds."""
    chosen = np.zeros(FOLDS, bool)
    order = np.random.Generator(np.random.PCG64(key)).permutation(FOLDS)
    chosen[order[: FOLDS // 2]] = True
    sides = [chosen, ~chosen]
    starts = [tally.starts()[side].sum(axis=0) for side in sides]
    if not all(start.any() for start in starts):
        return None
    models = [fit(tally.folded(side)) for side in sides]
    targets = [plan(model, tally.study) for model in models]
    replay = sample.replay
    values, masses = [], []
    for mine, start in enumerate(starts):
        target, share = targets[1 - mine], start / start.sum()
        by_state = state_values(
            models[mine], target, horizon=replay.horizon, discount=replay.discount
        )
        mass = unsupported_by_state(tabular(models[mine]), target, horizon=replay.horizon)
        values.append(float(share @ by_state))
        masses.append(float(share @ mass))
    changed = any(not np.array_equal(target, replay.target_table) for target in targets)
    return values, masses, changed

"""Models of some folds of a log, for intervals: with one fold counting half, and cross-fitted.

They are learned from counts by fold; no episode is read again.
"""

from __future__ import annotations

import numpy as np

from butfor.audit.shards.count import FOLDS
from butfor.audit.shards.gather import ShardSums
from butfor.audit.shards.learn import Fit, Plan, Tally
from butfor.evaluate.crossfit import CrossFitted, usual_splits, value_and_mass
from butfor.evaluate.influence import LESS
from butfor.evaluate.refit import Groups, behavior_again
from butfor.models.reweight import reweight_transitions
from butfor.models.transitions import Transitions
from butfor.replay.replay import Replay
from butfor.types import Floats


def group_folds(tally: Tally, sample: ShardSums) -> Groups | None:
    """Return the folds of a log as groups; None if its model is not learned by counting."""
    again = reweight_transitions(sample.replay.model, tally.counted())
    if again is None:
        return None

    starts = tally.starts()
    used = starts.any(axis=1)  # a short log has empty folds
    place = np.flatnonzero(used)

    def weigh(less: int) -> Floats:
        group = place[less] if less >= 0 else -1
        return tally.logged(1.0 - LESS * (np.arange(FOLDS) == group))

    rows, replayed = tally.counted(), sample.replayed()[used]
    pair = rows.state * sample.replay.mdp.n_actions + rows.action
    behave = behavior_again(sample, pair, weigh)
    return Groups(sample.replay, lambda less: again(weigh(less)), starts[used], replayed, behave)


def cross_fit_folds(tally: Tally, fit: Fit, plan: Plan, sample: ShardSums) -> CrossFitted | None:
    """Cross-fit over several splits of the folds into halves; None if the target was given.

    Episodes are replayed in one split only, that of the second pass. If the study gives the halves
    it is the only one.
    """
    first, source = sample.crossed, tally.study.source
    if first is None or (source is not None and source.first_half is not None):
        return first
    splits = tally.split_folds(sample.setting.seed, usual_splits(sample.replay) - 1, "crossfit")
    if not splits:
        return first
    found = [_cross_fit_split(halves, fit, plan, sample.replay) for halves in splits]
    values = np.array([[(value, mass) for value, mass, _ in halves] for halves in found])
    chances = np.array([[chance for *_, chance in halves] for halves in found])
    known = None if first.chances is None else np.concatenate([first.chances, chances])
    return first.extend(values[..., 0], values[..., 1], known)


def _cross_fit_split(
    halves: list[Transitions], fit: Fit, plan: Plan, replay: Replay
) -> list[tuple[float, float, Floats]]:
    """Return `value_and_mass` of two halves of the log."""
    models = [fit(half) for half in halves]
    targets = [plan(model) for model in models]
    return [
        value_and_mass(model, target, half.first, horizon=replay.horizon, discount=replay.discount)
        for model, half, target in zip(models, halves, targets[::-1], strict=True)
    ]

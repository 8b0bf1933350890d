"""What intervals cost that learn the model again, what cross-fitting costs, and a rehearsal."""

from __future__ import annotations

import numpy as np

import butfor as bf
from benchmarks.measurement import Measurement, best_of
from butfor.evaluate.crossfit import cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.refit import group_episodes

MOST = 3.0  # seconds that each may add to an audit of 1000 episodes


def measure_intervals() -> list[Measurement]:
    """Time each on 1000 sepsis episodes, with glucose and diabetes hidden and with all states."""
    full = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 1000)
    lines = []
    for log in (full.hide("glucose", "diabetes"), full):
        model, target = _learn(log)
        sample = EpisodeColumns(bf.Replay(log, model, np.asarray(target)))
        sample.columns  # noqa: B018  computed once, for the estimates themselves

        def refit(sample=sample) -> object:
            groups = group_episodes(sample, blend=True)
            assert groups is not None
            return groups.influences()

        works = {
            "intervals that learn the model again": refit,
            "cross-fitting, ten splits": lambda one=sample: cross_fitted(one.replay, _learn),
            "rehearsal": lambda log=log: bf.rehearse(log, _learn, horizon=log.horizon),
        }
        for work, run in works.items():
            seconds = best_of(2, run)
            name = f"{work}, factored, {log.n_states} states"
            lines.append(Measurement(name, seconds, f"under {MOST:.0f} s", kept=seconds < MOST))
    return lines


def _learn(log: bf.Episodes) -> tuple[bf.FactoredModel, np.ndarray]:
    model = bf.fit_factored(log)
    return model, bf.policy_iteration(model, caution=bf.Caution())

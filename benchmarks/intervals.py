"""What intervals cost that learn the model again, cross-fitting, a rehearsal, and MAGIC."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import butfor as bf
from benchmarks.measurement import Measurement, best_of, within
from butfor.evaluate.crossfit import cross_fitted
from butfor.evaluate.episode_columns import EpisodeColumns
from butfor.evaluate.estimators.doubly_robust import magic
from butfor.evaluate.refit import GROUPS, group_episodes

MANY = 100_000  # episodes
MOST = 5.0  # seconds that each may add to an audit of 1000 episodes; cross-fitting has no limit


def measure_intervals() -> list[Measurement]:
    """Time each on 1000 sepsis episodes, with glucose and diabetes hidden and with all states."""
    full = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 1000)
    lines = []
    for log in (full.hide("glucose", "diabetes"), full):
        model, plan = _learn(log)
        sample = EpisodeColumns(bf.Replay(log, model, plan))
        sample.columns  # noqa: B018  computed once, for the estimates themselves

        def refit(sample=sample) -> object:
            groups = group_episodes(sample, blend=True)
            assert groups is not None
            return groups.influences()

        def cross_fit(replay=sample.replay, recipe=plan.recipe) -> object:
            return cross_fitted(replay, recipe)  # as a plan does on the log that taught it

        works = {
            "intervals that learn the model again": refit,
            "cross-fitting, ten splits": cross_fit,
            "rehearsal": lambda log=log: bf.rehearse(log, _learn, horizon=log.horizon),
        }
        for work, run in works.items():
            seconds = best_of(2, run)
            name = f"{work}, factored, {log.n_states} states"
            if work.startswith("cross"):
                lines.append(Measurement(name, seconds, "about 0.5 s, 4 s with 1440 states"))
                continue
            lines.append(
                Measurement(name, seconds, f"under {MOST:.0f} s", kept=within(seconds, MOST))
            )
    return lines


def measure_magic() -> list[Measurement]:
    """MAGIC of many episodes in as many models as its interval needs, by groups and by episodes."""
    version = "icml2019"
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy(version), MANY, version=version)
    log = log.hide("glucose", "diabetes")
    target = bf.soften(bf.policy_iteration(bf.fit_mdp(log)), 0.1)
    sample = EpisodeColumns(bf.Replay(log, bf.fit_mdp(log), target))
    groups = group_episodes(sample, blend=True)
    assert groups is not None
    assert groups.blend is not None
    blend, model, ones = groups.blend, sample.replay.learned, np.ones(len(groups.starts))

    def by_episodes() -> object:
        asked = EpisodeColumns(sample.replay.ask(model=model, behavior=sample.replay.behavior))
        return magic(replace(asked.logged, group=None), np.ones((1, MANY)))

    seconds, former = best_of(3, lambda: blend(model, ones)), best_of(2, by_episodes)
    ratio, times = former / seconds, GROUPS + 1
    work = f"MAGIC and its interval, {MANY:,} sepsis episodes"
    note = f"of {former * times:.0f} s with one row per episode; {times} times one model"
    return [Measurement(work, seconds * times, "3 x", ratio, note, ratio >= 3)]


def _learn(log: bf.Episodes) -> tuple[bf.FactoredModel, bf.Plan]:
    model = bf.fit_factored(log)
    return model, bf.policy_iteration(model, caution=bf.Caution())

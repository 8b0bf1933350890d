"""Hidden states with noisy observations: cells summed by row, against one at a time."""

from __future__ import annotations

import butfor as bf
from benchmarks.measurement import Measurement, best_of
from tests.hidden import noisy_problem, remembering

EPISODES = 20


def measure_noisy() -> list[Measurement]:
    """Both worlds of an episode with noisy observations, on one core."""
    model, log, behavior, target = noisy_problem(EPISODES)

    def run(policy: object) -> float:
        return best_of(
            3,
            lambda: bf.Replay(log, model, policy, behavior=behavior).outcomes(threads=1),
        )

    seconds, former = run(target) / EPISODES, run(remembering(target)) / EPISODES
    ratio = former / seconds
    work = "exact outcomes, 15 hidden states, noisy observations, an episode, one core"
    note = f"one cell at a time: {former * 1000:.1f} ms"
    return [Measurement(work, seconds, "4 x", ratio, note, ratio >= 4)]

"""Factored models: learning, planning, counterfactuals with noise per variable, and particles."""

from __future__ import annotations

from dataclasses import replace

import butfor as bf
from benchmarks.measurement import Measurement, best_of, in_own_process, within
from butfor.replay.credible import FAINT

FIT_CODE = """
import time
import butfor as bf
policy = bf.sepsis.behavior_policy("corrected")
bf.fit_factored(bf.sepsis.simulate(policy, 100))
log = bf.sepsis.simulate(policy, {episodes})
start = time.perf_counter()
bf.fit_factored(log)
seconds = time.perf_counter() - start
"""
PARTICLES_CODE = """
import time
import butfor as bf
from sklearn.linear_model import LogisticRegression
from tests import wide
log = wide.simulate(0, 1000).log
model = bf.fit_factored(log, {learner})
def sample(draws):
    replay = bf.Replay(log, model, wide.always, behavior=wide.cautious)
    return replay.outcomes(draws=draws)
sample(1)
start = time.process_time()
sample(100)
seconds = time.process_time() - start
"""


def measure_particles() -> list[Measurement]:
    """Thirty variables, sampled; with the memory of a process of its own."""
    lines = []
    learners = (
        ("count", '"counts"', 10),
        ("logistic", "LogisticRegression(C=0.1, max_iter=1000)", 15),
    )
    for name, learner, most in learners:
        seconds, memory = in_own_process(PARTICLES_CODE.format(learner=learner))
        lines.append(
            Measurement(
                f"30 variables, 1000 episodes x 100 draws, {name} conditionals, CPU",
                seconds,
                f"under {most} s and 1 GB",
                None,
                f"peak memory {memory / 1e6:.0f} MB, with learning and all libraries",
                within(seconds, most) and memory < 1e9,
            )
        )
    return lines


def measure_factored() -> list[Measurement]:
    """Learning a factored model from the full states, of few and of very many patients."""
    log = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 1000)
    few = best_of(5, lambda: bf.fit_factored(log))
    many, memory = in_own_process(FIT_CODE.format(episodes=1_000_000))
    note = f"peak memory {memory / 1e6:.0f} MB, with the log and all libraries"
    return [
        Measurement(
            "fit_factored on 1000 sepsis episodes", few, "under 0.5 s", None, "", within(few, 0.5)
        ),
        Measurement(
            "fit_factored on 1,000,000 sepsis episodes",
            many,
            "under 30 s and 2 GB",
            None,
            note,
            within(many, 30) and memory < 2e9,
        ),
    ]


def measure_factored_planning() -> list[Measurement]:
    """Planning variable by variable, against planning with the table of all transitions."""
    model = bf.fit_factored(bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 1000))
    seconds = best_of(3, lambda: bf.policy_iteration(model))

    # a copy has not written its transitions down yet
    ratio = best_of(3, lambda: bf.policy_iteration(replace(model).tabular())) / seconds
    work = "plan on a factored model of 1440 states"
    note = "ratio: by way of its table of transitions"
    return [Measurement(work, seconds, "4 x", ratio, note, ratio >= 4)]


def measure_product_rows() -> list[Measurement]:
    """Counterfactuals with noise per variable, against those with noise on states; one thread."""
    full = bf.sepsis.simulate(bf.sepsis.behavior_policy("corrected"), 1000)
    lines = []
    for log, promise in ((full.hide("glucose", "diabetes"), 1.0), (full, 2.0)):
        model = bf.fit_factored(log)
        target = bf.policy_iteration(model)

        def pass_of(noise: str, log=log, model=model, target=target) -> object:
            asked = bf.Replay(log, model, target, noise=noise)
            return asked.engine.push(FAINT, threads=1)  # as credible intervals do

        seconds = best_of(3, lambda ask=pass_of: ask("variables"))
        ratio = best_of(3, lambda ask=pass_of: ask("state")) / seconds
        work = f"noise per variable, 1000 sepsis episodes, {log.n_states} states"
        note = "ratio: noise on the states of the same model"
        promised = f"under {promise:.0f} s"
        lines.append(Measurement(work, seconds, promised, ratio, note, seconds < promise))
    log = full.hide("glucose", "diabetes")
    model = bf.fit_factored(log)
    target = bf.policy_iteration(model)
    walked = best_of(3, lambda: bf.Replay(log, model, target).compute(threads=1))
    work = "the same with every step recorded, 144 states"
    return [*lines, Measurement(work, walked, "about 0.7 s")]

"""Models of many states: planning in them, the memory they take to make; and very long episodes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse

import butfor as bf
from benchmarks.measurement import Measurement, best_of, in_own_process, within
from butfor.models import lookahead

STEPS = 100_000  # of a long episode


def random_graph(states: int, actions: int = 4, width: int = 20) -> bf.TabularMDP:
    """Return a model without structure, in which every pair leads to some states at random."""
    generator, rows = np.random.default_rng(0), states * actions
    column = generator.integers(states, size=(rows, width))
    weight = generator.dirichlet(np.ones(width), rows)
    start = np.arange(rows + 1) * width
    matrix = sparse.csr_array((weight.ravel(), column.ravel(), start), (rows, states))
    reward = generator.normal(size=(states, actions))
    return bf.TabularMDP.from_arrays(matrix, actions=actions, reward=reward)


def measure_large_planning() -> list[Measurement]:
    """Planning by iteration, against elimination as in small models."""
    model = random_graph(2_000)
    seconds, found = best_of(3, lambda: bf.policy_iteration(model)), bf.policy_iteration(model)
    usual, lookahead.SMALL = lookahead.SMALL, 10**9
    former, same = best_of(1, lambda: bf.policy_iteration(model)), bf.policy_iteration(model)
    lookahead.SMALL = usual
    ratio = former / seconds
    alike = "the same policy" if (found == same).all() else "ANOTHER POLICY"
    large = random_graph(100_000)
    whole = best_of(1, lambda: bf.policy_iteration(large))
    return [
        Measurement(
            "plan on a random graph of 2,000 states, 4 actions, 20 next states",
            seconds,
            "20 x, the same policy",
            ratio,
            f"elimination: {former:.1f} s, {alike}",
            ratio >= 20 and bool((found == same).all()),
        ),
        Measurement(
            "plan on a random graph of 100,000 states",
            whole,
            "under 60 s",
            None,
            "elimination: no answer in 500 s at 10,000 states",
            within(whole, 60),
        ),
    ]


GIVEN_CODE = """
import time
import numpy as np
import scipy.sparse as sparse
import butfor as bf
states, actions, width = 10_000, 25, 50
column = np.tile(np.arange(width, dtype=np.int32) * (states // width), (states * actions, 1))
weight = np.full(column.size, 1 / width)
start = np.arange(len(column) + 1, dtype=np.int32) * width
matrix = sparse.csr_array((weight, column.ravel(), start), (len(column), states))
reward = np.zeros((states, actions))
bf.TabularMDP.from_arrays(np.ones((1, 1, 1)))  # what is loaded is not counted
lines = open("/proc/self/status").read().splitlines()
held = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("VmRSS"))
begin = time.perf_counter()
model = bf.TabularMDP.from_arrays(matrix, actions=actions, reward=reward)
took = time.perf_counter() - begin
seconds = [took, held, sum(values.nbytes for values in model.stored_arrays().values())]
"""


def measure_given_models() -> list[Measurement]:
    """The memory that a model given as arrays takes while it is made, in sizes of the model."""
    (seconds, held, size), peak = in_own_process(GIVEN_CODE)
    ratio = (peak - held) / size
    work = "make a model of 12.5 million transitions from a sparse matrix"
    note = f"memory, in sizes of the model, {size / 1e6:.0f} MB; {held / 1e6:.0f} MB were held"
    return [Measurement(work, seconds, "at most 2.5 x", ratio, note, ratio <= 2.5)]


def measure_long_episodes() -> list[Measurement]:
    """Two very long episodes, against as many steps in shorter ones."""

    def run(episodes: int) -> float:
        generator, each = np.random.default_rng(0), 2 * STEPS // episodes
        state = generator.integers(10, size=2 * STEPS)
        log = bf.Episodes.from_arrays(
            state,
            generator.integers(3, size=2 * STEPS),
            np.roll(state, -1),
            offsets=np.arange(episodes + 1) * each,
            outcome=np.arange(episodes) % 2,
            outcomes=[bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0)],
            states=10,
            actions=3,
        )

        def all_of_it() -> object:
            model = bf.fit_mdp(log)
            return bf.Replay(log, model, bf.policy_iteration(model)).compute(threads=1)

        return best_of(2, all_of_it)

    long, short = run(2), run(200)
    work = f"learn, plan and replay, two episodes of {STEPS:,} steps"
    note = f"against 200 episodes with as many steps, {short:.1f} s"
    return [Measurement(work, long, "at most 5 x", long / short, note, long / short <= 5)]

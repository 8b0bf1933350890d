"""A model of 10^5 states, 25 actions and 50 next states of each pair fits into 4 GiB."""

from benchmarks.measurement import in_own_process

# The matrix is made in place, with 32-bit column numbers; its rows are sorted. It takes 1.5 GB, the
# model 2.5: one is still there while the other is made, and gone when a policy is planned.
CODE = """
import time
import numpy as np
import scipy.sparse as sparse
import butfor as bf
states, actions, width = {states}, 25, 50
generator, rows, part = np.random.default_rng(0), states * actions, states // width
column, weight = np.empty((rows, width), np.int32), np.empty((rows, width))
for first in range(0, rows, 50_000):
    mine = column[first : first + 50_000]
    mine[:] = generator.integers(part, size=mine.shape, dtype=np.int32)
    mine += np.arange(width, dtype=np.int32) * np.int32(part)
    weight[first : first + 50_000] = generator.random(mine.shape)
    weight[first : first + 50_000] /= weight[first : first + 50_000].sum(axis=1, keepdims=True)
start = np.arange(0, rows * width + 1, width, dtype=np.int32)
matrix = sparse.csr_array((weight.reshape(-1), column.reshape(-1), start), (rows, states))
reward = generator.normal(size=(states, actions))
begin = time.perf_counter()
model = bf.TabularMDP.from_arrays(matrix, actions=actions, reward=reward)
del matrix, column, weight, mine
policy = bf.policy_iteration(model)
seconds = time.perf_counter() - begin
assert (policy.sum(axis=1) == 1).all()
"""


def test_a_model_of_125_million_transitions_is_made_and_planned_within_4_gib():
    _, memory = in_own_process(CODE.format(states=100_000))
    assert memory < 4 * 2**30, memory

"""The sampler of hierarchical priors, against weighted draws from the prior."""

import numpy as np
import pytest
from scipy.stats import t

from butfor.models.hierarchy import Hierarchy, draw_gamma, normalized
from tests.grids import few
from tests.reference import posterior as reference
from tests.support import FALSE_ALARM

COUNTS = np.array([[[3.0, 0, 1], [0, 0, 0]], [[0, 2, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]])
FEW = np.array([0.5, 2.0, 8.0])  # weights
DRAWS, BATCH = 1000, 20


def drawn_rows(counts, possible, count, **options):
    """Rows [B, …] and weights [B, levels] that the sampler gives."""
    generator = np.random.default_rng(1)
    hierarchy = Hierarchy(counts, possible=possible, generator=generator, **options)
    hierarchy.run(20)
    rows, weights = [], []
    for _ in range(count):
        hierarchy.run(2)
        rows.append(
            normalized(draw_gamma(counts + hierarchy.weight[-1] * hierarchy.base, generator))
        )
        weights.append(hierarchy.weight.copy())
    return np.array(rows), np.array(weights)


@pytest.mark.parametrize("options", few([{}, {"tied": True}, {"every": True}], 1), ids=str)
def test_rows_and_weights_have_the_posterior_of_weighted_draws_from_the_prior(options):
    # the twin's error is that of a weighted mean, the chain's that of means of batches
    rows, weights = drawn_rows(COUNTS, [FEW] * 3, DRAWS, **options)
    flat = rows.reshape(DRAWS, -1)
    found = np.concatenate([flat, flat**2, weights], axis=1)
    expected, error = reference.weighted_posterior(COUNTS, FEW, 10 * DRAWS, **options)
    batches = found.reshape(DRAWS // BATCH, BATCH, -1).mean(axis=1)
    error = np.hypot(error, batches.std(axis=0, ddof=1) / len(batches) ** 0.5)
    z = t.isf(FALSE_ALARM / (2 * len(expected)), len(batches) - 1)
    assert (np.abs(found.mean(axis=0) - expected) <= z * error).all()
    # rows around means that are known, without tables, would fail
    around = reference.rows_around_counts(COUNTS, 2.0, DRAWS).reshape(DRAWS, -1)
    wrong = np.concatenate([around, around**2], axis=1)
    assert (np.abs(wrong.mean(axis=0) - expected[: 2 * COUNTS.size]) > z * error[:-3]).any()

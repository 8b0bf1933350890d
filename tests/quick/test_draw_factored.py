"""Models drawn from the posterior of counted tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from butfor import fit_factored
from butfor.models.backoff import backoff_table
from butfor.models.draw_factored import draw_factored, draw_table
from butfor.models.factored import Factor
from tests.quick.test_fit_factored import ward
from tests.support import FALSE_ALARM

COUNTS = np.array([[[3.0, 1.0], [0.0, 0.0]], [[0.0, 2.0], [5.0, 4.0]]])
STRENGTH = 3.0
TABLE = Factor("x", ("a", "b"), COUNTS, COUNTS, "counts", strength=STRENGTH)


def moments(counts, strength):
    """Mean and second moment of each entry of a drawn table, by recursion over the parents.

    Given the row P with one parent fewer, an entry is Beta(a, b), a = n + strength P,
    a + b = N + strength = c: its mean is a / c and its second moment a (a + 1) / (c (c + 1)). Both
    are polynomials in P, so the moments of P are all that is needed.
    """
    levels = counts.shape[-1]
    mean = np.full(levels, 1 / levels)
    square = mean**2
    for known in range(counts.ndim):
        n = counts.sum(axis=tuple(range(known, counts.ndim - 1)))
        if known:
            mean, square = mean[..., None, :], square[..., None, :]
        c = n.sum(axis=-1, keepdims=True) + strength
        a, a_square = n + strength * mean, n**2 + 2 * n * strength * mean + strength**2 * square
        mean, square = a / c, (a_square + a) / (c * (c + 1))
    return mean, square


def agrees(draws, counts, strength):
    """Whether means and second moments are those of the posterior; false alarm one in a million."""
    mean, square = moments(counts, strength)
    limit = norm.isf(FALSE_ALARM / (4 * mean.size))
    for power, expected in ((1, mean), (2, square)):
        values = draws**power
        error = values.std(axis=0, ddof=1) / np.sqrt(len(draws))
        if (np.abs(values.mean(axis=0) - expected) > limit * error).any():
            return False
    return True


def test_draws_have_the_moments_of_the_posterior():
    generator = np.random.default_rng(0)
    draws = np.stack([draw_table(TABLE, generator) for _ in range(5000)])
    np.testing.assert_allclose(moments(COUNTS, STRENGTH)[0], backoff_table(COUNTS, STRENGTH))
    assert agrees(draws, COUNTS, STRENGTH)


def test_draws_that_drop_each_parent_in_turn_have_the_mean_of_their_table():
    # the mean of a row given those with one parent fewer is linear in them
    generator = np.random.default_rng(0)
    each = replace(TABLE, every=True)
    draws = np.stack([draw_table(each, generator) for _ in range(5000)])
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    limit = norm.isf(FALSE_ALARM / (2 * COUNTS.size)) * error
    off = {
        every: np.abs(draws.mean(axis=0) - backoff_table(COUNTS, STRENGTH, every=every))
        for every in (False, True)
    }
    assert (off[True] <= limit).all()
    assert (off[False] > limit).any()


def test_draws_around_a_fixed_row_with_one_parent_fewer_would_be_noticed():
    # too certain: rows with fewer parents at their means instead of drawn
    generator = np.random.default_rng(0)
    fewer = backoff_table(COUNTS.sum(axis=1), STRENGTH)[:, None]
    gamma = generator.standard_gamma(COUNTS + STRENGTH * fewer, size=(5000, *COUNTS.shape))
    assert not agrees(gamma / gamma.sum(axis=-1, keepdims=True), COUNTS, STRENGTH)


def test_a_drawn_model_depends_on_the_seed_and_its_number_alone():
    model = fit_factored(ward())
    few, many = draw_factored(model, 2, seed=3), draw_factored(model, 5, seed=3)
    for one, other in zip(few.model(1).factors, many.model(1).factors, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
    assert (draw_factored(model, 2, seed=4).model(1).end.table != few.model(1).end.table).any()


def test_only_counted_tables_are_drawn():
    model = fit_factored(ward(), known={"pulse": (["action.given"], [[0.5, 0.5], [0.9, 0.1]])})
    drawn = draw_factored(model, 2).model(0)
    for variable in ("pulse", "drug"):
        assert drawn.factor(variable).table is model.factor(variable).table
    assert (drawn.end.table != model.end.table).all()


def test_drawn_models_are_models():
    rows = draw_factored(fit_factored(ward()), 3).model(2).tabular()
    assert min(rows.row(2, 0).values()) > 0


def test_many_large_models_are_refused(monkeypatch):
    monkeypatch.setattr("butfor.models.draw_factored.MOST_NUMBERS", 100)
    with pytest.raises(ValueError, match=r"count 50: .* memory for at most"):
        draw_factored(fit_factored(ward()), 50)

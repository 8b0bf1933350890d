"""Models drawn from the posterior of counted tables."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from butfor import fit_factored
from butfor.models.factored import Factor
from butfor.models.posterior import draw_factored, draw_tables
from tests.grids import few
from tests.quick.test_fit_factored import ward
from tests.reference.posterior import weighted_posterior
from tests.support import FALSE_ALARM

COUNTS = np.array([[[3.0, 1.0], [0.0, 0.0]], [[0.0, 2.0], [5.0, 4.0]]])
STRENGTH = 3.0
TABLE = Factor("x", ("a", "b"), COUNTS, COUNTS, "counts", strength=STRENGTH)


@pytest.mark.parametrize(("every", "batch"), few([(True, 25), (True, 50), (False, 50)], 1))
def test_draws_have_the_posterior_of_weighted_draws_from_the_prior(every, batch):
    # fixed strength: first and second moments; error of the chain from means of batches
    factor = replace(TABLE, every=every)
    draws = draw_tables(factor, 30 * batch, np.random.default_rng(0), strength=1.0)
    rows = draws.reshape(30 * batch, -1)
    found = np.concatenate([rows, rows**2], axis=1)
    expected, error = weighted_posterior(COUNTS, np.array([STRENGTH]), 80 * batch, every=every)
    batches = found.reshape(30, batch, -1).mean(axis=1)
    error = np.hypot(error[:-3], batches.std(axis=0, ddof=1) / 30**0.5)
    z = t.isf(FALSE_ALARM / (2 * found.shape[1]), 29)
    assert (np.abs(found.mean(axis=0) - expected[:-3]) <= z * error).all()


def test_a_configuration_that_was_never_seen_is_uncertain():
    draws = draw_tables(TABLE, 200, np.random.default_rng(0))
    assert np.ptp(draws[:, 0, 1, 0]) > 0.8
    assert draws[:, 0, 1].std(axis=0).min() > draws[:, 1, 1].std(axis=0).max()


def test_a_drawn_model_depends_on_the_seed_and_its_number_alone():
    model = fit_factored(ward())
    two, many = draw_factored(model, 2, seed=3), draw_factored(model, 5, seed=3)
    for one, other in zip(two.model(1).factors, many.model(1).factors, strict=True):
        np.testing.assert_array_equal(one.table, other.table)
    assert (draw_factored(model, 2, seed=4).model(1).end.table != two.model(1).end.table).any()


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
    monkeypatch.setattr("butfor.models.posterior.MOST_NUMBERS", 100)
    with pytest.raises(ValueError, match=r"count 50: .* memory for at most"):
        draw_factored(fit_factored(ward()), 50)

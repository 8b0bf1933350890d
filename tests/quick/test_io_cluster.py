"""States made of clusters: found, numbered, applied to new rows, kept in a file."""

import numpy as np
import pytest

from butfor.log.clusters import Clusters, fit_clusters

COLUMNS = ("heart rate", "lactate")


@pytest.fixture(scope="module")
def groups():
    """Three groups of 60, 30 and 10 patients, far apart, in units of different size."""
    generator = np.random.default_rng(0)
    middles = np.array([[80.0, 1.0], [120.0, 4.0], [40.0, 9.0]])
    group = np.repeat([0, 1, 2], [60, 30, 10])
    values = middles[group] + generator.normal(size=(100, 2)) * [2.0, 0.1]
    return values, group


def test_clusters_are_the_groups_numbered_by_size(groups):
    values, group = groups
    clusters = fit_clusters(values, COLUMNS, 3)
    np.testing.assert_array_equal(clusters.assign(values), group)
    assert clusters.counts.tolist() == [60, 30, 10]


def test_the_table_gives_typical_values_in_the_units_of_the_log(groups):
    values, group = groups
    table = fit_clusters(values, COLUMNS, 3).table()
    assert list(table.columns) == ["cluster", "name", "rows", *COLUMNS]
    for cluster in range(3):
        mine = values[group == cluster].mean(axis=0)
        np.testing.assert_allclose(table.loc[cluster, list(COLUMNS)].astype(float), mine, rtol=1e-9)


def test_new_rows_go_to_the_nearest_center(groups):
    clusters = fit_clusters(groups[0], COLUMNS, 3)
    assert clusters.assign(np.array([[118.0, 4.2], [81.0, 1.1], [41.0, 8.0]])).tolist() == [1, 0, 2]


def test_clusters_come_back_from_arrays(groups):
    clusters = fit_clusters(groups[0], COLUMNS, 3)
    again = Clusters.from_arrays(clusters.arrays())
    assert again.columns == COLUMNS
    np.testing.assert_array_equal(again.assign(groups[0]), clusters.assign(groups[0]))


def test_the_seed_decides(groups):
    first, second = (fit_clusters(groups[0], COLUMNS, 8, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.centers, second.centers)


def test_a_column_that_never_varies_counts_for_nothing(groups):
    values = np.column_stack([groups[0], np.full(100, 7.0)])
    clusters = fit_clusters(values, (*COLUMNS, "ward"), 3)
    np.testing.assert_array_equal(clusters.assign(values), groups[1])


@pytest.mark.parametrize(
    ("values", "count", "message"),
    [
        ([[1.0, 2.0], [3.0, np.nan]], 2, "row 1: lactate is nan"),
        ([[1.0, 2.0], [1.0, 2.0]], 2, "2 clusters of 1 distinct rows; ask for at most 1"),
        ([[1.0], [2.0]], 2, r"shape \(2, 1\).*heart rate, lactate"),
        ([[1.0, 2.0], [3.0, 4.0]], 1, "count 1"),
    ],
)
def test_bad_requests_are_refused(values, count, message):
    with pytest.raises(ValueError, match=message):
        fit_clusters(np.array(values), COLUMNS, count)

"""States made of clusters: many numeric columns reduced to one of k groups of similar rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_whole
from butfor.printed import Printed
from butfor.random import check_seed
from butfor.types import Floats

BLOCK = 1 << 16  # rows whose distances are computed together
CLUSTER = "cluster"  # the variable of the state that has their numbers as levels
NAMED = 2  # columns that name a cluster
APART = 0.5  # standard deviations from the mean, from which on a column names a cluster
LARGE = 100_000  # number of rows above which centers are learned from batches


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Printed):
    """Centers of groups of similar rows; new rows belong to the nearest one."""

    columns: tuple[str, ...]  # [d]
    mean: Floats  # [d] of the log, to standardize by
    scale: Floats  # [d]
    centers: Floats  # [k, d] standardized
    counts: NDArray[np.int64]  # [k] number of rows of the log in each

    def __len__(self) -> int:
        return len(self.centers)

    def assign(self, values: Floats) -> NDArray[np.int64]:
        """Cluster of each row of [N, d] values."""
        values = check_values(values, self.columns)
        codes = np.empty(len(values), dtype=np.int64)
        squares = (self.centers**2).sum(axis=1)
        for start in range(0, len(values), BLOCK):
            rows = slice(start, start + BLOCK)
            standard = (values[rows] - self.mean) / self.scale
            codes[rows] = (squares - 2 * standard @ self.centers.T).argmin(axis=1)
        return codes

    def table(self) -> pd.DataFrame:
        """Return for each cluster its name, rows in the log, and typical value of each column."""
        table = pd.DataFrame(self.centers * self.scale + self.mean, columns=list(self.columns))
        table.insert(0, "name", self.names())
        table.insert(1, "rows", self.counts)
        return table.rename_axis(index="cluster").reset_index()

    def names(self) -> list[str]:
        """Name each cluster by where it differs most: "3: lactate high (4.1), map low (58)".

        A column is named if the cluster's typical value is at least half a standard deviation from
        the mean of the log.
        """
        typical = self.centers * self.scale + self.mean
        names = []
        for number, (center, values) in enumerate(zip(self.centers, typical, strict=True)):
            order = np.argsort(-np.abs(center), kind="stable")[:NAMED].tolist()
            words = [
                f"{self.columns[d]} {'high' if center[d] > 0 else 'low'} ({values[d]:.3g})"
                for d in order
                if abs(center[d]) >= APART
            ]
            names.append(f"{number}: {', '.join(words) or 'near the average'}")
        return names

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays, for a file."""
        return vars(self) | {"columns": np.array(self.columns)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Clusters:
        """Undo `arrays`."""
        columns = tuple(str(name) for name in arrays["columns"])
        return cls(columns, *(arrays[key] for key in ("mean", "scale", "centers", "counts")))


def fit_clusters(values: Floats, columns: Sequence[str], count: int, *, seed: int = 0) -> Clusters:
    """Find `count` clusters of the rows of [N, d] values by k-means on standardized columns.

    Clusters are numbered by size, the largest first. A constant column has no effect.
    """
    check_whole(count, "count", 2, "a whole number of clusters")
    values = check_values(values, tuple(columns))
    distinct = len(np.unique(values, axis=0))
    if distinct < count:
        raise ValueError(
            f"{count} clusters of {distinct} distinct rows; ask for at most {distinct}"
        )
    mean, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    means = _k_means(len(values))(
        n_clusters=count, random_state=check_seed(seed) % 2**32, n_init=1
    ).fit((values - mean) / scale)
    found = Clusters(tuple(columns), mean, scale, means.cluster_centers_, np.zeros(count, np.int64))
    size = np.bincount(found.assign(values), minlength=count)
    order = np.argsort(-size, kind="stable")
    return Clusters(tuple(columns), mean, scale, means.cluster_centers_[order], size[order])


def check_values(values: Floats, columns: tuple[str, ...]) -> Floats:
    """Return [N, d] finite numbers."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise ValueError(
            f"values have shape {array.shape}, expected [rows, {len(columns)}]: "
            f"{', '.join(columns)}"
        )
    bad = ~np.isfinite(array)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"row {row}: {columns[column]} is {array[row, column]}; fill or drop missing values "
            "before clustering"
        )
    return array


def _k_means(rows: int) -> Any:
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise ValueError(
            "clustering needs scikit-learn: pip install 'butfor[cluster]', or give cut points"
        ) from error
    return MiniBatchKMeans if rows > LARGE else KMeans

"""Named tuples that kernels take by reference."""

import copy
import pickle
from typing import NamedTuple

import numba
import numpy as np
import pytest

from butfor.kernels.compiled import bare
from butfor.kernels.reference import by_reference


@by_reference
class Inner(NamedTuple):
    table: np.ndarray
    on: bool
    held: np.ndarray  # a field may have any name


@by_reference
class Outer(NamedTuple):
    weight: float
    inner: Inner
    column: np.ndarray
    count: int


@numba.njit
def weighted(outer):
    total = 0.0
    for i in range(outer.inner.table.shape[0]):
        for j in range(outer.inner.table.shape[1]):
            total += outer.inner.table[i, j] * outer.column[j]
    outer.column[0] = outer.count
    return outer.weight * total if outer.inner.on else -1.0


def made(on=True):
    return Outer(
        0.5, Inner(np.arange(6.0).reshape(2, 3), on, np.zeros(1)), np.array([1.0, 2.0, 4.0]), -7
    )


def test_a_kernel_reads_and_writes_what_python_made():
    outer = made()
    expected = 0.5 * (outer.inner.table @ outer.column).sum()
    assert weighted(outer) == expected
    assert outer.column[0] == -7
    assert weighted(made(on=False)) == -1.0


def test_a_replaced_field_is_read_anew():
    outer = made()
    before = weighted(outer)
    assert weighted(outer._replace(weight=1.0, column=np.array([1.0, 2.0, 4.0]))) == 2 * before


@pytest.mark.parametrize("copied", [lambda outer: pickle.loads(pickle.dumps(outer)), copy.deepcopy])
def test_a_copy_has_its_own_arrays(copied):
    outer = made()
    value = weighted(outer._replace(column=outer.column.copy()))
    weighted(outer._replace(weight=0.0))
    weighted(outer)
    again = copied(outer)
    again.column[0] = 1.0
    outer.inner.table[:] = np.nan
    assert type(again) is Outer
    assert weighted(again) == value


def test_a_field_that_does_not_exist_is_named():
    @numba.njit
    def wrong(outer):
        return outer.wieght

    with pytest.raises(numba.TypingError, match="wieght"):
        wrong(made())


def test_literals_and_sizes_of_numbers_compile_nothing_new():
    @bare
    def twice(number):
        return 2 * number

    @bare
    def call(column):
        return twice(3) + twice(4) + twice(column[0])

    assert call(np.array([5], np.int32)) == 24
    assert twice.signatures == [(numba.int64,)]

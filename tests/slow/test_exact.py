"""Exact sums: the same limbs and values in any order and any parts, correctly rounded."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from butfor.audit.exact import ExactSums
from tests.reference import exact as reference
from tests.support import PROPERTY

EDGES = [0.0, -0.0, 2.0**-96, -(2.0**-97), 2.0**-96 * (2 - 2.0**-52), 5e-324, math.inf, -math.inf]
EDGES += [math.nan, 2.0**160, -(2.0**160), math.nextafter(2.0**160, 0), 1.0 - 2.0**-53, 2.0**-43]
anything = st.one_of(st.floats(), st.floats(-1e9, 1e9), st.sampled_from(EDGES))
# whole numbers of 2^-96 with at most 53 bits: nothing of them is cut off
kept = st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-96, 105))


def summed(values, groups=None, count=1, wide=False):
    sums = ExactSums.make(count, 1, wide=wide)
    where = np.zeros(len(values), int) if groups is None else groups
    sums.add(where, np.array(values, float).reshape(-1, 1))
    return sums


def test_hand_values():
    # floats added in this order give 0 and 2^53 + 4: 1e30 swallows 1, and 2^53 + 3 is no float
    sums = ExactSums.make(2, 2)
    sums.add([0, 1, 0, 0], [[1e30, 2.0**53], [0.25, 1.0], [1.0, 3.0], [-1e30, -1.0]])
    assert sums.values().tolist() == [[1.0, 2.0**53 + 2], [0.25, 1.0]]
    # 3 * 2^-96 is 3 in the lowest limb; -1.5 is -1 in the fourth and -2^31 in the third
    assert summed([3 * 2.0**-96]).limbs[:, 0, 0].tolist() == [3, *[0] * 9]
    assert summed([-1.5]).limbs[:, 0, 0].tolist() == [0, 0, -(2**31), -1, *[0] * 6]
    assert summed([math.nan, math.inf]).limbs[:, 0, 0].tolist() == [*[0] * 8, 2, 1]
    assert summed([]).values().tolist() == [[0.0]]


@PROPERTY
@given(st.lists(anything, max_size=30))
@example(EDGES)
def test_sums_equal_their_slow_twin(values):
    sums = summed(values)
    assert sums.limbs[:, 0, 0].tolist() == reference.limbs(values)
    np.testing.assert_array_equal(sums.values()[0, 0], reference.rounded(values))
    sums = summed(values, wide=True)
    assert sums.limbs[:, 0, 0].tolist() == reference.limbs(values, -1088)
    np.testing.assert_array_equal(sums.values()[0, 0], reference.rounded(values, -1088))


@PROPERTY
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
@example([5e-324, -1.7976931348623157e308, 1.7976931348623157e308, 2.2250738585072014e-308])
def test_wide_sums_lose_nothing_of_any_float(values):
    exact = sum(map(Fraction, values), Fraction(0))
    found = summed(values, wide=True).values()[0, 0]
    assert found == (float(exact) if abs(exact) < 2**1023 else found)
    assert math.isinf(found) <= (abs(exact) >= 2**1023)


@PROPERTY
@given(st.lists(anything, max_size=30), st.data())
def test_neither_order_nor_parts_matter(values, data):
    groups = np.array([data.draw(st.integers(0, 2)) for _ in values], int)
    whole = summed(values, groups, 3)
    order = np.array(data.draw(st.permutations(range(len(values)))), int)
    cut = data.draw(st.integers(0, len(values)))
    shuffled, places = np.array(values, float)[order], groups[order]
    parts = summed(shuffled[cut:], places[cut:], 3)
    parts.add_packed(**summed(shuffled[:cut], places[:cut], 3).packed())
    assert parts.limbs.tobytes() == whole.limbs.tobytes()
    assert parts.values().tobytes() == whole.values().tobytes()


@PROPERTY
@given(st.lists(kept, max_size=30))
def test_values_are_the_exact_sum_correctly_rounded(values):
    assert summed(values).values()[0, 0] == float(sum(map(Fraction, values)))


@PROPERTY
@given(st.floats(-1.0, 1.0), st.integers(1, 30))
def test_what_is_cut_off_is_less_than_the_lowest_bit_of_each_item(value, times):
    exact = summed([value] * times).limbs[:8, 0, 0].tolist()
    total = sum(Fraction(digit * 2 ** (32 * place)) for place, digit in enumerate(exact)) / 2**96
    assert abs(total - times * Fraction(value)) < times * Fraction(1, 2**96)


def test_a_billion_of_the_largest_items_leave_room():
    # what 2^30 equal items add to the limbs, by multiplication: no limb is near 2^63, and the sum
    # is that of the items
    for value in (math.nextafter(2.0**160, 0), -math.nextafter(1.0, 0), 2.0**-43 - 2.0**-96):
        one = summed([value])
        assert np.abs(one.limbs).max() * 2**30 < 2**62
        assert ExactSums(one.limbs * 2**30).values()[0, 0] == value * 2**30


def test_columns_and_groups_are_summed_apart():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 3)) * 10.0 ** rng.integers(-20, 20, (400, 3))
    group = rng.integers(5, size=400)
    sums = ExactSums.make(5, 3)
    sums.add(group, np.asfortranarray(values))
    for g in range(5):
        for column in range(3):
            assert sums.values()[g, column] == reference.rounded(values[group == g, column])


def test_stored_limbs_are_copied_and_may_be_read_only():
    first = summed([1.5])
    stored = np.frombuffer(first.limbs.tobytes(), np.int64).reshape(first.limbs.shape)
    again = ExactSums(stored)
    again.add([0], [[1.0]])
    assert (first.values()[0, 0], again.values()[0, 0]) == (1.5, 2.5)


def test_packed_sums_come_back_as_they_were():
    sums = ExactSums.make(3, 2)
    sums.add([0, 2, 2], [[1e-20, math.inf], [-3.5, 2.0], [1e30, 0.0]])
    for again in (ExactSums.unpack(**sums.packed()), pickle.loads(pickle.dumps(sums))):
        assert (again.limbs == sums.limbs).all()
    assert len(sums.packed()["place"]) < sums.limbs.size / 4


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 2), anything, anything), max_size=20), st.booleans())
@example([], True)
@example([(1, 0.0, 0.0)], False)
@example([(0, 1e-323, 0.0), (0, 2.0**-300, 1.0)], True)
@example([(0, 2.0**-300, 1.0)], False)
@example([(1, 2.0**200, 2.0**900)], False)
@example([(0, 2.0**-300, 3.0), (2, 1.0, math.nextafter(2.0**160, 0))], True)
def test_packed_at_once_is_packed_after(rows, wide):
    table = np.array([row[1:] for row in rows], float).reshape(-1, 2)
    group = np.array([row[0] for row in rows], int)
    sums = ExactSums.make(3, 2, wide=wide)
    sums.add(group, table)
    again = ExactSums.unpack(**ExactSums.pack(group, np.split(table, 2, axis=1), 3, wide=wide))
    assert again.limbs.tobytes() == sums.limbs.tobytes()


def test_what_does_not_fit_is_refused():
    sums = ExactSums.make(2, 1)
    with pytest.raises(ValueError, match=r"group at 1 is 2, outside 0\.\.1"):
        sums.add([0, 2], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="group at 0 is -1"):
        sums.add([-1], [[1.0]])
    with pytest.raises(ValueError, match=r"shape \(1, 2\), expected \(1, 1\)"):
        sums.add([0], [[1.0, 2.0]])
    with pytest.raises(AssertionError):
        sums.add_packed(**ExactSums.make(2, 2).packed())
    with pytest.raises(ValueError, match="limbs have shape"):
        ExactSums(np.zeros((3, 2, 1), np.int64))
    with pytest.raises(ValueError, match="groups 0"):
        ExactSums.make(0, 1)
    assert sums.values().tolist() == [[0.0], [0.0]]

"""Tables with back-off: their numbers, their leave-one-out score, and the search for parents."""

import numpy as np
import pytest

from butfor.models import backoff
from butfor.models.backoff import (
    backoff_table,
    fit_counts,
    fit_given,
    left_out_scores,
    make_cases,
)
from tests.reference import backoff as slow


def random_cases(seed, count=80):
    """Cases with four possible parents, of which 0 and 2 matter; the last is constant."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(size, size=count) for size in (3, 2, 2)] + [np.zeros(count, int)]
    likely = (columns[0] + columns[2]) % 3
    level = np.where(rng.random(count) < 0.8, likely, rng.integers(3, size=count))
    return columns, [3, 2, 2, 1], level


def as_cases(columns, sizes, level, levels=3):
    names = [f"x{i}" for i in range(len(sizes))]
    return make_cases(names, columns, sizes, level, levels, np.ones(len(level)))


def search_score(cases, parents, strength):
    """The leave-one-out score of a table that drops the last parent."""
    search = backoff._Search(cases, [strength])
    for parent in parents:
        search.add(parent)
    return search.score[0]


def as_list(columns, level):
    return [
        (tuple(values), y)
        for *values, y in zip(*(c.tolist() for c in columns), level.tolist(), strict=True)
    ]


def test_a_row_backs_off_to_the_row_with_one_parent_fewer():
    # one parent with levels 0 and 1; counts (3, 1) and (0, 0); strength 2
    # without parent: (3 + 2/2, 1 + 2/2) / (4 + 2) = (2/3, 1/3)
    # parent 0: (3 + 4/3, 1 + 2/3) / 6 = (13/18, 5/18); parent 1, never seen: (2/3, 1/3)
    table = backoff_table(np.array([[3.0, 1.0], [0.0, 0.0]]), 2.0)
    np.testing.assert_allclose(table, [[13 / 18, 5 / 18], [2 / 3, 1 / 3]], rtol=1e-15)


def test_the_last_parent_is_dropped_first():
    # the configuration (0, 1) was never seen: its row is that of first parent 0, not of second 1
    counts = np.zeros((2, 2, 2))
    counts[0, 0] = [8, 0]
    counts[1, 1] = [0, 8]
    table = backoff_table(counts, 1.0)
    np.testing.assert_allclose(table[0, 1], backoff_table(counts.sum(axis=1), 1.0)[0])
    assert table[0, 1, 0] > 0.9
    assert backoff_table(counts.transpose(1, 0, 2), 1.0)[1, 0, 1] > 0.9


def test_each_parent_is_dropped_in_turn():
    # two cases of level 0 with parents (0, 0), two of level 1 with (1, 1); strength 1
    # no parent (1/2, 1/2); one parent 0: (2 + 1/2) / 3 = 5/6 for level 0, one parent 1: 1/6
    # (0, 0): (2 + 5/6) / 3 = 17/18; (0, 1), never seen: half 5/6 and half 1/6
    counts = np.zeros((2, 2, 2))
    counts[0, 0, 0] = counts[1, 1, 1] = 2
    table = backoff_table(counts, 1.0, every=True)
    np.testing.assert_allclose(table[..., 0], [[17 / 18, 1 / 2], [1 / 2, 1 / 18]], rtol=1e-15)


def test_a_case_left_out_scores_as_in_a_table_of_the_others():
    # two cases, parent levels 0 and 0, levels 0 and 1, strength 1. Without the first case: no
    # parent (0 + 1/2) / (1 + 1) = 1/4, with the parent (0 + 1/4) / (1 + 1) = 1/8. Both alike.
    cases = as_cases([np.array([0, 0])], [2], np.array([0, 1]), levels=2)
    found = fit_given(cases, [0], strengths=(1.0,))
    assert not found.every
    assert found.score == pytest.approx(2 * np.log(1 / 8), abs=1e-14)


@pytest.mark.parametrize("parents", [(), (0,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("strength", [0.1, 1.0, 3.0])
def test_scores_equal_those_of_tables_counted_anew_without_each_case(parents, strength):
    columns, sizes, level = random_cases(1)
    cases = as_cases(columns, sizes, level)
    expected = [
        slow.left_out_score(as_list(columns, level), parents, 3, strength, every=every)
        for every in (False, True)
    ]
    # some 80 logarithms of sums of a few terms
    last, each = (
        search_score(cases, parents, strength),
        left_out_scores(cases.counts(parents), [strength]),
    )
    assert [last, each[0]] == pytest.approx(expected, rel=1e-12)
    found = fit_given(cases, parents, strengths=(strength,))
    assert found.score == pytest.approx(max(expected), rel=1e-12)
    assert found.every == (expected[1] > expected[0] + 1e-9)


def test_leaving_a_case_out_of_its_own_row_alone_is_another_score():
    # the mistake that the test above would notice: rows with fewer parents still contain the case
    columns, sizes, level = random_cases(1)
    cases = as_cases(columns, sizes, level)
    table = backoff_table(cases.counts([0]), 1.0)
    counts = cases.counts([0, 2])
    kept = (counts - 1 + table[:, None]) / counts.sum(axis=-1, keepdims=True)
    seen = counts > 0
    wrong = float((counts[seen] * np.log(kept[seen])).sum())
    assert abs(wrong - search_score(cases, [0, 2], 1.0)) > 0.1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_the_search_finds_the_parents_of_the_slow_one(seed, strength):
    columns, sizes, level = random_cases(seed)
    found = backoff._Search(as_cases(columns, sizes, level), [strength]).run()
    parents, score = slow.choose_parents(as_list(columns, level), 3, strength)
    assert found.parents == parents
    assert found.score == pytest.approx(score, rel=1e-12)
    assert {0, 2} <= set(parents)


def test_the_kernel_scores_singles_and_pairs_like_the_slow_twin():
    columns, sizes, level = random_cases(7)
    search = backoff._Search(as_cases(columns, sizes, level), [3.0])
    search.add(1)
    options = [(0, -1), (2, -1), (0, 2), (2, 0), (3, -1), (0, 3)]
    gains = search._gains(options)
    cases = as_list(columns, level)
    base = slow.left_out_score(cases, (1,), 3, 3.0)
    for option, gain in zip(options[:4], gains, strict=False):
        parents = (1, *(parent for parent in option if parent >= 0))
        expected = slow.left_out_score(cases, parents, 3, 3.0) - base
        assert gain == pytest.approx(expected, abs=1e-10)
    # the last possible parent is constant: it divides no cell
    assert np.isneginf(gains[4:]).all()


def test_a_pair_is_found_where_neither_parent_tells_anything_alone():
    # level = x0 xor x1, each of the four configurations equally often
    x0, x1 = np.tile([0, 0, 1, 1], 10), np.tile([0, 1, 0, 1], 10)
    found = fit_counts(as_cases([x0, x1], [2, 2], x0 ^ x1, levels=2))
    assert set(found.parents) == {0, 1}


def test_the_parent_that_tells_most_is_backed_off_to_last():
    rng = np.random.default_rng(5)
    weak, strong = rng.integers(2, size=(2, 2000))
    level = np.where(rng.random(2000) < 0.9, strong, weak)
    assert fit_counts(as_cases([weak, strong], [2, 2], level, levels=2)).parents == (1, 0)


def test_dropping_each_parent_guards_against_what_one_of_them_says():
    # patients leave if they get none of three drugs; the third was never given alone
    counts = np.zeros((2, 2, 2, 2))
    for drugs in np.ndindex(2, 2, 2):
        counts[(*drugs, int(sum(drugs) == 0))] = 10
    counts[0, 0, 1] = 0
    assert backoff_table(counts, 1.0)[0, 0, 1, 1] > 0.9
    assert backoff_table(counts, 1.0, every=True)[0, 0, 1, 1] < 0.5


def test_the_lattice_of_many_parents_is_left_out(monkeypatch):
    columns, sizes, level = random_cases(1)
    cases = as_cases(columns, sizes, level)
    usual = fit_given(cases, (0, 1, 2))
    assert usual.every
    monkeypatch.setattr(backoff, "MOST_DROPPED", 3 * 4 * 3 * 3 - 1)
    assert not fit_given(cases, (0, 1, 2)).every


def test_noise_gets_no_parents():
    rng = np.random.default_rng(6)
    columns = list(rng.integers(3, size=(4, 500)))
    level = rng.integers(2, size=500)
    assert fit_counts(as_cases(columns, [3] * 4, level, levels=2)).parents == ()


def test_cases_with_weights_count_as_often():
    columns, sizes, level = random_cases(3)
    once = as_cases(columns, sizes, level)
    thrice = as_cases([np.tile(c, 3) for c in columns], sizes, np.tile(level, 3))
    assert len(once.level) == len(thrice.level) < 80
    weighted = make_cases(once.names, columns, sizes, level, 3, np.full(80, 3))
    np.testing.assert_array_equal(weighted.weight, thrice.weight)
    assert fit_counts(weighted).score == fit_counts(thrice).score


def test_a_table_that_would_be_too_large_is_not_considered(monkeypatch):
    columns, sizes, level = random_cases(1)
    monkeypatch.setattr(backoff, "MOST_CELLS", 9)  # 3 levels, and one parent with 3
    assert fit_counts(as_cases(columns, sizes, level)).parents == (0,)


def test_threads_change_nothing(monkeypatch):
    columns, sizes, level = random_cases(2)
    cases = as_cases(columns, sizes, level)
    alone = fit_counts(cases)
    monkeypatch.setattr(backoff, "SMALL", 0)
    threaded = fit_counts(cases)
    assert (threaded.parents, threaded.score) == (alone.parents, alone.score)

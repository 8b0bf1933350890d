"""Agreement of reviewers: published values, the slow twin, invariances, undefined cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butfor.evaluate.agreement import intraclass_correlation, measure_agreement, wilson_interval
from tests.reference import agreement as slow
from tests.reference import experts

FIVE = (1, 2, 3, 4, 5)
# Four observers, twelve units, five values: Krippendorff, "Computing Krippendorff's
# Alpha-Reliability" (2011), section C; also in Gwet's Handbook (2014) with AC1.
PUBLISHED = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""


def table(text):
    rows = [line.split() for line in text.strip().splitlines()]
    return [
        [None if cell == "." else int(cell) for cell in unit] for unit in zip(*rows, strict=True)
    ]


def triples(ratings, stays=None, raters=None):
    for i, row in enumerate(ratings):
        for j, value in enumerate(row):
            if value is not None:
                yield (i if stays is None else stays[i]), (raters or str)(j), value


def measure(ratings, **options):
    return measure_agreement(triples(ratings), **{"resamples": 50} | options)


def crossed(table):
    """Pairs of two raters from their table of counts."""
    return [
        [a + 1, b + 1]
        for a, row in enumerate(table)
        for b, count in enumerate(row)
        for _ in range(count)
    ]


def test_four_observers_and_twelve_units_as_published():
    found = measure(table(PUBLISHED))
    assert found.alpha.value == pytest.approx(0.743, abs=5e-4)  # Krippendorff 2011, nominal
    assert found.percent.value == pytest.approx(0.8181818, abs=5e-8)  # Gwet 2014
    assert found.ac1.value == pytest.approx(0.77544, abs=5e-6)  # Gwet 2014
    assert (found.stays, found.reviewers) == (11, 4)
    assert found.alpha.note.startswith("too few: 11 episodes")
    assert found.alpha.low is None


def test_kappa_of_a_worked_table():
    # Both say yes 20 times, both no 15, apart 5 and 10: agreement 0.7, by chance 0.5, kappa 0.4.
    found = measure(crossed([[20, 5], [10, 15]]))
    assert found.percent.value == pytest.approx(0.7)
    assert [pair.kappa.value for pair in found.kappas] == [pytest.approx(0.4)]


def test_kappa_falls_and_ac1_stands_where_one_verdict_dominates():
    # 118 times both say 1, 5 and 2 times apart, never both 2: agreement 0.944. Shares of 1 are
    # 123/125 and 120/125, kappa (0.944 - 0.94528) / 0.05472 = -0.0234 (Gwet 2002, table 1);
    # π = 0.972, chance 2·0.972·0.028 = 0.0544, AC1 0.9408.
    found = measure(crossed([[118, 5], [2, 0]]), categories=(1, 2))
    assert found.kappas[0].kappa.value == pytest.approx(-0.0234, abs=5e-5)
    assert found.ac1.value == pytest.approx(0.9408, abs=5e-5)


def test_two_observers_worked_by_hand():
    # Pairs (1,1) (1,1) (2,2) (1,2): values 1 five times, 2 three times, n = 8. Disagreement
    # observed 2 of 8, expected 2·5·3 / (8·7) = 30/56; alpha 1 - (1/4)·(56/30) = 8/15.
    assert measure([[1, 1], [1, 1], [2, 2], [1, 2]]).alpha.value == pytest.approx(8 / 15)


gappy = (
    st.integers(2, 5)
    .flatmap(
        lambda raters: st.lists(
            st.lists(st.sampled_from([None, *FIVE]), min_size=raters, max_size=raters),
            min_size=1,
            max_size=12,
        )
    )
    .filter(lambda rows: any(sum(v is not None for v in row) >= 2 for row in rows))
)


@settings(deadline=None)
@given(gappy)
def test_quick_measures_equal_the_slow_ones(ratings):
    found = measure(ratings)
    assert found.percent.value == pytest.approx(slow.percent(ratings))
    assert found.ac1.value == pytest.approx(slow.ac1(ratings, FIVE))
    expected = slow.alpha(ratings)
    assert found.alpha.value == (None if expected is None else pytest.approx(expected))
    for pair in found.kappas:
        both = [(r[int(pair.first)], r[int(pair.second)]) for r in ratings]
        both = [(a, b) for a, b in both if a is not None and b is not None]
        expected = slow.kappa(both, FIVE)
        assert pair.kappa.value == (None if expected is None else pytest.approx(expected))


def values(found):
    return found.percent.value, found.alpha.value, found.ac1.value


def same(first, second):
    return all(a is b is None or a == pytest.approx(b) for a, b in zip(first, second, strict=True))


@settings(deadline=None)
@given(gappy, st.permutations(FIVE), st.randoms(use_true_random=False))
def test_names_and_order_do_not_matter(ratings, names, random):
    renamed = [[None if v is None else names[v - 1] for v in row] for row in ratings]
    random.shuffle(renamed)
    columns = list(range(len(ratings[0])))
    random.shuffle(columns)
    moved = [[row[column] for column in columns] for row in renamed]
    assert same(values(measure(ratings)), values(measure(moved)))


@settings(deadline=None)
@given(gappy)
def test_a_stay_without_verdicts_and_a_reviewer_without_any_change_nothing(ratings):
    more = [[*row, None] for row in ratings] + [[None] * (len(ratings[0]) + 1)]
    assert values(measure(ratings)) == values(measure(more))


@pytest.mark.parametrize("reviewers", [2, 3, 7])
def test_perfect_agreement_is_one_with_an_interval_of_nothing(reviewers):
    found = measure([[1 + i % 5] * reviewers for i in range(40)])
    for one in (found.percent, found.alpha, found.ac1, *(pair.kappa for pair in found.kappas)):
        assert (one.value, one.low, one.high) == pytest.approx((1, 1, 1))
        assert one.note == ""
    assert len(found.kappas) == reviewers * (reviewers - 1) // 2


def test_random_verdicts_agree_by_chance_only():
    # 4000 stays with two random verdicts of five: the standard error of alpha is about
    # sqrt(0.2·0.8/4000)/0.8 = 0.0079; five of them allow a false alarm in 2 million.
    ratings = np.random.default_rng(0).integers(1, 6, size=(4000, 2)).tolist()
    found = measure(ratings)
    for one in (found.alpha, found.ac1, found.kappas[0].kappa):
        assert abs(one.value) < 5 * 0.0079
        assert one.low < one.value < one.high


def test_one_verdict_only_is_undefined_for_alpha_and_kappa_and_says_so():
    found = measure([[1, 1]] * 30)
    assert found.percent.value == 1
    assert found.ac1.value == 1
    for one in (found.alpha, found.kappas[0].kappa):
        assert one.value is None
        assert one.note.startswith("undefined: all verdicts are the same")


def test_nothing_read_twice_is_too_few():
    for ratings in ([], [[1, None], [None, 2]]):
        found = measure(ratings)
        assert found.alpha.value is None
        assert found.alpha.note == "too few: no episode has two verdicts"
        assert found.kappas == ()


def test_twenty_stays_are_enough_and_nineteen_are_not():
    rows = [[1 + i % 2, 1 + i % 3 % 2] for i in range(20)]
    assert measure(rows).alpha.low is not None
    assert measure(rows[:19]).alpha.low is None
    assert measure(rows[:19]).alpha.value is not None


def test_intervals_depend_on_the_seed_only_and_hold_the_value():
    rows = np.random.default_rng(1).integers(1, 4, size=(60, 3)).tolist()
    first = measure(rows, seed=3, resamples=500)
    assert first == measure(rows, seed=3, resamples=500)
    assert first.alpha.low != measure(rows, seed=4, resamples=500).alpha.low
    assert first.percent.low < first.percent.value < first.percent.high
    # the mean of 60 shares: the interval is about 1.96 standard errors to each side
    shares = [slow.percent([row]) for row in rows]
    half = 1.96 * np.std(shares) / np.sqrt(60)
    assert (first.percent.high - first.percent.low) / 2 == pytest.approx(half, rel=0.2)


def test_intervals_do_not_depend_on_the_order_of_stays():
    rows = np.random.default_rng(1).integers(1, 4, size=(60, 3)).tolist()
    assert measure(rows) == measure([rows[0], *rows[:0:-1]])


def test_bad_verdicts_are_named():
    with pytest.raises(
        ValueError, match=r"episode 7, ann: verdict 9 is not one of \[1, 2, 3, 4, 5\]"
    ):
        measure_agreement([(7, "ann", 9)])
    with pytest.raises(ValueError, match="episode 7 has two verdicts by ann"):
        measure_agreement([(7, "ann", 1), (7, "ann", 2)])


def test_wilson_interval_of_published_counts():
    # 15 of 148: 0.0624 to 0.1605; 81 of 263: 0.2553 to 0.3662; 0 of 20: 0 to 0.1611
    # (Newcombe 1998, Statistics in Medicine 17, table I, method 3).
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    assert wilson_interval(20, 20)[1] == 1
    assert wilson_interval(0, 0) is None


def chances(rows):
    return [(stay, number) for stay, row in enumerate(rows) for number in row]


def test_intraclass_correlation_of_a_published_table():
    # Shrout and Fleiss 1979, Psychological Bulletin 86, table 2: six targets, four judges;
    # ICC(1,1) = .17 (table 4)
    rows = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found = intraclass_correlation(chances(rows))
    assert found.value == pytest.approx(0.17, abs=0.005)
    assert found.value == pytest.approx(experts.intraclass(rows))
    assert found.note == "too few: 6 episodes with two answers, at least 20 needed"


@given(
    st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=4), min_size=2, max_size=8).filter(
        lambda rows: max(map(len, rows)) > 1 and len({x for row in rows for x in row}) > 1
    )
)
@settings(deadline=None, derandomize=True)
def test_intraclass_correlation_equals_its_twin(rows):
    tenths = [[number / 10 for number in row] for row in rows]
    assert intraclass_correlation(chances(tenths)).value == pytest.approx(
        experts.intraclass(tenths)
    )


def test_intraclass_correlation_of_experts_who_agree_and_who_guess():
    generator = np.random.default_rng(0)
    truth = generator.random(40)
    same = intraclass_correlation(chances(np.repeat(truth[:, None], 3, axis=1)))
    assert same.value == same.low == same.high == pytest.approx(1)
    guessed = intraclass_correlation(chances(generator.random((40, 3))))
    assert guessed.low < 0 < guessed.high
    # half of the variance between stays: five standard errors, 2 (1-ρ)² (1+(k-1)ρ)² / k(k-1)(n-1)
    noise = generator.normal(size=(1000, 2)) + generator.normal(size=(1000, 1))
    error = np.sqrt(2 * 0.25 * 1.5**2 / (2 * 1 * 999))
    assert intraclass_correlation(chances(noise)).value == pytest.approx(0.5, abs=5 * error)


def test_intraclass_correlation_without_pairs_or_differences_is_none():
    assert intraclass_correlation([]).value is None
    assert intraclass_correlation([(1, 0.2), (2, 0.4)]).note.startswith("too few")
    assert intraclass_correlation(chances([[0.5, 0.5], [0.5, 0.5]])).note.startswith("undefined")

"""The experts' view: the estimate, its intervals, and what they must never do."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from butfor.evaluate import betting
from butfor.evaluate.betting import Drawn, betting_interval, choose_stakes, log_capital
from butfor.evaluate.experts import (
    ReviewSample,
    cases_to_exclude,
    mean_over_reviewers,
    sample_chances,
    sample_value,
    view_strata,
)
from tests.experts import CONSTANTS, THRESHOLD
from tests.reference import experts as slow
from tests.support import PROPERTY


def sample(predicted, stratum, case, answer, possible=(0.0, 1.0), flagged=None, drawn=None):
    marks = np.zeros(len(predicted), bool)
    marks[list(case) if drawn is None else drawn] = True
    arrays = np.array(predicted, float), np.array(stratum), marks
    answers = np.array(case, np.int64), np.array(answer, float)
    return ReviewSample(*arrays, *answers, possible, flagged)


# two strata of four, two answered in each: differences .2, .4 and 0, -.4
BY_HAND = sample(
    [0, 0, 1, 1, 0.5, 0.5, 0.5, 0.5], [0] * 4 + [1] * 4, [0, 1, 4, 5], [0.2, 0.4, 0.5, 0.1]
)


@st.composite
def samples(draw):
    """A review of up to three strata with at least two answers each, returns from -1 to 1."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=3))
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    cases = [
        generator.permutation(np.flatnonzero(stratum == h))[: draw(st.integers(2, size))]
        for h, size in enumerate(sizes)
    ]
    case = generator.permutation(np.concatenate(cases))
    predicted = generator.uniform(-1, 1, len(stratum))
    answer = generator.choice([-1, -0.5, 0, 1], len(case))
    return sample(predicted, stratum, case, answer, (-1.0, 1.0))


def strata_of(found):
    """Strata as (size, planned, least, most) with values by stratum, and both in order."""
    rows = [(s.size, s.planned, s.least, s.most) for s in found]
    order = sorted(
        (when, h, x)
        for h, s in enumerate(found)
        for when, x in zip(s.when.tolist(), s.value.tolist(), strict=True)
    )
    return rows, [(h, x) for _, h, x in order]


def play(found, means):
    rows, order = strata_of(found)
    game = slow.Game(rows, means, THRESHOLD, **CONSTANTS)
    for h, x in order:
        game.see(h, x)
    return game.capital


def two_strata(first, second, when, sizes=(6, 4)):
    """Two strata with values from -1 to 1."""
    places = np.array(when)
    return [
        Drawn(sizes[h], 3, -1.0, 1.0, (-1.0, 1.0), np.array(x, float), np.flatnonzero(places == h))
        for h, x in enumerate((first, second))
    ]


def test_the_value_and_the_fixed_interval_by_hand():
    # V = .5 + .5 · .3 - .5 · .2; parts of the variance ¼ · ½ · .02 / 2 and ¼ · ½ · .08 / 2
    found = sample_value(BY_HAND, interval="fixed")
    assert found.value == pytest.approx(0.55)
    freedom = 0.00625**2 / (0.00125**2 + 0.005**2)
    half = student.ppf(0.975, freedom) * 0.00625**0.5
    # so few answers leave all that is possible: (1.2 + 4 · 0) / 8 to (1.2 + 4 · 1) / 8
    ends = (max(0.55 - half, 0.15), min(0.55 + half, 0.65))
    assert (found.low, found.high) == pytest.approx(ends)
    wide = sample_value(BY_HAND, interval="fixed", confidence=0.4)
    half = student.ppf(0.7, freedom) * 0.00625**0.5
    assert (wide.low, wide.high) == pytest.approx((0.55 - half, 0.55 + half))
    assert [(one.episodes, one.drawn, one.answered) for one in found.strata] == [(4, 2, 2)] * 2
    assert [one.difference for one in found.strata] == pytest.approx([0.3, -0.2])


@PROPERTY
@given(samples())
def test_value_and_fixed_interval_equal_their_twins(review):
    arrays = (review.predicted, review.stratum, review.case, review.answer)
    given_lists = [array.tolist() for array in arrays]
    found = sample_value(review, interval="fixed")
    low, high = slow.fixed(*given_lists)
    possible = possible_mean(review, -1), possible_mean(review, 1)
    expected = np.clip([low, slow.value(*given_lists), high], *possible)
    assert [found.low, found.value, found.high] == pytest.approx(expected)


def possible_mean(review, end):
    rest = len(review.predicted) - len(review.case)
    return (review.answer.sum() + rest * end) / len(review.predicted)


@PROPERTY
@given(samples(), st.randoms(use_true_random=False))
def test_the_order_of_answers_does_not_matter_for_the_fixed_interval(review, random):
    order = list(range(len(review.case)))
    random.shuffle(order)
    other = replace(review, case=review.case[order], answer=review.answer[order])
    first, second = (sample_value(one, interval="fixed") for one in (review, other))
    assert [second.value, second.low, second.high] == pytest.approx(
        [first.value, first.low, first.high]
    )


@pytest.mark.parametrize("interval", ["fixed", "anytime"])
@PROPERTY
@given(samples())
def test_a_census_gives_the_mean_of_the_answers_exactly(interval, review):
    case = np.random.default_rng(0).permutation(len(review.predicted))
    answer = np.resize(review.answer, len(case))
    found = sample_value(
        replace(review, drawn=review.drawn | True, case=case, answer=answer), interval=interval
    )
    assert [found.value, found.low, found.high] == pytest.approx([answer.mean()] * 3)


@PROPERTY
@given(samples(), st.integers(0, 5))
def test_the_anytime_interval_is_never_wider_than_what_is_possible(review, known):
    part = replace(review, case=review.case[:known], answer=review.answer[:known])
    found = sample_value(part)
    assert possible_mean(part, -1) <= found.low <= found.high <= possible_mean(part, 1)


def test_a_stratum_answered_in_full_adds_no_variance():
    flagged = sample(
        [*BY_HAND.predicted, 0, 0],
        [0] * 4 + [1] * 4 + [2] * 2,
        [*BY_HAND.case, 8, 9],
        [0.2, 0.4, 0.5, 0.1, 0.0, 1.0],
        flagged=2,
    )
    alone = sample_value(BY_HAND, interval="fixed", confidence=0.4)
    found = sample_value(flagged, interval="fixed", confidence=0.4)
    assert found.high - found.low == pytest.approx(0.8 * (alone.high - alone.low))
    assert found.value == pytest.approx(0.8 * 0.55 + 0.2 * 0.5)


def test_strata_with_too_few_answers_join_a_neighbor_and_flagged_ones_do_not():
    predicted, stratum = np.zeros(12), np.repeat([0, 1, 2, 3], 3)
    review = sample(predicted, stratum, [0, 3, 4, 6, 9], np.zeros(5), flagged=3)
    assert [one.strata for one in view_strata(review)] == [(0, 1, 2), (3,)]
    review = sample(predicted, stratum, [0, 1, 3, 6, 7, 9, 10], np.zeros(7))
    assert [one.strata for one in view_strata(review)] == [(0,), (1, 2), (3,)]
    review = sample(predicted, stratum, [0, 1, 3, 4, 6], np.zeros(5))
    assert [one.strata for one in view_strata(review)] == [(0,), (1, 2, 3)]


def test_without_answers_to_flagged_cases_there_is_no_fixed_interval():
    review = sample(np.zeros(6), [0, 0, 0, 0, 1, 1], [0, 1], [0.5, 1.0], flagged=1)
    found = sample_value(review, interval="fixed")
    assert np.isnan([found.value, found.low, found.high]).all()
    anytime = sample_value(review)
    assert 0 < anytime.low < anytime.high < 1  # at least what is possible


def test_cases_that_nobody_can_tell_widen_the_range_to_the_worst_and_the_best():
    answer = BY_HAND.answer.copy()
    untold = replace(
        BY_HAND,
        drawn=BY_HAND.drawn | True,
        case=np.arange(8),
        answer=np.array([*answer[:2], 0.7, np.nan, *answer[2:], 0.3, np.nan]),
    )
    for interval in ("fixed", "anytime"):
        found = sample_value(untold, interval=interval)
        assert (found.cases, found.unanswered) == (6, 2)
        told = np.nansum(untold.answer)
        assert found.widest == pytest.approx((told / 8, (told + 2) / 8))
        assert found.widest[0] <= found.low <= found.high <= found.widest[1]


def test_chances_of_outcomes_add_up_and_give_the_value():
    generator = np.random.default_rng(0)
    predicted, answer = generator.dirichlet([1, 1, 1], 8), generator.dirichlet([1, 1, 1], 4)
    returns = np.array([-1.0, 1.0, 0.0])
    review = replace(
        BY_HAND, predicted=predicted @ returns, answer=answer @ returns, possible=(-1.0, 1.0)
    )
    chances = sample_chances(review, predicted, answer, interval="fixed")
    values = np.array([one.value for one in chances])
    assert values.sum() == pytest.approx(1)
    assert values @ returns == pytest.approx(sample_value(review, interval="fixed").value)
    assert all(0 <= one.low <= one.high <= 1 for one in chances)


def test_reviewers_of_one_case_are_averaged():
    case, answer = np.array([7, 3, 7, 5, 3]), np.array([0.2, np.nan, 0.4, np.nan, 1.0])
    cases, means = mean_over_reviewers(case, answer)
    assert cases.tolist() == [7, 3, 5]
    np.testing.assert_allclose(means, [0.3, 1.0, np.nan])
    _, both = mean_over_reviewers(case, np.column_stack([answer, 1 - answer]))
    np.testing.assert_allclose(both, np.column_stack([means, 1 - means]))


def test_the_game_is_fair_if_the_means_are_right():
    # all orders of both strata, in two ways to alternate: capital is 1 on average
    first, second = (-1.0, 0.5, 1.0, 0.0), (1.0, -1.0, 0.0)
    means = [np.mean(first), np.mean(second)]
    for when in ([0, 1, 0, 0, 1], [1, 1, 0, 0, 0]):
        capitals = [
            play(two_strata(x[:3], y[:2], when, sizes=(4, 3)), means)
            for x, y in product(permutations(first), permutations(second))
        ]
        assert np.mean(capitals) == pytest.approx(1, abs=1e-12)
        assert np.std(capitals) > 0.1


@PROPERTY
@given(samples(), st.floats(0.01, 0.99))
def test_the_capital_equals_that_of_the_game_played_case_by_case(review, share):
    values = review.answer - review.predicted[review.case]
    strata = []
    for h in np.unique(review.stratum):
        when = np.flatnonzero(review.stratum[review.case] == h)
        size = int((review.stratum == h).sum())
        strata.append(Drawn(size, len(when), -2.0, 2.0, (-2.0, 2.0), values[when], when))
    means = [s.possible @ [1 - share, share] for s in strata]
    found = sum(
        both_ways(one, stakes, np.array([mean])).item()
        for one, stakes, mean in zip(strata, choose_stakes(strata, THRESHOLD), means, strict=True)
    )
    assert found == pytest.approx(np.log(play(strata, means)), abs=1e-9)


def test_the_interval_holds_exactly_the_means_that_the_game_cannot_reject():
    sizes, cells = (60, 40), 400
    strata = two_strata(
        [-0.5] * 12 + [0] * 3, [-1] * 8 + [0.5] * 2, [0, 1, 0, 1, 0] * 5, sizes=sizes
    )
    for game, sign in ((strata, 1), ([s.mirrored() for s in strata], -1)):
        beliefs = [np.linspace(*one.possible, 300) for one in game]
        stakes = choose_stakes(game, THRESHOLD)
        first, second = map(both_ways, game, stakes, beliefs)
        means = 0.6 * beliefs[0][:, None] + 0.4 * beliefs[1]
        kept = means[first[:, None] + second < THRESHOLD]
        low = betting_interval(strata, grid=cells)[0 if sign > 0 else 1] * sign
        # two cells of rounding, and a step of the brute force
        assert low <= kept.min() <= low + (2 / cells + 1 / 299) * np.ptp(means)
        assert low > means.min() + 0.1  # so that something was rejected


def both_ways(stratum, stakes, means):
    """The log capital of bets on larger and, hedging, on smaller values."""
    larger = np.exp(log_capital(stratum, stakes, means))
    smaller = np.exp(log_capital(stratum.mirrored(), stakes, -means))
    return np.log((1 - betting.HEDGE) * larger + betting.HEDGE * smaller)


def test_a_forecast_says_how_many_more_answers_exclude_a_value():
    generator = np.random.default_rng(3)
    answer = generator.choice([-1.0, 0.0, 1.0], 60, p=[0.6, 0.3, 0.1])
    review = sample(np.zeros(600), np.repeat([0, 1], 300), np.arange(60) * 10, answer, (-1.0, 1.0))
    center = sample_value(review, interval="fixed").value
    for interval in ("fixed", "anytime"):
        far, near, at = (
            cases_to_exclude(review, center + gap, interval=interval) for gap in (1, 0.1, 0.0)
        )
        assert far == 0
        assert at is None
        assert 0 < near < 540
    assert cases_to_exclude(review, center + 0.1, interval="fixed") < near
    nothing = replace(review, case=review.case[:0], answer=review.answer[:0])
    assert cases_to_exclude(nothing, 0.3) is None


def test_the_fixed_forecast_comes_true_if_answers_go_on_like_this():
    # twenty answers in each of two strata, then the same ones again; the third is complete
    answer = np.tile([0.0, 0.2, 0.4, 0.6], 10)
    stratum = np.append(np.tile([0, 1], 5000), np.full(30, 2))
    flagged, gap = np.arange(10000, 10030), 0.05

    def review(answers):
        case = np.append(np.arange(len(answers)), flagged)
        return sample(np.zeros(10030), stratum, case, np.append(answers, np.ones(30)), flagged=2)

    value = sample_value(review(answer), interval="fixed").value + gap
    more = cases_to_exclude(review(answer), value, interval="fixed")
    for count, excluded in ((more - 8, False), (more + 8, True)):
        found = sample_value(review(np.resize(answer, 40 + count)), interval="fixed")
        assert (found.high < found.value + gap) == excluded


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"case": np.array([0, 0, 4, 5])}, "answered twice"),
        ({"case": np.array([0, 2, 4, 5])}, "case 2 was not drawn"),
        ({"case": np.array([0, 1, 4, 8])}, "case 8 was not drawn"),
        ({"answer": np.array([0, 0, 0, 1.5])}, "answer 1.5 is outside the possible 0.0 to 1.0"),
        ({"predicted": np.full(8, np.nan)}, "prediction nan is outside"),
        ({"answer": np.zeros(3)}, "4 cases, 3 answers"),
        ({"stratum": np.zeros(3, int)}, "8 predictions, 3 strata"),
    ],
)
def test_wrong_samples_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(BY_HAND, **change)


def test_wrong_choices_are_refused():
    with pytest.raises(ValueError, match="interval 'exact': give one of 'anytime', 'fixed'"):
        sample_value(BY_HAND, interval="exact")
    with pytest.raises(ValueError, match="confidence 95"):
        sample_value(BY_HAND, confidence=95)

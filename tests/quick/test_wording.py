"""Numbers and nouns in words: digits by the size of what is compared, the study's noun."""

import math

import pytest

from butfor.evaluate.wording import Digits, counted, digits_for, in_words


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([-0.46, 0.25, 0.5], 2),  # spread 0.96: tenths would do, but never fewer than two
        ([0.0043, 0.0024], 4),  # spread 0.0019, of which a thousandth is more than a fifth
        ([0.05, 0.10], 2),  # a hundredth is a fifth of 0.05
        ([0.43, 0.45], 3),  # spread 0.02
        ([-19.5, -40.5], 2),
        ([1500.0, 20000.0], 0),
        ([0.4300, 0.4300001], 4),  # a five-hundredth of the larger, however close they are
        ([0.5, 0.5], 2),  # nothing to tell apart
        ([0.0042, 0.0041, 0.0044, -0.9958], 4),  # a typical one counts, not the outlier
        ([0.0, 0.0], 2),
        ([1e-16, -1e-16, 0.8, -0.9], 2),  # rounding errors do not count
        ([1e-16, 0.0], 2),
        ([math.nan, 0.004], 4),
        ([], 2),
    ],
)
def test_decimals_follow_what_is_compared(values, decimals):
    assert digits_for(values) == Digits(decimals)


def test_a_rate_is_written_in_percent_and_its_differences_in_points():
    digits = digits_for([0.0042, 0.0061], rate=True)
    assert digits.value(0.0042) == "0.42%"
    assert digits.span(0.0031, 0.0053) == "0.31% to 0.53%"
    assert digits.gap(0.0019) == "+0.19 pp"
    assert digits.gap(-0.0019) == "\N{MINUS SIGN}0.19 pp"
    assert digits.axis == ".2%"


def test_other_numbers_have_a_sign_and_no_minus_zero():
    digits = Digits(2)
    assert digits.value(-0.001) == "+0.00"
    assert digits.value(-0.46) == "\N{MINUS SIGN}0.46"
    assert digits.size(0.5) == "0.50"
    assert digits.value(math.nan) == "no estimate"
    assert digits.span(math.nan, 1.0) == ""
    assert Digits(0).value(12345.6) == "+12,346"


def test_the_noun_of_the_study_takes_the_place_of_episode():
    said = "Episodes differ; one episode, two episodes, episodic."
    assert (
        in_words(said, "delivery") == "Deliveries differ; one delivery, two deliveries, episodic."
    )
    assert counted(1, "stay") == "1 stay"
    assert counted(20000, "stay") == "20,000 stays"

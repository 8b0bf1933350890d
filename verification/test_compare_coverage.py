"""Paired intervals of differences between policies hold the true difference, in many logs."""

from tests.slow.test_compare_coverage import check_differences


def test_intervals_of_differences_hold_the_true_difference():
    check_differences(400)

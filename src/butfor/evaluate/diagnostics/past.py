"""The past still matters: whether the step before tells what the state should tell alone.

The state is all that decides the action and what follows, or so every estimate assumes. Something
that lasts and was not recorded makes the steps of an episode resemble each other: the action of the
step before, which depended on it too, then predicts what the state does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, chdtri, xlogy

from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_most
from butfor.evaluate.past_counts import LEVEL, PastCounts, Whole
from butfor.evaluate.wording import percent
from butfor.models.mdp import total_by
from butfor.types import Floats

# At most, as the share of what the state leaves open that the step before tells: two treatments
# given at even odds with a correlation of .12 and .26 between one step and the next.
TOLD = (0.01, 0.05)
FALSE_ALARM = 0.01  # that any test exceeds its limit if the past does not matter
LEAST = 5  # expected cases in each cell, from which on G follows its distribution closely


@dataclass(frozen=True)
class GTest:
    """A likelihood-ratio test of independence within strata."""

    statistic: float  # G = 2 sum n log(n / expected), with Williams' correction
    freedom: int
    open: float  # what the strata leave open of the response, 2 sum n H in nats
    cases: int  # in strata that were tested

    @property
    def chance(self) -> float:
        """Probability of such a statistic, or a larger one, if the two are independent."""
        return float(chdtrc(self.freedom, self.statistic))

    @property
    def told(self) -> float:
        """Share of what is open that is told, less what chance alone would seem to tell."""
        return max(0.0, self.statistic - self.freedom) / self.open

    def detectable(self, false_alarm: float) -> float:
        """Return the share from which on the test is significant."""
        return float(chdtri(self.freedom, false_alarm) - self.freedom) / self.open


def past_tests(counts: PastCounts) -> Iterator[tuple[str, str, GTest]]:
    """Yield what tells, what is told, and the test of each pair, as far as there are cases."""
    actions = int(counts.action.max(initial=0)) + 1
    for number, name in enumerate(counts.names):
        mine = counts.past >> LEVEL == number
        past, count = counts.past[mine], counts.number[mine]
        state, action = counts.state[mine], counts.action[mine]
        pair = state * actions + action
        for told, stratum, response in (
            ("the action", state, action),
            ("what follows", pair, counts.follows[mine]),
        ):
            test = g_test(stratum, past, response, count)
            if test.freedom:
                yield name, told, test


def past_row(counts: PastCounts) -> Row | None:
    """Check whether the step before tells the action, or what follows; None without such steps."""
    if not (counts.past >= 1).any():
        return None
    tests = list(past_tests(counts))
    level = FALSE_ALARM / max(len(tests), 1)
    shown = [one for one in tests if one[2].detectable(level) <= TOLD[1]]
    found = [one for one in tests if one[2].chance < level]
    if not (shown or found):
        sentence = (
            "Whether the step before still matters could not be assessed: hardly a state occurs "
            "often enough."
        )
        return "the past still matters", float("nan"), UNKNOWN, sentence
    if not found:
        worst = min(shown, key=lambda one: one[2].chance)[2]
        sentence = (
            f"Given the state, nothing about the step before predicts the action or what follows "
            f"better than chance ({len(tests)} tests, on up to "
            f"{max(test.cases for *_, test in tests):,} decisions)."
        )
        return "the past still matters", worst.told, "green", sentence
    name, told, test = max(found, key=lambda one: one[2].told)
    light = at_most(test.told, TOLD)
    given = "state" if told == "the action" else "state and the action"
    sentence = (
        f"Given the {given}, {name} still predicts {told}: it explains {percent(test.told)} of "
        f"what the {given} leave{'s' if given == 'state' else ''} open, on {test.cases:,} "
        f"decisions (chance alone: p {_small(test.chance)})."
    )
    if light == "green":
        sentence += " That is more than chance, but too little to matter much."
    else:
        sentence += (
            " Every estimate here assumes that the state is all that matters; something that lasts "
            "and was not recorded may influence decisions, the course, or both."
        )
    return "the past still matters", test.told, light, sentence


def g_test(stratum: Whole, row: Whole, column: Whole, number: Whole) -> GTest:
    """Test whether rows and columns are independent within strata, from counts [M].

    In each stratum, levels are pooled until at least five cases are expected in each cell; strata
    with a single row or column are left out. Pooling depends on the totals of rows and columns
    alone, so it does not favor any result.
    """
    stratum, row, column = (
        np.unique(codes, return_inverse=True)[1] for codes in (stratum, row, column)
    )
    weight = number.astype(np.float64)
    size = total_by(stratum, weight, int(stratum.max(initial=-1)) + 1)
    row, rows = _pool(stratum, row, weight, np.sqrt(LEAST * size))
    # in the rarest row, a column of this total has five expected cases
    column, columns = _pool(stratum, column, weight, LEAST * size / rows.least)
    span = int(column.max(initial=0)) + 1
    cell, cells = row * span + column, (int(row.max(initial=0)) + 1) * span
    joint = _margin(stratum, cell, weight, cells, len(size))
    whole = xlogy(size, size)
    statistic = 2 * (joint.logs - rows.logs - columns.logs + whole)
    freedom = (rows.levels - 1) * (columns.levels - 1)
    tested = freedom > 0
    # Williams (1976): in small samples the mean of G exceeds its degrees of freedom
    excess = (size * rows.inverse - 1) * (size * columns.inverse - 1)
    correction = 1 + excess[tested] / (6 * size * freedom)[tested]
    return GTest(
        statistic=float((statistic[tested] / correction).sum()),
        freedom=int(freedom[tested].sum()),
        open=float(2 * (whole - columns.logs)[tested].sum()),
        cases=int(size[tested].sum()),
    )


@dataclass(frozen=True, eq=False)
class _Margin:
    """The totals n of the levels of rows, of columns or of cells in each stratum, [strata]."""

    levels: Whole
    least: Floats  # the lowest n
    inverse: Floats  # sum of 1 / n
    logs: Floats  # sum of n log(n)


def _pool(stratum: Whole, level: Whole, weight: Floats, least: Floats) -> tuple[Whole, _Margin]:
    """Pool the levels of each stratum with fewer cases than `least`; return the levels, [M].

    Rare levels become one, and that joins the most frequent one if it is still rare.
    """
    strata, others = len(least), int(level.max(initial=-1)) + 1
    owner, _, total, place = _totals(stratum, level, weight, others + 1)
    level = np.where((total < least[owner])[place], others, level)
    owner, found, total, place = _totals(stratum, level, weight, others + 1)
    order = np.lexsort((-total, owner))
    most = found[order[np.searchsorted(owner[order], np.arange(strata))]]
    level = np.where((total < least[owner])[place], most[stratum], level)
    return level, _margin(stratum, level, weight, others + 1, strata)


def _margin(stratum: Whole, level: Whole, weight: Floats, levels: int, strata: int) -> _Margin:
    owner, _, total, _ = _totals(stratum, level, weight, levels)
    least = np.full(strata, np.inf)
    np.minimum.at(least, owner, total)
    return _Margin(
        np.bincount(owner, minlength=strata),
        least,
        total_by(owner, 1 / total, strata),
        total_by(owner, xlogy(total, total), strata),
    )


def _totals(
    stratum: Whole, level: Whole, weight: Floats, levels: int
) -> tuple[Whole, Whole, Floats, Whole]:
    """Return the distinct strata and levels, their totals, and the place of each count [M]."""
    key, place = np.unique(stratum * levels + level, return_inverse=True)
    return key // levels, key % levels, total_by(place, weight, len(key)), place


def _small(probability: float) -> str:
    return "below 0.001" if probability < 0.001 else f"= {probability:.3f}"

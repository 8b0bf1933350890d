"""The past still matters: whether the step before tells what the state should tell alone.

A state is all that decides the action and what follows, or so every estimate here assumes. Something
that lasts and was not recorded makes the steps of an episode resemble each other: then the previous
action, which depended on it too, predicts what the state does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from scipy.stats import chi2

from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_most
from butfor.evaluate.wording import percent
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable
from butfor.models.mdp import total_by
from butfor.types import Floats

Whole = NDArray[np.int64]

# At most, as the share of what the state leaves open that the step before tells: two treatments
# given at even odds with a correlation of .12 and .26 between one step and the next.
TOLD = (0.01, 0.05)
FALSE_ALARM = 0.01  # that any test exceeds its limit if the past does not matter
LEAST = 5  # expected cases in each cell, from which on G follows its distribution closely
LEVEL = 32  # first bit of the number of a variable; the rest is its level


def previous_levels(log: Episodes) -> Whole:
    """Return the levels of the step before as packed codes, [1 + J, N]; -1: there is none.

    The first row is the action, where level 0 means that there was no step before, so that a first
    step that differs from later ones shows, too. The others are the state variables.
    """
    later = log.time > 0
    before = np.maximum(np.arange(len(log.state)) - 1, 0)
    action = np.where(later, log.action[before].astype(np.int64) + 1, 0)
    states = [
        np.where(later, code.astype(np.int64) | number << LEVEL, -1)
        for number, code in enumerate(log.codes(log.state[before]).values(), start=1)
    ]
    return np.stack([action, *states])


@dataclass(frozen=True, eq=False)
class PastCounts:
    """How often each transition followed each level of the step before, M counts."""

    names: tuple[str, ...]  # of the variables of the step before, the action first
    past: Whole  # [M] packed variable and level of the step before
    state: Whole  # [M]
    action: Whole  # [M]
    follows: Whole  # [M] next state, or S + o for an outcome o
    number: Whole  # [M]

    @classmethod
    def of_log(cls, log: Episodes) -> PastCounts:
        """Count a log in memory, whose states can be enumerated."""
        past = previous_levels(log)
        follows = log.next_state.astype(np.int64)
        ended = log.outcome >= 0
        follows[log.offsets[1:][ended] - 1] = log.n_states + log.outcome[ended]
        known = past.ravel() >= 0
        rows = (np.tile(c.astype(np.int64), len(past))[known] for c in (log.state, log.action))
        state, action = rows
        return cls(
            past_names(log.state_variables),
            past.ravel()[known],
            state,
            action,
            np.tile(follows, len(past))[known],
            np.ones(int(known.sum()), np.int64),
        )

    def tests(self) -> Iterator[tuple[str, str, GTest]]:
        """Yield what tells, what is told, and the test of each pair, as far as there are cases."""
        actions = int(self.action.max(initial=0)) + 1
        for number, name in enumerate(self.names):
            mine = self.past >> LEVEL == number
            past, count = self.past[mine], self.number[mine]
            state, action = self.state[mine], self.action[mine]
            pair = state * actions + action
            for told, stratum, response in (
                ("the action", state, action),
                ("what follows", pair, self.follows[mine]),
            ):
                test = g_test(stratum, past, response, count)
                if test.freedom:
                    yield name, told, test


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
        return float(chi2.sf(self.statistic, self.freedom))

    @property
    def told(self) -> float:
        """Share of what is open that is told, less what chance alone would seem to tell."""
        return max(0.0, self.statistic - self.freedom) / self.open

    def detectable(self, false_alarm: float) -> float:
        """Return the share from which on the test is significant."""
        return float(chi2.isf(false_alarm, self.freedom) - self.freedom) / self.open


def past_names(state_variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return what the variables of the step before are called."""
    return (
        "the action of the step before, if any,",
        *(f'"{variable.name}" at the step before' for variable in state_variables),
    )


def past_row(counts: PastCounts) -> Row | None:
    """Check whether the step before tells the action, or what follows; None without such steps."""
    if not (counts.past >= 1).any():
        return None
    tests = list(counts.tests())
    level = FALSE_ALARM / max(len(tests), 1)
    shown = [(name, told, test) for name, told, test in tests if test.detectable(level) <= TOLD[1]]
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
    _, stratum = np.unique(stratum, return_inverse=True)
    size = total_by(stratum, number, int(stratum.max(initial=-1)) + 1)
    _, row = np.unique(row, return_inverse=True)
    _, column = np.unique(column, return_inverse=True)
    row, rows = _pool(stratum, row, number, np.sqrt(LEAST * size))
    # rows have the expected share of the rarest row, so columns need no more than this
    column, columns = _pool(stratum, column, number, LEAST * size / rows.least)
    tested = (rows.levels > 1) & (columns.levels > 1)
    freedom = (rows.levels - 1) * (columns.levels - 1)
    span = int(column.max(initial=0)) + 1
    cell, cells = row * span + column, (int(row.max(initial=0)) + 1) * span
    owner, _, total, _ = _totals(stratum, cell, number, cells)
    joint = total_by(owner, xlogy(total, total), len(size))
    within = -xlogy(size, size)
    statistic = 2 * (joint - rows.entropy - columns.entropy - within)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Williams (1976): the mean of G exceeds its degrees of freedom in small samples
        excess = (size * rows.inverse - 1) * (size * columns.inverse - 1) / (6 * size * freedom)
    corrected = statistic[tested] / (1 + excess[tested])
    open_ = -2 * (columns.entropy + within)[tested]
    return GTest(
        float(corrected.sum()),
        int(freedom[tested].sum()),
        float(open_.sum()),
        int(size[tested].sum()),
    )


@dataclass(frozen=True, eq=False)
class _Margin:
    """The totals of the levels of rows, or of columns, in each stratum, [strata]."""

    levels: Whole
    least: Floats  # total of the rarest level
    inverse: Floats  # sum of 1 / total
    entropy: Floats  # sum of total log(total)


def _pool(stratum: Whole, level: Whole, number: Whole, least: Floats) -> tuple[Whole, _Margin]:
    """Pool the levels of each stratum with fewer cases than `least`, [M], and sum the others.

    Rare levels become one, and that joins the most frequent one if it is still rare.
    """
    strata, others = len(least), int(level.max(initial=-1)) + 1
    owner, _, total, place = _totals(stratum, level, number, others + 1)
    level = np.where((total < least[owner])[place], others, level)
    owner, found, total, place = _totals(stratum, level, number, others + 1)
    order = np.lexsort((-total, owner))
    most = found[order[np.searchsorted(owner[order], np.arange(strata))]]
    level = np.where((total < least[owner])[place], most[stratum], level)
    owner, _, total, _ = _totals(stratum, level, number, others + 1)
    rarest = np.full(strata, np.inf)
    np.minimum.at(rarest, owner, total)
    return level, _Margin(
        np.bincount(owner, minlength=strata),
        rarest,
        total_by(owner, 1 / total, strata),
        total_by(owner, xlogy(total, total), strata),
    )


def _totals(
    stratum: Whole, level: Whole, number: Whole, levels: int
) -> tuple[Whole, Whole, Floats, Whole]:
    """Return the distinct strata and levels, their totals, and the place of each count [M]."""
    key, place = np.unique(stratum * levels + level, return_inverse=True)
    return key // levels, key % levels, total_by(place, number, len(key)), place


def _small(probability: float) -> str:
    return "below 0.001" if probability < 0.001 else f"= {probability:.3f}"

"""The experts' view: the value of a policy from what experts expect of a sample of episodes.

    V = mean(CF) + Σ_h W_h · mean over the sample of stratum h of (E_i - CF_i)

CF_i is the model's counterfactual return of episode i, E_i the return that experts expect, and
W_h = N_h / n. V is unbiased for the mean of E over all episodes, whatever the model says. It does
not cover what experts misjudge together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from butfor.checks import check_choice, check_confidence
from butfor.evaluate.betting import Drawn, betting_interval
from butfor.printed import Printed
from butfor.types import Floats

INTERVALS = ("anytime", "fixed")
FEWEST = 2  # answers in a stratum, for a variance
FORECAST = 1000  # further answers at most
COARSE = 400  # cells of the grid in forecasts


@dataclass(frozen=True, eq=False)
class ReviewSample:
    """The episodes drawn for review, by strata, and what experts answered.

    Cases must come in an order that is random within each stratum, and without what reviewers
    answered after they had seen the model's answer.
    """

    predicted: Floats  # [n] counterfactual return according to the model
    stratum: NDArray[np.int64]  # [n] neighboring numbers are merged where answers are too few
    drawn: NDArray[np.bool_]  # [n] whether an episode is to be reviewed
    case: NDArray[np.int64]  # [k] episodes that were answered, in the order of answers
    answer: Floats  # [k] return that experts expect; nan: they cannot tell
    possible: tuple[float, float]  # lowest and highest return
    flagged: int | None = None  # the stratum of flagged episodes, which is never merged

    def __post_init__(self) -> None:
        n = len(self.predicted)
        if not len(self.stratum) == len(self.drawn) == n or len(self.case) != len(self.answer):
            raise ValueError(
                f"{n} predictions, {len(self.stratum)} strata, {len(self.drawn)} marks of drawn "
                f"episodes; {len(self.case)} cases, {len(self.answer)} answers: give one of each "
                "per episode, and one answer per case"
            )
        if len(np.unique(self.case)) < len(self.case):
            raise ValueError("a case is answered twice; give the mean over its reviewers")
        outside = self.case[(self.case < 0) | (self.case >= n)]
        if len(outside) or not self.drawn[self.case].all():
            wrong = (outside if len(outside) else self.case[~self.drawn[self.case]])[0]
            raise ValueError(f"case {wrong} was not drawn; leave out answers to other episodes")
        low, high = self.possible
        for name, values in (("prediction", self.predicted), ("answer", self.answer[self.told])):
            wrong = values[~((values >= low - 1e-9) & (values <= high + 1e-9))]
            if len(wrong):
                raise ValueError(f"{name} {wrong[0]} is outside the possible {low} to {high}")

    @property
    def told(self) -> NDArray[np.bool_]:
        """Whether experts could tell, [k]."""
        return ~np.isnan(self.answer)

    def filled(self, value: float) -> ReviewSample:
        """Return the sample with a value for each case of which experts could not tell."""
        return replace(self, answer=np.where(self.told, self.answer, value))


@dataclass(frozen=True)
class StratumView:
    """What experts answered in one stratum, or in neighboring strata that were merged."""

    strata: tuple[int, ...]
    episodes: int
    drawn: int
    answered: int
    difference: float  # mean of E - CF over answered cases; nan: none
    deviation: float  # its standard deviation between cases; nan: fewer than two

    @property
    def enough(self) -> bool:
        """Whether there is a variance, or none because all episodes were answered."""
        return self.answered >= FEWEST or self.answered == self.episodes

    def variance(self, answered: float) -> float:
        """Return the variance of the mean difference if so many were answered."""
        if answered >= self.episodes:
            return 0.0
        return (1 - answered / self.episodes) * self.deviation**2 / answered


@dataclass(frozen=True, repr=False)
class SampleValue(Printed):
    """The value of a policy according to experts, with its interval."""

    value: float  # nan: flagged or all other episodes have no answer yet
    low: float  # nan: too few answers for a fixed interval
    high: float
    interval: str  # "anytime" or "fixed"
    confidence: float
    cases: int  # answered
    unanswered: int  # read, but experts could not tell
    widest: tuple[float, float]  # with these at the worst and at the best possible return
    strata: tuple[StratumView, ...]


def sample_value(
    sample: ReviewSample, *, interval: str = "anytime", confidence: float = 0.95
) -> SampleValue:
    """Estimate the value of a policy according to experts.

    Parameters
    ----------
    sample
        Who was drawn, and what experts answered.
    interval
        "fixed" is for a review that is read once, when it is done: Student's t with Satterthwaite's
        degrees of freedom and the variance Σ W_h² (1 - m_h / N_h) s_h² / m_h, which is 0 if answers
        do not differ within strata. "anytime" may be read after every case: a betting confidence
        sequence (`betting_interval`).
    """
    check_choice(interval, "interval", INTERVALS)
    check_confidence(confidence)
    strata = view_strata(sample)
    value = _value(sample, strata)
    find = _anytime if interval == "anytime" else _fixed
    low, high = find(sample, confidence)
    widest = (low, high)
    if not sample.told.all():
        worst, best = (sample.filled(end) for end in sample.possible)
        lowest, highest = find(worst, confidence)[0], find(best, confidence)[1]
        widest = (float(np.fmin(low, lowest)), float(np.fmax(high, highest)))
    return SampleValue(
        value=_within(sample, value, value)[0],
        low=low,
        high=high,
        interval=interval,
        confidence=confidence,
        cases=int(sample.told.sum()),
        unanswered=int((~sample.told).sum()),
        widest=widest,
        strata=strata,
    )


def sample_chances(
    sample: ReviewSample,
    predicted: Floats,
    answer: Floats,
    *,
    interval: str = "anytime",
    confidence: float = 0.95,
) -> tuple[SampleValue, ...]:
    """Estimate the probability of each of O outcomes according to experts, each on its own.

    `predicted` [n, O] and `answer` [k, O] take the place of the returns of the sample.
    """
    return tuple(
        sample_value(
            replace(sample, predicted=one, answer=other, possible=(0.0, 1.0)),
            interval=interval,
            confidence=confidence,
        )
        for one, other in zip(predicted.T, answer.T, strict=True)
    )


def mean_over_reviewers(
    case: NDArray[np.int64], answer: Floats
) -> tuple[NDArray[np.int64], Floats]:
    """Return each case once, in the order of first answers, with the mean over its reviewers.

    `answer` is [r] or [r, O]; those who cannot tell (nan) count only where nobody could.
    """
    cases, first, place = np.unique(case, return_index=True, return_inverse=True)
    told = ~np.isnan(answer)
    sums, counts = np.zeros((2, len(cases), *answer.shape[1:]))
    np.add.at(sums, place, np.where(told, answer, 0.0))
    np.add.at(counts, place, told)
    order = np.argsort(first)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return cases[order], means[order]


def view_strata(sample: ReviewSample) -> tuple[StratumView, ...]:
    """Summarize answers by stratum; strata with too few are merged with a neighbor.

    The first stratum with fewer than two answers, unless it is complete, joins the next one, and
    the last joins the one before. Flagged episodes stay apart.
    """
    numbers = np.unique(sample.stratum).tolist()
    merged = [(number,) for number in numbers if number != sample.flagged]
    views = [_view(sample, group) for group in merged]
    while len(views) > 1 and not all(view.enough for view in views):
        short = next(i for i, view in enumerate(views) if not view.enough)
        at = min(short, len(views) - 2)
        views[at : at + 2] = [_view(sample, views[at].strata + views[at + 1].strata)]
    if sample.flagged is not None and sample.flagged in numbers:
        views.append(_view(sample, (sample.flagged,)))
    return tuple(views)


def cases_to_exclude(
    sample: ReviewSample,
    value: float,
    *,
    interval: str = "anytime",
    confidence: float = 0.95,
) -> int | None:
    """Forecast how many more answers exclude a value, such as the observed one.

    Answers are assumed to go on like this: "fixed" keeps the means and deviations of strata,
    "anytime" repeats the answers in their order. 0: it is excluded already. None: not by
    1000 more or by all episodes, or nothing can be said yet.
    """
    check_choice(interval, "interval", INTERVALS)
    told = replace(sample, case=sample.case[sample.told], answer=sample.answer[sample.told])
    if not len(told.case):
        return None
    if interval == "fixed":
        excludes = _fixed_forecast(told, value, confidence)
    else:
        excludes = _anytime_forecast(told, value, confidence)
    return _first(excludes, min(FORECAST, len(told.predicted) - len(told.case)))


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """Return the least number for which a condition holds, taken to hold from there on."""
    if holds(0):
        return 0
    below, above = 0, 1
    while above < most and not holds(above):
        below, above = above, 2 * above
    above = min(above, most)
    if not holds(above):
        return None
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if holds(middle) else (middle, above)
    return above


def _view(sample: ReviewSample, numbers: tuple[int, ...]) -> StratumView:
    inside = np.isin(sample.stratum, numbers)
    found = sample.told & inside[sample.case]
    difference = sample.answer[found] - sample.predicted[sample.case[found]]
    return StratumView(
        strata=numbers,
        episodes=int(inside.sum()),
        drawn=int((inside & sample.drawn).sum()),
        answered=len(difference),
        difference=float(difference.mean()) if len(difference) else float("nan"),
        deviation=float(difference.std(ddof=1)) if len(difference) >= FEWEST else float("nan"),
    )


def _value(sample: ReviewSample, strata: tuple[StratumView, ...]) -> float:
    total = sum(view.episodes * view.difference for view in strata)
    return float(sample.predicted.mean() + total / len(sample.predicted))


def _fixed(sample: ReviewSample, confidence: float) -> tuple[float, float]:
    strata = view_strata(sample)
    half = _half_width(strata, [view.answered for view in strata], confidence)
    value = _value(sample, strata)
    return _within(sample, value - half, value + half)


def _half_width(strata: tuple[StratumView, ...], answered: list[float], confidence: float) -> float:
    """Return half the width of the fixed interval if so many were answered in each stratum."""
    if not all(view.enough for view in strata):
        return float("nan")
    total = sum(view.episodes for view in strata)
    parts = [
        ((view.episodes / total) ** 2 * view.variance(count), count)
        for view, count in zip(strata, answered, strict=True)
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(part**2 / (count - 1) for part, count in parts if part > 0)
    return float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))


def _anytime(sample: ReviewSample, confidence: float) -> tuple[float, float]:
    low, high = betting_interval(drawn_strata(sample), confidence)
    model = float(sample.predicted.mean())
    return _within(sample, model + low, model + high)


def _within(sample: ReviewSample, low: float, high: float) -> tuple[float, float]:
    """Return an interval within the means that are possible after the answers so far."""
    known, n = sample.answer[sample.told], len(sample.predicted)
    least, most = ((known.sum() + (n - len(known)) * end) / n for end in sample.possible)
    return float(np.clip(low, least, most)), float(np.clip(high, least, most))


def drawn_strata(sample: ReviewSample) -> list[Drawn]:
    """Return the differences E - CF by stratum, with what is possible."""
    case, answer = sample.case[sample.told], sample.answer[sample.told]
    low, high = sample.possible
    known = np.zeros(len(sample.predicted), bool)
    known[case] = True
    found = []
    for number in np.unique(sample.stratum):
        inside = sample.stratum == number
        model, rest = sample.predicted[inside], sample.predicted[inside & ~known]
        center = float(rest.mean()) if len(rest) else 0.0
        when = np.flatnonzero(inside[case])
        found.append(
            Drawn(
                size=len(model),
                planned=int((inside & sample.drawn).sum()),
                least=low - float(model.max()),
                most=high - float(model.min()),
                rest=(low - center, high - center),
                value=answer[when] - sample.predicted[case[when]],
                when=when,
            )
        )
    return found


def _fixed_forecast(sample: ReviewSample, value: float, confidence: float) -> Callable[[int], bool]:
    strata = view_strata(sample)
    distance = abs(_value(sample, strata) - value)
    growing = sum(view.answered for view in strata if view.answered < view.episodes)

    def excludes(more: int) -> bool:
        factor = 1 + more / max(1, growing)
        answered = [min(view.episodes, view.answered * factor) for view in strata]
        return _half_width(strata, answered, confidence) < distance

    return excludes


def _anytime_forecast(
    sample: ReviewSample, value: float, confidence: float
) -> Callable[[int], bool]:
    strata, so_far = drawn_strata(sample), len(sample.case)
    gap = value - float(sample.predicted.mean())
    place = np.empty(so_far, np.int64)  # stratum of each answer
    difference = np.empty(so_far)
    for h, stratum in enumerate(strata):
        place[stratum.when], difference[stratum.when] = h, stratum.value
    order = _repeated(place, [stratum.size for stratum in strata], so_far + FORECAST)

    def excludes(more: int) -> bool:
        known = order[: so_far + more]
        longer = [
            replace(stratum, value=difference[known[inside]], when=np.flatnonzero(inside))
            for stratum, inside in ((s, place[known] == h) for h, s in enumerate(strata))
        ]
        low, high = betting_interval(longer, confidence, grid=COARSE)
        return not low <= gap <= high

    return excludes


def _repeated(place: NDArray[np.int64], sizes: list[int], most: int) -> NDArray[np.int64]:
    """Return answers in their order, again and again, as long as their stratum has episodes."""
    left = np.array(sizes)
    order: list[int] = []
    while len(order) < most and (left[place] > 0).any():
        for answer, h in enumerate(place.tolist()):
            if left[h] > 0:
                order.append(answer)
                left[h] -= 1
    return np.array(order[:most])

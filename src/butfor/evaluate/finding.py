"""Finding: what the estimates say about a policy, in a sentence of the first screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, starmap

import pandas as pd

from butfor.evaluate.estimators.table import CONTINUED, CROSS_FITTED, OBSERVED, compared_with
from butfor.evaluate.wording import Digits, digits_for, signed

BETTER, WORSE, UNCLEAR, MIXED = "better", "worse", "unclear", "mixed"  # than what was observed
NOTHING = "nothing"  # would change
LOOKS = {
    BETTER: "looks better",
    WORSE: "looks worse",
    UNCLEAR: "may be better or worse",
    MIXED: "looks better by one estimate and worse by another",
}
HARM = "looks worse, but may be better"
EXPECT = {BETTER: "it to do better", WORSE: "it to do worse", UNCLEAR: "no clear difference"}
REPLAYED, FRESH = "CF", "MB (cross-fitted)"  # whose numbers are told
LEARNED = (
    "no interval: the policy was learned from the same episodes, which flatters it (see the "
    "cross-fitted estimates)"
)
BY_MODEL = ("MB", REPLAYED)
TOLD = (OBSERVED, CONTINUED, "WIS", *BY_MODEL, *CROSS_FITTED)  # in sentences and short tables
TIE = 1e-9  # of the largest size: values closer together are the same
LEAST_AGREEMENT = 0.4  # lower end of the intraclass correlation of reviewers, for a verdict
LEAST_SECONDS = 10.0  # median time of a case
WHOLE = 1.0  # differences per 100 from which on whole numbers tell enough


@dataclass(frozen=True)
class Reviewed:
    """What reviewers expect of the policy: its value, with its interval (nan: none)."""

    value: float
    low: float
    high: float
    chances: Mapping[str, float]  # of each outcome
    agreement: float  # lower end of their intraclass correlation; nan: unknown
    seconds: float  # median time of a case; nan: unknown

    @property
    def agree(self) -> bool:
        """Whether reviewers agree, and took their time, enough for a verdict to rest on them."""
        return self.agreement > LEAST_AGREEMENT and self.seconds >= LEAST_SECONDS

    @property
    def agreed(self) -> str:
        """How far they agree at least, and how long they took."""
        known = (
            f"at least {signed(self.agreement)}" if self.agreement == self.agreement else "unknown"
        )
        time = f"{self.seconds:.3g} s" if self.seconds == self.seconds else "unknown"
        return f"intraclass correlation {known}, median time of a case {time}"


@dataclass(frozen=True)
class Scale:
    """How a finding is told: in outcomes per 100 episodes where they are known, and in returns.

    `chances` has the chance of each of the named `outcomes` by source: "Observed", "Observed,
    continued" if there are such, "CF", "MB (cross-fitted)".
    """

    digits: Digits
    outcomes: Sequence[str] = ()
    chances: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def numbers(
        self, chances: Sequence[float] | None, value: float, observed: float, *, first: bool
    ) -> str:
        """Return chances, if known, and value; the `first` say what they are compared with."""
        told = f"{self.digits.value(value)} against {self.digits.value(observed)}"
        happened = self.chances.get(compared_with(self.chances))
        if happened is None or chances is None:
            return f"{'average return ' * first}{told}" if not self.digits.rate else told
        pairs = [per_hundred(*pair) for pair in zip(chances, happened, strict=True)]
        # what is told next keeps the unit of what was told first, which says what it counts
        begun = [] if first else zip(self.chances.get(REPLAYED, chances), happened, strict=True)
        unit = "%" if "." in "".join(chain(*pairs, *starmap(per_hundred, begun))) else ""
        parts = [
            f"{name} {new}{unit}{f' instead of {old}{unit}' * first}"
            for name, (new, old) in zip(self.outcomes, pairs, strict=True)
        ]
        whole = f"{', '.join(parts)}{' of 100 episodes' * (first and not unit)}"
        if self.digits.rate:
            return whole
        return f"{whole}; average return {told if first else self.digits.value(value)}"


def per_hundred(new: float, old: float) -> tuple[str, str]:
    """Return two chances per hundred, with as many decimals as their difference needs.

    With decimals they are rates in percent, not counts. A model is never certain: "under 1",
    "over 99".
    """
    apart = 100 * abs(new - old)
    decimals = 0 if apart >= WHOLE or apart < 1e-9 else digits_for([new, old], rate=True).decimals
    unit = 10.0**-decimals
    ends = (f"under {unit:.{decimals}f}", f"over {100 - unit:.{decimals}f}")
    number = 100 * new
    text = f"{number:.{decimals}f}"
    if number < unit / 2:
        text = ends[0]
    elif number > 100 - unit / 2:
        text = ends[1]
    return text, f"{100 * old:.{decimals}f}"


@dataclass(frozen=True)
class Finding:
    """What the estimates say: better, worse, unclear, mixed, or that nothing would change."""

    side: str
    sentence: str
    reviewers: str = ""  # what reviewers expect: better, worse or unclear; "" if unknown


def find(
    estimates: pd.DataFrame,
    scale: Scale,
    *,
    changed: float = math.nan,
    reviewed: Reviewed | None = None,
) -> Finding:
    """Say what a table of estimates shows, beside what was observed.

    A policy that was learned from the log is judged by the cross-fitted estimates, any other by
    those of the model; what records alone say is told where it clearly contradicts. `changed` is
    the share of decisions that the policy would change.
    """
    if changed <= TIE:
        return Finding(
            NOTHING, "The policy does what was done: it would change none of the decisions."
        )
    table = estimates.set_index("estimator")[["value", "low", "high"]]
    known = table[table["value"].notna()]
    models = [*BY_MODEL, *CROSS_FITTED]
    if compared_with(known.index) not in known.index or not known.index.isin(models).any():
        return Finding(UNCLEAR, "There is no estimate of what the policy would do.")
    told = _Told(known, scale)
    if known.index.isin(CROSS_FITTED).any():
        side, sentence = told.learned()
    elif "warning" in estimates and estimates["warning"].str.startswith(LEARNED).any():
        side, sentence = told.flattered()
    else:
        side, sentence = told.given()
    if reviewed is None or math.isnan(reviewed.value):
        return Finding(side, sentence)
    if not reviewed.agree:
        sentence += f" The reviewers do not agree enough to say ({reviewed.agreed})."
        return Finding(side, sentence)
    expected = compare([(reviewed.value, reviewed.low, reviewed.high)], told.observed)
    chances = [reviewed.chances[name] for name in scale.outcomes] if reviewed.chances else None
    numbers = scale.numbers(chances, reviewed.value, told.observed, first=False)
    return Finding(side, f"{sentence} Reviewers expect {EXPECT[expected]} ({numbers}).", expected)


@dataclass(frozen=True)
class _Told:
    """The known estimates, and how they are told."""

    known: pd.DataFrame  # value, low, high by estimator
    scale: Scale

    @property
    def observed(self) -> float:
        return float(self.known.loc[compared_with(self.known.index), "value"])

    def learned(self) -> tuple[str, str]:
        """Tell what the log that taught a policy says about it, and what other data say."""
        here, fresh = self._side(BY_MODEL), self._side(CROSS_FITTED)
        second = self._looks(CROSS_FITTED)
        if not here:
            numbers = self._numbers(FRESH, CROSS_FITTED, first=True)
            return fresh, f"Judged on other data, the policy {second} ({numbers})."
        first = self._looks(BY_MODEL)
        return fresh, (
            f"On the log that taught it, the policy {first} "
            f"({self._numbers(REPLAYED, BY_MODEL, first=True)}); judged on other data, it "
            f"{second}{' too' * (first == second)} "
            f"({self._numbers(FRESH, CROSS_FITTED, first=False)})."
        )

    def flattered(self) -> tuple[str, str]:
        """Tell what the log that taught a policy says about it, which decides nothing."""
        told = self._numbers(REPLAYED, BY_MODEL, first=True)
        return UNCLEAR, (
            f"On the log that taught it, the policy {self._looks(BY_MODEL)} ({told}); it was not "
            "judged on other data."
        )

    def given(self) -> tuple[str, str]:
        """Tell what the model says about a policy, and whether records contradict."""
        side, records = self._side(BY_MODEL), self._records()
        told = self._numbers(REPLAYED, BY_MODEL, first=True)
        if {side, records} != {BETTER, WORSE}:
            return side, f"The policy {self._looks(BY_MODEL)} ({told})."
        value = self.scale.digits.value(float(self.known.loc["WIS", "value"]))
        return MIXED, (
            f"In the model the policy {LOOKS[side]} ({told}); by the records alone it "
            f"{LOOKS[records]} ({value})."
        )

    def _records(self) -> str:
        """Compare the reweighted records, if there are enough of them for an interval."""
        known = "WIS" in self.known.index and not math.isnan(self.known.loc["WIS", "low"])
        return self._side(("WIS",)) if known else ""

    def _rows(self, names: Sequence[str]) -> pd.DataFrame:
        return self.known.loc[[name for name in names if name in self.known.index]]

    def _side(self, names: Sequence[str]) -> str:
        rows = self._rows(names)
        return compare(rows.itertuples(index=False, name=None), self.observed) if len(rows) else ""

    def _looks(self, names: Sequence[str]) -> str:
        """Say on which side estimates lie; harm is told although their intervals leave it open.

        That is if all lie below by more than a quarter of the interval, about a standard error.
        """
        rows, side = self._rows(names), self._side(names)
        error = ((rows["high"] - rows["low"]) / 4).fillna(0.0)
        below = bool((self.observed - rows["value"] > error).all())
        return HARM if side == UNCLEAR and below else LOOKS[side]

    def _numbers(self, source: str, names: Sequence[str], *, first: bool) -> str:
        """Return the numbers of the replays, or if there are none, of what there is."""
        rows = self._rows(names)
        name = source if source in rows.index else str(rows.index[0])
        value, chances = float(rows.loc[name, "value"]), self.scale.chances.get(name)
        told = self.scale.numbers(chances, value, self.observed, first=first)
        if not first or CONTINUED not in self.known.index:
            return told
        if OBSERVED not in self.known.index:
            return f"{told}; the model continues records that stop early"
        value, chances = float(self.known.loc[OBSERVED, "value"]), self.scale.chances.get(OBSERVED)
        recorded = self.scale.numbers(chances, value, self.observed, first=False)
        recorded, _, _ = recorded.partition(" against ")
        return f"{told}; recorded, as some episodes stop early: {recorded}"


def told_digits(estimates: pd.DataFrame, *, rate: bool = False) -> Digits:
    """Return how the estimates in sentences are written, whatever the size of all others."""
    told = estimates[estimates["estimator"].isin(TOLD)]
    return digits_for(told["value"], rate=rate)


def compare(estimates: Iterable[tuple[float, float, float]], observed: float) -> str:
    """Say on which side of what was observed all estimates lie, each with its interval.

    An estimate (value, low, high) without an interval counts with its value.
    """
    sides = set()
    for value, low, high in estimates:
        tie = TIE * max(abs(value), abs(observed))
        lowest, highest = (value, value) if math.isnan(low) else (low, high)
        above, below = lowest > observed + tie, highest < observed - tie
        sides.add(BETTER if above else WORSE if below else UNCLEAR)
    if {BETTER, WORSE} <= sides:
        return MIXED
    return UNCLEAR if UNCLEAR in sides else sides.pop()

"""The experts' view of an audit: the value of its policy according to reviewers' answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import Audit
from butfor.audit.meta import Meta
from butfor.audit.reading import unrecorded
from butfor.evaluate.agreement import Measure, intraclass_correlation
from butfor.evaluate.experts import (
    ReviewSample,
    cases_to_exclude,
    mean_over_reviewers,
    sample_chances,
    sample_value,
)
from butfor.evaluate.finding import Reviewed
from butfor.log.sources import read_columns
from butfor.printed import Printed
from butfor.types import Floats

COLUMNS = ("id", "observed_outcome", "observed_return", "expected_return", "rank", "control")
SAME = 1e-9  # largest difference between returns that count as the same


class NoEstimateError(ValueError):
    """There is no experts' view; the message says why."""


@dataclass(frozen=True, eq=False, repr=False)
class ExpertValue(Printed):
    """The value of a policy according to experts, and what it rests on."""

    value: float  # nan: of the flagged or of all others no case has its answers yet
    low: float  # nan: too few answers for a fixed interval
    high: float
    interval: str  # "anytime" or "fixed"
    confidence: float
    widest: tuple[float, float]  # with what nobody could tell at the worst and the best return
    model: float  # mean counterfactual return according to the model
    observed: float  # mean return of what was recorded; nan: not kept
    usual: float  # the same, continued by the model where records stop early
    cases: int  # of which experts told what they expect
    flagged: int  # of these, the flagged ones
    unanswered: int  # further cases, of which none of their experts could tell
    incomplete: int  # further cases, with fewer answers than needed
    to_review: int  # cases that the audit chose
    needed: int  # answers for each case
    returns: dict[str, float]  # of each outcome, none last
    exact: bool  # whether the return follows from the outcome alone
    chances: pd.DataFrame  # one row per outcome: observed, usual, model, value, low, high, widest
    agreement: Measure  # of experts on the expected return
    agreement_on: dict[str, Measure]  # the chance of each outcome
    seconds: float  # median time that an answer took; nan: unknown
    sample: ReviewSample = field(repr=False)

    @property
    def complete(self) -> bool:
        """Whether every case that the audit chose has its answers."""
        return self.cases + self.unanswered == self.to_review

    @property
    def reviewed(self) -> Reviewed:
        """What a conclusion takes into account."""
        chances = dict(zip(self.chances["outcome"], self.chances["value"], strict=True))
        low = math.nan if self.agreement.low is None else self.agreement.low
        return Reviewed(self.value, self.low, self.high, chances, low, self.seconds)

    def cases_to_exclude(self, value: float | None = None) -> int | None:
        """Forecast how many more cases exclude a value, by default that of usual care.

        Answers are assumed to go on like this. None: not 1000 more, or not even all episodes.
        """
        return cases_to_exclude(
            self.sample,
            self.usual if value is None else value,
            interval=self.interval,
            confidence=self.confidence,
        )


@dataclass(frozen=True, eq=False)
class Answers:
    """The chances that experts gave, one row per answer, in the order of answers."""

    case: NDArray[np.int64]  # [r] positions of episodes in the table
    chance: Floats  # [r, O + 1] of outcomes, none last; nan: cannot tell
    needed: int  # answers for each case
    seconds: float = math.nan  # median time that an answer took; nan: unknown

    def complete(self) -> tuple[NDArray[np.int64], Floats]:
        """Return cases that have their answers, in the order of completion, with the means.

        Later answers do not count: a case whose value could still change would make an interval
        that is watched invalid.
        """
        before = pd.Series(self.case).groupby(self.case).cumcount().to_numpy()
        completed = self.case[before == self.needed - 1]
        used = (before < self.needed) & np.isin(self.case, completed)
        cases, means = mean_over_reviewers(self.case[used], self.chance[used])
        place = {case: row for row, case in enumerate(cases.tolist())}
        return completed, means[[place[case] for case in completed.tolist()]]


def read_everyone(audit: Audit, folder: Path | None) -> pd.DataFrame:
    """Return what the experts' view needs to know of all episodes.

    Of a large audit only some episodes are in memory; the others are read from its folder.
    """
    if audit.meta.design is None:
        raise NoEstimateError(
            "the audit has no sampling design, so that answers about some episodes cannot be "
            f"generalized to all: it was made by butfor {audit.meta.butfor}; run it again with "
            "this version"
        )
    if not audit.partial:
        return audit.episodes
    if folder is None:
        raise ValueError(
            "only some of the episodes were loaded; give the audit's folder, or load all of them "
            "with Audit.load"
        )
    names = [*COLUMNS, "stratum", *chance_columns(audit.meta)]
    path, kept = folder / "episodes.parquet", audit.meta.usual_chances is not None
    table = read_columns(path, [*names, *["usual_return"] * kept])
    return table if kept or "usual_return" not in audit.episodes else unrecorded(table)


def returns_compared(table: pd.DataFrame) -> pd.Series:
    """Return of each episode that the policy is compared with."""
    return table.get("usual_return", table["observed_return"])


def chance_columns(meta: Meta) -> list[str]:
    """Columns of the model's probabilities of outcomes in the table of episodes, none last."""
    return [*(f"p_{name}" for name in meta.outcomes), "p_none"]


def view_answers(
    table: pd.DataFrame, meta: Meta, answers: Answers, *, interval: str, confidence: float
) -> ExpertValue:
    """Estimate the value of an audit's policy from experts' answers about its cases.

    `table` has one row per episode, see `read_everyone`.
    """
    names = meta.outcome_names
    returns, exact = outcome_returns(table, meta)
    model = table["expected_return"].to_numpy(dtype=np.float64)
    case, chance = answers.complete()
    sample = ReviewSample(
        predicted=model,
        stratum=table["stratum"].to_numpy(dtype=np.int64),
        drawn=((table["rank"] > 0) | table["control"]).to_numpy(dtype=bool),
        case=case,
        answer=chance @ returns,
        possible=(min(returns.min(), model.min()), max(returns.max(), model.max())),
        flagged=0,
    )
    found = sample_value(sample, interval=interval, confidence=confidence)
    told = ~np.isnan(answers.chance[:, 0])
    chance_of_model = table[chance_columns(meta)].to_numpy(dtype=np.float64).clip(0, 1)
    outcomes = sample_chances(
        sample, chance_of_model, chance, interval=interval, confidence=confidence
    )
    share = table["observed_outcome"].value_counts(normalize=True)
    chances = pd.DataFrame(
        {
            "outcome": names,
            "observed": [float(share.get(name, 0.0)) for name in names],
            **({} if meta.usual_chances is None else {"usual": meta.usual_chances}),
            "model": chance_of_model.mean(axis=0),
            "value": [one.value for one in outcomes],
            "low": [one.low for one in outcomes],
            "high": [one.high for one in outcomes],
            "widest_low": [one.widest[0] for one in outcomes],
            "widest_high": [one.widest[1] for one in outcomes],
        }
    )
    by_case = answers.case[told].tolist()
    return ExpertValue(
        value=found.value,
        low=found.low,
        high=found.high,
        interval=interval,
        confidence=confidence,
        widest=found.widest,
        model=float(model.mean()),
        observed=float(table["observed_return"].mean()),
        usual=float(returns_compared(table).mean()),
        cases=found.cases,
        flagged=int((sample.stratum[case[sample.told]] == 0).sum()),
        unanswered=found.unanswered,
        incomplete=len(np.unique(answers.case)) - len(case),
        to_review=int(sample.drawn.sum()),
        needed=answers.needed,
        returns=dict(zip(names, returns.tolist(), strict=True)),
        exact=exact,
        chances=chances,
        agreement=agree_on(by_case, answers.chance[told] @ returns),
        agreement_on={
            name: agree_on(by_case, answers.chance[told, o]) for o, name in enumerate(names)
        },
        seconds=answers.seconds,
        sample=sample,
    )


def agree_on(case: list[int], number: Floats) -> Measure:
    """Measure how far experts agree on a number that they gave for cases."""
    return intraclass_correlation(zip(case, number.tolist(), strict=True))


def outcome_returns(table: pd.DataFrame, meta: Meta) -> tuple[Floats, bool]:
    """Return of each outcome, none last, [O + 1], and whether it follows from the outcome alone.

    The mean over the episodes that had the outcome. All of these are the same if rewards come only
    at ends and nothing is discounted. An outcome that nobody had gets its own reward.
    """
    observed = returns_compared(table).groupby(table["observed_outcome"], observed=True)
    mean, spread = observed.mean(), observed.max() - observed.min()
    rewards = [*(outcome.reward for outcome in meta.outcome_details), 0.0]
    returns = [
        float(mean.get(name, reward))
        for name, reward in zip(meta.outcome_names, rewards, strict=True)
    ]
    return np.array(returns), meta.parameters.discount == 1 and bool((spread <= SAME).all())

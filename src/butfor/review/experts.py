"""The experts' view of an audit, from the chances that reviewers gave, however these are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from butfor.audit.audit import REVIEWS, Audit, load_for_readers
from butfor.audit.experts import Answers, ExpertValue, NoEstimateError, read_everyone, view_answers
from butfor.audit.meta import Meta
from butfor.review.export import read_reviews_csv, read_reviews_frame, read_row_answers
from butfor.review.plan import run_id
from butfor.review.state import Answer
from butfor.review.store import Store, open_copy
from butfor.review.verdicts import OUT_OF

Reviews: TypeAlias = Store | str | Path | pd.DataFrame
Given = tuple[list[Answer], int]  # answers, and how many each case needs
VERDICTS_ONLY = (
    "there is no estimate from the reviewers: they were asked for verdicts only, and a verdict "
    "says nothing about how likely each outcome is"
)


def expert_value(
    audit: Audit | str | Path,
    reviews: Reviews | None = None,
    *,
    interval: str = "anytime",
    confidence: float = 0.95,
) -> ExpertValue:
    """Estimate the value of an audit's policy from the chances that reviewers gave.

    V = mean(CF) + Σ_h W_h · mean over the sample of stratum h of (E_i - CF_i): CF_i is the model's
    counterfactual return of episode i, E_i the mean over its reviewers of Σ chance · return of the
    outcome, and W_h the share of stratum h in the log. V is unbiased for what the reviewers would
    say on average about all episodes. It is causal only as far as they judge rightly: what they
    misjudge together is not covered.

    A case counts once it has as many answers as the review needs. Answers that were given after
    seeing those of others, and repeats, do not count. Where reviewers cannot tell, `widest` says
    how far that could move the interval.

    Parameters
    ----------
    audit
        The audit, or its folder.
    reviews
        The folder with the reviews, its `reviews.sqlite`, a `Store`, an exported CSV file, or a
        data frame of one. May be omitted if `audit` is a folder.
    interval
        "anytime" holds however often it is looked at while answers come in. "fixed" is narrower,
        and for a review that is read once, when it is complete.

    Raises
    ------
    NoEstimateError
        If the audit has no sampling design, or the review no answers to generalize.
    """
    table, meta, answers = _collect(audit, reviews)
    return view_answers(table, meta, answers, interval=interval, confidence=confidence)


def view_experts(audit: Audit | str | Path, reviews: Reviews | None = None) -> ExpertValue | str:
    """Return the experts' view for people who watch it form, or why there is none.

    Its interval is "anytime" while cases are to be read, and "fixed" once the review is complete.
    """
    try:
        table, meta, answers = _collect(audit, reviews)
        found = view_answers(table, meta, answers, interval="anytime", confidence=0.95)
        if found.complete:
            return view_answers(table, meta, answers, interval="fixed", confidence=0.95)
    except NoEstimateError as error:
        return str(error)
    return found


def _collect(
    audit: Audit | str | Path, reviews: Reviews | None
) -> tuple[pd.DataFrame, Meta, Answers]:
    """Return the table of all episodes, what is known of the audit, and the answers that count."""
    known = audit if isinstance(audit, Audit) else load_for_readers(audit)
    source = reviews
    if source is None:
        if isinstance(audit, Audit):
            raise ValueError("give the reviews: a folder, its reviews.sqlite or an exported CSV")
        source = Path(audit)
    folder = Path(audit) if isinstance(audit, str | Path) else _folder_of(source)
    table = read_everyone(known, folder)
    given, needed = read_given(known, source)
    return table, known.meta, usable_answers(table, given, needed, len(known.meta.outcome_names))


def read_given(audit: Audit, reviews: Reviews) -> Given:
    """Return all answers about an audit, in their order, and how many each case needs."""
    if isinstance(reviews, pd.DataFrame):
        return _read_rows(audit, read_reviews_frame(reviews), "the data frame")
    if isinstance(reviews, Store):
        return _read_run(audit, reviews)
    path = Path(reviews)
    if path.suffix == ".csv":
        return _read_rows(audit, read_reviews_csv(path), str(path))
    file = path / REVIEWS if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(
            f"there are no reviews at {file}; give a folder under review, its {REVIEWS}, or an "
            "exported .csv"
        )
    with open_copy(file) as store:
        return _read_run(audit, store)


def usable_answers(
    table: pd.DataFrame, given: Sequence[Answer], needed: int, outcomes: int
) -> Answers:
    """Return the answers from which to generalize, by position of the episode in the table."""
    used = [answer for answer in given if not (answer.repeat or answer.informed)]
    place = {str(name): row for row, name in enumerate(table["id"].tolist())}
    unknown = [answer.episode for answer in used if answer.episode not in place]
    if unknown:
        raise ValueError(f"there is no episode {unknown[0]!r} in the audit; give its own reviews")
    untold = (np.nan,) * outcomes
    chance = [answer.out_of_ten or untold for answer in used]
    answers = Answers(
        case=np.array([place[answer.episode] for answer in used], dtype=np.int64),
        chance=np.array(chance, dtype=np.float64).reshape(len(used), outcomes) / OUT_OF,
        needed=needed,
        seconds=float(np.median([answer.seconds for answer in used])) if used else np.nan,
    )
    if not len(answers.complete()[0]):
        raise NoEstimateError(_nothing_yet(given, used, needed))
    return answers


def _nothing_yet(given: Sequence[Answer], used: Sequence[Answer], needed: int) -> str:
    if not given:
        return "there is no estimate from the reviewers yet: nobody has given the chances so far"
    text = (
        f"there is no estimate from the reviewers yet: no case has {needed} answer"
        f"{'s' * (needed != 1)}"
    )
    if len(used) < len(given):
        text += (
            f", not counting {len(given) - len(used)} given a second time or after seeing what "
            "others said"
        )
    return text


def _folder_of(reviews: Reviews) -> Path | None:
    """Return the folder in which reviews are kept, which is that of their audit."""
    if isinstance(reviews, Store):
        return reviews.path.parent
    if isinstance(reviews, pd.DataFrame) or Path(reviews).suffix == ".csv":
        return None
    return Path(reviews) if Path(reviews).is_dir() else Path(reviews).parent


def _read_run(audit: Audit, store: Store) -> Given:
    runs = {run.id: run for run in store.runs()}
    identifier = run_id(audit)
    _check_run(identifier, list(runs), str(store.path))
    if not runs[identifier].outcomes:
        raise NoEstimateError(VERDICTS_ONLY)
    return store.answers(identifier), runs[identifier].settings.needed


def _read_rows(audit: Audit, rows: Sequence[Mapping[str, Any]], source: str) -> Given:
    identifier, names = run_id(audit), audit.meta.outcome_names
    _check_run(identifier, list(dict.fromkeys(row["run_id"] for row in rows)), source)
    mine = [row for row in rows if row["run_id"] == identifier]
    if mine and any(f"chance_{name}" not in mine[0] for name in names):
        raise NoEstimateError(VERDICTS_ONLY)
    answers = read_row_answers(mine, names)
    needed = max((int(row["answers_needed"]) for row in mine), default=1)
    return answers, needed


def _check_run(identifier: str, found: Sequence[str], source: str) -> None:
    if found and identifier not in found:
        raise ValueError(
            f"{source} is about another run ({found[-1][:8]}), not about this audit "
            f"({identifier[:8]}): its model, policy, data or sampling design differ; give the "
            "audit that was reviewed"
        )
    if not found:
        raise NoEstimateError("there is no estimate from the reviewers yet: nothing is reviewed")

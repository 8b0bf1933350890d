"""Verdicts and the checks on what reviewers send; the errors of the review."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERDICTS = {
    1: "Believable",
    2: "No: something the model did not see explains it",
    3: "No: the policy's treatment would be unsafe or wrong",
    4: "The record is wrong or incomplete",
    5: "Cannot tell from this chart",
}
SURE = ("low", "mid", "high")
LONGEST = {"comment": 10_000, "reason": 10_000, "first_impression": 10_000, "variable": 200}
OUT_OF = 10  # patients like this one, whose outcomes reviewers expect
LONGEST_NAME = 80
LONGEST_DRAFT = 80_000  # as JSON, which writes a letter outside ASCII as six characters
MOST_SECONDS = 24 * 3600.0
UNAVAILABLE = (
    "the review cannot read or write its file at the moment; try again, or tell whoever runs it"
)


class ReviewError(Exception):
    """Something the review refuses or cannot do; each kind has its own class."""

    status = 400  # of the HTTP response

    @property
    def content(self) -> dict[str, Any]:
        """The message and the attributes of the error, for JSON."""
        return {"error": str(self)} | vars(self)


class FieldError(ReviewError, ValueError):
    """An invalid value; `field` names where it was given."""

    status = 422

    def __init__(self, field: str, message: str):
        super().__init__(f"{field}: {message}")
        self.field = field


class StaleError(ReviewError):
    """The stay changed after the sender read it; `version` is the current one."""

    status = 409

    def __init__(self, message: str, version: int):
        super().__init__(message)
        self.version = version


class RunChangedError(ReviewError):
    """The request is about a run that is no longer under review; `run` is the current one."""

    status = 409

    def __init__(self, run: str):
        super().__init__("the model, the policy or the data has changed; open the page again")
        self.run = run


class RefusedError(ReviewError):
    """The rules of the review forbid the action."""

    status = 403


class UnknownError(ReviewError, LookupError):
    """There is no such run, reviewer, stay or review."""

    status = 404


class StoreError(ReviewError):
    """The file of reviews cannot be opened, read or written."""

    status = 503

    @property
    def content(self) -> dict[str, Any]:
        """What reviewers are told: neither paths nor what SQLite says."""
        return {"error": UNAVAILABLE}


class DamagedError(StoreError):
    """The file of reviews is not as butfor wrote it."""


@dataclass(frozen=True)
class Verdict:
    """What a reviewer says about the model's story of a stay; checked when created."""

    verdict: int  # 1..5, see VERDICTS
    variable: str = ""  # what the model did not see (2), or the treatment that is wrong (3)
    step: int | None = None
    sure: str = ""  # one of SURE, or empty
    comment: str = ""

    def __post_init__(self) -> None:
        check_verdict(self.verdict)
        check_text(self.variable, "variable")
        check_text(self.comment, "comment")
        if self.step is not None and (type(self.step) is not int or self.step < 0):
            raise FieldError("step", f"{self.step!r} is not a step; give a whole number from 0")
        check_sure(self.sure)
        if self.verdict == 2 and not self.variable.strip() and not self.comment.strip():
            raise FieldError("variable", "name the variable that explains it, or write a comment")
        if self.verdict == 3 and self.step is None and not self.variable.strip():
            raise FieldError("step", "give the step, or name the treatment")


@dataclass(frozen=True)
class Chances:
    """What a reviewer expects of a stay under the policy, before seeing what the model says.

    Out of ten such patients, how many would have had each outcome; or why that cannot be told.
    """

    out_of_ten: tuple[int, ...] | None  # by outcome, none last; None: cannot tell
    sure: str = ""  # one of SURE, or empty
    reason: str = ""  # why it cannot be told

    def __post_init__(self) -> None:
        check_sure(self.sure)
        check_text(self.reason, "reason", required=self.out_of_ten is None)
        if self.out_of_ten is None:
            return
        for number in self.out_of_ten:
            if type(number) is not int or not 0 <= number <= OUT_OF:
                raise FieldError("chances", f"{number!r}: give whole numbers from 0 to {OUT_OF}")
        if sum(self.out_of_ten) != OUT_OF:
            raise FieldError(
                "chances", f"these add up to {sum(self.out_of_ten)}; make them add up to {OUT_OF}"
            )


def chances_in_words(
    out_of_ten: Sequence[int] | None, outcomes: Sequence[str], reason: str = ""
) -> str:
    """Return the chances that a reviewer gave in words: "3 of 10 died, 7 of 10 discharged"."""
    if out_of_ten is None:
        return f"cannot tell: {reason}"
    given = zip(out_of_ten, outcomes, strict=True)
    return ", ".join(f"{number} of {OUT_OF} {name}" for number, name in given if number)


def in_a_clause(verdict: int, variable: str = "") -> str:
    """Return what a verdict says, for the middle of a sentence."""
    if verdict == 2 and variable.strip():
        return f"{variable.strip()} explains it"
    words = VERDICTS[verdict].removeprefix("No: ")
    return words[0].lower() + words[1:]


def check_verdict(verdict: Any) -> int:
    """Return a verdict that is one of VERDICTS."""
    if type(verdict) is not int or verdict not in VERDICTS:
        raise FieldError("verdict", f"{verdict!r} is not a verdict; give 1 to {len(VERDICTS)}")
    return verdict


def check_sure(sure: Any) -> None:
    """Raise if a word for how sure somebody is, is none of SURE."""
    if sure not in ("", *SURE):
        raise FieldError("sure", f"{sure!r} is not one of {', '.join(SURE)}")


def check_text(text: Any, field: str, *, required: bool = False) -> str:
    """Return a text unchanged if it is short enough and can be encoded."""
    if not isinstance(text, str):
        raise FieldError(field, f"{text!r} is not text")
    if len(text) > LONGEST[field]:
        raise FieldError(field, f"{len(text):,} characters; at most {LONGEST[field]:,}")
    _check_encodable(text, field)
    if required and not text.strip():
        raise FieldError(field, "required")
    return text


def check_reviewer(name: Any) -> str:
    """Return a reviewer's name in one spelling: single spaces, composed letters."""
    if not isinstance(name, str):
        raise FieldError("reviewer", f"{name!r} is not a name")
    _check_encodable(name, "reviewer")
    plain = unicodedata.normalize("NFC", name).strip()
    if not plain:
        raise FieldError("reviewer", "enter a name")
    if len(plain) > LONGEST_NAME:
        raise FieldError("reviewer", f"{len(plain)} characters; at most {LONGEST_NAME}")
    if not plain.isprintable():
        raise FieldError("reviewer", f"{plain!r} contains characters that cannot be printed")
    return " ".join(plain.split())


def check_seconds(seconds: Any) -> float:
    """Return the seconds of active reading if one review can have taken them."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not math.isfinite(seconds) or not 0 <= seconds <= MOST_SECONDS:
        raise FieldError("seconds", f"{seconds!r}: give a number from 0 to {MOST_SECONDS:.0f}")
    return float(seconds)


def _check_encodable(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(field, f"character {error.start} is an unpaired surrogate") from None

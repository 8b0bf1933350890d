"""The experts' view in words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from butfor.audit.audit import Audit
from butfor.audit.experts import ExpertValue
from butfor.evaluate.agreement import Measure
from butfor.evaluate.wording import digits_for, percent, plural
from butfor.present.text import REVIEWERS, WHAT_FOLLOWS, WHAT_HAPPENED, capitalized

CAVEAT = "This is the reviewers’ view: it does not cover what they misjudge together."
NOT_ENOUGH = " That is not enough for the verdict to rest on them ({})."
# outcomes that are verbs of what the episode itself does: "had all died"
VERBS = ("died", "recovered", "relapsed", "survived")


def experts_view(found: ExpertValue | str, audit: Audit) -> dict[str, Any]:
    """Return what readers are told about the experts' view, or why there is none."""
    if isinstance(found, str):
        reason = [f"{capitalized(found)}."]
        return {"sentences": reason, "notes": [], "table": [], "numbers": None}
    words = _Words(found, audit)
    return {
        "sentences": [words.headline(), words.progress()],
        "notes": [note for note in words.notes() if note],
        "table": chances_table(found),
        "numbers": experts_numbers(found),
    }


def experts_numbers(found: ExpertValue) -> dict[str, Any]:
    """Return the experts' view for JSON, which has no NaN."""
    fields = {k: v for k, v in vars(found).items() if isinstance(v, float | int | str | tuple)}
    chances = found.chances.astype(object).where(found.chances.notna(), None)
    return {
        **{key: _known(value) for key, value in fields.items()},
        "complete": found.complete,
        "returns": found.returns,
        "chances": chances.to_dict("records"),
        "agreement": asdict(found.agreement),
        "agreement_on": {name: asdict(one) for name, one in found.agreement_on.items()},
    }


def _known(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def chances_table(found: ExpertValue) -> list[list[str]]:
    """Return the chance of each outcome, observed, in the model and according to reviewers."""
    level = f"{100 * found.confidence:g}% interval"
    known = {"observed": WHAT_HAPPENED, "usual": WHAT_FOLLOWS, "model": "Model"}
    known = {name: words for name, words in known.items() if name in found.chances}
    head = ["Outcome", *known.values(), REVIEWERS, level, "Agreement (ICC)"]
    if found.unanswered:
        head.append("With “cannot tell”")
    rows = [head]
    for one in found.chances.to_dict("records"):
        chances = [percent(one[name]) for name in known]
        told = "" if math.isnan(one["value"]) else percent(min(max(one["value"], 0), 1))
        cells = [*chances, told, _span(one["low"], one["high"], percent)]
        row = [one["outcome"], *cells, _measure(found.agreement_on[one["outcome"]])]
        if found.unanswered:
            row.append(_span(one["widest_low"], one["widest_high"], percent))
        rows.append(row)
    return rows


class _Words:
    """The sentences about one experts' view."""

    def __init__(self, found: ExpertValue, audit: Audit):
        self.found, self.audit = found, audit
        self.noun = audit.noun
        numbers = (found.model, found.usual, found.value, *found.widest)
        self.digits = digits_for(numbers, rate=audit.is_rate)
        self.continued = found.usual != found.observed
        self.happened = "what was observed" + ", continued by the model" * self.continued

    def headline(self) -> str:
        """Say what reviewers think of the policy, beside the model and what was observed."""
        found, words = self.found, self.digits.value
        model = f"the model says {words(found.model)}; observed {words(found.observed)}"
        if self.continued:
            model += f", continued by the model {words(found.usual)}"
        if math.isnan(found.value):
            missing = "flagged" if not found.flagged else "randomly drawn"
            text = (
                f"There is no estimate from the reviewers yet: no {missing} {self.noun} has "
                f"{self._answers()}; {model}."
            )
        else:
            told = self.digits.estimate(found.value, found.low, found.high)
            text = f"After {self._read()}, the reviewers put the policy at {told}; {model}."
        return f"{text} {CAVEAT}"

    def progress(self) -> str:
        """Say how many more cases it would take to tell the policy from what was observed."""
        found = self.found
        if found.low > found.usual or found.high < found.usual:
            side = "above" if found.low > found.usual else "below"
            return f"The interval lies {side} {self.happened}."
        left = found.to_review - found.cases - found.unanswered
        waiting = f"{self._count(left)} {'is' if left == 1 else 'are'} still to be read"
        more = None if math.isnan(found.value) else found.cases_to_exclude()
        if more is None:
            if math.isnan(found.value):
                return f"{capitalized(waiting)}."
            return (
                f"The interval includes {self.happened}. If answers go on like this, 1000 more "
                f"{plural(self.noun)} would not change that; {waiting}."
            )
        return (
            f"The interval includes {self.happened}. If answers go on like this, about "
            f"{max(1, more)} more would exclude it; {waiting}."
        )

    def notes(self) -> list[str]:
        """Say what the numbers rest on, and what the flagged alone cannot show."""
        return [
            self._interval(),
            self._untold(),
            self._incomplete(),
            self._returns(),
            flags_alone(self.found, self.audit, plural(self.noun)),
            self._agreement(),
        ]

    def _read(self) -> str:
        drawn = self.found.cases - self.found.flagged
        text = f"{self._count(drawn)} drawn at random"
        if self.found.flagged:
            text += f" and {self.found.flagged} flagged one{'s' * (self.found.flagged != 1)}"
        return text

    def _count(self, number: int) -> str:
        return f"{number} {self.noun if number == 1 else plural(self.noun)}"

    def _answers(self) -> str:
        return "an answer" if self.found.needed == 1 else f"its {self.found.needed} answers"

    def _interval(self) -> str:
        level = f"{100 * self.found.confidence:g}%"
        if self.found.interval == "anytime":
            return (
                f"The {level} interval is of the kind that may be watched: it stays valid however "
                "often one looks at it while answers come in."
            )
        return (
            f"The {level} interval is of the fixed kind, since every {self.noun} has been answered."
        )

    def _untold(self) -> str:
        found = self.found
        if not found.unanswered:
            return ""
        return (
            f"Nobody could tell for {self._count(found.unanswered)} more. With these at the worst "
            f"and at the best outcome, the interval is {self.digits.span(*found.widest)}."
        )

    def _incomplete(self) -> str:
        number = self.found.incomplete
        if not number:
            return ""
        return (
            f"Not counted yet: {self._count(number)} with fewer than {self.found.needed} answers."
        )

    def _returns(self) -> str:
        if self.found.exact:
            return ""
        values = ", ".join(
            f"{name} {self.digits.value(v)}" for name, v in self.found.returns.items()
        )
        return (
            "Rewards also come before the end or are discounted, so each outcome counts as much as "
            f"the {plural(self.noun)} who had it got on average: {values}."
        )

    def _agreement(self) -> str:
        found, reviewed = self.found.agreement, self.found.reviewed
        if found.value is None:
            return ""
        return (
            f"Agreement between reviewers of the same {self.noun} on the expected return: "
            f"intraclass correlation {_measure(found)}, where 1 means always the same and 0 no "
            "more alike than by chance."
            f"{'' if reviewed.agree else NOT_ENOUGH.format(reviewed.agreed)}"
        )


def flags_alone(found: ExpertValue, audit: Audit, nouns: str) -> str:
    """Say what had happened to the flagged, and what they can therefore not show."""
    happened = audit.flagged["observed_outcome"].value_counts()
    if not len(happened):
        return ""
    worst, best = min(found.returns.values()), max(found.returns.values())
    had = [found.returns[str(name)] for name in happened.index]
    only = "benefit" if max(had) == worst else "harm" if min(had) == best else ""
    if len(happened) == 1:
        name = str(happened.index[0])
        text = (
            f"The flagged {nouns} had all {name}"
            if name in VERBS
            else f"The flagged {nouns} all had one outcome ({name})"
        )
    else:
        parts = ", ".join(f"{count} {name}" for name, count in happened.items())
        text = f"What happened to the flagged {nouns}: {parts}"
    if only:
        return f"{text}; they can only show {only}."
    return f"{text}; they were chosen by the model and do not represent the others."


def _span(low: float, high: float, words: Callable[[float], str]) -> str:
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"{words(low)} to {words(high)}"


def _measure(found: Measure) -> str:
    if found.value is None:
        return ""
    span = ""
    if found.low is not None and found.high is not None:
        span = f" ({_span(found.low, found.high, lambda v: f'{v:.2f}')})"
    return f"{found.value:.2f}{span}".replace("-", "\N{MINUS SIGN}")

"""The words and sentences that readers see, in one place.

An *episode* goes by the noun of the study file (patient, stay, delivery). The *policy* is the rule
being judged; *what happened* is the record; *under the policy* is what the model says instead. A
step rests on *similar past cases*; with few of them its *evidence is thin*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from butfor.audit.meta import Meta
from butfor.evaluate.estimators.table import CONTINUED, OBSERVED
from butfor.evaluate.wording import counted, in_words, plural
from butfor.log.left_out import EPISODES_DROPPED, REWARDS_DROPPED
from butfor.replay.steps import THIN

WHAT_HAPPENED = "What happened"
WHAT_FOLLOWS = "What happened, continued"
UNDER_POLICY = "Model, under the policy"
POLICY_GIVES = "What the policy gives"
INFERRED = "Inferred from the whole record"
SIMILAR_CASES = "Similar past cases"
# what is always shown beside a model's number, a worst or best case, an interval, a true value
ESTIMATE = "A model estimate, not a fact."
HOLDS = "Holds only if the model is right."
CHANCE = "Covers chance, also in what the model learned; not what the records leave out."
SIMULATOR = "known only because this is a simulator"
TRUE = "True"
REVIEWERS = "Reviewers"
FIRST_DIFFERENCE = "policy first treats differently (decided at {time})"
TREATED_ALIKE = "The policy would have treated as was done, at every step."

# results of a check: what a reader is told instead of a color
LIGHTS = {
    "green": "good",
    "unknown": "cannot be checked",
    "amber": "fair",
    "red": "weak",
}

# checks whose names say what is wrong, by what should hold
HOPED = {
    "estimators disagree": "estimators agree",
    "the past still matters": "the past no longer matters",
}

# name of an estimator in words, with its abbreviation, and what it is
ESTIMATORS = {
    OBSERVED: (WHAT_HAPPENED, "average over these {nouns}"),
    CONTINUED: (WHAT_FOLLOWS, "the model continues {nouns} that stop early"),
    "WIS": ("Reweighted records (WIS)", "no model; only {nouns} treated as the policy would"),
    "MB": ("Model simulation (MB)", "new {nouns} drawn from the model"),
    "CF": ("Replay of each (CF)", "the same {nouns}, replayed by the model"),
    "MB (cross-fitted)": ("Simulation, fresh data (MB)", "judged on data it was not learned from"),
    "CF (cross-fitted)": ("Replay, fresh data (CF)", "judged on data it was not learned from"),
    REVIEWERS: (REVIEWERS, "what they expect of {nouns} drawn at random"),
    TRUE: (TRUE, SIMULATOR),
    "IS": ("Weighted records (IS)", ""),
    "PDIS": ("Weighted by step (PDIS)", ""),
    "PDWIS": ("Reweighted by step (PDWIS)", ""),
    "DR": ("Model, corrected by records (DR)", ""),
    "WDR": ("Model, corrected by reweighted records (WDR)", ""),
    "MAGIC": ("Blend of model and records (MAGIC)", ""),
    "FQE": ("Fitted values (FQE)", ""),
}
# the estimators in the chart, from top to bottom
DRAWN_ESTIMATORS = tuple(ESTIMATORS)[:9]

# abbreviations of estimators, spelled out
FULL_NAMES = {
    "IS": "importance sampling",
    "WIS": "weighted importance sampling",
    "PDIS": "per-decision importance sampling",
    "PDWIS": "per-decision weighted importance sampling",
    "MB": "model-based simulation",
    "CF": "replay of each recorded episode by the model",
    "DR": "doubly robust",
    "WDR": "weighted doubly robust",
    "MAGIC": "model and guided importance sampling combining",
    "FQE": "fitted Q evaluation",
}

# how luck carries over, without the names that readers need not know
MECHANISMS = {
    "GumbelMax": "the same luck favors the same results (stable)",
    "InverseCDF": "the same luck keeps its rank among ordered results",
    "MaximalCoupling": "results stay as they were wherever that is possible",
    "Independent": "fresh luck wherever treatment differs",
}

# characters that change the direction of the text around them, which a label must not do to ours
DIRECTION_MARKS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
NO_MARKS = dict.fromkeys(map(ord, DIRECTION_MARKS))


def straight(value: Any) -> Any:
    """Remove direction marks from a text, or from all in a list or mapping; leave markup alone."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return value if value.isascii() else value.translate(NO_MARKS)
    if isinstance(value, dict):
        return {straight(key): straight(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [straight(entry) for entry in value]
    return value


def check_name(check: str, noun: str) -> str:
    """Return the name of a check beside its result, in the words of a study."""
    return in_words(HOPED.get(check, check), noun)


def cases_text(cases: float) -> str:
    """Return a number of similar past cases: whole from ten on, else with at most one decimal."""
    return f"{cases:.{0 if cases >= THIN else 1}f}".removesuffix(".0")


def left_out(problems: Mapping[str, int], episodes: int, noun: str) -> str:
    """Say how many episodes were left out while reading, of those and the ones that are left."""
    dropped = {
        words.partition(":")[0]: number
        for words, number in problems.items()
        if words.endswith(EPISODES_DROPPED)
    }
    said = []
    if dropped:
        total = sum(dropped.values())
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in dropped.items())
        every = counted(total + episodes, noun)
        said.append(f"Left out while reading the log: {total:,} of {every} ({kinds}).")
    if shortened := problems.get(REWARDS_DROPPED):
        said.append(f"Left out with what it earned: {counted(shortened, 'last decision')}.")
    return " ".join(said)


def capitalized(words: str) -> str:
    """Return the words with a capital first letter, the others as they are."""
    return words[:1].upper() + words[1:]


def ending(outcome: str, length: int, clock: Clock, *, ended: bool) -> str:
    """Say how and when an episode ended: "died at step 3", or "still in ICU after 20 steps"."""
    return (
        f"{outcome} at {clock.at(length)}" if ended else f"{outcome} after {clock.lasting(length)}"
    )


LEAST = 40  # logs for a range of 95%: of fewer, 2.5% at either end is less than one log


def enough_logs(logs: int) -> bool:
    """Return whether there are enough logs for a range that holds 95% of them."""
    return logs >= LEAST


def range_percentiles(logs: int) -> tuple[float, float]:
    """Return the ends of the range in percentiles: the middle 95%, or the lowest and highest."""
    return (2.5, 97.5) if enough_logs(logs) else (0.0, 100.0)


def range_name(logs: int, noun: str = "log") -> str:
    """Name the range and the number of logs: "lowest to highest of 10 logs"."""
    kind = "middle 95%" if enough_logs(logs) else "lowest to highest"
    return f"{kind} of {logs:,} {noun}{'s' * (logs != 1)}"


@dataclass(frozen=True)
class Clock:
    """Names the steps of an episode: "step 4", or "hour 24" if a step takes six hours."""

    unit: str = "step"
    length: float = 1.0  # of a step, in units

    @property
    def units(self) -> str:
        """What several units are called."""
        return plural(self.unit)

    def time(self, step: int) -> int | float:
        """Return when a step is, in units since the first one."""
        passed = round(step * self.length, 6)
        return int(passed) if passed == int(passed) else passed

    def at(self, step: int) -> str:
        """Return when a step is: "hour 24"."""
        return f"{self.unit} {self.time(step)}"

    def lasting(self, steps: int) -> str:
        """Return how long so many steps take: "24 hours"."""
        time = self.time(steps)
        return f"{time} {self.unit if time == 1 else self.units}"

    def retell(self, text: str) -> str:
        """Return a text that counts in steps with their times instead."""
        if self == STEPS:
            return text

        def at(found: re.Match[str]) -> str:
            words = self.at(int(found[2]))
            return words[:1].upper() + words[1:] if found[1] == "S" else words

        text = re.sub(r"\b([Ss])tep (\d+)( \(counted from 0\))?", at, text)
        return re.sub(r"\b(\d+) steps?\b", lambda found: self.lasting(int(found[1])), text)


STEPS = Clock()


def clock_of(meta: Meta) -> Clock:
    """Return how readers of an audit count time."""
    if meta.time_step is not None and "time" in meta.words:
        return Clock(meta.words["time"], meta.time_step)
    return Clock(meta.words.get("step", "step"))

"""The words and sentences that readers see, in one place.

An *episode* goes by the noun of the study file (patient, stay, delivery). The *policy* is the rule
being judged; *what happened* is the record; *under the policy* is what the model says instead. A
step rests on *similar past cases*; with few of them its *evidence is thin*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from butfor.evaluate.estimators.table import CONTINUED, OBSERVED
from butfor.evaluate.wording import counted, in_words
from butfor.log.left_out import EPISODES_DROPPED, REWARDS_DROPPED
from butfor.present.clock import Clock
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

"""Episodes that are left out while a log is read: how many may be, and how they differ.

Each part of a log tells how many of its episodes are kept and left out, by the outcome and the
number of rows that were recorded, and how many end with each outcome after each number of
decisions. These counts travel with the record of problems, as they add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from butfor.log.decisions import Decisions, first_rows
from butfor.log.fields import LOST, place, quoted
from butfor.types import Floats

MOST, MOST_UNLIKE = 0.05, 0.01  # shares of the episodes; the second if they differ from the others
CHANCE = 0.001  # the probability below which a difference is more than chance
LEAST_LATE = 5  # episodes with an outcome at the greatest length alone that are no chance
ROUNDING = 1e-9  # of sums, relative to the sum of the absolute rewards
MARK = "recorded"  # of what counts episodes in a record of problems
OUTCOME, ROWS, ENDS = "outcome", "rows", "ends"
FATES = KEPT, LEFT = "kept", "left out"
NONE = "no outcome"
REWARDS_LOST, OUTCOMES_LOST = "rewards of rows left out", "outcomes of episodes left out"
EPISODES_DROPPED, REWARDS_DROPPED = ": episodes dropped", "lost_reward: rows dropped"

Counts = dict[str, dict[str, list[int]]]  # by what is counted and its value: kept, left out


class Recorded:
    """What the rows of a log say of each episode, before any problem is settled."""

    def __init__(self, rows: Decisions, outcomes: Sequence[str]) -> None:
        known = rows.episode >= 0
        self.names = (*outcomes, NONE)
        self.length = np.bincount(rows.episode[known])
        self.outcome = np.full(len(self.length), -1)
        np.maximum.at(self.outcome, rows.episode[known], rows.outcome[known])

    def count(self, rows: Decisions) -> dict[str, int]:
        """Count the episodes of which all is left, and the others, for a record of problems."""
        whole = np.zeros(len(self.length), bool)
        whole[rows.episode] = True
        whole[rows.shortened] = False
        power = np.ceil(np.log2(np.maximum(self.length, 1))).astype(np.int64)
        lengths = [f"up to {2**n}" for n in range(int(power.max(initial=0)) + 1)]
        ends = np.where(self.outcome < 0, len(self.names) - 1, self.outcome)
        found: dict[str, int] = {}
        for fate, some in ((KEPT, whole), (LEFT, ~whole & (self.length > 0))):
            for what, code, values in ((OUTCOME, ends, self.names), (ROWS, power, lengths)):
                numbers = np.bincount(code[some], minlength=len(values)).tolist()
                keys = ("\t".join((MARK, what, value, fate)) for value in values)
                found |= dict(zip(keys, numbers, strict=True))
            for value, number in (("episodes", some.sum()), ("rows", self.length[some].sum())):
                found["\t".join((MARK, "all", value, fate))] = int(number)
        return found


class Sums(NamedTuple):
    """What the rows of a log earn, and how many of its episodes have an outcome."""

    total: float
    size: float  # the sum of the absolute rewards
    earning: int  # rows with a reward that is not 0
    outcomes: int

    @classmethod
    def of(cls, rows: Decisions) -> Sums:
        """Add up the rows that are left."""
        rewards = np.nan_to_num(rows.numbers.get("reward", np.zeros(0)))
        ended = np.unique(rows.episode[rows.outcome >= 0])
        with np.errstate(over="ignore"):  # absurd rewards are refused later
            sums = float(rewards.sum()), float(np.abs(rewards).sum())
        return cls(*sums, int(np.count_nonzero(rewards)), len(ended))

    def name_losses(self, rows: Decisions) -> Sums:
        """Record the rewards and the outcomes that are lost since; return what is left."""
        left = Sums.of(rows)
        rows.problems.count(REWARDS_LOST, self.earning - left.earning)
        rows.problems.count(OUTCOMES_LOST, self.outcomes - left.outcomes)
        return left

    def check_same(self, rows: Decisions, what: str) -> None:
        """Refuse a change of rows that may add steps, but no rewards or outcomes."""
        left = Sums.of(rows)
        if left.outcomes != self.outcomes or abs(left.total - self.total) > ROUNDING * self.size:
            raise ValueError(
                f"{what}: rewards would add up to {left.total:g} instead of {self.total:g}, and "
                f"{left.outcomes:,} episodes instead of {self.outcomes:,} would have an outcome"
            )


def count_ends(rows: Decisions, outcomes: Sequence[str], horizon: float) -> dict[str, int]:
    """Count the episodes by their decisions up to the horizon and their outcome, as `Recorded`."""
    present = rows.episode[first_rows(rows.episode)]
    steps = rows.transitions()[1][present]
    ends = np.where(steps > horizon, -1, rows.ends[present])
    after = np.minimum(steps, horizon).astype(np.int64)
    pairs, numbers = np.unique(np.stack([after, ends]), axis=1, return_counts=True)
    names = (*outcomes, NONE)
    return {
        "\t".join((MARK, ENDS, f"{step} {names[end]}", KEPT)): number
        for (step, end), number in zip(pairs.T.tolist(), numbers.tolist(), strict=True)
    }


def check_ends(done: Mapping[str, int], name: str) -> None:
    """Refuse outcomes that tell only that follow-up ended: a model does not know when that is.

    These occur at the greatest length alone and are most of what occurs there, while others occur
    before it.
    """
    by_length: dict[int, dict[str, int]] = {}
    for key, (kept, _) in _divide(done)[1].get(ENDS, {}).items():
        steps, _, end = key.partition(" ")
        by_length.setdefault(int(steps), {})[end] = kept
    last, at_last = max(by_length.items(), default=(0, {}))
    known = {NONE, LOST}
    early = {end for steps, ends in by_length.items() if steps < last for end in ends}
    late = {end: kept for end, kept in at_last.items() if end not in early | known}
    number = sum(late.values())
    if not early - known or number < LEAST_LATE or 2 * number <= sum(at_last.values()):
        return
    first = next(iter(late))
    raise ValueError(
        f"{name}: the outcome {' and '.join(map(repr, late))} occurs only after {last} decisions, "
        "the most there are, while others occur earlier. It says only that follow-up ended, and a "
        f"model that does not know the step would put {NONE!r} beside it. Write horizon = {last} "
        "and by_step = true in [evaluation]. If it is worth 0 and stands on last rows without an "
        f"action, write horizon = {last} and, instead of {place(OUTCOME, first)}, none = "
        f"{quoted(first)} in [words]"
    )


def check_left_out(done: Mapping[str, int], most: float | None, name: str) -> dict[str, int]:
    """Return a record of problems without the counts of episodes.

    Refuses a log more than `most` of whose episodes would be left out or shortened; by default 5 %,
    and 1 % if their outcomes or lengths differ from those of the others by more than chance.
    """
    problems, counts = _divide(done)
    kept, left = counts.get("all", {}).get("episodes", (0, 0))
    share = left / max(kept + left, 1)
    unlike = most is None and MOST_UNLIKE < share <= MOST and _differ(counts, kept, left)
    limit = most if most is not None else MOST_UNLIKE if unlike else MOST
    if share <= limit:
        return problems
    differ = ", and they differ from the others by more than chance" * unlike
    lines = [
        f"{name}: {left:,} of {kept + left:,} episodes ({share:.1%}) would be left out or "
        f"shortened, more than {limit:.0%}{differ}",
        *(f"- {words}: {number:,}" for words, number in problems.items() if is_loss(words)),
        *(f"- {fate}: {_told(counts, place)}" for place, fate in enumerate(FATES)),
        'Keep them: no_transition = "keep" in [problems] keeps last decisions that nothing follows,'
        ' no_outcome = "keep" episodes without an outcome, and "fill" fills cells. To leave them '
        f"out all the same, write drop_at_most = {np.ceil(share * 100) / 100:g} in [problems]",
    ]
    raise ValueError("\n".join(lines))


def is_loss(words: str) -> bool:
    """Whether an entry of a record of problems counts episodes that are left out or shortened."""
    return words.endswith(EPISODES_DROPPED) or words == REWARDS_DROPPED


def _divide(done: Mapping[str, int]) -> tuple[dict[str, int], Counts]:
    """Return a record of problems without the counts of episodes, and these."""
    problems: dict[str, int] = {}
    counts: Counts = {}
    for words, number in done.items():
        mark, *rest = words.split("\t", 2)
        if mark != MARK:
            problems[words] = number
            continue
        what, (value, _, fate) = rest[0], rest[1].rpartition("\t")  # names may have tabs
        both = counts.setdefault(what, {}).setdefault(value, [0, 0])
        both[FATES.index(fate)] += number
    return problems, counts


def _told(counts: Counts, place: int) -> str:
    """Tell the number of episodes of one fate, their mean length, and their outcomes."""
    number, rows = (counts["all"][what][place] for what in ("episodes", "rows"))
    ends = (f"{value} {both[place]:,}" for value, both in counts[OUTCOME].items() if any(both))
    noun = "episode" if number == 1 else "episodes"
    return f"{number:,} {noun} of {rows / max(number, 1):.1f} rows on average ({', '.join(ends)})"


def _differ(counts: Counts, kept: int, left: int) -> bool:
    """Whether outcomes or lengths differ by more than chance: the exact test of each value."""
    groups = [both for what in (OUTCOME, ROWS) for both in counts[what].values() if any(both)]
    return any(_chance(both, kept, left) < CHANCE / len(groups) for both in groups)


def _chance(both: Sequence[int], kept: int, left: int) -> float:
    """Return the probability that a group is divided so unevenly by chance (Fisher)."""
    group = sum(both)
    among = np.arange(max(0, group - kept), min(group, left) + 1)
    chances = np.exp(
        _log_binomial(group, among)
        + _log_binomial(kept + left - group, left - among)
        - _log_binomial(kept + left, np.array(left))
    )
    return float(chances[chances <= chances[both[1] - among[0]] * (1 + 1e-9)].sum())


def _log_binomial(n: int, k: NDArray[np.int64]) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))

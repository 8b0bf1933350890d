"""Whom to review: flagged episodes, and controls drawn at random from strata of the others.

Bounds and credible intervals, which take long, are computed for these, and for a random sample of
all episodes. Controls are those of each stratum that come first in the order of drawing
(`drawing.py`), the sample is those of all episodes, so that a draw depends neither on the order of
episodes nor on how a log is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.meta import SamplingDesign, Stratum
from butfor.checks import MOST_EPISODES, check_whole
from butfor.replay.outcomes import Counterfactuals, rank_flags, round_sizes
from butfor.types import Floats, Keys

FLAGS = 40  # most flagged episodes by default
CONTROLS = 40  # least number of controls by default
LEAST = 2  # least number of controls of a stratum, so that its spread can be estimated
# Least number of controls for each flagged episode with the same observed outcome. With 0.5 that
# outcome would tell less about the flag, but answers less about the policy: a perfect expert's
# interval then overturns the model in 89% instead of 99% of reviews (verification/test_experts.py).
ALIKE = 0.25
WHOLE = 1000  # most episodes of a log that is its own random sample
SAMPLE = 500  # size of the random sample of a larger log
THIRDS = 3
SHIFT = 42  # bits of a size that its bin leaves out: bins are a thousandth of their size wide
BINS = 2 ** (63 - SHIFT)
SMALLEST = 1e-9  # of the sizes other than 0


def check_sizes(flags: int, review_size: int | None, intervals: int | None) -> None:
    """Refuse numbers of episodes to flag, to review and to compute intervals of."""
    check_whole(flags, "flags", 0, "a whole number", MOST_EPISODES)
    if review_size is not None:
        check_whole(review_size, "review_size", 0, "a whole number", MOST_EPISODES)
    if intervals is not None:
        check_whole(intervals, "intervals", 0, "a whole number")


def review_total(flags: int, review_size: int | None) -> int:
    """Return the number of episodes to review; by default there is a control for each flag."""
    return flags + max(CONTROLS, flags) if review_size is None else review_size


def most_flags(flags: int, review_size: int | None) -> int:
    """Return the largest number of flags: at most half of the review, but one if it has any."""
    total = review_total(flags, review_size)
    return min(flags, max(total // 2, min(total, 1)))


def flag_notes(flags: int, design: SamplingDesign) -> list[str]:
    """Say that the size of the review, not the log, limited the number of flags."""
    size, flagged = design.review_size, design.strata[0].episodes
    if flags == 0 or flagged < most_flags(flags, size) or flagged == flags:
        return []
    if size == 0:
        return ["Nothing is flagged: no episode is to be reviewed (--review-size 0)."]
    if size == 1:
        return [
            "The only episode to review is flagged. Without others drawn at random, a review says "
            "nothing about the policy: raise --review-size."
        ]
    return [
        f"{flagged} of the {size} episodes to review are flagged, at most half of them, so that "
        "the rest can be drawn at random. To flag more, raise --review-size."
    ]


def sample_size(episodes: int, intervals: int | None) -> int:
    """Return the size of the random sample of a log; `intervals` is the size asked for, if any."""
    usual = episodes if episodes <= WHOLE else SAMPLE
    return usual if intervals is None else min(episodes, intervals)


def size_bins(sizes: Floats) -> NDArray[np.int64]:
    """Return the bin of each size of a difference, [n]."""
    # the bits of floating-point numbers that are not negative are ordered like the numbers
    return sizes.view(np.int64) >> SHIFT


def count_sizes(sizes: Floats) -> NDArray[np.int64]:
    """Count sizes of differences in bins, [BINS]; the counts of shards add up."""
    return np.bincount(size_bins(sizes), minlength=BINS)


def find_thirds(counts: NDArray[np.int64]) -> tuple[float, float]:
    """Return the sizes at which the second and the last third of all episodes begin."""
    passed = THIRDS * np.cumsum(counts)
    ends = np.searchsorted(passed, passed[-1] // THIRDS * np.arange(1, THIRDS))
    second, last = np.maximum(((ends + 1) << SHIFT).view(np.float64), SMALLEST).tolist()
    return second, last


def cells_of(outcome: NDArray[np.int64], sizes: Floats, cuts: Sequence[float]) -> NDArray[np.int64]:
    """Cell of each episode, by observed outcome and third, [n]."""
    return outcome * THIRDS + np.searchsorted(cuts, sizes, side="right")


@dataclass(frozen=True, eq=False)
class Others:
    """Unflagged episodes: how many are in each cell, and those that may be drawn."""

    counts: NDArray[np.int64]  # [(O + 1) * THIRDS]
    place: NDArray[np.int64]  # [m] where the episode is found
    cell: NDArray[np.int64]  # [m]
    order: Keys  # [m]

    def join(self, other: Others) -> Others:
        """Return both together."""
        return Others(
            self.counts + other.counts,
            np.concatenate([self.place, other.place]),
            np.concatenate([self.cell, other.cell]),
            np.concatenate([self.order, other.order]),
        )

    def keep(self, most: int) -> Others:
        """Keep the first of each cell."""
        kept = _first(self.cell, self.order, np.full(len(self.counts), most))
        return Others(self.counts, self.place[kept], self.cell[kept], self.order[kept])


def _first(group: NDArray[np.int64], order: Keys, most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the first of each group in order, `most` [groups] of them."""
    by_group = np.lexsort([order, group])
    mine = group[by_group]
    return by_group[np.arange(len(mine)) - np.searchsorted(mine, mine) < most[mine]]


def draw_controls(
    others: Others,
    flagged: NDArray[np.int64],
    *,
    names: Sequence[str],
    cuts: tuple[float, float],
    size: int,
    seed: int,
) -> tuple[SamplingDesign, NDArray[np.int64]]:
    """Return the design of a review and the places of its controls.

    `flagged` [O + 1] are the numbers of flagged episodes by observed outcome, `names` those of
    outcomes with none last. Strata are outcomes by thirds; if that would be too many for two
    controls each, outcomes; or else all unflagged episodes are one.
    """
    cells = np.arange(len(others.counts))
    total = min(size - int(flagged.sum()), int(others.counts.sum()))
    for strata in (cells, cells // THIRDS, np.zeros_like(cells)):
        sizes = np.bincount(strata, others.counts).astype(np.int64)
        if np.minimum(sizes, LEAST).sum() <= total:
            break
    outcome = np.arange(len(sizes)) * len(names) // len(sizes)
    drawn = _allocate(sizes, total, outcome, flagged)
    chosen = _first(strata[others.cell], others.order, drawn)
    listed = [Stratum(episodes=int(flagged.sum()), drawn=int(flagged.sum()))]
    for number in np.flatnonzero(sizes).tolist():
        listed.append(
            Stratum(
                outcome=names[outcome[number]] if len(sizes) > 1 else None,
                third=number % THIRDS + 1 if len(sizes) > len(names) else None,
                episodes=int(sizes[number]),
                drawn=int(drawn[number]),
            )
        )
    design = SamplingDesign(review_size=size, seed=seed, cuts=cuts, strata=tuple(listed))
    return design, others.place[chosen]


def _allocate(
    sizes: NDArray[np.int64],
    total: int,
    outcome: NDArray[np.int64],
    flagged: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Divide controls among strata: two each, some like the flagged, the rest in proportion."""
    drawn = np.minimum(sizes, min(LEAST, total))
    if len(sizes) > 1:
        for number, count in enumerate(np.ceil(ALIKE * flagged).astype(np.int64).tolist()):
            mine = np.flatnonzero(outcome == number)
            free = total - drawn.sum() + drawn[mine].sum()
            drawn[mine] = _fill(drawn[mine], sizes[mine], min(count, sizes[mine].sum(), free))
    return _fill(drawn, sizes, total)


def _fill(drawn: NDArray[np.int64], sizes: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Raise numbers until they add up to a total, in proportion to sizes (Sainte-Laguë)."""
    filled = drawn.copy()
    while filled.sum() < total:
        share = np.where(filled < sizes, sizes / (2 * filled + 1), 0.0)
        filled[share.argmax()] += 1
    return filled


def choose_controls(
    result: Counterfactuals, rank: NDArray[np.int64], order: Keys, *, size: int, seed: int
) -> tuple[SamplingDesign, NDArray[np.bool_]]:
    """Choose the controls of a log in memory, by order of drawing: the design, and who, [n]."""
    names = result.outcome_names
    outcome = np.where(result.episodes.outcome < 0, len(names) - 1, result.episodes.outcome)
    sizes = round_sizes(result.difference)
    cuts = find_thirds(count_sizes(sizes))
    place = np.flatnonzero(rank == 0)
    cell = cells_of(outcome, sizes, cuts)[place]
    counts = np.bincount(cell, minlength=THIRDS * len(names))
    flagged = np.bincount(outcome[rank > 0], minlength=len(names))
    others = Others(counts, place, cell, order[place])
    design, drawn = draw_controls(others, flagged, names=names, cuts=cuts, size=size, seed=seed)
    control = np.zeros(len(rank), dtype=bool)
    control[drawn] = True
    return design, control


@dataclass(frozen=True, eq=False)
class Selection:
    """Whose details are computed: the episodes to review, and a random sample of all of them."""

    rank: NDArray[np.int64]  # [n] of the flagged; 0: not flagged
    control: NDArray[np.bool_]  # [n]
    drawn: NDArray[np.int64]  # positions of the sample
    design: SamplingDesign

    @property
    def known(self) -> NDArray[np.int64]:
        """Positions of the episodes to review and of the sample."""
        return np.union1d(np.flatnonzero((self.rank > 0) | self.control), self.drawn)


def select(
    result: Counterfactuals,
    order: Keys,
    *,
    flags: int,
    review_size: int | None,
    intervals: int | None,
    seed: int,
) -> Selection:
    """Select from a log in memory, by order of drawing; see `sample_size` for `intervals`."""
    rank = rank_flags(result, most_flags(flags, review_size))
    size = review_total(flags, review_size)
    design, control = choose_controls(result, rank, order, size=size, seed=seed)
    drawn = np.argsort(order, kind="stable")[: sample_size(len(rank), intervals)]
    return Selection(rank, control, np.sort(drawn), design)


def strata_columns(
    difference: Floats,
    observed: NDArray[Any],
    flagged: NDArray[np.bool_],
    design: SamplingDesign,
) -> dict[str, Any]:
    """Return the stratum of each episode and its probability of being reviewed, [n] each.

    They follow from its difference, the name of its observed outcome, and whether it is flagged.
    """
    third = np.searchsorted(design.cuts, round_sizes(difference), "right") + 1
    code, names = pd.factorize(observed)
    number = np.zeros(len(difference), dtype=np.int64)
    for place, stratum in enumerate(design.strata[1:], start=1):
        mine = ~flagged if stratum.outcome is None else ~flagged & (names == stratum.outcome)[code]
        number[mine if stratum.third is None else mine & (third == stratum.third)] = place
    probability = np.array([stratum.probability for stratum in design.strata])
    return {"stratum": number, "probability": probability[number]}

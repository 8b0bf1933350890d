"""Tables with back-off in plain Python: each case is really left out, each table counted anew."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Case = tuple[tuple[int, ...], int]  # levels of possible parents, level


def probability(
    cases: Sequence[Case],
    case: Case,
    parents: Sequence[int],
    levels: int,
    strength: float,
    *,
    every: bool = False,
) -> float:
    """Return the probability of a case's level in the table of the given cases.

    The table backs off to the one without the last parent, or to those without each of them.
    """
    fewer = 1 / levels
    if parents:
        dropped = parents if every else parents[-1:]
        rest = [[parent for parent in parents if parent != one] for one in dropped]
        fewer = sum(
            probability(cases, case, some, levels, strength, every=every) for some in rest
        ) / len(rest)
    alike = [
        level
        for values, level in cases
        if all(values[parent] == case[0][parent] for parent in parents)
    ]
    return (alike.count(case[1]) + strength * fewer) / (len(alike) + strength)


def left_out_score(
    cases: Sequence[Case],
    parents: Sequence[int],
    levels: int,
    strength: float,
    *,
    every: bool = False,
) -> float:
    """Return the summed log probability of each case in the table of all others."""
    return sum(
        math.log(
            probability([*cases[:i], *cases[i + 1 :]], case, parents, levels, strength, every=every)
        )
        for i, case in enumerate(cases)
    )


def cells(cases: Sequence[Case], parents: Sequence[int]) -> int:
    """Return the number of configurations of parents that occur."""
    return len({tuple(values[parent] for parent in parents) for values, _ in cases})


def choose_parents(
    cases: Sequence[Case], levels: int, strength: float
) -> tuple[tuple[int, ...], float]:
    """Return parents added one or two at a time while they gain 2 (two at once: 3), and the score.

    In a pair the parent that gains more by itself comes first. A parent must divide a cell.
    """
    chosen: tuple[int, ...] = ()
    score = left_out_score(cases, chosen, levels, strength)
    while True:
        single = {}
        for parent in range(len(cases[0][0])):
            if parent not in chosen and cells(cases, (*chosen, parent)) > cells(cases, chosen):
                single[parent] = left_out_score(cases, (*chosen, parent), levels, strength)
        ranked = sorted(single, key=lambda parent: -single[parent])
        options = {(parent,): single[parent] for parent in single}
        for pair in itertools.combinations(ranked, 2):
            if cells(cases, (*chosen, *pair)) > cells(cases, (*chosen, pair[0])):
                options[pair] = left_out_score(cases, (*chosen, *pair), levels, strength) - 1
        if not options or max(options.values()) - score < 2:
            return chosen, score
        chosen += max(options, key=lambda option: options[option])
        score = left_out_score(cases, chosen, levels, strength)


def reward_error(
    cases: Sequence[tuple[tuple[int, ...], int, float]],
    parents: Sequence[int],
    values: Sequence[float],
    strength: float,
) -> float:
    """Return the summed squared error of each reward, predicted from all others.

    A case is (levels of possible parents, end, reward); `values` are what ends earn by themselves.
    """
    error = 0.0
    for i, (own, end, reward) in enumerate(cases):
        mean = values[end]
        for known in range(len(parents) + 1):
            alike = [
                other
                for j, (levels, its_end, other) in enumerate(cases)
                if j != i
                and its_end == end
                and all(levels[parent] == own[parent] for parent in parents[:known])
            ]
            mean = (sum(alike) + strength * mean) / (len(alike) + strength)
        error += (reward - mean) ** 2
    return error

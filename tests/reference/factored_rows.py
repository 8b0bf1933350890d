"""The rows of a factored model in plain Python, one next state after the other."""

from __future__ import annotations

import itertools

from butfor.models.factored import ACTION, NEXT, FactoredModel


def row(model: FactoredModel, state: int, action: int) -> dict[int, tuple[float, float]]:
    """Return (probability, reward) by next state; outcome o is state S + o."""
    levels = {}
    for prefix, variables, index in (
        ("", model.state_variables, state),
        (ACTION, model.action_variables, action),
    ):
        for variable in reversed(variables):
            index, levels[prefix + variable.name] = divmod(index, len(variable.levels))
    found: dict[int, tuple[float, float]] = {}
    ranges = [range(len(variable.levels)) for variable in model.state_variables]
    for reached, after in enumerate(itertools.product(*ranges)):
        for variable, level in zip(model.state_variables, after, strict=True):
            levels[NEXT + variable.name] = level
        move = 1.0
        for factor in model.factors[:-1]:
            place = tuple(levels[parent] for parent in factor.parents)
            move *= factor.table[(*place, levels[NEXT + factor.variable])]
        for end in range(len(model.outcomes) + 1):
            place = tuple(levels[parent] for parent in model.end.parents)
            p = move * model.end.table[(*place, end)]
            earned = model.rewards.table[
                (*(levels[parent] for parent in model.rewards.parents), end)
            ]
            key = model.n_states + end if end < len(model.outcomes) else reached
            before = found.get(key, (0.0, 0.0))
            found[key] = before[0] + p, before[1] + p * earned
    return {key: (p, total / p) for key, (p, total) in found.items() if p > 0}

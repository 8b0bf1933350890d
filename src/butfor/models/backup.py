"""Expectations over the next step of a factored model, without its table of all transitions.

The distribution of the next state is a product of small tables, so the mean of a function of the
next state is a sum of products that is worked out variable by variable. It takes time in proportion
to states and actions, where the transitions are as many as pairs of states.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from butfor.log.variables import count_levels
from butfor.models.factored import ACTION, NEXT, Factor, FactoredModel
from butfor.types import Floats

MOST_AXES = 50  # numpy.einsum names axes by letters


class Backup:
    """What follows each state and action on average, in a model whose states can be enumerated."""

    def __init__(self, model: FactoredModel) -> None:
        self.model = model
        names = [variable.name for variable in model.state_variables]
        actions = [ACTION + variable.name for variable in model.action_variables]
        self._axis = {name: number for number, name in enumerate([*names, *actions])}
        self._given = len(self._axis)  # axes of states and actions come first
        self._tables: list[Any] = []  # tables and their axes in turn, as einsum takes them
        for factor in model.factors[:-1]:
            assert isinstance(factor, Factor)
            if _copies(factor):
                self._axis[NEXT + factor.variable] = self._axis[factor.parents[0]]
                continue
            self._axis[NEXT + factor.variable] = len(self._axis)
            self._tables += [factor.table, self._axes(*factor.parents, NEXT + factor.variable)]
        self._next = self._axes(*(NEXT + name for name in names))
        self._sizes = [len(variable.levels) for variable in model.state_variables]
        self._paths: dict[tuple[int, ...], Any] = {}

    @staticmethod
    def fits(model: FactoredModel) -> bool:
        """Whether every distribution is a table, and there are not too many variables."""
        axes = 2 * len(model.state_variables) + len(model.action_variables)
        return model.enumerable and axes < MOST_AXES

    @cached_property
    def ends(self) -> Floats:
        """Probability of each outcome, and of none, in the next step, [S, A, O + 1]."""
        levels = range(self._end.levels)
        return np.stack([self._mean(self._end.table[..., o], self._of_end) for o in levels], axis=2)

    @cached_property
    def rewards(self) -> Floats:
        """Mean reward of the next step, [S, A]."""
        level = len(self._axis)
        rewards = self.model.rewards
        earned = [rewards.table, [*self._axes(*rewards.parents), level]]
        return self._mean(self._end.table, [*self._of_end, level], *earned)

    def after(self, values: Floats) -> Floats:
        """Mean value [S, A] of the next state, where values are [S]; nothing follows an end."""
        stays = self._end.table[..., -1]
        return self._mean(stays, self._of_end, values.reshape(self._sizes), self._next)

    def mean(self, table: Floats, parents: tuple[str, ...]) -> Floats:
        """Mean [S, A] over the next state of a table with one axis per parent."""
        return self._mean(table, self._axes(*parents))

    @property
    def _end(self) -> Factor:
        assert isinstance(self.model.end, Factor)
        return self.model.end

    @property
    def _of_end(self) -> list[int]:
        return self._axes(*self._end.parents)

    def _axes(self, *names: str) -> list[int]:
        return [self._axis[name] for name in names]

    def _mean(self, *more: Any) -> Floats:
        """Multiply tables with those of the variables and sum over the next state, [S, A]."""
        operands = [*self._tables, *more]
        there = {axis for axes in operands[1::2] for axis in axes}
        kept = [axis for axis in range(self._given) if axis in there]
        key = (len(more), *more[1])
        if key not in self._paths:
            self._paths[key] = np.einsum_path(*operands, kept, optimize="greedy")[0]
        found = np.einsum(*operands, kept, optimize=self._paths[key])
        sizes = [*self._sizes, *(len(v.levels) for v in self.model.action_variables)]
        for axis in range(self._given):
            if axis not in there:
                found = np.expand_dims(found, axis)
        return np.broadcast_to(found, sizes).reshape(
            count_levels(self.model.state_variables), count_levels(self.model.action_variables)
        )


def _copies(factor: Factor) -> bool:
    """Whether a variable takes over the level of its only parent."""
    square = len(factor.parents) == 1 and factor.table.shape == (factor.levels, factor.levels)
    return square and bool((factor.table == np.eye(factor.levels)).all())

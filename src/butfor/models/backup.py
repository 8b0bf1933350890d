"""Expectations over the next step of a factored model, without its table of all transitions.

The distribution of the next state is a product of small tables, so the mean of a function of the
next state is a sum of products that is worked out variable by variable. It takes time in proportion
to states and actions, where the transitions are as many as pairs of states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from butfor.models.factored import ACTION, NEXT, Factor, FactoredModel
from butfor.types import Floats

MOST_AXES = 50  # numpy.einsum names axes by letters
Table = tuple[Floats, list[int]]  # a table, and the numbers of its axes


class Backup:
    """What follows each state and action on average, in a model whose states can be enumerated."""

    def __init__(self, model: FactoredModel) -> None:
        self.model = model
        names = [variable.name for variable in model.state_variables]
        actions = [ACTION + variable.name for variable in model.action_variables]
        # axes of states and actions come first
        self._axis = {name: number for number, name in enumerate([*names, *actions])}
        self._tables: list[Table] = []
        for factor in model.factors[:-1]:
            assert isinstance(factor, Factor)
            if _copies(factor):
                self._axis[NEXT + factor.variable] = self._axis[factor.parents[0]]
                continue
            self._axis[NEXT + factor.variable] = len(self._axis)
            axes = self._axes(*factor.parents, NEXT + factor.variable)
            self._tables.append((factor.table, axes))
        self._next = self._axes(*(NEXT + name for name in names))
        self._sizes = [len(variable.levels) for variable in model.state_variables]
        self._given = [*self._sizes, *(len(v.levels) for v in model.action_variables)]

    @staticmethod
    def fits(model: FactoredModel) -> bool:
        """Whether every distribution is a table, and there are not too many variables."""
        axes = 2 * len(model.state_variables) + len(model.action_variables)
        return model.enumerable and axes < MOST_AXES

    @cached_property
    def ends(self) -> Floats:
        """Probability of each outcome, and of none, in the next step, [S, A, O + 1]."""
        end, levels = self._end, range(self._end.levels)
        return np.stack([self.mean(end.table[..., o], end.parents) for o in levels], axis=2)

    @cached_property
    def rewards(self) -> Floats:
        """Mean reward of the next step, [S, A]."""
        level = len(self._axis)
        rewards, end = self.model.rewards, self._end
        earned = (rewards.table, [*self._axes(*rewards.parents), level])
        return self._mean([*self._tables, earned], [*self._axes(*end.parents), level]).of(end.table)

    def after(self, values: Floats) -> Floats:
        """Mean value [S, A] of the next state, where values are [S]; nothing follows an end."""
        return self._following.of(values.reshape(self._sizes))

    def mean(self, table: Floats, parents: Sequence[str]) -> Floats:
        """Mean [S, A] over the next state of a table with one axis per parent."""
        return self._mean(self._tables, self._axes(*parents)).of(table)

    @cached_property
    def _following(self) -> _Product:
        stays = (self._end.table[..., -1], self._axes(*self._end.parents))
        return self._mean([*self._tables, stays], self._next)

    @property
    def _end(self) -> Factor:
        assert isinstance(self.model.end, Factor)
        return self.model.end

    def _axes(self, *names: str) -> list[int]:
        return [self._axis[name] for name in names]

    def _mean(self, tables: Sequence[Table], axes: Sequence[int]) -> _Product:
        return _Product(tables, axes, self._given, self.model.counts.shape)


class _Product:
    """A table that varies times others that do not, summed over all but the first axes.

    It is planned once and computed often. The others are multiplied in one after the other, always
    the one that leaves the fewest numbers; each step is a product of matrices.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        axes: Sequence[int],
        given: Sequence[int],
        shape: tuple[int, ...],
    ) -> None:
        """Take the others, the axes of the table that varies, sizes of first axes, final shape."""
        self.given, self.shape, self.axes = given, shape, list(axes)
        self.size = dict(enumerate(given))
        for table, own in tables:
            self.size |= dict(zip(own, table.shape, strict=True))
        self.distinct = list(dict.fromkeys(axes))
        self.steps: list[tuple[list[int], list[int], Floats, list[int]]] = []
        left, have = list(tables), self.distinct
        while left:
            options = [
                self._multiplied(have, left[i][1], left[:i] + left[i + 1 :])
                for i in range(len(left))
            ]
            best = min(range(len(left)), key=lambda i: self._count(*options[i]))
            have = self._add(have, left.pop(best), options[best])
        self.order = [have.index(axis) for axis in sorted(have)]
        self.there = [size if axis in have else 1 for axis, size in enumerate(given)]

    def of(self, table: Floats) -> Floats:
        """Return the sums for a table."""
        found = _arrange(table, self.axes, self.distinct)
        for order, arranged, factor, shape in self.steps:
            found = found.transpose(order).reshape(arranged)
            found = (found * factor if arranged[-1] == 1 else found @ factor).reshape(shape)
        found = found.transpose(self.order).reshape(self.there)
        return np.broadcast_to(found, self.given).reshape(self.shape)

    def _multiplied(
        self, have: list[int], axes: list[int], rest: list[Table]
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the axes that stay: those of both, and each one's own."""
        needed = {*range(len(self.given)), *(axis for _, own in rest for axis in own)}
        return (
            [axis for axis in have if axis in axes and axis in needed],
            [axis for axis in have if axis not in axes],
            [axis for axis in dict.fromkeys(axes) if axis not in have and axis in needed],
        )

    def _add(
        self, have: list[int], table: Table, stay: tuple[list[int], list[int], list[int]]
    ) -> list[int]:
        """Plan the step that multiplies a table in; return the axes that there are then."""
        both, mine, own = stay
        summed = [axis for axis in have if axis in table[1] and axis not in both]
        factor = _arrange(*table, [*both, *summed, *own])
        sizes = [self._count(axes) for axes in (both, mine, summed, own)]
        order = [have.index(axis) for axis in [*both, *mine, *summed]]
        after = [*both, *mine, *own]
        self.steps.append(
            (
                order,
                sizes[:3],
                np.ascontiguousarray(factor).reshape(sizes[0], sizes[2], sizes[3]),
                [self.size[axis] for axis in after],
            )
        )
        return after

    def _count(self, *axes: list[int]) -> int:
        return math.prod(self.size[axis] for one in axes for axis in one)


def _arrange(table: Floats, axes: list[int], order: list[int]) -> Floats:
    """Order axes; of one that occurs twice take the diagonal, over one that is left out sum."""
    operands: list[Any] = [table, axes, order]
    return np.asarray(np.einsum(*operands))


def _copies(factor: Factor) -> bool:
    """Whether a variable takes over the level of its only parent."""
    square = len(factor.parents) == 1 and factor.table.shape == (factor.levels, factor.levels)
    return square and bool((factor.table == np.eye(factor.levels)).all())

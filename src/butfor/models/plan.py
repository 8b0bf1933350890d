"""Plan: a policy that knows how it was made, and which episodes taught it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray

from butfor.log.episodes import Episodes
from butfor.printed import Printed
from butfor.types import Floats

UNKNOWN = "no log that butfor knows"


@dataclass(frozen=True, eq=False)
class Taught:
    """The episodes that taught a model, and how to learn the same kind of model from others."""

    origin: str  # of their log: see `Episodes`
    id: NDArray[Any]  # [n]
    fit: Callable[..., Any]  # (log) -> model

    def meets(self, log: Episodes) -> bool:
        """Whether any episode of a log is one of these."""
        return log.origin == self.origin and bool(pd.Index(log.id).isin(self.id).any())

    def then(self, change: Callable[[Any], Any]) -> Taught:
        """Return the same episodes for a model that was made of the one they taught."""
        return replace(self, fit=partial(_fit_then, self.fit, change))


def _fit_then(fit: Callable[..., Any], change: Callable[[Any], Any], log: Episodes) -> Any:
    return change(fit(log))


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a plan was made; called with a part of the log, it learns and plans again from that."""

    model: Any  # in which it was planned
    planner: partial[Any]  # (model) -> plan, with its discount, caution and so on
    changes: tuple[Callable[[ArrayLike], Floats], ...] = ()  # of the table, in this order

    @property
    def taught(self) -> Taught | None:
        """The episodes that taught the model; None if no log did, as far as butfor can know."""
        known: Taught | None = getattr(self.model, "taught", None)
        return known

    def __call__(self, part: Episodes) -> tuple[Any, Plan]:
        """Return the model and the plan that episodes teach."""
        if self.taught is None:
            raise ValueError(
                "the model of this plan was not learned from a log, as far as butfor can know; "
                "learn it with fit_mdp or fit_factored, or give learn=..."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same as about the whole log
            model = self.taught.fit(part)
            plan: Plan = self.planner(model)
        for change in self.changes:
            plan = plan.change(change)
        return model, plan


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Printed, NDArrayOperatorsMixin):
    """A policy planned in a model: its array [S, A], and how it was made, from which log.

    It is accepted wherever an array is, and has an array's methods; `np.asarray` returns the array
    alone. Where the log of a question holds episodes that taught the plan, its estimates have no
    plain interval, and the recipe is repeated on parts of the log (cross-fitting). What arithmetic,
    indexing or a file returns is an array that no longer knows this.
    """

    policy: Any  # [S, A], or a function of level codes
    recipe: Recipe

    @property
    def table(self) -> Floats:
        """The array alone, [S, A]: a fixed policy, which does not know where it comes from."""
        if callable(self.policy):
            raise ValueError("this plan is a function of level codes [m, J]; call it with them")
        return np.asarray(self.policy)

    def meets(self, log: Episodes) -> bool:
        """Whether any episode of a log taught this plan, as far as butfor can know."""
        return self.recipe.taught is not None and self.recipe.taught.meets(log)

    def change(self, change: Callable[[ArrayLike], Floats]) -> Plan:
        """Return the plan with another table, which the recipe makes in the same way."""
        changes = (*self.recipe.changes, change)
        return Plan(change(self.table), replace(self.recipe, changes=changes))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.table, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if "out" in options:
            return NotImplemented
        arrays = (one.table if isinstance(one, Plan) else one for one in inputs)
        return getattr(ufunc, method)(*arrays, **options)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: Any) -> Any:
        return self.table[place]

    def __getattr__(self, name: str) -> Any:
        """Return what the array, or the function, has under this name."""
        if name.startswith("_") or name == "policy":  # which is not there yet
            raise AttributeError(name)
        return getattr(self.policy, name)

    def _title(self) -> str:
        if callable(self.policy):
            return "Plan: a function of level codes"
        return f"Plan: {len(self.table):,} states, {self.table.shape[1]} actions"

    def _facts(self) -> dict[str, Any]:
        planner, taught = self.recipe.planner, self.recipe.taught
        known = taught and f"{len(taught.id):,} episodes of log {taught.origin[:8]}"
        given = ((name, value) for name, value in planner.keywords.items() if value is not None)
        options = (f"{name}={_brief(value)}" for name, value in given)
        changes = "".join(f", then {_name(one)}" for one in self.recipe.changes)
        return {
            "made by": f"{_name(planner)}({', '.join(options)}){changes}",
            "model": type(self.recipe.model).__name__,
            "taught by": known or UNKNOWN,
        }


class FunctionPlan(Plan):
    """A plan that is a function of level codes, [m, J] → [m, A]."""

    def __call__(self, codes: NDArray[Any]) -> Floats:
        """Return the policy in states given by codes."""
        return np.asarray(self.policy(codes))


def _name(function: Any) -> str:
    return str(getattr(function, "func", function).__name__)


def _brief(value: Any) -> str:
    """Print an option of a planner, without the entries of arrays."""
    return f"array {np.shape(value)}" if np.ndim(value) else repr(value)

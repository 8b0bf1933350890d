"""The sections of a study file about irregular times and missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from butfor.log.coding import text_of
from butfor.log.fields import Durations, Mistakes, Section, TimeStep, Word
from butfor.log.variables import Variable

Take = Literal["last", "mean", "min", "max", "worst", "sum", "any"]
MEDIAN, NORMAL, MISSING_LEVEL = "median", "normal", "missing"


class TimeSection(Section):
    """A grid of equal steps, onto which the rows of each episode are put."""

    every: TimeStep  # in units of the time column, or "4h" if it holds dates
    take: dict[str, Take] = Field(default_factory=dict)  # by column, of its values in a step


class DurationsSection(Section):
    """The time between decisions, if it varies: part of what follows a decision."""

    levels: Durations  # in units; each duration counts as the nearest of them
    unit: TimeStep = 1.0  # in units of the time column, or "1d" if it holds dates
    name: Word = "elapsed"  # of the variable

    def variable(self) -> Variable:
        """Return the variable of the state that has the time since the decision before."""
        levels = tuple(map(text_of, self.levels))
        return Variable(self.name, levels, durations=tuple(self.levels))


class MissingSection(Section):
    """What stands in for the missing values of a column."""

    carry: bool | Annotated[int, Field(ge=1)] | None = None  # how many steps; by default any
    within: TimeStep | None = None  # how old a value may be that is carried forward
    fill: FiniteFloat | str | None = None  # a number or level, "median", "normal" or "missing"
    indicator: bool = False  # a variable or cluster column that tells where values were filled in

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield keys that contradict each other."""
        if self.carry is False and self.within is not None:
            yield "within", "given together with carry = false; remove one of them"
        if self.carry is False and "fill" not in given:
            yield "fill", "missing; without carrying forward, say what to fill in, or remove carry"
        if self.indicator and "fill" not in given:
            yield "fill", 'missing; an indicator tells where it was filled in: "median", a number'
        if self.indicator and self.fill == MISSING_LEVEL:
            yield "indicator", 'not needed with fill = "missing", which has its own level'


def indicator_name(name: str) -> str:
    """Return the name of the indicator that a value is missing."""
    return f"{name} missing"

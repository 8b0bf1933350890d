"""What the sections of a study file are made of: kinds of values, and how mistakes are told."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat
from pydantic_core import PydanticCustomError

from butfor.checks import MOST_NUMBERED, REWARDS, find_absurd
from butfor.log.coding import listed, text_of

MOST = 2**31 - 1  # actions: codes have 32 bits
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
UNIT_NAMES = {"s": "second", "min": "minute", "h": "hour", "d": "day"}
LOST = "lost to follow-up"  # the outcome of those who stop without one, if they are to have one
INVALID = "invalid"  # type of the errors raised here; their message is shown as it is

Mistakes = Iterator[tuple[str, str]]  # key, and what is wrong with its value


def _invalid(message: str) -> PydanticCustomError:
    return PydanticCustomError(INVALID, "{message}", {"message": message})


def _as_level(value: Any) -> str:
    if isinstance(value, str | int | float):
        return text_of(value)
    raise _invalid(f"{show(value)}: expected text or a number")


def _distinct(names: list[str]) -> list[str]:
    if not names:
        raise _invalid("is empty; name at least one")
    if any(not name.strip() for name in names):
        raise _invalid("one of them is empty, which means missing; give it a name")
    for _, message in named_twice(names, "", "of them"):
        raise _invalid(message)
    return names


def _increasing(cuts: list[float]) -> list[float]:
    if not cuts:
        raise _invalid("is empty; give at least one number")
    for low, high in pairwise(cuts):
        if low >= high:
            order = f"{text_of(high)} follows {text_of(low)}"
            raise _invalid(f"{order}; list different numbers from low to high")
    return cuts


def _positive(numbers: list[float]) -> list[float]:
    if numbers[0] <= 0:
        raise _invalid(f"{text_of(numbers[0])}: give numbers above 0")
    return numbers


def _not_blank(text: str) -> str:
    if not text.strip():
        raise _invalid("is empty; give a word, or leave the key out")
    return text


def split_step(step: float | str) -> tuple[float, str]:
    """Return the number and the unit of a time step: "" without one, nan if it is neither."""
    if not isinstance(step, str):
        return float(step), ""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(s|min|h|d)", step)
    return (float(found[1]), found[2]) if found else (math.nan, "")


def step_size(step: float | str) -> float:
    """Return a time step as a number, in seconds if it has a unit."""
    number, unit = split_step(step)
    return number * UNITS.get(unit, 1.0)


def _time_step(step: float | str) -> float | str:
    if not 0 < split_step(step)[0] < math.inf:
        raise _invalid(
            f"{show(step)} is not a time step; give a positive number in units of the time column, "
            'or for dates a number and a unit, such as "4h" (s, min, h or d)'
        )
    return step


def _reward(value: float) -> float:
    if len(find_absurd([value])):
        raise _invalid(f"{show(value)}: give {REWARDS}")
    return value


Level = Annotated[str, BeforeValidator(_as_level)]
Levels = Annotated[list[Level], AfterValidator(_distinct)]
Names = Annotated[list[str], AfterValidator(_distinct)]
Cuts = Annotated[list[FiniteFloat], AfterValidator(_increasing)]
Durations = Annotated[Cuts, AfterValidator(_positive)]
Reward = Annotated[FiniteFloat, AfterValidator(_reward)]
Word = Annotated[str, AfterValidator(_not_blank)]
TimeStep = Annotated[float | str, AfterValidator(_time_step)]
Count = Annotated[int, Field(ge=1, le=MOST_NUMBERED)]
Discount = Annotated[float, Field(ge=0, le=1)]
CellType = Literal["text", "number"]


class Section(BaseModel):
    """A section of the study file; unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def mistakes(self, given: Mapping[str, Any]) -> Mistakes:
        """Yield the keys that do not fit together; `given` holds the section as written."""
        yield from ()


def place(section: str, name: str) -> str:
    """Write the head of a section, such as [state."heart rate"]."""
    bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return f"[{section}.{name if bare else quoted(name)}]"


def quoted(text: str) -> str:
    """Write text as TOML does, in double quotes on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def named_twice(names: Iterable[str], at: str, what: str) -> Mistakes:
    """Yield the names that appear more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield at, f"two {what} are called {name!r}; give different names"
        seen.add(name)


def show(value: Any) -> str:
    """Show a value, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def unknown_normal(normal: Any, levels: Sequence[str]) -> Mistakes:
    """Yield the normal levels that are no levels."""
    for level in as_list(normal):
        if level not in levels:
            yield "normal", f"{level!r} is not a level; there are {listed(levels)}"


def as_list(normal: Any) -> list[str]:
    """Return one level or a list of them as a list."""
    if normal is None:
        return []
    return [text_of(level) for level in (normal if isinstance(normal, list) else [normal])]

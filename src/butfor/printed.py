"""How objects print themselves: in at most ten lines, and without computing anything."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np
import pandas as pd

MOST_LINES = 10
MOST_CHARACTERS = 76  # of what is said of one field


class Printed:
    """A dataclass that prints as its name and a line for each field, or for what `_facts` returns.

    Write `@dataclass(…, repr=False)`: a dataclass would otherwise get its usual `__repr__` back.
    """

    def _title(self) -> str:
        """Return what it is, and its size if that is known."""
        return type(self).__name__

    def _facts(self) -> Mapping[str, Any]:
        """Return what matters, by name; what is None is left out."""
        shown = (
            field.name
            for field in fields(self)  # type: ignore[arg-type]
            if not field.name.startswith("_")
        )
        return {name: getattr(self, name) for name in shown}

    def __repr__(self) -> str:
        lines = self._lines()
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join([self._title(), *(f"  {name:{width}}  {said}" for name, said in lines)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(said)}</td></tr>"
            for name, said in self._lines()
        )
        return f"<table><caption>{escape(self._title())}</caption>{rows}</table>"

    def _lines(self) -> list[tuple[str, str]]:
        """Return names with what is said of each; those for which there is no room share a line."""
        found = [(name, value) for name, value in self._facts().items() if value is not None]
        room = MOST_LINES - 1
        if len(found) > room:
            found, others = found[: room - 1], found[room - 1 :]
            found.append(("also", ", ".join(name for name, _ in others)))
        return [(name, describe(value)) for name, value in found]


def describe(value: object) -> str:
    """Return a line on a value: of arrays and tables the size, of named things their names."""
    if isinstance(value, np.ndarray):
        said = f"array {list(value.shape)} of {value.dtype}"
    elif isinstance(value, pd.DataFrame):
        said = f"table {list(value.shape)} of {', '.join(map(str, value.columns))}"
    elif isinstance(value, Printed):
        said = value._title()
    elif isinstance(value, str):
        return " ".join(value.split())
    elif isinstance(value, Mapping):
        said = ", ".join(map(str, value)) or "none"
    elif isinstance(value, Sequence):
        said = _list([_name(one) for one in value])
    elif isinstance(value, int) and not isinstance(value, bool):
        said = f"{value:,}"
    else:
        name = getattr(value, "__name__", None)  # of a function
        shape = getattr(value, "shape", None)  # of what is used as an array
        said = name or (f"{type(value).__name__} {list(shape)}" if shape else repr(value))
    return said if len(said) <= MOST_CHARACTERS else f"{said[: MOST_CHARACTERS - 2]} …"


def _name(value: object) -> str:
    """Return the name of a variable or an outcome, or what a value is."""
    named = value._title() if isinstance(value, Printed) else value
    return str(getattr(value, "name", named))


def _list(names: Sequence[str]) -> str:
    """Return the first names as far as there is room, and how many there are."""
    said = ", ".join(names)
    if len(said) <= MOST_CHARACTERS:
        return said or "none"
    room = said[: MOST_CHARACTERS - 12].rfind(", ")
    return f"{said[: room if room > 0 else MOST_CHARACTERS - 12]} … ({len(names):,})"


class Table(pd.DataFrame):
    """A data frame that leaves out its last columns where it is too wide to print.

    Any other leaves out those in the middle, such as an interval between an estimate and its note.
    """

    @property
    def _constructor(self) -> type[Table]:
        return Table

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        with pd.option_context("display.max_columns", None, "display.expand_frame_repr", False):
            count = self.shape[1]
            text = pd.DataFrame(self).__repr__()
            while count > 1 and max(map(len, text.splitlines())) > width:
                count -= 1
                text = pd.DataFrame(self.iloc[:, :count]).__repr__()
        left_out = ", ".join(map(str, self.columns[count:]))
        return f"{text}\nand {left_out}" if left_out else text

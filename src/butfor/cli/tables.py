"""Tables that fit the width of the terminal without breaking a word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement, measure_renderables
from rich.table import Table
from rich.text import Text

from butfor.evaluate.wording import visible

WHOLE, SHORTEST = 40, 6  # characters to which words are shortened
BETWEEN = 3  # characters between two columns


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> FittedTable:
    """Return a table of texts, which are not read as markup.

    A column whose name starts with > is right-aligned; without any name there is no header.
    """
    heads = [Text(visible(name.removeprefix(">"))) for name in columns]
    cells = [
        [cell if isinstance(cell, Text) else Text(visible(str(cell))) for cell in row]
        for row in rows
    ]
    texts = [[head, *(row[c] for row in cells)] for c, head in enumerate(heads)]
    return FittedTable(texts, [name[:1] == ">" for name in columns])


@dataclass(frozen=True)
class FittedTable:
    """Columns of texts, the first of each its name.

    Where there is no room, words without digits are shortened; where that is not enough, the last
    columns are left out, which is said. Only a word that is wider than the terminal is broken.
    """

    columns: Sequence[Sequence[Text]]
    right: Sequence[bool]  # whether each is right-aligned

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for count in range(len(self.columns), 0, -1):
            room = options.max_width - BETWEEN * count + 1
            for longest in range(WHOLE, SHORTEST - 1, -1):
                texts = [[_shortened(text, longest) for text in c] for c in self.columns[:count]]
                sizes = [measure_renderables(console, options, column) for column in texts]
                if sum(size.minimum for size in sizes) <= room or count == 1:
                    yield self._table(texts, _widths(sizes, room))
                    left_out = [column[0].plain or "the last" for column in self.columns[count:]]
                    if left_out:
                        yield f"(no room for: {', '.join(left_out)}; use a wider terminal)"
                    return

    def _table(self, texts: Sequence[Sequence[Text]], widths: Sequence[int]) -> Table:
        heads = [column[0] for column in texts]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(h.plain for h in heads))
        for head, width, right in zip(heads, widths, self.right, strict=False):
            justify: JustifyMethod = "right" if right else "left"
            table.add_column(head, justify=justify, width=width, overflow="fold")
        for row in zip(*(column[1:] for column in texts), strict=True):
            table.add_row(*row)
        return table


def _widths(sizes: Sequence[Measurement], room: int) -> list[int]:
    """Return the widths of columns: as wide as their texts, the widest narrowed until all fit."""
    least, widths = [size.minimum for size in sizes], [size.maximum for size in sizes]
    while sum(widths) > room and widths != least:
        wide = [width if width > some else 0 for width, some in zip(widths, least, strict=True)]
        widths[wide.index(max(wide))] -= 1
    return widths


def _shortened(text: Text, longest: int) -> Text:
    """Return a text whose words have at most so many characters; numbers stay whole."""
    words = text.plain.split(" ")
    kept = [len(word) <= longest or any(map(str.isdigit, word)) for word in words]
    if all(kept):
        return text
    known = zip(words, kept, strict=True)
    short = [word if whole else f"{word[: longest - 1]}." for word, whole in known]
    return Text(" ".join(short), style=text.style)

"""Networks in the Bayesian interchange format, `.bif`.

A file has the blocks `network`, `variable` (`type discrete [n] { levels };`) and `probability (
variable | parents ) { ... }`. The last contains rows `(levels of the parents) numbers;`, `default
numbers;` for missing rows, or `table numbers;`, in which the variable's own level changes slowest
and the last parent's fastest. Commas and bars between words are ignored; properties are skipped.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from butfor.checks import ROW_TOLERANCE, check_size
from butfor.graph.tables import MOST_CELLS, Network
from butfor.types import Floats

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[{}()\[\];]|(?:(?!//|/\*)[^\s{}()\[\];,|"])+|["/]', re.S
)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MOST_BYTES = 64_000_000  # of a file
MARKS = frozenset('{}()[];"/')


class _Row(NamedTuple):
    """One entry of a probability block."""

    kind: str  # "row", "default" or "table"
    levels: list[str]  # of the parents, for a row
    numbers: list[float]
    line: int


class _Block(NamedTuple):
    """A probability block as written; names are looked up once all are known."""

    parents: list[str]
    rows: list[_Row]
    line: int


def parse_bif(path: Path) -> Network:
    """Return levels, parents and tables by variable; errors name the line and the remedy."""
    return _Parser(path).parse()


class _Parser:
    """Reads the tokens in order and knows the line of each."""

    def __init__(self, path: Path) -> None:
        self.path, self.line, self.next = path, 1, 0
        check_size(path, MOST_BYTES, "a network")
        raw = path.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.line = raw[: error.start].count(b"\n") + 1
            self.fail("the file is not UTF-8 text; give a .bif file")
        self.tokens = _tokens(text)
        self.levels: dict[str, list[str]] = {}
        self.blocks: dict[str, _Block] = {}

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.line}: {problem}")

    # tokens

    def take(self, wanted: str) -> str:
        if self.next >= len(self.tokens):
            self.fail(f"the file ends where {wanted} is expected; add it")
        text, self.line = self.tokens[self.next]
        self.next += 1
        return text

    def mark(self, wanted: str) -> None:
        text = self.take(f"'{wanted}'")
        if text != wanted:
            self.fail(f"found {text!r}, expected '{wanted}'")

    def until(self, end: str) -> Iterator[None]:
        """Repeat until the mark that ends a list or a block, and take it."""
        while self.next < len(self.tokens) and self.tokens[self.next][0] != end:
            yield
        self.mark(end)

    def name(self, what: str) -> str:
        text = self.take(what)
        if text in MARKS:
            self.fail(f"found {text!r}, expected {what}")
        return text.strip('"')

    def numbers(self) -> list[float]:
        numbers = []
        for _ in self.until(";"):
            text = self.take("a probability")
            if not NUMBER.fullmatch(text):
                self.fail(f"found {text!r}, expected a probability or ';'; give a number")
            numbers.append(float(text))
        return numbers

    def skip_property(self) -> None:
        while self.take("';'") != ";":
            pass

    # the file

    def parse(self) -> Network:
        blocks = {"network": self.network, "variable": self.variable}
        blocks["probability"] = self.probability
        while self.next < len(self.tokens):
            word = self.take("a block")
            if word not in blocks:
                self.fail(f"{word!r} is not a block; give network, variable or probability")
            blocks[word]()
        if not self.levels:
            self.fail("the file has no variables; give at least one")
        for name in self.levels:
            if name not in self.blocks:
                self.fail(f"the file has no probability block for {name!r}; add it")
        tables = {name: self.table(name, block) for name, block in self.blocks.items()}
        return self.levels, {name: block.parents for name, block in self.blocks.items()}, tables

    def network(self) -> None:
        for _ in self.until("{"):
            self.name("the network's name")
        for _ in self.until("}"):
            self.skip_property()

    def variable(self) -> None:
        name = self.name("the variable's name")
        if name in self.levels:
            self.fail(f"variable {name!r} is defined twice; keep one definition")
        self.mark("{")
        for _ in self.until("}"):
            word = self.take("type")
            if word == "property":
                self.skip_property()
            elif word == "type" and name not in self.levels:
                self.levels[name] = self.type(name)
            else:
                self.fail(f"{word!r} in variable {name!r}; give one type, and only properties")
        if name not in self.levels:
            self.fail(f"variable {name!r} has no type; add 'type discrete [n] {{ levels }};'")

    def type(self, name: str) -> list[str]:
        kind = self.name("discrete")
        if kind != "discrete":
            self.fail(f"variable {name!r} is {kind}; only discrete variables can be read")
        self.mark("[")
        count = self.name("the number of levels")
        self.mark("]")
        self.mark("{")
        levels = [self.name("a level") for _ in self.until("}")]
        if count != str(len(levels)):
            self.fail(f"variable {name!r} has {len(levels)} levels, not {count}; correct either")
        if len(set(levels)) < len(levels):
            self.fail(f"variable {name!r} has a level twice; give different names")
        self.mark(";")
        return levels

    def probability(self) -> None:
        self.mark("(")
        line = self.line
        name, *parents = [self.name("a variable") for _ in self.until(")")] or [""]
        if name in self.blocks:
            self.fail(f"the probabilities of {name!r} are defined twice; keep one block")
        self.mark("{")
        rows = []
        for _ in self.until("}"):
            word = self.take("a row")
            at = self.line
            if word == "property":
                self.skip_property()
            elif word == "(":
                levels = [self.name("a level") for _ in self.until(")")]
                rows.append(_Row("row", levels, self.numbers(), at))
            elif word in ("table", "default"):
                rows.append(_Row(word, [], self.numbers(), at))
            else:
                self.fail(f"found {word!r}, expected '(levels)', table, default or '}}'")
        self.blocks[name] = _Block(parents, rows, line)

    def table(self, name: str, block: _Block) -> Floats:
        """Return [levels of each parent, levels of the variable]."""
        self.line = block.line
        for variable in (name, *block.parents):
            if variable not in self.levels:
                known = ", ".join(map(repr, list(self.levels)[:8]))
                self.fail(f"there is no variable {variable!r}; there are {known}")
        own, *others = (self.levels[variable] for variable in (name, *block.parents))
        shape = (*map(len, others), len(own))
        if math.prod(shape) > MOST_CELLS:
            self.fail(
                f"{math.prod(shape):,} probabilities, more than {MOST_CELLS:,}; remove parents"
            )
        table = np.full(shape, np.nan)
        for row in sorted(block.rows, key=lambda row: row.kind == "row"):  # rows come last and win
            self.line = row.line
            count = table.size if row.kind == "table" else len(own)
            if len(row.numbers) != count:
                self.fail(f"{len(row.numbers)} probabilities; give {count}")
            if row.kind == "table":
                table[:] = np.moveaxis(np.reshape(row.numbers, (len(own), *shape[:-1])), 0, -1)
            else:
                at = () if row.kind == "default" else self.place(row.levels, block.parents)
                table[at] = row.numbers
        self.check(name, table, block, others)
        return table

    def place(self, levels: list[str], parents: list[str]) -> tuple[int, ...]:
        if len(levels) != len(parents):
            self.fail(f"{len(levels)} levels; give one for each of {len(parents)} parents")
        for level, parent in zip(levels, parents, strict=True):
            if level not in self.levels[parent]:
                known = ", ".join(map(repr, self.levels[parent]))
                self.fail(f"{parent!r} has no level {level!r}; it has {known}")
        return tuple(self.levels[p].index(v) for v, p in zip(levels, parents, strict=True))

    def check(self, name: str, table: Floats, block: _Block, others: list[list[str]]) -> None:
        """Check that every row exists and is a distribution; name the line of a bad one."""
        lines = {tuple(row.levels): row.line for row in block.rows if row.kind == "row"}
        shared = [row.line for row in block.rows if row.kind != "row"]
        rows = table.reshape(-1, table.shape[-1])
        for levels, row in zip(itertools.product(*others), rows, strict=True):
            self.line = lines.get(levels, shared[0] if shared else block.line)
            given = f" given ({', '.join(levels)})" if levels else ""
            if np.isnan(row).any():
                self.fail(f"there are no probabilities of {name!r}{given}; add a row or a default")
            if (row < 0).any() or abs(row.sum() - 1) > ROW_TOLERANCE:
                self.fail(
                    f"the probabilities of {name!r}{given} sum to {row.sum():.9g}; give numbers "
                    "from 0 to 1 that sum to 1"
                )


def _tokens(text: str) -> list[tuple[str, int]]:
    tokens, line, at = [], 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        if not match[0].startswith(("//", "/*")):
            tokens.append((match[0], line))
    return tokens

"""The parser of Cassandra's `.pomdp` and `.mdp` files.

The format is described at https://www.pomdp.org/code/pomdp-file-spec.html: a preamble
(`discount`, `values`, `states`, `actions`, `observations`, `start`), then entries `T`, `O` and `R`,
each with one number, a row or a matrix, and `*` for "all". Later entries overwrite earlier ones.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sparse

from butfor.checks import ROW_TOLERANCE, check_size
from butfor.interop.pomdp_tables import MOST_ENTRIES, RewardEntry, Table, mean_rewards
from butfor.types import Floats

MOST_BYTES = 64_000_000  # of a file
MOST_NAMES = 200_000  # states, actions or observations
MOST_ROWS = 300_000  # pairs of a state and an action
FREE_ENTRIES, PER_WORD = 500_000, 10  # numbers that any file may ask for, and more for each word
PREAMBLE = ("discount", "values", "states", "actions", "observations", "start")
ENTRIES = {"T": ("action", "state", "state"), "O": ("action", "state", "observation")}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAME = re.compile(r"[^\W\d][\w.\-]*")


def parse_pomdp(path: Path) -> dict[str, Any]:
    """Return the fields of a PomdpFile; errors name the line and the remedy."""
    return _Parser(path).parse()


class _Parser:
    """Reads a file token by token; messages name the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_size(path, MOST_BYTES, "a model")
        raw = path.read_bytes()
        try:
            lines = raw.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            self.line = raw[: error.start].count(b"\n") + 1
            self.fail("not UTF-8 text; give a .pomdp or .mdp file")
        self.tokens = [
            (text, number)
            for number, line in enumerate(lines, 1)
            for text in re.findall(r":|\*|[^\s:*]+", line.split("#", 1)[0])
        ]
        self.most = min(MOST_ENTRIES, FREE_ENTRIES + PER_WORD * len(self.tokens))
        self.next = 0
        self.line = 1
        self.given: dict[str, Any] = {}  # the entries of the preamble
        self.codes: dict[str, dict[str, int]] = {}  # by noun: the number of each name, in order
        self.tables: dict[str, Table] = {}
        self.reward_entries: list[RewardEntry] = []

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.line}: {problem}")

    # tokens

    def peek(self, ahead: int = 0) -> str | None:
        at = self.next + ahead
        return self.tokens[at][0] if at < len(self.tokens) else None

    def take(self, wanted: str) -> str:
        if self.next >= len(self.tokens):
            self.fail(f"the file ends where {wanted} is expected; add it")
        text, self.line = self.tokens[self.next]
        self.next += 1
        return text

    def colon(self, after: str) -> None:
        text = self.take("':'")
        if text != ":":
            self.fail(f"{text!r} after {after}; put ':' between them")

    def number(self, what: str) -> float:
        text = self.take(what)
        if not NUMBER.fullmatch(text) or not np.isfinite(float(text)):
            self.fail(f"{text!r} where {what} is expected; give a number")
        return float(text)

    def starts_entry(self) -> bool:
        """Whether the next tokens begin another entry: a keyword and ':', or include or exclude."""
        word = self.peek()
        if word == "start" and self.peek(1) in ("include", "exclude"):
            return True
        return word in (*PREAMBLE, *ENTRIES, "R") and self.peek(1) == ":"

    def place(self, noun: str) -> int | None:
        """Take a name, a number or '*' (None)."""
        text = self.take(f"the name or number of the {noun}, or '*',")
        if text == "*":
            return None
        codes = self.codes[noun]
        code = codes.get(text)
        if code is None and text.isascii() and text.isdigit() and len(text) < 10:
            code = int(text)
        if code is None or code >= len(codes):
            names = ", ".join(islice(codes, 8))
            self.fail(f"no {noun} {text!r}; there are {len(codes)}: {names}")
        return code

    # the file

    def parse(self) -> dict[str, Any]:
        while self.peek() is not None:
            word = self.take("an entry")
            if word in PREAMBLE:
                self.preamble(word)
            elif word in ENTRIES or word == "R":
                self.begin(word)
                self.reward_entry() if word == "R" else self.table_entry(word)
            else:
                self.refuse_entry(word)
        self.begin("the end of the file")
        transition = self.finished("T")
        observation = self.finished("O") if self.codes["observation"] else None
        reward, by_observation = mean_rewards(
            self.reward_entries, transition, observation, self.fail
        )
        return {
            **self.given,
            "transition": transition,
            "reward": reward,
            "observation": observation,
            "reward_by_observation": by_observation,
        }

    def refuse_entry(self, word: str) -> NoReturn:
        self.fail(
            f"{word!r} is not an entry; give one of {', '.join(PREAMBLE)}, T, O or R, and check "
            "the length of the rows above"
        )

    def preamble(self, word: str) -> None:
        if self.tables:
            self.fail(f"{word!r} after the first T, O or R; move it to the top")
        if word in self.given:
            self.fail(f"{word!r} appears twice; keep one of them")
        if word == "start":
            self.given[word] = self.start_entry()
            return
        self.colon(word)
        if word == "discount":
            self.given[word] = discount = self.number("the discount")
            if not 0 <= discount <= 1:
                self.fail(f"discount {discount}; give a number from 0 to 1")
        elif word == "values":
            self.given[word] = values = self.take("reward or cost")
            if values not in ("reward", "cost"):
                self.fail(f"values {values!r}; give reward or cost")
        else:
            noun = word.removesuffix("s")
            self.codes[noun] = self.list_names(noun)
            self.given[word] = tuple(self.codes[noun])

    def list_names(self, noun: str) -> dict[str, int]:
        codes: dict[str, int] = {}
        first = self.peek() or ""
        if NUMBER.fullmatch(first):
            self.take("a number")
            if not (first.isdigit() and len(first) < 10 and 1 <= int(first) <= MOST_NAMES):
                self.fail(f"{first} {noun}s; give a whole number from 1 to {MOST_NAMES:,}")
            codes = {str(code): code for code in range(int(first))}
        else:
            while self.peek() is not None and not self.starts_entry():
                name = self.take("a name")
                if self.peek() == ":":
                    self.refuse_entry(name)
                if not NAME.fullmatch(name):
                    self.fail(f"{name!r} is not a name for {noun}s; begin it with a letter")
                if name in codes:
                    self.fail(f"{noun} {name!r} appears twice; give different names")
                codes[name] = len(codes)
        if not codes:
            self.fail(f"no {noun}s; give their number or their names")
        return codes

    def begin(self, word: str) -> None:
        """Check that the preamble is complete, and make the tables before their first entry."""
        if self.tables:
            return
        for name in ("discount", "values", "states", "actions"):
            if name not in self.given:
                self.fail(f"no {name!r} before {word}; add a line '{name}: ...' at the top")
        self.given.setdefault("observations", ())
        self.codes.setdefault("observation", {})
        actions, states, seen = (
            len(self.codes[noun]) for noun in ("action", "state", "observation")
        )
        self.given.setdefault("start", np.full(states, 1 / states))
        if actions * states > MOST_ROWS:
            self.fail(
                f"{states} states with {actions} actions are {actions * states:,} rows, more than "
                f"{MOST_ROWS:,}; give a smaller model"
            )
        self.tables = {"T": Table((actions, states, states)), "O": Table((actions, states, seen))}

    # start

    def start_entry(self) -> Floats:
        if "state" not in self.codes:
            self.fail("'start' before 'states'; list the states first")
        states = len(self.codes["state"])
        mode = self.peek()
        listed = mode in ("include", "exclude")
        if listed:
            self.take("include or exclude")
        self.colon("start")
        given = []
        while self.peek() is not None and not self.starts_entry():
            given.append(self.take("a state"))
            if not listed and len(given) > states:
                self.fail(f"more than {states} numbers; give one for each state")
        chosen = np.zeros(states)
        if listed or (len(given) == 1 and states > 1 and given[0] != "uniform"):
            self.next -= len(given)
            for _ in given:
                state = self.place("state")
                chosen[slice(None) if state is None else state] = 1
            chosen = 1 - chosen if mode == "exclude" else chosen
            if not chosen.any():
                self.fail("no state is left to start in; name at least one")
        elif given == ["uniform"]:
            chosen[:] = 1
        else:
            self.next -= len(given)
            chosen = self.numbers(states, "start")
            total = chosen.sum()
            if (chosen < 0).any() or abs(total - 1) > ROW_TOLERANCE:
                self.fail(
                    f"start has numbers that sum to {total:.9g}; give probabilities that sum to 1"
                )
        return chosen / chosen.sum()

    # T and O

    def table_entry(self, word: str) -> None:
        line, table, nouns = self.line, self.tables[word], ENTRIES[word]
        if table.shape[2] == 0:
            self.fail("an O entry, but there are no observations; list them at the top")
        places = self.places(word, nouns)
        self.line = line
        actions, states, columns = table.shape
        chosen = range(actions) if places[0] is None else [places[0]]
        rows = range(states) if len(places) < 2 or places[1] is None else [places[1]]
        single = len(places) == 3 and places[2] is not None
        count = len(chosen) * len(rows) * (1 if single or self.peek() == "identity" else columns)
        table.written += count
        if table.written > self.most:
            self.fail(
                f"{word} would hold more than {self.most:,} numbers, too many for a file of this "
                "length; name the states that can follow instead of '*', 'uniform' or whole rows"
            )
        if len(places) == 3:
            value = self.number("a probability")
            if not 0 <= value <= 1:
                self.fail(f"probability {value:g}; give a number from 0 to 1")
            entries = dict.fromkeys(range(columns) if places[2] is None else [places[2]], value)
            block = [entries] * len(rows)
        else:
            block = self.block(word, len(rows) if len(places) == 1 else 1, columns)
            block = block if len(block) == len(rows) else block * len(rows)
        for action in chosen:
            for row, entries in zip(rows, block, strict=True):
                table.add(row * actions + action, entries, line, whole=len(places) < 3)

    def places(self, word: str, nouns: tuple[str, ...]) -> list[int | None]:
        """Take ': place' at least once, and at most once for each noun."""
        self.colon(word)
        places = [self.place(nouns[0])]
        while self.peek() == ":":
            self.take("':'")
            if len(places) == len(nouns):
                self.fail(f"a {word} entry has at most {len(nouns)} places; leave out the rest")
            places.append(self.place(nouns[len(places)]))
        return places

    def block(self, word: str, rows: int, columns: int) -> list[dict[int, float]]:
        """Take rows of probabilities, or a word that abbreviates them."""
        text = self.peek()
        if text == "uniform":
            self.take("uniform")
            return [dict.fromkeys(range(columns), 1 / columns)] * rows
        if text == "identity":
            self.take("identity")
            if rows != columns:
                self.fail(f"identity needs as many rows as columns, not {rows} and {columns}")
            return [{row: 1.0} for row in range(rows)]
        if text == "reset" and word == "T":
            self.take("reset")
            start = self.given["start"]
            return [{int(state): float(start[state]) for state in np.flatnonzero(start)}] * rows
        block = []
        for _ in range(rows):
            row = self.numbers(columns, word)
            if (row < 0).any() or (row > 1 + ROW_TOLERANCE).any():
                self.fail(f"the {word} row has a number outside 0 to 1; give probabilities")
            block.append({int(column): float(row[column]) for column in np.flatnonzero(row)})
        return block

    def numbers(self, count: int, word: str) -> Floats:
        values = np.empty(count)
        for i in range(count):
            if self.starts_entry():
                self.fail(f"the {word} entry has {i} of {count} numbers in its row; add the rest")
            values[i] = self.number(f"number {i + 1} of {count}")
        return values

    def finished(self, word: str) -> sparse.csr_array:
        """Return a table after checking that its rows sum to one."""
        table = self.tables[word]
        actions = table.shape[0]
        matrix = table.matrix()
        totals = matrix.sum(axis=1)
        wrong = np.abs(totals - 1) > 1e-5  # files round to six digits; the rows are scaled below
        if wrong.any():
            row = int(wrong.argmax())
            state, action = divmod(row, actions)
            where = f"{self.given['actions'][action]} : {self.given['states'][state]}"
            self.line = table.line.get(row, self.tokens[-1][1])
            if row not in table.line:
                self.fail(f"there is no {word}: {where} in the file; add its row")
            self.fail(f"{word}: {where} sums to {totals[row]:.9g}, not to 1; correct its row")
        return sparse.csr_array(sparse.diags_array(1 / totals) @ matrix)

    # R

    def reward_entry(self) -> None:
        line, states, seen = self.line, len(self.codes["state"]), len(self.codes["observation"])
        nouns = ("action", "state", "state", "observation")[: 4 if seen else 3]
        places = self.places("R", nouns)
        missing = len(nouns) - len(places)
        if missing > 2:
            self.line = line
            self.fail(
                "R: an action and a matrix, but rewards also depend on states; name the state"
            )
        if missing == 0:
            value = np.array([self.number("a reward")])
        else:
            shape = (states if missing == 2 else 1, seen or states)
            if shape[0] * shape[1] > MOST_ENTRIES:
                self.fail(f"R has more than {MOST_ENTRIES:,} numbers; give a smaller model")
            value = np.stack([self.numbers(shape[1], "R") for _ in range(shape[0])])
        action, state, reached, observed = (*places, None, None, None)[:4]
        self.reward_entries.append(RewardEntry(action, state, reached, observed, value))

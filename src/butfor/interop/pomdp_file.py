"""Models in Cassandra's `.pomdp` and `.mdp` files: https://www.pomdp.org/code/pomdp-file-spec.html.

Grammar: a preamble (`discount`, `values`, `states`, `actions`, `observations`, `start`), then
entries `T`, `O` and `R`, each for one number, a row or a matrix, with `*` for "all". Later entries
overwrite earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor.checks import ROW_TOLERANCE, check_size
from butfor.hidden.model import TabularPOMDP
from butfor.log.variables import Outcome, Variable
from butfor.models.mdp import TabularMDP
from butfor.types import Floats, Integers

MOST_BYTES = 64_000_000  # of a file
MOST_NAMES = 200_000  # states, actions or observations
MOST_ROWS = 300_000  # states with actions
MOST_ENTRIES = 5_000_000  # numbers that one table may hold; more is refused before it is made
FREE_ENTRIES = 500_000  # of them that a file may ask for in a few words; and A_WORD for each word
A_WORD = 10
MOST_REWARDS = 100_000_000  # numbers that all R entries together may set
PREAMBLE = ("discount", "values", "states", "actions", "observations", "start")
ENTRIES = {"T": ("action", "state", "state"), "O": ("action", "state", "observation")}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
NAME = re.compile(r"[^\W\d][\w.\-]*")
NOTHING = "nothing yet"  # what is seen at the start; no name of a file has a space


@dataclass(frozen=True, eq=False)
class PomdpFile:
    """What a file says; rows are state A + action, as in a TabularMDP."""

    discount: float
    values: str  # "reward" or "cost"
    states: tuple[str, ...]  # [S] names, or numbers as text
    actions: tuple[str, ...]  # [A]
    observations: tuple[str, ...]  # [Z], none in an .mdp file
    start: Floats  # [S] distribution of the first state
    transition: sparse.csr_array  # [S A, S]
    reward: sparse.csr_array  # [S A, S] as in the file (a cost is not negated), over observations
    observation: sparse.csr_array | None  # [S A, Z] seen on arrival in a state after an action
    reward_by_observation: bool  # whether rewards depend on what is seen, and `reward` is a mean

    def mdp(self, outcomes: Mapping[str, Outcome] | None = None) -> TabularMDP:
        """Return the model as if states were seen; costs become negative rewards.

        `outcomes` {name of a state: Outcome} says which states are ends, since the format knows
        none; transitions into them keep the reward of the file. Rewards that depend on the
        observation are averaged over what is seen on arrival.
        """
        ends, which = self._ends(outcomes)
        moves, earned = self.transition.copy(), self._earned()
        for matrix in (moves, earned):
            matrix.resize((matrix.shape[0], len(self.states) + len(ends)))
        return TabularMDP.from_arrays(
            moves,
            reward=earned,
            outcomes=ends,
            absorbing={int(state): int(which[state]) for state in np.flatnonzero(which >= 0)},
            actions=len(self.actions),
            initial=self.start,
        )

    def pomdp(self, outcomes: Mapping[str, Outcome] | None = None) -> TabularPOMDP:
        """Return the model with its states hidden; costs become negative rewards.

        In this format what is seen comes on arrival and depends on the action, so that the hidden
        state is a state of the file and the last action. Actions that show the same everywhere
        count as one. Noise stays on the file's states. Before the first action "nothing yet" is
        seen: an observation after those of the file, which keep their numbers. Where rewards depend
        on what is seen the model has their means, and logged rewards tell nothing of the state
        (`reward_seen=False`). `outcomes` as in `mdp`; a file without observations shows its states.
        """
        actions = [Variable("action", self.actions)]
        if self.observation is None:
            seen = TabularPOMDP.from_mdp(
                self.mdp(outcomes), states=[Variable("state", self.states)], actions=actions
            )
            levels = *self.states, *(f"end: {outcome.name}" for outcome in seen.outcomes)
            return replace(seen, state_variables=(Variable("state", levels),))
        ends, which = self._ends(outcomes)
        group, names = self._showing_alike(self.observation)
        size, count, last = len(self.states), len(self.actions), len(names)
        if self.transition.nnz * (last + 1) > 4 * MOST_ENTRIES:
            raise ValueError(
                f"{self.transition.nnz:,} transitions, each after any of {last} kinds of actions, "
                f"are more than {4 * MOST_ENTRIES:,}; give a smaller model"
            )
        state, memory = np.divmod(np.arange(size * (last + 1)), last + 1)
        of_kind = [int((group == kind).argmax()) for kind in range(last)]
        blank = sparse.csr_array((size, len(self.observations)))
        shown = sparse.vstack([self.observation[action::count] for action in of_kind] + [blank])
        shown = sparse.csr_array(shown)[memory * size + state]
        nothing = sparse.csr_array((memory == last).astype(np.float64)[:, None])
        return TabularPOMDP.from_arrays(
            self._remembering(self.transition, group, last),
            sparse.hstack([shown, nothing]),
            initial=np.where(memory == last, self.start[state], 0.0),
            outcome=which[state],
            outcomes=ends,
            reward=self._remembering(self._earned(), group, last),
            labels=state,
            states=[Variable("state", self.states), Variable("last action", (*names, "none yet"))],
            observations=[Variable("observation", (*self.observations, NOTHING))],
            actions=actions,
            reward_seen=not self.reward_by_observation,
        )

    def _ends(self, outcomes: Mapping[str, Outcome] | None) -> tuple[tuple[Outcome, ...], Integers]:
        """Return the outcomes, and which of them each state is [S], -1 for none."""
        ends = tuple(dict.fromkeys((outcomes or {}).values()))
        which = np.full(len(self.states), -1, np.int32)
        for name, outcome in (outcomes or {}).items():
            if name not in self.states:
                raise ValueError(f"outcomes: there is no state {name!r}; name one of the file's")
            which[self.states.index(name)] = ends.index(outcome)
        return ends, which

    def _earned(self) -> sparse.csr_array:
        return -self.reward if self.values == "cost" else self.reward.copy()

    def _showing_alike(self, shown: sparse.csr_array) -> tuple[Integers, list[str]]:
        """Group actions after which every state shows the same: group [A], and names of groups."""
        count = len(self.actions)
        kinds: dict[bytes, int] = {}
        group = np.empty(count, np.int32)
        for action in range(count):
            rows = sparse.csr_array(shown[action::count])
            rows.sort_indices()
            parts = rows.indptr, rows.indices, rows.data
            key = b"|".join(part.tobytes() for part in parts)
            group[action] = kinds.setdefault(key, len(kinds))
        if len(kinds) == 1:
            return group, ["any"]
        members = [np.flatnonzero(group == kind) for kind in range(len(kinds))]
        return group, [" or ".join(self.actions[action] for action in mine) for mine in members]

    def _remembering(self, rows: sparse.csr_array, group: Integers, last: int) -> sparse.csr_array:
        """Rows [S A, S] as those of states with memory, which then remember the row's action."""
        size, count = len(self.states), len(self.actions)
        entries = rows.tocoo()
        state, action = np.divmod(entries.row.astype(np.int64), count)
        reached = entries.col.astype(np.int64) * (last + 1) + group[action]
        before = state[None, :] * (last + 1) + np.arange(last + 1)[:, None]
        row = before * count + action
        place = row.ravel(), np.tile(reached, last + 1)
        shape = size * (last + 1) * count, size * (last + 1)
        return sparse.csr_array((np.tile(entries.data, last + 1), place), shape=shape)


def read_pomdp_file(path: str | Path) -> PomdpFile:
    """Read a model in Cassandra's format; a mistake says its line and what to do."""
    return _Parser(Path(path)).parse()


class _Token(NamedTuple):
    text: str
    line: int


class _Rule(NamedTuple):
    """One entry R: values for places of which None means all."""

    action: int | None
    state: int | None
    reached: int | None
    seen: int | None
    value: Floats  # [1], or [1, Z] or [S, Z] over what follows (.mdp file: [1, S] or [S, S])


class _Table:
    """Rows of probabilities, filled entry by entry; later entries overwrite."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # actions, states, columns
        self.rows: dict[int, dict[int, float]] = {}  # row state A + action: column: probability
        self.own: set[int] = set()  # rows whose dictionary no other row shares
        self.line: dict[int, int] = {}  # where each row was last written
        self.written = 0

    def add(self, row: int, entries: dict[int, float], line: int, *, whole: bool) -> None:
        """Write a whole row, or entries of it; rows share their entries until one is changed."""
        if whole:
            self.rows[row] = entries
            self.own.discard(row)
        elif row in self.own:
            self.rows[row].update(entries)
        elif row not in self.rows:
            self.rows[row] = entries
        else:
            self.rows[row] = {**self.rows[row], **entries}
            self.own.add(row)
        self.line[row] = line

    def matrix(self) -> sparse.csr_array:
        actions, states, columns = self.shape
        lengths = np.fromiter(map(len, self.rows.values()), np.int64, len(self.rows))
        row = np.repeat(np.fromiter(self.rows, np.int64, len(self.rows)), lengths)
        column = np.fromiter((c for row in self.rows.values() for c in row), np.int64, len(row))
        data = np.fromiter((p for r in self.rows.values() for p in r.values()), float, len(row))
        matrix = sparse.csr_array((data, (row, column)), (states * actions, columns))
        matrix.eliminate_zeros()
        return matrix


def _grouped(codes: NDArray[np.integer], count: int) -> list[NDArray[np.int64]]:
    """Return for each code the places where it stands, in order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.searchsorted(codes[order], np.arange(1, count)))


class _Parser:
    """Reads tokens one after the other; knows the line of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        check_size(path, MOST_BYTES, "a model")
        raw = path.read_bytes()
        try:
            lines = raw.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            self.line = raw[: error.start].count(b"\n") + 1
            self.fail("this is no text in UTF-8; give a .pomdp or .mdp file")
        self.tokens = [
            _Token(text, number)
            for number, line in enumerate(lines, 1)
            for text in re.findall(r":|\*|[^\s:*]+", line.split("#", 1)[0])
        ]
        self.most = min(MOST_ENTRIES, FREE_ENTRIES + A_WORD * len(self.tokens))
        self.next = 0
        self.line = 1
        self.discount: float | None = None
        self.values: str | None = None
        self.names: dict[str, tuple[str, ...]] = {}
        self.codes: dict[str, dict[str, int]] = {}
        self.start: Floats | None = None
        self.tables: dict[str, _Table] = {}
        self.rules: list[_Rule] = []

    def fail(self, problem: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {self.line}: {problem}")

    # tokens

    def peek(self, ahead: int = 0) -> str | None:
        at = self.next + ahead
        return self.tokens[at].text if at < len(self.tokens) else None

    def take(self, wanted: str) -> str:
        if self.next >= len(self.tokens):
            self.fail(f"the file ends where {wanted} should stand; add it")
        token = self.tokens[self.next]
        self.next += 1
        self.line = token.line
        return token.text

    def colon(self, after: str) -> None:
        text = self.take("':'")
        if text != ":":
            self.fail(f"{text!r} after {after}; put ':' between them")

    def number(self, what: str) -> float:
        text = self.take(what)
        if not NUMBER.fullmatch(text) or not np.isfinite(float(text)):
            self.fail(f"{text!r} where {what} should stand; give a number")
        return float(text)

    def starts_entry(self) -> bool:
        """Whether the next tokens begin another entry: a keyword and ':' (or include, exclude)."""
        word = self.peek()
        if word == "start" and self.peek(1) in ("include", "exclude"):
            return True
        return word in (*PREAMBLE, *ENTRIES, "R") and self.peek(1) == ":"

    def place(self, noun: str) -> int | None:
        """Take a name, a number or '*' (None)."""
        text = self.take(f"the name or number of the {noun}, or '*',")
        if text == "*":
            return None
        code = self.codes[noun].get(text)
        if code is None and text.isascii() and text.isdigit() and len(text) < 10:
            code = int(text)
        if code is None or code >= len(self.names[noun]):
            names = ", ".join(self.names[noun][:8])
            self.fail(f"no {noun} {text!r}; there are {len(self.names[noun])}: {names}")
        return code

    # the file

    def parse(self) -> PomdpFile:
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
        start = self.start_vector()
        transition = self.finished("T")
        seen = self.finished("O") if self.names["observation"] else None
        reward, by_observation = self.rewards(transition, seen)
        return PomdpFile(
            discount=float(self.discount or 0),
            values=str(self.values),
            states=self.names["state"],
            actions=self.names["action"],
            observations=self.names["observation"],
            start=start,
            transition=transition,
            reward=reward,
            observation=seen,
            reward_by_observation=by_observation,
        )

    def refuse_entry(self, word: str) -> NoReturn:
        self.fail(
            f"{word!r} is no entry; give one of {', '.join(PREAMBLE)}, T, O or R, and see that "
            "rows above have the right length"
        )

    def preamble(self, word: str) -> None:
        known = {"discount": self.discount, "values": self.values, "start": self.start}
        if self.tables:
            self.fail(f"{word!r} after the first T, O or R; move it to the top")
        if known.get(word) is not None or word.removesuffix("s") in self.names:
            self.fail(f"{word!r} stands there twice; keep one of them")
        if word == "start":
            self.start_entry()
            return
        self.colon(word)
        if word == "discount":
            self.discount = self.number("the discount")
            if not 0 <= self.discount <= 1:
                self.fail(f"discount {self.discount}; give a number from 0 to 1")
        elif word == "values":
            self.values = self.take("reward or cost")
            if self.values not in ("reward", "cost"):
                self.fail(f"values {self.values!r}; give reward or cost")
        else:
            self.list_names(word.removesuffix("s"))

    def list_names(self, noun: str) -> None:
        first = self.peek() or ""
        if NUMBER.fullmatch(first):
            self.take("a number")
            whole = first.isdigit() and len(first) < 10 and 1 <= int(first) <= MOST_NAMES
            if not whole:
                self.fail(f"{first} {noun}s; give a whole number from 1 to {MOST_NAMES:,}")
            given = [str(code) for code in range(int(first))]
        else:
            given = []
            while self.peek() is not None and not self.starts_entry():
                given.append(self.take("a name"))
                if self.peek() == ":":
                    self.refuse_entry(given[-1])
                if not NAME.fullmatch(given[-1]):
                    self.fail(f"{given[-1]!r} is no name for {noun}s; begin it with a letter")
                if self.codes.setdefault(noun, {}).setdefault(given[-1], len(given)) < len(given):
                    self.fail(f"{noun} {given[-1]!r} stands there twice; give different names")
        if not given:
            self.fail(f"no {noun}s; give their number or their names")
        self.names[noun] = tuple(given)
        self.codes[noun] = {name: code for code, name in enumerate(given)}

    def begin(self, word: str) -> None:
        """See that the preamble is complete, and make the tables before their first entry."""
        if self.tables:
            return
        for name, value in (
            ("discount", self.discount),
            ("values", self.values),
            ("states", self.names.get("state")),
            ("actions", self.names.get("action")),
        ):
            if value is None:
                self.fail(f"no {name!r} before {word}; add a line '{name}: ...' at the top")
        self.names.setdefault("observation", ())
        self.codes.setdefault("observation", {})
        actions, states, seen = (
            len(self.names[noun]) for noun in ("action", "state", "observation")
        )
        if actions * states > MOST_ROWS:
            self.fail(
                f"{states} states with {actions} actions are {actions * states:,} rows, more than "
                f"{MOST_ROWS:,}; give a smaller model"
            )
        self.tables = {"T": _Table((actions, states, states)), "O": _Table((actions, states, seen))}

    # start

    def start_entry(self) -> None:
        if "state" not in self.names:
            self.fail("'start' before 'states'; list the states first")
        states = len(self.names["state"])
        mode = self.peek()
        if mode in ("include", "exclude"):
            self.take(mode)
        self.colon("start")
        given = []
        while self.peek() is not None and not self.starts_entry():
            given.append(self.take("a state"))
            if mode not in ("include", "exclude") and len(given) > states:
                self.fail(f"more than {states} numbers; give one for each state")
        chosen = np.zeros(states)
        if mode in ("include", "exclude") or (
            len(given) == 1 and states > 1 and given[0] != "uniform"
        ):
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
            self.check_row(chosen, "start")
        self.start = chosen / chosen.sum()

    def start_vector(self) -> Floats:
        states = len(self.names["state"])
        return np.full(states, 1 / states) if self.start is None else self.start

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
                f"{word} would hold more than {self.most:,} numbers, too many for so short a file "
                "or for any; name the states that can "
                "follow instead of '*', 'uniform' or whole rows"
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
                whole = len(places) < 3
                table.add(row * actions + action, entries, line, whole=whole)

    def places(self, word: str, nouns: tuple[str, ...]) -> list[int | None]:
        """Take ': place' as often as it comes, at least once, at most once a noun."""
        self.colon(word)
        places = [self.place(nouns[0])]
        while self.peek() == ":":
            self.take("':'")
            if len(places) == len(nouns):
                self.fail(f"a {word} entry has at most {len(nouns)} places; leave out the rest")
            places.append(self.place(nouns[len(places)]))
        return places

    def block(self, word: str, rows: int, columns: int) -> list[dict[int, float]]:
        """Take rows of probabilities, or the word that stands for them."""
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
            start = self.start_vector()
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

    def check_row(self, row: Floats, what: str) -> None:
        if (row < 0).any() or abs(row.sum() - 1) > ROW_TOLERANCE:
            self.fail(
                f"{what} has numbers that sum to {row.sum():.9g}; give probabilities that sum to 1"
            )

    def finished(self, word: str) -> sparse.csr_array:
        """Return a table whose rows all sum to one."""
        table = self.tables[word]
        actions = table.shape[0]
        matrix = table.matrix()
        totals = matrix.sum(axis=1)
        wrong = np.abs(totals - 1) > 1e-5  # files round to six digits; scaled below
        if wrong.any():
            row = int(wrong.argmax())
            state, action = divmod(row, actions)
            where = f"{self.names['action'][action]} : {self.names['state'][state]}"
            self.line = table.line.get(row, self.tokens[-1].line)
            if row not in table.line:
                self.fail(f"there is no {word}: {where} in the file; add its row")
            self.fail(f"{word}: {where} sums to {totals[row]:.9g}, not to 1; correct its row")
        scaled = sparse.diags_array(1 / totals) @ matrix
        return sparse.csr_array(scaled)

    # R

    def reward_entry(self) -> None:
        line, states = self.line, len(self.names["state"])
        seen = len(self.names["observation"])
        nouns = ("action", "state", "state", "observation")[: 4 if seen else 3]
        places = self.places("R", nouns)
        missing = len(nouns) - len(places)
        if missing > 2:
            self.line = line
            self.fail("R: action and a matrix, but rewards also depend on states; name the state")
        if missing == 0:
            value = np.array([self.number("a reward")])
        else:
            shape = (states if missing == 2 else 1, seen or states)
            if shape[0] * shape[1] > MOST_ENTRIES:
                self.fail(f"R has more than {MOST_ENTRIES:,} numbers; give a smaller model")
            value = np.stack([self.numbers(shape[1], "R") for _ in range(shape[0])])
        action, state, reached, observed = (*places, None, None, None)[:4]
        self.rules.append(_Rule(action, state, reached, observed, value))

    def rewards(
        self, transition: sparse.csr_array, seen: sparse.csr_array | None
    ) -> tuple[sparse.csr_array, bool]:
        """Return rewards of transitions that can happen, and whether they are means.

        Means over what is seen on arrival, where it makes a difference.
        """
        actions, width = len(self.names["action"]), max(1, len(self.names["observation"]))
        first, reached = transition.indptr, transition.indices
        if len(reached) * width > 4 * MOST_ENTRIES:
            self.fail(f"R has more than {4 * MOST_ENTRIES:,} numbers; give a smaller model")
        row = np.repeat(np.arange(transition.shape[0]), np.diff(first))
        state, action = np.divmod(row, actions)
        earned = np.zeros((len(row), width))
        every = np.arange(len(row))
        of_action = _grouped(action, actions)
        of_reached = _grouped(reached, transition.shape[1])
        touched = 0
        for rule in self.rules:
            if rule.state is not None:
                low = rule.state * actions + (rule.action or 0)
                high = low + (actions if rule.action is None else 1)
                at = every[first[low] : first[high]]
            elif rule.reached is not None:
                at = of_reached[rule.reached]
                at = at if rule.action is None else at[action[at] == rule.action]
            else:
                at = every if rule.action is None else of_action[rule.action]
            if rule.reached is not None:
                at = at[reached[at] == rule.reached]
            touched += len(at) * width
            if touched > MOST_REWARDS:
                self.fail(
                    f"the R entries set more than {MOST_REWARDS:,} numbers; leave out those that "
                    "later ones overwrite"
                )
            if rule.value.size == 1 and rule.value.ndim == 1:
                earned[at, slice(None) if rule.seen is None else rule.seen] = rule.value[0]
            elif seen is None:
                line = state[at] if len(rule.value) > 1 else 0
                earned[at, 0] = rule.value[line, reached[at]]
            else:
                earned[at] = rule.value[reached[at] if len(rule.value) > 1 else 0]
        mean, averaged = earned[:, 0], False
        if seen is not None:
            chance = sparse.csr_array(seen[reached * actions + action])
            entry = np.repeat(every, np.diff(chance.indptr))
            value = earned[entry, chance.indices]
            least = np.minimum.reduceat(value, chance.indptr[:-1])
            most = np.maximum.reduceat(value, chance.indptr[:-1])
            average = np.bincount(entry, chance.data * value, len(row))
            mean = np.where(least == most, least, average)
            averaged = bool((least < most).any())
        return sparse.csr_array((mean, reached, first), transition.shape), averaged

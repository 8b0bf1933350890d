"""The plane on which one episode is drawn: a strip for each variable, from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from butfor.log.combinations import Combinations, state_codes
from butfor.log.variables import Outcome, Variable, count_levels
from butfor.present.charts.style import GREEN, LINE_HEIGHT, SMALL, Row, text_width, wrap
from butfor.present.text import STEPS, Clock

NAMES = 128  # room for the names of variables
LEVELS = (82, 176)  # least and most room for the names of their levels
MARGIN = 12  # of this room
WIDER = 1.18  # by how much letters may be wider than expected: browsers lack some fonts
PLOT = 500  # width of the part with the steps
LEVEL = 21  # height of a level
LINES = 3  # of a level's name
NARROW = 15  # height of a level if there are many
HIDDEN_LEVEL = 16  # of a hidden variable, which has two strips
MOST = 8  # levels at full height; more are narrower
MOST_NAMED = 30  # with more of them they get thinner and some go unnamed
GAP = 9  # between strips
LEAST = {"side": 3.4, "inferred": 3.0, "policy": 3.0}  # lines that the name and its note take
EVIDENCE = 28  # height of the row of similar past cases
OUTCOMES = 88  # height of the row of outcomes by step
CROSS = "M-.7,-1L0,-.3L.7,-1L1,-.7L.3,0L1,.7L.7,1L0,.3L-.7,1L-1,.7L-.3,0L-1,-.7Z"
BAD = ("#BF4C00", "#A0356F")  # colors of outcomes, in turn; white words on them are legible
GOOD = (GREEN, "#005A8C")


@dataclass(frozen=True)
class Strip:
    """The strip of one variable; its first level is at the bottom."""

    # state, side (never given to the model), inferred (a hidden variable as it happened), policy
    # (the same under the policy), running (a treatment that the state records) or action
    kind: str
    variable: Variable
    top: float
    level: float  # height of one level
    first: int  # number of its first level among those of all strips

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Number of each of its levels among those of all strips."""
        return {level: self.first + code for code, level in enumerate(self.variable.levels)}

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.top + self.level * len(self.variable.levels)

    def y(self, code: float) -> float:
        """Middle of a level."""
        return self.bottom - self.level * (code + 0.5)


@dataclass(frozen=True)
class TrajectoryLayout:
    """The plane on which the episodes of a log are drawn."""

    state: tuple[Variable, ...]
    action: tuple[Variable, ...]
    side: tuple[Variable, ...]
    outcomes: tuple[Outcome, ...]
    none: str  # the name of having no outcome
    horizon: int
    with_model: bool = True  # whether there are rows for evidence and outcomes by step
    with_policy: bool = False  # without a model: whether the policy's treatments are shaded
    hidden: tuple[Variable, ...] = ()  # inferred by the model; drawn only with it
    draws: int = 0  # number of drawn paths that the legend names
    clock: Clock = STEPS
    # level codes of the states of a wide log and its draws
    combinations: Combinations | None = field(default=None, compare=False)

    @property
    def n_states(self) -> int:
        """Number of states; outcomes are numbered after them."""
        return count_levels(self.state) if self.combinations is None else len(self.combinations)

    def codes(self, state: NDArray[np.integer]) -> dict[str, NDArray[np.intp]]:
        """Return the level code of each state variable, by name, of states given by number."""
        return state_codes(self.state, self.combinations, state)

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        """What the model was given, then what it was not, what it inferred, and treatments."""
        actions = {variable.name: variable for variable in self.action}
        running = {v.name: v for v in self.state if v.name in actions}
        chosen = [("state", v) for v in self.state if v.name not in actions and not v.static]
        chosen += [("side", v) for v in self.side if not v.static]
        if self.with_model:
            chosen += [
                (kind, v) for v in self.hidden if not v.static for kind in ("inferred", "policy")
            ]
        chosen += [
            ("running", running[name]) if name in running else ("action", variable)
            for name, variable in actions.items()
        ]
        strips: list[Strip] = []
        top, first = 0.0, 0
        for kind, variable in chosen:
            least = LINE_HEIGHT * LEAST.get(kind, 2.1)
            high = max(self._height(kind, variable), least)
            strips.append(Strip(kind, variable, top, high / len(variable.levels), first))
            top += high + GAP
            first += len(variable.levels)
        return tuple(strips)

    def _height(self, kind: str, variable: Variable) -> float:
        """Height of a strip on which the names of levels have room."""
        count = len(variable.levels)
        if count > MOST_NAMED:
            return LEVEL * MOST
        if count > MOST:
            return NARROW * count
        lines = max(len(self._lines(level)) for level in variable.levels)
        level = HIDDEN_LEVEL if kind in ("inferred", "policy") else LEVEL
        return count * max(level, LINE_HEIGHT * lines + 5 if lines > 1 else 0)

    def _lines(self, level: str) -> list[str]:
        """Break the name of a level into lines."""
        return wrap(level, (self.level_room - MARGIN) / WIDER, SMALL, lines=LINES)

    @cached_property
    def level_room(self) -> int:
        """Width of the names of levels."""
        shown = (*self.state, *self.action, *self.side, *self.hidden)
        names = (level for variable in shown if not variable.static for level in variable.levels)
        widest = max((text_width(name, SMALL) for name in names), default=0.0)
        return int(min(max(WIDER * widest + MARGIN, LEVELS[0]), LEVELS[1]))

    @property
    def left(self) -> int:
        """Width of what is left of the steps: names of variables and of their levels."""
        return NAMES + self.level_room

    @property
    def shows_decisions(self) -> bool:
        """Whether a treatment is drawn when it is decided: the state does not record it."""
        return any(strip.kind == "action" for strip in self.strips)

    def numbers(self, *kinds: str) -> dict[tuple[str, str], int]:
        """Number of each level on strips of these kinds, by variable and level."""
        return {
            (strip.variable.name, level): number
            for strip in self.strips
            if strip.kind in kinds
            for level, number in strip.numbers.items()
        }

    @property
    def names(self) -> list[str]:
        """Names of all outcomes, that of none last."""
        return [*(outcome.name for outcome in self.outcomes), self.none]

    @property
    def evidence_top(self) -> float:
        """Top of the row of similar past cases."""
        return self.strips[-1].bottom + GAP

    @property
    def outcomes_top(self) -> float:
        """Top of the row of outcomes by step."""
        return self.evidence_top + EVIDENCE + GAP

    @property
    def height(self) -> int:
        """Height of the plane."""
        return int(self.outcomes_top + OUTCOMES if self.with_model else self.strips[-1].bottom)

    @cached_property
    def looks(self) -> tuple[Row, ...]:
        """Color and shape of each outcome: a cross if it is bad, else a diamond."""
        colors = {True: cycle(BAD), False: cycle(GOOD)}
        return tuple(
            {
                "outcome": outcome.name,
                "color": next(colors[outcome.bad]),
                "shape": CROSS if outcome.bad else "diamond",
            }
            for outcome in self.outcomes
        )

    @cached_property
    def level_rows(self) -> list[Row]:
        """One row per level: where it is, and its name unless there are too many."""
        rows: list[Row] = []
        for strip in self.strips:
            count = len(strip.variable.levels)
            every = 1 if count <= MOST_NAMED else -(-count // MOST)
            for code, (level, number) in enumerate(strip.numbers.items()):
                # more levels than have full height are named in one line, shortened if need be
                label = self._lines(level) if count <= MOST else [level]
                y = strip.y(code)
                rows.append(
                    {
                        "k": number,
                        "kind": strip.kind,
                        "variable": strip.variable.name,
                        "level": level,
                        "label": label if code % every == 0 else [],
                        "y_label": round(y - LINE_HEIGHT * (len(label) - 1) / 2, 2),
                        "top": round(strip.y(code + 0.5), 2),
                        "bottom": round(strip.y(code - 0.5), 2),
                        "y": round(y, 2),
                        "room": max(strip.level, LEVEL / 2),
                    }
                )
        return rows

    @cached_property
    def limit_rows(self) -> list[Row]:
        """Where the levels that count as normal begin and end."""
        rows: list[Row] = []
        for strip in self.strips:
            normal = [level in strip.variable.normal for level in strip.variable.levels]
            edges = np.flatnonzero(np.diff([False, *normal, False])).tolist()
            rows += [{"y": strip.y(edge - 0.5)} for edge in edges]
        return rows

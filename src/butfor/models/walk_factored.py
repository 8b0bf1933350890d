"""Many particles that walk through a factored model, along logged episodes or by the model alone.

One particle depends only on the key of its group and its number, not on other particles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.mechanisms.independent import Independent
from butfor.models.factored import NEXT, FactoredModel
from butfor.models.predictor import Codes
from butfor.models.step_factored import FactoredSteps, Record, Stream
from butfor.threads import in_blocks
from butfor.types import Floats, Keys, Offsets, Progress

MOST_TOGETHER = 1 << 16  # particles that take a step together
FEW_TOGETHER = 1 << 13  # a step of fewer takes nearly as long

# draws the action of each particle, given the level codes of its state and its logged step
Act = Callable[[Codes, Stream, Offsets], NDArray[np.intp]]
Rows = Callable[[NDArray[np.int64]], Floats]  # level codes [m, J] → distributions of actions [m, A]


@dataclass(frozen=True, eq=False)
class Starts:
    """Where m groups of particles begin, and what was logged from there on."""

    codes: Codes  # [m] of the first state
    steps: Offsets  # [m] that each particle may take
    keys: Keys  # [m]
    row: Offsets  # [m] the logged step with which each begins
    logged: Offsets  # [m] logged steps from there on; 0: the model alone
    action: NDArray[np.intp] | None = None  # [m] the first action, if it is given

    @classmethod
    def unlogged(
        cls,
        codes: Codes,
        steps: Offsets,
        keys: Keys,
        action: NDArray[np.intp] | None = None,
    ) -> Starts:
        """Return starts from which only the model goes on."""
        none = np.zeros(len(steps), np.int64)
        return cls(codes, steps, keys, none, none, action)


class Moved(NamedTuple):
    """One step of the p particles that have not ended."""

    t: int
    group: Offsets  # [p] which of the starts it comes from
    draw: Offsets  # [p] its number there
    step: Offsets  # [p] its logged step; -1: none
    codes: Codes  # [p] of the state, the action and the next state, by parent
    action: NDArray[np.intp]  # [p]
    end: NDArray[np.intp]  # [p] outcome; O: none
    reward: Floats  # [p]
    ratio: Floats  # [p] probability of the step in the model over that with which it was drawn


class Walk(NamedTuple):
    """How particles move and act."""

    moves: FactoredSteps
    act: Act
    record: Record | None = None  # what the log shows; None: nothing

    def run(
        self,
        starts: Starts,
        count: int,
        note: Callable[[Moved], None],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Let `count` particles of each start walk, in blocks, and note each of their steps."""

        def work(first: int, last: int) -> None:
            for moved in self._block(starts, count, first, last):
                note(moved)

        in_blocks(
            work,
            len(starts.steps),
            threads=threads,
            progress=progress,
            largest=max(1, MOST_TOGETHER // count),
            smallest=max(1, FEW_TOGETHER // count),
        )

    def returns(
        self,
        starts: Starts,
        count: int,
        discount: float,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        note: Callable[[Moved], None] = lambda _: None,
    ) -> tuple[NDArray[np.int16], Floats]:
        """Return how each particle ends (O: none) and its discounted rewards, both [m, count]."""
        shape = (len(starts.steps), count)
        end = np.full(shape, len(self.moves.model.outcomes), np.int16)
        earned, weight = np.zeros(shape), np.ones(shape)
        kept = {
            NEXT + variable.name: discount ** np.array(variable.durations)
            for variable in self.moves.model.state_variables
            if variable.durations
        }

        def add(moved: Moved) -> None:
            at = moved.group, moved.draw
            earned[at] += weight[at] * moved.reward
            weight[at] *= next((by[moved.codes[name]] for name, by in kept.items()), discount)
            end[at] = moved.end
            note(moved)

        self.run(starts, count, add, threads=threads, progress=progress)
        return end, earned

    def _block(self, starts: Starts, count: int, first: int, last: int) -> Iterator[Moved]:
        """Yield the steps of all particles of starts first .. last - 1, which go together."""
        group = np.repeat(np.arange(first, last), count)
        draw = np.tile(np.arange(count), last - first)
        codes = {name: code[group] for name, code in starts.codes.items()}
        names = [variable.name for variable in self.moves.model.state_variables]
        t = 0
        while len(group):
            going = t < starts.steps[group]
            if not going.all():
                group, draw = group[going], draw[going]
                codes = {name: code[going] for name, code in codes.items()}
                continue
            step = np.where(t < starts.logged[group], starts.row[group] + t, -1)
            stream = Stream(starts.keys[group], draw * kernels.DRAW_STRIDE + t * self.moves.numbers)
            if t == 0 and starts.action is not None:
                action = starts.action[group]
            else:
                action = self.act(codes, stream, step)
            drawn = self.moves.draw(codes, action, stream, self.record, step)
            yield Moved(t, group, draw, step, drawn.codes, action, *drawn[1:])
            going = drawn.end == len(self.moves.model.outcomes)
            group, draw = group[going], draw[going]
            codes = {name: drawn.codes[NEXT + name][going] for name in names}
            t += 1


def model_walk(model: FactoredModel, rows: Rows) -> Walk:
    """Return how particles walk through the model alone under a policy."""
    coupling = Independent().coupling(model.n_actions)

    def act(codes: Codes, stream: Stream, step: Offsets) -> NDArray[np.intp]:
        wanted = rows(np.stack(list(codes.values()), axis=1))
        action, none = np.empty(len(wanted), np.intp), np.full(len(wanted), -1)
        ones = np.ones(len(wanted))
        place = np.arange(len(wanted))
        kernels.draw_levels(coupling, wanted, place, none, none, *stream, 0, action, ones)
        return action

    return Walk(FactoredSteps(model, Independent().coupling), act)

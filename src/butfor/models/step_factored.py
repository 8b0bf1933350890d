"""Steps of a factored model for many particles at once, and all their steps, for any size of state.

Without evidence a step is one of the model. Given a logged step, each variable comes from its exact
counterfactual row: its row in the logged step, its logged level, and its row for this particle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.log.episodes import Episodes
from butfor.mechanisms.independent import Independent
from butfor.models.factored import (
    ACTION,
    END,
    NEXT,
    AnyFactor,
    Factor,
    FactoredModel,
    logged_codes,
)
from butfor.models.learners import Codes, Predictor, make_features
from butfor.threads import in_blocks
from butfor.types import Floats, Keys, Offsets, Progress

# number of levels → a mechanism as kernels take it; a name in quotes does not load numba
Couple = Callable[[int], "kernels.Coupling"]
MOST_TOGETHER = 1 << 16  # particles that take a step together
FEW_TOGETHER = 1 << 13  # a step of fewer takes nearly as long
Rows = Callable[[NDArray[np.int64]], Floats]  # level codes [m, J] → distributions of actions [m, A]


class Stream(NamedTuple):
    """Where the random numbers of m particles come from."""

    keys: Keys  # [m]
    first: Offsets  # [m] counter of the first number of this step


@dataclass(frozen=True, eq=False)
class Logged:
    """What a log shows of one factor at each of its N steps."""

    codes: Codes  # [N] levels of all parents
    level: Offsets  # [N] its own; -1: not logged
    rows: Floats  # [R, levels] those of its table; without one, R = N predictions
    place: Offsets  # [N] which of these rows is that of the step


class Record(NamedTuple):
    """What a log shows at each of its N steps."""

    factors: list[Logged]  # of each factor
    reward: Floats  # [N]


class Drawn(NamedTuple):
    """One step of m particles."""

    codes: Codes  # [m] levels of the state, the action and the next state, by parent
    end: NDArray[np.intp]  # [m] outcome; O: none
    reward: Floats  # [m]
    ratio: Floats  # [m] probability of the step in the model over that with which it was drawn


class FactorSampler:
    """Draws the levels of one variable of the next state, or the end."""

    def __init__(self, factor: AnyFactor, couple: Couple) -> None:
        self.factor = factor
        self.coupling = couple(factor.levels)
        self.tabled = factor if isinstance(factor, Factor) else None
        if self.tabled is not None:
            self.table = np.ascontiguousarray(factor.table.reshape(-1, factor.levels))

    def observe(self, codes: Codes, level: Offsets) -> Logged:
        """Return what a log shows, given the codes [N] of its parents and its levels."""
        if self.tabled is None:
            return Logged(codes, level, self.factor.rows(codes), np.arange(len(level)))
        return Logged(codes, level, self.table, self.tabled.place(codes, len(level)))

    def draw(
        self,
        codes: Codes,
        stream: Stream,
        offset: int,
        logged: Logged | None,
        alike: Alike,
        ratio: Floats,
    ) -> NDArray[np.intp]:
        """Draw a level for each particle, [m].

        `ratio` [m] is multiplied by that of the level (see `Drawn`).
        """
        step, count = alike.step, len(alike.step)
        factual, observed = np.full(count, -1), np.full(count, -1)
        if logged is not None:
            observed = np.where(step >= 0, logged.level[step], -1)
            factual = np.where(observed >= 0, logged.place[step], -1)
        if self.tabled is not None:
            rows, own = self.table, self.tabled.place(codes, count)
        else:
            rows, own, factual = self._predict(alike, logged, factual)
        level = np.empty(count, np.intp)
        kernels.draw_levels(
            self.coupling, rows, own, factual, observed, *stream, offset, level, ratio
        )
        return level

    def _predict(
        self, alike: Alike, logged: Logged | None, factual: Offsets
    ) -> tuple[Floats, Offsets, Offsets]:
        """Return the rows that are needed, and which of them each particle has and had."""
        same, columns = alike.to_predict(self.factor.parents)
        rows = np.empty((0, self.factor.levels))
        if logged is not None:
            rows, factual = logged.rows[alike.used], np.where(factual >= 0, alike.place, -1)
        own = alike.place.copy()
        own[~same] = len(rows) + np.arange(columns.shape[1])
        if columns.shape[1]:
            assert isinstance(self.factor, Predictor)
            learned = self.factor.learned_from
            if learned.plain:
                found = learned.rows_of(alike.features(self.factor.parents, learned.sizes))
            else:
                found = learned.rows(columns)
            rows = np.concatenate([rows, found])
        return rows, own, factual


class Alike:
    """Which particles are as the logged step was: they need no prediction, and are exactly so.

    Many variables have the same parents; each set of parents is compared once.
    """

    def __init__(self, codes: Codes, logged: Codes | None, step: Offsets) -> None:
        self.codes, self.logged, self.step = codes, logged, step
        self.used, place = np.unique(step[step >= 0], return_inverse=True)
        self.place = np.full(len(step), -1)  # [m] position of a particle's step among those used
        self.place[step >= 0] = place
        self._found: dict[tuple[str, ...], tuple[NDArray[np.bool_], NDArray[np.intp]]] = {}
        self._same: dict[str, NDArray[np.bool_]] = {}
        self._features: dict[tuple[str, ...], NDArray[np.float32]] = {}

    def to_predict(self, parents: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Return whether all parents are as they were, [m], and their codes where not, [V, …]."""
        if parents not in self._found:
            same = self.repeat(parents)
            columns = np.array([self.codes[parent][~same] for parent in parents])
            self._found[parents] = same, columns
        return self._found[parents]

    def repeat(self, parents: Iterable[str]) -> NDArray[np.bool_]:
        """Return whether all parents are as they were at the logged step, [m]."""
        same = self.step >= 0
        for parent in parents:
            same = same & self._is_same(parent)
        return same

    def features(self, parents: tuple[str, ...], sizes: Offsets) -> NDArray[np.float32]:
        """Return 0-1 features of what is to be predicted."""
        if parents not in self._features:
            columns = self.to_predict(parents)[1]
            self._features[parents] = make_features(columns, sizes, [None] * len(parents))
        return self._features[parents]

    def _is_same(self, parent: str) -> NDArray[np.bool_]:
        if self.logged is None:
            return np.zeros(len(self.step), bool)
        if parent not in self._same:
            self._same[parent] = self.codes[parent] == self.logged[parent][self.step]
        return self._same[parent]


class FactoredSteps:
    """Draws whole steps: every variable in its order, then the end."""

    def __init__(self, model: FactoredModel, couple: Couple) -> None:
        self.model = model
        self.samplers = [FactorSampler(factor, couple) for factor in model.factors]
        self.actions = np.array(
            np.unravel_index(
                np.arange(model.n_actions), [len(v.levels) for v in model.action_variables]
            )
        )

    @property
    def numbers(self) -> int:
        """Random numbers that one step needs, with one for the action before them."""
        return len(self.samplers) + 1

    def observe(self, log: Episodes) -> Record:
        """Return what a log shows; refuse a step that the model rules out."""
        codes = logged_codes(log)
        unknown = log.next_state < 0
        end = np.full(len(log.state), len(log.outcomes))
        end[log.offsets[1:] - 1] = np.where(log.outcome < 0, len(log.outcomes), log.outcome)
        found = []
        for sampler in self.samplers:
            variable = sampler.factor.variable
            level = end if variable == END else np.where(unknown, -1, codes[NEXT + variable])
            one = sampler.observe(codes, level.astype(np.int64))
            impossible = (level >= 0) & (one.rows[one.place, level] <= 0)
            if impossible.any():
                what = f"the value of {variable!r}" if variable else "the end"
                raise ValueError(
                    f"{log.place(int(impossible.argmax()))}: the model gives {what} that was "
                    "logged probability 0; fit the model to these episodes"
                )
            found.append(one)
        return Record(found, log.reward)

    def draw(
        self,
        before: Codes,
        action: NDArray[np.intp],
        stream: Stream,
        record: Record | None = None,
        step: Offsets | None = None,
    ) -> Drawn:
        """Draw the next state, the end and the reward of m particles.

        `record` is what a log shows, `step` [m] the logged step of each particle, -1 for none. A
        particle that does there what was done earns what was earned.
        """
        codes = dict(before)
        for place, variable in enumerate(self.model.action_variables):
            codes[ACTION + variable.name] = self.actions[place][action]
        of = np.full(len(action), -1) if step is None else step
        alike = Alike(codes, record.factors[0].codes if record else None, of)
        repeats = alike.repeat(tuple(codes))
        end, ratio = np.empty(0, np.intp), np.ones(len(action))
        for number, sampler in enumerate(self.samplers):
            known = None if record is None else record.factors[number]
            level = sampler.draw(codes, stream, number + 1, known, alike, ratio)
            if sampler.factor.variable == END:
                end = level
            else:
                codes[NEXT + sampler.factor.variable] = level
        reward = self.model.rewards.rows(codes)[np.arange(len(end)), end]
        if record is not None:
            reward = np.where(repeats, record.reward[of], reward)
        return Drawn(codes, end, np.asarray(reward), ratio)


# draws the action of each particle, given the level codes of its state and its logged step
Act = Callable[[Codes, Stream, Offsets], NDArray[np.intp]]


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

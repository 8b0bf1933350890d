"""The exact pass over episodes in many drawn models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.models.posterior import Drawn, Posterior, check_memory
from butfor.replay.observed import ObservedEngine
from butfor.threads import in_order
from butfor.types import Floats, Progress

One = TypeVar("One")  # a drawn model, in whatever form

NEGLIGIBLE = 1e-3  # differences less probable than this, in one row at one step, are ignored
# multiplications up to which a product of matrices is left to one thread: starting others for each
# of many small products takes longer than the products
SMALL = 200_000
OTHER_WEIGHTS = (0.25, 4.0)  # of the prior: as weak and as strong as what it is compared with


def count_others(models: int) -> int:
    """Return how many models are drawn with weaker, and with stronger weights: enough for means."""
    return max(models // 10, min(models, 10))


def draw_all(
    posterior: Posterior, models: int, *, seed: int, weights: Floats | None
) -> Iterator[Drawn]:
    """Draw models; then others, in turn with a quarter and with four times of their weights."""
    found = []
    for one in posterior.draw(models, seed=seed, weights=weights):
        found.append(one.weight)
        yield one
    usual = np.exp(np.log(found).mean(axis=0))
    number = count_others(models)
    others = [posterior.draw(number, seed=seed, weights=w * usual) for w in OTHER_WEIGHTS]
    with ThreadPoolExecutor(len(others)) as pool:
        for _ in range(number):
            yield from pool.map(next, others)


class Push:
    """The exact pass through all models, for a block of episodes at a time."""

    def __init__(
        self, engine: ObservedEngine, posterior: Posterior, drawn: Iterable[Drawn], count: int
    ) -> None:
        """Store what the episodes use of `count` drawn models, and what these expect."""
        self.engine, self.count = engine, count
        problem, replay = engine.problem, engine.replay
        used = _used_entries(problem, posterior)
        check_memory(len(used), count)
        self.problem = problem._replace(
            dynamics=_with_elsewhere(problem.dynamics, posterior, used),
            coupling=problem.coupling._replace(
                rank=np.append(problem.coupling.rank, len(problem.coupling.rank))
            ),
        )
        tables = _Tables(posterior, problem.target, replay.horizon, replay.discount)
        by_model = np.empty((count, len(used)))
        found = [np.empty((*shape, count)) for shape in tables.shapes]

        def keep(numbered: tuple[int, Drawn]) -> None:
            b, one = numbered
            by_model[b] = one.probability[used]
            for table, part in zip(found, tables(one), strict=True):
                table[..., b] = part

        for _ in in_order(keep, enumerate(drawn), threads=1):
            pass  # one model is drawn while another is kept
        self.values = found[0]
        self.models = kernels.Models(np.ascontiguousarray(by_model.T), by_model, *found)

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        masses = np.zeros((last - first, self.models.ends.shape[2], self.count))
        returns = np.zeros((last - first, self.count))
        impossible = kernels.exact_outcomes_of_models(
            first,
            last,
            self.problem,
            kernels.make_work(self.problem),
            self.models,
            self.engine.replay.discount,
            NEGLIGIBLE,
            masses,
            returns,
        )
        self.engine.refuse(impossible)
        return masses, returns


class SlowPush:
    """The same for a mechanism without a kernel, or factored models: one pass for each model."""

    def __init__(
        self,
        drawn: Iterable[One],
        count: int,
        engine_of: Callable[[One], ObservedEngine],
        negligible: float,
        threads: int | None,
        progress: Progress | None,
    ) -> None:
        def one_pass(one: One) -> tuple[Floats, Floats, Floats]:
            engine = engine_of(one)
            if negligible:
                mass, expected = engine.push(negligible, threads=1)
            else:
                mass, expected, *_ = engine.outcomes(draws=1, seed=0, threads=1, progress=None)
            return mass, expected, engine.values[0]

        found = []
        for part in in_order(one_pass, drawn, threads=threads):
            found.append(part)
            if progress is not None:
                progress(len(found), count)
        self.count = count
        self.masses, self.returns, self.values = (
            np.stack(part, axis=-1) for part in zip(*found, strict=True)
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        return self.masses[first:last], self.returns[first:last]


def _used_entries(problem: kernels.Problem, posterior: Posterior) -> NDArray[np.int64]:
    """Return the entries of rows that the target uses or that were observed."""
    dynamics, target, log = problem.dynamics, problem.target, problem.log
    used = np.zeros(len(posterior.start) - 1, dtype=bool)
    state = np.repeat(np.arange(dynamics.states), np.diff(target.start))
    used[state * dynamics.actions + target.label] = True
    used[log.state.astype(np.int64) * dynamics.actions + log.action] = True
    return np.flatnonzero(np.repeat(used, np.diff(posterior.start)))


def _with_elsewhere(
    dynamics: kernels.Dynamics, posterior: Posterior, used: NDArray[np.int64]
) -> kernels.Dynamics:
    """Return rows with these entries of the posterior; elsewhere is one more outcome."""
    _, _, size = posterior.counts.shape
    elsewhere = len(dynamics.labels)
    column = posterior.column[used]
    next_state = np.append(posterior.columns, elsewhere)[column].astype(np.int32)
    row = np.repeat(np.arange(len(posterior.start) - 1), np.diff(posterior.start))[used]
    start = np.append(0, np.cumsum(np.bincount(row, minlength=len(posterior.start) - 1)))
    reward = np.zeros(len(row))
    listed = column < size
    reward[listed] = posterior.reward.reshape(-1, size)[row[listed], column[listed]]
    return dynamics._replace(
        rows=kernels.Rows(start, next_state, np.empty(0)),
        next_state=next_state,
        reward=reward,
        labels=np.arange(elsewhere + 1, dtype=np.int32),
    )


class _Tables:
    """What follows under the target in a drawn model, by steps left."""

    def __init__(
        self, posterior: Posterior, target: kernels.Rows, horizon: int, discount: float
    ) -> None:
        self.posterior, self.target = posterior, target
        states, actions, size = posterior.counts.shape
        self.outcomes = int((posterior.columns >= states).sum())
        self.state = np.repeat(np.arange(states), np.diff(target.start))  # [J]
        row = self.state * actions + target.label
        self.reward = posterior.reward.reshape(-1, size)[row]  # [J, K]
        width = np.diff(posterior.start)[row]
        # entries of the target's rows, and where they stand in [J, K + 1]
        within = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
        self.entry = np.repeat(posterior.start[row], width) + within
        self.place = (np.repeat(np.arange(len(row)), width), posterior.column[self.entry])
        self.kept = np.array([discount] + [1.0] * (self.outcomes + 1))
        self.steps = horizon if posterior.outside.any() else 0  # from elsewhere on
        ends = self.outcomes + 1
        self.shapes = (
            (horizon + 1, states),
            (horizon + 1, states, ends),
            (self.steps, len(row)),
            (self.steps, len(row), ends),
        )

    def __call__(self, drawn: Drawn) -> tuple[Floats, ...]:
        """Return values [H + 1, S], ends [H + 1, S, O + 1], and both [H, J …] from elsewhere on."""
        posterior = self.posterior
        states, _, size = posterior.counts.shape
        rows = np.zeros((len(self.state), size + 1))
        rows[self.place] = drawn.probability[self.entry]
        divided = posterior.elsewhere(drawn, self.state)
        share = self.target.probability[:, None]
        moved = share * (rows[:, :size] + rows[:, size:] * divided)  # [J, K]
        moves = np.add.reduceat(moved, self.target.start[:-1])  # [S, K]
        earned = np.add.reduceat((moved * self.reward).sum(axis=1), self.target.start[:-1])
        reached = posterior.columns < states
        blocks = _in_small_blocks(moves, self.outcomes + 2)
        # after a step: the value and the ends of each next state; an outcome is its own end
        after = np.zeros((self.shapes[0][0], size, self.outcomes + 2))
        after[:, ~reached, 1:-1] = np.eye(self.outcomes)
        found = np.zeros((self.shapes[0][0], states, self.outcomes + 2))
        found[0, :, -1] = 1.0  # with no step left there is no outcome
        for left in range(1, len(found)):
            after[left - 1, reached] = self.kept * found[left - 1, posterior.columns[reached]]
            found[left] = (blocks @ after[left - 1]).reshape(-1, after.shape[2])[:states]
            found[left, :, 0] += earned
        # all steps at once: many small products would keep other threads waiting
        wide = after[: self.steps].transpose(1, 0, 2).reshape(size, self.steps * after.shape[2])
        beyond = (divided @ wide).reshape(len(divided), self.steps, after.shape[2])
        beyond = beyond.transpose(1, 0, 2)  # [H, J, O + 2]
        beyond[..., 0] += (divided * self.reward).sum(axis=1)
        return found[..., 0], found[..., 1:], beyond[..., 0], beyond[..., 1:]


def _in_small_blocks(rows: Floats, columns: int) -> Floats:
    """Divide rows [n, K] into blocks [., ., K] whose products with `columns` columns are small."""
    count, size = rows.shape
    height = max(1, min(count, SMALL // (size * columns)))
    blocks = np.zeros((-(-count // height), height, size))
    blocks.reshape(-1, size)[:count] = rows
    return blocks

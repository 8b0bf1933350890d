"""The engine for factored models: noise belongs to variables, not to whole states.

Given a logged transition the noises of its variables are independent, and each is known through the
variable's own value. So the counterfactual row of a state is the product of its variables' rows;
everything else is as for a `TabularMDP`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.hidden.policies import Policy
from butfor.log.episodes import Episodes
from butfor.log.variables import Variable, ravel, unravel
from butfor.mechanisms.independent import Independent
from butfor.mechanisms.protocol import Compiled, Mechanism, counterfactual_rows
from butfor.models.factored import END, NEXT, AnyFactor, FactoredModel
from butfor.models.learners import Codes
from butfor.models.mdp import TabularMDP
from butfor.random import episode_keys, uniforms
from butfor.replay.observed import MOST_TABLED, ObservedEngine, dynamics_of
from butfor.types import Floats

if TYPE_CHECKING:
    from butfor.replay.replay import Replay


class FactoredEngine(ObservedEngine):
    """Answers a `Replay` whose model is a `FactoredModel`, with noise per variable."""

    tight = False

    def __init__(self, replay: Replay) -> None:
        self.factored: FactoredModel = replay.factored
        super().__init__(replay)

    @staticmethod
    def check(
        episodes: Episodes, model: Any, target: Policy, behavior: Policy | None
    ) -> tuple[Policy, Policy]:
        """Refuse a log, target or behavior that does not fit; return both policies as [S, A]."""
        check_factored_log(episodes, model)
        return ObservedEngine.check(episodes, model.tabular(), target, behavior)

    @property
    def bounded(self) -> kernels.Problem:
        """The problem with all that any mechanism can reach, as independent noise does."""
        reaching = couple_factors(Independent(), self._tables, self._factors)
        return self.problem._replace(coupling=reaching)

    def refuse(self, step: int) -> None:
        """Raise an error about a step that a kernel found impossible; -1: there is none."""
        log = self.replay.log
        for factor in self.factored.factors if step >= 0 else ():
            codes = self.factored.codes(log.state[[step]], log.action[[step]])
            levels = _reached(self.factored, log)
            codes |= {NEXT + name: level[[step]] for name, level in levels.items()}
            given = log.next_state[step] >= 0 or factor.variable == END
            if given and factor.rows(codes)[0, levels[factor.variable][step]] == 0:
                what = f"the variable {factor.variable!r}" if factor.variable else "the end"
                raise ValueError(
                    f"{log.place(step)} goes from state {log.state[step]} by action "
                    f"{log.action[step]} to state {log.next_state[step]}, where the model gives "
                    f"the value of {what} probability 0; fit the model to these episodes"
                )
        super().refuse(step)

    @cached_property
    def _tables(self) -> list[Floats]:
        """The rows of each factor by configuration, [configurations, levels]."""
        return [_table(factor) for factor in _split(self.factored)[0]]

    @cached_property
    def _factors(self) -> kernels.Factors:
        return _kernel_factors(self.factored, self.replay.episodes, self.replay.log)

    def _problem(self, model: TabularMDP) -> kernels.Problem:
        log = draw_final_states(self.replay.log, self.factored)
        return divide_ends(super()._problem(model), self.factored, log)

    def _couple(self, model: TabularMDP, policy: Floats) -> kernels.Coupling:
        return couple_factors(self.replay.mechanism, self._tables, self._factors)


def check_factored_log(episodes: Episodes, model: FactoredModel) -> None:
    """Refuse a log whose variables do not fit a factored model."""
    for kind, given, expected in (
        ("state", episodes.state_variables, model.state_variables),
        ("action", episodes.action_variables, model.action_variables),
    ):
        if _sizes(given) != _sizes(expected):
            raise ValueError(
                f"the {kind} variables of the episodes are {_sizes(given)}, those of the model "
                f"{_sizes(expected)}; fit the model to episodes of the same kind"
            )


def draw_final_states(log: Episodes, model: FactoredModel) -> Episodes:
    """Draw final states that are unknown, given the outcome, if the end depends on them.

    What an episode is given depends on its id and the model alone. So means over episodes are right
    if it does not depend on the final state, given the outcome, whether it is known.
    """
    last = log.offsets[1:] - 1
    lost = np.flatnonzero(log.next_state[last] < 0)
    if len(lost) == 0 or not any(parent.startswith(NEXT) for parent in model.end.parents):
        return log
    pair = log.state[last[lost]].astype(np.int64) * model.n_actions + log.action[last[lost]]
    *_, (end, row, weight, codes) = model.expand(np.unique(pair))
    total = np.cumsum(weight[:, None] * end.rows(codes), axis=0)
    total = np.concatenate([np.zeros((1, end.levels)), total])
    first, stop, ended = (
        np.searchsorted(row, pair),
        np.searchsorted(row, pair, "right"),
        log.outcome,
    )
    share = uniforms(episode_keys(0, log.id[lost], "final state"), 0)
    low, high = total[first, ended[lost]], total[stop, ended[lost]]
    ways = [
        np.searchsorted(total[:, outcome], goal, "right") - 1
        for outcome, goal in zip(ended[lost], low + share * (high - low), strict=True)
    ]
    names = [NEXT + variable.name for variable in model.state_variables]
    reached = ravel(model.state_variables, [codes[name] for name in names])
    found = log.next_state.copy()
    found[last[lost]] = reached[np.minimum(ways, stop - 1)]
    return replace(log, next_state=found)


def divide_ends(problem: kernels.Problem, model: FactoredModel, log: Episodes) -> kernels.Problem:
    """Let each outcome pay the reward of the state reached, if rewards at ends depend on it.

    What the kernels tell about outcomes stays the same.
    """
    if not model.pay_cells.any():
        return problem
    rows, cells, states = model.by_pay, int(model.pay_cells.max()) + 1, model.n_states
    shown = np.arange(states + len(model.outcomes) * cells, dtype=np.int32)
    shown[states:] = states + (shown[states:] - states) // cells
    last = log.offsets[1:] - 1
    final = log.next_state[last]
    end = log.outcome * cells + model.pay_cells[final]
    for n in np.flatnonzero((log.outcome >= 0) & (final < 0)):  # any possible end will do
        row = int(log.state[last[n]]) * model.n_actions + log.action[last[n]]
        possible = rows.next_state[rows.start[row] : rows.start[row + 1]]
        alike = possible[shown[possible] == states + log.outcome[n]]
        end[n] = max(alike, default=states + end[n]) - states
    return problem._replace(
        dynamics=dynamics_of(rows)._replace(shown=shown),
        log=problem.log._replace(outcome=np.where(log.outcome < 0, -1, end).astype(np.int32)),
    )


def _sizes(variables: tuple[Variable, ...]) -> str:
    return ", ".join(f"{variable.name!r} ({len(variable.levels)})" for variable in variables)


class _Parents(NamedTuple):
    """How the configuration of a factor follows from the levels of its parents."""

    first: int  # its first configuration
    before: list[tuple[str, int]]  # parent and stride: what follows from state and action
    after: list[tuple[str, int]]  # variable of the next state and stride

    def base(self, codes: Codes) -> NDArray[np.int64]:
        """Return the configuration with all next-step parents at level 0, [m]."""
        count = len(next(iter(codes.values())))
        moved = (codes[parent] * stride for parent, stride in self.before)
        return sum(moved, np.full(count, self.first, np.int64))


def _parents(factors: Sequence[AnyFactor], fixed: Sequence[AnyFactor]) -> list[_Parents]:
    found, first = [], 0
    follows = {NEXT + factor.variable for factor in fixed}
    for factor in factors:
        sizes = factor.table.shape[:-1]
        strides = [int(np.prod(sizes[place + 1 :])) for place in range(len(sizes))]
        pairs = list(zip(factor.parents, strides, strict=True))
        after = [one for one in pairs if one[0].startswith(NEXT) and one[0] not in follows]
        before = [one for one in pairs if one not in after]
        found.append(_Parents(first, before, [(n.removeprefix(NEXT), s) for n, s in after]))
        first += int(np.prod(sizes))
    return found


def _split(model: FactoredModel) -> tuple[list[AnyFactor], list[AnyFactor]]:
    """Return the factors that noise decides, the end last, and those that it does not.

    The latter follow from state and action alone, such as static variables and records of the
    action. At least one variable is kept with the end.
    """
    fixed = [
        factor
        for factor in model.factors[:-1]
        if (np.count_nonzero(factor.table, axis=-1) == 1).all()
        and not any(parent.startswith(NEXT) for parent in factor.parents)
        and not _learned(factor)
    ]
    if len(fixed) == len(model.factors) - 1:
        fixed.pop()
    return [factor for factor in model.factors if factor not in fixed], fixed


def _codes(
    model: FactoredModel,
    fixed: Sequence[AnyFactor],
    state: NDArray[np.integer],
    action: NDArray[np.integer],
) -> Codes:
    """Return the level codes of states and actions [m], and of what follows from them alone."""
    codes = model.codes(state, action)
    following = {NEXT + one.variable: one.rows(codes).argmax(axis=1) for one in fixed}
    return codes | following


def _kernel_factors(model: FactoredModel, episodes: Episodes, log: Episodes) -> kernels.Factors:
    """Return the factors, and what a log shows of each, in the form that kernels take."""
    factors, fixed = _split(model)
    parents = _parents(factors, fixed)
    names = [factor.variable for factor in factors]
    first_label = np.cumsum([0] + [factor.table.shape[-1] for factor in factors[:-1]])
    pair = np.arange(model.n_states * model.n_actions)
    codes = _codes(model, fixed, pair // model.n_actions, pair % model.n_actions)
    sizes = [len(variable.levels) for variable in model.state_variables]
    place = {
        variable.name: int(np.prod(sizes[n + 1 :]))
        for n, variable in enumerate(model.state_variables)
    }
    first = sum((codes[NEXT + one.variable] * place[one.variable] for one in fixed), 0 * pair)
    after = [(names.index(name), stride) for one in parents for name, stride in one.after]
    config, entry = _observed(model, factors, fixed, draw_final_states(episodes, model))
    kept = episodes.time < log.horizon
    # nothing that depends on an unknown next state was learned from it
    told = [name == END and not one.after for name, one in zip(names, parents, strict=True)]
    unknown = (episodes.next_state < 0)[:, None] & ~np.array(told)
    return kernels.Factors(
        rows=_sparse_rows([_table(factor) for factor in factors], first_label),
        base=np.stack([one.base(codes) for one in parents], axis=1),
        first_state=first,
        parents=np.concatenate([[0], np.cumsum([len(one.after) for one in parents])]),
        parent=np.array([number for number, _ in after], np.int64),
        stride=np.array([stride for _, stride in after], np.int64),
        first_label=first_label,
        place=np.array([place.get(name, 0) for name in names]),
        seen=np.ascontiguousarray(entry[kept]),
        config=np.ascontiguousarray(config[kept]),
        counts=np.concatenate([_counts(factor) for factor in factors]),
        own=np.where(unknown, -1, config),
        cell=model.pay_cells,
        cells=int(model.pay_cells.max()) + 1,
    )


def _sparse_rows(tables: list[Floats], first_label: NDArray[np.int64]) -> kernels.Rows:
    """Return the rows of all factors as one; a label is a level of one factor."""
    label, probability, width = [], [], []
    for table, first in zip(tables, first_label.tolist(), strict=True):
        row, level = np.nonzero(table)
        label.append(level + first)
        probability.append(table[row, level])
        width.append(np.bincount(row, minlength=len(table)))
    return kernels.Rows(
        np.concatenate([[0], np.cumsum(np.concatenate(width))]),
        np.concatenate(label).astype(np.int32),
        np.concatenate(probability),
    )


def _observed(
    model: FactoredModel, factors: Sequence[AnyFactor], fixed: Sequence[AnyFactor], log: Episodes
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each factor's configuration and entry at each logged step, both [N, F]."""
    codes = _codes(model, fixed, log.state, log.action)
    unknown = log.next_state < 0
    levels = _reached(model, log)
    shape = (len(log.state), len(factors))
    config, entry = (np.empty(shape, np.int64) for _ in range(2))
    passed = 0  # entries of earlier factors
    for f, (factor, one) in enumerate(zip(factors, _parents(factors, fixed), strict=True)):
        table = _table(factor)
        here = one.base(codes) + sum(levels[name] * stride for name, stride in one.after)
        number = passed + np.cumsum(table > 0).reshape(table.shape) - 1
        number[table == 0] = kernels.IMPOSSIBLE
        entry[:, f] = number[here - one.first, levels[factor.variable]]
        config[:, f] = here
        if factor.variable:
            entry[unknown, f] = kernels.UNKNOWN
        if one.after:
            config[unknown, f] = -1
        passed += int(np.count_nonzero(table))
    for factor in fixed:
        wrong = codes[NEXT + factor.variable] != levels[factor.variable]
        entry[wrong & ~unknown, -1] = kernels.IMPOSSIBLE
    return config, entry


def _reached(model: FactoredModel, log: Episodes) -> Codes:
    """Return the level that each logged step reached, by variable, [N]; 0 where not logged."""
    levels = unravel(model.state_variables, np.maximum(log.next_state, 0))
    ended = np.full(len(log.state), len(model.outcomes))
    ended[log.offsets[1:] - 1] = np.where(log.outcome >= 0, log.outcome, len(model.outcomes))
    return levels | {END: ended}


def _table(factor: AnyFactor) -> Floats:
    """Return the rows of a factor by configuration, [configurations, levels]."""
    return factor.table.reshape(-1, factor.table.shape[-1])


def _learned(factor: AnyFactor) -> bool:
    return factor.learned and bool(factor.counts.any())


def _counts(factor: AnyFactor) -> Floats:
    """Logged transitions behind each configuration; inf if nothing was learned from a log."""
    seen = factor.counts.sum(axis=-1).ravel()
    return np.asarray(seen if _learned(factor) else np.full(seen.shape, np.inf), dtype=np.float64)


def couple_factors(
    mechanism: Mechanism, tables: list[Floats], factors: kernels.Factors
) -> kernels.Coupling:
    """Return a mechanism for the rows of all factors in the form that kernels take.

    For a mechanism without a kernel, the counterfactuals of all configurations of a factor, given
    each of its observed entries in the log, are tabulated beforehand.
    """
    if isinstance(mechanism, Compiled):
        each = [mechanism.coupling(table.shape[1]) for table in tables]
        return each[0]._replace(rank=np.concatenate([one.rank for one in each]))
    rows, key, mass, first = factors.rows, [], [], 0
    observed = [np.unique(seen[seen >= 0]) for seen in factors.seen.T]
    needed = sum(len(seen) * table.size for seen, table in zip(observed, tables, strict=True))
    if needed > MOST_TABLED:
        raise ValueError(
            f"{mechanism!r}: the factors need a table of {needed} numbers; give the mechanism a "
            "method `coupling`"
        )
    for f, (seen, table) in enumerate(zip(observed, tables, strict=True)):
        configurations = first + np.arange(len(table))
        for e in seen.tolist():
            factual = table[np.searchsorted(rows.start, e, side="right") - 1 - first]
            level = int(rows.label[e] - factors.first_label[f])
            found = counterfactual_rows(mechanism, factual, table, level)
            key.append(e * (len(rows.start) - 1) + configurations)
            mass.append(found[table > 0])
        first += len(table)
    keys = np.concatenate(key)
    width = np.diff(rows.start)[keys % (len(rows.start) - 1)]
    return kernels.Coupling(
        kernels.TABLE,
        np.empty(0, np.int64),
        keys,
        np.cumsum(width) - width,
        np.concatenate(mass),
    )

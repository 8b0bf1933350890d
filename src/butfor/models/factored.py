"""FactoredModel: one conditional distribution per variable of the next state, and one for ends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.checks import check_distributions
from butfor.log.combinations import (
    MOST_TRANSITIONS,
    Combinations,
    Space,
    check_combinations,
    discount_states,
    state_codes,
)
from butfor.log.episodes import Episodes
from butfor.log.variables import (
    Outcome,
    Variable,
    check_outcomes,
    check_variables,
    count_levels,
    ravel,
    unravel,
)
from butfor.models.learners import Codes, Predictor
from butfor.models.mdp import TabularMDP, assemble, check_mdp, total_by
from butfor.models.plan import Taught
from butfor.printed import Printed
from butfor.types import Floats, Offsets

END = ""  # the name of the factor that decides how, or whether, an episode ends
END_NAME = "(end)"  # what people call it
CLOCK = "clock"  # the source of a factor that counts steps
ACTION, NEXT = "action.", "next."  # prefixes of parents: an action variable, the next state


@dataclass(frozen=True, eq=False, repr=False)
class Factor(Printed):
    """P(level | parents) of one variable of the next state, or of the end.

    A parent is a state variable before the step ("pulse"), an action variable ("action.dose") or a
    variable of the next state ("next.pulse"). The levels of the end are the outcomes, and none.
    """

    variable: str  # END: the end
    parents: tuple[str, ...]
    table: Floats  # [levels of parents …, levels] one axis per parent, in their order
    counts: Floats  # of the same shape: logged transitions; 0 where nothing was learned from a log
    source: str  # "static", "clock", "copies action.dose", "counts", "given", or the learner's name
    strength: float = math.nan  # of the back-off of "counts", in cases
    score: float = math.nan  # mean log score of a case that was left out of what was learned
    every: bool = False  # the back-off of "counts" drops each parent in turn, not only the last

    def _title(self) -> str:
        return f"{self.variable or 'end'} | {', '.join(self.parents) or 'nothing'}"

    @property
    def levels(self) -> int:
        """Number of levels of the variable; of the end, the outcomes and none."""
        return self.table.shape[-1]

    @property
    def cases(self) -> int:
        """Number of logged transitions that it was learned from."""
        return round(self.counts.sum())

    @property
    def learned(self) -> bool:
        """Whether nature decides the variable, rather than the past or the action alone."""
        return self.source not in ("static", CLOCK) and not self.source.startswith("copies ")

    def rows(self, codes: Codes) -> Floats:
        """Return the distribution for each row of parent codes, [m, levels]."""
        if not self.parents:
            count = len(next(iter(codes.values())))
            return np.broadcast_to(self.table, (count, self.table.shape[-1]))
        return self.table[tuple(codes[parent] for parent in self.parents)]

    def place(self, codes: Codes, count: int) -> Offsets:
        """Return the row of the flattened table for each of `count` rows of parent codes, [m]."""
        place = np.zeros(count, np.int64)
        for parent, size in zip(self.parents, self.table.shape, strict=False):
            place *= size
            place += codes[parent]
        return place


AnyFactor = Factor | Predictor


@dataclass(frozen=True, eq=False, repr=False)
class Rewards(Printed):
    """Mean reward of a transition, by parents (as of a `Factor`) and end (none last)."""

    parents: tuple[str, ...]
    table: Floats  # [levels of parents …, O + 1]

    def rows(self, codes: Codes) -> Floats:
        """Return the mean rewards for each row of parent codes, [m, O + 1]."""
        return Factor("reward", self.parents, self.table, self.table, "given").rows(codes)


@dataclass(frozen=True, eq=False, repr=False)
class FactoredModel(Space, Printed):
    """P(x' | x, a) = prod_j P(x'_j | parents of j), and an end o ~ P(o | x', x, a).

    Each factor is a mechanism with its own noise, and the noises are independent: given the logged
    transition, the noise of each variable is known through that variable's own value. So what is
    the same for the patient carries over variable by variable, even where other variables differ.
    This independence is an assumption beyond those of a `TabularMDP` with the same rows.

    A model learned from a wide log is wide too: its states are those of the log, and serve only to
    say where episodes begin. Its transitions reach any combination of levels.
    """

    state_variables: tuple[Variable, ...]
    action_variables: tuple[Variable, ...]
    outcomes: tuple[Outcome, ...]
    factors: tuple[AnyFactor, ...]  # of the state variables, each after its parents; the end last
    rewards: Rewards
    initial: Floats  # [S] distribution of the first state
    counts: NDArray[np.int64]  # [S, A] logged transitions
    combinations: Combinations | None = None  # [S, J] level codes of each state of a wide model
    # by which log; None: by none, as far as is known
    taught: Taught | None = field(default=None, repr=False)

    terminal = "visits"  # the last transition of an episode leads straight into its outcome

    def __post_init__(self) -> None:
        check_variables(self.state_variables, "state")
        check_variables(self.action_variables, "action")
        check_outcomes(self.outcomes)
        check_prefixes(self.state_variables)
        object.__setattr__(self, "factors", order_factors(self.factors))
        names = sorted(variable.name for variable in self.state_variables)
        found = sorted(factor.variable for factor in self.factors)
        if found != [END, *names]:
            given = ", ".join(repr(name or END_NAME) for name in found)
            raise ValueError(
                f"factors of {given}: give one for each state variable "
                f"({', '.join(names)}) and one for the end ({END_NAME!r})"
            )
        for factor in self.factors:
            expected = (*(self.size_of(parent) for parent in factor.parents), self._levels(factor))
            what = f"the table of {factor.variable or END_NAME!r}"
            shape = factor.table.shape if isinstance(factor, Factor) else factor.shape
            if shape != expected:
                raise ValueError(f"{what} has shape {shape}, expected {expected}")
            if isinstance(factor, Factor):
                check_distributions(factor.table.reshape(-1, expected[-1]), what)
        if self.combinations is not None:
            check_combinations(self.state_variables, self.combinations)

    def _title(self) -> str:
        return f"FactoredModel of {self.n_states:,} states and {self.n_actions} actions"

    def _facts(self) -> dict[str, Any]:
        return {
            "state variables": self.state_variables,
            "action variables": self.action_variables,
            "outcomes": self.outcomes,
            "factors": self.factors,
            "rewards by": ("end", *self.rewards.parents),
            "more": ".describe() has sources, parents and scores",
        }

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough states to go through, and a table for every variable."""
        pairs = count_levels(self.state_variables) * self.n_actions
        tables = all(isinstance(factor, Factor) for factor in self.factors)
        return self.combinations is None and pairs <= MOST_TRANSITIONS and tables

    def discounts(self, discount: float) -> Floats:
        """Return the factor by which what follows counts less in each state reached, [S]."""
        return discount_states(self.durations, discount, self.n_states)

    @property
    def end(self) -> AnyFactor:
        """The factor of the end."""
        return self.factors[-1]

    def factor(self, variable: str) -> AnyFactor:
        """Return the factor of a state variable, or of the end, which is called (end)."""
        name = END if variable == END_NAME else variable
        return next(factor for factor in self.factors if factor.variable == name)

    def size_of(self, parent: str) -> int:
        """Return the number of levels of a parent."""
        return size_of(parent, self.state_variables, self.action_variables)

    def _levels(self, factor: AnyFactor) -> int:
        return self.size_of(factor.variable) if factor.variable else len(self.outcomes) + 1

    def codes(self, state: NDArray[np.integer], action: NDArray[np.integer]) -> Codes:
        """Return the level codes of states and actions [m] by the names of parents."""
        before = state_codes(self.state_variables, self.combinations, state)
        chosen = unravel(self.action_variables, np.asarray(action))
        return before | {ACTION + name: code for name, code in chosen.items()}

    def stored_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a file of the model holds: its rows, and its factors."""
        names = factor_arrays(len(self.factors))
        own = [array for factor in self.factors for array in (factor.table, factor.counts)]
        tables = dict(zip(names, [*own, self.rewards.table], strict=True))
        if self.combinations is not None:
            return {"initial": self.initial, "counts": self.counts} | tables
        return self.tabular().stored_arrays() | tables

    def describe(self) -> pd.DataFrame:
        """Return one row per factor: what decides it, how it was found, and how well it predicts.

        A row of a table is drawn towards the row with one parent fewer; `strength` says how many
        cases that weighs, `drops` which parent: the "last" one, or "each" in turn. `log_score` is
        the mean log probability of a case in a table learned from all others (classifiers: from
        other folds).
        """
        return pd.DataFrame(
            [
                (
                    factor.variable or END_NAME,
                    factor.source,
                    ", ".join(factor.parents),
                    factor.strength,
                    "" if math.isnan(factor.strength) else "each" if factor.every else "last",
                    factor.score,
                    factor.cases,
                )
                for factor in self.factors
            ],
            columns=["variable", "source", "parents", "strength", "drops", "log_score", "cases"],
        )

    def tabular(self) -> TabularMDP:
        """Return the same transition probabilities as sparse rows, with noise on next states.

        An outcome has no state, so it pays the mean over the states that the row ends in.
        """
        return self._tabular

    def expand(
        self, rows: Offsets | None = None
    ) -> Iterator[tuple[AnyFactor, Offsets, Floats, Codes]]:
        """Yield each factor with all ways to get to it from every state and action, or from some.

        These are rows s A + a [m], their probabilities [m] and the levels of parents [m]; each
        variable divides them by its possible levels.
        """
        self._check_enumerable()
        states, actions = self.n_states, self.n_actions
        row = np.arange(states * actions) if rows is None else rows
        codes, weight = self.codes(row // actions, row % actions), np.ones(len(row))
        for place, factor in enumerate(self.factors):
            yield factor, row, weight, codes
            if not factor.variable:
                return
            assert isinstance(factor, Factor)  # as the model is enumerable
            # the possible levels of each configuration of parents, one after another
            table = factor.table.reshape(-1, factor.levels)
            configuration, level = np.nonzero(table)
            chance = table[configuration, level]
            count = np.bincount(configuration, minlength=len(table))
            asked = factor.place(codes, len(row))
            first, ways = (np.cumsum(count) - count)[asked], count[asked]
            total = int(ways.sum())
            if total > MOST_TRANSITIONS:
                raise ValueError(
                    f"{states} states and {actions} actions have more than {MOST_TRANSITIONS:,} "
                    "possible transitions; use fewer variables or levels"
                )
            if total > len(row):  # otherwise each way has one level only
                needed = {name for later in self.factors[place + 1 :] for name in later.parents}
                needed |= {*self.rewards.parents, *(NEXT + v.name for v in self.state_variables)}
                codes = {
                    name: np.repeat(code, ways) for name, code in codes.items() if name in needed
                }
                row, weight = np.repeat(row, ways), np.repeat(weight, ways)
                first = np.repeat(first - (np.cumsum(ways) - ways), ways) + np.arange(total)
            weight = weight * chance[first]
            codes = codes | {NEXT + factor.variable: level[first]}

    def _check_enumerable(self) -> None:
        """Refuse a model whose states cannot be gone through one by one."""
        if self.enumerable:
            return
        untabled = [f.variable or END_NAME for f in self.factors if isinstance(f, Predictor)]
        why = f"{', '.join(map(repr, untabled))} predicted on demand"
        if not untabled:
            why = f"{count_levels(self.state_variables):,} possible states"
        raise ValueError(
            f"the model has no table of all its states and actions: {why}. Replay.outcomes and "
            "audits sample from it; for all else use fewer variables (hide) or levels"
        )

    @cached_property
    def pay_cells(self) -> Offsets:
        """Number of what decides the reward of an end that reaches each next state, [S].

        These are the levels of the next-step parents of the rewards of ends; without any, 0.
        """
        cell = np.zeros(self.n_states, np.int64)
        codes = state_codes(self.state_variables, None, np.arange(self.n_states))
        ends = self.rewards.table[..., : len(self.outcomes)]
        for axis, parent in enumerate(self.rewards.parents):
            if parent.startswith(NEXT) and np.ptp(ends, axis=axis).any():
                cell = cell * self.size_of(parent) + codes[parent.removeprefix(NEXT)]
        return cell

    @cached_property
    def by_pay(self) -> TabularMDP:
        """The rows of `tabular()`, with outcomes divided by the reward of the state reached.

        With K cells (`pay_cells`), outcome o in cell c is number o K + c.
        """
        return self._rows(self.pay_cells)

    @cached_property
    def _tabular(self) -> TabularMDP:
        return self._rows(np.zeros(self.n_states, np.int64))

    def _rows(self, cell: Offsets) -> TabularMDP:
        """Return the rows, with one end for each outcome and cell of next states [S]."""
        *_, (end, row, weight, codes) = self.expand()
        states, outcomes, cells = self.n_states, len(self.outcomes), int(cell.max()) + 1
        width, pairs = states + outcomes * cells, states * self.n_actions
        chance, earned = end.rows(codes), self.rewards.rows(codes)
        after = [codes[NEXT + variable.name] for variable in self.state_variables]
        reached = ravel(self.state_variables, after)
        # each way leads to a state of its own, if it does not end, but many to the same end
        goes_on = weight * chance[:, outcomes]
        kept = np.flatnonzero(goes_on)  # not what underflows
        parts = [(row[kept] * width + reached[kept], goes_on[kept], earned[kept, outcomes])]
        begin, place = np.arange(pairs) * width, row
        if cells > 1:
            begin, place = np.unique(row * width + cell[reached], return_inverse=True)
        for outcome in range(outcomes):
            ends = weight * chance[:, outcome]
            mass, gain = (total_by(place, w, len(begin)) for w in (ends, ends * earned[:, outcome]))
            some = np.flatnonzero(mass)
            keys = begin[some] + states + outcome * cells
            parts.append((keys, mass[some], gain[some] / mass[some]))
        keys, probability, reward = map(np.concatenate, zip(*parts, strict=True))
        return assemble(
            keys,
            probability,
            reward,
            states=states,
            actions=self.n_actions,
            outcomes=tuple(outcome for outcome in self.outcomes for _ in range(cells)),
            labels=None,
            initial=self.initial,
            counts=self.counts,
            unseen=np.zeros((states, self.n_actions), dtype=bool),
            terminal=self.terminal,
            durations=self.durations,
            taught=None if self.taught is None else self.taught.then(tabular),
        )


def tabular(model: object) -> TabularMDP:
    """Return the transition rows of a model whose state is observed; refuse anything else."""
    return model.tabular() if isinstance(model, FactoredModel) else check_mdp(model)


def logged_codes(log: Episodes) -> Codes:
    """Return the level codes [N] of each logged step by parent; 0 where it was not logged."""
    chosen = unravel(log.action_variables, log.action)
    reached = log.codes(np.maximum(log.next_state, 0))
    codes = log.codes(log.state) | {ACTION + name: code for name, code in chosen.items()}
    return codes | {NEXT + name: code for name, code in reached.items()}


def factor_arrays(count: int) -> list[str]:
    """Return the names under which the tables of this many factors are stored."""
    if count == 0:
        return []
    own = [f"factor_{number}_{name}" for number in range(count) for name in ("table", "cases")]
    return [*own, "factor_rewards"]


def size_of(
    parent: str, state_variables: Sequence[Variable], action_variables: Sequence[Variable]
) -> int:
    """Return the number of levels of a parent."""
    prefix = ACTION if parent.startswith(ACTION) else NEXT if parent.startswith(NEXT) else ""
    among = action_variables if prefix == ACTION else state_variables
    for variable in among:
        if variable.name == parent.removeprefix(prefix):
            return len(variable.levels)
    known = [variable.name for variable in state_variables]
    known += [ACTION + variable.name for variable in action_variables]
    raise ValueError(
        f"no parent {parent!r}; there are {', '.join(known)}, and with the prefix {NEXT!r} the "
        "variables of the next state"
    )


def check_prefixes(state_variables: Sequence[Variable]) -> None:
    """Refuse state variables whose names look like parents of another kind."""
    for variable in state_variables:
        if variable.name in (END, END_NAME) or variable.name.startswith((ACTION, NEXT)):
            raise ValueError(
                f"state variable {variable.name!r}: rename it; a name that is empty or "
                f"{END_NAME}, or begins with {ACTION!r} or {NEXT!r}, "
                "means something else as a parent"
            )


def order_factors(factors: Sequence[AnyFactor]) -> tuple[AnyFactor, ...]:
    """Order factors such that each comes after its parents in the next state; the end is last."""
    by_name = {factor.variable: factor for factor in factors}
    order = order_variables({factor.variable: factor.parents for factor in factors})
    return tuple(by_name[name] for name in order)


def order_variables(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Order variables such that each comes after its parents in the next state; the end is last."""
    left = dict(parents)
    placed: list[str] = []
    while left:
        ready = [
            name
            for name, own in left.items()
            if all(p.removeprefix(NEXT) in placed for p in own if p.startswith(NEXT))
            and (name != END or len(left) == 1)
        ]
        if not ready:
            circle = ", ".join(repr(name or END_NAME) for name in left)
            raise ValueError(
                f"the next-step parents of {circle} depend on each other; put the variables in an "
                "order and take next-step parents from earlier ones"
            )
        placed.append(ready[0])
        del left[ready[0]]
    return placed

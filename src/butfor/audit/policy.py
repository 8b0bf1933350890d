"""What a policy does in the situations of a log, beside what was done there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.log.variables import Variable, describe_action, describe_states
from butfor.printed import Printed
from butfor.types import Floats

Counts = NDArray[np.int64]
POLICY_TABLES = ("state", "variable", "action")


@dataclass(frozen=True, eq=False, repr=False)
class PolicyView(Printed):
    """A policy in the logged states, weighted by how often decisions were made there."""

    counts: Counts  # [S, A] decisions in the log
    target: Floats  # [S, A]
    differs: Floats  # [S] share of the decisions there that would have to change
    codes: Mapping[str, NDArray[np.integer]]  # [S] level of each state variable, by name
    state: Sequence[Variable]
    named: Sequence[Variable]  # the same, with the names of clusters as levels
    action: Sequence[Variable]

    @property
    def changed(self) -> float:
        """Share of all logged decisions that would have to change."""
        visits = self.counts.sum(axis=1)
        return float(visits @ self.differs / visits.sum())

    def table(self, by: str = "state") -> pd.DataFrame:
        """Return the policy by "state", "variable" (and level) or "action"."""
        if by not in POLICY_TABLES:
            raise ValueError(f"by {by!r}: give one of {', '.join(POLICY_TABLES)}")
        return {"state": self._by_state, "variable": self._by_variable, "action": self._by_action}[
            by
        ]()

    def _by_state(self) -> pd.DataFrame:
        met = np.flatnonzero(self.counts.sum(axis=1))
        codes = {name: code[met] for name, code in self.codes.items()}
        levels = {
            f"state.{v.name}": np.array(v.levels, dtype=object)[codes[v.name]] for v in self.state
        }
        words = describe_states(self.named, codes)
        table = pd.DataFrame({"state": met, "situation": words, **levels})
        rows = self._rows(self.counts[met], self._expected[met], self._changed[met])
        return _most_first(pd.concat([table, rows], axis=1))

    def _by_variable(self) -> pd.DataFrame:
        parts = []
        for variable in self.named:
            code, size = self.codes[variable.name], len(variable.levels)
            taken, policy = (_sum_by(code, one, size) for one in (self.counts, self._expected))
            changed = np.bincount(code, self._changed, minlength=size).astype(np.float64)
            rows = self._rows(taken, policy, changed)
            rows["shifts"] = self._shifts(policy)
            rows.insert(0, "variable", variable.name)
            rows.insert(1, "level", list(variable.levels))
            parts.append(rows[rows["decisions"] > 0])
        return pd.concat(parts, ignore_index=True)

    def _shifts(self, policy: Floats) -> Floats:
        """How far the policy in each situation, [m, A] decisions, is from its average, [m]."""
        average = self._expected.sum(axis=0) / self.counts.sum()
        rows = policy / np.maximum(policy.sum(axis=1), 1e-300)[:, None]
        return share_changed(rows, average[None])

    def _by_action(self) -> pd.DataFrame:
        total = self.counts.sum()
        table = pd.DataFrame(
            {
                "action": self._actions,
                "usual": self.counts.sum(axis=0) / total,
                "policy": self._expected.sum(axis=0) / total,
            }
        )
        order = np.argsort(-table[["usual", "policy"]].max(axis=1).to_numpy(), kind="stable")
        return table.iloc[order].reset_index(drop=True)

    @property
    def _expected(self) -> Floats:
        """Decisions of the policy in the logged states, [S, A]."""
        return self.target * self.counts.sum(axis=1)[:, None]

    @property
    def _changed(self) -> Floats:
        """Decisions that would have to change, [S]."""
        return self.differs * self.counts.sum(axis=1)

    @property
    def _actions(self) -> list[str]:
        return [describe_action(self.action, number) for number in range(self.counts.shape[1])]

    def _rows(self, taken: NDArray[np.number], policy: Floats, changed: Floats) -> pd.DataFrame:
        """Return one row per situation: decisions, and the likeliest action of both."""
        decisions = taken.sum(axis=1)
        words = np.array(self._actions, dtype=object)
        columns = {"decisions": decisions.astype(np.int64), "share": decisions / self.counts.sum()}
        row = np.arange(len(decisions))
        for name, chosen in (("policy", policy), ("usual", taken)):
            best = chosen.argmax(axis=1)
            columns[name] = words[best]
            columns[f"{name}_share"] = chosen[row, best] / np.maximum(decisions, 1)
        columns["differs"] = changed / np.maximum(decisions, 1)
        return pd.DataFrame(columns)


def share_changed(target: Floats, usual: Floats) -> Floats:
    """Least share of decisions that must change for the target to be followed, [S].

    This is the total variation distance between rows: 1 - sum of min(target, usual). If the target
    is deterministic, it is the share of decisions with another action than the target's.
    """
    return 1.0 - np.minimum(target, usual).sum(axis=1)


def _sum_by(code: NDArray[np.integer], values: NDArray[np.number], size: int) -> Floats:
    """Sum rows of values [S, k] by code [S]: [size, k]."""
    sums = np.zeros((size, values.shape[1]))
    np.add.at(sums, code, values)
    return sums


def _most_first(table: pd.DataFrame) -> pd.DataFrame:
    order = np.argsort(-table["decisions"].to_numpy(), kind="stable")
    return table.iloc[order].reset_index(drop=True)

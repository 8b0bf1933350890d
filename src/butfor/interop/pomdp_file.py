"""Models in Cassandra's `.pomdp` and `.mdp` files, with their states observed or hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sparse

from butfor.hidden.model import TabularPOMDP
from butfor.interop.pomdp_parser import parse_pomdp
from butfor.interop.pomdp_tables import MOST_ENTRIES
from butfor.log.variables import Outcome, Variable
from butfor.models.mdp import TabularMDP
from butfor.types import Floats, Integers

NOTHING = "nothing yet"  # observed at the start; names in a file have no spaces


@dataclass(frozen=True, eq=False)
class PomdpFile:
    """The content of a file; rows are state A + action, as in a TabularMDP."""

    discount: float
    values: str  # "reward" or "cost"
    states: tuple[str, ...]  # [S] names, or numbers as text
    actions: tuple[str, ...]  # [A]
    observations: tuple[str, ...]  # [Z], none in an .mdp file
    start: Floats  # [S] distribution of the first state
    transition: sparse.csr_array  # [S A, S]
    reward: sparse.csr_array  # [S A, S] as in the file, also costs; mean over observations
    observation: sparse.csr_array | None  # [S A, Z] on arrival in a state after an action
    reward_by_observation: bool  # whether rewards depend on the observation

    def mdp(self, outcomes: Mapping[str, Outcome] | None = None) -> TabularMDP:
        """Return the model with its states observed; costs become negative rewards.

        `outcomes` {name of a state: Outcome} names the states that are ends, which the format
        cannot express; transitions into them keep the reward of the file. Rewards that depend on
        the observation are averaged over the observations on arrival.
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

        In this format the observation is made on arrival and depends on the action, so the hidden
        state is a state of the file together with the last action. Actions with the same
        observations everywhere count as one. Noise stays on the file's states. The observation
        before the first action is "nothing yet", numbered after those of the file. If rewards
        depend on the observation, the model has their means, and logged rewards reveal nothing
        about the state (`reward_seen=False`). `outcomes` is as in `mdp`. In a model of a file
        without observations the states are observed.
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
        """Return the outcomes, and the index of each state's outcome [S], -1 for none."""
        ends = tuple(dict.fromkeys((outcomes or {}).values()))
        which = np.full(len(self.states), -1, np.int32)
        for name, outcome in (outcomes or {}).items():
            if name not in self.states:
                raise ValueError(f"outcomes: there is no state {name!r}; name a state of the file")
            which[self.states.index(name)] = ends.index(outcome)
        return ends, which

    def _earned(self) -> sparse.csr_array:
        return -self.reward if self.values == "cost" else self.reward.copy()

    def _showing_alike(self, shown: sparse.csr_array) -> tuple[Integers, list[str]]:
        """Group actions with equal observations in every state: group [A], and names of groups."""
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
        """Return rows [S A, S] as rows of states that also remember the last action."""
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
    """Read a model in Cassandra's format; errors name the line and the remedy."""
    return PomdpFile(**parse_pomdp(Path(path)))

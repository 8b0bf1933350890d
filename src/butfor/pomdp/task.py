"""What counterfactuals with a hidden state need, checked once and turned into what kernels take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_choice, check_discount, check_horizon
from butfor.episodes import Episodes
from butfor.mdp import total_by
from butfor.policy import estimate_behavior
from butfor.pomdp.beliefs import history_rows
from butfor.pomdp.model import TabularPOMDP, as_rows
from butfor.pomdp.policies import (
    BeliefPolicy,
    FiniteController,
    LatentPolicy,
    Policy,
    check_hidden_policy,
)
from butfor.scm.gumbel_max import GumbelMax
from butfor.scm.mechanism import Compiled, Mechanism, check_mechanism
from butfor.streams import Progress, in_blocks
from butfor.variables import Floats, Integers

MOST_CELLS = 20_000_000  # pairs of hidden state and memory that a table may have


@dataclass(frozen=True, eq=False)
class HiddenTask:
    """Checked inputs, as kernels take them."""

    episodes: Episodes
    model: TabularPOMDP
    horizon: int
    target: Floats | FiniteController | LatentPolicy | BeliefPolicy
    pairs: kernels.Pairs  # of a policy on beliefs: as if it were one on the last observation

    def part(self, chosen: NDArray[np.int64]) -> HiddenTask:
        """Return the same task for some of its episodes."""
        log = self.episodes.select(chosen)
        behavior = self.pairs.behavior
        if behavior.kind == kernels.STEP:
            row = np.concatenate(
                [np.arange(*self.episodes.offsets[i : i + 2]) for i in chosen.tolist()]
            )
            table = _matrix(behavior.rows, self.model.n_actions)
            behavior = behavior._replace(rows=as_rows(table[row]))
        arrays = log_arrays(log, None)._replace(left=self.pairs.log.left[chosen])
        pairs = self.pairs._replace(log=arrays, behavior=behavior)
        return replace(self, episodes=log, pairs=pairs)

    def run(
        self,
        kernel: Callable[[int, int], int],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Let a kernel, called with first and last, do all episodes; refuse impossible ones."""

        def work(first: int, last: int) -> None:
            refuse_impossible(
                kernel(first, last), self.episodes, self.model, self.pairs.behavior, self.pairs.log
            )

        in_blocks(work, len(self.episodes), threads=threads, progress=progress)


def prepare_hidden_task(
    episodes: Episodes,
    model: TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    continuation: bool = True,
) -> HiddenTask:
    """Check what counterfactuals with a hidden state need, and turn it into what kernels take."""
    check_choice(action_noise, "action_noise", ("shared", "fresh"))
    check_log(episodes, model)
    steps = episodes.horizon if horizon is None else check_horizon(horizon)
    log = episodes.truncate(steps)
    policy = check_hidden_policy(
        target, model.n_states, model.n_observations, model.n_actions, "target"
    )
    known = behavior_arrays(log, model, behavior)
    shared = action_noise == "shared"
    if shared:
        _check_actions(log, known)
    chosen = GumbelMax() if mechanism is None else check_mechanism(mechanism)
    if not isinstance(chosen, Compiled):
        raise ValueError(
            f"{chosen!r}: with a hidden state a mechanism needs a method `coupling`; give one of "
            "GumbelMax(), InverseCDF(), MaximalCoupling(), Independent()"
        )
    pairs = kernels.Pairs(
        log=log_arrays(log, steps if continuation else None),
        hidden=model.arrays,
        behavior=known,
        target=_cells(model, policy),
        coupling=chosen.coupling(int(model.dynamics.labels.max()) + 1),
        showing=chosen.coupling(model.n_observations),
        shared=shared,
        certain=model.shows is not None,
    )
    return HiddenTask(log, model, steps, policy, pairs)


def check_log(episodes: Episodes, model: TabularPOMDP) -> None:
    """Refuse a log of other observations, actions or outcomes."""
    given = (episodes.n_states, episodes.n_actions, len(episodes.outcomes))
    expected = (model.n_observations, model.n_actions, len(model.outcomes))
    if given != expected:
        raise ValueError(
            f"the log has {given[0]} observations, {given[1]} actions and {given[2]} outcomes, the "
            f"model {expected[0]}, {expected[1]} and {expected[2]}; the states of a log are what "
            "was seen"
        )


def log_arrays(log: Episodes, horizon: int | None) -> kernels.Log:
    """Return a log as kernels take it; None: nothing follows its episodes' ends."""
    left = np.zeros(len(log), np.int64) if horizon is None else horizon - log.lengths
    return kernels.Log(
        log.offsets[:-1],
        log.offsets[1:],
        left,
        log.state,
        log.action,
        log.next_state,
        log.reward,
        log.outcome,
    )


def behavior_arrays(
    log: Episodes, model: TabularPOMDP, behavior: Policy | None
) -> kernels.Behavior:
    """Return the policy that made the log as kernels take it; None: estimated by observation.

    Only what saw the hidden state makes actions tell of it.
    """
    given = estimate_behavior(log) if behavior is None else behavior
    known = check_hidden_policy(
        given, model.n_states, model.n_observations, model.n_actions, "behavior"
    )
    if isinstance(known, LatentPolicy):
        return kernels.Behavior(policy_rows(known.table), kernels.LATENT)
    if isinstance(known, FiniteController | BeliefPolicy):
        return kernels.Behavior(policy_rows(history_rows(log, model, known)), kernels.STEP)
    return kernels.Behavior(policy_rows(known), kernels.SEEN)


def policy_rows(policy: Floats) -> kernels.Rows:
    """Return a policy [R, A] as sparse rows."""
    return as_rows(sparse.csr_array(policy))


def _matrix(rows: kernels.Rows, columns: int) -> sparse.csr_array:
    """Return rows of kernels as a sparse matrix."""
    entries = (rows.probability, rows.label, rows.start)
    return sparse.csr_array(entries, shape=(len(rows.start) - 1, columns))


def _check_actions(log: Episodes, behavior: kernels.Behavior) -> None:
    """Refuse logged actions that a behaviour on what was seen never takes."""
    if behavior.kind == kernels.LATENT:
        return
    row = log.state if behavior.kind == kernels.SEEN else np.arange(len(log.state))
    table = _matrix(behavior.rows, log.n_actions)
    never = np.asarray(table[row, log.action]).reshape(-1) == 0
    if never.any():
        step = int(never.argmax())
        raise ValueError(
            f"{log.place(step)} takes action {log.action[step]}, which the behavior policy gives "
            "probability 0; leave behavior out to estimate it from the log"
        )


def _cells(
    model: TabularPOMDP, policy: Floats | FiniteController | LatentPolicy | BeliefPolicy
) -> kernels.Target:
    """Number the pairs of hidden state and memory that a target can be in."""
    going = np.flatnonzero(model.outcome < 0)
    none = np.zeros((1, 1, 1), np.int32)
    if isinstance(policy, LatentPolicy):
        state, node = going, np.zeros(len(going), np.int64)
        return _target(model, policy_rows(policy.table), kernels.FULL, state, node, state, 1, none)
    if isinstance(policy, FiniteController):
        nodes = policy.n_nodes
        state, node = np.repeat(going, nodes), np.tile(np.arange(nodes), len(going))
        rows = policy_rows(policy.action)
        return _target(
            model,
            rows,
            kernels.MEMORY,
            state,
            node,
            node,
            nodes,
            policy.following,
            policy.first,
        )
    if isinstance(policy, BeliefPolicy):  # its rows are asked for, draw by draw
        policy = np.full((model.n_observations, model.n_actions), 1.0 / model.n_actions)
    shown = model.emission[going].tocoo()
    state, node = going[shown.row], shown.col
    return _target(
        model, policy_rows(policy), kernels.LAST, state, node, node, model.n_observations, none
    )


def _target(
    model: TabularPOMDP,
    rows: kernels.Rows,
    kind: int,
    state: NDArray[Any],
    node: NDArray[Any],
    row: NDArray[Any],
    nodes: int,
    following: Integers,
    first: Integers | None = None,
) -> kernels.Target:
    if model.n_states * nodes > MOST_CELLS:
        raise ValueError(
            f"{model.n_states} hidden states and {nodes} nodes of memory make "
            f"{model.n_states * nodes} pairs, more than {MOST_CELLS}; draw instead, with the "
            "target as a BeliefPolicy"
        )
    cell = np.full((model.n_states, nodes), -1, np.int32)
    cell[state, node] = np.arange(len(state))
    begins = np.arange(model.n_observations, dtype=np.int32) if first is None else first
    target = kernels.Target(
        rows=rows,
        kind=kind,
        state=state.astype(np.int32),
        node=node.astype(np.int32),
        row=row.astype(np.int32),
        cell=cell,
        first=begins,
        following=np.ascontiguousarray(following),
        choice=np.empty(0, np.int64),
        moves=rows,
        earned=np.empty(0),
        absolute=np.empty(0),
        ended=np.empty((0, 0)),
    )
    return target._replace(**_choices(model, target))


def next_cells(
    model: TabularPOMDP, target: kernels.Target
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All moves of the model alone: the cell before, the entry taken, the cell after.

    An entry comes once for each observation that it may show; the cell after an end does not matter
    and is 0.
    """
    cell, taken = expand(target.rows.start, target.row)
    choice, entry = _entries_of_choices(model, target, cell, taken)
    choice, entry, arrived, _ = _arrivals(model, target, cell, taken, choice, entry)
    return cell[choice], entry, arrived


def _entries_of_choices(
    model: TabularPOMDP, target: kernels.Target, cell: NDArray[Any], taken: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Choice and entry of the model for each entry that a choice may take."""
    row = target.state[cell].astype(np.int64) * model.n_actions + target.rows.label[taken]
    return expand(model.dynamics.start, row)


def _arrivals(
    model: TabularPOMDP,
    target: kernels.Target,
    cell: NDArray[Any],
    taken: NDArray[Any],
    choice: NDArray[Any],
    entry: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Floats]:
    """Choice, entry, cell after and probability of what is shown there; an end shows nothing."""
    reached = model.dynamics.next_state[entry]
    over = model.outcome[reached] >= 0
    if target.kind == kernels.FULL:
        arrived = np.where(over, 0, target.cell[reached, 0])
        return choice, entry, arrived, np.ones(len(entry))
    emission = model.arrays.emission
    ended, going = np.flatnonzero(over), np.flatnonzero(~over)
    which, shown = expand(emission.start, reached[going])
    going = going[which]
    node = emission.label[shown]
    if target.kind == kernels.MEMORY:
        before, action = target.node[cell[choice[going]]], target.rows.label[taken[choice[going]]]
        node = target.following[before, action, node]
    arrived = np.concatenate([np.zeros(len(ended), np.int32), target.cell[reached[going], node]])
    chance = np.concatenate([np.ones(len(ended)), emission.probability[shown]])
    both = np.concatenate([ended, going])
    return choice[both], entry[both], arrived, chance


def _choices(model: TabularPOMDP, target: kernels.Target) -> dict[str, Any]:
    """What the model alone makes of each choice: a cell and one of its actions."""
    dynamics = model.dynamics
    size = np.diff(target.rows.start)[target.row]
    cell, taken = expand(target.rows.start, target.row)
    choices = len(cell)
    choice, entry = _entries_of_choices(model, target, cell, taken)
    share, reward = dynamics.probability[entry], dynamics.reward[entry]
    end = model.outcome[dynamics.next_state[entry]]
    ended = np.zeros((choices, len(model.outcomes)))
    np.add.at(ended, (choice[end >= 0], end[end >= 0]), share[end >= 0])
    earned, absolute = (total_by(choice, share * r, choices) for r in (reward, np.abs(reward)))
    choice, entry, arrived, chance = _arrivals(model, target, cell, taken, choice, entry)
    going = model.outcome[dynamics.next_state[entry]] < 0
    moves = sparse.csr_array(
        (
            (dynamics.probability[entry] * chance)[going],
            (choice[going], arrived[going]),
        ),
        shape=(choices, len(target.state)),
    )
    moves.sum_duplicates()
    return {
        "choice": np.cumsum(size) - size,
        "moves": as_rows(moves),
        "earned": earned,
        "absolute": absolute,
        "ended": ended,
    }


def cell_tables(task: HiddenTask, discount: float) -> tuple[Floats, Floats]:
    """What the model alone gives by steps left and cell.

    Returns the expected return [H + 1, C] and the probability of each outcome [H + 1, C, O + 1],
    the last column being that of none.
    """
    check_discount(discount)
    target = task.pairs.target
    cells, choices = len(target.state), len(target.earned)
    cell, taken = expand(target.rows.start, target.row)
    average = sparse.csr_array(
        (target.rows.probability[taken], (cell, np.arange(choices))), shape=(cells, choices)
    )
    moves = average @ _matrix(target.moves, cells)
    gained = average @ np.column_stack([target.earned, target.ended, np.zeros(choices)])
    kept = np.array([discount] + [1.0] * (gained.shape[1] - 1))
    tables = np.zeros((task.horizon + 1, *gained.shape))
    tables[0, :, -1] = 1.0  # with no step left there is no outcome
    for left in range(1, task.horizon + 1):
        tables[left] = gained + kept * (moves @ tables[left - 1])
    return np.ascontiguousarray(tables[:, :, 0]), np.ascontiguousarray(tables[:, :, 1:])


def first_cells(task: HiddenTask) -> Floats:
    """Probability of each cell at the start, by the model alone, [C]."""
    target, model = task.pairs.target, task.model
    mass = np.zeros(len(target.state))
    if target.kind == kernels.FULL:
        state = np.flatnonzero(model.initial)
        mass[target.cell[state, 0]] = model.initial[state]
        return mass
    shown = model.emission.tocoo()
    begins = model.initial[shown.row] > 0
    state, seen = shown.row[begins], shown.col[begins]
    share = model.initial[state] * shown.data[begins]
    np.add.at(mass, target.cell[state, target.first[seen]], share)
    return mass


def refuse_impossible(
    episode: int,
    log: Episodes,
    model: TabularPOMDP,
    behavior: kernels.Behavior,
    arrays: kernels.Log,
) -> None:
    """Say at which step an episode is impossible, as a kernel found it to be; -1: nothing."""
    if episode < 0:
        return
    trace = kernels.make_trace(model.arrays, arrays)
    space = np.empty(model.n_states)
    step = int(kernels.find_impossible(model.arrays, behavior, arrays, trace, space, episode))
    start, stop = int(log.offsets[episode]), int(log.offsets[episode + 1])
    seen = int(log.state[start + step] if start + step < stop else log.next_state[stop - 1])
    what = f"observation {seen}"
    if start + step == stop and log.outcome[episode] >= 0:
        what = f"outcome {log.outcomes[log.outcome[episode]].name!r} with " + what
    elif start + step < stop and behavior.kind == kernels.LATENT:
        what += f" and action {log.action[start + step]} of a behavior that saw the state"
    before = f" after action {log.action[start + step - 1]}" if step else ""
    reward = ""
    if step and model.reward_seen:
        reward = f" and reward {log.reward[start + step - 1]:g}"
    raise ValueError(
        f"episode {log.id[episode]}, step {step}: the model gives {what}{before}{reward} the "
        "probability 0, given all before; the model, the behavior or the log is wrong"
        + ("; if logged rewards are not the model's, use reward_seen=False" if reward else "")
    )


def expand(start: NDArray[np.int64], row: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List the entries of rows: for each entry, which of the rows it is of, and its place."""
    size = np.diff(start)[row]
    which = np.repeat(np.arange(len(row)), size)
    first = np.cumsum(size) - size
    return which, start[row][which] + np.arange(len(which)) - first[which]

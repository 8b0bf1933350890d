"""What counterfactuals of episodes need, checked once and turned into what kernels take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from butfor import kernels
from butfor.checks import check_choice, check_discount, check_horizon, check_policy
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.policies import Policy, as_array
from butfor.hidden.task import HiddenTask, prepare_hidden_task
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.protocol import Compiled, Mechanism, check_mechanism, counterfactual_rows
from butfor.models.fit import destinations
from butfor.models.mdp import TabularMDP, check_mdp
from butfor.models.planning import value_tables
from butfor.models.policies import estimate_behavior
from butfor.threads import in_blocks
from butfor.types import Floats, Progress

MOST_TABLED = 100_000_000  # numbers in the table of a mechanism that kernels do not know


@dataclass(frozen=True, eq=False)
class Task:
    """Checked inputs, as kernels take them."""

    episodes: Episodes
    model: TabularMDP
    horizon: int
    policy: Floats  # [S, A]
    mechanism: Mechanism
    problem: kernels.Problem

    def with_model(self, model: TabularMDP) -> Task:
        """Return the same task in another model of the same size."""
        problem = self.problem._replace(
            dynamics=_dynamics(model),
            coupling=couple(self.mechanism, self.episodes, model, self.policy),
        )
        return replace(self, model=model, problem=problem)

    def with_log(self, log: kernels.Log) -> Task:
        """Return the same task for other parts of its episodes."""
        return replace(self, problem=self.problem._replace(log=log))

    def run(
        self,
        kernel: Callable[[int, int, kernels.Work], int],
        *,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Let a kernel do all episodes; refuse impossible ones.

        It is called with first, last and the working space of its thread.
        """
        own = threading.local()

        def work(first: int, last: int) -> None:
            if not hasattr(own, "work"):
                own.work = kernels.make_work(self.problem)
            self.refuse(kernel(first, last, own.work))

        count = len(self.problem.log.start)
        in_blocks(work, count, threads=threads, progress=progress)

    def refuse(self, step: int) -> None:
        """Say what is wrong with a step that a kernel found to be impossible; -1: nothing."""
        _refuse_impossible(step, self.episodes, self.model)


def prepare(
    episodes: Episodes,
    model: TabularMDP | TabularPOMDP,
    target: Policy,
    *,
    behavior: Policy | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    continuation: bool = True,
) -> Task | HiddenTask:
    """Check what counterfactuals need, whether the state is seen or hidden."""
    if isinstance(model, TabularPOMDP):
        return prepare_hidden_task(
            episodes,
            model,
            target,
            behavior=behavior,
            mechanism=mechanism,
            action_noise=action_noise,
            horizon=horizon,
            continuation=continuation,
        )
    return prepare_task(
        episodes,
        model,
        as_array(target),
        behavior=None if behavior is None else as_array(behavior),
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        continuation=continuation,
    )


def prepare_task(
    episodes: Episodes,
    model: TabularMDP,
    target: ArrayLike,
    *,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    continuation: bool = True,
) -> Task:
    """Check what counterfactuals of episodes need, and turn it into what kernels take."""
    check_choice(action_noise, "action_noise", ("shared", "fresh"))
    check_mdp(model)
    states, actions = model.n_states, model.n_actions
    if (episodes.n_states, episodes.n_actions) != (states, actions):
        raise ValueError(
            f"the episodes have {episodes.n_states} states and {episodes.n_actions} actions, the "
            f"model {states} and {actions}; fit the model to episodes of the same kind"
        )
    if len(episodes.outcomes) != len(model.outcomes):
        raise ValueError(
            f"the episodes know {len(episodes.outcomes)} outcomes, the model {len(model.outcomes)}"
        )
    steps = episodes.horizon if horizon is None else check_horizon(horizon)
    log = episodes.truncate(steps)
    policy = check_policy(target, states, actions, "target")
    if behavior is None:
        known = estimate_behavior(episodes, terminal=model.terminal)
    else:
        known = check_policy(behavior, states, actions, "behavior")
    chosen = GumbelMax() if mechanism is None else mechanism
    problem = kernels.Problem(
        log=kernels.Log(
            log.offsets[:-1],
            log.offsets[1:],
            steps - log.lengths if continuation else np.zeros(len(log), dtype=np.int64),
            log.state,
            log.action,
            log.next_state,
            log.reward,
            log.outcome,
        ),
        behavior=_policy_rows(known),
        target=_policy_rows(policy),
        dynamics=_dynamics(model),
        coupling=couple(chosen, log, model, policy),
        shared=action_noise == "shared",
    )
    return Task(log, model, steps, policy, chosen, problem)


def _dynamics(model: TabularMDP) -> kernels.Dynamics:
    return kernels.Dynamics(
        kernels.Rows(model.start, model.entry_label, model.probability),
        model.next_state,
        model.reward,
        model.labels,
        model.n_states,
        model.n_actions,
        model.terminal == "visits",
    )


def couple(
    mechanism: Mechanism, log: Episodes, model: TabularMDP, policy: Floats
) -> kernels.Coupling:
    """Return a mechanism as kernels take it.

    One that kernels do not know is asked beforehand for the counterfactual of every row that the
    policy can use given every transition in the log.
    """
    check_mechanism(mechanism)
    labels = int(model.labels.max()) + 1
    if isinstance(mechanism, Compiled):
        return mechanism.coupling(labels)
    row = log.state.astype(np.int64) * model.n_actions + log.action
    entry = _find_entries(model, row, destinations(log, model.terminal))
    seen = np.unique(entry[entry >= 0])  # impossible steps are refused by the kernels
    used = np.flatnonzero((policy > 0).ravel())
    width = np.diff(model.start)[used]
    if len(seen) * int(width.sum()) > MOST_TABLED:
        raise ValueError(
            f"{mechanism!r}: {len(seen)} observed transitions and {len(used)} rows need a table of "
            f"{len(seen) * int(width.sum())} numbers; give the mechanism a method `coupling`"
        )
    inside = np.isin(model.entry_row, used)
    place = np.searchsorted(used, model.entry_row[inside])
    rows = np.zeros((len(used), labels))
    rows[place, model.entry_label[inside]] = model.probability[inside]
    mass = np.empty((len(seen), int(width.sum())))
    for i, e in enumerate(seen):
        factual = np.zeros(labels)
        own = slice(*model.start[model.entry_row[e] :][:2])
        factual[model.entry_label[own]] = model.probability[own]
        found = counterfactual_rows(mechanism, factual, rows, int(model.entry_label[e]))
        mass[i] = found[place, model.entry_label[inside]]
    first = np.concatenate([[0], np.cumsum(width)[:-1]])
    return kernels.Coupling(
        kernels.TABLE,
        np.empty(0, np.int64),
        (seen[:, None] * (len(model.start) - 1) + used).ravel(),
        (np.arange(len(seen))[:, None] * mass.shape[1] + first).ravel(),
        mass.ravel(),
    )


def _find_entries(
    model: TabularMDP, row: NDArray[np.int64], reached: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the entry of each row that leads there, -1 where none does."""
    columns = model.n_states + len(model.outcomes)
    keys = model.entry_row * columns + model.next_state
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys[order], row * columns + reached), len(keys) - 1)
    return np.where(keys[order][place] == row * columns + reached, order[place], -1)


def expected_outcomes(
    task: Task,
    discount: float,
    *,
    negligible: float = 0.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Push each episode of a task through its chain, exactly.

    Returns outcome probabilities [n, O + 1], expected returns [n], the mass that was `negligible`
    [n], and what the model alone gives by steps left and state [H + 1, S].
    """
    values, outcomes = value_tables(
        task.model, task.policy, horizon=task.horizon, discount=check_discount(discount)
    )
    count = len(task.problem.log.start)
    probability = np.zeros((count, outcomes.shape[2]))
    expected_return = np.zeros(count)
    left_out = np.zeros(count)
    task.run(
        lambda first, last, work: kernels.exact_outcomes(
            first,
            last,
            task.problem,
            work,
            float(discount),
            float(negligible),
            values,
            outcomes,
            probability,
            expected_return,
            left_out,
        ),
        threads=threads,
        progress=progress,
    )
    return probability, expected_return, left_out, values


def _policy_rows(policy: Floats) -> kernels.Rows:
    state, action = np.nonzero(policy)
    start = np.concatenate([[0], np.cumsum(np.bincount(state, minlength=len(policy)))])
    return kernels.Rows(start, action.astype(np.int32), policy[state, action])


def _refuse_impossible(step: int, log: Episodes, model: TabularMDP) -> None:
    """Say what is wrong with a step that a kernel found to be impossible; -1: nothing."""
    if step < 0:
        return
    state, action = int(log.state[step]), int(log.action[step])
    reached = int(destinations(log, model.terminal)[step])
    if reached not in model.row(state, action):
        place = f"state {reached}"
        if reached >= log.n_states:
            place = f"outcome {log.outcomes[reached - log.n_states].name!r}"
        raise ValueError(
            f"{log.place(step)} goes from state {state} by action {action} to {place}, which the "
            "model gives probability 0; fit the model to these episodes, or use fit_mdp(prior=...)"
        )
    raise ValueError(
        f"{log.place(step)} takes action {action} in state {state}, which the behavior policy "
        "gives probability 0; leave behavior out to estimate it from the log"
    )

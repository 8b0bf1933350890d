"""The engine for models whose state is observed: each episode has its own Markov chain.

Given an observed episode, the noises of its steps are independent, so under another policy the
states form a Markov chain that changes with time: at step t each row P(.|s, a) is replaced by its
counterfactual given the transition observed at t; past the observed end it is P itself. Where a
step repeats, so does its reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from butfor import kernels
from butfor.checks import check_policy, check_room
from butfor.hidden.latent import LatentPosterior
from butfor.hidden.policies import Policy, as_array
from butfor.log.episodes import Episodes
from butfor.log.variables import Outcome
from butfor.mechanisms.inverse_cdf import InverseCDF
from butfor.mechanisms.protocol import Compiled, Mechanism, counterfactual_rows
from butfor.models.fit import destinations, step_rewards
from butfor.models.mdp import TabularMDP, check_mdp
from butfor.models.planning import value_tables
from butfor.models.policies import estimate_behavior
from butfor.random import episode_keys
from butfor.replay.bounds import Bounds
from butfor.replay.changes import Changes
from butfor.replay.draws import Draws
from butfor.replay.outcomes import Found
from butfor.replay.steps import THIN, Steps, level_courses
from butfor.replay.values import Values, values_from_table
from butfor.threads import in_blocks
from butfor.types import Floats, Progress

if TYPE_CHECKING:
    from butfor.replay.replay import Replay

MOST_TABLED = 100_000_000  # numbers in the table of a mechanism that has no kernel
UNSUPPORTED = Outcome("unsupported", 0.0)

Space = TypeVar("Space")


class Prepared(NamedTuple):
    """A problem with all that a pass over its episodes needs."""

    problem: kernels.Problem
    values: Floats  # [H + 1, S] by steps left
    outcomes: Floats  # [H + 1, S, O + 1]
    spaces: list[kernels.Work]  # free ones, of any log

    def judged(self, discounts: Floats) -> kernels.Judged:
        """Return room for what a pass finds, with the values that it needs."""
        count, ends = len(self.problem.log.start), self.outcomes.shape[2]
        room = np.zeros((count, ends)), np.zeros(count)
        return kernels.Judged(discounts, self.values, self.outcomes, *room)


class ObservedEngine:
    """Answers a `Replay` whose model is a `TabularMDP`."""

    hidden = False
    drawn = False  # outcomes are exact, never shares of draws
    tight = True  # bounds of a single step are not conservative

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.model: TabularMDP = replay.mdp
        self.policy = replay.target_table
        self.problem = self._problem(self.model)

    @staticmethod
    def check(
        episodes: Episodes, model: TabularMDP, target: Policy, behavior: Policy | None
    ) -> tuple[Policy, Policy]:
        """Refuse a log, target or behavior of a different size; return both policies as [S, A]."""
        check_mdp(model)
        states, actions = model.n_states, model.n_actions
        if (episodes.n_states, episodes.n_actions) != (states, actions):
            raise ValueError(
                f"the episodes have {episodes.n_states} states and {episodes.n_actions} actions, "
                f"the model {states} and {actions}; fit the model to episodes of the same kind"
            )
        if len(episodes.outcomes) != len(model.outcomes):
            raise ValueError(
                f"the episodes have {len(episodes.outcomes)} outcomes, the model "
                f"{len(model.outcomes)}; fit the model to episodes of the same kind"
            )
        policy = check_policy(as_array(target), states, actions, "target")
        if behavior is None:
            return policy, estimate_behavior(episodes, terminal=model.terminal)
        return policy, check_policy(as_array(behavior), states, actions, "behavior")

    @cached_property
    def values(self) -> tuple[Floats, Floats]:
        """Value [H + 1, S] and outcome probabilities [H + 1, S, O + 1] by steps left and state."""
        return self.replay.once_for_all("values", lambda: self._values(self.model))

    @cached_property
    def discounts(self) -> Floats:
        """Factor by which what follows counts less in each state reached, [S]."""
        return self.model.discounts(self.replay.discount)

    def first_values(self) -> Floats:
        """Expected return of the target in the model, from each episode's first state, [n]."""
        return np.asarray(self.values[0][-1, self.replay.log.first_state])

    def logged_values(self) -> Values:
        """Values of the target in the model at the logged steps, exact."""
        replay = self.replay
        return values_from_table(
            self.values[0],
            self.model,
            replay.log,
            replay.horizon,
            self.discounts,
            rows=replay.log.target_probability if replay.by_row else None,
        )

    def courses(self) -> Floats:
        """Probability of each level at each step, and of each outcome so far."""
        return level_courses(self.replay.steps(probability=True), self.replay.log)

    def outcomes(
        self,
        *,
        draws: int,
        seed: int,
        threads: int | None,
        progress: Progress | None,
    ) -> Found:
        """Outcome probabilities, expected returns and unsupported mass, exact."""
        marked, end = self._marked
        probability, expected = self._push(self._prepare(marked), 0.0, threads, progress)
        if end is None:
            none = None if self._made_up.any() else np.zeros(len(expected))
            return Found(probability, expected, none)
        probability, mass = _give_back(probability, end)
        return Found(probability, expected, mass)

    def push(self, negligible: float, *, threads: int | None) -> tuple[Floats, Floats]:
        """Outcome probabilities and expected returns, nearly exact.

        From a state with less than `negligible` probability at a step the model alone takes over.
        """
        return self._push(self._prepare(self.model), negligible, threads, None)

    def everything(self, *, threads: int | None, progress: Progress | None) -> tuple[Found, Steps]:
        """Outcomes, with their unsupported mass, and steps, in one pass if possible."""
        marked, end = self._marked
        probability, expected, steps = self._walk(marked, False, threads, progress)
        if end is None:
            mass = self.unsupported(threads=threads)
        else:
            probability, mass = _give_back(probability, end)
        return Found(probability, expected, mass), steps

    def steps(self, *, probability: bool, threads: int | None, progress: Progress | None) -> Steps:
        """Follow each counterfactual step by step."""
        return self._walk(self.model, probability, threads, progress)[2]

    def unsupported(self, *, threads: int | None = None) -> Floats:
        """Probability that each counterfactual ever uses a pair that was never seen, [n].

        It is the probability of an additional outcome to which every such pair leads.
        """
        made_up = self._made_up
        if not made_up.any():
            return np.zeros(len(self.replay.log))
        marked = mark_rows(self.model, made_up)
        prepared = Prepared(self._problem(marked), *self._values(marked), [])
        return self._push(prepared, 0.0, threads, None)[0][:, -2]

    def unsupported_in_model(self) -> Floats:
        """The same for a new episode from each first state, by the model alone, [n]."""
        return unsupported_by_state(
            self.model, self.policy, horizon=self.replay.horizon, made_up=self._made_up
        )[self.replay.log.first_state]

    @property
    def bounded(self) -> kernels.Problem:
        """The problem with all that any mechanism can reach."""
        return self.problem

    def bounds(self, *, threads: int | None, progress: Progress | None) -> Bounds:
        """Bound each episode step by step, backwards, over every coupling of the rows."""
        problem, (values, outcomes) = self.bounded, self.values
        count, quantities = len(self.replay.log), outcomes.shape[2] + 1
        found = np.empty((count, 4 * quantities))
        free: list[kernels.BoundSpace] = []

        def bound(first: int, last: int, work: kernels.Work) -> int:
            with borrowed(free, lambda: kernels.make_bound_space(problem, found.shape[1])) as own:
                given = self.discounts, values, outcomes, found
                return kernels.episode_bounds(first, last, problem, work, own, *given)

        self.run(
            bound,
            problem=problem,
            threads=threads,
            progress=progress,
        )
        table = np.moveaxis(found.reshape(count, quantities, 2, 2), 2, 0)
        return Bounds(
            expected_return=table[:, :, 0],
            probability=table[:, :, 1:],
            usual_return=self.replay.usual_return,
            outcome_names=self.replay.log.outcome_names,
            tight=self.tight,
        )

    def draws(
        self, count: int, seed: int, *, threads: int | None, progress: Progress | None
    ) -> Draws:
        """Draw trajectories, one uniform number per decision."""
        log, horizon = self.replay.log, self.replay.horizon
        keys = episode_keys(seed, log.id, "counterfactual")
        state = np.full((len(log), count, horizon + 1), -1, dtype=np.int32)
        action = np.full((len(log), count, horizon), -1, dtype=np.int32)
        reward = np.zeros((len(log), count, horizon))
        self.run(
            lambda first, last, work: kernels.draw_counterfactuals(
                first, last, self.problem, work, keys, state, action, reward
            ),
            threads=threads,
            progress=progress,
        )
        return Draws(episodes=log, state=state, action=action, reward=reward)

    def contributions(self, *, threads: int | None) -> Floats:
        """How much each observed step adds to its episode's difference, [N]."""
        log, discount = self.replay.log, self.replay.discount
        kept = log.step_discounts(discount)
        here = np.empty(len(log.state))
        self.run(
            lambda first, last, work: kernels.step_values(
                first, last, self.problem, work, self.discounts, self.values[0], here
            ),
            threads=threads,
        )
        ends = log.offsets[1:] - 1
        following = np.append(here[1:], 0.0)
        over = (log.outcome >= 0) & (self.model.terminal == "visits")
        after = self.values[0][self.problem.log.left, log.next_state[ends]]
        following[ends] = np.where(over, 0.0, after)
        return np.asarray(discount**log.elapsed * (here - log.reward - kept * following))

    def posterior(self) -> LatentPosterior:
        """Raise an error: nothing is hidden."""
        raise ValueError("posterior: the state of this model is observed; give a TabularPOMDP")

    def fewest_changes(
        self, changes: int, *, threads: int | None, progress: Progress | None
    ) -> Changes:
        """Find the few actions that, if changed, would have raised the expected return most."""
        log, model = self.replay.log, self.model
        if model.terminal != "visits":
            raise ValueError(
                f"the model has {model.terminal!r} ends: outcomes come one step after the observed "
                "end, where no change is considered; fit it with terminal='visits'"
            )
        value = np.zeros((len(log), changes + 1))
        probability = np.zeros((len(log), changes + 1, len(model.outcomes) + 1))
        changed = np.zeros((len(log.state), changes + 1, model.n_actions))
        # every action may be chosen, whatever the target; nothing follows the observed end
        anything = np.full((model.n_states, model.n_actions), 1 / model.n_actions)
        problem = self.problem._replace(
            target=kernels.sparse_rows(anything),
            coupling=self._couple(model, anything),
            shared=False,
        )
        self.run(
            lambda first, last, work: kernels.fewest_changes(
                first, last, problem, work, self.discounts, value, probability, changed
            ),
            problem=problem,
            threads=threads,
            progress=progress,
        )
        return Changes(episodes=log, value=value, probability=probability, changed=changed)

    def run(
        self,
        kernel: Callable[[int, int, kernels.Work], int],
        *,
        problem: kernels.Problem | None = None,
        spaces: list[kernels.Work] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Run a kernel over all episodes in blocks; refuse impossible episodes.

        The kernel is called with first, last and a working space that no other thread has. Those in
        `spaces`, of earlier runs of the same problem about any log, are used and put back.
        """
        given = self.problem if problem is None else problem
        free: list[kernels.Work] = [] if spaces is None else spaces

        def work(first: int, last: int) -> None:
            with borrowed(free, lambda: kernels.make_work(given)) as own:
                self.refuse(kernel(first, last, own))

        in_blocks(work, len(given.log.start), threads=threads, progress=progress)

    def refuse(self, step: int) -> None:
        """Raise an error about a step that a kernel found impossible; -1: there is none."""
        if step < 0:
            return
        log, model = self.replay.log, self.model
        state, action = int(log.state[step]), int(log.action[step])
        reached = int(destinations(log, model.terminal)[step])
        if reached not in model.row(state, action):
            place = f"state {reached}"
            if reached >= log.n_states:
                place = f"outcome {log.outcomes[reached - log.n_states].name!r}"
            raise ValueError(
                f"{log.place(step)} goes from state {state} by action {action} to {place}, which "
                "the model gives probability 0; fit the model to these episodes, or use "
                "fit_mdp(prior=...)"
            )
        raise ValueError(
            f"{log.place(step)} takes action {action} in state {state}, which the behavior policy "
            "gives probability 0; leave behavior out to estimate it from the log"
        )

    def with_model(self, model: TabularMDP) -> Self:
        """Return the engine of the same question with another model of the same size."""
        return type(self)(self.replay.ask(model=model, behavior=self.replay.behavior))

    def _push(
        self,
        prepared: Prepared,
        negligible: float,
        threads: int | None,
        progress: Progress | None,
    ) -> tuple[Floats, Floats]:
        """Push the state distribution of each episode through its chain."""
        problem, judged = prepared.problem, prepared.judged(self.discounts)
        self.run(
            lambda first, last, work: kernels.exact_outcomes(
                first, last, problem, work, judged, negligible
            ),
            problem=problem,
            spaces=prepared.spaces,
            threads=threads,
            progress=progress,
        )
        return judged.outcome_mass, judged.expected_return

    def _walk(
        self,
        model: TabularMDP,
        probability: bool,
        threads: int | None,
        progress: Progress | None,
    ) -> tuple[Floats, Floats, Steps]:
        """Return outcome probabilities [n, O + 1], expected returns [n] and steps, in one pass."""
        replay = self.replay
        size = (len(replay.log), replay.horizon)
        check_room(size, f"{len(replay.log):,} episodes of up to {replay.horizon:,} steps")
        prepared = self._prepare(model)
        problem, judged = prepared.problem, prepared.judged(self.discounts)
        # the episode's own steps are all subtracted, including those cut off at the horizon
        own_row = replay.episodes.state.astype(np.int64) * model.n_actions + replay.episodes.action
        kept = size[0] if probability else 0
        walked = kernels.Steps(
            influence=np.zeros(size),
            mass=np.zeros(size),
            earned=np.zeros(size),
            evidence=np.full(size, np.nan),
            thin=np.zeros(size),
            other=np.zeros(size),
            apart=np.zeros(size),
            probability=np.zeros((kept, replay.horizon + 1, model.n_states + len(model.outcomes))),
        )
        records: list[kernels.Record] = []
        counts = replay.counts

        def walk(first: int, last: int, work: kernels.Work) -> int:
            make = partial(kernels.make_record, problem, walked, counts, float(THIN))
            with borrowed(records, make) as record:
                return kernels.walk_episodes(
                    first, last, problem, work, judged, own_row, replay.episodes.offsets, record
                )

        self.run(
            walk,
            problem=problem,
            spaces=prepared.spaces,
            threads=threads,
            progress=progress,
        )
        for record in records:
            kernels.go_on(problem, record)
        return judged.outcome_mass, judged.expected_return, Steps(**walked._asdict())

    def _problem(self, model: TabularMDP) -> kernels.Problem:
        """Return the question with a model of this size in the form that kernels take."""
        replay = self.replay
        log = replay.log
        return kernels.Problem(
            log=kernels.Log(
                log.offsets[:-1],
                log.offsets[1:],
                replay.steps_beyond,
                log.state,
                log.action,
                log.next_state,
                self._paid,
                log.outcome,
            ),
            behavior=kernels.sparse_rows(replay.behavior_table),
            target=kernels.sparse_rows(self.policy),
            dynamics=dynamics_of(model),
            coupling=self._couple(model, self.policy),
            factors=self._factors,
            shared=replay.action_noise == "shared",
        )

    @cached_property
    def _paid(self) -> Floats:
        """What each logged step pays where it repeats, [N]."""
        return step_rewards(self.replay.log, self.model.terminal)

    @cached_property
    def _factors(self) -> kernels.Factors:
        """The factors of a model with noise per variable: here there are none."""
        return kernels.no_factors()

    def _couple(self, model: TabularMDP, policy: Floats) -> kernels.Coupling:
        mechanism = self.replay.mechanism
        if isinstance(mechanism, InverseCDF) and mechanism.by_value:
            mechanism = InverseCDF(self._value_order)
        return couple(mechanism, self.replay.log, model, policy)

    @cached_property
    def _value_order(self) -> list[int]:
        """Next states and outcomes from the lowest value under the target to the highest."""
        if (self.model.labels != np.arange(len(self.model.labels))).any():
            raise ValueError(
                "order 'value' of an InverseCDF needs noise on states: use a model without labels"
            )
        ends = [outcome.reward for outcome in self.model.outcomes]
        return np.argsort([*self.values[0][-1], *ends], kind="stable").tolist()

    def _prepare(self, model: TabularMDP) -> Prepared:
        """Return what a pass needs in the model of the question, or in that of `_marked`."""
        if model is self.model:
            return Prepared(self.problem, *self.values, self._spaces("spaces"))
        values = self.replay.once_for_all("marked values", lambda: self._values(model))
        return Prepared(self._problem(model), *values, self._spaces("marked spaces"))

    def _spaces(self, key: str) -> list[kernels.Work]:
        """Return the working spaces that last; those with factors are about a log."""
        if len(self._factors.place) > 0:
            return []
        return self.replay.once_for_all(key, list)

    def _values(self, model: TabularMDP) -> tuple[Floats, Floats]:
        replay = self.replay
        return value_tables(model, self.policy, horizon=replay.horizon, discount=replay.discount)

    @cached_property
    def _made_up(self) -> NDArray[np.bool_]:
        """Whether each row was seen neither in the model's log nor in this one, [S A]."""
        return np.asarray((self.model.unseen & (self.replay.counts == 0)).ravel())

    @property
    def _marked(self) -> tuple[TabularMDP, int | None]:
        found = self.replay.once_for_all("marked", self._mark_one_end)
        # the model itself is told by identity
        return found if found[1] is not None else (self.model, None)

    def _mark_one_end(self) -> tuple[TabularMDP, int | None]:
        """Send made-up rows to an additional outcome, if all of them lead to the same outcome.

        Rewards and labels are unchanged, so the marked model serves the main pass too. Also returns
        the outcome that they really lead to; None if the model was not marked.
        """
        model = self.model
        inside = self._made_up[model.entry_row]
        ends = np.unique(model.next_state[inside])
        if len(ends) != 1 or ends[0] < model.n_states:
            return model, None
        end = model.n_states + len(model.outcomes)
        marked = replace(
            model,
            next_state=np.where(inside, end, model.next_state).astype(np.int32),
            labels=np.append(model.labels, model.labels[ends[0]]).astype(np.int32),
            outcomes=(*model.outcomes, UNSUPPORTED),
        )
        return marked, int(ends[0]) - model.n_states


def _give_back(probability: Floats, end: int) -> tuple[Floats, Floats]:
    """Add the mass of made-up rows to the outcome that they lead to; also return it separately."""
    mass = probability[:, -2].copy()
    given = np.delete(probability, -2, axis=1)
    given[:, end] = np.minimum(given[:, end] + mass, 1.0)
    return given, mass


def dynamics_of(model: TabularMDP) -> kernels.Dynamics:
    """Return the rows of a model in the form that kernels take."""
    return kernels.Dynamics(
        kernels.Rows(model.start, model.entry_label, model.probability),
        model.next_state,
        model.reward,
        model.labels,
        np.arange(len(model.labels), dtype=np.int32),
        model.n_states,
        model.n_actions,
        model.terminal == "visits",
    )


def couple(
    mechanism: Mechanism, log: Episodes, model: TabularMDP, policy: Floats
) -> kernels.Coupling:
    """Return a mechanism in the form that kernels take.

    For a mechanism without a kernel, the counterfactuals of all rows that the policy can use, given
    each transition in the log, are tabulated beforehand.
    """
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
    """Return the entry of each row that leads to the state reached, -1 where none does."""
    columns = model.n_states + len(model.outcomes)
    keys = model.entry_row * columns + model.next_state
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys[order], row * columns + reached), len(keys) - 1)
    return np.where(keys[order][place] == row * columns + reached, order[place], -1)


def unsupported_by_state(
    model: TabularMDP,
    target: Floats,
    *,
    horizon: int,
    made_up: NDArray[np.bool_] | None = None,
) -> Floats:
    """Probability that the target ever uses an unseen pair, in the model from each state, [S]."""
    marked = mark_rows(model, model.unseen.ravel() if made_up is None else made_up)
    return np.asarray(value_tables(marked, target, horizon=horizon)[1][-1, :, -2])


def mark_rows(model: TabularMDP, made_up: NDArray[np.bool_]) -> TabularMDP:
    """Copy the model, with an outcome "unsupported" to which the marked rows [S A] lead."""
    kept = ~made_up[model.entry_row]
    row = np.concatenate([model.entry_row[kept], np.flatnonzero(made_up)])
    order = np.argsort(row, kind="stable")  # entries of a row keep their order by label
    end = model.n_states + len(model.outcomes)
    added = made_up.sum()
    return replace(
        model,
        start=np.append(0, np.cumsum(np.bincount(row, minlength=len(made_up)))),
        next_state=np.append(model.next_state[kept], np.full(added, end, np.int32))[order],
        probability=np.append(model.probability[kept], np.ones(added))[order],
        reward=np.append(model.reward[kept], np.zeros(added))[order],
        # this outcome is certain in its rows, so its label matters to no mechanism
        labels=np.append(model.labels, model.labels[-1]).astype(np.int32),
        outcomes=(*model.outcomes, UNSUPPORTED),
    )


@contextmanager
def borrowed(free: list[Space], make: Callable[[], Space]) -> Iterator[Space]:
    """Take a working space that no other thread has, or make one; put it back if all goes well."""
    try:
        space = free.pop()
    except IndexError:
        space = make()
    yield space
    free.append(space)

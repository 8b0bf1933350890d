"""Learning what a log with a hidden state was made by: its behaviour, its tables (EM)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from butfor import kernels
from butfor.checks import check_choice, check_whole
from butfor.episodes import Episodes
from butfor.mdp import total_by
from butfor.policy import estimate_behavior
from butfor.pomdp.chain import exact_outcomes, model_value
from butfor.pomdp.factors import Factored, first_cells, first_weights, transition_weights
from butfor.pomdp.model import TabularPOMDP
from butfor.pomdp.policies import BeliefPolicy, LatentPolicy, Policy, check_hidden_policy
from butfor.pomdp.task import (
    behavior_arrays,
    check_log,
    log_arrays,
    policy_rows,
    prepare_hidden_task,
    refuse_impossible,
)
from butfor.scm.tables import Table
from butfor.streams import Progress, check_seed, in_blocks
from butfor.variables import Floats

PARTS = 16  # of a log, summed in this order whatever the number of threads
CONCENTRATION = (
    5.0  # of the Dirichlet rows that restarts begin with; larger is closer to the centre
)
DUST = 1e-15  # smaller probabilities of what was learned are on their way to 0, and become it
KEPT = 0.1  # share of the centre in such a row, so that nothing possible becomes impossible

Parameters = TypeVar("Parameters")
Tables = dict[str, Floats]


@dataclass(frozen=True, eq=False)
class BehaviorFit:
    """A behaviour on hidden states that was learned from a log."""

    policy: LatentPolicy
    log_likelihood: Floats  # [iterations] of the best restart; see `fit_latent_behavior`
    converged: bool
    restarts: pd.DataFrame  # a row a restart: log_likelihood, iterations, converged


@dataclass(frozen=True, eq=False)
class PomdpFit:
    """A model with a hidden state that was learned from a log: the best restart, and all of them.

    Where `restarts` of nearly equal log-likelihood differ in value the log does not tell which is
    right: report their spread, not the best one alone.
    """

    factored: Factored  # with learned tables
    behavior: Policy | None  # the learned one, or what was given
    log_likelihood: Floats  # [iterations] of the best restart; see `fit_pomdp`
    converged: bool
    restarts: pd.DataFrame  # a row a restart: log_likelihood, iterations, converged and, with a
    # target, counterfactual (the mean of expected returns) and model_value

    @cached_property
    def model(self) -> TabularPOMDP:
        """The learned model."""
        return self.factored.model()

    @property
    def initial(self) -> Floats:
        """Distribution of the first hidden state, [H]."""
        return self.factored.first


class _Counts(NamedTuple):
    moved: Floats  # [E]
    began: Floats  # [H]
    evidence: float


class _Guess(NamedTuple):
    """What is being learned; tables are [rows, levels]."""

    tables: Tables
    first: Tables  # of the first state, by variable; "" for the joint one
    behavior: Floats  # [H, A]


class _Climb(NamedTuple):
    parameters: Any
    trail: Floats  # [iterations]
    converged: bool


def fit_latent_behavior(
    episodes: Episodes,
    model: TabularPOMDP,
    *,
    start: LatentPolicy | None = None,
    iterations: int = 300,
    tolerance: float = 1e-6,
    restarts: int = 1,
    prior: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
) -> BehaviorFit:
    """Learn the policy that made a log and saw the hidden state, the model being known (EM).

    Parameters
    ----------
    start : optional
        Where to begin; by default what was done by observation. Restarts after the first begin
        with rows drawn at random around it.
    iterations, tolerance
        Ends when an iteration adds less than `tolerance` an episode to the log-likelihood.
    prior
        How many decisions in each hidden state the row of its observation counts for. With one,
        `log_likelihood` includes the logarithm of its density, up to a constant.

    Notes
    -----
    The E step is `latent_posterior` with the behaviour so far, the M step counts hidden states and
    actions by it: the log-likelihood never decreases. States that were never visited get the row of
    their observation.
    """
    check_log(episodes, model)
    _check_knobs(iterations, tolerance, restarts, prior)
    centre = _seen_rows(episodes, model)
    begin = centre
    if start is not None:
        given = check_hidden_policy(
            start, model.n_states, model.n_observations, model.n_actions, "start"
        )
        if not isinstance(given, LatentPolicy):
            raise ValueError("start: give a LatentPolicy, a row a hidden state")
        begin = given.table

    def improve(table: Floats) -> tuple[float, Floats]:
        counts = _expect(episodes, model, model.arrays, _latent(table), threads)
        better = _rows(_decisions(counts.moved, model), centre, prior)
        return counts.evidence + _penalty(table, centre, prior), better

    climbs = []
    for number in range(restarts):
        generator = np.random.default_rng([check_seed(seed), number])
        first = _perturb(begin, generator) if number else begin
        climbs.append(_climb(first, improve, iterations, tolerance * len(episodes)))
    best = max(climbs, key=lambda climb: climb.trail[-1])
    return BehaviorFit(
        LatentPolicy(_clean(best.parameters)), best.trail, best.converged, _restart_frame(climbs)
    )


def fit_pomdp(
    episodes: Episodes,
    factored: Factored,
    *,
    learn: Sequence[str] | None = None,
    learn_initial: bool = True,
    behavior: Policy | str | None = None,
    start: str = "given",
    restarts: int = 5,
    iterations: int = 300,
    tolerance: float = 1e-6,
    prior: float = 0.0,
    seed: int = 0,
    target: Policy | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PomdpFit:
    """Learn the tables of a model whose structure is known from what was seen (EM).

    Parameters
    ----------
    learn : optional
        Names of the state variables whose tables to learn; by default all that have one.
        What a table gives the probability 0 stays impossible.
    learn_initial
        Whether to learn the distribution of the first state too.
    behavior : optional
        The policy that made the log. "learn": one that saw the hidden state, to be learned too;
        a LatentPolicy: known. Any other, or None, saw what the log shows: its actions tell nothing.
    start : "given" or "uniform"
        Each restart begins with rows drawn at random (Dirichlet) around the given ones, or around
        rows that are uniform on what is possible. Rows of which nothing was seen become these.
    iterations, tolerance
        Ends when an iteration adds less than `tolerance` an episode to the log-likelihood.
    prior
        How many observations those rows count for. With one, `log_likelihood` includes the
        logarithm of its density, up to a constant.
    target : optional
        A policy, not one on beliefs, to value by the model of each restart.
    progress : optional
        Called with (restarts done, restarts in all).

    Notes
    -----
    Only models of known structure can be learned. With free transition matrices (Baum-Welch over
    all hidden states) a log of the sepsis simulator of usual length says nothing of them: with
    1000 episodes values came out at +.84 to +.99 where -.4 to -.7 was right, no better than with
    the hidden state ignored. So there is no such estimator here.

    The levels of a hidden variable that nothing else tells apart, such as those of a static
    confounder, may come out under each other's names.
    """
    check_choice(start, "start", ("given", "uniform"))
    _check_knobs(iterations, tolerance, restarts, prior)
    model = factored.model()
    check_log(episodes, model)
    if isinstance(target, BeliefPolicy):
        raise ValueError("target: a policy on beliefs takes long to value; give another one")
    learner = _Learner(
        episodes,
        factored,
        model,
        _check_learn(factored, learn),
        learn_initial,
        behavior,
        start,
        prior,
    )
    climbs, values = [], []
    for number in range(restarts):
        generator = np.random.default_rng([check_seed(seed), number])
        climb = _climb(
            learner.begin(generator),
            lambda guess: learner.improve(guess, threads),
            iterations,
            tolerance * len(episodes),
        )
        climbs.append(climb)
        if target is not None:
            values.append(_value(episodes, *learner.result(climb.parameters), target, threads))
        if progress is not None:
            progress(number + 1, restarts)
    best = max(climbs, key=lambda climb: climb.trail[-1])
    learned, policy = learner.result(best.parameters)
    frame = _restart_frame(climbs)
    if target is not None:
        frame[["counterfactual", "model_value"]] = values
    return PomdpFit(learned, policy, best.trail, best.converged, frame)


class _Learner:
    """One EM problem: what is learned, what is kept, and where restarts begin."""

    def __init__(
        self,
        episodes: Episodes,
        factored: Factored,
        model: TabularPOMDP,
        learn: set[str],
        learn_initial: bool,
        behavior: Policy | str | None,
        start: str,
        prior: float,
    ) -> None:
        self.episodes, self.factored, self.model, self.prior = episodes, factored, model, prior
        self.layout = factored.layout()
        self.learn, self.learn_initial = learn, learn_initial
        self.given_behavior = behavior
        self.learn_behavior = isinstance(behavior, str)
        if isinstance(behavior, str):
            check_choice(behavior, "behavior", ("learn",))
        self.known = (
            _latent(_seen_rows(episodes, model))
            if isinstance(behavior, str)
            else behavior_arrays(episodes, model, behavior)
        )
        initial = factored.initial
        joint = not isinstance(initial, Mapping)
        self.first_cells = {} if joint else first_cells(factored)
        tables = {name: _flat(table) for name, table in factored.tables.items()}
        first = (
            {"": initial[None, :]}
            if not isinstance(initial, Mapping)
            else {name: _flat(table) for name, table in initial.items()}
        )
        if start == "uniform":
            tables = {n: _even(t) if n in learn else t for n, t in tables.items()}
            first = {n: _even(t) if learn_initial else t for n, t in first.items()}
        self.centre = _Guess(tables, first, _seen_rows(episodes, model))

    def begin(self, generator: np.random.Generator) -> _Guess:
        """Draw where a restart begins."""
        tables, first, behavior = self.centre
        return _Guess(
            {n: _perturb(t, generator) if n in self.learn else t for n, t in tables.items()},
            {n: _perturb(t, generator) if self.learn_initial else t for n, t in first.items()},
            _perturb(behavior, generator) if self.learn_behavior else behavior,
        )

    def improve(self, guess: _Guess, threads: int | None) -> tuple[float, _Guess]:
        """Return the objective of a guess and the next one."""
        hidden = self.model.arrays
        drawn = self._draws(guess.first)
        going = np.where(self.factored.outcome < 0, drawn, 0.0)
        hidden = hidden._replace(
            rows=hidden.rows._replace(probability=transition_weights(guess.tables, self.layout)),
            initial=going / going.sum(),
        )
        known = _latent(guess.behavior) if self.learn_behavior else self.known
        counts = _expect(self.episodes, self.model, hidden, known, threads)
        objective = counts.evidence
        tables, first, behavior = dict(guess.tables), dict(guess.first), guess.behavior
        for name in self.learn:
            centre = self.centre.tables[name]
            found = total_by(self.layout.cell[name], counts.moved, centre.size)
            tables[name] = _rows(found.reshape(centre.shape), centre, self.prior)
            objective += _penalty(guess.tables[name], centre, self.prior)
        if self.learn_initial:
            # for each episode that began, draws of ends were thrown away before: (1 - Z) / Z
            thrown = np.where(self.factored.outcome >= 0, drawn, 0.0)
            began = counts.began + len(self.episodes) / going.sum() * thrown
            for name, centre in self.centre.first.items():
                found = total_by(self.first_cells[name], began, centre.size) if name else began
                first[name] = _rows(found.reshape(centre.shape), centre, self.prior)
                objective += _penalty(guess.first[name], centre, self.prior)
        if self.learn_behavior:
            behavior = _rows(_decisions(counts.moved, self.model), self.centre.behavior, self.prior)
            objective += _penalty(guess.behavior, self.centre.behavior, self.prior)
        return objective, _Guess(tables, first, behavior)

    def result(self, guess: _Guess) -> tuple[Factored, Policy | None]:
        """Return what a guess says, as it is given to users."""
        moves = dict(self.factored.moves)
        for name, table in self.factored.tables.items():
            moves[name] = _shaped(table, guess.tables[name])
        initial: Any = _clean(guess.first.get("", np.ones((1, 1))))[0]
        if isinstance(self.factored.initial, Mapping):
            initial = {
                name: _shaped(table, guess.first[name])
                for name, table in self.factored.initial.items()
            }
        behavior = self.given_behavior
        if isinstance(behavior, str):
            behavior = LatentPolicy(_clean(guess.behavior))
        return replace(self.factored, moves=moves, initial=initial), behavior

    def _draws(self, first: Tables) -> Floats:
        """Probability of each first state before ends are thrown away, [H]."""
        return first[""][0] if "" in first else first_weights(first, self.factored)


def _climb(
    parameters: Parameters,
    improve: Callable[[Parameters], tuple[float, Parameters]],
    iterations: int,
    least: float,
) -> _Climb:
    """Improve until an iteration adds less than `least`, or there were so many."""
    trail: list[float] = []
    while True:
        value, better = improve(parameters)
        trail.append(value)
        converged = len(trail) > 1 and trail[-1] - trail[-2] < least
        if converged or len(trail) == iterations:
            return _Climb(parameters, np.array(trail), converged)
        parameters = better


def _expect(
    episodes: Episodes,
    model: TabularPOMDP,
    hidden: kernels.Hidden,
    behavior: kernels.Behavior,
    threads: int | None,
) -> _Counts:
    """Expected transitions and first states, and the logarithm of the evidence."""
    log = log_arrays(episodes, None)
    edge = np.linspace(0, len(episodes), min(PARTS, len(episodes)) + 1).astype(np.int64)
    moved = np.zeros((len(edge) - 1, len(hidden.next_state)))
    began = np.zeros((len(edge) - 1, hidden.states))
    evidence = np.empty(len(episodes))

    def work(first: int, last: int) -> None:
        trace = kernels.make_trace(hidden, log)
        for part in range(first, last):
            impossible = kernels.count_paths(
                edge[part],
                edge[part + 1],
                hidden,
                behavior,
                log,
                trace,
                evidence,
                moved[part],
                began[part],
            )
            refuse_impossible(impossible, episodes, model, behavior, log)

    in_blocks(work, len(edge) - 1, threads=threads)
    return _Counts(moved.sum(axis=0), began.sum(axis=0), float(evidence.sum()))


def _decisions(moved: Floats, model: TabularPOMDP) -> Floats:
    """Expected decisions by hidden state and action, [H, A]: each is one transition."""
    shape = model.n_states, model.n_actions
    return total_by(model.dynamics.entry_row, moved, shape[0] * shape[1]).reshape(shape)


def _seen_rows(episodes: Episodes, model: TabularPOMDP) -> Floats:
    """What was done in the observations that each hidden state shows, [H, A]."""
    rows = np.asarray(model.emission @ estimate_behavior(episodes))
    rows[rows.sum(axis=1) == 0] = 1.0  # ends that show nothing
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _latent(table: Floats) -> kernels.Behavior:
    return kernels.Behavior(policy_rows(table), kernels.LATENT)


def _rows(counts: Floats, centre: Floats, prior: float) -> Floats:
    """Rows of the M step; without a count the centre."""
    weight = counts + prior * centre
    total = weight.sum(axis=1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1.0), centre)


def _penalty(rows: Floats, centre: Floats, prior: float) -> float:
    """Logarithm of the prior's density, up to a constant."""
    if prior == 0:
        return 0.0
    inside = centre > 0
    return prior * float(centre[inside] @ np.log(rows[inside]))


def _clean(rows: Floats) -> Floats:
    """Rows without dust."""
    kept = np.where(rows < DUST, 0.0, rows)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def _perturb(centre: Floats, generator: np.random.Generator) -> Floats:
    """Rows drawn around a centre, possible where it is."""
    drawn = generator.gamma(CONCENTRATION * centre)
    total = drawn.sum(axis=1, keepdims=True)
    drawn = np.where(total > 0, drawn / np.where(total > 0, total, 1.0), centre)
    return (1 - KEPT) * drawn + KEPT * centre


def _even(rows: Floats) -> Floats:
    """Rows that are uniform on what is possible."""
    return np.asarray((rows > 0) / (rows > 0).sum(axis=1, keepdims=True))


def _flat(table: Table) -> Floats:
    return table.probability.reshape(-1, table.probability.shape[-1])


def _shaped(table: Table, rows: Floats) -> Table:
    return Table(table.parents, _clean(rows).reshape(table.probability.shape))


def _value(
    episodes: Episodes,
    factored: Factored,
    behavior: Policy | None,
    target: Policy,
    threads: int | None,
) -> tuple[float, float]:
    """Mean counterfactual return and the value by the model alone."""
    task = prepare_hidden_task(episodes, factored.model(), target, behavior=behavior)
    _, expected = exact_outcomes(task, 1.0, threads=threads)
    return float(expected.mean()), model_value(task)


def _restart_frame(climbs: Sequence[_Climb]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "log_likelihood": [climb.trail[-1] for climb in climbs],
            "iterations": [len(climb.trail) for climb in climbs],
            "converged": [climb.converged for climb in climbs],
        }
    )


def _check_learn(factored: Factored, learn: Sequence[str] | None) -> set[str]:
    known = factored.tables
    if isinstance(learn, str):
        raise ValueError(f"learn {learn!r}: give a list of names")
    for name in learn or ():
        if name not in known:
            raise ValueError(
                f"learn: {name!r} has no table; those of {', '.join(map(repr, known))} can be "
                "learned"
            )
    return set(known if learn is None else learn)


def _check_knobs(iterations: int, tolerance: float, restarts: int, prior: float) -> None:
    check_whole(iterations, "iterations", 1, "a whole number")
    check_whole(restarts, "restarts", 1, "a whole number")
    for name, value in (("tolerance", tolerance), ("prior", prior)):
        if not np.isfinite(value) or value < 0:
            raise ValueError(f"{name} {value}: give a number, 0 or more")

"""Learn a behavior that saw the hidden state, or the tables of a model, from a log (EM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from butfor.checks import check_choice, check_whole
from butfor.graph.tables import Table
from butfor.hidden.cells import pomdp_value
from butfor.hidden.chain import exact_outcomes
from butfor.hidden.expectation import (
    clean,
    climb,
    compare,
    even,
    expect,
    fit_rows,
    latent_behavior,
    penalty,
    perturb,
    seen_rows,
)
from butfor.hidden.factors import Factored, first_cells, multiply
from butfor.hidden.model import TabularPOMDP
from butfor.hidden.pairs import behavior_arrays, check_log, prepare_pairs
from butfor.hidden.policies import (
    LatentPolicy,
    Policy,
    check_finite_policy,
    check_hidden_policy,
)
from butfor.log.episodes import Episodes
from butfor.models.mdp import total_by
from butfor.printed import Printed
from butfor.random import check_seed
from butfor.types import Floats, Progress

# by ("moves", variable), ("initial", variable or "" for a joint one), BEHAVIOR: rows
Guess = dict[tuple[str, str], Floats]
BEHAVIOR = ("behavior", "")


@dataclass(frozen=True, eq=False, repr=False)
class BehaviorFit(Printed):
    """A behavior on hidden states, learned from a log."""

    policy: LatentPolicy
    log_likelihood: Floats  # [iterations] of the best restart; see `fit_latent_behavior`
    converged: bool
    restarts: pd.DataFrame  # one row per restart: log_likelihood, iterations, converged


@dataclass(frozen=True, eq=False, repr=False)
class PomdpFit(Printed):
    """A model with a hidden state, learned from a log: the best restart, and a table of all.

    Where `restarts` of nearly equal log-likelihood differ in value, the log does not tell which is
    right: report their spread, not only the best one.
    """

    factored: Factored  # with learned tables
    behavior: Policy | None  # the learned or the given one
    log_likelihood: Floats  # [iterations] of the best restart; see `fit_pomdp`
    converged: bool
    # one row per restart: log_likelihood, iterations, converged and, with a target,
    # counterfactual (the mean of expected returns) and model_value
    restarts: pd.DataFrame

    @cached_property
    def model(self) -> TabularPOMDP:
        """The learned model."""
        return self.factored.model()

    @property
    def initial(self) -> Floats:
        """Distribution of the first hidden state, [H]."""
        return self.factored.first


def fit_latent_behavior(
    episodes: Episodes,
    model: TabularPOMDP,
    *,
    start: LatentPolicy | None = None,
    iterations: int = 300,
    tolerance: float = 1e-5,
    restarts: int = 1,
    prior: float = 0.0,
    seed: int = 0,
    threads: int | None = None,
) -> BehaviorFit:
    """Learn a behavior policy that saw the hidden state, given the model (EM).

    Parameters
    ----------
    start : optional
        Where to begin; by default the behavior estimated by observation. Restarts after the first
        begin with rows drawn at random around it.
    iterations, tolerance
        EM stops when an iteration adds less than `tolerance` per episode to the log-likelihood.
    prior
        The number of decisions that the observation's row is worth in each hidden state. With a
        prior, `log_likelihood` includes the logarithm of its density, up to a constant.

    Notes
    -----
    The E step is `latent_posterior` under the current behavior, the M step counts hidden states and
    actions by it, so the log-likelihood never decreases. States that were never visited get the row
    of their observation.
    """
    check_log(episodes, model)
    _check_knobs(iterations, tolerance, restarts, prior)
    center = seen_rows(episodes, model)
    begin = center
    if start is not None:
        given = check_hidden_policy(start, *model.sizes, "start")
        if not isinstance(given, LatentPolicy):
            raise ValueError("start: give a LatentPolicy, with one row per hidden state")
        begin = given.table

    def improve(table: Floats) -> tuple[float, Floats]:
        counts = expect(episodes, model, model.arrays, latent_behavior(table), threads)
        decisions = total_by(model.dynamics.entry_row, counts.moved, center.size)
        better = fit_rows(decisions.reshape(center.shape), center, prior)
        return counts.evidence + penalty(table, center, prior), better

    climbs = []
    for number in range(restarts):
        generator = np.random.default_rng([check_seed(seed), number])
        first = perturb(begin, generator) if number else begin
        climbs.append(climb(first, improve, iterations, tolerance * len(episodes)))
    best, frame = compare(climbs)
    return BehaviorFit(LatentPolicy(clean(best.parameters)), best.trail, best.converged, frame)


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
    tolerance: float = 1e-5,
    prior: float = 0.0,
    seed: int = 0,
    target: Policy | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> PomdpFit:
    """Learn the tables of a model of known structure from a log of observations (EM).

    Parameters
    ----------
    learn : optional
        Names of the state variables whose tables to learn; by default all that have one.
        Entries of a table that are 0 stay 0.
    learn_initial
        Whether to learn the distribution of the first state too.
    behavior : optional
        The policy that made the log. "learn": it saw the hidden state and is learned too;
        a LatentPolicy: it is known. Any other policy, or None, saw only what the log shows, so that
        its actions carry no information.
    start : "given" or "uniform"
        Each restart begins with rows drawn at random (Dirichlet) around the given ones, or around
        rows that are uniform on their support. Rows without any data become these.
    iterations, tolerance
        EM stops when an iteration adds less than `tolerance` per episode to the log-likelihood.
    prior
        The number of observations that those rows are worth. With a prior, `log_likelihood`
        includes the logarithm of its density, up to a constant.
    target : optional
        A policy to evaluate in the model of each restart; not a `BeliefPolicy`.
    progress : optional
        Called with (restarts done, restarts in all).

    Notes
    -----
    Only models of known structure can be learned. With free transition matrices (Baum-Welch over
    all hidden states) a log of the sepsis simulator of usual length does not determine them: with
    1000 episodes the values came out at +.84 to +.99 where -.4 to -.7 was right, no better than
    ignoring the hidden state. So there is no such estimator here.

    Levels of a hidden variable that nothing else distinguishes, such as those of a static
    confounder, may come out with their names exchanged.
    """
    check_choice(start, "start", ("given", "uniform"))
    _check_knobs(iterations, tolerance, restarts, prior)
    chosen = _check_learn(factored, learn)
    learner = _Learner(episodes, factored, chosen, learn_initial, behavior, start, prior)
    if target is not None:
        check_finite_policy(target, *learner.model.sizes, "target")
    climbs, values = [], []
    for number in range(restarts):
        end = climb(
            learner.begin(np.random.default_rng([check_seed(seed), number])),
            lambda guess: learner.improve(guess, threads),
            iterations,
            tolerance * len(episodes),
        )
        climbs.append(end)
        if target is not None:
            values.append(learner.values(end.parameters, target, threads))
        if progress is not None:
            progress(number + 1, restarts)
    best, frame = compare(climbs)
    learned, policy = learner.result(best.parameters)
    if target is not None:
        frame[["counterfactual", "model_value"]] = values
    return PomdpFit(learned, policy, best.trail, best.converged, frame)


class _Learner:
    """One EM problem: what is learned, what is kept, and the center that restarts begin around."""

    def __init__(
        self,
        episodes: Episodes,
        factored: Factored,
        learn: Sequence[str],
        learn_initial: bool,
        behavior: Policy | str | None,
        start: str,
        prior: float,
    ) -> None:
        self.episodes, self.factored, self.prior = episodes, factored, prior
        self.model = factored.model()
        check_log(episodes, self.model)
        self.given, self.learning = behavior, isinstance(behavior, str)
        self.over = factored.outcome >= 0
        # by table: the position of its factor in each transition, or in each first state
        self.moves = {("moves", name): place for name, place in factored.layout().cell.items()}
        self.begins = {("initial", name): place for name, place in first_cells(factored).items()}
        self.cell = self.moves | self.begins | {BEHAVIOR: self.model.dynamics.entry_row}
        initial = factored.initial
        if isinstance(initial, Mapping):
            begins = {name: _flat(table) for name, table in initial.items()}
        else:
            begins = {"": initial[None, :]}
        self.center: Guess = {("initial", name): rows for name, rows in begins.items()}
        for name, table in factored.tables.items():
            self.center["moves", name] = _flat(table)
        self.learned = [("moves", name) for name in learn]
        if learn_initial:
            self.learned += list(self.begins)
        if start == "uniform":
            self.center |= {key: even(self.center[key]) for key in self.learned}
        self.center[BEHAVIOR] = seen_rows(episodes, self.model)
        if isinstance(behavior, str):
            check_choice(behavior, "behavior", ("learn",))
            self.learned.append(BEHAVIOR)
        else:
            self.known = behavior_arrays(episodes, self.model, behavior)

    def begin(self, generator: np.random.Generator) -> Guess:
        """Draw the guess that a restart begins from."""
        return self.center | {key: perturb(self.center[key], generator) for key in self.learned}

    def improve(self, guess: Guess, threads: int | None) -> tuple[float, Guess]:
        """Return the objective of a guess, and the next one."""
        hidden = self.model.arrays
        drawn = multiply(guess, self.begins, len(self.over))
        kept = float(drawn[~self.over].sum())
        chances = multiply(guess, self.moves, len(hidden.next_state))
        hidden = hidden._replace(
            rows=hidden.rows._replace(probability=chances),
            initial=np.where(self.over, 0.0, drawn) / kept,
        )
        behavior = latent_behavior(guess[BEHAVIOR]) if self.learning else self.known
        counts = expect(self.episodes, self.model, hidden, behavior, threads)
        # a first state was kept after the draws of ends before it had been discarded
        began = counts.began + np.where(self.over, drawn, 0.0) * len(self.episodes) / kept
        objective, better = counts.evidence, dict(guess)
        for key in self.learned:
            center = self.center[key]
            weight = began if key in self.begins else counts.moved
            found = total_by(self.cell[key], weight, center.size).reshape(center.shape)
            better[key] = fit_rows(found, center, self.prior)
            objective += penalty(guess[key], center, self.prior)
        return objective, better

    def result(self, guess: Guess) -> tuple[Factored, Policy | None]:
        """Return the model and the behavior of a guess."""
        found = {key: clean(guess[key]) if key in self.learned else guess[key] for key in guess}
        moves = dict(self.factored.moves)
        for name, table in self.factored.tables.items():
            moves[name] = _shaped(table, found["moves", name])
        initial: Any = self.factored.initial
        if isinstance(initial, Mapping):
            initial = {n: _shaped(table, found["initial", n]) for n, table in initial.items()}
        else:
            initial = found["initial", ""][0]
        behavior: Any = LatentPolicy(found[BEHAVIOR]) if self.learning else self.given
        return replace(self.factored, moves=moves, initial=initial), behavior

    def values(self, guess: Guess, target: Policy, threads: int | None) -> tuple[float, float]:
        """Return the mean counterfactual return and the value by the model alone."""
        learned, behavior = self.result(guess)
        chain = prepare_pairs(self.episodes, learned.model(), target, behavior=behavior)
        _, expected = exact_outcomes(chain, 1.0, threads=threads)
        return float(expected.mean()), pomdp_value(chain.model, target, horizon=chain.horizon)


def _flat(table: Table) -> Floats:
    return table.probability.reshape(-1, table.probability.shape[-1])


def _shaped(table: Table, rows: Floats) -> Table:
    return Table(table.parents, rows.reshape(table.probability.shape))


def _check_learn(factored: Factored, learn: Sequence[str] | None) -> list[str]:
    known = factored.tables
    if isinstance(learn, str):
        raise ValueError(f"learn {learn!r}: give a list of names")
    for name in learn or ():
        if name not in known:
            raise ValueError(
                f"learn: {name!r} has no table; there are tables of {', '.join(map(repr, known))}"
            )
    return [name for name in known if learn is None or name in learn]


def _check_knobs(iterations: int, tolerance: float, restarts: int, prior: float) -> None:
    check_whole(iterations, "iterations", 1, "a whole number")
    check_whole(restarts, "restarts", 1, "a whole number")
    for name, value in (("tolerance", tolerance), ("prior", prior)):
        if not np.isfinite(value) or value < 0:
            raise ValueError(f"{name} {value}: give a number, 0 or more")

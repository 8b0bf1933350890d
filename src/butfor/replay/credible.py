"""Uncertainty of the learned model: the same counterfactuals in models drawn from its posterior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.checks import check_confidence
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.draw_factored import draw_factored
from butfor.models.posterior import PRIOR, DrawnModels, draw_models
from butfor.replay.engine import Model
from butfor.replay.observed import ObservedEngine
from butfor.replay.replay import Replay, as_replay
from butfor.threads import in_blocks
from butfor.types import Floats, Progress

NEGLIGIBLE = 1e-6  # differences less probable than this, in one row at one step, are ignored
BLOCK = 32  # episodes at a time; does not depend on the threads, so sums stay the same


@dataclass(frozen=True, eq=False)
class Credible:
    """Counterfactuals of n episodes in B models drawn from the posterior, as central intervals.

    This is statistical uncertainty: how precisely the counts of the log determine the model. It
    covers neither the mechanism (see `counterfactual_bounds`) nor what the states leave out.
    """

    confidence: float
    models: int  # B
    prior: float
    expected_return: Floats  # [n, 2] lower and upper end of the credible interval
    probability: Floats  # [n, O + 1, 2] of each outcome; the last is that of none
    mean_return: Floats  # [n] posterior mean
    estimates: pd.DataFrame  # estimator, value (posterior mean), low, high: MB and CF
    outcome_names: list[str]  # none last

    def frame(self) -> pd.DataFrame:
        """Return one row per episode: `low_credible`, …, `p_<outcome>_low_credible`, …."""
        columns = {"low_credible": self.expected_return[:, 0]}
        columns["high_credible"] = self.expected_return[:, 1]
        names = [*(f"p_{name}" for name in self.outcome_names[:-1]), "p_none"]
        for o, name in enumerate(names):
            columns[f"{name}_low_credible"] = self.probability[:, o, 0]
            columns[f"{name}_high_credible"] = self.probability[:, o, 1]
        return pd.DataFrame(columns)


def credible_intervals(
    episodes: Episodes | Replay,
    target: ArrayLike | None = None,
    *,
    models: int = 200,
    prior: float = PRIOR,
    confidence: float = 0.95,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Credible:
    """Compute credible intervals of each counterfactual and of the estimates MB and CF.

    Parameters
    ----------
    episodes, target
        A log and the policy to evaluate; or a `Replay` alone, whose question is then asked of
        models drawn from the posterior instead of its own model. If its model is factored, so are
        they, with the same parents (`draw_factored`), and `prior` and `unseen` do not apply.
    models : int
        Number of models to draw.
    prior : number above 0
        See `draw_models`. If it is small, the data decide; with 1, every possible transition counts
        as if seen once more.
    confidence : number
        Posterior probability of the central intervals.
    seed, terminal, unseen
        See `draw_models` and `fit_mdp`. A `Replay` has the ends of its own model.
    behavior, mechanism, action_noise, horizon, discount
        See `Replay`.

    Notes
    -----
    The target is the same in every model. The intervals are Bayesian under the stated prior and
    cover the model's probabilities only. At each step, differences between a row and its
    counterfactual of probability below 1e-6 are ignored, far less than 200 draws can resolve. Pairs
    that were never seen follow the same rule in every model, so a target that uses them looks more
    certain than it is. Noise belongs to states: with a prior, labels cannot be shared.
    """
    check_confidence(confidence)
    if isinstance(episodes, Replay) and episodes.factors:
        posterior = draw_factored(episodes.factored, models, seed=seed)
        return credible_of_models(
            episodes,
            [posterior.model(b) for b in range(models)],
            confidence=confidence,
            threads=threads,
            progress=progress,
        )
    asked = isinstance(episodes, Replay)
    log = episodes.episodes if isinstance(episodes, Replay) else episodes
    drawn = draw_models(
        log,
        models=models,
        prior=prior,
        seed=seed,
        terminal=episodes.terminal if isinstance(episodes, Replay) else terminal,
        unseen=unseen,
    )
    replay = as_replay(
        episodes,
        None if asked else drawn.mean,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
    )
    if asked:
        replay = replay.ask(model=drawn.mean, behavior=replay.behavior)
    engine = ObservedEngine(replay)
    push: _Push | _SlowPush
    if isinstance(replay.mechanism, Compiled):
        push = _Push(engine, drawn)
    else:
        push = _SlowPush((engine.with_model(drawn.model(b)) for b in range(models)), 0.0, threads)
    return _intervals(replay, push, prior, confidence, threads, progress)


def credible_of_models(
    replay: Replay,
    drawn: Sequence[Model],
    *,
    confidence: float = 0.95,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Credible:
    """Compute credible intervals from models drawn from a posterior, one exact pass per model.

    Parameters
    ----------
    replay
        The question; its own model is not used.
    drawn
        Models of the same variables, such as factored models whose tables were drawn from their
        posterior. Mechanism, noise and everything else are those of the question.
    confidence : number
        Posterior probability of the central intervals.

    Notes
    -----
    As with `credible_intervals`, the target is the same in every model, and the intervals cover the
    probabilities of the model only: neither its structure (which parents a variable has) nor the
    mechanism. States that a step reaches with less than 1e-6 probability continue by the model
    alone. `prior` of the result is nan: it is that of whoever drew the models.
    """
    check_confidence(confidence)
    if not drawn:
        raise ValueError("no models were drawn; give at least one")
    # a copy of each model, so that its transition rows are not kept
    asked = (replay.ask(model=copy(model), behavior=replay.behavior) for model in drawn)
    push = _SlowPush((_observed_engine(one) for one in asked), NEGLIGIBLE, threads)
    return _intervals(replay, push, float("nan"), confidence, threads, progress)


def _observed_engine(replay: Replay) -> ObservedEngine:
    if not isinstance(replay.engine, ObservedEngine):
        why = "where states cannot be enumerated; use fewer variables (hide) or levels"
        if replay.hidden:
            why = "for a model with a hidden state"
        raise ValueError(f"credible intervals are not available {why}")
    return replay.engine


def _intervals(
    replay: Replay,
    push: _Push | _SlowPush,
    prior: float,
    confidence: float,
    threads: int | None,
    progress: Progress | None,
) -> Credible:
    """Summarize the answers in all models, a block of episodes at a time."""
    log, count, models = replay.log, len(replay), push.count
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    expected = np.empty((count, 2))
    probability = np.empty((count, len(log.outcomes) + 1, 2))
    mean = np.empty(count)
    blocks = -(-count // BLOCK)
    sums = np.empty((blocks, models))

    def work(first_block: int, last_block: int) -> None:
        for block in range(first_block, last_block):
            first, last = block * BLOCK, min((block + 1) * BLOCK, count)
            masses, returns = push(first, last)
            expected[first:last] = np.quantile(returns, ends, axis=1).T
            probability[first:last] = np.moveaxis(np.quantile(masses, ends, axis=2), 0, -1)
            mean[first:last] = returns.mean(axis=1)
            sums[block] = returns.sum(axis=0)

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(min(done * BLOCK, count), count)

    in_blocks(work, blocks, threads=threads, progress=report)
    initial = np.bincount(replay.log.first_state, minlength=log.n_states) / count
    estimates = {"MB": initial @ push.values[replay.horizon], "CF": sums.sum(axis=0) / count}
    return Credible(
        confidence=confidence,
        models=models,
        prior=prior,
        expected_return=expected,
        probability=probability,
        mean_return=mean,
        estimates=pd.DataFrame(
            [(name, found.mean(), *np.quantile(found, ends)) for name, found in estimates.items()],
            columns=["estimator", "value", "low", "high"],
        ),
        outcome_names=log.outcome_names,
    )


class _Push:
    """The exact pass through all models, for a block of episodes at a time."""

    def __init__(self, engine: ObservedEngine, drawn: DrawnModels) -> None:
        model, horizon = drawn.mean, engine.replay.horizon
        self.engine, self.discount = engine, engine.replay.discount
        size = (horizon + 1, model.n_states, len(model.outcomes) + 1)
        self.count = drawn.probability.shape[1]
        by_model = np.ascontiguousarray(drawn.probability.T)
        self.models = kernels.Models(drawn.probability, by_model)
        self.values = np.zeros((*size[:2], self.count))
        self.ends = np.zeros((*size, self.count))
        kernels.value_tables_of_models(
            engine.problem.target,
            engine.problem.dynamics,
            drawn.probability,
            self.discount,
            horizon,
            size[2],
            self.values,
            self.ends,
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        masses = np.zeros((last - first, self.ends.shape[2], self.count))
        returns = np.zeros((last - first, self.count))
        impossible = kernels.exact_outcomes_of_models(
            first,
            last,
            self.engine.problem,
            kernels.make_work(self.engine.problem),
            self.models,
            self.discount,
            NEGLIGIBLE,
            self.values,
            self.ends,
            masses,
            returns,
        )
        self.engine.refuse(impossible)
        return masses, returns


class _SlowPush:
    """The same for a mechanism without a kernel, or factored models: one model after another."""

    def __init__(
        self, engines: Iterable[ObservedEngine], negligible: float, threads: int | None
    ) -> None:
        masses, returns, values = [], [], []
        for one in engines:
            mass, expected, *_ = one.outcomes(
                negligible=negligible, draws=1, seed=0, threads=threads, progress=None
            )
            masses.append(mass)
            returns.append(expected)
            values.append(one.values[0])
        self.count = len(returns)
        self.masses, self.returns, self.values = (
            np.stack(part, axis=-1) for part in (masses, returns, values)
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        return self.masses[first:last], self.returns[first:last]

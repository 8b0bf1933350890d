"""Uncertainty of the learned model: the same counterfactuals in models drawn from its posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from butfor import kernels
from butfor.checks import check_confidence
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.posterior import PRIOR, DrawnModels, draw_models
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
        models drawn from the posterior instead of its own model.
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
    count, outcomes = len(replay), len(log.outcomes) + 1
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    expected = np.empty((count, 2))
    probability = np.empty((count, outcomes, 2))
    mean = np.empty(count)
    blocks = -(-count // BLOCK)
    sums = np.empty((blocks, models))
    push: _Push | _SlowPush
    if isinstance(replay.mechanism, Compiled):
        push = _Push(engine, drawn)
    else:
        push = _SlowPush(engine, drawn)

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
    """The same for a mechanism without a kernel: one model after another."""

    def __init__(self, engine: ObservedEngine, drawn: DrawnModels) -> None:
        masses, returns, values = [], [], []
        for b in range(drawn.probability.shape[1]):
            one = engine.with_model(drawn.model(b))
            mass, expected, *_ = one.outcomes(
                negligible=0.0, draws=1, seed=0, threads=None, progress=None
            )
            masses.append(mass)
            returns.append(expected)
            values.append(one.values[0])
        self.masses, self.returns, self.values = (
            np.stack(part, axis=-1) for part in (masses, returns, values)
        )

    def __call__(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return outcome probabilities [m, O + 1, B] and expected returns [m, B]."""
        return self.masses[first:last], self.returns[first:last]

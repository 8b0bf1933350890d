"""Uncertainty of the learned model: the same counterfactuals in models drawn from its posterior."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from butfor.checks import check_confidence, check_whole
from butfor.log.episodes import Episodes
from butfor.mechanisms.protocol import Compiled, Mechanism
from butfor.models.fit import check_rules
from butfor.models.posterior import Drawn, Posterior, check_cells, draw_factored, fixed_weights
from butfor.printed import Printed, Table
from butfor.random import check_seed
from butfor.replay.drawn import OTHER_WEIGHTS, Push, SlowPush, count_others, draw_all
from butfor.replay.engine import Model
from butfor.replay.observed import ObservedEngine
from butfor.replay.replay import Replay, as_replay
from butfor.threads import in_blocks
from butfor.types import Floats, Progress

MOST_WORK = 2e9  # steps times transitions times models, up to which rows list every next state
MB, THESE_PATIENTS = "MB", "CF (these patients)"
FAINT = 1e-6  # probability of a state below which factored models alone say how it goes on
BLOCK = 32  # episodes at a time; does not depend on the threads, so sums stay the same


@dataclass(frozen=True, eq=False, repr=False)
class Credible(Printed):
    """Counterfactuals of n episodes in B models drawn from the posterior, as central intervals.

    This is statistical uncertainty: how precisely the counts of the log determine the model. It
    covers neither the mechanism (see `Replay.bounds`) nor what the states leave out.

    Of `estimates`, "MB" is the policy's value, from where the episodes began; it has no interval if
    episodes of this log taught the policy, which was chosen for their errors. "CF (these patients)"
    is the mean counterfactual return of just these episodes, whose luck is held fixed: it is no
    interval for the policy's value, which it misses more often than not.
    """

    confidence: float
    models: int  # B
    prior: float | None  # weight of the prior if it was fixed
    # of episodes that were left out: nan
    expected_return: Floats  # [n, 2] lower and upper end of the credible interval
    probability: Floats  # [n, O + 1, 2] of each outcome; the last is that of none
    mean_return: Floats  # [n] posterior mean
    mean_weaker: Floats  # [n] the same if the prior weighed a quarter; nan if not computed
    mean_stronger: Floats  # [n] if it weighed four times as much
    estimates: pd.DataFrame  # estimator, value (posterior mean), low, high
    outcome_names: list[str]  # none last

    @property
    def these(self) -> tuple[float, float] | None:
        """Interval of the mean counterfactual return of just these episodes, if it is known."""
        low, high = self.estimates.set_index("estimator").loc[THESE_PATIENTS, ["low", "high"]]
        return None if np.isnan(low) else (float(low), float(high))

    def frame(self) -> pd.DataFrame:
        """Return one row per episode: `low_credible`, …, `p_<outcome>_low_credible`, …."""
        columns = {
            "low_credible": self.expected_return[:, 0],
            "high_credible": self.expected_return[:, 1],
            "mean_credible": self.mean_return,
            "mean_credible_weaker": self.mean_weaker,
            "mean_credible_stronger": self.mean_stronger,
        }
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
    prior: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    terminal: str = "visits",
    unseen: str | None = None,
    behavior: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    action_noise: str = "shared",
    horizon: int | None = None,
    discount: float = 1.0,
    only: ArrayLike | None = None,
    sample: ArrayLike | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Credible:
    """Compute credible intervals of each counterfactual, and of the policy's value.

    Parameters
    ----------
    episodes, target
        A log and the policy to evaluate; or a `Replay` alone, whose question is then asked of
        models drawn from the posterior instead of its own model. If its model is factored, so are
        they, with the same parents (`draw_factored`), and `prior` does not apply.
    models : int
        Number of models to draw.
    prior : number above 0, optional
        The row of a state and an action is Dirichlet around the row of the state, and that around
        the overall row (see `draw_models`). By default the weight of each, in cases, is drawn from
        its posterior together with the model; a number fixes all of them.
    confidence : number
        Posterior probability of the central intervals.
    seed, terminal
        See `draw_models` and `fit_mdp`. A `Replay` has the ends of its own model.
    unseen
        Without effect: pairs that were never seen are drawn from the prior like all others.
    behavior, mechanism, action_noise, horizon, discount
        See `Replay`.
    only : optional
        Positions of the episodes whose intervals are computed, in models of the whole log; those of
        the others are nan. By default all.
    sample : optional
        With `only`, those of its positions that were drawn at random from all episodes. The mean
        over all episodes is estimated from these, and its interval is wider by the error of that.

    Notes
    -----
    The target is the same in every model. The intervals are Bayesian under the stated prior and
    cover the model's probabilities only: neither the mechanism nor what the states leave out. A
    tenth as many models again, at least 10, are drawn with a quarter of the weights, and as many
    with four times these, to show how much the prior matters to each episode.

    At each step, differences between a row and its counterfactual of probability below 1e-3 are
    ignored, less than 200 draws can resolve. Noise belongs to states, and labels are not used.
    In a long log with many states, rows list the outcomes and what was seen from their state under
    any action; who goes anywhere else continues by the model alone, without the patient's noise.
    """
    check_confidence(confidence)
    check_whole(models, "models", 1, "a whole number")
    check_seed(seed)
    weights = fixed_weights(prior)
    if not isinstance(episodes, Replay):
        log, chosen = episodes, mechanism
    elif episodes.factors:
        part = Chosen(episodes, *check_positions(len(episodes), only, sample))
        return _of_factored(episodes, models, confidence, seed, part, threads, progress)
    else:
        log, terminal, chosen = episodes.episodes, episodes.terminal, episodes.mechanism
    check_rules(log.outcomes, unseen, 0.0)
    check_cells(log)
    asked = episodes.discount if isinstance(episodes, Replay) else discount
    compiled = chosen is None or isinstance(chosen, Compiled)
    compiled &= _discounts_alike(log, asked)
    positions = check_positions(len(log), only, sample)
    steps = int(log.lengths[slice(None) if positions[0] is None else positions[0]].sum())
    most = MOST_WORK / models / max(1, steps) if compiled else np.inf
    posterior = Posterior(log, terminal=terminal, most=most)
    mean = posterior.mean()
    replay = as_replay(
        episodes,
        None if isinstance(episodes, Replay) else mean,
        target,
        behavior=behavior,
        mechanism=mechanism,
        action_noise=action_noise,
        horizon=horizon,
        discount=discount,
    )
    part = Chosen(replay, *positions)
    if isinstance(episodes, Replay):
        replay = replay.ask(model=mean, behavior=replay.behavior)
    engine = ObservedEngine(part.ask(replay))
    drawn = draw_all(posterior, models, seed=seed, weights=weights)
    count = models + 2 * count_others(models)
    push: Push | SlowPush
    if compiled:
        push = Push(engine, posterior, drawn, count)
    else:

        def engine_of(one: Drawn) -> ObservedEngine:
            return engine.with_model(posterior.model(one.probability))

        push, progress = SlowPush(drawn, count, engine_of, 0.0, threads, progress), None
    return _intervals(part, push, models, prior, confidence, threads, progress)


def credible_of_models(
    replay: Replay,
    drawn: Sequence[Model],
    *,
    weaker: Sequence[Model] = (),
    stronger: Sequence[Model] = (),
    confidence: float = 0.95,
    only: ArrayLike | None = None,
    sample: ArrayLike | None = None,
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
    weaker, stronger
        Models of a weaker and of a stronger prior, whose means say how much the prior matters.
    confidence : number
        Posterior probability of the central intervals.
    only, sample
        See `credible_intervals`.

    Notes
    -----
    As with `credible_intervals`, the target is the same in every model, and the intervals cover the
    probabilities of the model only: neither its structure (which parents a variable has) nor the
    mechanism. States that a step reaches with less than 1e-6 probability continue by the model
    alone.
    """
    check_confidence(confidence)
    if not drawn:
        raise ValueError("no models were drawn; give at least one")
    if len(weaker) != len(stronger):
        raise ValueError(f"{len(weaker)} weaker models, {len(stronger)} stronger; give as many")
    part = Chosen(replay, *check_positions(len(replay), only, sample))
    some = part.ask(replay)
    others = chain.from_iterable(zip(weaker, stronger, strict=True))

    def engine_of(model: Model) -> ObservedEngine:
        # a copy of each model, so that its transition rows are not kept
        return _observed_engine(some.ask(model=copy(model), behavior=replay.behavior))

    every = [*drawn, *others]
    push = SlowPush(every, len(every), engine_of, FAINT, threads, progress)
    return _intervals(part, push, len(drawn), None, confidence, threads, None)


def _discounts_alike(log: Episodes, discount: float) -> bool:
    """Whether each step is discounted alike, as the pass through all models at once needs it."""
    if log.durations is None or discount == 1:
        return True
    return bool((log.durations[np.isfinite(log.durations)] == 1).all())


def _of_factored(
    replay: Replay,
    models: int,
    confidence: float,
    seed: int,
    part: Chosen,
    threads: int | None,
    progress: Progress | None,
) -> Credible:
    """Draw factored models, and others of weaker and of stronger priors."""
    _observed_engine(replay)  # refuses before models are drawn, which takes long
    posterior = draw_factored(replay.factored, models, seed=seed)
    usual = [posterior.model(b) for b in range(models)]
    others = []
    for strength in OTHER_WEIGHTS:
        drawn = draw_factored(replay.factored, count_others(models), seed=seed, strength=strength)
        others.append([drawn.model(b) for b in range(count_others(models))])
    return credible_of_models(
        replay,
        usual,
        weaker=others[0],
        stronger=others[1],
        confidence=confidence,
        only=part.only,
        sample=part.sample,
        threads=threads,
        progress=progress,
    )


def _observed_engine(replay: Replay) -> ObservedEngine:
    if not isinstance(replay.engine, ObservedEngine):
        why = "where states cannot be enumerated; use fewer variables (hide) or levels"
        if replay.hidden:
            why = "for a model with a hidden state"
        raise ValueError(f"credible intervals are not available {why}")
    return replay.engine


def _intervals(
    part: Chosen,
    push: Push | SlowPush,
    models: int,
    prior: float | None,
    confidence: float,
    threads: int | None,
    progress: Progress | None,
) -> Credible:
    """Summarize the answers in all models, a block of episodes at a time.

    The first `models` are those of the posterior; then weaker and stronger priors take turns.
    """
    replay = part.replay
    log, count = replay.log, len(replay) if part.only is None else len(part.only)
    ends = [(1 - confidence) / 2, (1 + confidence) / 2]
    expected = np.empty((count, 2))
    probability = np.empty((count, len(log.outcomes) + 1, 2))
    means = np.full((count, 3), np.nan)  # posterior, weaker, stronger
    parts = np.arange(models, push.count, 2), np.arange(models + 1, push.count, 2)
    blocks = -(-count // BLOCK)
    kept = np.empty((count, models))

    def work(first_block: int, last_block: int) -> None:
        for block in range(first_block, last_block):
            first, last = block * BLOCK, min((block + 1) * BLOCK, count)
            masses, returns = push(first, last)
            usual = returns[:, :models]
            expected[first:last] = central(usual, ends, axis=1).T
            chances = central(masses[..., :models], ends, axis=2)
            probability[first:last] = np.moveaxis(chances, 0, -1)
            for i, part in enumerate((np.arange(models), *parts)):
                if len(part):
                    means[first:last, i] = returns[:, part].mean(axis=1)
            kept[first:last] = usual

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(min(done * BLOCK, count), count)

    in_blocks(work, blocks, threads=threads, progress=report)
    initial = np.bincount(log.first_state, minlength=log.n_states) / len(replay)
    value = initial @ push.values[replay.horizon, :, :models]
    flattered = np.full(2, np.nan)
    estimates = [
        (MB, value.mean(), *(flattered if replay.learned_here else central(value, ends))),
        (THESE_PATIENTS, *part.mean(kept, ends)),
    ]
    return Credible(
        confidence=confidence,
        models=models,
        prior=prior,
        expected_return=part.spread(expected),
        probability=part.spread(probability),
        mean_return=part.spread(means[:, 0]),
        mean_weaker=part.spread(means[:, 1]),
        mean_stronger=part.spread(means[:, 2]),
        estimates=Table(estimates, columns=["estimator", "value", "low", "high"]),
        outcome_names=log.outcome_names,
    )


Positions = NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Chosen:
    """The episodes of a question whose credible intervals are computed."""

    replay: Replay  # the question about all episodes
    only: Positions  # None: all
    sample: Positions  # those that were drawn at random

    def ask(self, replay: Replay) -> Replay:
        """Return a question about all episodes as one about these."""
        return replay if self.only is None else replay.part(self.only)

    def spread(self, found: Floats) -> Floats:
        """Return what was found for these episodes, with nan for the others."""
        if self.only is None:
            return found
        table = np.full((len(self.replay), *found.shape[1:]), np.nan)
        table[self.only] = found
        return table

    def mean(self, returns: Floats, ends: list[float]) -> tuple[float, float, float]:
        """Return the mean over all episodes and its interval, from returns [m, B] in B models.

        With c the returns in the question's own model, known for all episodes, the mean in a drawn
        model is that of c plus the mean of r - c, which the sample tells.
        """
        if self.only is None:
            every = returns.mean(axis=0)
            low, high = central(every, ends)
            return float(every.mean()), float(low), float(high)
        if self.sample is None or len(self.sample) < 2:
            return np.nan, np.nan, np.nan
        known = self.replay.outcomes().expected_return
        gap = returns[np.searchsorted(self.only, self.sample)] - known[self.sample][:, None]
        center, low, high = mean_of_sample(gap, len(known), ends)
        return known.mean() + center, known.mean() + low, known.mean() + high


def check_positions(
    count: int, only: ArrayLike | None, sample: ArrayLike | None
) -> tuple[Positions, Positions]:
    """Return positions among `count` episodes in order; see `Chosen`."""
    if only is None:
        return None, None
    chosen = np.unique(np.asarray(only, dtype=np.int64))
    drawn = None if sample is None else np.unique(np.asarray(sample, dtype=np.int64))
    if not (len(chosen) and chosen[0] >= 0 and chosen[-1] < count):
        raise ValueError(f"only: give positions of episodes, from 0 to {count - 1}")
    if drawn is not None and not np.isin(drawn, chosen).all():
        raise ValueError("sample: give positions that are also among those of only")
    return chosen, drawn


def mean_of_sample(gap: Floats, count: int, ends: list[float]) -> tuple[float, float, float]:
    """Return the mean of `count` episodes and its interval, from a sample [m, B] in B models.

    The sample is the same in all models, so its error is, too, apart from what varies between
    models. That error, the standard error of the means over models, drawn without replacement,
    widens the interval between quantiles in quadrature.
    """
    every = gap.mean(axis=0)
    center, drawn = float(every.mean()), len(gap)
    error = gap.mean(axis=1).std(ddof=1) * np.sqrt((1 - drawn / count) / drawn)
    low, high = np.hypot(central(every, ends) - center, ndtri(ends[1]) * error)
    return center, center - float(low), center + float(high)


def central(draws: Floats, ends: list[float], axis: int = 0) -> Floats:
    """Return the ends of an interval that one more draw lies in with this probability.

    Between B draws there are B + 1 gaps, in each of which one more draw lies equally often.
    """
    return np.asarray(np.quantile(draws, ends, axis=axis, method="weibull"))

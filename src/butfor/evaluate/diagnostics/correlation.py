"""Residual correlation: whether the noises of the variables are independent, as is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import ndtri

from butfor.evaluate.diagnostics.lights import Row, at_most
from butfor.evaluate.diagnostics.one_step import OneStep
from butfor.evaluate.wording import signed
from butfor.log.episodes import Episodes
from butfor.models.factored import END, NEXT
from butfor.types import Floats

# At most, beyond chance. Correlated noise of .3 and .6 shows as about .10 and .22 and biases the
# value of a policy by .04 and .08 in the sepsis simulator: half and one and a half times the first.
CORRELATION = (0.05, 0.15)
FALSE_ALARM = 0.01  # that any pair of variables exceeds its margin if all noises are independent
REVEALED = 0.01  # least share of the variance of a noise that the levels of its variable reveal
LEAST = 1e-9  # a level of lower probability has the score of a point


@dataclass(frozen=True)
class PairCorrelation:
    """Correlation of the residuals of two variables."""

    first: OneStep
    second: OneStep
    value: float
    error: float  # standard error, episodes being independent


def check_correlation(log: Episodes, predicted: Sequence[OneStep]) -> Row | None:
    """Check the pair of variables whose residuals are most correlated; None if there is no pair.

    A pair is judged by its correlation minus a margin that, if all noises are independent, any of
    the pairs exceeds with a probability of 1%.
    """
    pairs = residual_correlations(log, predicted)
    if not pairs:
        return None
    factor = float(-ndtri(FALSE_ALARM / 2 / len(pairs)))
    worst = max(pairs, key=lambda pair: abs(pair.value) - factor * pair.error)
    margin = factor * worst.error
    light = at_most(abs(worst.value) - margin, CORRELATION)
    many = f", the most of {len(pairs)} pairs" if len(pairs) > 1 else ""
    sentences = [
        f"What the model does not predict of {worst.first.words} and {worst.second.words} one step "
        f"ahead has a correlation of {signed(worst.value)} (± {margin:.2f}){many}. The model "
        "assumes that, given their parents, variables move independently of each other."
    ]
    if light != "green":
        sentences.append(_remedy(worst))
    elif margin > CORRELATION[0]:
        light = "amber"
        sentences.append("There are too few data to rule out a correlation that matters.")
    return "residual correlation", worst.value, light, " ".join(sentences)


def residual_correlations(log: Episodes, predicted: Sequence[OneStep]) -> list[PairCorrelation]:
    """Return the correlation of the residuals of each pair of variables that can be judged.

    A variable that its parents decide nearly alone is left out: its noise hardly matters, and its
    few surprises would be all that is compared. If an end is not predicted from the state that was
    reached, because the log lacks it, its residual cannot be compared with those of variables,
    which are known only where nothing ended.
    """
    found = [(one, residuals(one, log)) for one in predicted if one.known.any()]
    judged = [(one, own.score) for one, own in found if own.revealed >= REVEALED]
    of_row = np.repeat(pd.factorize(log.id)[0], log.lengths)
    pairs = []
    for (first, own), (second, other) in combinations(judged, 2):
        both = first.known & second.known
        if END in (first.variable, second.variable) and (log.next_state < 0).any():
            continue
        x, y = own[both], other[both]
        size = np.sqrt((x**2).sum() * (y**2).sum())
        if size > 0:
            product = np.bincount(of_row[both], x * y)
            error = float(np.sqrt((product**2).sum()) / size)
            pairs.append(PairCorrelation(first, second, float(product.sum() / size), error))
    return pairs


@dataclass(frozen=True, eq=False)
class Residuals:
    """What the levels of one variable reveal about its noise beyond what was predicted."""

    score: Floats  # [N] centered
    revealed: float  # share of the variance of the noise that levels reveal if the model is right


def residuals(one: OneStep, log: Episodes) -> Residuals:
    """Return the expected normal scores of the observed levels in the predicted rows.

    Levels are in their order; ends are in the order of their rewards, with none at 0.
    """
    rows, level = one.rows, one.level
    if not one.variable:
        order = np.argsort([*(end.reward for end in log.outcomes), 0.0], kind="stable")
        rows, level = rows[:, order], np.argsort(order)[level]
    scores = level_scores(rows)
    score = scores[np.arange(len(level)), level]
    revealed = float((rows * scores**2).sum(axis=1)[one.known].mean())
    return Residuals(score - score[one.known].mean(), revealed)


def level_scores(rows: Floats) -> Floats:
    """Expected normal score of each level of each row, [N, levels].

    The score of level k is E[z | F(k - 1) < Phi(z) <= F(k)] = (phi(z_{k-1}) - phi(z_k)) / p_k with
    z_k = Phi^-1(F(k)). Its mean over the row is 0.
    """
    high = np.minimum(np.cumsum(rows, axis=1), 1.0)
    low = np.maximum(high - rows, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (_density(low) - _density(high)) / rows
    point = ndtri(np.clip((low + high) / 2, LEAST, 1 - LEAST))
    return np.where(rows > LEAST, score, point)


def _density(probability: Floats) -> Floats:
    """Density of the standard normal at its quantile, 0 at both ends."""
    z = ndtri(probability)
    return np.where(np.isfinite(z), np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), 0.0)


def _remedy(pair: PairCorrelation) -> str:
    first, second = pair.first, pair.second
    if not second.variable or NEXT + first.variable in second.parents:
        return (
            f"Something that the log does not record may decide both, or {second.words} depends on "
            "more than its parents."
        )
    return (
        f'Learn the model with an order (order=["{first.variable}", "{second.variable}"], or order '
        "in the study's [model]), so that the second may depend on the next level of the first. "
        "Something that the log does not record may also decide both."
    )

"""Log score: whether a factored or a simpler model predicts the other half of the log better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.diagnostics.halves import Half, Halves
from butfor.evaluate.diagnostics.lights import Row, at_least
from butfor.evaluate.diagnostics.one_step import OneStep, step_ends
from butfor.evaluate.diagnostics.rivals import (
    CLUSTERS,
    can_cluster,
    cluster_probabilities,
    tabular_probabilities,
)
from butfor.log.episodes import Episodes
from butfor.models.factored import NEXT, FactoredModel, logged_codes
from butfor.models.mdp import total_by
from butfor.replay.engine import check_factored
from butfor.types import Floats

# Standard errors by which the factored model is better, at least: by chance alone exceeded in one
# log in 44, on either side.
BETTER = (2.0, -2.0)
Predict = Callable[[Half, Episodes], Floats]  # probabilities [N] of the steps of other episodes


class _Gain(NamedTuple):
    """By how much the factored model is better than another."""

    score: float  # mean log score of the other
    gain: float
    error: float  # standard error of the gain

    @classmethod
    def of(cls, log: Episodes, score: Floats, other: Floats) -> _Gain:
        """Compare log scores of each step, [N]; episodes are independent."""
        gain = float((score - other).mean())
        episode = np.repeat(pd.factorize(log.id)[0], log.lengths)
        sums = np.bincount(episode, score - other - gain)
        return cls(float(other.mean()), gain, float(np.sqrt((sums**2).sum()) / len(score)))

    @property
    def light(self) -> str:
        ratio = self.gain / self.error if self.error > 0 else np.sign(self.gain) * np.inf
        return at_least(ratio if self.gain else 0.0, BETTER)

    @property
    def words(self) -> str:
        return f"{self.score:.3f}, a difference of {self.gain:+.3f} (± {2 * self.error:.3f})"


def check_log_score(halves: Halves) -> Row:
    """Compare the mean log score of held-out transitions with those of two simpler models.

    All predict the next state, or the outcome if the step ended: a tabular model and, where there
    are more than a hundred different states and scikit-learn is installed, clusters of states
    (`cluster_probabilities`). The better of the two decides the light. In a row of the tabular
    model seen n times these have the weight n, and the frequencies of next states and outcomes in
    that half of the log have the weight 1: without that, it would give what it never saw
    probability 0. Clusters are smoothed likewise.
    """
    factored = _held_out(halves, _factored)
    impossible = int((factored == 0).sum())
    if impossible:
        sentence = (
            f"{impossible} logged transitions are impossible in the model of the other half of the "
            "log; what is static or copies an action there does not always do so."
        )
        return "log score", float("nan"), "red", sentence
    score = np.log(factored)
    tabular = _gain(halves, score, lambda half, log: tabular_probabilities(half.learned_from, log))
    clusters = None
    if all(can_cluster(half.learned_from) for half in halves.parts):
        predict = partial(cluster_probabilities, seed=halves.seed)
        clusters = _gain(halves, score, lambda half, log: predict(half.learned_from, log))
    return _row(float(score.mean()), tabular, clusters)


def _factored(half: Half, log: Episodes) -> Floats:
    return transition_probabilities(check_factored(half.model), log)


def _held_out(halves: Halves, predict: Predict) -> Floats:
    """Return the probability of each step as predicted from the other half of the log, [N]."""
    log = halves.episodes
    found = np.zeros(len(log.state))
    for half in halves.parts:
        found[log.rows_of(half.judged)] = predict(half, log.select(half.judged))
    return found


def _gain(halves: Halves, score: Floats, predict: Predict) -> _Gain:
    return _Gain.of(halves.episodes, score, np.log(_held_out(halves, predict)))


def check_variable_scores(log: Episodes, predicted: Sequence[OneStep]) -> Row:
    """Compare the mean log score of held-out levels with that of their overall frequencies.

    Where hardly a state occurs twice, a tabular model predicts nothing. The score of a step is the
    sum over its variables and the end, as far as they can be judged.
    """
    score, other = np.zeros((2, len(log.state)))
    for one in predicted:
        level = one.level[one.known]
        usual = np.bincount(level, minlength=one.rows.shape[1]) / max(len(level), 1)
        score[one.known] += np.log(one.rows[one.known, level])
        other[one.known] += np.log(usual[level])
    found = _Gain.of(log, score, other)
    better = {
        "green": "better than the overall frequencies of each variable do",
        "amber": "neither clearly better nor clearly worse than overall frequencies",
        "red": "worse than overall frequencies; learn it from more episodes or fewer variables",
    }[found.light]
    sentence = (
        "Of the transitions in the other half of the log, the factored model predicts the levels "
        f"of all variables {better}: mean log probability {score.mean():.3f} against "
        f"{found.words}. This covers only actions that were taken."
    )
    return "log score", found.gain, found.light, sentence


def _row(score: float, tabular: _Gain, clusters: _Gain | None) -> Row:
    better = {
        "green": "better than a tabular model",
        "amber": "neither clearly better nor clearly worse than a tabular model",
        "red": "worse than a tabular model; consider one (fit_mdp, or --model tabular)",
    }[tabular.light]
    sentence = (
        "Of the transitions in the other half of the log, the factored model predicts the next "
        f"state {better}: mean log probability {score:.3f} against {tabular.words}. The tabular "
        "model is smoothed by one case with the frequencies of next states. "
    )
    if clusters is not None:
        verdict = {
            "green": "the factored model is better",
            "amber": "neither is clearly better",
            "red": "they are better; give the model other parents or another learner",
        }[clusters.light]
        sentence += f"{CLUSTERS} clusters of similar states reach {clusters.words}: {verdict}. "
    sentence += "This covers only actions that were taken."
    closest = min((one for one in (tabular, clusters) if one), key=lambda one: one.gain)
    return "log score", closest.gain, closest.light, sentence


def transition_probabilities(model: FactoredModel, log: Episodes) -> Floats:
    """Probability of each logged next state without end, or of the outcome, [N].

    An outcome is summed over the states in which the episode might have ended.
    """
    codes, ends = logged_codes(log), step_ends(log)
    probability = np.ones(len(log.state))
    place = np.arange(len(log.state))
    for factor in model.factors:
        level = codes[NEXT + factor.variable] if factor.variable else ends
        probability *= factor.rows(codes)[place, level]
    ended = ends < len(log.outcomes)
    row = log.state[ended].astype(np.int64) * model.n_actions + log.action[ended]
    pair, position = np.unique(row, return_inverse=True)
    probability[ended] = outcome_probabilities(model, pair)[position, ends[ended]]
    return probability


def outcome_probabilities(model: FactoredModel, pairs: NDArray[np.int64]) -> Floats:
    """Probability that a step from pairs s A + a ends in each outcome, or in none, [m, O + 1]."""
    *_, (end, row, weight, codes) = model.expand(pairs)
    position = np.searchsorted(pairs, row)
    mass = weight[:, None] * end.rows(codes)
    return np.stack([total_by(position, column, len(pairs)) for column in mass.T], axis=1)

"""Log score: whether a factored or a tabular model predicts the other half of the log better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.evaluate.diagnostics.halves import Halves
from butfor.evaluate.diagnostics.lights import Row, at_least
from butfor.evaluate.diagnostics.one_step import OneStep, step_ends
from butfor.log.episodes import Episodes
from butfor.models.factored import NEXT, FactoredModel, logged_codes
from butfor.models.mdp import total_by
from butfor.replay.engine import check_factored
from butfor.types import Floats

# Standard errors by which the factored model is better, at least: by chance alone exceeded in one
# log in 44, on either side.
BETTER = (2.0, -2.0)
PRIOR = 1.0  # cases that the frequencies of next states weigh in the tabular model


def check_log_score(halves: Halves) -> Row:
    """Compare the mean log score of held-out transitions with that of a tabular model.

    Both predict the next state, or the outcome if the step ended. In the tabular model a row seen
    n times has the weight n, and the frequencies of next states and outcomes in that half of the
    log have the weight 1: without that, it would give what it never saw probability 0.
    """
    log = halves.episodes
    factored, tabular = np.zeros((2, len(log.state)))
    of_row = np.repeat(np.arange(len(log)), log.lengths)
    for half in halves.parts:
        judged = np.zeros(len(log), dtype=bool)
        judged[half.judged] = True
        mine = judged[of_row]
        part = log.select(half.judged)
        factored[mine] = transition_probabilities(check_factored(half.model), part)
        tabular[mine] = tabular_probabilities(half.learned_from, part)
    impossible = int((factored == 0).sum())
    if impossible:
        sentence = (
            f"{impossible} logged transitions are impossible in the model of the other half of the "
            "log; what is static or copies an action there does not always do so."
        )
        return "log score", float("nan"), "red", sentence
    score, other = np.log(factored), np.log(tabular)
    gain = float((score - other).mean())
    error = _error(score - other - gain, pd.factorize(log.id)[0][of_row])
    return _row(float(score.mean()), float(other.mean()), gain, error)


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
    gain = float((score - other).mean())
    episode = pd.factorize(log.id)[0][np.repeat(np.arange(len(log)), log.lengths)]
    error = _error(score - other - gain, episode)
    light = at_least(_ratio(gain, error), BETTER)
    better = {
        "green": "better than the overall frequencies of each variable do",
        "amber": "neither clearly better nor clearly worse than overall frequencies",
        "red": "worse than overall frequencies; learn it from more episodes or fewer variables",
    }[light]
    sentence = (
        "Of the transitions in the other half of the log, the factored model predicts the levels "
        f"of all variables {better}: mean log probability {score.mean():.3f} against "
        f"{other.mean():.3f}, a difference of {gain:+.3f} (± {2 * error:.3f}). This covers only "
        "actions that were taken."
    )
    return "log score", gain, light, sentence


def _ratio(gain: float, error: float) -> float:
    """Return how many standard errors the gain is."""
    return gain / error if error > 0 else float(np.sign(gain)) * np.inf if gain else 0.0


def _error(centered: Floats, episode: NDArray[np.integer]) -> float:
    """Standard error of a mean over steps, episodes being independent."""
    return float(np.sqrt((np.bincount(episode, centered) ** 2).sum()) / len(centered))


def _row(score: float, other: float, gain: float, error: float) -> Row:
    light = at_least(_ratio(gain, error), BETTER)
    better = {
        "green": "better than a tabular model",
        "amber": "neither clearly better nor clearly worse than a tabular model",
        "red": "worse than a tabular model; consider one (fit_mdp, or --model tabular)",
    }[light]
    sentence = (
        "Of the transitions in the other half of the log, the factored model predicts the next "
        f"state {better}: mean log probability {score:.3f} against {other:.3f}, a difference of "
        f"{gain:+.3f} (± {2 * error:.3f}). The tabular model is smoothed by one case with the "
        "frequencies of next states. This covers only actions that were taken."
    )
    return "log score", gain, light, sentence


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


def tabular_probabilities(learned_from: Episodes, log: Episodes) -> Floats:
    """The same in a table with one row per state and action, learned from other episodes, [N]."""
    size = log.n_states + len(log.outcomes)
    seen, asked = _labels(learned_from), _labels(log)
    usual = np.bincount(seen, minlength=size) + PRIOR / size
    usual /= usual.sum()
    before, now = _pairs(learned_from), _pairs(log)
    total = np.bincount(before, minlength=log.n_states * log.n_actions)[now]
    key, count = np.unique(before * size + seen, return_counts=True)
    wanted = now * size + asked
    position = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    same = np.where(key[position] == wanted, count[position], 0)
    return np.asarray((same + PRIOR * usual[asked]) / (total + PRIOR))


def _pairs(log: Episodes) -> NDArray[np.int64]:
    return log.state.astype(np.int64) * log.n_actions + log.action


def _labels(log: Episodes) -> NDArray[np.int64]:
    """The next state of each step, or S + o if it ended in outcome o, [N]."""
    ends = step_ends(log)
    return np.where(ends < len(log.outcomes), log.n_states + ends, log.next_state).astype(np.int64)

"""Extrapolation: how often the target meets what a classifier never learned from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from butfor.evaluate.diagnostics.lights import UNKNOWN, Row, at_most
from butfor.evaluate.diagnostics.second_learner import is_classifier
from butfor.evaluate.wording import percent
from butfor.models.factored import Factor, FactoredModel
from butfor.models.mdp import total_by
from butfor.models.step_factored import Moved
from butfor.replay.replay import Replay
from butfor.types import Floats

EXTRAPOLATED = (0.05, 0.20)  # at most: one step in twenty, one in five, as for rare rows


def check_extrapolation(replay: Replay) -> Row | None:
    """Check the share of the target's steps at which a classifier extrapolates; None without one.

    At such a step, the parents of a variable never had these levels together in the log. Counts
    back off there to fewer parents, which *rare rows* and thin evidence report.
    """
    model = replay.factored
    names = [one.variable or "the end" for one in model.factors if is_classifier(one)]
    if not names:
        return None
    if replay.sampled:
        value = _drawn_share(replay)
    else:
        start = np.bincount(replay.log.first_state, minlength=replay.log.n_states)
        used = occupancy(replay, start)
        value = float((used * never_logged(model)).sum() / used.sum())
    if np.isnan(value):
        sentence = (
            f"How far the classifiers (of {', '.join(names)}) extrapolate could not be assessed: "
            "each predicts from so many parents that hardly a combination of them occurs twice. "
            "Name fewer in parents=."
        )
        return "extrapolation", value, UNKNOWN, sentence
    sentence = (
        f"At {percent(value)} of the steps that the policy would take in the model, a classifier "
        f"(of {', '.join(names)}) predicts for a combination of parents that was never logged; "
        "what it says there is extrapolated."
    )
    return "extrapolation", value, at_most(value, EXTRAPOLATED), sentence


def _drawn_share(replay: Replay) -> float:
    """The same share where states cannot be enumerated; nan if no classifier has a table."""
    model = replay.factored
    tables = [one for one in model.factors if is_classifier(one) and isinstance(one, Factor)]
    empty = [one.counts.sum(axis=-1).ravel() == 0 for one in tables]

    def unseen(moved: Moved) -> NDArray[np.bool_]:
        count = len(moved.action)
        marks = [e[one.place(moved.codes, count)] for one, e in zip(tables, empty, strict=True)]
        return np.any(marks, axis=0)

    return replay.particles.share_in_model(unseen) if tables else float("nan")


def never_logged(model: FactoredModel) -> Floats:
    """Probability that a classifier extrapolates at each state and action, [S, A].

    Of several classifiers, the one that does so most counts.
    """
    pairs = model.n_states * model.n_actions
    most = np.zeros(pairs)
    for factor, row, weight, codes in model.expand():
        if is_classifier(factor):
            empty = factor.counts.sum(axis=-1) == 0
            unseen = empty[tuple(codes[parent] for parent in factor.parents)]
            most = np.maximum(most, total_by(row, weight * unseen, pairs))
    return np.minimum(most, 1.0).reshape(model.n_states, model.n_actions)


def occupancy(replay: Replay, first: NDArray[np.int64]) -> Floats:
    """Expected number of uses of each state and action by the target in the model, [S, A]."""
    model, target = replay.mdp, replay.target_table
    here = first / first.sum()
    total = np.zeros_like(target)
    for _ in range(replay.horizon):
        used = here[:, None] * target
        total += used
        moved = used.ravel()[model.entry_row] * model.probability
        reached = total_by(model.next_state, moved, model.n_states + len(model.outcomes))
        here = reached[: model.n_states]
    return total

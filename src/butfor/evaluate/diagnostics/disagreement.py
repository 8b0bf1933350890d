"""Estimators disagree: whether estimates of the same value differ by more than chance."""

from __future__ import annotations

import numpy as np

from butfor.evaluate.diagnostics.lights import Row, at_most
from butfor.evaluate.diagnostics.second_learner import DISAGREEMENT
from butfor.evaluate.estimators.columns import Columns
from butfor.evaluate.sample import Sample, continued
from butfor.evaluate.warn import FEW
from butfor.evaluate.wording import digits_for
from butfor.types import Floats

# Standard errors between two estimates, exceeded by chance in fewer than one log in 370: the model
# was learned from the same episodes, so that both vary together more than the standard error knows.
APART = 3.0
NAMES = {
    "WIS": "reweighted episodes put it",
    "DR": "the model corrected by the episodes puts it",
    "CF": "the replay of each episode puts it",
}


def disagreement_row(sample: Sample) -> Row | None:
    """Check the estimate that is farthest from what the model says (MB); None without a spread."""
    columns, spread = sample.columns, sample.spread
    if len(columns) < 2 or not spread > 0:
        return None
    found = differences(sample)
    value = float(columns.value.sum() / columns.episodes.sum())
    apart = {n: gap for n, (gap, error) in found.items() if abs(gap) > APART * error}
    name = max(apart or found, key=lambda n: abs(found[n][0]))
    gap, error = found[name]
    light = at_most(abs(gap) / spread, DISAGREEMENT) if apart else "green"
    digits = digits_for([value, value + gap, 2 * error])
    known = "continued" if continued(sample) else "observed"
    sentence = (
        f"The model puts the policy at {digits.value(value)} (MB), {NAMES[name]} at "
        f"{digits.value(value + gap)} ({name}), ± {digits.size(2 * error)}; {known} returns have "
        f"a standard deviation of {digits.size(spread)}."
    )
    if light != "green":
        sentence += (
            " If states, model and behavior were right, they would agree: the course depends on "
            "more than state and action, such as the hour or something that was not recorded, or "
            "the model does not fit."
        )
    return "estimators disagree", abs(gap) / spread, light, sentence


def differences(sample: Sample) -> dict[str, tuple[float, float]]:
    """Return each estimate minus MB, with its standard error, by name.

    A difference is a mean over episodes, so its standard error follows from the episodes, or groups
    of them, with model and behavior held fixed.
    """
    # if few episodes have most of the weight, they decide, and errors are not normal
    terms = _terms(sample.columns, weighted=sample.effective >= FEW)
    return {name: _difference(term, sample.columns) for name, term in terms.items()}


def _terms(columns: Columns, weighted: bool) -> dict[str, Floats]:
    """Terms of each row whose sum, over the number of episodes, is an estimate minus MB, [n]."""
    terms = {"CF": columns.counterfactual - columns.value}
    if weighted:
        weight = columns.ratio[:, -1]
        average = columns.weighted_return.sum() / weight.sum()
        scale = columns.episodes.sum() / weight.sum()
        # the mean weight varies, too: to first order WIS errs by the mean of w (G - WIS) / mean(w)
        error = scale * (columns.weighted_return - weight * average)
        terms["WIS"] = error + average * columns.episodes - columns.value
        terms["DR"] = (columns.base + columns.surprise).sum(axis=1) - columns.value
    return terms


def _difference(terms: Floats, columns: Columns) -> tuple[float, float]:
    """Mean over episodes and its standard error, from rows that are sums over `episodes`."""
    count = columns.episodes.sum()
    mean = float(terms.sum() / count)
    rest = terms - mean * columns.episodes
    rows = len(rest)
    return mean, float(np.sqrt((rest**2).sum() * rows / (rows - 1)) / count)

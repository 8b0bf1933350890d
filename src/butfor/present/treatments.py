"""What was given at each step of an episode, and what the policy would have given there.

Both are about the recorded states; nothing in it is a prediction of the model.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from butfor.audit.audit import Audit
from butfor.evaluate.wording import percent
from butfor.log.variables import Variable, describe_action, unravel
from butfor.mechanisms.gumbel_max import counterfactual_distribution
from butfor.present.charts.style import Row
from butfor.present.charts.trajectory.layout import TrajectoryLayout
from butfor.present.charts.trajectory.rows import FAINT

LIKELY = 0.05  # rarer actions of a random policy are not listed
MOST = 3  # actions of a random policy that are listed
CERTAIN = 0.999


def policy_chances(audit: Audit, state: int, given: int) -> NDArray[np.float64]:
    """Return the probability of each action of the policy in a state where `given` was taken."""
    chances: NDArray[np.float64] = audit.target[state]
    if audit.meta.parameters.action_noise == "shared":
        return counterfactual_distribution(audit.behavior[state], chances, given)
    return chances


def list_treatments(
    audit: Audit, variables: tuple[Variable, ...], steps: pd.DataFrame
) -> list[dict[str, Any]]:
    """Return what was given and what the policy gives; equal neighboring steps are one row."""
    rows = []
    for step, given, chances in _decisions(audit, steps):
        rows.append(
            {
                "step": step,
                "given": describe_action(variables, given),
                "policy": _describe(variables, chances),
                "differs": _differs(float(chances[given])),
            }
        )
    merged = []
    for _, same in groupby(rows, key=lambda row: (row["given"], row["policy"])):
        first, *rest = same
        merged.append(first | {"last": (rest or [first])[-1]["step"]})
    return merged


def treatment_rows(layout: TrajectoryLayout, audit: Audit, steps: pd.DataFrame) -> list[Row]:
    """Return the policy's treatments on the strips of a chart, when the record shows its own."""
    strips = [s for s in layout.strips if s.kind in ("running", "action")]
    levels = {variable.name: variable.levels for variable in layout.action}
    codes = unravel(layout.action, np.arange(audit.target.shape[1]))
    rows: list[Row] = []
    for step, _, chances in _decisions(audit, steps):
        for strip in strips:
            name, shown = strip.variable.name, step + (strip.kind == "running")
            for code, level in enumerate(levels[name]):
                chance = float(chances[codes[name] == code].sum())
                if chance >= FAINT and level in strip.numbers:
                    rows.append({"step": shown, "k": strip.numbers[level], "p": round(chance, 4)})
    return rows


def _decisions(audit: Audit, steps: pd.DataFrame) -> list[tuple[int, int, NDArray[np.float64]]]:
    """Return step, action and the policy's probabilities of each recorded decision."""
    columns = (steps[name].tolist() for name in ("step", "state", "action"))
    return [
        (step, action, policy_chances(audit, state, action))
        for step, state, action in zip(*columns, strict=True)
        if action >= 0
    ]


def _differs(chance: float) -> str:
    """Return whether the policy takes another action, given its chance of the one taken."""
    return "no" if chance > CERTAIN else "yes" if chance < LIKELY else "may"


def _describe(variables: tuple[Variable, ...], chances: NDArray[np.float64]) -> str:
    """Return the likely actions in words, with their probabilities unless one is certain."""
    order = np.argsort(-chances, kind="stable")
    if chances[order[0]] > CERTAIN:
        return describe_action(variables, int(order[0]))
    likely = [int(action) for action in order[:MOST] if chances[action] >= LIKELY] or [
        int(order[0])
    ]
    words = [f"{describe_action(variables, a)} ({percent(float(chances[a]))})" for a in likely]
    rest = float(chances.sum() - chances[likely].sum())
    return " or ".join(words) + (f" or others ({percent(rest)})" if rest > FAINT else "")

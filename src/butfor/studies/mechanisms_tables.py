"""Tables of the mechanisms study: scores, bounds and reliability over all logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.studies.mechanisms import (
    AGAIN,
    CASES,
    EVERYONE,
    GROUPS,
    GUMBEL,
    OUTCOMES,
    OWN,
    RATE,
    Scored,
    group_of,
)
from butfor.studies.scoring import (
    IMPOSSIBLE,
    Mask,
    calibration_chance,
    calibration_error,
    given_to_truth,
    leave_one_out,
    log_loss,
    mean_over_logs,
    reliability,
    skill,
)
from butfor.types import Floats


def score_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Score each case, mechanism or reference and group of episodes: a row each.

    `skill` is against the base rate, `difference` is the Brier score less that of Gumbel-Max;
    columns that end in _se are standard errors over logs. What no sample of draws can tell
    (calibration, log loss) is missing for the simulator's own mechanism.
    """
    rows: list[dict[str, Any]] = []
    for key, case in cases.items():
        for name in case.prediction:
            for group in (EVERYONE, *GROUPS):
                mask = case.group(group)
                if mask.any():
                    label = {"case": key, "mechanism": name, "group": group}
                    rows.append(label | _scores(case, name, mask))
    return pd.DataFrame(rows)


def _scores(case: Scored, name: str, mask: Mask) -> dict[str, Any]:
    probability, truth = case.prediction[name], case.truth
    score = case.brier(name)
    row: dict[str, Any] = {"episodes": int(mask.sum())}
    row["brier"], row["brier_se"] = mean_over_logs(score, mask)
    row["skill"], row["skill_se"] = skill(score, case.brier(RATE), mask)
    row["difference"], row["difference_se"] = mean_over_logs(score - case.brier(GUMBEL), mask)
    worth = np.array([*(outcome.reward for outcome in sepsis.OUTCOMES), 0.0])
    row["mean_return"], row["mean_return_se"] = mean_over_logs(probability @ worth, mask)
    if name != OWN:
        sums = reliability(probability, truth, mask)
        row["calibration_error"], row["calibration_error_se"] = leave_one_out(
            sums, calibration_error
        )
        row["calibration_chance"] = calibration_chance(sums.sum(axis=0))
        ruled_out = given_to_truth(probability, truth) < IMPOSSIBLE
        row["ruled_out"], row["ruled_out_se"] = mean_over_logs(ruled_out.astype(float), mask)
        row["log_loss"], row["log_loss_se"] = mean_over_logs(log_loss(probability, truth), mask)
    return row


def bounds_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Compare mean bounds with true frequencies: a row a case, class, group and outcome.

    `inside` says whether the true frequency lies between the mean bounds, `logs_inside` in which
    share of logs it does; `allowed` is the share of episodes whose true outcome the bounds do not
    rule out (its highest probability is above 0).
    """
    rows = []
    for key, case in cases.items():
        for kind, bounds in case.bounds.items():
            truth = case.truth[:, : bounds.shape[1]]
            high = given_to_truth(bounds[..., 1], truth)
            for group in (EVERYONE, *GROUPS):
                mask = case.group(group)[:, : bounds.shape[1]]
                if not mask.any():
                    continue
                allowed, _ = mean_over_logs((high >= IMPOSSIBLE).astype(float), mask)
                for outcome, word in enumerate(OUTCOMES):
                    label = {"case": key, "class": kind, "group": group, "outcome": word}
                    found = _containment(bounds[:, :, outcome], truth == outcome, mask)
                    rows.append({**label, "episodes": int(mask.sum()), "allowed": allowed, **found})
    return pd.DataFrame(rows)


def _containment(bounds: Floats, happened: Mask, mask: Mask) -> dict[str, Any]:
    """Mean bounds [R, n, 2] of one outcome beside how often it happened."""
    low, high = (mean_over_logs(bounds[..., end], mask)[0] for end in (0, 1))
    frequency, error = mean_over_logs(happened.astype(float), mask)
    slack = 1e-9  # rounding
    some = mask.any(axis=1)
    total = mask.sum(axis=1)[some]
    lows, highs = ((bounds[..., end] * mask).sum(axis=1)[some] / total for end in (0, 1))
    true = (happened & mask).sum(axis=1)[some] / total
    logs_inside = ((lows - slack <= true) & (true <= highs + slack)).mean()
    return {
        "low": low,
        "high": high,
        "width": high - low,
        "true": frequency,
        "true_se": error,
        "inside": bool(low - slack <= frequency <= high + slack),
        "logs_inside": float(logs_inside),
    }


def reliability_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Predicted and true share by case, mechanism, outcome and bin of predicted probability."""
    rows = []
    for key, case in cases.items():
        for name in case.prediction:
            if name in (OWN, AGAIN, RATE):
                continue
            sums = reliability(case.prediction[name], case.truth).sum(axis=0)
            for outcome, place in np.argwhere(sums[..., 0] > 0):
                count, predicted, happened, _ = sums[outcome, place]
                rows.append(
                    {
                        "case": key,
                        "mechanism": name,
                        "outcome": OUTCOMES[outcome],
                        "bin": int(place),
                        "episodes": int(count),
                        "predicted": predicted / count,
                        "true": happened / count,
                    }
                )
    return pd.DataFrame(rows)


def case_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """What each case is about, and how far its target is from what was done: a row a case."""
    rows = []
    worth = np.array([*(outcome.reward for outcome in sepsis.OUTCOMES), 0.0])
    for key, case in cases.items():
        model, target = CASES[key]
        changed, _ = mean_over_logs(case.changed)
        other, _ = mean_over_logs((case.truth != case.observed).astype(float))
        mean, error = mean_over_logs(worth[case.truth])
        gap, gap_error = mean_over_logs(worth[case.truth] - case.value[:, None])
        rows.append(
            {
                "case": key,
                "model": model,
                "target": target,
                "changed_decisions": changed,
                "changed_outcomes": other,
                "observed_return": float(worth[case.observed].mean()),
                "true_return": mean,
                "true_return_se": error,
                "exact_value": float(case.value.mean()),
                "gap": gap,
                "gap_se": gap_error,
            }
            | {
                f"share_{place}": float((group_of(case.changed) == place).mean())
                for place in range(len(GROUPS))
            }
        )
    return pd.DataFrame(rows)

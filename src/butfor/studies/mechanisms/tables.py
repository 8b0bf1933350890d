"""Tables of the experiment: cases, scores, bounds and reliability over all logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from butfor import sepsis
from butfor.studies import scoring
from butfor.studies.article import Advance
from butfor.studies.mechanisms.experiment import (
    AGAIN,
    CASES,
    EVERYONE,
    GROUPS,
    GUMBEL,
    MECHANISMS,
    OUTCOMES,
    OWN,
    RATE,
    MechanismsSettings,
    Scored,
    group_of,
    score_logs,
)
from butfor.types import Floats

WORTH = np.array([*(outcome.reward for outcome in sepsis.OUTCOMES), 0.0])  # of OUTCOMES


@dataclass(frozen=True, eq=False)
class Experiment:
    """The tables of a run."""

    settings: MechanismsSettings
    cases: pd.DataFrame
    scores: pd.DataFrame
    bounds: pd.DataFrame
    reliability: pd.DataFrame

    def score(self, case: str, mechanism: str) -> pd.Series:
        """Return the scores of one mechanism over all episodes; KeyError if there are none."""
        return self._overall.loc[(case, mechanism)]

    @cached_property
    def _overall(self) -> pd.DataFrame:
        overall = self.scores[self.scores["group"] == EVERYONE]
        return overall.set_index(["case", "mechanism"]).sort_index()

    def mechanisms(self, case: str) -> list[str]:
        """Return the mechanisms that were scored in a case, without the references."""
        return [name for name in MECHANISMS if (case, name) in self._overall.index]


def run_experiment(settings: MechanismsSettings, *, advance: Advance = lambda: None) -> Experiment:
    """Run the experiment and make its tables."""
    return make_tables(settings, score_logs(settings, advance=advance))


def make_tables(settings: MechanismsSettings, cases: Mapping[str, Scored]) -> Experiment:
    """Make the tables of scored cases."""
    return Experiment(
        settings=settings,
        cases=case_table(cases),
        scores=score_table(cases),
        bounds=bounds_table(cases),
        reliability=reliability_table(cases),
    )


def score_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Return the scores, one row per case, mechanism or reference, and group of episodes.

    `skill` is relative to the base rate; `difference` is the Brier score minus that of Gumbel-Max;
    columns that end in _se are standard errors over logs. Calibration and log loss, which a sample
    of draws cannot give, are missing for the simulator's own mechanism.
    """
    rows: list[dict[str, Any]] = []
    for key, case in cases.items():
        for name in case.prediction:
            for group, mask in case.groups():
                label = {"case": key, "mechanism": name, "group": group}
                rows.append(label | _scores(case, name, mask))
    return pd.DataFrame(rows)


def _scores(case: Scored, name: str, mask: scoring.Mask) -> dict[str, Any]:
    probability, truth, score = case.prediction[name], case.truth, case.brier(name)
    measures = {
        "brier": scoring.mean_over_logs(score, mask),
        "skill": scoring.skill(score, case.brier(RATE), mask),
        "difference": scoring.mean_over_logs(score - case.brier(GUMBEL), mask),
        "mean_return": scoring.mean_over_logs(probability @ WORTH, mask),
    }
    row: dict[str, Any] = {"episodes": int(mask.sum())}
    if name != OWN:
        sums = scoring.reliability(probability, truth, mask)
        ruled_out = scoring.given_to_truth(probability, truth) < scoring.IMPOSSIBLE
        measures |= {
            "calibration_error": scoring.leave_one_out(sums, scoring.calibration_error),
            "ruled_out": scoring.mean_over_logs(ruled_out, mask),
            "log_loss": scoring.mean_over_logs(scoring.log_loss(probability, truth), mask),
        }
    for measure, (value, error) in measures.items():
        row |= {measure: value, f"{measure}_se": error}
    if name != OWN:
        row["calibration_chance"] = scoring.calibration_chance(sums.sum(axis=0))
    return row


def bounds_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Compare mean bounds with true frequencies, one row per case, class, group and outcome.

    `inside` tells whether the true frequency lies between the mean bounds, `logs_inside` in which
    share of logs it does; `allowed` is the share of episodes whose true outcome the bounds do not
    rule out (its highest probability is above 0).
    """
    rows = []
    for key, case in cases.items():
        for kind, bounds in case.bounds.items():
            truth = case.truth[:, : bounds.shape[1]]
            possible = scoring.given_to_truth(bounds[..., 1], truth) >= scoring.IMPOSSIBLE
            for group, mask in case.groups(bounds.shape[1]):
                allowed, _ = scoring.mean_over_logs(possible, mask)
                for outcome, word in enumerate(OUTCOMES):
                    label = {"case": key, "class": kind, "group": group, "outcome": word}
                    found = _containment(bounds[:, :, outcome], truth == outcome, mask)
                    rows.append({**label, "episodes": int(mask.sum()), "allowed": allowed, **found})
    return pd.DataFrame(rows)


def _containment(bounds: Floats, happened: scoring.Mask, mask: scoring.Mask) -> dict[str, Any]:
    """Compare the mean bounds [R, n, 2] of one outcome with how often it happened."""
    low, high = (scoring.mean_over_logs(bounds[..., end], mask)[0] for end in (0, 1))
    frequency, error = scoring.mean_over_logs(happened, mask)
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
    """Return predicted and true share by case, mechanism, outcome and bin of the prediction."""
    rows = []
    for key, case in cases.items():
        for name in case.prediction:
            if name in (OWN, AGAIN, RATE):
                continue
            sums = scoring.reliability(case.prediction[name], case.truth).sum(axis=0)
            for outcome, place in np.argwhere(sums[..., 0] > 0):
                count, predicted, happened, _ = sums[outcome, place]
                place_of = {"case": key, "mechanism": name, "outcome": OUTCOMES[outcome]}
                counted = {"bin": int(place), "episodes": int(count)}
                shares = {"predicted": predicted / count, "true": happened / count}
                rows.append({**place_of, **counted, **shares})
    return pd.DataFrame(rows)


def case_table(cases: Mapping[str, Scored]) -> pd.DataFrame:
    """Describe each case, and how far its target is from what was done, one row per case."""
    rows = []
    for key, case in cases.items():
        model, target = CASES[key]
        returns = WORTH[case.truth]
        mean, error = scoring.mean_over_logs(returns)
        gap, gap_error = scoring.mean_over_logs(returns - case.value[:, None])
        rows.append(
            {
                "case": key,
                "model": model,
                "target": target,
                "changed_decisions": scoring.mean_over_logs(case.changed)[0],
                "changed_outcomes": float((case.truth != case.observed).mean()),
                "observed_return": float(WORTH[case.observed].mean()),
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

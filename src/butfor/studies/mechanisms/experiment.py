"""Which mechanism comes closest to the truth? Counterfactuals scored against the simulator's own.

The noise of the sepsis simulator belongs to patient and step, so the same patient can truly be
treated differently. Each mechanism gives the probability of each outcome that would have followed;
the simulator tells which one it would have been.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sparse
from numpy.typing import NDArray

from butfor import sepsis
from butfor.log.episodes import Episodes
from butfor.mechanisms.gumbel_max import GumbelMax
from butfor.mechanisms.independent import Independent
from butfor.mechanisms.inverse_cdf import InverseCDF
from butfor.mechanisms.maximal import MaximalCoupling
from butfor.mechanisms.protocol import Mechanism
from butfor.models.mdp import TabularMDP
from butfor.models.planning import policy_value, value_tables
from butfor.replay.replay import Replay
from butfor.studies import scoring
from butfor.studies.article import HIDDEN, HORIZON, Advance, LogSettings, learn
from butfor.studies.scoring import Mask, Truth, brier
from butfor.types import Floats

OWN_DRAWS = 25  # of the simulator's noise given what was observed
BOUNDED = 250  # episodes of each log whose bounds are computed: they take longest
WITHOUT_VASOPRESSORS = 6  # keeps the bits of antibiotics and ventilation in an action

GUMBEL, SIGNS, ENDS = "Gumbel-Max", ", on vital signs", ", ends too"
MECHANISMS: dict[str, Mechanism] = {
    GUMBEL: GumbelMax(),
    GUMBEL + SIGNS: GumbelMax(),
    GUMBEL + SIGNS + ENDS: GumbelMax(),
    "Maximal coupling": MaximalCoupling(),
    "Maximal coupling" + SIGNS: MaximalCoupling(),
    "Inverse CDF": InverseCDF(),
    "Inverse CDF, by value": InverseCDF("value"),
    "Independent": Independent(),
}
OWN = "Simulator's own mechanism"
ALONE, AGAIN, RATE = "Model alone", "Outcome as observed", "Base rate"
REFERENCES = (OWN, ALONE, AGAIN, RATE)

CASES = {  # by key: the model that answers, the target it is asked about
    "true-withheld": ("True model", "vasopressors withheld"),
    "true-learned": ("True model", "learned policy"),
    "learned-hidden": ("Learned model, two variables hidden", "learned policy"),
    "learned-full": ("Learned model, nothing hidden", "policy learned with nothing hidden"),
}
CLASSES = ("any", "stable", "stable" + SIGNS)
OUTCOMES = ("died", "discharged", "still in ICU")
GROUPS = ("none", "up to 25%", "25 to 50%", "over 50%")  # share of decisions changed
EVERYONE = "all"
WORTH = np.array([*(outcome.reward for outcome in sepsis.OUTCOMES), 0.0])  # of OUTCOMES


@dataclass(frozen=True)
class MechanismsSettings(LogSettings):
    """The settings of the study."""

    repeats: int = 20


@dataclass(frozen=True, eq=False)
class Question:
    """A log, the model that answers, and the target in the model's and in full states."""

    log: Episodes
    model: TabularMDP
    target: Floats  # [S, A]
    full_target: Floats  # [1440, 8]
    ends: TabularMDP | None = None  # the same model with its ends kept as states


@dataclass(frozen=True, eq=False)
class Scored:
    """One case over R logs of n episodes: what was predicted, and what is true."""

    truth: Truth  # [R, n] true counterfactual outcome; the last one is none
    observed: Truth  # [R, n]
    changed: Floats  # [R, n] share of the observed decisions that the target changes
    prediction: Mapping[str, Floats]  # [R, n, O] by mechanism or reference
    bounds: Mapping[str, Floats]  # [R, m, O, 2] by class, of the first m episodes of each log
    value: Floats  # [R] exact value of the target in the simulator

    def groups(self, most: int | None = None) -> Iterator[tuple[str, Mask]]:
        """Yield EVERYONE and GROUPS with their episodes among the first, unless there are none."""
        changed = self.changed[:, :most]
        for place, name in enumerate((EVERYONE, *GROUPS), start=-1):
            mask = np.asarray((group_of(changed) == place) | (name == EVERYONE))
            if mask.any():
                yield name, mask

    def brier(self, name: str) -> Floats:
        """Return the Brier score of each episode, [R, n]."""
        draws = OWN_DRAWS if name == OWN else None
        return brier(self.prediction[name], self.truth, draws=draws)


def group_of(changed: Floats) -> NDArray[np.int64]:
    """Return the index into GROUPS of shares of changed decisions."""
    return np.searchsorted([0.0, 0.25, 0.5], changed, side="left")


def score_logs(
    settings: MechanismsSettings, *, advance: Advance = lambda: None
) -> dict[str, Scored]:
    """Score every mechanism over fresh logs, by case."""
    logs = []
    for repeat in range(settings.repeats):
        logs.append(score_log(settings, repeat))
        advance()
    return {key: _join([log[key] for log in logs]) for key in CASES}


def score_log(settings: MechanismsSettings, repeat: int) -> dict[str, Scored]:
    """Score every case on one fresh log."""
    seed, version = settings.base_seed(repeat, parts=2), settings.simulator
    true_model = sepsis.model(version)
    log = settings.simulate(sepsis.behavior_policy(version), seed)
    asked = questions(log, settings)
    targets = [question.full_target for question in asked.values()]
    own = sepsis.own_counterfactuals(log, targets, draws=OWN_DRAWS, seed=seed + 1, version=version)
    scored = {}
    for (key, question), probability in zip(asked.items(), own, strict=True):
        truth = true_counterfactuals(question.full_target, settings, seed).outcome % len(OUTCOMES)
        prediction = {**answers(question), OWN: probability}
        prediction[AGAIN] = np.eye(len(OUTCOMES))[log.outcome]
        rate = np.bincount(truth, minlength=len(OUTCOMES)) / len(truth)
        prediction[RATE] = np.tile(rate, (len(truth), 1))
        scored[key] = Scored(
            truth=truth[None].astype(np.int64),
            observed=log.outcome[None].astype(np.int64) % len(OUTCOMES),
            changed=changed_decisions(log, question.full_target)[None],
            prediction={name: values[None] for name, values in prediction.items()},
            bounds={name: values[None] for name, values in bound(question).items()},
            value=np.array([policy_value(true_model, question.full_target, horizon=HORIZON)]),
        )
    return scored


def questions(log: Episodes, settings: MechanismsSettings) -> dict[str, Question]:
    """Return the questions asked of a log on full states, by case.

    Targets are deterministic, so action noise plays no part. The first is the physician's most
    common action with vasopressors withheld: it does not depend on the log, and it changes from
    none to most of a patient's decisions. The others are planned on models learned from the log.
    """
    true = sepsis.model(settings.simulator)
    ends = keep_ends(settings.simulator)
    usual = sepsis.behavior_policy(settings.simulator).argmax(axis=1)
    withheld = np.eye(true.n_actions)[usual & WITHOUT_VASOPRESSORS]
    reduced = log.hide(*HIDDEN)
    hidden, of_hidden = learn(reduced, settings.terminal)
    full, of_full = learn(log, settings.terminal)
    lifted = sepsis.full_policy(of_hidden)
    return {
        "true-withheld": Question(log, true, withheld, withheld, ends),
        "true-learned": Question(log, true, lifted, lifted, ends),
        "learned-hidden": Question(reduced, hidden, of_hidden, lifted),
        "learned-full": Question(log, full, of_full, of_full),
    }


def true_counterfactuals(target: Floats, settings: MechanismsSettings, seed: int) -> Episodes:
    """Return the truth: the patients of the log with this seed, treated by the target instead.

    The first state and the noise depend only on seed, episode and step, not on the actions. A
    simulation with the log's seed replays its noise, also beyond the observed end.
    """
    return settings.simulate(target, seed)


def changed_decisions(log: Episodes, target: Floats) -> Floats:
    """Return the share of each episode's decisions that the target would change, [n]."""
    other = target[log.state, log.action] < 1
    return np.asarray(np.add.reduceat(other, log.offsets[:-1]) / log.lengths)


def vital_signs(log: Episodes) -> NDArray[np.int32]:
    """Return labels of states: their vital signs without the running treatments, [S]."""
    shown = [variable.name for variable in log.state_variables]
    names = [name for name in sepsis.VITAL_SIGNS if name in shown]
    return log.state_labels(*names)


def answers(question: Question) -> dict[str, Floats]:
    """Return outcome probabilities by mechanism, and by the model alone, each [n, O]."""
    log, model, target = question.log, question.model, question.target
    signs = model.with_labels(vital_signs(log))
    found = {}
    for name, mechanism in MECHANISMS.items():
        used, horizon = signs if name.endswith(SIGNS) else model, log.horizon
        if name.endswith(ENDS):
            if question.ends is None:
                continue
            used, horizon = question.ends.with_labels(vital_signs(log)), log.horizon + 1
        result = Replay(log, used, target, mechanism=mechanism, horizon=horizon).outcomes()
        found[name] = result.probability
    outcomes = value_tables(model, target, horizon=log.horizon)[1]
    found[ALONE] = outcomes[log.horizon, log.first_state]
    return found


def bound(question: Question) -> dict[str, Floats]:
    """Return the lowest and highest outcome probabilities by class of mechanisms, [m, O, 2]."""
    log = question.log.select(np.arange(min(BOUNDED, len(question.log))))
    plain = Replay(log, question.model, question.target).bounds().probability
    horizon = log.horizon + (question.ends is not None)
    signs = (question.ends or question.model).with_labels(vital_signs(log))
    labeled = Replay(log, signs, question.target, horizon=horizon).bounds().probability
    return dict(zip(CLASSES, (*plain, labeled[1]), strict=True))


def keep_ends(version: str) -> TabularMDP:
    """Return the true model with ends kept as states and the outcome one step later.

    An end then has the noise of its vital signs, like any other state. Over one step more than the
    horizon, outcomes have the same probabilities as in `sepsis.model`.
    """
    raw, ends = sepsis.model(version, absorbing=False), sepsis.outcome_of()
    states, actions = raw.n_states, raw.n_actions
    shape = (states * actions, states + len(sepsis.OUTCOMES))
    going = np.repeat(ends < 0, actions)
    last = np.flatnonzero(~going)
    kept = raw.probability * going[raw.entry_row]
    moves = sparse.csr_array((kept, raw.next_state, raw.start), shape)
    over = sparse.csr_array((np.ones(len(last)), (last, states + ends[last // actions])), shape)
    rows = moves + over
    rows.eliminate_zeros()
    model = TabularMDP.from_arrays(
        rows, actions=actions, outcomes=sepsis.OUTCOMES, initial=raw.initial
    )
    # the last step of an episode then leads to a state, not to the outcome
    return replace(model, terminal="icml2019")


def _join(logs: list[Scored]) -> Scored:
    """Concatenate the arrays of several logs."""
    joined: dict[str, Any] = {}
    for field in fields(Scored):
        parts = [getattr(log, field.name) for log in logs]
        joined[field.name] = (
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            if isinstance(parts[0], dict)
            else np.concatenate(parts)
        )
    return Scored(**joined)


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

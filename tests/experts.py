"""Simulated experts read patients of the sepsis demonstration, whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import butfor as bf
from butfor import sepsis
from butfor.audit.learning import tabular_learner
from butfor.evaluate.betting import EARLY, HEDGE, LARGEST
from butfor.evaluate.experts import ReviewSample, drawn_strata, sample_value
from butfor.replay.outcomes import rank_flags
from tests.reference.experts import Game

VERSION = "icml2019"
RETURNS = np.array([-1.0, 1.0, 0.0])  # of death, discharge and neither
DRAWN = 40
THRESHOLD = np.log(2 / 0.05)
CONSTANTS = {"largest": LARGEST, "hedge": HEDGE, "early": EARLY}  # of the twin's bets
KINDS = ("perfect", "noisy", "hindsight", "anchored")


@dataclass(frozen=True, eq=False)
class Ward:
    """Patients with the model's, the true and the observed outcome, and whom to draw."""

    model: np.ndarray  # [n] counterfactual return
    truth: np.ndarray  # [n] true return under the policy, with the noise of this very patient
    observed: np.ndarray  # [n]
    stratum: np.ndarray  # [n]
    planned: np.ndarray  # [H] cases to draw from each stratum; the last is flagged and complete

    @property
    def flagged(self):
        return len(self.planned) - 1

    def answers(self, kind, generator):
        """Return what experts of a kind would answer about each patient, [n]."""
        some = generator.random(len(self.truth))
        if kind == "noisy":
            guess = RETURNS[generator.integers(3, size=len(self.truth))]
            return np.where(some < 0.1, guess, self.truth)
        if kind == "hindsight":
            return np.where(some < 0.2, self.observed, self.truth)
        return 0.8 * self.truth + 0.2 * self.model if kind == "anchored" else self.truth

    def review(self, answers, generator):
        """Draw cases by strata and return the answers to them, in random order."""
        cases = [
            generator.permutation(np.flatnonzero(self.stratum == h))[:count]
            for h, count in enumerate(self.planned.tolist())
        ]
        case = generator.permutation(np.concatenate(cases))
        drawn = np.zeros(len(self.model), bool)
        drawn[case] = True
        ends = (-1.0, 1.0)
        given = (self.model, self.stratum, drawn, case, answers[case], ends)
        return ReviewSample(*given, flagged=self.flagged)


def sepsis_ward(seed=0, patients=1000, flags=40):
    """Return the patients of the tabular demonstration."""
    physician = sepsis.behavior_policy(VERSION)
    log = sepsis.simulate(physician, patients, seed=seed, version=VERSION)
    log = log.hide("glucose", "diabetes")
    model, target = tabular_learner(discount=0.99)(log)
    replay = bf.Replay(log, model, np.asarray(target))
    found = replay.outcomes()
    known = sepsis.full_policy(replay.target_table)
    truth = sepsis.simulate(known, patients, seed=seed, version=VERSION)
    flagged = rank_flags(found, flags) > 0
    stratum = by_strata(log.outcome, np.abs(found.difference), flagged)
    return Ward(
        model=found.expected_return,
        truth=RETURNS[truth.outcome],
        observed=RETURNS[log.outcome],
        stratum=stratum,
        planned=allocate(np.bincount(stratum), DRAWN),
    )


def by_strata(outcome, difference, flagged):
    """Return observed outcome × thirds of |difference|, numbered, and flagged as the last."""
    stratum = np.full(len(outcome), 9)
    for place, one in enumerate((0, 1, -1)):
        found = np.flatnonzero(~flagged & (outcome == one))
        rank = np.argsort(np.argsort(difference[found], kind="stable"))
        stratum[found] = 3 * place + 3 * rank // len(found)
    return stratum


def allocate(sizes, drawn):
    """Return cases by stratum, in proportion but at least two; all of the last one."""
    planned = np.full(len(sizes) - 1, 2)
    while planned.sum() < drawn:
        planned[np.argmax(sizes[:-1] / (planned + 1))] += 1
    return np.append(planned, sizes[-1])


def after(sample, cases):
    """Return what was known of a review after so many cases."""
    return replace(sample, case=sample.case[:cases], answer=sample.answer[:cases])


def ever_missed(ward, answers, sample):
    """Return whether any anytime interval, after each case, misses the experts' own view.

    One can miss only while a gambler who knows the true means has won 2 / α, so that the interval
    is needed at these times, and once more when the gambler is richest.
    """
    difference = answers - ward.model
    drawn = drawn_strata(sample)
    richest = np.zeros(len(sample.case))
    for sign in (1, -1):
        ends = [sorted((sign * s.least, sign * s.most)) for s in drawn]
        strata = [(s.size, s.planned, *end) for s, end in zip(drawn, ends, strict=True)]
        means = [
            sign * difference[ward.stratum == h].mean().item() for h in range(len(ward.planned))
        ]
        game = Game(strata, means, THRESHOLD, **CONSTANTS)
        for k, case in enumerate(sample.case.tolist()):
            game.see(int(ward.stratum[case]), sign * float(difference[case]))
            richest[k] = max(richest[k], game.capital)
    times = {*np.flatnonzero(richest >= np.exp(THRESHOLD)).tolist(), int(richest.argmax())}
    found = (sample_value(after(sample, k + 1)) for k in sorted(times))
    return any(not one.low <= answers.mean() <= one.high for one in found)


def simulate_reviews(ward, kind, reviews, seed=0):
    """Return how reviews by experts of a kind went: one row of numbers, by name."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(reviews):
        answers = ward.answers(kind, generator)
        sample = ward.review(answers, generator)
        fixed, anytime = (sample_value(sample, interval=name) for name in ("fixed", "anytime"))
        own = answers.mean()
        rows.append(
            {
                "own view": own,
                "estimate - own view": fixed.value - own,
                "estimate - truth": fixed.value - ward.truth.mean(),
                "fixed covers": fixed.low <= own <= fixed.high,
                "fixed width": fixed.high - fixed.low,
                "anytime missed": ever_missed(ward, answers, sample),
                "anytime width": anytime.high - anytime.low,
                "overturned, fixed": fixed.high < ward.observed.mean(),
                "overturned, anytime": anytime.high < ward.observed.mean(),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

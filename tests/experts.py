"""Simulated experts review the sepsis demonstration, whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

import butfor as bf
from butfor import sepsis
from butfor.audit.drawing import drawing_order
from butfor.audit.experts import chance_columns
from butfor.audit.learning import tabular_learner
from butfor.audit.sampling import choose_controls, strata_columns
from butfor.evaluate.betting import EARLY, HEDGE, LARGEST
from butfor.evaluate.experts import drawn_strata, sample_value
from butfor.replay.outcomes import Counterfactuals
from butfor.review.plan import run_id
from tests.reference.experts import Game

VERSION = "icml2019"
RETURNS = np.array([-1.0, 1.0, 0.0])  # of death, discharge and neither
FLAGS, CONTROLS = 40, 40
THRESHOLD = np.log(2 / 0.05)
CONSTANTS = {"largest": LARGEST, "hedge": HEDGE, "early": EARLY}  # of the twin's bets
KINDS = ("perfect", "noisy", "hindsight", "anchored")


@dataclass(frozen=True, eq=False)
class Ward:
    """An audit of patients whose true outcome under the policy is known."""

    audit: bf.Audit
    result: Counterfactuals
    truth: np.ndarray  # [n] true outcome under the policy, with the noise of this very patient
    observed: np.ndarray  # [n] outcome

    def value(self, outcome):
        """Return the mean return of outcomes."""
        return RETURNS[outcome].mean()

    def answers(self, kind, generator):
        """Return what experts of a kind would answer about each patient, out of ten, [n, 3]."""
        some, sure = generator.random(len(self.truth)), 10 * np.eye(3, dtype=int)
        if kind == "noisy":
            guess = generator.integers(3, size=len(self.truth))
            return sure[np.where(some < 0.1, guess, self.truth)]
        if kind == "hindsight":
            return sure[np.where(some < 0.2, self.observed, self.truth)]
        if kind == "anchored":
            model = self.audit.episodes[chance_columns(self.audit.meta)].to_numpy()
            return whole_numbers(0.8 * sure[self.truth] + 2 * model)
        return sure[self.truth]

    def draw(self, seed, size=FLAGS + CONTROLS):
        """Return the audit with other patients to review, drawn as an audit draws them."""
        table = self.audit.episodes
        order = drawing_order(self.result.episodes.id, np.zeros(2, dtype=np.uint64), seed)
        design, control = choose_controls(
            self.result, table["rank"].to_numpy(), order, size=size, seed=seed
        )
        known = (table[name].to_numpy() for name in ("difference", "observed_outcome"))
        strata = strata_columns(*known, table["rank"].to_numpy() > 0, design)
        table = table.assign(control=control, **strata)
        meta = self.audit.meta.model_copy(update={"design": design})
        return replace(self.audit, meta=meta, episodes=table)

    def review(self, answers, generator):
        """Return an audit and the reviews of those drawn, in random order, as an export."""
        audit = self.draw(int(generator.integers(2**31)))
        table = audit.episodes
        drawn = np.flatnonzero((table["rank"] > 0) | table["control"])
        case = generator.permutation(drawn)
        columns = {f"chance_{n}": answers[case, o] for o, n in enumerate(audit.meta.outcome_names)}
        frame = pd.DataFrame(
            {
                "run_id": run_id(audit),
                "episode_id": table["id"].to_numpy()[case],
                "reviewer": "Reviewer 1",
                "verdict": "",
                "answer_id": np.arange(1, len(case) + 1),
                "answers_needed": 1,
                **columns,
            }
        )
        return audit, frame


def whole_numbers(parts):
    """Round parts that add up to ten, keeping their sum: the largest remainders go up."""
    low = np.floor(parts + 1e-9).astype(int)
    order = np.argsort(np.argsort(low - parts, axis=1), axis=1)
    return low + (order < (10 - low.sum(axis=1))[:, None])


def sepsis_ward(seed=0, patients=1000):
    """Return the patients of the tabular demonstration, and their audit."""
    physician = sepsis.behavior_policy(VERSION)
    log = sepsis.simulate(physician, patients, seed=seed, version=VERSION)
    log = log.hide("glucose", "diabetes")
    model, target = tabular_learner(discount=0.99)(log)
    replay = bf.Replay(log, model, np.asarray(target))
    known = sepsis.full_policy(replay.target_table)
    truth = sepsis.simulate(known, patients, seed=seed, version=VERSION)
    audit = bf.run_audit(replay, flags=FLAGS, seed=seed, record={"words": {"episode": "patient"}})
    return Ward(audit, replay.outcomes(), truth.outcome % 3, log.outcome % 3)


def after(sample, cases):
    """Return what was known of a review after so many cases."""
    return replace(sample, case=sample.case[:cases], answer=sample.answer[:cases])


def ever_missed(answers, sample):
    """Return whether any anytime interval, after each case, misses the experts' own view.

    `answers` [n] are the returns that they expect of all patients. An interval can miss only while
    a gambler who knows the true means has won 2 / α, so that it is needed at these times, and once
    more when the gambler is richest.
    """
    difference, numbers = answers - sample.predicted, np.unique(sample.stratum)
    place = np.searchsorted(numbers, sample.stratum)
    drawn = drawn_strata(sample)
    richest = np.zeros(len(sample.case))
    for sign in (1, -1):
        ends = [sorted((sign * s.least, sign * s.most)) for s in drawn]
        strata = [(s.size, s.planned, *end) for s, end in zip(drawn, ends, strict=True)]
        means = [sign * difference[place == h].mean().item() for h in range(len(numbers))]
        game = Game(strata, means, THRESHOLD, **CONSTANTS)
        for k, case in enumerate(sample.case.tolist()):
            game.see(int(place[case]), sign * float(difference[case]))
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
        audit, frame = ward.review(answers, generator)
        fixed, anytime = (
            bf.expert_value(audit, frame, interval=name) for name in ("fixed", "anytime")
        )
        expected = answers @ RETURNS / 10
        own = expected.mean()
        rows.append(
            {
                "own view": own,
                "estimate - own view": fixed.value - own,
                "estimate - truth": fixed.value - ward.value(ward.truth),
                "fixed covers": fixed.low <= own <= fixed.high,
                "fixed width": fixed.high - fixed.low,
                "anytime missed": ever_missed(expected, anytime.sample),
                "anytime width": anytime.high - anytime.low,
                "overturned, fixed": fixed.high < fixed.observed,
                "overturned, anytime": anytime.high < anytime.observed,
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

"""A ward whose variables move by normal noise that may be correlated."""

import numpy as np
from scipy.special import ndtr

import butfor as bf
from butfor.evaluate.diagnostics.halves import Halves
from butfor.evaluate.diagnostics.one_step import OneStep, predict_steps

LEVELS = ("low", "normal", "high")
VITALS = tuple(bf.Variable(name, LEVELS) for name in ("pulse", "pressure", "sugar"))
DRUG = (bf.Variable("drug", ("off", "on")),)
OUTCOMES = (bf.Outcome("died", -1.0, bad=True), bf.Outcome("home", 1.0))
# P(next level | level) without drug; the drug moves a tenth of the probability to "normal"
ROWS = np.array([[0.6, 0.3, 0.1], [0.15, 0.7, 0.15], [0.1, 0.3, 0.6]])
STEPS = 8


def true_rows(level, drug):
    """P(next level | level, drug) of each patient, [n, 3]."""
    return 0.9 * ROWS[level] + 0.1 * np.where(drug[:, None] == 1, [0.0, 1.0, 0.0], ROWS[level])


def ward_log(correlation=0.0, *, episodes=1000, seed=0, final=True):
    """Patients whose pulse and pressure have correlated noise; sugar has its own.

    A step ends in death with .03 per vital sign that is not normal, at home with .15 if all are.
    Without `final` the states in which episodes ended are not recorded.
    """
    generator = np.random.default_rng(seed)
    level = generator.integers(3, size=(3, episodes))
    alive = np.ones(episodes, bool)
    steps, outcome = [], np.full(episodes, -1)
    for _ in range(STEPS):
        drug = generator.integers(2, size=episodes)
        noise = generator.standard_normal((3, episodes))
        noise[1] = correlation * noise[0] + np.sqrt(1 - correlation**2) * noise[1]
        below = [np.cumsum(true_rows(own, drug), axis=1)[:, :2] for own in level]
        reached = np.array(
            [(ndtr(z)[:, None] > cut).sum(axis=1) for z, cut in zip(noise, below, strict=True)]
        )
        odd, u = (reached != 1).sum(axis=0), generator.random(episodes)
        end = np.where(u < 0.03 * odd, 0, np.where((odd == 0) & (u > 0.85), 1, -1))
        steps.append((alive, level, drug, reached))
        outcome[alive] = end[alive]
        alive, level = alive & (end < 0), reached
    return _episodes(steps, outcome, final)


def _episodes(steps, outcome, final):
    there = np.array([alive for alive, *_ in steps]).T  # [n, STEPS]
    states = np.array([np.ravel_multi_index(level, (3, 3, 3)) for _, level, *_ in steps]).T
    drugs = np.array([drug for _, _, drug, _ in steps]).T
    after = np.array([np.ravel_multi_index(reached, (3, 3, 3)) for *_, reached in steps]).T
    lengths = there.sum(axis=1)
    if not final:
        ended = np.flatnonzero(outcome >= 0)
        after[ended, lengths[ended] - 1] = -1
    return bf.Episodes.from_arrays(
        states[there], drugs[there], after[there], offsets=np.concatenate([[0], lengths.cumsum()]),
        outcome=outcome, outcomes=OUTCOMES, states=VITALS, actions=DRUG, horizon=STEPS,
    )  # fmt: skip


def held_out(log, model, learn=None):
    """Return models of both halves."""
    return Halves(log, model, learn, 0)


def predictions(log, model, learn=None):
    """Return what they predict one step ahead."""
    return predict_steps(held_out(log, model, learn), model)


def one_step(rows, level, variable="pulse"):
    """Return predictions that are given."""
    return OneStep(variable, (), np.asarray(rows), np.asarray(level), np.ones(len(level), bool))


def steps_of(count):
    """Episodes of one step each."""
    return bf.Episodes.from_arrays(
        np.zeros(count, int), np.zeros(count, int), np.zeros(count, int),
        offsets=np.arange(count + 1), states=1, actions=1,
    )  # fmt: skip
